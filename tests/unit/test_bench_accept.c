// SPDX-License-Identifier: Apache-2.0
// Acceptance by depth and context: passes are counted where they began, and shares are of all
// passes.
#include "test.h"

#include "cli/bench/bench.h"

static const char *text_of(const struct bench_accept *a, struct str *s) {
    str_fini(s);
    *s = (struct str){0};
    bench_accept_text(a, s);
    return s->data;
}

static void test_sums(void **state) {
    (void)state;
    struct bench_accept a = {0};
    struct str s = {0};
    struct json_writer w = {0};
    static const int32_t plain[] = {1, 1}, some[] = {3, 1, 4, 33};
    bench_accept_add(&a, 10, plain, 2);
    assert_false(bench_accept_any(&a));
    assert_string_equal(text_of(&a, &s), "; AL in <1K 1.00");
    a = (struct bench_accept){0};
    bench_accept_add(&a, 1020, some, 3); // begin at 1020, 1023 and 1024
    assert_true(bench_accept_any(&a));
    assert_string_equal(text_of(&a, &s), ".67 .67 .33; AL in <1K 2.00, 1-4K 4.00");
    jw_begin(&w, '{');
    bench_accept_json(&a, &w);
    jw_end(&w, '}');
    assert_non_null(strstr(w.out.data, "\"accepted_by_depth\":[0.66"));
    assert_non_null(strstr(w.out.data, "{\"from\":0,\"to\":1024,\"steps\":2,\"accept_length\":2}"));
    assert_non_null(strstr(w.out.data, "{\"from\":1024,\"to\":4096,\"steps\":1,"));
    str_fini(&w.out);
    str_fini(&s);
}

// The longest walk there is, and the edges of the spans.
static void test_edges(void **state) {
    (void)state;
    static const int64_t starts[] = {0, 1023, 4095, 4096, 16383, 16384, 65535, 65536, 1 << 20};
    struct bench_accept a = {0};
    struct str s = {0};
    int32_t longest = TREE_MAX_DEPTH + 1;
    for (int i = 0; i < 9; i++)
        bench_accept_add(&a, starts[i], &longest, 1);
    static const int64_t want[GUESS_SPANS] = {2, 1, 2, 2, 2};
    assert_memory_equal(a.span_steps, want, sizeof want);
    for (int d = 0; d < TREE_MAX_DEPTH; d++)
        assert_int_equal(a.reached[d], 9);
    assert_non_null(strstr(text_of(&a, &s), "1.00 1.00; AL in <1K 33.00, 1-4K 33.00"));
    assert_non_null(strstr(s.data, ">64K 33.00"));
    str_fini(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
