// SPDX-License-Identifier: Apache-2.0
// Every pre-tokeniser of the table, SentencePiece and gemma4 against HuggingFace tokenizers
// (tests/fixtures/tokenizer/families, made by tools/oracle/family_fixtures.py): where text is cut,
// and its ids with and without special tokens. Cuts are compared with and without the short way
// for ASCII.
#include "test.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json/json.h"
#include "text/tokenizer/split.h"
#include "text/tokenizer/tokenizer.h"

#define FIXTURES SOURCE_ROOT "/tests/fixtures/tokenizer/families/"

struct family {
    const char *name;
    struct tokenizer *t;
    struct split *split; // NULL for those without a pre-tokeniser of their own
    int texts, cuts, wrong;
};

// The value of the member whose name lists the family, NULL when there is none.
struct search {
    const char *name;
    const struct json *found;
};

static int look(void *arg, const char *key, size_t n, const struct json *value) {
    struct search *s = arg;
    size_t length = strlen(s->name);
    for (size_t at = 0; at + length <= n; at++) {
        bool begins = at == 0 || key[at - 1] == ' ';
        bool ends = at + length == n || key[at + length] == ' ';
        if (begins && ends && memcmp(key + at, s->name, length) == 0)
            s->found = value;
    }
    return 0;
}

static const struct json *of_family(const struct json *row, const char *key, const char *name) {
    struct search s = {name, NULL};
    const struct json *groups = json_get(row, key);
    if (groups)
        assert_int_equal(json_each(groups, look, &s), 0);
    return s.found;
}

// A bound refuses what has one token more, and nothing that fits.
static void check_bound(struct family *f, const char *text, size_t n, bool special,
                        const struct token_list *got) {
    for (size_t less = 0; less < 2 && got->count > less; less++) {
        struct token_list bounded = {.max = got->count - less};
        struct err e = {0};
        int rc = tokenizer_encode(f->t, text, n, special, &bounded, &e);
        assert_int_equal(rc, less ? ERR_LIMIT : 0);
        assert_int_equal(bounded.count, less ? 0 : got->count);
        token_list_fini(&bounded);
    }
}

// The same of texts of which each token takes much: each token's own text, again and again.
static void check_bound_of_tokens(struct family *f) {
    struct str text = {0};
    struct err e = {0};
    for (int32_t id = 0; id < tokenizer_size(f->t); id++) {
        struct token_list got = {0};
        str_clear(&text);
        for (int i = 0; i < 20; i++)
            tokenizer_decode(f->t, id, true, &text);
        if (text.len && !tokenizer_encode(f->t, text.data, text.len, true, &got, &e))
            check_bound(f, text.data, text.len, true, &got);
        token_list_fini(&got);
    }
    str_fini(&text);
}

static void check_ids(struct family *f, const char *text, size_t n, bool special,
                      const struct json *want) {
    struct token_list got = {0};
    struct str back = {0};
    struct err e = {0};
    int rc = tokenizer_encode(f->t, text, n, special, &got, &e);
    bool same = rc == 0 && got.count == json_len(want);
    for (size_t i = 0; same && i < got.count; i++)
        same = got.ids[i] == json_int(json_at(want, i), -1);
    if (!same) {
        f->wrong++;
        print_error("%s special=%d: other ids for \"%.*s\" %s\n", f->name, special, (int)n, text,
                    e.text);
    }
    check_bound(f, text, n, special, &got);
    // Blanks before each stretch and blanks that were U+2581 do not come back as they were.
    for (size_t i = 0; i < got.count; i++)
        tokenizer_decode(f->t, got.ids[i], true, &back);
    if (f->split && same) {
        assert_int_equal(back.len, n);
        assert_true(n == 0 || memcmp(back.data, text, n) == 0);
    }
    token_list_fini(&got);
    str_fini(&back);
}

struct cuts {
    const struct json *want;
    size_t count;
    bool same;
};

static int compare_cut(void *arg, const char *piece, size_t n, struct err *e) {
    struct cuts *c = arg;
    (void)piece;
    (void)e;
    c->same = c->same && (int64_t)n == json_int(json_at(c->want, c->count), -1);
    c->count++;
    return 0;
}

static void check_cuts(struct family *f, const char *text, size_t n, const struct json *want) {
    for (int plain = 0; plain < 2; plain++) {
        struct cuts c = {.want = want, .same = true};
        struct split_job *j = NULL;
        struct err e = {0};
        if (split_begin(&j, f->split, &e))
            fail_msg("%s", e.text);
        if (plain)
            split_expressions_only(j);
        if (split_text(j, text, n, compare_cut, &c, &e))
            fail_msg("%s: %s", f->name, e.text);
        split_end(j);
        if (c.same && c.count == json_len(want))
            continue;
        f->wrong++;
        print_error("%s %s: other cuts for \"%.*s\"\n", f->name, plain ? "by expression" : "",
                    (int)n, text);
    }
    f->cuts++;
}

static void check_row(struct family *f, const struct json *row) {
    size_t n;
    const char *text = json_str(json_get(row, "text"), &n);
    const struct json *ids = of_family(row, "ids", f->name);
    const struct json *plain = of_family(row, "plain", f->name);
    const struct json *cuts = of_family(row, "cuts", f->name);
    assert_non_null(text);
    assert_int_equal(json_kind_of(ids), JSON_ARRAY);
    check_ids(f, text, n, true, ids);
    check_ids(f, text, n, false, plain ? plain : ids);
    if (f->split) {
        assert_int_equal(json_kind_of(cuts), JSON_ARRAY);
        check_cuts(f, text, n, cuts);
    }
    f->texts++;
}

// A copy of the byte-level vocabulary that names another pre-tokeniser.
static void copy_as(const char *path, const char *pre) {
    struct gguf *g;
    struct gguf_writer *w;
    struct err e = {0};
    if (gguf_open(&g, FIXTURES "bytes.gguf", &e) || gguf_writer_open(&w, path, &e))
        fail_msg("%s", e.text);
    for (size_t i = 0; i < gguf_kv_count(g); i++)
        if (strcmp(gguf_kv_at(g, i)->key, "tokenizer.ggml.pre") != 0)
            gguf_put_kv(w, gguf_kv_at(g, i));
    gguf_put_str(w, "tokenizer.ggml.pre", pre, strlen(pre));
    if (gguf_writer_close(w, &e))
        fail_msg("%s", e.text);
    gguf_close(g);
}

static void check_rows(struct family *f) {
    struct str lines = {0};
    struct err e = {0};
    if (file_read(&lines, FIXTURES "families.jsonl", 1 << 24, &e))
        fail_msg("%s", e.text);
    for (const char *at = lines.data, *end; (end = strchr(at, '\n')); at = end + 1) {
        struct json *row;
        if (json_parse(&row, at, (size_t)(end - at), &e))
            fail_msg("%s", e.text);
        check_row(f, row);
        json_free(row);
    }
    str_fini(&lines);
}

static void check_family(const char *file, const char *name, bool own_cuts) {
    struct family f = {.name = name};
    struct gguf *g;
    struct err e = {0};
    if (gguf_open(&g, file, &e) || tokenizer_create(&f.t, g, &e) ||
        (own_cuts && split_create(&f.split, name, strlen(name), &e)))
        fail_msg("%s: %s", name, e.text);
    gguf_close(g);
    check_rows(&f);
    print_message("%-15s %d texts, %d cut two ways, %d differ\n", name, f.texts, f.cuts, f.wrong);
    assert_true(f.texts >= 47);
    assert_int_equal(f.wrong, 0);
    split_destroy(f.split);
    check_bound_of_tokens(&f);
    tokenizer_destroy(f.t);
}

static void test_byte_level(void **state) {
    (void)state;
    static const char *const names[] = {
        "gpt-2",   "qwen2",     "qwen35",    "llama-bpe",   "smaug-bpe",
        "glm4",    "gpt-4o",    "tekken",    "deepseek-v3", "laguna",
        "kimi-k2", "starcoder", "falcon",    "default",     "deepseek-coder",
        "youtu",   "minicpm5",  "chameleon", "bailingmoe",  "deepseek-llm",
    };
    char path[] = "/tmp/coppice-family-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        copy_as(path, names[i]);
        check_family(path, names[i], true);
    }
    unlink(path);
}

static void test_sentencepiece(void **state) {
    (void)state;
    check_family(FIXTURES "spm.gguf", "spm", false);
}

static void test_gemma(void **state) {
    (void)state;
    check_family(FIXTURES "gemma4.gguf", "gemma4", false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_byte_level),
        cmocka_unit_test(test_sentencepiece),
        cmocka_unit_test(test_gemma),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
