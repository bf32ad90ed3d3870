// SPDX-License-Identifier: Apache-2.0
// The short way to ASCII matches against the expressions themselves, on random text that is mostly
// ASCII with other characters at its borders; and linear time for every pre-tokeniser.
#include "test.h"

#include <time.h>

#include "base/rng.h"
#include "base/str.h"
#include "text/tokenizer/split.h"

static const char *const families[] = {
    "gpt-2",          "qwen2",   "qwen35",    "llama-bpe", "gpt-4o",     "tekken", "deepseek-v3",
    "laguna",         "kimi-k2", "starcoder", "falcon",    "default",    "gemma4", "deepseek-llm",
    "deepseek-coder", "youtu",   "minicpm5",  "chameleon", "bailingmoe",
};
enum { FAMILIES = sizeof families / sizeof *families };

struct borders {
    size_t end[4096];
    size_t count, at;
};

static int note(void *arg, const char *piece, size_t n, struct err *e) {
    struct borders *b = arg;
    (void)piece;
    (void)e;
    b->at += n;
    if (b->count < sizeof b->end / sizeof *b->end)
        b->end[b->count] = b->at;
    b->count++;
    return 0;
}

static void cut(const struct split *s, const struct str *text, bool plain, struct borders *b) {
    struct split_job *j;
    struct err e = {0};
    b->count = b->at = 0;
    if (split_begin(&j, s, &e))
        fail_msg("%s", e.text);
    if (plain)
        split_expressions_only(j);
    if (split_text(j, text->data ? text->data : "", text->len, note, b, &e))
        fail_msg("%s", e.text);
    split_end(j);
}

static struct split *open_family(const char *name) {
    struct split *s;
    struct err e = {0};
    if (split_create(&s, name, strlen(name), &e))
        fail_msg("%s", e.text);
    return s;
}

// Nine of ten characters are ASCII, in runs.
static void random_text(struct rng *r, struct str *s) {
    static const char *const wide[] = {"é",  "É", "ſ",      "\u0301", "中",      "々",
                                       "٣",  "½", "\u00A0", "\u3000", "…",       "\u200B",
                                       "🦙", "ǅ", "ʰ",      "한",     "\xC2\x85"};
    static const char *const parts[] = {"'s",   "'LL",  "'Re",    "'v",           "''",
                                        "\r\n", "//",   "123",    "<sentinel:7>", "IMGIMGABZ",
                                        "    ", "x=1;", "iPhone", "\n\n"};
    str_clear(s);
    for (uint32_t i = rng_below(r, 30); i > 0; i--) {
        uint32_t kind = rng_below(r, 10);
        if (kind == 0)
            str_puts(s, wide[rng_below(r, sizeof wide / sizeof *wide)]);
        else if (kind < 3)
            str_puts(s, parts[rng_below(r, sizeof parts / sizeof *parts)]);
        else if (kind < 6)
            str_putc(s, (char)(rng_below(r, 2) ? 'a' + rng_below(r, 26) : 'A' + rng_below(r, 26)));
        else if (kind < 8)
            str_putc(s, " \t\n\r\v0"[rng_below(r, 6)]);
        else
            str_putc(s, (char)rng_below(r, 128));
    }
}

static void test_same_cuts(void **state) {
    (void)state;
    static struct borders quick, plain;
    struct rng r = {20261121};
    struct str text = {0};
    for (int i = 0; i < FAMILIES; i++) {
        struct split *s = open_family(families[i]);
        for (int round = 0; round < 3000; round++) {
            random_text(&r, &text);
            cut(s, &text, false, &quick);
            cut(s, &text, true, &plain);
            bool same = quick.count == plain.count &&
                        !memcmp(quick.end, plain.end, quick.count * sizeof *quick.end);
            if (!same || quick.at != text.len)
                fail_msg("%s cuts \"%.*s\" otherwise than its expressions", families[i],
                         (int)text.len, text.data);
        }
        split_destroy(s);
    }
    str_fini(&text);
}

static double seconds(const struct split *s, const char *unit, size_t n) {
    static struct borders b;
    struct str text = {0};
    double best = 1e9;
    while (text.len + strlen(unit) <= n)
        str_puts(&text, unit);
    for (int i = 0; i < 3; i++) {
        struct timespec begin, end;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
        cut(s, &text, false, &b);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
        double took =
            (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
        best = took < best ? took : best;
    }
    assert_int_equal(b.at, text.len);
    str_fini(&text);
    return best;
}

static void test_linear(void **state) {
    (void)state;
    static const char *const units[] = {" ",  "a",  "A",      "aA",   "\n",      " \n", "7",
                                        "!",  "'",  "'s",     "é",    "中",      "A中", "\u0301",
                                        "a ", "\v", "\u00A0", "\x01", "a\u0301 "};
    for (int i = 0; i < FAMILIES; i++) {
        struct split *s = open_family(families[i]);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            double small = seconds(s, units[u], 20000), large = seconds(s, units[u], 200000);
            if (large > 30 * (small + 1e-3))
                fail_msg("%s takes %.1f ms for 20 KB and %.1f ms for 200 KB of unit %zu",
                         families[i], 1e3 * small, 1e3 * large, u);
        }
        split_destroy(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_cuts),
        cmocka_unit_test(test_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
