// SPDX-License-Identifier: Apache-2.0
// How tokenizer.json cuts texts becomes a name in the file; added tokens at which generation stops
// become control tokens.
#include "hf_folder.h"
#include "test.h"

#include <string.h>

#include "base/str.h"
#include "formats/gguf.h"

#define WORDS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|"
#define SYMBOLS                                                                                    \
    "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define QWEN2  WORDS "\\\\p{N}" SYMBOLS
#define MARK   "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]"
#define UPPER  "[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]"
#define ENDING "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"

// Expressions of the steps, as JSON has them, and the name; NULL: refused.
static const struct {
    const char *expression[4], *name;
} cases[] = {
    {{QWEN2}, "qwen2"},
    {{WORDS "\\\\p{N}{1,3}" SYMBOLS}, "smaug-bpe"},
    {{"[^\\\\n]+|[\\\\n]+", QWEN2}, "laguna"},
    {{QWEN2, "[^\\\\n]+|[\\\\n]+"}, NULL},
    {{"[^\\\\n]+|[\\\\n]+"}, NULL},
    {{"[^\\\\n]+|[\\\\n]+", QWEN2, "x"}, NULL},
    {{"[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?" UPPER "*" MARK "+" ENDING
      "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?" UPPER "+" MARK "*" ENDING
      "\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|"
      "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"},
     "gpt-4o"},
    {{"\\\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
      "[!\\\"#$%&'()*+,\\\\-./:;<=>?@\\\\[\\\\\\\\\\\\]^_`{|}~][A-Za-z]+|"
      "[^\\\\r\\\\n\\\\p{L}\\\\p{P}\\\\p{S}]?[\\\\p{L}\\\\p{M}]+| "
      "?[\\\\p{P}\\\\p{S}]+[\\\\r\\\\n]*|"
      "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"},
     "deepseek-v3"},
};

static int convert_with(int i, struct err *e) {
    const char *from = strstr(hf_tokenizer, "{\"type\":\"Split\""),
               *to = strstr(from, "{\"type\":\"Byte");
    struct str old = {0}, steps = {0};
    str_append(&old, from, (size_t)(to - from));
    for (int k = 0; k < 4 && cases[i].expression[k]; k++)
        str_printf(&steps,
                   "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},\"behavior\":\"Isolated\"},",
                   cases[i].expression[k]);
    hf_write_edited(hf_target, "tokenizer.json", hf_tokenizer, old.data, steps.data);
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

// Token 5 is none that only programs write, but a closing tag at which generation stops.
static void test_ends(void **state) {
    (void)state;
    struct err e = {0};
    struct gguf *g;
    int64_t eot;
    hf_write_folders();
    hf_write_edited(hf_target, "tokenizer.json", hf_tokenizer, "<think>", "</assistant>");
    for (int listed = 0; listed < 2; listed++) {
        hf_write_edited(hf_target, "generation_config.json",
                        listed ? "{\"eos_token_id\":[4,5]}" : "{\"eos_token_id\":4}", NULL, NULL);
        struct convert_options o = hf_options("F32", NULL);
        assert_int_equal(convert_hf(hf_target, hf_out, &o, &e), 0);
        assert_int_equal(gguf_open(&g, hf_out, &e), 0);
        const struct gguf_kv *types = gguf_find(g, "tokenizer.ggml.token_type");
        assert_int_equal(gguf_array_int(types, 5), listed ? 3 : 4);
        assert_int_equal(gguf_get_int(g, "tokenizer.ggml.eot_token_id", 0, 100, 99, &eot, &e), 0);
        assert_int_equal(eot, listed ? 5 : 99);
        gguf_close(g);
    }
    hf_write_folders();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, hf_set_up, hf_tear_down);
}
