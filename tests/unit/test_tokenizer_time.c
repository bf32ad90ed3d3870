// SPDX-License-Identifier: Apache-2.0
// Linear time: 1 MB may take at most 30 times as long as 100 KB (10 is linear, 100 quadratic), for
// inputs that are quadratic in careless tokenizers, and well under a second. Also prints the speed
// on prose. With a model and a text file as arguments it only prints the speed of those two.
#include "test.h"

#include <stdio.h>
#include <time.h>

#include "base/file.h"
#include "base/str.h"
#include "vocab_file.h"

#define SMALL 100000
#define LARGE 1000000

static double now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

#ifdef COPPICE_CHECKED // a sanitizer finds its errors in one run
enum { RUNS = 1 };
#else
enum { RUNS = 3 };
#endif

// Best of a few; at least a microsecond.
static double seconds(const struct tokenizer *t, const char *text, size_t n, size_t *count) {
    double best = 1e9;
    for (int i = 0; i < RUNS; i++) {
        struct token_list ids = {0};
        struct err e = {0};
        double start = now();
        if (tokenizer_encode(t, text, n, true, &ids, &e))
            fail_msg("%s", e.text);
        double took = now() - start;
        best = took < best ? took : best;
        *count = ids.count;
        token_list_fini(&ids);
    }
    return best > 1e-6 ? best : 1e-6;
}

static void fill(struct str *s, const char *unit, size_t n) {
    str_clear(s);
    while (s->len + strlen(unit) <= n)
        str_puts(s, unit);
}

static void check_linear(const struct tokenizer *t, const char *unit, const char *name) {
    struct str s = {0};
    size_t count;
    fill(&s, unit, SMALL);
    double small = seconds(t, s.data, s.len, &count);
    fill(&s, unit, LARGE);
    double large = seconds(t, s.data, s.len, &count);
    print_message("%-22s 100 KB %8.3f ms, 1 MB %8.3f ms, ratio %5.1f, %zu tokens\n", name,
                  1e3 * small, 1e3 * large, large / small, count);
    // A millisecond on either side keeps the clock's grain out of the ratio.
    assert_true(large < 30 * (small + 1e-3));
    str_fini(&s);
}

static const struct input {
    const char *unit, *name;
} inputs[] = {
    {" ", "spaces"},
    {"a", "one letter"},
    {"abcdefghij", "letters"},
    {"\n", "newlines"},
    {"\r\n", "CR LF"},
    {" \n", "space, newline"},
    {"🦙", "emoji"},
    {"7", "digits"},
    {"!", "exclamation marks"},
    {"中", "ideographs"},
    {"\u0301", "combining marks"},
    {"\u0301\u0316", "marks out of order"},
    {"'s", "contractions"},
    {"<|im_start|>", "special tokens"},
    {"<|im_start|", "almost special tokens"},
    {"<br>", "user-defined tokens"},
    {"<|im_end|>x", "tokens and text"},
};

static void check_model(const char *file) {
    struct gguf *g;
    struct tokenizer *t;
    struct err e = {0};
    if (gguf_open(&g, file, &e) || tokenizer_create(&t, g, &e))
        fail_msg("%s", e.text);
    gguf_close(g);
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        check_linear(t, inputs[i].unit, inputs[i].name);
    tokenizer_destroy(t);
}

static void test_qwen35(void **state) {
    (void)state;
    check_model(SOURCE_ROOT "/tests/fixtures/tokenizer/qwen35.gguf");
}

static void test_qwen2(void **state) {
    (void)state;
    check_model(SOURCE_ROOT "/tests/fixtures/tokenizer/qwen2.gguf");
}

static void test_sentencepiece(void **state) {
    (void)state;
    check_model(SOURCE_ROOT "/tests/fixtures/tokenizer/families/spm.gguf");
}

static void test_gemma(void **state) {
    (void)state;
    check_model(SOURCE_ROOT "/tests/fixtures/tokenizer/families/gemma4.gguf");
}

// Merges that double a run, so that the heap of a long piece is busy to the end; and tokens that
// begin like a long one that never comes, where a scan that backs up would be quadratic.
static void test_hostile_vocabulary(void **state) {
    (void)state;
    static char texts[12][2049], merges[12][2 * 2048 + 2];
    const char *tokens[14], *lines[12];
    int32_t types[14];
    for (int i = 0; i < 11; i++) {
        memset(texts[i], 'a', (size_t)2 << i);
        memset(merges[i], 'a', ((size_t)2 << i) + 1);
        merges[i][(size_t)1 << i] = ' ';
        tokens[i] = texts[i];
        lines[i] = merges[i];
        types[i] = 1;
    }
    static char longest[60001];
    memset(longest, 'b', 59999);
    longest[59999] = 'c';
    tokens[11] = longest;
    tokens[12] = "bb";
    types[11] = types[12] = 4;
    struct vocab_spec spec = {tokens, lines, types, 13, 11};
    struct vocab_file f = {0};
    struct tokenizer *t;
    struct err e = {0};
    vocab_file_fill(&f, &spec);
    if (vocab_file_load(&f, &t, &e))
        fail_msg("%s", e.text);
    check_linear(t, "a", "doubling merges");
    check_linear(t, "b", "prefix of a long token");
    check_linear(t, "ab", "both");
    tokenizer_destroy(t);
    vocab_file_fini(&f);
}

static void test_nfc(void **state) {
    (void)state;
    struct vocab_spec spec = {0};
    struct vocab_file f = {0};
    struct tokenizer *t;
    struct err e = {0};
    vocab_file_bool(&f, "tokenizer.ggml.normalizer.nfc", true);
    vocab_file_fill(&f, &spec);
    if (vocab_file_load(&f, &t, &e))
        fail_msg("%s", e.text);
    check_linear(t, "\u0301\u0316", "NFC of marks");
    check_linear(t, "\u1112\u1161\u11AB", "NFC of Hangul parts");
    tokenizer_destroy(t);
    vocab_file_fini(&f);
}

static size_t print_speed(const char *file, const struct str *text) {
    struct gguf *g;
    struct tokenizer *t = NULL;
    struct err e = {0};
    size_t count;
    if (gguf_open(&g, file, &e) || tokenizer_create(&t, g, &e))
        fail_msg("%s", e.text);
    gguf_close(g);
    double took = seconds(t, text->data, text->len, &count);
    print_message("%.1f MB/s, %.2f million tokens/s\n", 1e-6 * (double)text->len / took,
                  1e-6 * (double)count / took);
    tokenizer_destroy(t);
    return count;
}

static void check_speed(const char *file) {
    static const char prose[] =
        "The keeper of the wood came down the hill before the rain, counted the old stumps along "
        "the ditch, and found that eleven of them had sent up shoots since spring; two were as "
        "tall as her shoulder. \"They want thinning,\" she said, \"or they'll all be weak.\"\n\n";
    struct str s = {0};
    fill(&s, prose, LARGE);
    print_message("English prose: ");
    assert_true(print_speed(file, &s) > s.len / 8);
    str_fini(&s);
}

static void test_speed(void **state) {
    (void)state;
    check_speed(SOURCE_ROOT "/tests/fixtures/tokenizer/qwen35.gguf");
    check_speed(SOURCE_ROOT "/tests/fixtures/tokenizer/families/spm.gguf");
    check_speed(SOURCE_ROOT "/tests/fixtures/tokenizer/families/gemma4.gguf");
}

int main(int argc, char **argv) {
    if (argc == 3) {
        struct str text = {0};
        struct err e = {0};
        if (file_read(&text, argv[2], 1 << 30, &e)) {
            fprintf(stderr, "%s\n", e.text);
            return 1;
        }
        print_speed(argv[1], &text);
        str_fini(&text);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_qwen35),
        cmocka_unit_test(test_qwen2),
        cmocka_unit_test(test_sentencepiece),
        cmocka_unit_test(test_gemma),
        cmocka_unit_test(test_hostile_vocabulary),
        cmocka_unit_test(test_nfc),
        cmocka_unit_test(test_speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
