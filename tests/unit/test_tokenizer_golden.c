// SPDX-License-Identifier: Apache-2.0
// The tokenizer against the ids that HuggingFace tokenizers give for hostile multilingual text
// (tests/fixtures/tokenizer, made by tools/oracle/tokenizer_fixtures.py), and back to bytes.
#include "test.h"

#include "base/file.h"
#include "base/json/json.h"
#include "text/tokenizer/tokenizer.h"

#define FIXTURES SOURCE_ROOT "/tests/fixtures/tokenizer/"

struct fixture {
    struct tokenizer *t;
    const char *key, *plain_key;
    int checked, wrong;
};

// Compares one encoding and decodes it again.
static void check(struct fixture *f, const char *text, size_t n, bool special,
                  const struct json *want) {
    struct token_list got = {0};
    struct err e = {0};
    struct str back = {0};
    int rc = tokenizer_encode(f->t, text, n, special, &got, &e);
    bool same = rc == 0 && got.count == json_len(want);
    for (size_t i = 0; same && i < got.count; i++)
        same = got.ids[i] == json_int(json_at(want, i), -1);
    for (size_t i = 0; i < got.count; i++)
        tokenizer_decode(f->t, got.ids[i], true, &back);
    bool round = back.len == n && (n == 0 || memcmp(back.data, text, n) == 0);
    if (!same || !round) {
        f->wrong++;
        print_error("%s special=%d: \"%.*s\" %s %s\n", f->key, special, (int)n, text,
                    same ? "" : "has other ids", e.text);
    }
    f->checked++;
    token_list_fini(&got);
    str_fini(&back);
}

static void check_line(struct fixture *f, const struct json *line) {
    size_t n;
    const char *text = json_str(json_get(line, "text"), &n);
    assert_non_null(text);
    const struct json *plain = json_get(line, f->plain_key);
    const struct json *ids = json_get(line, f->key);
    assert_int_equal(json_kind_of(ids), JSON_ARRAY);
    check(f, text, n, true, ids);
    check(f, text, n, false, plain ? plain : ids);
}

static void check_file(const char *model, const char *key, const char *plain_key) {
    struct err e = {0};
    struct gguf *g;
    struct str lines = {0};
    struct fixture f = {.key = key, .plain_key = plain_key};
    if (gguf_open(&g, model, &e) || tokenizer_create(&f.t, g, &e) ||
        file_read(&lines, FIXTURES "ids.jsonl", 1 << 24, &e))
        fail_msg("%s", e.text);
    gguf_close(g);
    for (const char *at = lines.data, *end; (end = strchr(at, '\n')); at = end + 1) {
        struct json *line;
        if (json_parse(&line, at, (size_t)(end - at), &e))
            fail_msg("%s", e.text);
        check_line(&f, line);
        json_free(line);
    }
    print_message("%s: %d encodings compared, %d differ\n", key, f.checked, f.wrong);
    assert_true(f.checked > 1000);
    assert_int_equal(f.wrong, 0);
    str_fini(&lines);
    tokenizer_destroy(f.t);
}

static void test_qwen35(void **state) {
    (void)state;
    check_file(FIXTURES "qwen35.gguf", "qwen35", "qwen35_plain");
}

static void test_qwen2(void **state) {
    (void)state;
    check_file(FIXTURES "qwen2.gguf", "qwen2", "qwen2_plain");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_qwen35),
        cmocka_unit_test(test_qwen2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
