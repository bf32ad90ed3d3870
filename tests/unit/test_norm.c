// SPDX-License-Identifier: Apache-2.0
// NFC: the cases of Unicode Standard Annex 15, Hangul, long runs of marks.
#include "test.h"

#include "text/tokenizer/norm.h"

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
    assert_int_equal(norm_nfc(&out, text.data, text.len, &e), 0);
    assert_int_equal(out.len, text.len);
    assert_memory_equal(out.data + 1, "\u0316\u0316", 4);
    assert_memory_equal(out.data + out.len - 4, "\u0301\u0301", 4);
    str_fini(&text);
    str_fini(&out);
}

static void expect_case(uint32_t code, enum norm_case how, const uint32_t want[NORM_CASE_MAX]) {
    uint32_t got[NORM_CASE_MAX] = {0};
    size_t n = norm_map_case(code, how, got);
    for (size_t i = 0; i < NORM_CASE_MAX; i++)
        assert_int_equal(i < n ? got[i] : 0, want[i]);
}

static void test_letters(void **state) {
    (void)state;
    expect_case('a', NORM_UPPER_CASE, (uint32_t[]){'A', 0, 0});
    expect_case(0xDF, NORM_UPPER_CASE, (uint32_t[]){'S', 'S', 0}); // sharp s
    expect_case(0xDF, NORM_TITLE_CASE, (uint32_t[]){'S', 's', 0});
    expect_case(0xDF, NORM_LOWER_CASE, (uint32_t[]){0xDF, 0, 0});
    expect_case(0x130, NORM_LOWER_CASE, (uint32_t[]){'i', 0x307, 0}); // I with a dot
    expect_case(0x1C6, NORM_TITLE_CASE, (uint32_t[]){0x1C5, 0, 0});   // dz with caron
    expect_case(0x390, NORM_UPPER_CASE, (uint32_t[]){0x399, 0x308, 0x301});
    expect_case(0xFB17, NORM_UPPER_CASE, (uint32_t[]){0x544, 0x53D, 0}); // the table's last row
    expect_case(0x4E00, NORM_UPPER_CASE, (uint32_t[]){0x4E00, 0, 0});
    assert_int_equal(norm_class('A') & NORM_CASED, NORM_UPPER);
    assert_int_equal(norm_class(0x1C5) & NORM_CASED, NORM_TITLE);
    assert_true(norm_class(0x4E00) & NORM_LETTER);
    assert_int_equal(norm_class(0x663), NORM_DECIMAL | NORM_NUMBER);
    assert_int_equal(norm_class(0xBD), NORM_NUMBER);
    assert_int_equal(norm_class('\''), NORM_IGNORED_BY_CASE);
    assert_int_equal(norm_class(' '), 0);
    assert_true(norm_is_printable(' ') && norm_is_printable(0x1F999));
    assert_false(norm_is_printable(0xA0) || norm_is_printable(0x200B) || norm_is_printable(0xE000));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_letters),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_many_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
