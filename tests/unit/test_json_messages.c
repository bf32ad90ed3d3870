// SPDX-License-Identifier: Apache-2.0
// Conversations from JSON: which texts are read, that everything else comes out as it went in, and
// what is refused.
#include <stdlib.h>

#include "compress/prefill.h"
#include "unit/test.h"

static const char conversation[] =
    "[{\"role\":\"system\",\"content\":\"Be brief.\",\"name\":\"x\"},"
    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"One two three.\",\"k\":1.0},"
    "{\"type\":\"image_url\",\"image_url\":{\"url\":\"u\"}},{\"type\":\"text\",\"text\":\"\"},"
    "{\"text\":\"four \\\"five\\\"\",\"type\":\"text\"}]},"
    "{\"content\":null,\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"a\"}]},"
    "{\"role\":\"tool\",\"tool_call_id\":\"a\"}]";

static void read_ok(struct json_messages *m, struct json **j, const char *text) {
    struct err e = {0};
    assert_int_equal(json_parse(j, text, strlen(text), &e), 0);
    assert_int_equal(json_messages_read(m, *j, &e), 0);
}

static void test_read(void **state) {
    (void)state;
    struct json_messages m;
    struct json *j;
    read_ok(&m, &j, conversation);
    static const int64_t parts[] = {1, 3, 0, 0};
    assert_int_equal(m.v.n, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(m.v.messages[i].n_parts, parts[i]);
    assert_string_equal(m.v.messages[1].role, "user");
    assert_string_equal(m.v.messages[1].parts[2].text, "four \"five\"");
    assert_int_equal(m.v.messages[1].parts[1].n, 0);
    json_messages_fini(&m);
    json_free(j);
}

static void check_written(const struct json_messages *m, const struct compress_result *r,
                          const char *gap, const char *want) {
    struct json_writer w = {0};
    json_messages_write(m, r, gap, &w);
    assert_false(w.out.failed);
    assert_string_equal(w.out.data, want);
    str_fini(&w.out);
}

static void test_write(void **state) {
    (void)state;
    struct json_messages m;
    struct json *j;
    read_ok(&m, &j, conversation);
    struct compress_span all[] = {{0, 0, 0, 9}, {1, 0, 0, 14}, {1, 2, 0, 11}};
    struct compress_result r = {.spans = all, .n_spans = 3};
    check_written(&m, &r, "~", conversation);
    struct compress_span some[] = {{0, 0, 0, 9}, {1, 0, 0, 4}, {1, 0, 8, 14}, {1, 2, 0, 5}};
    r = (struct compress_result){.spans = some, .n_spans = 4};
    struct str want = {0};
    str_puts(&want, conversation);
    char *at = strstr(want.data, "One two three.");
    memmove(at + 11, at + 14, strlen(at + 14) + 1);
    memcpy(at, "One ~three.", 11);
    at = strstr(want.data, "four \\\"five\\\"");
    memmove(at + 6, at + 13, strlen(at + 13) + 1);
    at[5] = '~';
    check_written(&m, &r, "~", want.data);
    str_fini(&want);
    json_messages_fini(&m);
    json_free(j);
}

static void test_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "{}",
        "[1]",
        "[{\"content\":\"a\"}]",
        "[{\"role\":1,\"content\":\"a\"}]",
        "[{\"role\":\"user\",\"content\":5}]",
        "[{\"role\":\"user\",\"content\":{}}]",
        "[{\"role\":\"user\",\"content\":[\"a\"]}]",
        "[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]",
        "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":3}]}]",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct json *j;
        struct json_messages m;
        struct err e = {0};
        assert_int_equal(json_parse(&j, bad[i], strlen(bad[i]), &e), 0);
        assert_int_equal(json_messages_read(&m, j, &e), ERR_FORMAT);
        assert_non_null(strstr(e.text, "message"));
        json_messages_fini(&m);
        json_free(j);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_write),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
