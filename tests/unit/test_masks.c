// SPDX-License-Identifier: Apache-2.0
// Masks of a member's tree: what a constraint leaves of proposals, forced guesses, and what happens
// where nothing is allowed. That constrained output does not depend on guesses is the property
// test's.
#include "test.h"

#include <math.h>
#include <stdlib.h>

#include "spec/constraint/masks.h"
#include "support/automaton.h"

enum { VOCAB = 100, K = 2, DEPTH = 3, OFFERED = 4 };

// A chain of states by hand: 0 allows even tokens, 1 only token 7, 2 nothing, 3 everything; a token
// leads to the next one.
struct hand {
    uint32_t allow[4][VOCAB / 32 + 1];
    int live, fails; // next into this state fails; -1: none
    bool free;       // all states allow everything
};
struct constraint_state {
    int id;
};

static int hand_make(struct hand *h, int id, struct constraint_state **out, struct err *e) {
    if (id == h->fails)
        return err_set(e, ERR_MEMORY, "no state %d", id);
    *out = malloc(sizeof **out);
    (*out)->id = id < 3 ? id : 3;
    h->live++;
    return 0;
}

static int hand_begin(void *self, struct constraint_state **out, struct err *e) {
    return hand_make(self, 0, out, e);
}

static int hand_next(void *self, struct constraint_state *from, int32_t token,
                     struct constraint_state **out, struct err *e) {
    (void)token;
    return hand_make(self, from->id + 1, out, e);
}

static void hand_drop(void *self, struct constraint_state *s) {
    ((struct hand *)self)->live--;
    free(s);
}

static int hand_look(void *self, struct constraint_state *s, struct constraint_view *out,
                     struct err *e) {
    (void)e;
    *out = constraint_view_of(((struct hand *)self)->allow[s->id], VOCAB);
    return 0;
}

static bool hand_allows(void *self, struct constraint_state *s, int32_t token) {
    return ((struct hand *)self)->allow[s->id][token / 32] >> (token % 32) & 1;
}

static enum constraint_hint hand_hint(void *self, struct constraint_state *s, int32_t *token) {
    *token = 7;
    return s->id == 1 && !((struct hand *)self)->free ? CONSTRAINT_ONLY : CONSTRAINT_NO_HINT;
}

static void hand_destroy(void *self) {
    (void)self;
}

static const struct constraint_class hand_class = {"hand",    hand_destroy, hand_begin, hand_next,
                                                   hand_drop, hand_allows,  hand_look,  hand_hint,
                                                   NULL,      NULL};

static struct masks *open_hand(struct hand *h) {
    struct constraint *c;
    struct masks *m;
    *h = (struct hand){.fails = -1};
    for (int i = 0; i < VOCAB; i += 2)
        h->allow[0][i / 32] |= 1u << (i % 32);
    h->allow[1][0] = 1u << 7;
    for (int i = 0; i < VOCAB / 32 + 1; i++)
        h->allow[3][i] = 0xFFFFFFFFu;
    assert_int_equal(constraint_create(&c, &hand_class, h, VOCAB, NULL), 0);
    assert_int_equal(masks_create(&m, c, VOCAB, NULL), 0);
    constraint_drop(c); // the masks keep it
    return m;
}

static void test_views(void **state) {
    (void)state;
    uint32_t bits[4] = {0};
    struct constraint_view v = constraint_view_of(bits, VOCAB);
    assert_true(v.none && v.only == -1);
    bits[3] = 0xFFFFFFF0u; // after the vocabulary
    v = constraint_view_of(bits, VOCAB);
    assert_true(v.none);
    bits[3] |= 1;
    v = constraint_view_of(bits, VOCAB);
    assert_true(!v.none && v.only == 96);
    bits[0] = 1u << 31;
    v = constraint_view_of(bits, VOCAB);
    assert_true(!v.none && v.only == -1);
}

static void build(struct masks *m, struct ddtree *t, const struct proposal *p, int budget) {
    struct tree_options o = {.budget = budget, .k = K, .max_depth = DEPTH};
    struct proposal allowed;
    assert_int_equal(masks_begin(m, NULL), 0);
    masks_offer(m, p, &o, &allowed);
    assert_int_equal(ddtree_build(t, 1, &allowed, &o, NULL), 0);
    masks_take(m, t);
}

enum { WIDTH = 20, DEEP = 24, MORE = 20 };

// A drafter by path that answers depth by depth, with one good candidate of each node and others
// that are better the deeper they are, so that those of each depth push others out. It checks that
// each node's parent is one that it was requested and that paths agree.
struct by_path {
    int called;
    int32_t depth[1 + WIDTH * DEEP], last[1 + WIDTH * DEEP];
    int32_t ids[WIDTH * TREE_MAX_K];
    float logp[WIDTH * TREE_MAX_K];
};

static int by_path_expand(void *arg, const struct tree_node *nodes, int n, int k,
                          struct tree_candidates *out, struct err *e) {
    struct by_path *d = arg;
    (void)e;
    assert_in_range(n, 1, WIDTH);
    for (int i = 0; i < n; i++, d->called++) {
        const struct tree_node *y = &nodes[i];
        assert_in_range(d->called, 0, WIDTH * DEEP);
        d->depth[d->called] = y->depth;
        d->last[d->called] = y->depth ? y->path[y->depth - 1] : -1;
        if (y->depth) {
            assert_in_range(y->parent, 0, d->called - 1);
            assert_int_equal(d->depth[y->parent], y->depth - 1);
            assert_int_equal(d->last[y->parent], y->depth > 1 ? y->path[y->depth - 2] : -1);
        }
        for (int q = 0; q < k; q++) {
            d->ids[i * k + q] = q < MORE ? 10 + 2 * q : -1;
            d->logp[i * k + q] = q == 0 ? 0 : q < MORE ? -(float)(2 * DEEP - y->depth) : -INFINITY;
        }
    }
    *out = (struct tree_candidates){d->ids, d->logp, NULL};
    return 0;
}

// It is requested more nodes than a tree may have rows, and every row gets its state.
static void test_by_path(void **state) {
    (void)state;
    static struct by_path d;
    struct hand h;
    struct masks *m = open_hand(&h);
    struct ddtree t;
    struct tree_options o = {.budget = TREE_MAX_BUDGET, .k = MORE, .max_depth = DEEP};
    struct proposal base = {
        .depth = DEEP, .k = MORE, .expand = by_path_expand, .expand_arg = &d, .width = WIDTH};
    struct proposal allowed;
    memset(h.allow, 0xFF, sizeof h.allow);
    h.free = true;
    assert_int_equal(masks_begin(m, NULL), 0);
    masks_offer(m, &base, &o, &allowed);
    assert_int_equal(ddtree_build(&t, 1, &allowed, &o, NULL), 0);
    masks_take(m, &t);
    assert_true(d.called > 2 * TREE_MAX_ROWS);
    assert_int_equal(t.n, TREE_MAX_ROWS);
    for (int i = 0; i < t.n; i++) {
        struct constraint_view v;
        assert_int_equal(masks_look(m, i, &v, NULL), 0);
        assert_false(v.none);
    }
    masks_destroy(m);
    assert_int_equal(h.live, 0);
}

// Offers odd tokens first, which are forbidden after the root, then even ones.
static int odd_expand(void *arg, const struct tree_node *nodes, int n, int k,
                      struct tree_candidates *out, struct err *e) {
    static int32_t ids[TREE_MAX_K];
    static float logp[TREE_MAX_K];
    (void)nodes;
    (void)e;
    assert_int_equal(n, 1);
    *(int *)arg = k;
    for (int i = 0; i < k; i++) {
        ids[i] = i < 5 ? 2 * i + 1 : 2 * i;
        logp[i] = -1 - 0.1f * (float)i;
    }
    *out = (struct tree_candidates){ids, logp, NULL};
    return 0;
}

// A drafter that answers for paths is requested more than a node may have, so that those which are
// forbidden leave no hole.
static void test_wide(void **state) {
    (void)state;
    struct hand h;
    struct masks *m = open_hand(&h);
    struct ddtree t;
    int k = 0;
    struct proposal base = {.depth = 1, .k = K, .expand = odd_expand, .expand_arg = &k};
    build(m, &t, &base, 2 * K);
    assert_int_equal(k, masks_wanted(K));
    assert_int_equal(t.n, 1 + 2 * K); // the forced one after each of the best that are allowed
    int found = 0;
    for (int i = 1; i < t.n; i++)
        found += t.depth[i] == 1 && (t.token[i] == 10 || t.token[i] == 12);
    assert_int_equal(found, K);
    masks_destroy(m);
    assert_int_equal(h.live, 0);
}

static const float *pair_of(void *arg, int d, int q) {
    return (const float *)arg + (d * OFFERED + q) * OFFERED;
}

// Where candidates depend on the parent, the best below it are taken, whichever are so elsewhere.
static void test_best_below_parent(void **state) {
    (void)state;
    static const int32_t ids[2][OFFERED] = {{4, 6, 8, 10}, {20, 22, 24, 26}};
    static const float logp[2][OFFERED] = {{-0.1f, -4, -5, -6}, {-1, -1, -1, -1}};
    float pair[OFFERED * OFFERED];
    struct hand h;
    struct masks *m = open_hand(&h);
    struct ddtree t;
    memset(h.allow, 0xFF, sizeof h.allow);
    h.free = true;
    for (int i = 0; i < OFFERED * OFFERED; i++)
        pair[i] = -9 + (float)(i % OFFERED); // the last ones are the best
    struct proposal base = {.depth = 2,
                            .k = OFFERED,
                            .ids = ids[0],
                            .logp = logp[0],
                            .pair = pair_of,
                            .pair_arg = pair};
    struct tree_options o = {.budget = 40, .k = K, .max_depth = 2};
    struct proposal allowed;
    assert_int_equal(masks_begin(m, NULL), 0);
    masks_offer(m, &base, &o, &allowed);
    assert_int_equal(ddtree_build(&t, 1, &allowed, &o, NULL), 0);
    masks_take(m, &t);
    assert_int_equal(t.n, 1 + K + K * K);
    for (int i = 1; i < t.n; i++)
        assert_true(t.depth[i] == 1 ? t.token[i] <= 6 : t.token[i] >= 24);
    masks_destroy(m);
    assert_int_equal(h.live, 0);
}

// Odd candidates are passed over, and the next best even ones join; after them token 7 is forced;
// after that nothing can be had but guesses do not include it yet.
static void test_candidates(void **state) {
    (void)state;
    static const int32_t ids[DEPTH][OFFERED] = {{3, 8, 5, 10}, {1, 2, 3, 4}, {1, 2, 3, 4}};
    static const float p[OFFERED] = {0.5f, 0.2f, 0.2f, 0.05f};
    struct hand h;
    struct masks *m = open_hand(&h);
    struct ddtree t;
    float logp[DEPTH][OFFERED];
    for (int d = 0; d < DEPTH; d++)
        for (int i = 0; i < OFFERED; i++)
            logp[d][i] = logf(p[i]);
    struct proposal base = {.depth = DEPTH, .k = OFFERED, .ids = ids[0], .logp = logp[0]};
    build(m, &t, &base, 8);
    assert_int_equal(t.n, 5);
    assert_int_equal(t.token[1], 8);
    assert_int_equal(t.token[2], 7);
    assert_int_equal(t.parent[2], 1);
    assert_int_equal(t.token[3], 10);
    assert_int_equal(t.token[4], 7);
    assert_int_equal(t.origin[1], TREE_BY_CANDIDATES);
    assert_int_equal(t.origin[2], TREE_BY_CONSTRAINT);
    assert_true(fabs(exp(t.score[1]) - 0.2 / 0.3) < 1e-4); // of what is not forbidden
    assert_true(t.score[2] == t.score[1]);
    assert_true(masks_forced_nodes(m)[2] && masks_forced_nodes(m)[4] && !masks_forced_nodes(m)[1] &&
                !masks_forced_nodes(m)[3]);
    masks_destroy(m);
    assert_int_equal(h.live, 0);
}

static void test_chains(void **state) {
    (void)state;
    static const int32_t good[] = {8, 7}, bad[] = {9, 7};
    struct hand h;
    struct masks *m = open_hand(&h);
    struct ddtree t;
    static const int32_t ids[] = {8, 10};
    static const float logp[] = {-0.5f, -1.0f};
    struct proposal base = {.chains = {{bad, 2, -0.1f}, {good, 2, -0.2f}}, .n_chains = 2};
    build(m, &t, &base, 8);
    assert_int_equal(t.n, 3);
    assert_int_equal(t.token[1], 8);
    assert_int_equal(t.token[2], 7);
    assert_int_equal(t.origin[1], TREE_BY_CHAIN);
    assert_int_equal(t.origin[2], TREE_BY_CONSTRAINT);
    base.depth = 1; // a drafter guesses the chain's token, too, and one of its own
    base.k = 2;
    base.ids = ids;
    base.logp = logp;
    build(m, &t, &base, 8);
    assert_int_equal(t.token[1], 8);
    assert_int_equal(t.origin[1], TREE_BY_CANDIDATES | TREE_BY_CHAIN);
    assert_int_equal(t.token[3], 10);
    assert_int_equal(t.origin[3], TREE_BY_CANDIDATES);
    masks_destroy(m);
    assert_int_equal(h.live, 0);
}

static void test_looks(void **state) {
    (void)state;
    struct hand h;
    struct masks *m = open_hand(&h);
    struct ddtree t = {.n = 3, .token = {1, 8, 7}, .parent = {-1, 0, 1}, .depth = {0, 1, 2}};
    struct constraint_view v;
    struct err e = {0};
    struct walk w = {.count = 2, .path = {0, 1}, .chosen = {8, 7}};
    assert_int_equal(masks_begin(m, &e), 0);
    masks_take(m, &t);
    assert_int_equal(masks_look(m, 0, &v, &e), 0);
    assert_true(!masks_forced(m, 0) && !v.none);
    assert_int_equal(masks_look(m, 1, &v, &e), 0);
    assert_true(masks_forced(m, 1) && v.only == 7);
    assert_int_equal(masks_look(m, 2, &v, &e), 0); // only a guess: no error
    assert_true(v.none);
    masks_advance(m, &w);
    assert_int_equal(masks_begin(m, &e), 0);
    masks_take(m, &t);
    assert_int_equal(masks_look(m, 0, &v, &e), ERR_STATE);
    assert_non_null(strstr(e.text, "allows no token"));
    masks_destroy(m);
    assert_int_equal(h.live, 0);
}

// A state that cannot be had ends the reply only where tokens were chosen, not guessed.
static void test_failures(void **state) {
    (void)state;
    struct hand h;
    struct masks *m = open_hand(&h);
    struct ddtree t = {.n = 2, .token = {1, 8}, .parent = {-1, 0}, .depth = {0, 1}};
    struct constraint_view v;
    struct err e = {0};
    struct walk w = {.count = 1, .path = {0}, .chosen = {8}};
    h.fails = 1;
    assert_int_equal(masks_begin(m, &e), 0);
    masks_take(m, &t);
    assert_int_equal(masks_look(m, 0, &v, &e), 0);
    assert_int_equal(masks_look(m, 1, &v, &e), 0);
    assert_true(v.none);
    masks_advance(m, &w);
    assert_int_equal(masks_begin(m, &e), ERR_MEMORY);
    assert_string_equal(e.text, "no state 1");
    masks_destroy(m);
    assert_int_equal(h.live, 0);
}

static void test_vocabulary(void **state) {
    (void)state;
    struct automaton *a;
    struct masks *m;
    struct err e = {0};
    assert_int_equal(automaton_create(&a, VOCAB, false, 1, &e), 0);
    assert_int_equal(masks_create(&m, a->constraint, VOCAB + 1, &e), ERR_MISMATCH);
    constraint_drop(a->constraint);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_path),
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_candidates),
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_looks),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_best_below_parent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
