// SPDX-License-Identifier: Apache-2.0
// UTF-8: every code point round-trips, what is none is written as U+FFFD, every ill-formed form of
// table 3-7 is refused, and repair gives one U+FFFD per maximal subpart (the examples of Unicode
// 15, tables 3-8 to 3-11).
#include "test.h"

#include "base/utf8.h"

static void every_code_point_round_trips(void **state) {
    (void)state;
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        char s[5] = "....";
        uint32_t back = ~0u;
        int len = utf8_encode(s, c);
        bool half = c >= 0xD800 && c < 0xE000;
        assert_int_equal(len, c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4);
        assert_int_equal(utf8_decode(s, (size_t)len, &back), len);
        assert_int_equal(back, half ? 0xFFFD : c);
        for (int n = 0; n < len; n++)
            assert_int_equal(utf8_decode(s, (size_t)n, &back), 0);
        for (int n = len; n < 4; n++)
            assert_int_equal(s[n], '.');
    }
}

// The reader undoes what the writer does, so bytes are compared with known ones, too.
static void code_points_are_written(void **state) {
    (void)state;
    static const struct {
        uint32_t code;
        const char *want;
    } cases[] = {
        {0x41, "A"},
        {0x7F, "\x7F"},
        {0x80, "\xC2\x80"},
        {0x7FF, "\xDF\xBF"},
        {0x800, "\xE0\xA0\x80"},
        {0xD7FF, "\xED\x9F\xBF"},
        {0xD800, "\xEF\xBF\xBD"},
        {0xDFFF, "\xEF\xBF\xBD"},
        {0xE000, "\xEE\x80\x80"},
        {0xFFFF, "\xEF\xBF\xBF"},
        {0x10000, "\xF0\x90\x80\x80"},
        {0x1D800, "\xF0\x9D\xA0\x80"},
        {0x10FFFF, "\xF4\x8F\xBF\xBF"},
        {0x110000, "\xEF\xBF\xBD"},
        {0x80000041, "\xEF\xBF\xBD"},
        {UINT32_MAX, "\xEF\xBF\xBD"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char s[5] = "";
        assert_int_equal(utf8_encode(s, cases[i].code), strlen(cases[i].want));
        assert_string_equal(s, cases[i].want);
    }
}

static void ill_formed_subparts_have_their_length(void **state) {
    (void)state;
    static const struct {
        const char *s;
        int want;
    } cases[] = {
        {"\x80", -1},         {"\xBF", -1},         {"\xC0\x80", -1},
        {"\xC1\xBF", -1},     {"\xC2\x41", -1},     {"\xE0\x9F\x80", -1},
        {"\xE1\x80\x41", -2}, {"\xED\xA0\x80", -1}, {"\xF0\x8F\x80\x80", -1},
        {"\xF1\x80\x41", -2}, {"\xF4\x90", -1},     {"\xF1\x80\x80\x41", -3},
        {"\xF5\x80", -1},     {"\xFF", -1},         {"\xE2\x82", 0},
        {"\xF0\x9F\x98", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t code;
        assert_int_equal(utf8_decode(cases[i].s, strlen(cases[i].s), &code), cases[i].want);
        assert_false(utf8_valid(cases[i].s, strlen(cases[i].s)));
    }
}

#define R "\xEF\xBF\xBD"

static void repair_replaces_maximal_subparts(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"plain \xC3\xA9", "plain \xC3\xA9"},
        {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", R R R R R R R R "A"},
        {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", R R R R R R R R "A"},
        {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", R R R R R "A" R R "B"},
        {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", R R R R "A"},
        {"end \xF0\x9F\x98", "end " R},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct str out = {0};
        utf8_sanitise(&out, cases[i][0], strlen(cases[i][0]));
        assert_string_equal(out.data, cases[i][1]);
        assert_true(utf8_valid(out.data, out.len));
        str_fini(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point_round_trips),
        cmocka_unit_test(code_points_are_written),
        cmocka_unit_test(ill_formed_subparts_have_their_length),
        cmocka_unit_test(repair_replaces_maximal_subparts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
