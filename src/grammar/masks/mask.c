// SPDX-License-Identifier: Apache-2.0
// Masks; matcher.h says what they are made of. That most tokens are decided by the innermost rule
// alone, whatever lies below on the stack, is XGrammar's observation (Dong and others, 2024); that
// ordinary text is decided as a block is llguidance's (its "slices"). Here both are found out at
// run time, per set of readings, on the same tables that single steps use.
//
// A state with hundreds of readings makes each step dear. Where a mask would cost too much, only
// tokens of a few bytes are looked at: they can say the same.
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/vec.h"
#include "grammar/masks/matcher.h"

enum { FRAMES = 4 }; // of small rules that a local mask covers

// ---- walks

static void keep_exit(struct grammar_matcher *m, struct local_mask *l, uint32_t place) {
    if (vec_reserve(&l->exits, &l->exit_cap, l->exit_count + 1, sizeof *l->exits, &m->t.e))
        m->t.rc = m->t.e.code;
    else
        l->exits[l->exit_count++] = place;
}

static void take_token(struct walk *w, int32_t token) {
    if (w->bits) {
        w->bits[token / 32] |= 1u << (token % 32);
    } else {
        w->count++;
        w->last = token;
    }
}

// Is everything below a node plain text that the state takes, whatever it is?
static bool takes_all(struct grammar_matcher *m, const struct trie_node *n, uint32_t state) {
    bool closed;
    if (!m->t.states[state].run) {
        uint32_t deep = m->deep;
        m->deep = 0;
        int run = plain_run(m, state, &closed);
        if (!m->t.rc) // else it is not known yet
            m->t.states[state].run = (uint8_t)(run + 1);
        if (m->deep > m->t.states[state].deep)
            m->t.states[state].deep = m->deep;
        m->deep = deep;
    }
    matcher_deep(m, state);
    return n->plain <= m->t.states[state].run && !m->t.rc;
}

// The next node from i on that a walk looks at.
static uint32_t walk_on(const struct grammar_matcher *m, const struct walk *w, uint32_t i) {
    return w->other ? m->v->next_other[i] : i;
}

// Takes all tokens below a node.
static void take_below(struct grammar_matcher *m, struct walk *w, const struct trie_node *n) {
    for (uint32_t k = n->rank; k < m->v->nodes[n->end].rank; k++)
        take_token(w, m->v->tokens[k]);
}

// Takes the tokens that end at a node.
static void take_here(struct grammar_matcher *m, struct walk *w, const struct trie_node *n) {
    if (n->token >= 0)
        take_token(w, n->token);
    for (int32_t t = n->twins ? m->v->same[n->token] : -1; t >= 0; t = m->v->same[t])
        take_token(w, t);
}

// A state with many readings takes several times as long for each of them: its steps are new, and
// its stacks are joined.
static int64_t step_cost(uint32_t weight) {
    return NODE_COST + (weight <= FEW ? (int64_t)weight : MANY_COST * (int64_t)weight);
}

// Errors: m->t.rc. false: the cost has passed WALK_COST, and the rest was not looked at.
static bool walk_trie(struct grammar_matcher *m, struct walk *w) {
    enum { MANY = 64 }; // nodes below one, for which it pays to compute it
    uint32_t states[GRAMMAR_TOKEN_BYTES + 2];
    const struct trie_node *nodes = m->v->nodes;
    if (w->begin == w->end)
        return true;
    states[nodes[w->begin].depth - 1] = w->state;
    for (uint32_t i = walk_on(m, w, w->begin); i < w->end && w->count < w->max;) {
        const struct trie_node *n = &nodes[i];
        uint32_t to = tables_step(&m->t, states[n->depth - 1], n->byte);
        matcher_deep(m, states[n->depth - 1]);
        if (to == STATE_ERROR)
            return true;
        m->walked++;
        w->cost += step_cost(m->t.states[to].weight);
        if (w->cost > WALK_COST && !w->depth)
            return false;
        if (to == STATE_DEAD) {
            i = walk_on(m, w, n->end);
            continue;
        }
        if (n->plain && n->end > i + MANY && w->bits && !w->depth && takes_all(m, n, to)) {
            take_below(m, w, n);
            i = walk_on(m, w, n->end);
            continue;
        }
        states[n->depth] = to;
        take_here(m, w, n);
        uint32_t next = walk_on(m, w, n->depth == w->depth ? n->end : i + 1);
        if (w->exits && next < n->end && m->t.states[to].open)
            keep_exit(m, w->exits, i);
        i = next;
    }
    return true;
}

// ---- local masks

// Keeps the bits that were made as they are, or as a list where that is shorter.
static bool local_keep(struct grammar_matcher *m, struct local_mask *l) {
    int32_t n = 0, k = 0;
    for (int32_t i = 0; i < m->v->words; i++)
        n += __builtin_popcount(m->bits[i]);
    l->count = n;
    l->bytes = (size_t)l->exit_cap * sizeof *l->exits;
    if (n > m->v->words / 2) {
        l->bits = malloc((size_t)m->v->words * sizeof *l->bits);
        if (l->bits)
            memcpy(l->bits, m->bits, (size_t)m->v->words * sizeof *l->bits);
        l->bytes += (size_t)m->v->words * sizeof *l->bits;
        return l->bits != NULL;
    }
    l->ids = malloc(((size_t)n + 1) * sizeof *l->ids);
    l->bytes += ((size_t)n + 1) * sizeof *l->ids;
    for (int32_t i = 0; i < m->v->words && l->ids; i++)
        for (uint32_t word = m->bits[i]; word; word &= word - 1)
            l->ids[k++] = 32 * i + __builtin_ctz(word);
    return l->ids != NULL;
}

static void local_make(struct grammar_matcher *m, uint32_t state, struct local_mask *l) {
    size_t words = (size_t)m->v->words;
    bool closed;
    m->deep = 0;
    int chars = plain_run(m, state, &closed);
    l->other = chars == PLAIN_CHARS || closed;
    if (l->other)
        memcpy(m->bits, m->v->plain + (size_t)chars * words, words * sizeof *m->bits);
    else
        memset(m->bits, 0, words * sizeof *m->bits);
    struct walk w = {.other = l->other,
                     .end = m->v->count,
                     .state = state,
                     .bits = m->bits,
                     .exits = l,
                     .max = 1};
    bool whole = !m->t.rc && walk_trie(m, &w);
    l->cost = w.cost;
    l->deep = m->deep;
    if (!whole) // too dear: that is all it will do
        memset(m->bits, 0, words * sizeof *m->bits);
    if (!m->t.rc && !local_keep(m, l))
        m->t.rc = err_set(&m->t.e, ERR_MEMORY, "no memory for a mask");
}

// The local mask of a state; NULL: m->t.rc.
static const struct local_mask *local_of(struct grammar_matcher *m, uint32_t state) {
    if (m->t.states[state].local)
        return &m->locals[m->t.states[state].local - 1];
    struct local_mask l = {0};
    if (vec_reserve(&m->locals, &m->local_cap, m->local_count + 1, sizeof *m->locals, &m->t.e)) {
        m->t.rc = m->t.e.code;
        return NULL;
    }
    local_make(m, state, &l);
    if (m->t.rc) {
        local_mask_fini(&l);
        return NULL;
    }
    m->locals[m->local_count++] = l;
    m->local_bytes += l.bytes;
    m->t.states[state].local = (uint32_t)m->local_count;
    return &m->locals[m->local_count - 1];
}

// ---- whole masks

// The part of a stack that a local mask covers; *tail: the rest. Frames of small rules are known,
// because such a rule ends within a token; places far from the ends of a repetition are alike.
static uint32_t known_frames(struct grammar_matcher *m, bool small, uint32_t set, int max,
                             uint32_t *tail) {
    struct tables *t = &m->t;
    const struct pair *entry = &t->pairs[t->sets[set].at];
    *tail = set;
    if (!small || max == 0 || t->sets[set].count != 1 || entry->node >= NODE_OPEN)
        return SET_OPEN;
    const struct node *node = &m->g->nodes[entry->node];
    uint32_t below = known_frames(m, node->clear, entry->set, max - 1, tail);
    return below == STATE_ERROR ? below : tables_push(t, node->like, below);
}

static int by_tail(const void *a, const void *b) {
    const struct frame *x = a, *y = b;
    if (x->tail != y->tail)
        return x->tail < y->tail ? -1 : 1;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    return (x->set > y->set) - (x->set < y->set);
}

static bool find_frames(struct grammar_matcher *m, uint32_t state) {
    uint32_t n = m->t.states[state].count;
    if (vec_reserve(&m->frames, &m->frame_cap, n, sizeof *m->frames, &m->t.e) ||
        vec_reserve(&m->readings, &m->reading_cap, n, sizeof *m->readings, &m->t.e)) {
        m->t.rc = m->t.e.code;
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct pair r = m->t.pairs[m->t.states[state].at + i];
        const struct node *node = &m->g->nodes[r.node];
        struct frame f = {.node = node->like};
        f.set = known_frames(m, node->clear, r.set, FRAMES, &f.tail);
        if (f.set == STATE_ERROR)
            return false;
        m->frames[i] = f;
    }
    if (n > 1)
        qsort(m->frames, n, sizeof *m->frames, by_tail);
    return true;
}

// Marks what a group of readings over one tail allows. false: that takes more than *cost allows, or
// would come to more frames than there may be.
static bool add_group(struct grammar_matcher *m, uint32_t count, uint32_t tail, uint32_t *bits,
                      int64_t *cost) {
    uint32_t state = tables_state(&m->t, m->readings, count, false, false);
    const struct local_mask *l = state == STATE_ERROR ? NULL : local_of(m, state);
    if (!l)
        return true;
    *cost += l->cost;
    if (*cost > WALK_COST || l->deep + m->t.sets[tail].depth > GRAMMAR_DEPTH)
        return false;
    for (int32_t i = 0; l->bits && i < m->v->words; i++)
        bits[i] |= l->bits[i];
    for (int32_t i = 0; l->ids && i < l->count; i++)
        bits[l->ids[i] / 32] |= 1u << (l->ids[i] % 32);
    if (l->exit_count == 0)
        return true;
    struct walk w = {.other = l->other, .bits = bits, .max = 1, .cost = *cost};
    w.state = tables_return(&m->t, tail);
    bool whole = true;
    for (int64_t i = 0; i < l->exit_count && !m->t.rc && whole; i++) {
        w.begin = l->exits[i] + 1;
        w.end = m->v->nodes[l->exits[i]].end;
        whole = walk_trie(m, &w);
    }
    *cost = w.cost;
    return whole;
}

// The mask of a state put together from local ones; false: as add_group.
static bool make_joined(struct grammar_matcher *m, uint32_t state, uint32_t *bits) {
    uint32_t n = m->t.states[state].count, count = 0;
    int64_t cost = 0;
    bool whole = true;
    memset(bits, 0, (size_t)m->v->words * sizeof *bits);
    if (!find_frames(m, state))
        return true;
    for (uint32_t i = 0; i < n && !m->t.rc && whole; i++) {
        struct frame f = m->frames[i], next = i + 1 < n ? m->frames[i + 1] : (struct frame){0};
        if (i + 1 < n && by_tail(&f, &next) == 0)
            continue;
        m->readings[count++] = (struct pair){f.node, f.set};
        if (i + 1 < n && next.tail == f.tail && next.node != f.node)
            continue;
        whole = add_group(m, count, f.tail, bits, &cost);
        count = 0;
    }
    return whole;
}

static bool any_bit(const uint32_t *bits, int32_t words) {
    for (int32_t i = 0; i < words; i++)
        if (bits[i])
            return true;
    return false;
}

// The mask of a state by a walk of its own: of all tokens, or of those of few bytes where that
// takes too much, but some.
static void make_walked(struct grammar_matcher *m, uint32_t state, uint32_t *bits) {
    size_t bytes = (size_t)m->v->words * sizeof *bits;
    struct walk all = {.end = m->v->count, .state = state, .bits = bits, .max = 1};
    memset(bits, 0, bytes);
    if (walk_trie(m, &all))
        return;
    memset(bits, 0, bytes);
    for (int depth = 1; depth <= GRAMMAR_TOKEN_BYTES && !m->t.rc; depth *= 2) {
        struct walk few = {
            .end = m->v->count, .state = state, .bits = bits, .max = 1, .depth = depth};
        walk_trie(m, &few);
        if (4 * few.cost > WALK_COST && any_bit(bits, m->v->words))
            return;
    }
}

static struct whole_mask *least_used(struct grammar_matcher *m) {
    struct whole_mask *min = &m->whole[0];
    for (int i = 1; i < WHOLE_MASKS; i++)
        if (m->whole[i].used < min->used || m->whole[i].state == STATE_DEAD)
            min = &m->whole[i];
    return min;
}

// The mask of a state without the tokens that end, in the list of masks; NULL: m->t.rc.
static const uint32_t *whole_of(struct grammar_matcher *m, uint32_t state) {
    size_t bytes = (size_t)m->v->words * sizeof(uint32_t);
    for (int i = 0; i < WHOLE_MASKS; i++)
        if (m->whole[i].state == state) {
            m->whole[i].used = ++m->uses;
            return m->whole[i].bits;
        }
    struct whole_mask *w = least_used(m);
    w->state = STATE_DEAD;
    if (!w->bits)
        w->bits = malloc(bytes + sizeof(uint32_t));
    if (!w->bits) {
        m->t.rc = err_set(&m->t.e, ERR_MEMORY, "no memory for a mask");
        return NULL;
    }
    if (!make_joined(m, state, w->bits) && !m->t.rc)
        make_walked(m, state, w->bits);
    if (m->t.rc)
        return NULL;
    w->state = state;
    w->used = ++m->uses;
    return w->bits;
}

int grammar_mask(struct grammar_matcher *m, const struct grammar_state *s, uint32_t *bits,
                 struct err *e) {
    size_t bytes = (size_t)m->v->words * sizeof *bits;
    memset(bits, 0, bytes);
    if (s->ended)
        return 0;
    matcher_begin(m);
    if (s->number != STATE_DEAD && m->t.states[s->number].count) {
        const uint32_t *whole = whole_of(m, s->number);
        if (!whole)
            return matcher_error(m, s, e);
        matcher_finished(m, s);
        memcpy(bits, whole, bytes);
    }
    if (m->t.states[s->number].may_end)
        for (int32_t i = 0; i < m->v->end_count; i++)
            bits[m->v->ends[i] / 32] |= 1u << (m->v->ends[i] % 32);
    return 0;
}

int grammar_forced(struct grammar_matcher *m, const struct grammar_state *s, int32_t *token,
                   struct err *e) {
    struct walk w = {.end = m->v->count, .max = 2, .last = -1};
    *token = -1;
    if (s->ended)
        return 0;
    matcher_begin(m);
    w.state = s->number;
    if (m->t.states[s->number].may_end && m->v->end_count) {
        w.count = m->v->end_count;
        w.last = m->v->ends[0];
    }
    walk_trie(m, &w);
    if (m->t.rc)
        return matcher_error(m, s, e);
    if (w.count == 1)
        *token = w.last;
    return 0;
}
