// SPDX-License-Identifier: Apache-2.0
// Error sentences: whatever they quote, they are one line of UTF-8.
#include "test.h"

#include <string.h>

#include "base/err.h"
#include "base/utf8.h"

static void test_text_and_code(void **state) {
    (void)state;
    struct err e = {0};
    assert_int_equal(err_set(&e, ERR_FORMAT, "%s: caf\xC3\xA9 %d", "a.gguf", 7), ERR_FORMAT);
    assert_int_equal(e.code, ERR_FORMAT);
    assert_string_equal(e.text, "a.gguf: caf\xC3\xA9 7");
    assert_int_equal(err_prefix(&e, "part %d", 2), ERR_FORMAT);
    assert_string_equal(e.text, "part 2: a.gguf: caf\xC3\xA9 7");
    assert_int_equal(err_set(NULL, ERR_IO, "nobody reads this"), ERR_IO);
}

static void test_hostile_names(void **state) {
    static const struct {
        const char *quoted, *shown;
    } cases[] = {
        {"two\nlines\r", "two?lines?"},
        {"\x1B[2Jcleared\x7F", "?[2Jcleared?"},
        {"\xC2\x9B"
         "31m \xC2\xA0",
         "??31m \xC2\xA0"},
        {"cut \xE4\xBD", "cut ??"},
        {"\xFF\xC0\x80 \xED\xA0\x80 fine \xF0\x9F\xA6\x99", "??? ??? fine \xF0\x9F\xA6\x99"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = {0};
        err_set(&e, ERR_FORMAT, "%s", cases[i].quoted);
        assert_string_equal(e.text, cases[i].shown);
        err_set(&e, ERR_FORMAT, "plain");
        err_prefix(&e, "%s", cases[i].quoted);
        assert_memory_equal(e.text, cases[i].shown, strlen(cases[i].shown));
    }
}

// A sentence that is too long is cut between characters, or shows a mark where it is not.
static void test_long_names(void **state) {
    (void)state;
    for (size_t lead = 0; lead < 4; lead++) {
        char name[1024];
        struct err e = {0};
        memset(name, 'x', lead);
        for (size_t i = lead; i + 4 < sizeof name; i += 4)
            memcpy(name + i, "\xF0\x9F\xA6\x99", 5);
        err_set(&e, ERR_FORMAT, "%s", name);
        assert_true(strlen(e.text) == sizeof e.text - 1 && utf8_valid(e.text, sizeof e.text - 1));
        err_prefix(&e, "%s", name);
        assert_true(strlen(e.text) == sizeof e.text - 1 && utf8_valid(e.text, sizeof e.text - 1));
    }
}

// A caller that adds a prefix need not check whether the sentence has it already.
static void test_prefix_once(void **state) {
    (void)state;
    struct err e = {0};
    err_set(&e, ERR_FORMAT, "a\nb: key 'x' is 0");
    err_prefix(&e, "%s", "a\nb");
    assert_string_equal(e.text, "a?b: key 'x' is 0");
    err_prefix(&e, "a");
    assert_string_equal(e.text, "a: a?b: key 'x' is 0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_and_code),
        cmocka_unit_test(test_hostile_names),
        cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_prefix_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
