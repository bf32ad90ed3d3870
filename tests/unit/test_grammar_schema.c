// SPDX-License-Identifier: Apache-2.0
// JSON Schema as a grammar: texts that schemas allow or not, and what is refused, from
// tests/fixtures/grammar/schemas.jsonl; masks on random texts; schemas that are large or hostile
// end soon, in a grammar or in one sentence.
#include "grammar_helpers.h"

#include <stdio.h>
#include <stdlib.h>

static void check_texts(struct grammar *g, const struct json *texts, bool want, int line) {
    for (size_t i = 0; i < json_len(texts); i++) {
        size_t n;
        const char *text = json_str(json_at(texts, i), &n);
        if (grammar_takes(g, text, n) != want)
            fail_msg("line %d: %s should %s accepted", line, text, want ? "be" : "not be");
    }
}

static void check_line(const char *text, size_t n, int line, struct grammar_vocab *v) {
    struct json *doc;
    struct grammar *g;
    struct err e = {0};
    if (json_parse(&doc, text, n, &e))
        fail_msg("line %d: %s", line, e.text);
    const char *refused = json_str(json_get(doc, "refused"), NULL);
    int rc = grammar_from_schema(&g, json_get(doc, "schema"), NULL, NULL, &e);
    if (refused) {
        if (rc == 0 || !strstr(e.text, refused))
            fail_msg("line %d: %d '%s', not '%s'", line, rc, e.text, refused);
    } else if (rc) {
        fail_msg("line %d: %s", line, e.text);
    } else {
        check_texts(g, json_get(doc, "yes"), true, line);
        check_texts(g, json_get(doc, "no"), false, line);
        check_walks(g, v, 2, 25, (uint64_t)line);
    }
    json_free(doc);
}

static void test_fixtures(void **state) {
    FILE *f = fopen(TEST_DATA "/fixtures/grammar/schemas.jsonl", "rb");
    char *text = NULL;
    size_t cap = 0;
    ssize_t n;
    int line = 0;
    assert_non_null(f);
    while ((n = getline(&text, &cap, f)) > 0)
        check_line(text, (size_t)n, ++line, *state);
    assert_true(line > 40);
    free(text);
    fclose(f);
}

// A schema that must be answered within its steps; returns the code.
static int hostile(const struct str *schema, struct grammar **g) {
    struct json *doc;
    struct err e = {0};
    assert_false(schema->failed);
    assert_int_equal(json_parse(&doc, schema->data, schema->len, &e), 0);
    struct grammar_work work = {0};
    int rc = grammar_from_schema(g, doc, NULL, &work, &e);
    assert_true(rc == 0 || e.text[0]);
    assert_true(rc != ERR_MEMORY);
    assert_true(work.max <= GRAMMAR_STEPS_MAX && work.steps <= 2 * work.max);
    json_free(doc);
    return rc;
}

static void test_large(void **state) {
    struct grammar_vocab *v = *state;
    struct str s = {0};
    struct grammar *g;
    str_puts(&s, "{\"enum\":[");
    for (int i = 0; s.len < 1 << 20; i++)
        str_printf(&s, "%s\"value number %d of many\"", i ? "," : "", i * 7919);
    str_puts(&s, "]}");
    assert_int_equal(hostile(&s, &g), 0);
    check_walks(g, v, 1, 4, 1);
    str_clear(&s);
    str_puts(&s, "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{");
    for (int i = 0; i < 2000; i++)
        str_printf(&s, "%s\"property%d\":{\"type\":\"integer\",\"minimum\":%d}", i ? "," : "", i,
                   i);
    str_puts(&s, "}}");
    assert_int_equal(hostile(&s, &g), 0);
    check_walks(g, v, 1, 12, 2);
    str_fini(&s);
}

static void test_hostile(void **state) {
    struct str s = {0};
    struct grammar *g;
    (void)state;
    // Choices that multiply.
    str_puts(&s, "{\"allOf\":[{}");
    for (int i = 0; i < 60; i++)
        str_printf(&s, ",{\"anyOf\":[{\"minLength\":%d},{\"maxLength\":%d},{\"minimum\":%d}]}", i,
                   i + 70, i);
    str_puts(&s, "]}");
    assert_int_equal(hostile(&s, &g), ERR_LIMIT);
    str_clear(&s);
    // Sets that double with each repetition, in a product.
    str_puts(&s, "{\"type\":\"string\",\"pattern\":\"(a|b)*a(a|b){60}\",\"maxLength\":900}");
    assert_int_equal(hostile(&s, &g), ERR_LIMIT);
    str_clear(&s);
    str_puts(&s, "{\"type\":\"string\",\"pattern\":\"((((.{1,999}){1,999}){1,999}){1,999})\"}");
    hostile(&s, &g);
    grammar_unref(g);
    str_clear(&s);
    // A chain of references, each deeper than the one before.
    str_puts(&s, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (int i = 0; i < 1500; i++)
        str_printf(&s, "\"d%d\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/d%d\"}},", i,
                   i + 1);
    str_puts(&s, "\"d1500\":{\"type\":\"null\"}}}");
    assert_int_equal(hostile(&s, &g), 0);
    grammar_unref(g);
    str_fini(&s);
}

// Keywords that become choices: these multiply, and what is negated refers to itself.
static void test_hostile_choices(void **state) {
    struct str s = {0};
    struct grammar *g = NULL;
    (void)state;
    str_puts(&s, "{\"type\":\"object\",\"dependentRequired\":{");
    for (int i = 0; i < 60; i++)
        str_printf(&s, "%s\"p%d\":[\"q%d\"]", i ? "," : "", i, i);
    str_puts(&s, "}}");
    assert_int_equal(hostile(&s, &g), ERR_LIMIT);
    str_clear(&s);
    for (int i = 0; i < 40; i++)
        str_puts(&s, "{\"if\":{\"required\":[\"a\"]},\"else\":{\"const\":1},\"then\":");
    str_puts(&s, "true");
    for (int i = 0; i < 40; i++)
        str_puts(&s, "}");
    hostile(&s, &g);
    grammar_unref(g);
    str_clear(&s);
    str_puts(&s,
             "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"not\":{\"$ref\":\"#/$defs/b\"}},\"b\":{"
             "\"anyOf\":[{\"$ref\":\"#/$defs/a\"},{\"not\":{\"$ref\":\"#/$defs/b\"}}]}}}");
    g = NULL;
    hostile(&s, &g);
    grammar_unref(g);
    str_clear(&s);
    str_puts(&s, "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"contains\":{\"const\":1},"
                 "\"minContains\":300,\"maxContains\":301,\"maxItems\":400}");
    assert_int_equal(hostile(&s, &g), ERR_LIMIT);
    str_clear(&s);
    str_puts(&s, "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[0");
    for (int i = 1; i < 1024; i++)
        str_printf(&s, ",%d", i);
    str_puts(&s, "]}}");
    g = NULL;
    assert_int_equal(hostile(&s, &g), 0);
    grammar_unref(g);
    str_fini(&s);
}

static struct grammar *numbers(int64_t multiple, int64_t lo, int64_t hi, int places) {
    struct str s = {0};
    struct json *doc;
    struct grammar *g;
    struct err e = {0};
    const double scale = places == 0 ? 1 : places == 1 ? 10 : 100;
    str_printf(&s, "{\"type\":\"%s\",\"multipleOf\":%.*f,\"minimum\":%.*f,\"maximum\":%.*f}",
               places ? "number" : "integer", places, (double)multiple / scale, places,
               (double)lo / scale, places, (double)hi / scale);
    assert_int_equal(json_parse(&doc, s.data, s.len, &e), 0);
    struct grammar_work work = {0};
    if (grammar_from_schema(&g, doc, NULL, &work, &e))
        fail_msg("%s: %s", s.data, e.text);
    if (3 * work.steps > work.max)
        fail_msg("%s: %lld steps", s.data, (long long)work.steps);
    json_free(doc);
    str_fini(&s);
    return g;
}

static uint64_t draw(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 16;
}

// Multiples within bounds are just those that arithmetic has.
static void test_multiples(void **state) {
    static const int64_t of[] = {1, 2, 3, 7, 10, 12, 100, 720, 999, 1000, 1024, 2500, 4096, 30000};
    uint64_t seed = 7;
    (void)state;
    for (size_t i = 0; i < 6 * sizeof of / sizeof *of; i++) {
        const int64_t m = of[i / 6];
        const int places = m % 10 ? (int)(i % 3) : 0; // no more than the multiple has
        const int64_t lo = i % 6 < 3 ? -100000 : (int64_t)(draw(&seed) % 99999) - 50000;
        const int64_t hi = i % 6 < 3 ? 100000 : lo + m + (int64_t)(draw(&seed) % 99999);
        struct grammar *g = numbers(m, lo, hi, places);
        for (int k = 0; k < 400; k++) {
            char text[32];
            int64_t n = (int64_t)(draw(&seed) % 300000) - 150000;
            n = k % 2 ? n / m * m : k == 0 ? lo : k == 2 ? hi : n;
            int64_t size = n < 0 ? -n : n, ones = places == 2 ? 100 : 10;
            int len = places ? snprintf(text, sizeof text, "%s%lld.%0*lld", n < 0 ? "-" : "",
                                        (long long)(size / ones), places, (long long)(size % ones))
                             : snprintf(text, sizeof text, "%lld", (long long)n);
            bool want = n >= lo && n <= hi && n % m == 0;
            if (grammar_takes(g, text, (size_t)len) != want)
                fail_msg("%s: multiple of %lld from %lld to %lld, %d places: not %d", text,
                         (long long)m, (long long)lo, (long long)hi, places, want);
        }
        grammar_unref(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixtures),  cmocka_unit_test(test_large),
        cmocka_unit_test(test_hostile),   cmocka_unit_test(test_hostile_choices),
        cmocka_unit_test(test_multiples),
    };
    return cmocka_run_group_tests(tests, make_vocab, drop_vocab);
}
