// SPDX-License-Identifier: Apache-2.0
// Guesses of several drafts as one proposal: below every node the candidates and probabilities that
// a plain reckoning gives, whatever those of each draft depend on; what a draft is called for; and
// drafts that fail, end early, or say things twice.
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "spec/tree/mix.h"
#include "unit/test.h"

enum { TOKENS = 9, K = 5, TREE_K = 4, DEPTH = 4, WIDTH = 3 };

// A draft that says something after every path: with chance of its own for each token.
struct voice {
    uint64_t seed;
    int depends; // 0: on the depth, 1: the parent, 2: the path
    int depth, width, fail_at, calls, nodes;
    bool called[TOKENS + 1][TOKENS + 1][TOKENS + 1]; // for paths of up to three tokens
    struct tree_node seen[TREE_MAX_ROWS * DEPTH];
    int32_t ids[TREE_MAX_ROWS * TREE_MAX_K];
    float logp[TREE_MAX_ROWS * TREE_MAX_K];
    float pair[DEPTH * K * K];
    struct proposal p;
};

// Log-probability of its candidate number r below a path, and that token.
static float say(const struct voice *v, const int32_t *path, int depth, int r, int32_t *id) {
    uint64_t h = rng_hash(v->seed, (uint64_t)depth, 0, 0);
    *id = (int32_t)((h + 2 * (uint64_t)r) % TOKENS); // candidates of a depth are the same
    uint64_t x = h;
    if (v->depends == 1 && depth)
        x = rng_hash(x, (uint64_t)path[depth - 1], 1, 0);
    for (int d = 0; v->depends == 2 && d < depth; d++)
        x = rng_hash(x, (uint64_t)path[d], 2, 0);
    if (v->depends == 2)
        *id = (int32_t)((x + 2 * (uint64_t)r) % TOKENS);
    x = rng_hash(x, (uint64_t)r, 3, 0);
    return v->depends == 0 ? -0.4f * (float)(r + 1) : -0.1f * (float)(1 + x % 40);
}

static bool *called_for(struct voice *v, const struct tree_node *n) {
    return &v->called[n->depth > 0 ? n->path[0] + 1 : 0][n->depth > 1 ? n->path[1] + 1 : 0]
                     [n->depth > 2 ? n->path[2] + 1 : 0];
}

static int expand(void *arg, const struct tree_node *nodes, int n, int k,
                  struct tree_candidates *out, struct err *e) {
    struct voice *v = arg;
    if (++v->calls == v->fail_at)
        return err_set(e, ERR_DEVICE, "the draft fails");
    assert_in_range(n, 1, v->width);
    for (int i = 0; i < n; i++) {
        const struct tree_node *x = &nodes[i];
        assert_int_equal(x->depth, nodes[0].depth);
        assert_true(x->depth < v->depth);
        if (x->depth) { // a parent that it was called for, by its own number
            assert_in_range(x->parent, 0, v->nodes - 1);
            assert_int_equal(v->seen[x->parent].depth, x->depth - 1);
            assert_memory_equal(v->seen[x->parent].path, x->path,
                                (size_t)(x->depth - 1) * sizeof *x->path);
        }
        *called_for(v, x) = true;
        for (int r = 0; r < k; r++) {
            v->logp[i * k + r] = r < K ? say(v, x->path, x->depth, r, &v->ids[i * k + r]) : NAN;
            v->ids[i * k + r] = r < K ? v->ids[i * k + r] : -1;
        }
    }
    for (int i = 0; i < n; i++)
        v->seen[v->nodes++] = nodes[i];
    *out = (struct tree_candidates){v->ids, v->logp, NULL};
    return 0;
}

static const float *pair_of(void *arg, int d, int q) {
    const struct voice *v = arg;
    return v->pair + (d * K + q) * K;
}

static void open_voice(struct voice *v, uint64_t seed, int depends, int depth) {
    *v = (struct voice){.seed = seed, .depends = depends, .depth = depth, .width = WIDTH};
    v->p = (struct proposal){.depth = depth, .k = K, .ids = v->ids, .logp = v->logp};
    if (depends == 2) {
        v->p =
            (struct proposal){.depth = depth, .expand = expand, .expand_arg = v, .width = v->width};
        return;
    }
    for (int d = 0; d < depth; d++)
        for (int r = 0; r < K; r++)
            v->logp[d * K + r] = say(v, NULL, depends ? 0 : d, r, &v->ids[d * K + r]);
    for (int d = 0; depends && d < depth; d++)
        for (int r = 0; r < K; r++)
            (void)say(v, (int32_t[DEPTH]){0}, d, r, &v->ids[d * K + r]);
    v->p.pair = depends ? pair_of : NULL;
    v->p.pair_arg = v;
    for (int d = 1; depends && d < depth; d++)
        for (int q = 0; q < K; q++)
            for (int r = 0; r < K; r++) {
                int32_t id, path[DEPTH] = {0};
                path[d - 1] = v->ids[(d - 1) * K + q];
                v->pair[((d - 1) * K + q) * K + r] = say(v, path, d, r, &id);
            }
}

// What a voice says of a token below a node, or -1 where it says nothing of the node at all.
static double chance_of(struct voice *v, const struct tree_node *n, int32_t token) {
    double best = 0;
    bool parent = n->depth == 0;
    if (n->depth >= v->depth || (v->depends == 2 && !*called_for(v, n)))
        return -1;
    for (int r = 0; n->depth && v->depends == 1 && r < K; r++)
        parent = parent || v->ids[(n->depth - 1) * K + r] == n->path[n->depth - 1];
    for (int r = 0; r < (v->depends == 2 ? TREE_K : K); r++) { // as many as it is called for
        int32_t id;
        float lp = say(v, n->path, n->depth, r, &id);
        if (v->depends == 1 && !parent)
            lp = v->logp[n->depth * K + r];
        best = id == token ? fmax(best, exp((double)lp)) : best;
    }
    return best;
}

// Compares every child in the tree with the mean of what the voices say, and counts nodes with
// two or more origins.
static int compare(const struct ddtree *t, struct voice *v, const double *weight, int n) {
    int shared = 0;
    for (int i = 1; i < t->n; i++) {
        struct tree_node up = {.depth = t->depth[i] - 1};
        double sum = 0, of = 0;
        unsigned origin = 0;
        for (int d = up.depth, at = t->parent[i]; d > 0; d--, at = t->parent[at])
            up.path[d - 1] = t->token[at];
        for (int j = 0; j < n; j++) {
            double c = chance_of(&v[j], &up, t->token[i]);
            of += c >= 0 ? weight[j] : 0;
            sum += c > 0 ? weight[j] * c : 0;
            origin |= c > 0 ? 1u << j : 0;
        }
        assert_true(fabs(t->score[i] - t->score[t->parent[i]] - log(sum / of)) < 1e-5);
        assert_int_equal(tree_drafts(t->origin[i]), origin);
        shared += __builtin_popcount(origin) > 1;
    }
    return shared;
}

// All ways of depending, two and three at a time, of several reaches and weights.
static void same_as_reckoned(void **state) {
    static struct voice v[PRICE_DRAFTS];
    struct mix *m = malloc(mix_bytes());
    int shared = 0, deep = 0;
    (void)state;
    for (uint64_t seed = 0; seed < 162; seed++) {
        double weight[PRICE_DRAFTS];
        struct mix_part part[PRICE_DRAFTS];
        const int n = 2 + (int)(seed % 2),
                  ways[] = {(int)(seed / 2 % 3), (int)(seed / 6 % 3), (int)(seed / 18 % 3)};
        struct tree_options o = {.budget = 30, .k = TREE_K, .max_depth = TREE_MAX_DEPTH};
        struct proposal p;
        struct ddtree t;
        for (int i = 0; i < n; i++) {
            open_voice(&v[i], seed * 7 + (uint64_t)i, ways[i],
                       DEPTH - (int)(seed + (uint64_t)i) % 2);
            weight[i] = 0.25 * (double)(1 + (seed + (uint64_t)i) % 3);
            part[i] = (struct mix_part){&v[i].p, weight[i], i};
        }
        mix_offer(m, part, n, &p);
        assert_int_equal(ddtree_build(&t, 5, &p, &o, NULL), 0);
        assert_true(t.n > 10);
        shared += compare(&t, v, weight, n);
        for (int i = 0; i < t.n; i++)
            deep += t.depth[i] == DEPTH;
    }
    assert_true(shared > 200 && deep > 50);
    free(m);
}

// A draft that fails takes part no more, from that level on; the tree of the others goes on.
static void failing(void **state) {
    static struct voice v[2];
    struct mix *m = malloc(mix_bytes());
    (void)state;
    for (int fail = 1; fail <= 3; fail++) {
        struct tree_options o = {.budget = 30, .k = TREE_K, .max_depth = TREE_MAX_DEPTH};
        struct proposal p;
        struct ddtree t;
        int deepest = 0;
        open_voice(&v[0], 3, 2, DEPTH);
        open_voice(&v[1], 4, 0, DEPTH);
        v[0].fail_at = fail;
        mix_offer(m, (struct mix_part[]){{&v[0].p, 1, 0}, {&v[1].p, 1, 2}}, 2, &p);
        assert_int_equal(ddtree_build(&t, 5, &p, &o, NULL), 0);
        assert_int_equal(mix_failed(m), 1);
        assert_int_equal(v[0].calls, fail);
        for (int i = 1; i < t.n; i++) {
            if (t.depth[i] >= fail)
                assert_int_equal(t.origin[i], TREE_BY_CANDIDATES << 2);
            deepest = t.depth[i] > deepest ? t.depth[i] : deepest;
        }
        assert_int_equal(deepest, DEPTH);
    }
    free(m);
}

// Of equal ids of one draft the best counts; what is no number does not; chains of all are kept.
static void odd_candidates(void **state) {
    static const int32_t a[] = {1, 1, 2, 3}, b[] = {4, 1, 4, 5}, chain[] = {7, 8};
    const float la[] = {-2, -1, NAN, INFINITY}, lb[] = {-1, -3, 1, -INFINITY};
    struct proposal one = {.depth = 1, .k = 4, .ids = a, .logp = la}, p;
    struct proposal two = {.depth = 1, .k = 4, .ids = b, .logp = lb, .n_chains = 1};
    struct tree_options o = {.budget = 8, .k = 4, .max_depth = 4};
    struct mix *m = malloc(mix_bytes());
    struct ddtree t;
    (void)state;
    two.chains[0] = (struct draft_chain){chain, 2, -0.01f};
    mix_offer(m, (struct mix_part[]){{&one, 3, 0}, {&two, 1, 1}}, 2, &p);
    assert_int_equal(ddtree_build(&t, 9, &p, &o, NULL), 0);
    static const int32_t tokens[] = {9, 7, 8, 1, 4};
    const double chance[] = {1, exp(-0.01), exp(-0.02), (3 * exp(-1) + exp(-3)) / 4, 0.25};
    static const uint8_t origin[] = {0, TREE_BY_CHAIN, TREE_BY_CHAIN, 3 * TREE_BY_CANDIDATES,
                                     2 * TREE_BY_CANDIDATES};
    assert_int_equal(t.n, 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(t.token[i], tokens[i]);
        assert_true(fabs(exp(t.score[i]) - chance[i]) < 1e-6);
        assert_int_equal(i ? t.origin[i] : 0, origin[i]);
    }
    free(m);
}

// Of a draft that had guessed below a node of the path it counts whether it was right there.
static void weights(void **state) {
    struct mix_record r[PRICE_DRAFTS] = {{0}};
    // The root's children 1 (of draft 0) and 2 (of both); below 2 one of draft 1, which is wrong.
    struct ddtree t = {.n = 4,
                       .token = {0, 1, 2, 3},
                       .parent = {-1, 0, 0, 2},
                       .depth = {0, 1, 1, 2},
                       .origin = {0, TREE_BY_CANDIDATES, 3 * TREE_BY_CANDIDATES,
                                  2 * TREE_BY_CANDIDATES | TREE_BY_CHAIN}};
    const struct walk w = {.count = 2, .path = {0, 2}, .chosen = {2, 9}};
    (void)state;
    assert_true(mix_weight(&r[0]) == mix_weight(&r[1]));
    mix_learn(r, &t, &w);
    assert_true(r[0].right == 1 && r[0].guessed == 1);
    assert_true(r[1].right > 0.9 && r[1].right < 1 && r[1].guessed > 1.9 && r[1].guessed < 2);
    assert_true(r[2].guessed == 0);
    assert_true(mix_weight(&r[0]) > mix_weight(&r[1]));
    for (int i = 0; i < 100; i++)
        mix_learn(r, &t, &w);
    assert_true(mix_weight(&r[0]) > 0.9 && mix_weight(&r[1]) < 0.6 && mix_weight(&r[1]) > 0.4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_reckoned),
        cmocka_unit_test(failing),
        cmocka_unit_test(odd_candidates),
        cmocka_unit_test(weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
