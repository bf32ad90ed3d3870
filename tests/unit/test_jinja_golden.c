// SPDX-License-Identifier: Apache-2.0
// Templates against what jinja2 rendered as transformers sets it up: each line of
// tests/fixtures/jinja/*.jsonl (written by make_cases.py there) has a template, variables and
// either its output, or that it fails, or a part of the sentence that refuses what is not
// supported. Given files as arguments, the program checks those and prints each difference.
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "text/jinja/jinja.h"

struct tally {
    int cases, wrong;
    bool random; // random cases
};

static int set_variable(void *arg, const char *key, size_t n, const struct json *v) {
    (void)n;
    jinja_set(arg, key, jinja_from_json(arg, v, true));
    return 0;
}

// Renders into out; the result's code, with the sentence in e.
static int render(const struct json *one, struct jinja_output *out, struct err *e) {
    struct jinja *j = NULL;
    struct jinja_context *c = NULL;
    struct tm now = {.tm_year = 126, .tm_mon = 6, .tm_mday = 4, .tm_hour = 15, .tm_min = 9};
    size_t n;
    const char *text = json_str(json_get(one, "t"), &n);
    int rc = jinja_compile(&j, text, n, e);
    if (!rc)
        rc = jinja_context_create(&c, NULL, e);
    if (!rc) {
        now.tm_wday = 6;
        now.tm_yday = 184;
        jinja_context_clock(c, &now);
        json_each(json_get(one, "v"), set_variable, c);
        rc = jinja_render(j, c, out, e);
    }
    jinja_context_free(c);
    jinja_free(j);
    return rc;
}

// The spans partition the text and neighbours differ.
static bool spans_hold(const struct jinja_output *o) {
    size_t end = 0;
    for (size_t i = 0; i < o->n_spans; i++) {
        if (o->spans[i].end <= end || (i && o->spans[i].trusted == o->spans[i - 1].trusted))
            return false;
        end = o->spans[i].end;
    }
    return end == o->text.len;
}

// Whether a sentence is one of those by which refused.txt says that something is refused.
static bool is_known_refusal(const char *sentence) {
    static struct file_map f;
    struct err e = {0};
    char known[256];
    if (!f.data)
        assert_int_equal(file_map_open(&f, TEST_DATA "/fixtures/jinja/refused.txt", &e), 0);
    const char *text = (const char *)f.data, *end = text + f.size;
    for (const char *tab; (tab = memchr(text, '\t', (size_t)(end - text)));) {
        snprintf(known, sizeof known, "%.*s", (int)(tab - text), text);
        if (strstr(sentence, known))
            return true;
        const char *line = memchr(tab, '\n', (size_t)(end - tab));
        text = line ? line + 1 : end;
    }
    return false;
}

static void check(const struct json *one, struct tally *t) {
    struct jinja_output out = {0};
    struct err e = {0};
    size_t n = 0;
    const char *want = json_str(json_get(one, "o"), &n);
    const char *refused = json_str(json_get(one, "r"), NULL);
    const char *got = "";
    int rc = render(one, &out, &e);
    t->cases++;
    if (!rc)
        got = out.text.data ? out.text.data : "";
    bool good = want ? !rc && out.text.len == n && memcmp(got, want, n) == 0 && spans_hold(&out)
                     : rc != 0 && e.text[0] && (!refused || strstr(e.text, refused));
    // Python calculates beyond 64 bits, has no limits, and supports all of jinja2.
    good |= t->random && (rc == ERR_LIMIT || (rc && is_known_refusal(e.text)));
    if (!good) {
        t->wrong++;
        printf("template: %s\nwanted:   %s\ngot:      %s\n", json_str(json_get(one, "t"), NULL),
               want      ? want
               : refused ? refused
                         : "an error",
               rc ? e.text : got);
    }
    jinja_output_fini(&out);
}

static void check_file(const char *path, struct tally *t) {
    static const struct json_rules rules = {.depth = 1000, .big_integers = true};
    struct file_map f = {0};
    struct err e = {0};
    assert_int_equal(file_map_open(&f, path, &e), 0);
    const char *text = (const char *)f.data, *end = text + f.size;
    while (text < end) {
        const char *line = memchr(text, '\n', (size_t)(end - text));
        size_t n = (size_t)((line ? line : end) - text);
        struct json *one = NULL;
        assert_int_equal(json_parse_with(&one, text, n, &rules, &e), 0);
        check(one, t);
        json_free(one);
        text += n + 1;
    }
    file_map_close(&f);
}

static void test_cases(void **state) {
    (void)state;
    struct tally t = {0};
    check_file(TEST_DATA "/fixtures/jinja/cases.jsonl", &t);
    print_message("%d cases, %d differ\n", t.cases, t.wrong);
    assert_true(t.cases > 500);
    assert_int_equal(t.wrong, 0);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        struct tally t = {.random = true};
        for (int i = 1; i < argc; i++)
            check_file(argv[i], &t);
        print_message("%d cases, %d differ\n", t.cases, t.wrong);
        return t.wrong != 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
