// SPDX-License-Identifier: Apache-2.0
// See automaton.h. What a state allows is drawn once; where a token leads is a hash.
#include "support/automaton.h"

#include <stdlib.h>

#include "base/rng.h"

struct constraint_state {
    int id;
    int64_t left; // steps that its mask still takes
};

// Takes some steps, or as many of them as are allowed. false: there are more.
static bool take(struct automaton *a, int64_t *left) {
    int64_t can = a->allowed > a->work ? a->allowed - a->work : 0;
    int64_t steps = *left < can ? *left : can;
    *left -= steps;
    a->work += steps;
    return *left == 0;
}

int automaton_next(const struct automaton *a, int state, int32_t token) {
    return (int)(rng_hash(a->seed, (uint64_t)state, (uint64_t)token % 7, 0) % (uint64_t)a->states);
}

bool automaton_allows(const struct automaton *a, int state, int32_t token) {
    return a->kind[state] == AUTOMATON_FREE ||
           (a->kind[state] < AUTOMATON_DEAD && (a->allow[state][token / 32] >> (token % 32) & 1));
}

static void automaton_destroy(void *self) {
    free(self);
}

static int make(struct automaton *a, int id, struct constraint_state **out, struct err *e) {
    struct constraint_state *s = NULL;
    if (a->kind[id] == AUTOMATON_BROKEN)
        return err_set(e, ERR_MEMORY, "the automaton has no state %d", id);
    s = malloc(sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for a state");
    *s = (struct constraint_state){.id = id, .left = (int64_t)(id % 4) << 20};
    a->live++;
    *out = s;
    return 0;
}

static int begin(void *self, struct constraint_state **out, struct err *e) {
    return make(self, 0, out, e);
}

static int next(void *self, struct constraint_state *from, int32_t token,
                struct constraint_state **out, struct err *e) {
    struct automaton *a = self;
    int id = automaton_next(a, from->id, token);
    int64_t steps = (int64_t)(id % 3) << 18; // none of them is kept
    if (!take(a, &steps))
        return err_set(e, ERR_UNFINISHED, "the state %d takes more steps", id);
    return make(a, id, out, e);
}

static void drop(void *self, struct constraint_state *s) {
    struct automaton *a = self;
    a->live--;
    free(s);
}

static bool allows(void *self, struct constraint_state *s, int32_t token) {
    return automaton_allows(self, s->id, token);
}

static int look(void *self, struct constraint_state *s, struct constraint_view *out,
                struct err *e) {
    struct automaton *a = self;
    if (!take(a, &s->left))
        return err_set(e, ERR_UNFINISHED, "the mask of state %d takes more steps", s->id);
    if (a->kind[s->id] == AUTOMATON_BLIND)
        return err_set(e, ERR_LIMIT, "the automaton cannot see behind state %d", s->id);
    if (a->kind[s->id] == AUTOMATON_FREE)
        *out = (struct constraint_view){.only = -1};
    else
        *out = constraint_view_of(a->allow[s->id], a->vocab);
    return 0;
}

static enum constraint_hint hint(void *self, struct constraint_state *s, int32_t *token) {
    const struct automaton *a = self;
    *token = a->likely[s->id];
    if (*token < 0)
        return CONSTRAINT_NO_HINT;
    return a->kind[s->id] == AUTOMATON_ONE ? CONSTRAINT_ONLY : CONSTRAINT_LIKELY;
}

static int64_t work(void *self) {
    return ((const struct automaton *)self)->work;
}

static void allow(void *self, int64_t steps) {
    struct automaton *a = self;
    a->allowed = steps < INT64_MAX - a->work ? a->work + steps : INT64_MAX;
}

static const struct constraint_class automaton_class = {
    "automaton", automaton_destroy, begin, next, drop, allows, look, hint, work, allow};

// Draws what a state allows. One in four of those that allow one token does not say so beforehand;
// hints at several may be of any token that is allowed.
static void draw(struct automaton *a, int id, struct rng *g) {
    enum automaton_kind kind = a->kind[id];
    int n = kind == AUTOMATON_HALF  ? (int)a->vocab / 2
            : kind == AUTOMATON_FEW ? 2 + (int)rng_below(g, 5)
                                    : kind == AUTOMATON_ONE;
    int32_t token = -1;
    for (int i = 0; i < n; i++) {
        token = (int32_t)rng_below(g, (uint32_t)a->vocab);
        a->allow[id][token / 32] |= 1u << (token % 32);
    }
    if (n > 0 && constraint_view_of(a->allow[id], a->vocab).only >= 0)
        a->kind[id] = kind = AUTOMATON_ONE; // the same was drawn twice
    if (kind == AUTOMATON_ONE)
        a->likely[id] = rng_below(g, 4) ? token : -1;
    else
        a->likely[id] = -1;
    if (kind == AUTOMATON_FEW && rng_below(g, 2))
        a->likely[id] = token;
}

int automaton_create(struct automaton **out, int64_t vocab, bool ends, uint64_t seed,
                     struct err *e) {
    static const enum automaton_kind usual[] = {AUTOMATON_FREE, AUTOMATON_HALF, AUTOMATON_HALF,
                                                AUTOMATON_FEW,  AUTOMATON_FEW,  AUTOMATON_ONE,
                                                AUTOMATON_ONE};
    struct rng g = {rng_mix(seed)};
    struct automaton *a = calloc(1, sizeof *a);
    if (!a)
        return err_set(e, ERR_MEMORY, "no memory for an automaton");
    a->vocab = vocab;
    a->allowed = INT64_MAX;
    a->states = 2 + (int)rng_below(&g, AUTOMATON_STATES - 1);
    a->seed = rng_next(&g);
    for (int i = 0; i < a->states; i++)
        a->kind[i] = usual[rng_below(&g, 7)];
    if (ends)
        a->kind[a->states - 1] = AUTOMATON_DEAD + (enum automaton_kind)rng_below(&g, 3);
    for (int i = 0; i < a->states; i++)
        draw(a, i, &g);
    int rc = constraint_create(&a->constraint, &automaton_class, a, vocab, e);
    *out = rc ? NULL : a;
    return rc;
}
