// SPDX-License-Identifier: Apache-2.0
// How tokenizer.json cuts texts becomes a name in the file; added tokens at which generation stops
// become control tokens.
#include "hf_folder.h"
#include "test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "formats/gguf/gguf.h"

#define WORDS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|"
#define SYMBOLS                                                                                    \
    "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define QWEN2 WORDS "\\\\p{N}" SYMBOLS
#define MARK  "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]"
#define UPPER "[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]"
#define SLASHES                                                                                    \
    "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define ENDING "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"

#define LINES  "(?:\\\\r?\\\\n)+(?!\\\\r?\\\\n)"
#define NEXT   "\"MergedWithNext\",\"invert\":false"
#define GAPS   "\"Removed\",\"invert\":true"
#define DIGITS "{\"type\":\"Digits\",\"individual_digits\":true}"
#define ASIAN  "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"

#define CASED                                                                                      \
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽ"                                 \
    "ᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\\u1f7dᾀ-ᾴᾶ-ᾼ\\u1fbeῂ-"                                 \
    "ῄῆ-ῌῐ-\\u1fd3ῖ-\\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\\u2126ℨ\\u212a-ℭℯ-"                                 \
    "ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-"                             \
    "𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"

// Expressions of the steps, as JSON has them, and the name; NULL: refused. What the first step does
// with what it finds, where it is more than cutting it out; a step after these; whole pieces.
static const struct {
    const char *expression[5], *name, *how, *last;
    bool whole;
} cases[] = {
    {{QWEN2}, "qwen2", NULL, NULL, false},
    {{QWEN2}, "qwen2", GAPS, NULL, false},
    {{QWEN2}, NULL, "\"Removed\",\"invert\":false", NULL, false},
    {{QWEN2}, NULL, "\"Isolated\",\"invert\":true", NULL, false},
    {{QWEN2}, NULL, NEXT, NULL, false},
    {{QWEN2}, NULL, NULL, DIGITS, false},
    {{QWEN2}, NULL, NULL, NULL, true},
    {{WORDS "\\\\p{N}{1,3}" SYMBOLS}, "smaug-bpe", NULL, NULL, false},
    {{WORDS "\\\\p{N}{1,3}" SYMBOLS}, "llama-bpe", NULL, NULL, true},
    {{LINES, QWEN2}, "laguna", NEXT, NULL, false},
    {{LINES, QWEN2}, NULL, NULL, NULL, false},
    {{QWEN2, LINES}, NULL, NULL, NULL, false},
    {{LINES}, NULL, NEXT, NULL, false},
    {{LINES, QWEN2, "x"}, NULL, NEXT, NULL, false},
    {{"[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?" UPPER "*" MARK "+" ENDING
      "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?" UPPER "+" MARK "*" ENDING "\\\\p{N}{1,3}" SLASHES},
     "gpt-4o",
     NULL,
     NULL,
     false},
    {{"[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?" UPPER "*" MARK "+" ENDING
      "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?" UPPER "+" MARK "*" ENDING "\\\\p{N}{1,3}" SLASHES},
     "gpt-4o",
     GAPS,
     NULL,
     true},
    {{"[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?" UPPER "*" MARK "+|"
      "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?" UPPER "+" MARK "*|\\\\p{N}" SLASHES},
     "tekken",
     NULL,
     NULL,
     true},
    // Published folders have the line ends themselves.
    {{"\\\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
      "[!\\\"#$%&'()*+,\\\\-./:;<=>?@\\\\[\\\\\\\\\\\\]^_`{|}~][A-Za-z]+|"
      "[^\\r\\n\\\\p{L}\\\\p{P}\\\\p{S}]?[\\\\p{L}\\\\p{M}]+| ?[\\\\p{P}\\\\p{S}]+[\\r\\n]*|"
      "\\\\s*[\\r\\n]+|\\\\s+(?!\\\\S)|\\\\s+"},
     "deepseek-v3",
     NULL,
     NULL,
     false},
    {{"[\\r\\n]", "\\\\s?\\\\p{L}+", "\\\\s?\\\\p{P}+", ASIAN},
     "deepseek-coder",
     NULL,
     DIGITS,
     false},
    {{"[\\r\\n]", "\\\\s?\\\\p{L}+", "\\\\s?\\\\p{P}+", ASIAN}, NULL, NULL, NULL, false},
    {{"[\\r\\n]", "\\\\s?[CASED]+",
      "\\\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", "\\\\s+$", ASIAN},
     "deepseek-llm",
     NULL,
     DIGITS,
     false},
};

// The expression with the letters of deepseek-llm, which are many: the runtime's own list of them
// is tested by the families' fixtures.
static void put_expression(struct str *out, const char *re) {
    static const char letters[] = CASED;
    const char *at = strstr(re, "CASED");
    str_append(out, re, at ? (size_t)(at - re) : strlen(re));
    if (at) {
        str_puts(out, letters);
        str_puts(out, at + 5);
    }
}

static int convert_with(int i, struct err *e) {
    const char *from = strstr(hf_tokenizer, "{\"type\":\"Split\""),
               *to = strstr(from, "{\"type\":\"Byte");
    struct str old = {0}, steps = {0}, text = {0};
    str_append(&old, from, (size_t)(to - from));
    for (int k = 0; k < 5 && cases[i].expression[k]; k++) {
        str_puts(&steps, "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"");
        put_expression(&steps, cases[i].expression[k]);
        str_printf(&steps, "\"},\"behavior\":%s},",
                   k == 0 && cases[i].how ? cases[i].how : "\"Isolated\"");
    }
    if (cases[i].last)
        str_printf(&steps, "%s,", cases[i].last);
    str_append(&text, hf_tokenizer, (size_t)(from - hf_tokenizer));
    str_puts(&text, steps.data);
    str_puts(&text, to);
    // Every second one has no normaliser, as an empty list of them.
    struct str plain = {0};
    str_puts(&plain, i % 2 ? "{\"type\":\"Sequence\",\"normalizers\":[]}" : "{\"type\":\"NFC\"}");
    hf_write_edited(hf_target, "tokenizer.json", text.data, "{\"type\":\"NFC\"}", plain.data);
    str_clear(&old);
    if (cases[i].whole) {
        str_append(&old, text.data, text.len);
        hf_write_edited(hf_target, "tokenizer.json", old.data, "\"model\":{",
                        "\"model\":{\"ignore_merges\":true,");
    }
    str_fini(&plain);
    str_fini(&text);
    str_fini(&old);
    str_fini(&steps);
    struct convert_options o = hf_options("F32", NULL);
    return convert_hf(hf_target, hf_out, &o, e);
}

static void test_splits(void **state) {
    (void)state;
    hf_write_folders();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = {0};
        struct gguf *g;
        const char *pre = NULL;
        size_t n = 0;
        int rc = convert_with((int)i, &e);
        if (!cases[i].name) {
            assert_int_equal(rc, ERR_UNSUPPORTED);
            assert_non_null(strstr(e.text, "pre-tokenizer"));
            continue;
        }
        if (rc)
            fail_msg("%s: %s", cases[i].name, e.text);
        assert_int_equal(gguf_open(&g, hf_out, &e), 0);
        assert_int_equal(gguf_get_str(g, "tokenizer.ggml.pre", &pre, &n, &e), 0);
        assert_non_null(pre);
        assert_int_equal(n, strlen(cases[i].name));
        assert_memory_equal(pre, cases[i].name, n);
        gguf_close(g);
    }
    hf_write_folders();
}

// Token 5 is none that only programs write, but a closing tag at which generation stops. Besides
// the end of a text, one of a turn and one of a message are kept.
static void test_ends(void **state) {
    (void)state;
    struct err e = {0};
    struct gguf *g;
    int64_t eot, eom;
    static const char *const stops[] = {"4", "[4,5]", "[3,4,5]"};
    static const int64_t eots[] = {99, 5, 3}, eoms[] = {99, 99, 5};
    hf_write_folders();
    hf_write_edited(hf_target, "tokenizer.json", hf_tokenizer, "<think>", "</assistant>");
    for (int listed = 0; listed < 3; listed++) {
        char text[48];
        snprintf(text, sizeof text, "{\"eos_token_id\":%s}", stops[listed]);
        hf_write_edited(hf_target, "generation_config.json", text, NULL, NULL);
        struct convert_options o = hf_options("F32", NULL);
        assert_int_equal(convert_hf(hf_target, hf_out, &o, &e), 0);
        assert_int_equal(gguf_open(&g, hf_out, &e), 0);
        const struct gguf_kv *types = gguf_find(g, "tokenizer.ggml.token_type");
        assert_int_equal(gguf_array_int(types, 5), listed ? 3 : 4);
        assert_int_equal(gguf_get_int(g, "tokenizer.ggml.eot_token_id", 0, 100, 99, &eot, &e), 0);
        assert_int_equal(gguf_get_int(g, "tokenizer.ggml.eom_token_id", 0, 100, 99, &eom, &e), 0);
        assert_int_equal(eot, eots[listed]);
        assert_int_equal(eom, eoms[listed]);
        gguf_close(g);
    }
    hf_write_folders();
}

// Five ranks: a, b, space, ab, aba; then a named token and two that have no name.
static const char ranks[] = "YQ== 0\nYg== 1\nIA== 2\nYWI= 3\nYWJh 4\n";
static const char ranks_config[] =
    "{\"tokenizer_class\":\"TikTokenTokenizer\",\"bos_token\":\"[BOS]\",\"added_tokens_decoder\":"
    "{\"5\":{\"content\":\"[BOS]\",\"special\":true}}}";

static int convert_ranks(const char *from, const char *to, struct err *e) {
    char path[96];
    hf_write_edited(hf_target, "tiktoken.model", ranks, from, to);
    hf_write_edited(hf_target, "tokenizer_config.json", ranks_config, NULL, NULL);
    (void)snprintf(path, sizeof path, "%s/tokenizer.json", hf_target);
    (void)unlink(path);
    struct convert_options o = hf_options("F32", NULL);
    int rc = convert_hf(hf_target, hf_out, &o, e);
    (void)snprintf(path, sizeof path, "%s/tiktoken.model", hf_target);
    assert_int_equal(unlink(path), 0);
    return rc;
}

static void test_ranks(void **state) {
    (void)state;
    static const char *const want[] = {
        "a", "b", "\xc4\xa0", "ab", "aba", "[BOS]", "<|reserved_token_6|>", "<|reserved_token_7|>"};
    static const char *const merges[] = {"a b", "ab a"};
    static const char *const wrong[][2] = {
        {"YWI= 3", "YWI=3"}, {"YWI= 3", "Y?I= 3"}, {"YWI= 3", "YWI= 8"}, {"YWI= 3", "YWI= 2"}};
    struct err e = {0};
    struct gguf *g;
    hf_write_folders();
    if (convert_ranks(NULL, NULL, &e))
        fail_msg("%s", e.text);
    assert_int_equal(gguf_open(&g, hf_out, &e), 0);
    const struct gguf_kv *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    const struct gguf_kv *pairs = gguf_find(g, "tokenizer.ggml.merges");
    assert_int_equal(tokens->count, 8);
    assert_int_equal(pairs->count, 2);
    const unsigned char *token = tokens->bytes, *pair = pairs->bytes;
    for (size_t i = 0; i < 10; i++) {
        size_t n = 0;
        const char *text = i < 8 ? want[i] : merges[i - 8];
        const char *s = gguf_array_str(i < 8 ? &token : &pair, &n);
        assert_int_equal(n, strlen(text));
        assert_memory_equal(s, text, n);
    }
    gguf_close(g);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(convert_ranks(wrong[i][0], wrong[i][1], &e), ERR_FORMAT);
        assert_non_null(strstr(e.text, "line 4"));
    }
    hf_write_folders();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_ranks),
    };
    return cmocka_run_group_tests(tests, hf_set_up, hf_tear_down);
}
