// SPDX-License-Identifier: Apache-2.0
// Conversations in JSON: texts found in contents of all forms, what stays written back in their
// place, all else as it was.
#include "compress/compress_json.h"

#include "test.h"

static struct json *parse(const char *text) {
    struct json *v = NULL;
    struct err e = {0};
    if (json_parse(&v, text, strlen(text), &e))
        fail_msg("%s", e.text);
    return v;
}

static const char messages[] =
    "[{\"role\":\"system\",\"content\":\"Rules.\",\"x\":1.50},"
    "{\"content\":[{\"type\":\"text\",\"text\":\"one two three\",\"own\":[1e2]},\"four five\","
    "{\"type\":\"image_url\",\"image_url\":{\"url\":\"u\"}},7,null,{\"text\":8}],\"role\":\"user\"}"
    ","
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[]},{\"role\":\"user\"},"
    "{\"role\":\"user\",\"content\":\"\"},{\"role\":\"user\",\"content\":{\"text\":\"no\"}}]";

static void texts_are_found(void **state) {
    (void)state;
    struct json *v = parse(messages);
    struct compress_json c;
    assert_int_equal(compress_json_read(&c, v, NULL), 0);
    assert_int_equal(c.v.n, 6);
    assert_string_equal(c.v.messages[0].role, "system");
    assert_int_equal(c.v.messages[0].n_parts, 1);
    assert_memory_equal(c.v.messages[0].parts[0].text, "Rules.", 6);
    assert_int_equal(c.v.messages[1].n_parts, 6);
    static const size_t lengths[] = {13, 9, 0, 0, 0, 0};
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(c.v.messages[1].parts[i].n, lengths[i]);
    for (size_t i = 2; i < 6; i++)
        assert_int_equal(c.v.messages[i].parts[0].n, 0);
    compress_json_fini(&c);
    json_free(v);
}

static void written(const struct compress_json *c, struct compress_span *spans, int64_t n,
                    const char *gap, const char *wanted) {
    const struct compress_result r = {.spans = spans, .n_spans = n};
    struct json_writer w = {0};
    compress_json_write(&w, c, &r, gap);
    assert_string_equal(w.out.data, wanted);
    str_fini(&w.out);
}

static void what_stays_is_written(void **state) {
    (void)state;
    struct json *v = parse(messages);
    struct compress_json c;
    assert_int_equal(compress_json_read(&c, v, NULL), 0);
    struct compress_span all[] = {{0, 0, 0, 6}, {1, 0, 0, 13}, {1, 1, 0, 9}};
    written(&c, all, 3, "..", messages);
    struct compress_span some[] = {{0, 0, 0, 6}, {1, 0, 0, 3}, {1, 0, 7, 13}, {1, 1, 5, 9}};
    written(
        &c, some, 4, " [..] ",
        "[{\"role\":\"system\",\"content\":\"Rules.\",\"x\":1.50},"
        "{\"content\":[{\"type\":\"text\",\"text\":\"one [..]  three\",\"own\":[1e2]},"
        "\" [..] five\",{\"type\":\"image_url\",\"image_url\":{\"url\":\"u\"}},7,null,"
        "{\"text\":8}],\"role\":\"user\"},"
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[]},{\"role\":\"user\"},"
        "{\"role\":\"user\",\"content\":\"\"},{\"role\":\"user\",\"content\":{\"text\":\"no\"}}]");
    compress_json_fini(&c);
    json_free(v);
}

static void what_is_no_conversation(void **state) {
    (void)state;
    static const char *const bad[] = {"{}",    "5", "\"x\"", "[5]", "[{}]", "[{\"role\":5}]",
                                      "[null]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct json *v = parse(bad[i]);
        struct compress_json c;
        struct err e = {0};
        assert_int_equal(compress_json_read(&c, v, &e), ERR_FORMAT);
        assert_non_null(strstr(e.text, "messages"));
        compress_json_fini(&c);
        json_free(v);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_found),
        cmocka_unit_test(what_stays_is_written),
        cmocka_unit_test(what_is_no_conversation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
