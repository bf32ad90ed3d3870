// SPDX-License-Identifier: Apache-2.0
// Growable strings: contents, embedded NULs, formatting, sticky failure.
#include "test.h"

#include "base/str.h"

static void appends_add_up(void **state) {
    (void)state;
    struct str s = {0};
    str_append(&s, "", 0);
    assert_string_equal(s.data, "");
    str_puts(&s, "tree");
    str_putc(&s, '\0');
    str_append(&s, "a\0b", 3);
    str_printf(&s, "<%d|%s>", -12, "x");
    assert_int_equal(s.len, 4 + 1 + 3 + 7);
    assert_memory_equal(s.data, "tree\0a\0b<-12|x>", s.len + 1);
    str_clear(&s);
    assert_int_equal(s.len, 0);
    assert_string_equal(s.data, "");
    str_fini(&s);
    assert_null(s.data);
}

static void long_strings_keep_every_byte(void **state) {
    (void)state;
    struct str s = {0};
    for (int i = 0; i < 100000; i++)
        str_printf(&s, "%d,", i % 10);
    assert_int_equal(s.len, 200000);
    for (size_t i = 0; i < s.len; i += 2) {
        assert_int_equal(s.data[i], '0' + (int)(i / 2 % 10));
        assert_int_equal(s.data[i + 1], ',');
    }
    assert_true(s.cap < 2 * s.len);
    str_fini(&s);
}

static void failure_sticks_and_keeps_what_was_there(void **state) {
    (void)state;
    struct str s = {0};
    str_puts(&s, "kept");
    str_append(&s, "x", SIZE_MAX / 2);
    assert_true(s.failed);
    str_puts(&s, "dropped");
    str_printf(&s, "%s", "a text that is longer than what was reserved at first");
    assert_string_equal(s.data, "kept");
    assert_int_equal(s.len, 4);
    str_fini(&s);
    assert_false(s.failed);
}

static void lists_hold_whole_words(void **state) {
    (void)state;
    assert_true(str_lists("glm4moe qwen3 qwen3moe", "qwen3", 5));
    assert_true(str_lists("glm4moe qwen3 qwen3moe", "glm4moe", 7));
    assert_true(str_lists("glm4moe qwen3 qwen3moe", "qwen3moe, and more", 8));
    assert_false(str_lists("glm4moe qwen3moe", "qwen3", 5));
    assert_false(str_lists("glm4moe qwen3moe", "moe", 3));
    assert_false(str_lists("", "qwen3", 5));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends_add_up),
        cmocka_unit_test(long_strings_keep_every_byte),
        cmocka_unit_test(lists_hold_whole_words),
        cmocka_unit_test(failure_sticks_and_keeps_what_was_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
