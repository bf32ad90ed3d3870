// SPDX-License-Identifier: Apache-2.0
// A draft whose guesses depend on the tokens before them, as a drafter: a pass of all sequences for
// each depth, of one row each. The best candidate of a pass is the node of the next, and what is
// guessed below other candidates is not known; so candidates are of the kind `pair`, and only the
// best candidate of a depth is a parent. A sequence for which there is no room for nodes gets no
// guesses. A smaller `useful_depth` leaves passes out and changes nothing of the others.
#include "spec/draft/drafter.h"

#include <math.h>
#include <stdlib.h>

#include "base/num.h"

// One sequence's guesses.
struct guesses {
    int of;       // its request
    int wanted;   // depths
    int depth, k; // so far
    int32_t *ids; // [depth][k]
    float *logp;  // [depth][k] -INFINITY below the root's
    float *pair;  // [depth - 1][k][k]
    struct draft_node node;
};

struct draft_model {
    struct draft *draft;
    int depth;                   // at most TREE_MAX_DEPTH
    int max_k, max_members;      // candidates per depth, sequences of a call
    struct guesses *guesses;     // [max_members]
    struct draft_level *levels;  // [max_members]
    struct draft_guesses *found; // [max_members]
    int *order;                  // [max_members] the guesses that take part in a pass
    int32_t *ids;                // [max_members][depth][max_k]
    float *logp;                 // the same
    float *pair;                 // [max_members][depth - 1][max_k][max_k]
};

static void model_drafter_destroy(void *self) {
    struct draft_model *d = self;
    free(d->guesses);
    free(d->levels);
    free(d->found);
    free(d->order);
    free(d->ids);
    free(d->logp);
    free(d->pair);
    free(d);
}

static int allocate(struct draft_model *d, struct err *e) {
    const size_t n = (size_t)d->max_members, k = (size_t)d->max_k;
    const size_t cells = (size_t)d->depth * k, pairs = (size_t)(d->depth - 1) * k * k;
    d->guesses = calloc(n, sizeof *d->guesses);
    d->levels = calloc(n, sizeof *d->levels);
    d->found = calloc(n, sizeof *d->found);
    d->order = calloc(n, sizeof *d->order);
    d->ids = calloc(n * cells, sizeof *d->ids);
    d->logp = calloc(n * cells, sizeof *d->logp);
    d->pair = calloc(n * pairs + 1, sizeof *d->pair);
    if (!d->guesses || !d->levels || !d->found || !d->order || !d->ids || !d->logp || !d->pair)
        return err_set(e, ERR_MEMORY, "no memory for the guesses of %d sequences", d->max_members);
    for (size_t i = 0; i < n; i++) {
        d->guesses[i].ids = d->ids + i * cells;
        d->guesses[i].logp = d->logp + i * cells;
        d->guesses[i].pair = d->pair + i * pairs;
    }
    return 0;
}

static int model_drafter_create(void **self, const struct draft_config *c, struct err *e) {
    struct draft_model *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, ERR_MEMORY, "no memory for a drafter");
    const int64_t vocab = model_params_of(c->model)->vocab;
    d->draft = c->draft;
    d->depth = min_i32(max_i32(draft_traits(c->draft).max_depth, 1), TREE_MAX_DEPTH);
    d->max_k = c->max_k > 0 ? min_i32(c->max_k, TREE_MAX_K) : TREE_MAX_K;
    d->max_k = (int)min_i64(d->max_k, vocab);
    d->max_members = max_i32(c->max_members, 1);
    int rc = allocate(d, e);
    if (rc) {
        model_drafter_destroy(d);
        return rc;
    }
    *self = d;
    return 0;
}

static int model_drafter_max_depth(const void *self) {
    return ((const struct draft_model *)self)->depth;
}

// The requests that take part; returns how many.
static int gather_requests(struct draft_model *d, const struct draft_request *r, int n) {
    int count = 0;
    for (int i = 0; i < n; i++) {
        int wanted = min_i32(r[i].max_depth, d->depth);
        if (r[i].useful_depth > 0)
            wanted = min_i32(wanted, r[i].useful_depth);
        if (wanted < 1)
            continue;
        struct guesses *g = &d->guesses[count++];
        g->of = i;
        g->wanted = wanted;
        g->depth = 0;
        g->k = min_i32(r[i].k, d->max_k);
    }
    return count;
}

static void level_of(struct draft_level *l, const struct guesses *g,
                     const struct draft_request *r) {
    *l = (struct draft_level){.seq = r->seq,
                              .root = r->root,
                              .nodes = g->depth ? &g->node : NULL,
                              .n = 1,
                              .depth = g->depth,
                              .k = g->k,
                              .noise = r->noise ? &r->noise[g->depth] : NULL};
}

// Takes the candidates below the newest node. The best becomes the next node; false: there is none.
static bool take_candidates(struct guesses *g, const struct draft_guesses *found) {
    const int k = g->k, at = g->depth * k;
    if (found->k < 1 || !isfinite(found->logp[0]))
        return false;
    for (int i = 0; i < k; i++) {
        const bool there = i < found->k && isfinite(found->logp[i]);
        g->ids[at + i] = there ? found->ids[i] : found->ids[0];
        g->logp[at + i] = there ? found->logp[i] : -INFINITY;
    }
    if (g->depth) { // they are known below the best of the depth before, and no other
        float *pair = g->pair + (int64_t)(g->depth - 1) * k * k;
        for (int i = 0; i < k * k; i++)
            pair[i] = i < k ? g->logp[at + i] : -INFINITY;
        for (int i = 0; i < k; i++)
            g->logp[at + i] = -INFINITY;
    }
    g->depth++;
    g->node = (struct draft_node){.parent = g->depth - 1, .token = g->ids[at], .depth = g->depth};
    return true;
}

// A pass for those of count members that want another depth; returns how many had candidates.
static int run_pass(struct draft_model *d, const struct draft_request *r, int count, int *n,
                    struct err *e) {
    int live = 0, rows = 0;
    for (int i = 0; i < count; i++) {
        const struct guesses *g = &d->guesses[d->order[i]];
        if (g->depth >= g->wanted)
            continue;
        level_of(&d->levels[rows], g, &r[g->of]);
        d->order[rows++] = d->order[i];
    }
    *n = 0;
    int rc = rows ? draft_run_level(d->draft, d->levels, rows, d->found, e) : 0;
    for (int i = 0; !rc && i < rows; i++)
        if (take_candidates(&d->guesses[d->order[i]], &d->found[i]))
            d->order[live++] = d->order[i];
    *n = live;
    return rc;
}

static int model_drafter_propose(void *self, const struct draft_request *r, int n,
                                 struct proposal *const *p, struct err *e) {
    struct draft_model *d = self;
    const int count = gather_requests(d, r, n);
    if (count < 1)
        return 0;
    for (int i = 0; i < count; i++) {
        d->order[i] = i;
        level_of(&d->levels[i], &d->guesses[i], &r[d->guesses[i].of]);
    }
    int live = count, rc = draft_begin(d->draft, d->levels, count, e);
    while (!rc && live)
        rc = run_pass(d, r, live, &live, e);
    for (int i = 0; !rc && i < count; i++) {
        const struct guesses *g = &d->guesses[i];
        struct proposal *q = p[g->of];
        q->depth = g->depth;
        q->k = g->k;
        q->ids = g->ids;
        q->logp = g->logp;
        q->pair = g->pair;
        q->expand = NULL;
    }
    return rc;
}

const struct drafter_class drafter_model = {"draft model",         model_drafter_create,
                                            model_drafter_destroy, model_drafter_max_depth,
                                            model_drafter_propose, .shared = true};
