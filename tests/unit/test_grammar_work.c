// SPDX-License-Identifier: Apache-2.0
// What compiling takes is bounded by counted steps, whatever the text requests: a table of small
// texts that would take hours is refused by the bound or compiled below it; everyday schemas stay
// far below it; and a call whose client has disconnected ends within the steps between two checks.
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json.h"
#include "grammar/grammar.h"
#include "grammar/tool_grammar.h"

static int compile(const char *text, size_t n, struct grammar_work *work, struct err *e) {
    struct grammar *g = NULL;
    struct json *doc = NULL;
    int rc;
    *e = (struct err){0};
    if (text[0] == '{') {
        rc = json_parse(&doc, text, n, e);
        if (rc)
            fail_msg("%.80s: %s", text, e->text);
        rc = grammar_from_schema(&g, doc, NULL, work, e);
    } else {
        rc = strstr(text, "::=") ? grammar_from_gbnf(&g, text, n, work, e)
                                 : grammar_from_regex(&g, text, n, work, e);
    }
    assert_int_equal(rc == 0, g != NULL);
    grammar_unref(g);
    json_free(doc);
    return rc;
}

// before, n times a piece with its number for each % (one more for each @), after.
struct bomb {
    const char *before, *piece, *after;
    int n;
};

static struct str text_of(const struct bomb *b) {
    struct str s = {0};
    str_puts(&s, b->before);
    for (int i = 0; i < b->n; i++)
        for (const char *c = b->piece; *c; c++) {
            if (*c == '%')
                str_printf(&s, "%d", i);
            else if (*c == '@')
                str_printf(&s, "%d", i + 1);
            else if (*c != '~' || i > 0) // a comma but for the first
                str_putc(&s, *c == '~' ? ',' : *c);
        }
    str_puts(&s, b->after);
    return s;
}

static const struct bomb bombs[] = {
    // Choices that multiply.
    {"{\"allOf\":[",
     "~{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"a%\":{\"const\":0}},\"required\":"
     "[\"a%\"]},{\"properties\":{\"a%\":{\"const\":1}},\"required\":[\"a%\"]},{\"properties\":"
     "{\"a%\":{\"const\":2}}}]}",
     "]}", 20},
    {"{\"allOf\":[", "~{\"oneOf\":[{\"type\":\"string\",\"minLength\":%},{\"type\":\"null\"}]}",
     "]}", 40},
    {"{\"allOf\":[", "~{\"if\":{\"required\":[\"a%\"]},\"then\":{\"required\":[\"b%\"]}}", "]}",
     30},
    {"{\"allOf\":[", "~{\"dependentRequired\":{\"a%\":[\"b%\"]}}", "]}", 30},
    {"{\"type\":\"object\",\"dependentRequired\":{", "~\"a%\":[\"b%\",\"c%\"]", "}}", 10},
    {"", "{\"if\":{\"required\":[\"a%\"]},\"else\":{\"minProperties\":%},\"then\":",
     "true"
     "}}}}}}}}}}}}}}}}}}}}",
     20},
    {"{\"not\":{\"allOf\":[", "~{\"anyOf\":[{\"required\":[\"a%\"]},{\"minimum\":%}]}", "]}}", 60},
    // Alternatives compared with each other.
    {"{\"oneOf\":[", "~{\"anyOf\":[{\"$ref\":\"#/oneOf/@\"},{\"$ref\":\"#/oneOf/0\"}]}", ",{},{}]}",
     60},
    {"{\"$defs\":{\"l\":{\"enum\":[0", ",%",
     "]}},\"oneOf\":[{\"allOf\":[{\"$ref\":\"#/$defs/l\"}]},"
     "{\"allOf\":[{\"$ref\":\"#/$defs/l\"},{\"enum\":[-1]}]}]}",
     250},
    {"{\"oneOf\":[", "~{\"required\":[\"a%\"],\"properties\":{\"a%\":{\"const\":%}}}", "]}", 64},
    // Objects: counts, patterns, names.
    {"{\"type\":\"object\",\"minProperties\":200,\"additionalProperties\":false,\"properties\":{",
     "~\"p%\":{}", "}}", 400},
    {"{\"type\":\"object\",\"patternProperties\":{", "~\"(a|b)*a(a|b){1@}\":{\"minimum\":%}", "}}",
     4},
    {"{\"type\":\"object\",\"patternProperties\":{\"^(a|b)*a(a|b){3000}$\":{}},\"properties\":{",
     "~\"abababaabababababaabababababababababab%\":{}", "}}", 200},
    {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"(a|b)*a(a|b){30}\"},\"properties\":{",
     "~\"ab%\":{}", "}}", 100},
    {"{\"allOf\":[", "~{\"properties\":{\"p%\":{\"$ref\":\"#\"}},\"unevaluatedProperties\":true}",
     "]}", 150},
    {"{\"type\":\"object\",\"properties\":{", "~\"p%\":{\"type\":\"string\",\"format\":\"uri\"}",
     "}}", 1500},
    {"{\"type\":\"object\",\"properties\":{\"x\":", "{\"type\":\"object\",\"properties\":{\"x\":",
     "{}"
     "}}}}}}}}}}}}}}}}}}}}"
     "}}}}}}}}}}}}}}}}}}}}"
     "}}",
     20},
    // Arrays and lists of values.
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[0", ",@", "]}}", 1023},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"minItems\":60,\"items\":{\"enum\":[0", ",@", "]}}",
     1000},
    {"{\"type\":\"array\",\"contains\":{\"const\":1},\"minContains\":250,\"maxItems\":25", "0", "}",
     1},
    {"{\"type\":\"array\",\"maxItems\":60000,\"items\":{\"type\":\"array\",\"maxItems\":60000,"
     "\"items\":{\"type\":\"string\",\"maxLength\":60000}}",
     "", "}", 0},
    {"{\"type\":\"array\",\"prefixItems\":[", "~{\"type\":\"string\",\"maxLength\":6000}", "]}",
     100},
    {"{\"allOf\":[{\"enum\":[0", ",@", "]},{\"enum\":[-1,-2,-3,-4,-5,-6,-7,-8,-9]}]}", 3000},
    {"{\"enum\":[[0", ",%", "]]}", 3000},
    // Strings.
    {"{\"type\":\"string\",\"pattern\":\"(a|b)*a(a|b){60}\",\"maxLength\":90", "0", "}", 1},
    {"{\"type\":\"string\",\"allOf\":[", "~{\"pattern\":\"a.*b%.*c\"}", "]}", 12},
    {"{\"type\":\"string\",\"allOf\":[", "~{\"not\":{\"pattern\":\"a.{%}b\"}}", "]}", 16},
    {"{\"type\":\"string\",\"pattern\":\"", "(?:c{0,200}", "x){1,9}\"}", 1},
    {"{\"type\":\"string\",\"pattern\":\"^(([0-9a-f]{1,400}-){1,400}x){1,400}$\",\"maxLength\":100",
     "0", "}", 1},
    // Numbers.
    {"{\"type\":\"object\",\"properties\":{",
     "~\"p%\":{\"type\":\"number\",\"minimum\":-123456.789,\"maximum\":98765.4321}", "}}", 300},
    {"{\"type\":\"object\",\"properties\":{", "~\"p%\":{\"type\":\"integer\",\"multipleOf\":99@}",
     "}}", 9},
    // References.
    {"{\"$ref\":\"#/$defs/d0\",\"$defs\":{",
     "~\"d%\":{\"allOf\":[{\"$ref\":\"#/$defs/d@\"},{\"$ref\":\"#/$defs/d@\"}],\"anyOf\":[{},{"
     "\"minimum\":%}]}",
     ",\"d40\":{}}}", 40},
    {"{\"$ref\":\"#a0\",\"$defs\":{", "~\"d%\":{\"$anchor\":\"a%\",\"items\":{\"$ref\":\"#a@\"}}",
     ",\"e\":{\"$anchor\":\"a2000\"}}}", 2000},
    {"{\"$ref\":\"#/$defs/d0\",\"$defs\":{",
     "~\"d%\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/d@\"}}", ",\"d9000\":{}}}", 9000},
    // Regular expressions.
    {"((((.{1,999}){1,999}){1,999}){1,999})", "", "", 0},
    {"", "(a|b)*a(a|b){60}", "", 8},
    {"", "(x|", "y", 0},
    {"", "(", "a", 0},
    {"", "[\\\\w\\\\W\\\\s\\\\S]{0,3000}", "", 30},
    {"", "(a?b?c?d?){0,60}", "", 40},
    {"(a?){0,60000}(b?){0,60000}", "(c?){0,60000}", "", 20},
    {"", "(a{0,50}b|a{0,50}c%){0,50}", "", 30},
    // GBNF.
    {"root ::= r0\n", "r% ::= r@ r@ | \"a%\"\n", "r60 ::= \"b\" | \"\"\n", 60},
    {"root ::= r0*\n", "r% ::= r@? r@? \"x\"?\n", "r40 ::= \"b\"?\n", 40},
    {"root ::= ", "(\"a\" | \"b\" [a-z]{0,300}){0,300} ", "\n", 60},
    {"root ::= a{60000}\na ::= ", "[a-z]{0,9000} ", "\n", 40},
    {"root ::= \"x\" ", "e ", "\ne ::= \"a\" e | \"\"\n", 500},
    {"root ::= \"x\"", "", "\n", 0},
};

// Members that are looked up.
static int64_t lookups;
const struct json *__real_json_get(const struct json *v, const char *key);
const struct json *__wrap_json_get(const struct json *v, const char *key);
const struct json *__wrap_json_get(const struct json *v, const char *key) {
    lookups++;
    return __real_json_get(v, key);
}

static void test_exponential_grammars(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bombs / sizeof *bombs; i++) {
        struct str s = text_of(&bombs[i]);
        struct grammar_work work = {0};
        struct err e;
        lookups = 0;
        int rc = compile(s.data, s.len, &work, &e);
        // A lookup counts as two steps at least; in combinations, in which every member is
        // requested all keywords, as four.
        int64_t min = (strncmp(s.data, "{\"allOf\"", 8) ? 2 : 4) * lookups;
        if (rc == ERR_MEMORY || work.steps > 2 * work.max || work.max > grammar_steps(2 * s.len) ||
            work.steps < min)
            fail_msg("bomb %zu, '%.60s': %d after %lld steps and %lld lookups: %s", i, s.data, rc,
                     (long long)work.steps, (long long)lookups, e.text);
        str_fini(&s);
    }
}

// What tools send is far below the bound.
static void test_everyday(void **state) {
    FILE *f = fopen(TEST_DATA "/grammar/schemas.jsonl", "rb");
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int lines = 0;
    (void)state;
    assert_non_null(f);
    for (; (n = getline(&line, &cap, f)) > 0; lines++) {
        struct grammar_work work = {0};
        struct grammar *g;
        struct json *doc;
        struct err e = {0};
        assert_int_equal(json_parse(&doc, line, (size_t)n, &e), 0);
        assert_int_equal(grammar_from_schema(&g, json_get(doc, "schema"), NULL, &work, &e), 0);
        if (10 * work.steps > work.max)
            fail_msg("%.60s: %lld steps of %lld", line, (long long)work.steps, (long long)work.max);
        grammar_unref(g);
        json_free(doc);
    }
    assert_true(lines > 10);
    free(line);
    fclose(f);
}

// One that goes after some questions.
struct leaver {
    int called, stays;
};

static bool left(const void *arg) {
    struct leaver *l = (struct leaver *)arg;
    return ++l->called > l->stays;
}

static void test_cancelled(void **state) {
    (void)state;
    for (int stays = 0; stays < 4; stays++)
        for (size_t i = 0; i < sizeof bombs / sizeof *bombs; i++) {
            struct leaver l = {.stays = stays};
            const struct cancel_check cancel = {left, &l};
            struct grammar_work work = {.cancel = &cancel};
            struct str s = text_of(&bombs[i]);
            struct err e;
            int rc = compile(s.data, s.len, &work, &e);
            assert_true(l.called <= stays + 1); // it is not called any more once it was true
            if (l.called > stays)
                assert_int_equal(rc, ERR_CANCELLED);
            str_fini(&s);
        }
}

// Tools whose schemas are bombs: each is found out once, and all together are bounded.
static void test_tools(void **state) {
    (void)state;
    enum { MANY = 30 };
    static const struct bomb one = {
        "{\"type\":\"object\",\"allOf\":[",
        "~{\"anyOf\":[{\"properties\":{\"a%\":{\"const\":0}},\"required\":[\"a%\"]},{"
        "\"properties\":{\"b%\":{\"const\":1}},\"required\":[\"b%\"]}]}",
        "]}", 20};
    struct tool_grammar_tool list[MANY];
    struct json *docs[MANY];
    struct str s = text_of(&one);
    struct tool_grammar g;
    struct err e = {0};
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(json_parse(&docs[i], s.data, s.len, &e), 0);
        list[i] = (struct tool_grammar_tool){"abcdefghijklmnopqrstuvwxyz0123456789" + i, 3, docs[i],
                                             false, false};
    }
    struct grammar_work work = {0};
    const struct tool_grammar_how how = {.work = &work};
    assert_int_equal(tool_grammar_create(&g, TOOLS_QWEN, list, MANY, &how, &e), 0);
    assert_true(work.steps < 2 * GRAMMAR_STEPS_MAX);
    tool_grammar_fini(&g);
    struct leaver l = {0};
    const struct cancel_check cancel = {left, &l};
    work = (struct grammar_work){.cancel = &cancel};
    assert_int_equal(tool_grammar_create(&g, TOOLS_QWEN, list, MANY, &how, &e), ERR_CANCELLED);
    tool_grammar_fini(&g);
    for (int i = 0; i < MANY; i++)
        json_free(docs[i]);
    str_fini(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exponential_grammars),
        cmocka_unit_test(test_everyday),
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_tools),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
