// SPDX-License-Identifier: Apache-2.0
// The radix tree against a list of texts: what a text shares with it, the tokens of every node, and
// what is left when texts go, in random orders; nothing is lost and nothing leaks.
#include <string.h>

#include "base/rng.h"
#include "engine/cache/entries.h"
#include "unit/test.h"

enum { TEXTS = 40, LONGEST = 24, ROUNDS = 200 };

struct text {
    int32_t ids[LONGEST];
    int64_t n;
    struct cache_entry entry; // only hangs there
    struct prefix_node *node; // NULL: it is not in the tree
};

static void draw(struct text *t, struct rng *g) {
    t->n = 1 + rng_below(g, LONGEST);
    for (int64_t i = 0; i < t->n; i++)
        t->ids[i] = (int32_t)rng_below(g, 3);
}

static int64_t shared(const struct text *a, const struct text *b) {
    int64_t i = 0;
    while (i < a->n && i < b->n && a->ids[i] == b->ids[i])
        i++;
    return i;
}

static void compare(struct prefix_tree *t, const struct text *all, const struct text *x) {
    int32_t ids[LONGEST];
    int64_t max = 0;
    struct prefix_match m = prefix_find(t, x->ids, x->n, 0);
    for (int i = 0; i < TEXTS; i++)
        if (all[i].node && shared(&all[i], x) > max)
            max = shared(&all[i], x);
    assert_int_equal(m.common, max);
    assert_true(m.node->end >= max);
    prefix_text(m.node, ids);
    assert_memory_equal(ids, x->ids, (size_t)max * sizeof *ids);
    for (int64_t i = 0; i < m.node->end; i++)
        assert_int_equal(prefix_token(m.node, i), ids[i]);
}

static void add(struct prefix_tree *t, struct text *x) {
    struct prefix_node *n;
    assert_int_equal(prefix_add(t, x->ids, x->n, &n, NULL), 0);
    assert_int_equal(n->end, x->n);
    if (n->entries) // the same text is there
        return;
    n->entries = &x->entry;
    x->node = n;
}

static void drop(struct prefix_tree *t, struct text *x) {
    x->node->entries = NULL;
    prefix_prune(t, x->node);
    x->node = NULL;
}

static void as_a_list(void **state) {
    static struct text all[TEXTS];
    struct prefix_tree t = {0};
    struct rng g = {3};
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct text *x = &all[rng_below(&g, TEXTS)], other;
        if (x->node) {
            drop(&t, x);
        } else {
            draw(x, &g);
            add(&t, x);
        }
        draw(&other, &g);
        compare(&t, all, &other);
        for (int i = 0; i < TEXTS; i++)
            if (all[i].node)
                compare(&t, all, &all[i]);
    }
    int64_t nodes = 0;
    for (struct prefix_node *n = &t.root; n; n = prefix_next(&t.root, n))
        nodes++;
    assert_true(nodes > 1);
    for (int i = 0; i < TEXTS; i++)
        if (all[i].node)
            drop(&t, &all[i]);
    assert_null(t.root.child);
    assert_int_equal(t.bytes, 0);
    prefix_tree_fini(&t);
}

static void destroying_the_tree_frees_the_rest(void **state) {
    struct prefix_tree t = {0};
    struct prefix_node *n;
    struct rng g = {5};
    (void)state;
    for (int i = 0; i < TEXTS; i++) {
        struct text x = {.n = 0};
        draw(&x, &g);
        assert_int_equal(prefix_add(&t, x.ids, x.n, &n, NULL), 0);
    }
    prefix_tree_fini(&t);
    assert_int_equal(t.bytes, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_a_list),
        cmocka_unit_test(destroying_the_tree_frees_the_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
