// SPDX-License-Identifier: Apache-2.0
// The cases of `bench niah` with the bundled tokenizer: the same spec gives the same bytes, lengths
// and depths are those asked for, and no question repeats four tokens of a fact.
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/bench/niah/sweep.h"

#define BUNDLED SOURCE_ROOT "/models/coppice-tiny-q8_0.gguf"
#define SMALL   SOURCE_ROOT "/tests/fixtures/tokenizer/qwen35.gguf"

static struct tokenizer *load(const char *path) {
    struct gguf *g;
    struct tokenizer *t = NULL;
    struct err e = {0};
    if (gguf_open(&g, path, &e) || tokenizer_create(&t, g, &e))
        fail_msg("%s: %s", path, e.text);
    gguf_close(g);
    return t;
}

static void make(struct niah_case *c, const struct niah_spec *s, const struct tokenizer *t) {
    struct err e = {0};
    if (niah_make(c, s, t, &e))
        fail_msg("%s", e.text);
}

static struct token_list encode(const struct tokenizer *t, const char *s, size_t n) {
    struct token_list ids = {0};
    struct err e = {0};
    assert_int_equal(tokenizer_encode(t, s, n, false, &ids, &e), 0);
    return ids;
}

static int count_of(const struct niah_case *c, const char *word) {
    int n = 0;
    for (const char *p = c->text.data; (p = strstr(p, word)) != NULL; p++)
        n++;
    return n;
}

static void check_grams(const struct niah_case *c, const struct tokenizer *t, int i) {
    const struct niah_needle *d = &c->needle[i];
    struct token_list q = encode(t, c->text.data + c->context + 2, c->text.len - c->context - 2);
    struct token_list f = encode(t, c->text.data + d->begin, d->end - d->begin);
    for (size_t a = 0; a + 4 <= q.count; a++)
        for (size_t b = 0; b + 4 <= f.count; b++)
            assert_memory_not_equal(q.ids + a, f.ids + b, 4 * sizeof *q.ids);
    token_list_fini(&q);
    token_list_fini(&f);
}

static void check_needle(const struct niah_case *c, const struct niah_spec *s,
                         const struct tokenizer *t, int i) {
    const struct niah_needle *d = &c->needle[i];
    size_t n = strlen(d->fact.value);
    assert_true(d->begin <= d->value && d->value + n <= d->end && d->end <= c->context);
    assert_memory_equal(c->text.data + d->value, d->fact.value, n);
    assert_int_equal(count_of(c, d->fact.value), 1);
    assert_int_equal(count_of(c, d->fact.key), 2); // fact and question
    assert_non_null(strstr(c->text.data + c->context, d->fact.key));
    check_grams(c, t, i);
    int depth = (s->depth + 25 * i) % 100; // four needles or fewer
    if (s->depth + 25 * i == 100)
        depth = 100;
    struct token_list before = encode(t, c->text.data, d->begin);
    double at = 100 * (double)before.count / (double)c->tokens;
    assert_true(at > depth - 12 && at < depth + 8); // 2,000 tokens hold facts and question, too
    token_list_fini(&before);
}

static void check_case(const struct niah_spec *s, const struct tokenizer *t) {
    struct niah_case c, again;
    make(&c, s, t);
    make(&again, s, t);
    assert_int_equal(c.text.len, again.text.len);
    assert_memory_equal(c.text.data, again.text.data, c.text.len);
    assert_memory_equal(c.text.data + c.context, "\n\n", 2);
    struct token_list ids = encode(t, c.text.data, c.text.len);
    assert_int_equal(ids.count, c.tokens);
    assert_true(c.tokens <= s->tokens && c.tokens >= s->tokens - 48);
    token_list_fini(&ids);
    for (int i = 0; i < c.n; i++)
        check_needle(&c, s, t, i);
    niah_case_fini(&c);
    niah_case_fini(&again);
}

static void test_cases(void **state) {
    (void)state;
    struct tokenizer *t = load(BUNDLED);
    for (int i = 0; i < NIAH_FILE * NIAH_KINDS * 2; i++)
        for (int depth = 0; depth <= 100; depth += 25) {
            struct niah_spec s = {.tokens = 2000,
                                  .depth = depth,
                                  .needles = i % 2 ? 4 : 1,
                                  .filler = (enum niah_filler)(i / 2 % NIAH_FILE),
                                  .kind = (enum niah_kind)(i / 2 / NIAH_FILE),
                                  .seed = (uint64_t)i};
            check_case(&s, t);
        }
    tokenizer_destroy(t);
}

// A vocabulary in which the very name of a thing is four tokens or more.
static void test_no_question(void **state) {
    (void)state;
    struct tokenizer *t = load(SMALL);
    struct niah_spec s = {.tokens = 2000, .needles = 1, .kind = NIAH_UUID};
    struct niah_case c;
    struct err e = {0};
    assert_int_equal(niah_make(&c, &s, t, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "repeats four tokens"));
    niah_case_fini(&c);
    tokenizer_destroy(t);
}

static void test_seed_and_place(void **state) {
    (void)state;
    struct tokenizer *t = load(BUNDLED);
    struct niah_spec s = {.tokens = 1000, .depth = 100, .needles = 2, .filler = NIAH_PROSE};
    struct niah_case a, b;
    make(&a, &s, t);
    assert_int_equal(a.needle[0].end, a.context); // the very end
    s.seed = 1;
    make(&b, &s, t);
    assert_true(a.text.len != b.text.len || memcmp(a.text.data, b.text.data, a.text.len) != 0);
    assert_string_not_equal(a.needle[0].fact.value, b.needle[0].fact.value);
    niah_case_fini(&b);
    s.depth = 0;
    make(&b, &s, t);
    assert_int_equal(b.needle[0].begin, 0);
    assert_true(b.text.data[0] != ' ');
    niah_case_fini(&a);
    niah_case_fini(&b);
    tokenizer_destroy(t);
}

// A short text is read again from its beginning; its lines stay whole.
static void test_own_text(void **state) {
    (void)state;
    static const char text[] = "first line\nsecond line of the text\n\nthird";
    struct tokenizer *t = load(BUNDLED);
    struct niah_spec s = {.tokens = 500,
                          .depth = 50,
                          .needles = 1,
                          .filler = NIAH_FILE,
                          .text = text,
                          .n = sizeof text - 1};
    struct niah_case c;
    make(&c, &s, t);
    assert_true(count_of(&c, "\nfirst line\n") > 5);
    assert_true(count_of(&c, "\nthird\n") > 5);
    check_case(&s, t);
    niah_case_fini(&c);
    tokenizer_destroy(t);
}

static void test_too_few(void **state) {
    (void)state;
    struct tokenizer *t = load(BUNDLED);
    struct niah_spec s = {.tokens = 100, .needles = 8, .kind = NIAH_UUID};
    struct niah_case c;
    struct err e = {0};
    assert_int_equal(niah_make(&c, &s, t, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "100 tokens are too few"));
    niah_case_fini(&c);
    tokenizer_destroy(t);
}

static int read_sweep(struct niah_sweep *s, struct cli_args *a, int argc, char **argv,
                      struct err *e) {
    *a = (struct cli_args){0};
    assert_int_equal(
        options_parse(&a->opt, cli_options, CLI_OPTION_COUNT, CLI_BIT(CLI_BENCH), argc, argv, e),
        0);
    return niah_sweep_read(s, a, e);
}

static void refuse(char *option, char *value, const char *words) {
    struct niah_sweep s;
    struct cli_args a;
    struct err e = {0};
    char *argv[] = {option, value};
    assert_int_equal(read_sweep(&s, &a, 2, argv, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, words));
    niah_sweep_fini(&s);
    options_fini(&a.opt);
}

static void test_sweep(void **state) {
    (void)state;
    struct niah_sweep s;
    struct cli_args a;
    struct err e = {0};
    char *argv[] = {"--prompt-tokens", "4096,8192", "--kinds", "uuid,number", "--depths", "7"};
    assert_int_equal(read_sweep(&s, &a, 6, argv, &e), 0);
    assert_int_equal(niah_sweep_groups(&s), 2 * 2 * 3 * 2);
    assert_int_equal(s.n_depths, 1);
    struct niah_spec x = niah_sweep_spec(&s, 0, 0), y = niah_sweep_spec(&s, 23, 0);
    assert_true(x.tokens == 4096 && x.needles == 1 && x.filler == NIAH_PHRASES);
    assert_true(x.kind == NIAH_UUID && y.kind == NIAH_NUMBER && x.depth == 7);
    assert_true(y.tokens == 8192 && y.needles == 4 && y.filler == NIAH_CODE);
    niah_sweep_fini(&s);
    options_fini(&a.opt);
    refuse("--kinds", "uuid,colour", "--kinds has no 'colour'");
    refuse("--fillers", "prose,code,prose", "--fillers names prose twice");
    refuse("--fillers", "file", "--fillers has no 'file'");
    refuse("--fillers", "prose,", "--fillers has no ''");
    refuse("--filler-file", "/dev/null", "/dev/null is empty");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),          cmocka_unit_test(test_no_question),
        cmocka_unit_test(test_seed_and_place), cmocka_unit_test(test_own_text),
        cmocka_unit_test(test_too_few),        cmocka_unit_test(test_sweep)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
