// SPDX-License-Identifier: Apache-2.0
// The tree builder against brute force: every prefix is enumerated and sorted by the order that
// ddtree.h states, and the first b of them must be the tree, in every field.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "spec/ddtree.h"

struct ref {
    double score;
    int depth, rank, seed; // seed: place in the seeded chain, 0 for none
    int32_t token;
    struct ref *parent; // NULL: the root
    int32_t path[8];
};

struct brute {
    const struct proposal *p;
    const struct tree_options *o;
    struct ref *nodes[20000];
    int n;
};

struct option_ref {
    int32_t token;
    double step;
};

static int option_order(const void *x, const void *y) {
    const struct option_ref *a = x, *b = y;
    if (a->step != b->step)
        return a->step > b->step ? -1 : 1;
    return (a->token > b->token) - (a->token < b->token);
}

static void option_merge(struct option_ref *list, int *n, int32_t token, float logp) {
    if (isnan(logp) || isinf(logp))
        return;
    double step = logp > 0 ? 0 : (double)logp;
    for (int i = 0; i < *n; i++)
        if (list[i].token == token) {
            list[i].step = list[i].step > step ? list[i].step : step;
            return;
        }
    list[(*n)++] = (struct option_ref){token, step};
}

// All steps that may follow a path of `depth` tokens, sorted.
static int options_below(const struct brute *b, const int32_t *path, int depth,
                         struct option_ref *list) {
    int n = 0;
    const struct proposal *p = b->p;
    for (int r = 0; depth < p->depth && r < p->k && r < b->o->k; r++)
        option_merge(list, &n, p->ids[depth * p->k + r], p->logp[depth * p->k + r]);
    for (int c = 0; c < p->n_chains; c++) {
        const struct draft_chain *ch = &p->chains[c];
        if (ch->len > depth && memcmp(ch->ids, path, (size_t)depth * sizeof *path) == 0)
            option_merge(list, &n, ch->ids[depth], ch->logp);
    }
    qsort(list, (size_t)n, sizeof *list, option_order);
    return n;
}

static void enumerate(struct brute *b, struct ref *parent, const int32_t *path, int depth) {
    if (depth >= b->o->max_depth)
        return;
    struct option_ref list[16];
    int n = options_below(b, path, depth, list);
    for (int r = 0; r < n; r++) {
        double score = (parent ? parent->score : 0) + list[r].step;
        if (b->o->min_prob > 0 && score < log(b->o->min_prob))
            continue;
        struct ref *node = calloc(1, sizeof *node);
        assert_non_null(node);
        *node = (struct ref){score, depth + 1, r, 0, list[r].token, parent, {0}};
        memcpy(node->path, path, (size_t)depth * sizeof *path);
        node->path[depth] = node->token;
        bool on_chain = !parent || parent->seed > 0;
        if (b->o->chain_seed && r == 0 && on_chain && depth < b->o->budget)
            node->seed = depth + 1;
        assert_true(b->n < 20000);
        b->nodes[b->n++] = node;
        enumerate(b, node, node->path, depth + 1);
    }
}

static int ref_order(const struct ref *a, const struct ref *b) {
    if (a == b)
        return 0;
    if (!a || !b)
        return a ? 1 : -1; // the root has index 0
    if (a->seed || b->seed)
        return (a->seed ? a->seed : 1000) - (b->seed ? b->seed : 1000);
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    if (a->depth != b->depth)
        return a->depth - b->depth;
    int by_parent = ref_order(a->parent, b->parent);
    return by_parent ? by_parent : a->rank - b->rank;
}

static int ref_compare(const void *x, const void *y) {
    return ref_order(*(struct ref *const *)x, *(struct ref *const *)y);
}

// Builds both ways and compares. Returns the number of nodes beside the root.
static int check(const struct proposal *p, const struct tree_options *o) {
    static struct brute b;
    b = (struct brute){.p = p, .o = o};
    enumerate(&b, NULL, (const int32_t[8]){0}, 0);
    qsort(b.nodes, (size_t)b.n, sizeof *b.nodes, ref_compare);
    struct ddtree t;
    ddtree_build(&t, 77, p, o);
    int want = b.n < o->budget ? b.n : o->budget;
    assert_int_equal(t.n, 1 + want);
    assert_int_equal(t.token[0], 77);
    assert_int_equal(t.parent[0], -1);
    assert_int_equal(t.depth[0], 0);
    for (int i = 0; i < want; i++) {
        const struct ref *r = b.nodes[i];
        int parent = 0;
        for (int j = 0; r->parent && j < want; j++)
            if (b.nodes[j] == r->parent)
                parent = j + 1;
        assert_int_equal(t.token[i + 1], r->token);
        assert_int_equal(t.parent[i + 1], parent);
        assert_int_equal(t.depth[i + 1], r->depth);
        assert_true(t.score[i + 1] == r->score);
    }
    for (int i = 0; i < b.n; i++)
        free(b.nodes[i]);
    return want;
}

struct sample {
    int32_t ids[4 * 4], chain[2][5];
    float logp[4 * 4];
    struct proposal p;
};

// Sorted candidates with distinct ids; `levels` few values make equal scores frequent.
static void random_proposal(struct sample *s, struct rng *g, int levels) {
    *s = (struct sample){0};
    s->p = (struct proposal){.depth = (int)rng_below(g, 5),
                             .k = 1 + (int)rng_below(g, 4),
                             .ids = s->ids,
                             .logp = s->logp};
    for (int d = 0; d < s->p.depth; d++) {
        int32_t base = (int32_t)rng_below(g, 5);
        float lp = 0;
        for (int r = 0; r < s->p.k; r++) {
            lp -= 0.25f * (float)rng_below(g, (uint32_t)levels);
            s->ids[d * s->p.k + r] = (base + 3 * r) % 7;
            s->logp[d * s->p.k + r] = lp;
        }
    }
    s->p.n_chains = (int)rng_below(g, 3);
    for (int c = 0; c < s->p.n_chains; c++) {
        for (int d = 0; d < 5; d++)
            s->chain[c][d] =
                rng_below(g, 2) && d < s->p.depth ? s->ids[d * s->p.k] : (int32_t)rng_below(g, 8);
        s->p.chains[c] = (struct draft_chain){s->chain[c], (int)rng_below(g, 6),
                                              -0.25f * (float)rng_below(g, 4)};
    }
}

static void test_brute_force(void **state) {
    (void)state;
    struct rng g = {1};
    int sizes[4] = {0};
    for (int i = 0; i < 4000; i++) {
        struct sample s;
        random_proposal(&s, &g, i % 2 ? 3 : 40);
        static const double probs[] = {0, 0, 0, 0.2, 0.01};
        struct tree_options o = {.budget = (int)rng_below(&g, 40),
                                 .k = 1 + (int)rng_below(&g, 4),
                                 .max_depth = (int)rng_below(&g, 6),
                                 .chain_seed = rng_below(&g, 2),
                                 .min_prob = probs[rng_below(&g, 5)]};
        int n = check(&s.p, &o);
        sizes[n == 0 ? 0 : n < s.p.depth ? 1 : n == s.p.depth ? 2 : 3]++;
    }
    // No tree, fewer nodes than the depth, as many, and more: all must have been met.
    for (int i = 0; i < 4; i++)
        assert_true(sizes[i] > 50);
}

static void test_bad_candidates(void **state) {
    (void)state;
    int32_t ids[] = {4, 4, 9, 2, 5, 5, 5, 1};
    float logp[] = {-1, -0.5f, NAN, INFINITY, 3, -1, -INFINITY, -2};
    struct proposal p = {.depth = 2, .k = 4, .ids = ids, .logp = logp};
    struct tree_options o = {.budget = 20, .k = 4, .max_depth = 32};
    assert_int_equal(check(&p, &o), 3); // 4; 4 5; 4 1
}

static void test_chain(void **state) {
    (void)state;
    int32_t ids[15 * 2];
    float logp[15 * 2];
    for (int d = 0; d < 15; d++) {
        ids[2 * d] = 100 + d;
        ids[2 * d + 1] = 200 + d;
        logp[2 * d] = logp[2 * d + 1] = -1;
    }
    struct proposal p = {.depth = 15, .k = 2, .ids = ids, .logp = logp};
    struct tree_options one = {.budget = 15, .k = 1, .max_depth = 32};
    struct tree_options seeded = {.budget = 15, .k = 2, .max_depth = 32, .chain_seed = true};
    struct ddtree a, b;
    ddtree_build(&a, 5, &p, &one);
    ddtree_build(&b, 5, &p, &seeded);
    assert_int_equal(a.n, 16);
    assert_int_equal(b.n, 16);
    for (int i = 1; i < 16; i++) {
        assert_int_equal(a.token[i], 99 + i);
        assert_int_equal(a.parent[i], i - 1);
        assert_int_equal(b.token[i], a.token[i]);
        assert_int_equal(b.parent[i], a.parent[i]);
    }
    int32_t path[TREE_MAX_DEPTH + 1];
    assert_int_equal(ddtree_path(&a, 15, path), 16);
    for (int i = 0; i < 16; i++)
        assert_int_equal(path[i], i);
}

static void test_limits(void **state) {
    (void)state;
    static int32_t ids[40 * TREE_MAX_K];
    static float logp[40 * TREE_MAX_K];
    for (int d = 0; d < 40; d++)
        for (int r = 0; r < TREE_MAX_K; r++) {
            ids[d * TREE_MAX_K + r] = r;
            logp[d * TREE_MAX_K + r] = -0.01f - 0.2f * (float)r;
        }
    struct proposal p = {.depth = 40, .k = TREE_MAX_K, .ids = ids, .logp = logp};
    struct tree_options o = {.budget = 500, .k = 500, .max_depth = 500};
    for (int seed = 0; seed < 2; seed++) {
        o.chain_seed = seed;
        struct ddtree t;
        ddtree_build(&t, 0, &p, &o);
        assert_int_equal(t.n, TREE_MAX_ROWS);
        int deepest = 0;
        for (int i = 1; i < t.n; i++) {
            assert_in_range(t.parent[i], 0, i - 1);
            assert_int_equal(t.depth[i], t.depth[t.parent[i]] + 1);
            assert_int_equal(ddtree_child(&t, t.parent[i], t.token[i]), i); // distinct siblings
            deepest = t.depth[i] > deepest ? t.depth[i] : deepest;
        }
        assert_int_equal(deepest, TREE_MAX_DEPTH);
        assert_int_equal(ddtree_child(&t, 0, TREE_MAX_K), -1);
    }
    struct ddtree t;
    o.budget = 0;
    ddtree_build(&t, 3, &p, &o);
    assert_int_equal(t.n, 1);
    o.budget = -3;
    ddtree_build(&t, 3, &p, &o);
    assert_int_equal(t.n, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_brute_force),
        cmocka_unit_test(test_bad_candidates),
        cmocka_unit_test(test_chain),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
