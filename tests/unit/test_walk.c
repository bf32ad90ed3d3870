// SPDX-License-Identifier: Apache-2.0
// Walks through random trees against a direct simulation of plain decoding: the target's choices
// are a function of the path alone, so plain decoding can be replayed token by token.
#include "base/rng.h"
#include "spec/tree/ddtree.h"
#include "unit/test.h"

enum { VOCAB = 3, STOP = 2 };

static bool stop_at(void *arg, int32_t token) {
    return token == *(const int32_t *)arg;
}

// The stand-in for a model: the next token after a path.
static int32_t next_token(uint64_t seed, const int32_t *tokens, int n) {
    uint64_t h = seed;
    for (int i = 0; i < n; i++)
        h = rng_hash(h, (uint64_t)tokens[i], 1, 0);
    return (int32_t)(h % VOCAB);
}

// Rows from the root to `node`, both included; returns their count.
static int path_of(const struct ddtree *t, int node, int32_t path[TREE_MAX_DEPTH + 1]) {
    int count = t->depth[node] + 1;
    for (int d = count - 1; d >= 0; d--) {
        path[d] = node;
        node = t->parent[node];
    }
    return count;
}

// What plain decoding chooses after the path to a row.
static int32_t choice_after(const struct ddtree *t, uint64_t seed, int row) {
    int32_t path[TREE_MAX_DEPTH + 1], tokens[TREE_MAX_DEPTH + 1];
    int n = path_of(t, row, path);
    for (int j = 0; j < n; j++)
        tokens[j] = t->token[path[j]];
    return next_token(seed, tokens, n);
}

// A tree of random tokens, half of them those that plain decoding would choose.
static void random_tree(struct ddtree *t, struct rng *g, uint64_t seed, int nodes) {
    *t = (struct ddtree){.n = 1, .token = {7}, .parent = {-1}};
    for (int i = 0; i < nodes; i++) {
        int32_t parent = (int32_t)rng_below(g, (uint32_t)t->n);
        if (rng_below(g, 2))
            parent = t->n - 1;
        int32_t token = (int32_t)rng_below(g, VOCAB);
        if (rng_below(g, 2))
            token = choice_after(t, seed, parent);
        if (t->depth[parent] == TREE_MAX_DEPTH || ddtree_child(t, parent, token) >= 0)
            continue;
        t->token[t->n] = token;
        t->parent[t->n] = parent;
        t->depth[t->n] = t->depth[parent] + 1;
        t->n++;
    }
}

struct expected {
    int count;
    int32_t chosen[64];
    enum end_reason end;
};

// Plain decoding from the root for as long as the tree holds the tokens.
static struct expected replay(const struct ddtree *t, uint64_t seed, int64_t tokens,
                              int64_t context, bool stops) {
    struct expected x = {0};
    int32_t seq[64] = {t->token[0]};
    int row = 0;
    while (row >= 0) {
        int32_t c = next_token(seed, seq, x.count + 1);
        x.chosen[x.count++] = c;
        seq[x.count] = c;
        if (stops && c == STOP)
            x.end = END_STOP;
        else if (x.count == tokens)
            x.end = END_LENGTH;
        else if (x.count == context)
            x.end = END_CONTEXT;
        if (x.end != END_NONE)
            break;
        row = ddtree_child(t, row, c);
    }
    return x;
}

static void test_random_walks(void **state) {
    (void)state;
    struct rng g = {3};
    int32_t stop = STOP;
    int ends[5] = {0}, inside[5] = {0}, lengths[6] = {0};
    for (uint64_t i = 0; i < 20000; i++) {
        struct ddtree t;
        random_tree(&t, &g, i, (int)rng_below(&g, 60));
        int32_t choice[TREE_MAX_ROWS];
        for (int r = 0; r < t.n; r++)
            choice[r] = choice_after(&t, i, r);
        bool stops = rng_below(&g, 2);
        struct walk_limits l = {.tokens_left = 1 + rng_below(&g, 12),
                                .context_left = 1 + rng_below(&g, 12),
                                .stop = stops ? stop_at : NULL,
                                .stop_arg = &stop};
        struct walk w;
        walk_tree(&t, choice, &l, &w);
        struct expected x = replay(&t, i, l.tokens_left, l.context_left, stops);
        assert_int_equal(w.count, x.count);
        assert_int_equal(w.end, x.end);
        assert_memory_equal(w.chosen, x.chosen, (size_t)x.count * sizeof *x.chosen);
        assert_int_equal(w.path[0], 0);
        for (int j = 1; j < w.count; j++) {
            assert_int_equal(t.parent[w.path[j]], w.path[j - 1]);
            assert_int_equal(t.token[w.path[j]], w.chosen[j - 1]);
        }
        ends[w.end]++;
        inside[w.end] += ddtree_child(&t, w.path[w.count - 1], w.chosen[w.count - 1]) >= 0;
        lengths[w.count < 6 ? w.count - 1 : 5]++;
    }
    for (int r = END_NONE; r <= END_CONTEXT; r++)
        assert_true(ends[r] > 300);
    for (int r = END_STOP; r <= END_CONTEXT; r++)
        assert_true(inside[r] > 100); // the tree went on, the walk did not
    for (int n = 0; n < 6; n++)
        assert_true(lengths[n] > 100);
}

static void test_names(void **state) {
    (void)state;
    assert_string_equal(end_reason_name(END_STOP), "stop");
    assert_string_equal(end_reason_name(END_LENGTH), "length");
    assert_string_equal(end_reason_name(END_CONTEXT), "context");
    assert_string_equal(end_reason_name(END_CALLER), "caller");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_walks),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
