// SPDX-License-Identifier: Apache-2.0
// NFC: the cases of Unicode Standard Annex 15, Hangul, long runs of marks.
#include "test.h"

#include <time.h>

#include "text/norm.h"

static void expect(const char *text, const char *want) {
    struct str out = {0};
    struct err e = {0};
    assert_int_equal(norm_nfc(&out, text, strlen(text), &e), 0);
    assert_string_equal(out.data ? out.data : "", want);
    struct str again = {0};
    assert_int_equal(norm_nfc(&again, want, strlen(want), &e), 0);
    assert_string_equal(again.data ? again.data : "", want);
    str_fini(&out);
    str_fini(&again);
}

static void test_cases(void **state) {
    (void)state;
    expect("", "");
    expect("plain text, é too", "plain text, é too");
    expect("e\u0301", "\u00E9");
    expect("xe\u0301y e\u0300", "x\u00E9y \u00E8");
    expect("\u0301e", "\u0301e"); // a mark with nothing before it
    expect("\u212B\u2126", "\u00C5\u03A9");
    expect("s\u0323\u0307", "\u1E69");
    expect("s\u0307\u0323", "\u1E69");
    expect("\u1E9B\u0323", "\u1E9B\u0323"); // compatibility forms stay
    expect("\uFB01\u00BD\uFF21", "\uFB01\u00BD\uFF21");
    expect("\u0958", "\u0915\u093C"); // excluded from composition
    expect("\u0915\u093C", "\u0915\u093C");
    expect("a\u0315\u0300\u05AE\u0301b", "\u00E0\u05AE\u0301\u0315b");
    expect("\u1112\u1161\u11AB\u1100\u1173\u11AF", "\uD55C\uAE00");
    expect("\uD558\u11AB", "\uD55C");
    expect("\u00E9\u0316", "\u00E9\u0316");
    expect("q\u0307\u0323", "q\u0323\u0307");
    expect("\U0001D15E", "\U0001D157\U0001D165");
    expect("\U0002F800", "\u4E3D");
    expect("\u0344", "\u0308\u0301");
    expect("🦙\u200D\uFE0F", "🦙\u200D\uFE0F");
}

static void test_plain(void **state) {
    (void)state;
    assert_true(norm_is_plain("abc \u00E9 \u02FF", 8));
    assert_false(norm_is_plain("e\u0300", 3));
    assert_true(norm_is_plain("", 0));
}

// Marks of two classes in falling order: an insertion sort would need 10^11 steps.
static void test_many_marks(void **state) {
    (void)state;
    struct str text = {0}, out = {0};
    struct err e = {0};
    str_putc(&text, 'q');
    for (int i = 0; i < 250000; i++)
        str_puts(&text, "\u0301\u0316");
    clock_t start = clock();
    assert_int_equal(norm_nfc(&out, text.data, text.len, &e), 0);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    print_message("1 MB of marks: %.3f s\n", seconds);
    assert_true(seconds < 2);
    assert_int_equal(out.len, text.len);
    assert_memory_equal(out.data + 1, "\u0316\u0316", 4);
    assert_memory_equal(out.data + out.len - 4, "\u0301\u0301", 4);
    str_fini(&text);
    str_fini(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_many_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
