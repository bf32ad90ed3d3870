// SPDX-License-Identifier: Apache-2.0
// Shortening of `bench niah` cases over a scorer that knows the answer: values are counted as kept
// only when they are whole, random pieces are as many tokens, and options that contradict each
// other are refused.
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/bench/niah/report.h"

#define BUNDLED SOURCE_ROOT "/models/coppice-tiny-q8_0.gguf"

static struct tokenizer *load(void) {
    struct gguf *g;
    struct tokenizer *t = NULL;
    struct err e = {0};
    if (gguf_open(&g, BUNDLED, &e) || tokenizer_create(&t, g, &e))
        fail_msg("%s", e.text);
    gguf_close(g);
    return t;
}

// Scores 1 for tokens of the texts that it is told, 0 for all others.
struct knowing {
    struct scorer base;
    const struct niah_case *of;
    const struct tokenizer *t;
};

static int score(struct scorer *s, const struct score_call *c, struct err *e) {
    struct knowing *k = (struct knowing *)s;
    (void)e;
    memset(c->out, 0, (size_t)c->n * sizeof *c->out);
    for (int i = 0; i < k->of->n; i++) {
        const struct niah_needle *d = &k->of->needle[i];
        struct token_list ids = {0};
        assert_int_equal(tokenizer_encode(k->t, k->of->text.data + d->begin, d->end - d->begin,
                                          false, &ids, NULL),
                         0);
        size_t n = ids.count - 1; // the last one may be one with a newline behind the sentence
        for (int64_t at = 0; at + (int64_t)n <= c->n; at++)
            for (size_t j = 0; j < n && !memcmp(c->ids + at, ids.ids, n * sizeof *ids.ids); j++)
                c->out[at + (int64_t)j] = 1;
        token_list_fini(&ids);
    }
    return 0;
}

static void destroy(struct scorer *s) {
    free(s);
}

static void read_ways(struct niah_ways *w, struct cli_args *a, int argc, char **argv, int want,
                      const char *words) {
    struct err e = {0};
    *a = (struct cli_args){0};
    assert_int_equal(
        options_parse(&a->opt, cli_options, CLI_OPTION_COUNT, CLI_BIT(CLI_BENCH), argc, argv, &e),
        0);
    assert_int_equal(niah_ways_read(w, a, &e), want);
    if (want)
        assert_non_null(strstr(e.text, words));
}

static void test_kept(void **state) {
    (void)state;
    static const struct scorer_kind kind = {.score = score, .destroy = destroy};
    struct tokenizer *t = load();
    struct niah_ways w;
    struct cli_args a;
    struct err e = {0};
    char *argv[] = {"--ways", "dense,random", "--prefill-keep-ratio", "0.1", "--seed", "5"};
    read_ways(&w, &a, 6, argv, 0, NULL);
    assert_int_equal(niah_ways_open(&w, &a, NULL, t, &e), 0);
    int64_t lucky = 0;
    for (int depth = 0; depth <= 100; depth += 20) {
        struct niah_spec s = {
            .tokens = 8000, .depth = depth, .needles = 4, .kind = NIAH_UUID, .filler = NIAH_PROSE};
        struct niah_case c;
        assert_int_equal(niah_make(&c, &s, t, &e), 0);
        struct knowing *k = calloc(1, sizeof *k);
        *k = (struct knowing){{&kind}, &c, t};
        assert_int_equal(compressor_create(&w.scorer, &k->base, t, &e), 0);
        struct niah_short whole, some, random;
        assert_int_equal(niah_shorten(&w, NIAH_DENSE, &c, &whole, &e), 0);
        assert_int_equal(niah_shorten(&w, NIAH_SCORER, &c, &some, &e), 0);
        assert_int_equal(niah_shorten(&w, NIAH_RANDOM, &c, &random, &e), 0);
        assert_true(whole.kept == 4 && whole.text.len == c.text.len && whole.to == c.tokens);
        assert_int_equal(some.kept, 4);
        assert_true(some.to * 10 <= some.from && random.to <= some.to);
        assert_true(random.to > some.to - 160);
        for (int i = 0; i < c.n; i++)
            assert_non_null(strstr(some.text.data, c.needle[i].fact.value));
        lucky += random.kept;
        niah_short_fini(&whole);
        niah_short_fini(&some);
        niah_short_fini(&random);
        compressor_close(w.scorer);
        w.scorer = NULL;
        niah_case_fini(&c);
    }
    assert_true(lucky < 6); // of 24
    niah_ways_close(&w);
    options_fini(&a.opt);
    tokenizer_destroy(t);
}

static void refuse(int argc, char **argv, const char *words) {
    struct niah_ways w;
    struct cli_args a;
    read_ways(&w, &a, argc, argv, ERR_USAGE, words);
    options_fini(&a.opt);
}

static void test_options(void **state) {
    (void)state;
    struct niah_ways w;
    struct cli_args a;
    char *with[] = {"--prefill-drafter", "x.gguf"};
    read_ways(&w, &a, 0, NULL, 0, NULL);
    assert_true(w.n == 1 && w.list[0] == NIAH_DENSE);
    options_fini(&a.opt);
    read_ways(&w, &a, 2, with, 0, NULL);
    assert_true(w.n == 4 && w.list[3] == NIAH_RANDOM);
    options_fini(&a.opt);
    refuse(2, (char *[]){"--ways", "scorer"}, "needs a scorer");
    refuse(2, (char *[]){"--ways", "sparse"}, "--ways has no 'sparse'");
    refuse(4, (char *[]){"--ways", "random", "--prefill-drafter", "x"}, "no way of --ways random");
    refuse(4, (char *[]){"--prefill-keep-ratio", "0.1", "--prefill-mass", "0.5"}, "one of them");
}

// Sums by group and way; the last lines are of all groups.
static void test_report(void **state) {
    (void)state;
    struct niah_sweep sweep;
    struct niah_ways w;
    struct niah_report r;
    struct cli_args a;
    struct err e = {0};
    struct str out = {0}, answer = {0};
    struct json_writer json = {0};
    char *argv[] = {"--ways", "dense,random", "--kinds", "uuid,number", "--needles", "1"};
    read_ways(&w, &a, 6, argv, 0, NULL);
    assert_int_equal(niah_sweep_read(&sweep, &a, &e), 0);
    assert_int_equal(niah_report_open(&r, &sweep, &w, &e), 0);
    struct niah_spec s = niah_sweep_spec(&sweep, 1, 0);
    struct niah_sums one = {.cases = 1,
                            .facts = 1,
                            .kept = 1,
                            .from = 4000,
                            .to = 400,
                            .asked = 1,
                            .sought = 1,
                            .found = 1,
                            .first_ms = 12};
    str_puts(&answer, "it \"is\" so");
    niah_report_add(&r, 1, 1, &s, &one, &answer);
    one = (struct niah_sums){.cases = 1, .facts = 1, .from = 4000, .to = 400, .too_long = 1};
    niah_report_add(&r, 1, 1, &s, &one, NULL);
    niah_report_table(&r, &out);
    const char *row = strstr(out.data, "phrases number   random      2     2    10.0   50.0     1");
    assert_non_null(row);
    assert_non_null(strstr(row, " 100.0        1           12.0\n"));
    row = strstr(out.data, "\nall ");
    assert_non_null(row);
    assert_non_null(strstr(row, " random      2     2    10.0   50.0     1"));
    jw_begin(&json, '{');
    niah_report_json(&r, &json);
    jw_end(&json, '}');
    struct json *v;
    assert_int_equal(json_parse(&v, json.out.data, json.out.len, &e), 0);
    assert_int_equal(json_len(json_get(v, "runs")), 2);
    const struct json *all = json_at(json_get(v, "overall"), 1);
    assert_int_equal(json_int(json_get(all, "kept"), -1), 1);
    json_free(v);
    str_fini(&json.out);
    str_fini(&out);
    str_fini(&answer);
    niah_report_close(&r);
    niah_sweep_fini(&sweep);
    options_fini(&a.opt);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kept), cmocka_unit_test(test_options),
                                       cmocka_unit_test(test_report)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
