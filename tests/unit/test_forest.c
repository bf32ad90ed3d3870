// SPDX-License-Identifier: Apache-2.0
// Building forests and the checks that guard the ops.
#include "state/forest.h"
#include "unit/test.h"

static struct forest fresh(int64_t cap) {
    struct forest f;
    assert_int_equal(forest_init(&f, cap, NULL), 0);
    return f;
}

static void test_build(void **state) {
    (void)state;
    struct forest f = fresh(5);
    const int32_t tokens[3] = {7, 8, 9};
    forest_reset(&f);
    assert_int_equal(forest_root(&f, 0, 10, 4, true), 0);
    assert_int_equal(forest_add(&f, 0, 5, false), 1);
    assert_int_equal(forest_chain(&f, 1, 3, tokens, 4, true), -1); // no room: nothing added
    assert_int_equal(f.n, 2);
    assert_int_equal(forest_chain(&f, 1, 3, tokens, 3, true), 4);
    static const uint8_t prompt[5] = {0, 0, 1, 1, 1};
    assert_memory_equal(f.prompt, prompt, sizeof prompt);
    assert_int_equal(forest_add(&f, 4, 1, true), -1);
    assert_int_equal(forest_add(&f, 5, 1, true), -1);
    assert_int_equal(forest_add(&f, -1, 1, true), -1);
    const int64_t pos[5] = {10, 11, 3, 4, 5}, len[2] = {10, 3};
    const int32_t parent[5] = {-1, 0, -1, 2, 3}, seq[5] = {0, 0, 1, 1, 1};
    const uint8_t want[5] = {1, 0, 0, 0, 1};
    struct rows r = forest_rows(&f);
    assert_int_equal(r.n, 5);
    assert_memory_equal(r.pos, pos, sizeof pos);
    assert_memory_equal(r.parent, parent, sizeof parent);
    assert_memory_equal(r.seq, seq, sizeof seq);
    assert_memory_equal(f.logits_requested, want, sizeof want);
    assert_int_equal(forest_check(&f, len, 2, 10, NULL), 0);
    assert_int_equal(forest_chain(&f, 1, 3, tokens, 0, true), -1);
    forest_fini(&f);
    assert_int_equal(forest_init(&f, 0, NULL), ERR_USAGE);
    assert_int_equal(forest_init(&f, (int64_t)1 << 40, NULL), ERR_USAGE);
}

static int check(const struct forest *f, struct err *e) {
    const int64_t len[2] = {10, 3};
    return forest_check(f, len, 2, 10, e);
}

static void test_refusals(void **state) {
    (void)state;
    struct forest f = fresh(64);
    struct err e;
    forest_reset(&f);
    assert_int_equal(check(&f, &e), ERR_USAGE); // empty
    forest_root(&f, 2, 10, 4, true);
    assert_int_equal(check(&f, &e), ERR_USAGE); // no such sequence
    assert_non_null(strstr(e.text, "names sequence 2 of 2"));
    f.seq[0] = -1;
    assert_int_equal(check(&f, &e), ERR_USAGE);
    forest_reset(&f);
    forest_root(&f, 0, 11, 4, true);
    assert_int_equal(check(&f, &e), ERR_USAGE); // not at the committed length
    forest_reset(&f);
    forest_root(&f, 0, 10, 10, true);
    assert_int_equal(check(&f, &e), ERR_USAGE); // token outside the vocabulary
    f.token[0] = -1;
    assert_int_equal(check(&f, &e), ERR_USAGE);
    f.token[0] = 9;
    assert_int_equal(check(&f, &e), 0);
    forest_add(&f, 0, 1, true);
    f.parent[1] = 1;
    assert_int_equal(check(&f, &e), ERR_USAGE); // own parent
    f.parent[1] = -2;
    assert_int_equal(check(&f, &e), ERR_USAGE);
    f.parent[1] = 0;
    f.seq[1] = 1;
    assert_int_equal(check(&f, &e), ERR_USAGE); // parent of another sequence
    forest_fini(&f);
}

static void test_depth(void **state) {
    (void)state;
    struct forest f = fresh(64);
    forest_reset(&f);
    forest_root(&f, 0, 10, 4, true);
    for (int i = 0; i < FOREST_MAX_DEPTH; i++)
        forest_add(&f, i, 1, true);
    assert_int_equal(check(&f, NULL), 0);
    forest_add(&f, FOREST_MAX_DEPTH, 1, true);
    assert_int_equal(check(&f, NULL), ERR_USAGE);
    static const int32_t tokens[FOREST_MAX_DEPTH + 2] = {0};
    forest_reset(&f);
    forest_chain(&f, 0, 10, tokens, FOREST_MAX_DEPTH + 2, false); // chains may be long
    assert_int_equal(check(&f, NULL), 0);
    forest_fini(&f);
}

static void refused(const struct forest *f, const char *words) {
    struct err e = {0};
    assert_int_equal(check(f, &e), ERR_USAGE);
    if (!strstr(e.text, words))
        fail_msg("\"%s\" does not say: %s", e.text, words);
}

// Each sequence has one chain or trees, in one run of rows.
static void test_runs(void **state) {
    (void)state;
    static const int32_t tokens[2] = {1, 1};
    struct forest f = fresh(64);
    forest_chain(&f, 0, 10, tokens, 2, false);
    forest_chain(&f, 1, 3, tokens, 1, false);
    assert_int_equal(check(&f, NULL), 0);
    forest_add(&f, 1, 1, false); // back to sequence 0 after sequence 1
    refused(&f, "rows of sequence 0 are not together");
    forest_reset(&f);
    forest_root(&f, 0, 10, 1, false);
    forest_root(&f, 0, 10, 1, false); // two trees
    forest_chain(&f, 1, 3, tokens, 2, false);
    assert_int_equal(check(&f, NULL), 0);
    forest_root(&f, 0, 10, 1, false);
    refused(&f, "rows of sequence 0 are not together");
    forest_reset(&f);
    forest_chain(&f, 0, 10, tokens, 2, false);
    forest_chain(&f, 0, 10, tokens, 2, false); // two chains
    refused(&f, "row 2 does not follow the row before it");
    forest_reset(&f);
    forest_chain(&f, 0, 10, tokens, 2, false);
    forest_add(&f, 0, 1, false); // a chain with a branch
    refused(&f, "row 2 does not follow the row before it");
    forest_reset(&f);
    forest_chain(&f, 0, 10, tokens, 2, false);
    forest_root(&f, 0, 10, 1, false); // a chain and a tree
    refused(&f, "row 2 mixes a prompt chain and a tree of sequence 0");
    forest_reset(&f);
    forest_root(&f, 0, 10, 1, false);
    forest_chain(&f, 0, 10, tokens, 2, false);
    refused(&f, "row 1 mixes a prompt chain and a tree of sequence 0");
    forest_fini(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_build),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
