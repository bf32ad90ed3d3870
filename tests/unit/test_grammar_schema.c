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
    assert_true(work.most <= GRAMMAR_STEPS_MOST && work.steps <= 2 * work.most);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixtures),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_hostile_choices),
    };
    return cmocka_run_group_tests(tests, make_vocab, drop_vocab);
}
