// SPDX-License-Identifier: Apache-2.0
// The tokenizer as a whole over small made-up vocabularies: types of tokens, what ends generation,
// options of the file, and vocabularies that lie.
#include "test.h"

#include <stdio.h>
#include <unistd.h>

#include "vocab_file.h"

#define KEY(name) "tokenizer.ggml." name

static const char *const no_merges[1];

// A tokenizer over the 256 bytes (id = byte) and these tokens, from 256 on. types may be NULL.
static struct tokenizer *load(struct vocab_file *f, const char *const *tokens, size_t n,
                              const int32_t *types) {
    struct vocab_spec spec = {tokens, no_merges, types, n, 0};
    struct tokenizer *t;
    struct err e = {0};
    vocab_file_fill(f, &spec);
    if (vocab_file_load(f, &t, &e))
        fail_msg("%s", e.text);
    return t;
}

static void expect_ids(const struct tokenizer *t, const char *text, bool special,
                       const char *want) {
    struct token_list ids = {0};
    struct str got = {0};
    struct err e = {0};
    if (tokenizer_encode(t, text, strlen(text), special, &ids, &e))
        fail_msg("%s", e.text);
    for (size_t i = 0; i < ids.count; i++)
        str_printf(&got, "%s%d", i ? " " : "", ids.ids[i]);
    assert_string_equal(got.len ? got.data : "", want);
    token_list_fini(&ids);
    str_fini(&got);
}

static void expect_text(const struct tokenizer *t, int32_t id, bool special, const char *want) {
    struct str out = {0};
    tokenizer_decode(t, id, special, &out);
    assert_string_equal(out.len ? out.data : "", want);
    str_fini(&out);
}

static void test_types(void **state) {
    (void)state;
    // Type 0 occurs in old files and means normal.
    static const char *const tokens[] = {"<ctl>", "<usr>", "<unk>",     "<off>", "<0x41>",
                                         "éé",    "Ġhe",   "<unused7>", "日",    "<nrm>"};
    static const int32_t types[] = {3, 4, 2, 5, 6, 4, 0, 3, 1, 1};
    struct vocab_file f = {0};
    struct tokenizer *t = load(&f, tokens, 10, types);
    assert_int_equal(tokenizer_size(t), 266);
    expect_ids(t, "<ctl><usr><unk>", true, "256 257 258");
    expect_ids(t, "<usr>", false, "257");
    expect_ids(t, "<c", false, "60 99");
    expect_ids(t, "a<ctl>", false, "97 60 99 116 108 62");
    expect_ids(t, "éé", true, "261");           // user-defined: not un-mapped
    expect_ids(t, "\xC3\xA8", true, "195 168"); // è: two byte tokens
    expect_ids(t, "<0x41>", true, "60 48 120 52 49 62");
    expect_ids(t, "<off>", true, "60 111 102 102 62");
    expect_ids(t, "<unused7>", true, "60 117 110 117 115 101 100 55 62");
    expect_ids(t, "<nrm>", true, "60 110 114 109 62");
    expect_text(t, 256, true, "<ctl>");
    expect_text(t, 256, false, "");
    expect_text(t, 257, false, "<usr>");
    expect_text(t, 258, true, "<unk>");
    expect_text(t, 258, false, "");
    expect_text(t, 259, true, "");
    expect_text(t, 260, false, "A");
    expect_text(t, 261, false, "éé");
    expect_text(t, 262, false, " he");
    expect_text(t, 263, true, "");
    expect_text(t, 264, false, "日"); // outside the byte map: itself
    expect_text(t, 0xE9, false, "\xE9");
    expect_text(t, -1, true, "");
    expect_text(t, 266, true, "");
    assert_int_equal(tokenizer_find(t, "<ctl>", 5), 256);
    assert_int_equal(tokenizer_find(t, "Ġhe", 4), 262);
    assert_int_equal(tokenizer_find(t, " he", 3), -1);
    tokenizer_destroy(t);
    vocab_file_fini(&f);
}

static void test_all_bytes(void **state) {
    (void)state;
    struct vocab_file f = {0};
    struct tokenizer *t = load(&f, no_merges, 0, NULL);
    for (int i = 0; i < 256; i++) {
        struct str out = {0};
        tokenizer_decode(t, i, false, &out);
        assert_int_equal(out.len, 1);
        assert_int_equal((unsigned char)out.data[0], i);
        str_fini(&out);
    }
    tokenizer_destroy(t);
    vocab_file_fini(&f);
}

static void test_merges(void **state) {
    (void)state;
    // A merge part may begin with a mapped space; parts that are not in the byte map do no harm.
    static const char *const tokens[] = {"Ġa", "Ġab", "bb", "Ã©"};
    static const char *const merges[] = {"日 x", "Ġ a", "b b", "Ġa b", "b b", "Ã ©"};
    struct vocab_spec spec = {tokens, merges, NULL, 4, 6};
    struct vocab_file f = {0};
    struct tokenizer *t;
    struct err e = {0};
    vocab_file_fill(&f, &spec);
    assert_int_equal(vocab_file_load(&f, &t, &e), 0);
    expect_ids(t, "x ab", true, "120 257");
    expect_ids(t, " abb", true, "256 258"); // "b b" has the lower rank
    expect_ids(t, "é", true, "259");
    expect_ids(t, "日", true, "230 151 165");
    tokenizer_destroy(t);
    vocab_file_fini(&f);
}

// A text at several ids: each decodes, text becomes the lowest, and a mark is a mark at any of
// them.
static void test_same_texts(void **state) {
    (void)state;
    static const char *const tokens[] = {"//",  "<x>", "//",  "<x>",        "<y>",
                                         "<y>", "<z>", "<z>", "<|im_end|>", "<|im_end|>"};
    static const int32_t types[] = {1, 1, 1, 3, 3, 3, 4, 4, 3, 3};
    static const char *const merges[] = {"/ /"};
    struct vocab_spec spec = {tokens, merges, types, 10, 1};
    struct vocab_file f = {0};
    struct tokenizer *t;
    struct err e = {0};
    vocab_file_fill(&f, &spec);
    assert_int_equal(vocab_file_load(&f, &t, &e), 0);
    expect_ids(t, "a//", false, "97 256");
    expect_ids(t, "<x><y>", true, "259 260");
    expect_ids(t, "<z>", false, "262");
    assert_int_equal(tokenizer_find(t, "//", 2), 256);
    assert_int_equal(tokenizer_find(t, "<x>", 3), 259);
    assert_int_equal(tokenizer_find(t, "<z>", 3), 262);
    for (int32_t id = 256; id < 264; id++)
        expect_text(t, id, true, tokens[id - 256]);
    assert_true(tokenizer_is_eog(t, 264) && tokenizer_is_eog(t, 265));
    assert_false(tokenizer_is_eog(t, 256) || tokenizer_is_eog(t, 260));
    tokenizer_destroy(t);
    vocab_file_fini(&f);
}

static void test_end_of_generation(void **state) {
    (void)state;
    static const char *const tokens[] = {"<|im_end|>",   "<|endoftext|>", "stop",  "<|fim_pad|>",
                                         "<|file_sep|>", "other",         "<mine>"};
    static const int32_t types[] = {3, 1, 1, 3, 4, 3, 3};
    struct vocab_file f = {0};
    vocab_file_u32(&f, KEY("eos_token_id"), 258);
    vocab_file_u32(&f, KEY("fim_sep_token_id"), 262);
    vocab_file_u32(&f, KEY("bos_token_id"), 99999);
    vocab_file_bool(&f, KEY("add_bos_token"), true);
    struct tokenizer *t = load(&f, tokens, 7, types);
    static const bool want[] = {true, true, true, true, false, false, true};
    for (int i = 0; i < 7; i++)
        assert_int_equal(tokenizer_is_eog(t, 256 + i), want[i]);
    assert_false(tokenizer_is_eog(t, 'a') || tokenizer_is_eog(t, -1) || tokenizer_is_eog(t, 9999));
    assert_int_equal(tokenizer_eos(t), 258);
    assert_int_equal(tokenizer_bos(t), -1); // outside the vocabulary
    assert_false(tokenizer_add_bos(t));
    expect_ids(t, "<|endoftext|>", true, "257"); // a normal token of that text becomes control
    expect_text(t, 257, false, "");
    tokenizer_destroy(t);
    vocab_file_fini(&f);
}

static void test_end_exceptions(void **state) {
    (void)state;
    static const char *const oss[] = {"<|end|>", "<|return|>", "<|call|>", "</s>"};
    static const char *const gemma[] = {"</s>", "<|tool_response>", "<|end|>"};
    static const int32_t types[] = {3, 3, 3, 3};
    struct vocab_file f = {0};
    struct tokenizer *t = load(&f, oss, 4, types);
    assert_false(tokenizer_is_eog(t, 256));
    assert_true(tokenizer_is_eog(t, 257) && tokenizer_is_eog(t, 258) && tokenizer_is_eog(t, 259));
    expect_text(t, 256, false, "<|end|>");
    tokenizer_destroy(t);
    vocab_file_fini(&f);
    t = load(&f, gemma, 3, types);
    assert_false(tokenizer_is_eog(t, 256));
    assert_true(tokenizer_is_eog(t, 257) && tokenizer_is_eog(t, 258));
    tokenizer_destroy(t);
    vocab_file_fini(&f);
    static const char *const gemma3[] = {"</s>", "<end_of_turn>", "<s>"}; // marks of HTML
    static const int32_t marks[] = {4, 3, 4};
    t = load(&f, gemma3, 3, marks);
    assert_false(tokenizer_is_eog(t, 256));
    assert_true(tokenizer_is_eog(t, 257));
    tokenizer_destroy(t);
    vocab_file_fini(&f);
}

static void test_bos(void **state) {
    (void)state;
    struct vocab_file f = {0};
    vocab_file_u32(&f, KEY("bos_token_id"), 7);
    struct tokenizer *t = load(&f, no_merges, 0, NULL);
    assert_int_equal(tokenizer_bos(t), 7);
    assert_false(tokenizer_add_bos(t)); // qwen2 has no default
    tokenizer_destroy(t);
    vocab_file_fini(&f);
    vocab_file_u32(&f, KEY("bos_token_id"), 7);
    vocab_file_bool(&f, KEY("add_bos_token"), true);
    t = load(&f, no_merges, 0, NULL);
    assert_true(tokenizer_add_bos(t));
    tokenizer_destroy(t);
    vocab_file_fini(&f);
}

static void test_nfc(void **state) {
    (void)state;
    static const char *const tokens[] = {"e\u0301|"};
    static const int32_t types[] = {4};
    struct vocab_file f = {0};
    struct tokenizer *t = load(&f, tokens, 1, types);
    expect_ids(t, "e\u0301", true, "101 204 129"); // the default leaves text alone
    tokenizer_destroy(t);
    vocab_file_fini(&f);
    vocab_file_bool(&f, KEY("normalizer.nfc"), true);
    t = load(&f, tokens, 1, types);
    expect_ids(t, "e\u0301", true, "195 169");
    expect_ids(t, "\u00E9", true, "195 169");
    expect_ids(t, "ae\u0301|e", true, "97 256 101"); // special tokens are found before
    tokenizer_destroy(t);
    vocab_file_fini(&f);
}

static void test_bad_text(void **state) {
    (void)state;
    struct vocab_file f = {0};
    struct tokenizer *t = load(&f, no_merges, 0, NULL);
    struct token_list ids = {0};
    struct err e = {0};
    assert_int_equal(tokenizer_encode(t, "ok", 2, true, &ids, &e), 0);
    static const char *const bad[] = {"abc\xFFz", "abc\xE4\xBD", "abc\xED\xA0\x80", "abc\xC0\x80"};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(tokenizer_encode(t, bad[i], strlen(bad[i]), true, &ids, &e), ERR_FORMAT);
        assert_non_null(strstr(e.text, "byte 3"));
        assert_int_equal(ids.count, 2);
    }
    assert_int_equal(tokenizer_encode(t, "a\0b", 3, true, &ids, &e), 0);
    assert_int_equal(ids.count, 5);
    assert_int_equal(ids.ids[3], 0);
    token_list_fini(&ids);
    tokenizer_destroy(t);
    vocab_file_fini(&f);
}

static bool ask(const void *arg) {
    int *left = (int *)(uintptr_t)arg;
    return (*left)-- <= 0;
}

// A text that has far too many tokens is refused at a glance; for one that is not needed any
// more the work ends, in pieces and within an unbroken stretch.
static void test_bounds_of_the_work(void **state) {
    (void)state;
    enum { LONG = 4 << 20 };
    static const char *const tokens[] = {"aaaaaaaa", "<|mark|>"};
    static const int32_t types[] = {1, 3};
    static const char *const units[] = {"a", "a ", "\u00E9", "e\u0301", "<|mark|>"};
    for (int nfc = 0; nfc < 2; nfc++) {
        struct vocab_file f = {0};
        if (nfc)
            vocab_file_bool(&f, KEY("normalizer.nfc"), true);
        struct tokenizer *t = load(&f, tokens, 2, types);
        for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
            struct str text = {0};
            struct err e = {0};
            int none = 0, later = 3, never = INT32_MAX;
            while (text.len < LONG)
                str_puts(&text, units[i]);
            struct token_list l = {.max = LONG / 64, .cancel = &(struct cancel_check){ask, &never}};
            assert_int_equal(tokenizer_encode(t, text.data, text.len, true, &l, &e), ERR_LIMIT);
            assert_int_equal(never, INT32_MAX); // no piece was looked at
            assert_int_equal(l.count, 0);
            token_list_fini(&l);
            for (int k = 0; i < 4 && k < 2; k++) {
                l = (struct token_list){.cancel = &(struct cancel_check){ask, k ? &later : &none}};
                assert_int_equal(tokenizer_encode(t, text.data, text.len, true, &l, &e),
                                 ERR_CANCELLED);
                assert_int_equal(l.count, 0);
                token_list_fini(&l);
            }
            assert_int_equal(none, i < 4 ? -1 : 0); // nothing more was done after the answer
            str_fini(&text);
        }
        tokenizer_destroy(t);
        vocab_file_fini(&f);
    }
}

// Each phase of the work over an unbroken stretch checks it: for its symbols, for the heap of its
// pairs, for its merges.
static void test_phases_check_cancel(void **state) {
    (void)state;
    enum { LONG = 1 << 20, EACH = 1 << 16 };
    static const char *const tokens[] = {"aa"}, *const merges[] = {"a a"};
    struct vocab_file f = {0};
    struct vocab_spec spec = {tokens, merges, NULL, 1, 1};
    struct tokenizer *t;
    struct str text = {0};
    struct err e = {0};
    vocab_file_fill(&f, &spec);
    assert_int_equal(vocab_file_load(&f, &t, &e), 0);
    for (int i = 0; i < LONG; i++)
        str_putc(&text, 'a');
    int never = INT32_MAX;
    struct token_list l = {.cancel = &(struct cancel_check){ask, &never}};
    assert_int_equal(tokenizer_encode(t, text.data, text.len, true, &l, &e), 0);
    assert_int_equal(l.count, LONG / 2);
    const int asked = INT32_MAX - never;
    assert_true(asked >= (LONG + LONG / 2 + LONG) / EACH - 1);
    token_list_fini(&l);
    for (int k = 0; k < asked; k++) {
        int left = k;
        l = (struct token_list){.cancel = &(struct cancel_check){ask, &left}};
        assert_int_equal(tokenizer_encode(t, text.data, text.len, true, &l, &e), ERR_CANCELLED);
        assert_int_equal(left, -1); // it ends with the answer
        assert_int_equal(l.count, 0);
        token_list_fini(&l);
    }
    str_fini(&text);
    tokenizer_destroy(t);
    vocab_file_fini(&f);
}

// A character of four bytes that no token has is one token, and as many as fit are not refused.
static void test_unknown_characters_fit(void **state) {
    (void)state;
    enum { MANY = 1000 };
    static const char *const tokens[] = {"<unk>", "<s>", "</s>", "a"};
    static const size_t lengths[] = {5, 3, 4, 1};
    static const int32_t types[] = {2, 3, 3, 1};
    static const float scores[] = {0, 0, 0, -1};
    char path[64];
    struct gguf_writer *w;
    struct gguf *g;
    struct tokenizer *t;
    struct str text = {0};
    struct err e = {0};
    snprintf(path, sizeof path, "/tmp/test_tokenizer.%d.gguf", (int)getpid());
    assert_int_equal(gguf_writer_open(&w, path, &e), 0);
    gguf_put_str(w, "tokenizer.ggml.model", "llama", 5);
    gguf_put_str_array(w, "tokenizer.ggml.tokens", tokens, lengths, 4);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, 4);
    gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, 4);
    gguf_put_int(w, "tokenizer.ggml.unknown_token_id", GGUF_U32, 0);
    gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", false);
    assert_int_equal(gguf_writer_close(w, &e), 0);
    assert_int_equal(gguf_open(&g, path, &e), 0);
    if (tokenizer_create(&t, g, &e))
        fail_msg("%s", e.text);
    for (int i = 0; i < MANY; i++)
        str_puts(&text, "\xF0\x9F\x98\x80");
    for (int fits = 0; fits < 2; fits++) {
        struct token_list l = {.max = MANY - 1 + (size_t)fits};
        assert_int_equal(tokenizer_encode(t, text.data, text.len, true, &l, &e),
                         fits ? 0 : ERR_LIMIT);
        assert_int_equal(l.count, fits ? MANY : 0);
        token_list_fini(&l);
    }
    str_fini(&text);
    tokenizer_destroy(t);
    gguf_close(g);
    remove(path);
}

// The file must be refused with this code and a sentence that holds this word.
static void refused(struct vocab_file *f, int code, const char *word) {
    struct tokenizer *t;
    struct err e = {0};
    assert_int_equal(vocab_file_load(f, &t, &e), code);
    if (!strstr(e.text, word))
        fail_msg("\"%s\" does not name %s", e.text, word);
    vocab_file_fini(f);
}

static void refused_spec(const char *const *tokens, size_t n_tokens, const int32_t *types,
                         const char *const *merges, size_t n_merges, const char *word) {
    struct vocab_file f = {0};
    struct vocab_spec spec = {tokens, merges, types, n_tokens, n_merges};
    vocab_file_fill(&f, &spec);
    refused(&f, ERR_FORMAT, word);
}

static void test_lists_with_wrong_lengths(void **state) {
    (void)state;
    static const char *const broken[] = {"x\xFFy"};
    static const char *const fine[] = {"ab"};
    static const int32_t seven[] = {7}, negative[] = {-1};
    refused_spec(broken, 1, NULL, no_merges, 0, "UTF-8");
    refused_spec(fine, 1, seven, no_merges, 0, "type 7");
    refused_spec(fine, 1, negative, no_merges, 0, "type -1");
    static const char *const merges[] = {"ab", "", " ", "a ", " b", "  ", "\xFF a", "a \xFF"};
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++)
        refused_spec(fine, 1, NULL, &merges[i], 1, "merge 0");
}

static void test_missing_keys(void **state) {
    (void)state;
    static const char *const tokens[] = {"a", "b"};
    static const int32_t types[] = {1};
    struct vocab_file f = {0};
    refused(&f, ERR_FORMAT, "tokenizer.ggml.model");
    vocab_file_str(&f, KEY("model"), "bert");
    refused(&f, ERR_UNSUPPORTED, "bert");
    vocab_file_u32(&f, KEY("model"), 3);
    refused(&f, ERR_FORMAT, "tokenizer.ggml.model");
    vocab_file_str(&f, KEY("model"), "gpt2");
    refused(&f, ERR_FORMAT, "tokenizer.ggml.pre");
    vocab_file_str(&f, KEY("model"), "gpt2");
    vocab_file_str(&f, KEY("pre"), "nobody");
    refused(&f, ERR_UNSUPPORTED, "nobody");
    vocab_file_str(&f, KEY("model"), "gpt2");
    vocab_file_str(&f, KEY("pre"), "qwen35");
    refused(&f, ERR_FORMAT, "tokenizer.ggml.tokens");
    vocab_file_str(&f, KEY("model"), "gpt2");
    vocab_file_str(&f, KEY("pre"), "qwen35");
    vocab_file_strs(&f, KEY("tokens"), tokens, 0);
    refused(&f, ERR_FORMAT, "tokenizer.ggml.tokens");
    vocab_file_str(&f, KEY("model"), "gpt2");
    vocab_file_str(&f, KEY("pre"), "qwen35");
    vocab_file_i32s(&f, KEY("tokens"), types, 1);
    refused(&f, ERR_FORMAT, "tokenizer.ggml.tokens");
    vocab_file_str(&f, KEY("model"), "gpt2");
    vocab_file_str(&f, KEY("pre"), "qwen35");
    vocab_file_strs(&f, KEY("tokens"), tokens, 2);
    vocab_file_i32s(&f, KEY("token_type"), types, 1);
    refused(&f, ERR_FORMAT, "token_type");
    vocab_file_str(&f, KEY("model"), "gpt2");
    vocab_file_str(&f, KEY("pre"), "qwen35");
    vocab_file_strs(&f, KEY("tokens"), tokens, 2);
    refused(&f, ERR_FORMAT, "tokenizer.ggml.merges");
}

static void test_missing_byte_tokens(void **state) {
    (void)state;
    static const char *const tokens[] = {"a", "b", "", ""}; // empty texts may repeat
    struct vocab_file f = {0};
    struct tokenizer *t;
    struct token_list ids = {0};
    struct err e = {0};
    vocab_file_str(&f, KEY("model"), "gpt2");
    vocab_file_str(&f, KEY("pre"), "qwen2");
    vocab_file_strs(&f, KEY("tokens"), tokens, 4);
    vocab_file_strs(&f, KEY("merges"), no_merges, 0);
    assert_int_equal(vocab_file_load(&f, &t, &e), 0);
    expect_ids(t, "abba", true, "0 1 1 0");
    assert_int_equal(tokenizer_encode(t, "abc", 3, true, &ids, &e), ERR_UNSUPPORTED);
    assert_int_equal(ids.count, 0);
    assert_non_null(strstr(e.text, "0x63"));
    expect_text(t, 2, true, "");
    tokenizer_destroy(t);
    vocab_file_fini(&f);
    token_list_fini(&ids);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_all_bytes),
        cmocka_unit_test(test_merges),
        cmocka_unit_test(test_same_texts),
        cmocka_unit_test(test_end_of_generation),
        cmocka_unit_test(test_end_exceptions),
        cmocka_unit_test(test_bos),
        cmocka_unit_test(test_nfc),
        cmocka_unit_test(test_bad_text),
        cmocka_unit_test(test_lists_with_wrong_lengths),
        cmocka_unit_test(test_missing_keys),
        cmocka_unit_test(test_missing_byte_tokens),
        cmocka_unit_test(test_bounds_of_the_work),
        cmocka_unit_test(test_phases_check_cancel),
        cmocka_unit_test(test_unknown_characters_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
