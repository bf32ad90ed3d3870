// SPDX-License-Identifier: Apache-2.0
// Counts of guesses: whose they were, how deep, and how many tokens came before.
#include "test.h"

#include <string.h>

#include "engine/batch/guesses.h"
#include "models/draft/draft.h"
#include "models/model_impl.h"
#include "ops/exec.h"

static struct draft *const none[PRICE_DRAFTS];
static const char *const mtp[PRICE_DRAFTS] = {"mtp", "dflash"};
static const char *const even_name[PRICE_DRAFTS] = {"even", "all"};

// A tree of 5 guesses: 1 and 2 below the root, 3 below 1, 4 below 3, 5 below 2.
static void fill_member(struct member *m, struct sequence *s, int64_t len, int walked) {
    static const int32_t parent[] = {-1, 0, 0, 1, 3, 2}, depth[] = {0, 1, 1, 2, 3, 2};
    static const uint8_t origin[] = {0,
                                     TREE_BY_CANDIDATES,
                                     TREE_BY_CHAIN,
                                     TREE_BY_CANDIDATES | TREE_BY_CHAIN,
                                     TREE_BY_CHAIN,
                                     TREE_BY_CANDIDATES};
    static const int32_t path[] = {0, 1, 3, 4};
    *s = (struct sequence){.len = len + (walked ? walked : 1)};
    *m = (struct member){.seq = s, .c.drafts = 1, .asked = 1, .tree.n = 6, .walk.count = walked};
    memcpy(m->tree.parent, parent, sizeof parent);
    memcpy(m->tree.depth, depth, sizeof depth);
    memcpy(m->tree.origin, origin, sizeof origin);
    memcpy(m->walk.path, path, sizeof path);
}

static void test_counts(void **state) {
    (void)state;
    struct guess_counts c = {0}, sum = {0};
    struct member m;
    struct sequence s;
    fill_member(&m, &s, 1020, 4); // all that can be walked
    guess_counts_add(&c, &m, none);
    fill_member(&m, &s, 1024, 2); // only node 1
    guess_counts_add(&c, &m, none);
    fill_member(&m, &s, 1 << 20, 0); // nothing could be chosen
    guess_counts_add(&c, &m, none);
    static const int verified[][3] = {{3, 3, 0}, {3, 0, 3}, {0, 3, 0}};
    static const int accepted[][3] = {{2, 0, 0}, {0, 0, 1}, {0, 1, 0}};
    static const enum guess_by kinds[] = {GUESS_BY_DRAFT, GUESS_BY_LOOKUP, GUESS_BY_BOTH};
    for (int by = 0; by < 3; by++)
        for (int d = 0; d < 3; d++) {
            assert_int_equal(c.verified[kinds[by]][d], verified[by][d]);
            assert_int_equal(c.accepted[kinds[by]][d], accepted[by][d]);
        }
    assert_int_equal(guess_counts_verified(&c, GUESS_BY_DRAFT), 6);
    assert_int_equal(guess_counts_accepted(&c, GUESS_BY_DRAFT), 2);
    assert_int_equal(guess_counts_verified(&c, GUESS_BY_CONSTRAINT), 0);
    static const int64_t passes[] = {1, 1, 0, 0, 1}, tokens[] = {4, 2, 0, 0, 0};
    assert_memory_equal(c.passes, passes, sizeof passes);
    assert_memory_equal(c.tokens, tokens, sizeof tokens);
    guess_counts_join(&sum, &c);
    guess_counts_join(&sum, &c);
    assert_int_equal(guess_counts_verified(&sum, GUESS_BY_LOOKUP), 12);
    assert_int_equal(sum.accepted[GUESS_BY_BOTH][1], 2);
    assert_int_equal(sum.tokens[0], 8);
}

// Of masks a node is counted by who offered it: a chain's is no guess of the draft, and what a
// grammar expects is nobody's.
static void test_constrained(void **state) {
    (void)state;
    static const uint8_t origin[] = {0,
                                     TREE_BY_CHAIN,
                                     TREE_BY_CONSTRAINT,
                                     TREE_BY_CONSTRAINT | TREE_BY_CANDIDATES,
                                     TREE_BY_CONSTRAINT,
                                     TREE_BY_CONSTRAINT | TREE_BY_CHAIN};
    static const int verified[GUESS_KINDS] = {
        [GUESS_BY_DRAFT] = 1, [GUESS_BY_LOOKUP] = 2, [GUESS_BY_CONSTRAINT] = 2};
    struct guess_counts c = {0};
    struct member m;
    struct sequence s;
    fill_member(&m, &s, 100, 1);
    memcpy(m.tree.origin, origin, sizeof origin);
    guess_counts_add(&c, &m, none);
    for (enum guess_by by = 0; by < GUESS_KINDS; by++)
        assert_int_equal(guess_counts_verified(&c, by), verified[by]);
}

static void test_words(void **state) {
    (void)state;
    struct guess_counts c = {0};
    struct member m;
    struct sequence s;
    struct str text = {0};
    struct json_writer w = {0};
    guess_counts_text(&c, mtp, &text);
    guess_counts_json(&c, mtp, &w);
    assert_int_equal(text.len, 0);
    assert_string_equal(w.out.data, "{}");
    str_fini(&w.out);
    w = (struct json_writer){0};
    fill_member(&m, &s, 5, 4);
    guess_counts_add(&c, &m, none);
    guess_counts_text(&c, mtp, &text);
    assert_string_equal(text.data, "mtp 1 of 2 (1/1 0/1), lookup 1 of 2 (0/1 0/0 1/1), "
                                   "both 1 of 1 (0/0 1/1)");
    guess_counts_json(&c, NULL, &w);
    assert_string_equal(w.out.data, "{\"draft\":{\"verified\":[1,1],\"accepted\":[1,0]},"
                                    "\"lookup\":{\"verified\":[1,0,1],\"accepted\":[0,0,1]},"
                                    "\"both\":{\"verified\":[0,1],\"accepted\":[0,1]}}");
    str_fini(&text);
    str_fini(&w.out);
}

// A draft that can guess even tokens only.
static int open_even(void **self, struct model *target, const struct draft_source *s, bool dry,
                     struct err *e) {
    (void)self, (void)target, (void)s, (void)dry, (void)e;
    return 0;
}

static void destroy_even(void *self) {
    (void)self;
}

static bool knows_even(const void *self, int32_t token) {
    (void)self;
    return token % 2 == 0;
}

static void test_unknown(void **state) {
    (void)state;
    static const struct draft_class even = {
        .name = "even", .open = open_even, .destroy = destroy_even, .knows = knows_even};
    static const struct draft_class all = {
        .name = "all", .open = open_even, .destroy = destroy_even};
    const int32_t chosen[] = {4, 5, 6, 7};
    struct exec *x;
    struct draft *d[PRICE_DRAFTS] = {0};
    struct guess_counts c = {0};
    struct member m;
    struct sequence s;
    struct str text = {0};
    struct json_writer w = {0};
    assert_int_equal(exec_create_cpu(&x, "scalar", 1, NULL), 0);
    struct model target = {.x = x};
    assert_int_equal(draft_open_class(&d[0], &even, &target, NULL, NULL), 0);
    assert_int_equal(draft_open_class(&d[1], &all, &target, NULL, NULL), 0);
    fill_member(&m, &s, 5, 4);
    memcpy(m.walk.chosen, chosen, sizeof chosen);
    m.asked = 0;
    guess_counts_add(&c, &m, d); // no draft was called
    assert_int_equal(c.drafted_for[0], 0);
    m.drafted = true;
    m.asked = 1;
    guess_counts_add(&c, &m, d);
    m.asked = 3;
    guess_counts_add(&c, &m, d);
    assert_int_equal(c.drafted_for[0], 8);
    assert_int_equal(c.unknown[0], 4);
    assert_int_equal(c.drafted_for[1], 4);
    assert_int_equal(c.unknown[1], 0);
    guess_counts_text(&c, even_name, &text);
    assert_non_null(strstr(text.data, "; 4 of 8 tokens are none that even can guess"));
    guess_counts_json(&c, even_name, &w);
    assert_non_null(strstr(w.out.data, "\"accepted\":[3,0],\"unknown\":4}"));
    str_fini(&text);
    str_fini(&w.out);
    text = (struct str){0};
    w = (struct json_writer){0};
    c = (struct guess_counts){0};
    m.tree.n = m.walk.count = 1; // nothing of what was guessed is verified
    m.walk.chosen[0] = 5;
    m.asked = 1;
    guess_counts_add(&c, &m, d);
    guess_counts_text(&c, even_name, &text);
    assert_string_equal(text.data, "1 of 1 tokens are none that even can guess");
    guess_counts_json(&c, even_name, &w);
    assert_string_equal(w.out.data, "{\"even\":{\"verified\":[],\"accepted\":[],\"unknown\":1}}");
    str_fini(&text);
    str_fini(&w.out);
    draft_destroy(d[0]);
    draft_destroy(d[1]);
    exec_destroy(x);
}

// Of several drafts a guess that two made counts as of both, that of one as its own.
static void test_several(void **state) {
    (void)state;
    static const uint8_t origin[] = {0,
                                     TREE_BY_CANDIDATES,
                                     2 * TREE_BY_CANDIDATES,
                                     3 * TREE_BY_CANDIDATES,
                                     4 * TREE_BY_CANDIDATES,
                                     2 * TREE_BY_CANDIDATES | TREE_BY_CHAIN};
    static const int verified[GUESS_KINDS] = {1, 1, 1, [GUESS_BY_BOTH] = 2};
    struct guess_counts c = {0};
    struct member m;
    struct sequence s;
    struct str text = {0};
    fill_member(&m, &s, 100, 4);
    memcpy(m.tree.origin, origin, sizeof origin);
    guess_counts_add(&c, &m, none);
    for (enum guess_by by = 0; by < GUESS_KINDS; by++)
        assert_int_equal(guess_counts_verified(&c, by), verified[by]);
    guess_counts_text(&c, mtp, &text);
    assert_string_equal(text.data, "mtp 1 of 1 (1/1), dflash 0 of 1 (0/1), "
                                   "draft 1 of 1 (0/0 0/0 1/1), both 1 of 2 (0/0 1/2)");
    str_fini(&text);
}

static void test_spans(void **state) {
    (void)state;
    static const int64_t at[] = {0, 1023, 1024, 4095, 4096, 16383, 16384, 65535, 65536, INT64_MAX};
    for (int i = 0; i < 10; i++)
        assert_int_equal(guess_span_of(at[i]), i / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),  cmocka_unit_test(test_constrained),
        cmocka_unit_test(test_words),   cmocka_unit_test(test_spans),
        cmocka_unit_test(test_unknown), cmocka_unit_test(test_several),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
