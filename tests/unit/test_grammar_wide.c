// SPDX-License-Identifier: Apache-2.0
// Grammars that can be read in very many ways at once, or are nested deeply: what is compiled meets
// no limit later (but for rules that may be empty, doubled over and over), masks stay those of
// single steps, and every text can be completed.
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/json/json.h"
#include "base/num.h"
#include "grammar/grammar.h"
#include "grammar_helpers.h"

static struct str times(const char *part, int n) {
    struct str s = {0};
    for (int i = 0; i < n; i++)
        str_puts(&s, part);
    return s;
}

static struct grammar *compiled(const char *text) {
    struct grammar *g;
    struct err e = {0};
    int rc = strstr(text, "::=") ? grammar_from_gbnf(&g, text, strlen(text), NULL, &e)
                                 : grammar_from_regex(&g, text, strlen(text), NULL, &e);
    if (rc)
        fail_msg("%.60s: %s", text, e.text);
    return g;
}

static void takes(struct grammar *g, const char *part, int n, bool whole) {
    struct str text = times(part, n);
    if (grammar_takes(g, text.data, text.len) != whole)
        fail_msg("'%s' %d times: not %d", part, n, whole);
    str_fini(&text);
}

// A text is read in as many ways as it is long, or in their square.
static void test_ambiguous(void **state) {
    static const struct {
        const char *text, *part;
        int n, before; // that many parts are taken, and that many not
    } cases[] = {
        {"(a|b)*a(a|b){3000}", "a", 3001, 3000},
        {".*a.{3000}", "a", 3500, 3000},
        {"( ?[a-z]{1,20}){0,1000}", "a", 1500, 0},
        {"(a{0,1500}){0,1500}", "a", 1500, 0},
        {"((a?b?){0,1500}c?){0,1500}", "ab", 700, 0},
        {"([ab]{0,1000}b){0,1000}", "b", 1000, 0},
        {"(((a{0,300}b?){0,300}c?){0,300}d?){0,300}", "abcd", 200, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct grammar *g = compiled(cases[i].text);
        takes(g, cases[i].part, cases[i].n, true);
        if (cases[i].before)
            takes(g, cases[i].part, cases[i].before, false);
        grammar_unref(g);
    }
    struct str many = times("(ab)", 3000);
    str_puts(&many, "(.*)");
    struct str open = {0};
    str_puts(&open, ".*");
    str_append(&open, many.data, many.len);
    struct grammar *g = compiled(open.data);
    takes(g, "ab", 3000, true);
    takes(g, "ab", 4000, true);
    takes(g, "ab", 2999, false);
    grammar_unref(g);
    str_fini(&many);
    str_fini(&open);
}

// A repetition of what may be empty says what it said before.
static void test_empty_parts(void **state) {
    static const struct {
        const char *text, *yes, *no;
    } cases[] = {
        {"(a?b?){3}", "abab", "abababab"},
        {"(a?b?){3}c", "c", "bababac"},
        {"(a*|b){2,4}", "baab", "bbbbb"},
        {"(a?b?){2,}", "bbbb", "c"},
        {"((a?){3}b?){2}", "aaabaaab", "aaaaaaa"},
        {"(|a){5}", "aaaaa", "aaaaaa"},
        {"((){3})*", "", "a"},
        {"((x*)*)*y", "xxy", "xx"},
        {"(a?(b{0,3}|c)){2}", "abbbc", "cc c"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct grammar *g = compiled(cases[i].text);
        takes(g, cases[i].yes, 1, true);
        takes(g, cases[i].no, 1, false);
        grammar_unref(g);
    }
    struct str parts = times("e ", 5000), gbnf = {0};
    struct grammar *g;
    struct err e = {0};
    str_puts(&gbnf, "root ::= \"x\" ");
    str_puts(&gbnf, parts.data);
    str_puts(&gbnf, "\ne ::= \"a\" e | \"\"");
    assert_int_equal(grammar_from_gbnf(&g, gbnf.data, gbnf.len, NULL, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "more than 512 parts of the grammar that may be empty"));
    str_fini(&parts);
    str_fini(&gbnf);
}

// Nothing goes down so far that it cannot come up again.
static void test_deep(void **state) {
    struct grammar_vocab *v = *state;
    struct grammar_matcher *m;
    struct grammar_state *s, *next;
    struct grammar *g = compiled("root ::= \"(\" (root | [a-z]+ | pair)? \")\"\n"
                                 "pair ::= \"<\" root \",\" root \">\"");
    uint32_t *bits = calloc((size_t)grammar_vocab_size(v) / 32 + 1, sizeof *bits);
    struct err e = {0};
    int down = 0;
    assert_int_equal(grammar_matcher_create(&m, g, v, &e), 0);
    s = grammar_start(m);
    for (int rc = 1; rc == 1; down += rc) {
        rc = grammar_accept_bytes(m, s, "(", 1, &next, &e);
        assert_true(rc >= 0);
        if (rc == 0)
            break;
        grammar_state_unref(m, s);
        s = next;
        if (down < 2030)
            continue;
        assert_int_equal(grammar_mask(m, s, bits, &e), 0);
        for (int32_t id = 0; id < grammar_vocab_size(v); id++) {
            rc = grammar_accept(m, s, id, &next, &e);
            assert_int_equal(rc, bits[id / 32] >> (id % 32) & 1);
            grammar_state_unref(m, next);
        }
        rc = 1;
    }
    assert_in_range(down, 2040, 2048);
    for (int i = 0; i < down; i++) {
        assert_int_equal(grammar_accept_bytes(m, s, ")", 1, &next, &e), 1);
        grammar_state_unref(m, s);
        s = next;
    }
    assert_true(grammar_may_end(m, s));
    grammar_state_unref(m, s);
    free(bits);
    grammar_matcher_destroy(m);
    grammar_unref(g);

    struct str gbnf = {0}, line = {0};
    str_puts(&gbnf, "root ::= r0\n");
    for (int i = 0; i < 3000; i++) {
        str_printf(&line, "r%d ::= \"(\" r%d \")\"\n", i, i + 1);
    }
    str_puts(&line, "r3000 ::= \"x\"\n");
    str_append(&gbnf, line.data, line.len);
    assert_int_equal(grammar_from_gbnf(&g, gbnf.data, gbnf.len, NULL, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "more than 2048 rules within each other"));
    str_fini(&gbnf);
    str_fini(&line);
}

// root repeats a rule of 2^n parts that may be empty, each level two of the one below.
static struct str doubled(int n) {
    struct str s = {0};
    str_printf(&s, "a%d ::= \"x\"?\n", n);
    for (int i = n - 1; i >= 0; i--)
        str_printf(&s, "a%d ::= a%d a%d\n", i, i + 1, i + 1);
    str_puts(&s, "root ::= a0*\n");
    return s;
}

// Rules and patterns that are used twice by those around them, over and over, are looked at once
// each: what would take the power of their depth takes no time.
static void test_doubled(void **state) {
    struct grammar_matcher *m;
    struct grammar *g;
    struct json *schema;
    struct err e = {0};
    struct str text = doubled(12);
    assert_int_equal(grammar_from_gbnf(&g, text.data, text.len, NULL, &e), 0);
    takes(g, "x", 5000, true);
    takes(g, "y", 1, false);
    grammar_unref(g);
    str_fini(&text);
    text = doubled(100);
    assert_int_equal(grammar_from_gbnf(&g, text.data, text.len, NULL, &e), 0);
    assert_int_equal(grammar_matcher_create(&m, g, *state, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "make the grammar less ambiguous"));
    grammar_unref(g);
    str_clear(&text);
    str_puts(&text, "a ::= \"x\" | a a | \"\"\nroot ::= \"z\" a*\n");
    assert_int_equal(grammar_from_gbnf(&g, text.data, text.len, NULL, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "left recursion"));
    struct str inner = times("(?:c{0,200}", 40), outer = times("){0,200}", 40);
    str_clear(&text);
    str_printf(&text, "{\"type\":\"string\",\"maxLength\":500,\"pattern\":\"^%sx%s$\"}", inner.data,
               outer.data);
    assert_int_equal(json_parse(&schema, text.data, text.len, &e), 0);
    assert_int_equal(grammar_from_schema(&g, schema, NULL, NULL, &e), ERR_LIMIT);
    json_free(schema);
    str_fini(&inner);
    str_fini(&outer);
    str_fini(&text);
}

// Masks that would take too much keep to short tokens, and none is wrong or empty.
static void test_slow_masks(void **state) {
    struct grammar_vocab *v = *state;
    struct grammar_matcher *m;
    struct grammar_state *s, *next;
    struct str text = {0};
    uint32_t *bits = calloc((size_t)grammar_vocab_size(v) / 32 + 1, sizeof *bits);
    struct err e = {0};
    for (int i = 0; i < 1500; i++)
        str_printf(&text, "%s[ -~]*%d[ -~]*", i ? "|" : "", i);
    struct grammar *g = compiled(text.data);
    assert_int_equal(grammar_matcher_create(&m, g, v, &e), 0);
    s = grammar_start(m);
    for (int i = 0; i < 8; i++) {
        int32_t count = 0, chosen = -1;
        if (grammar_mask(m, s, bits, &e))
            fail_msg("%s", e.text);
        for (int32_t id = 0; id < grammar_vocab_size(v); id++) {
            if (!(bits[id / 32] >> (id % 32) & 1))
                continue;
            assert_int_equal(grammar_accept(m, s, id, &next, &e), 1);
            grammar_state_unref(m, next);
            chosen = rand() % ++count ? chosen : id;
        }
        assert_true(count >= 95 - 10);
        if (chosen == 256 || grammar_accept(m, s, chosen, &next, &e) != 1)
            break;
        grammar_state_unref(m, s);
        s = next;
    }
    grammar_state_unref(m, s);
    str_fini(&text);
    free(bits);
    grammar_matcher_destroy(m);
    grammar_unref(g);
}

// A mask that is made in slices, of that many steps each, is the one that is made at once. Returns
// how many slices it took.
static int same_in_slices(struct grammar_matcher *m, const struct grammar_state *s, int32_t size,
                          const uint32_t *bits) {
    enum { SLICE = 1 << 20 };
    uint32_t *own = calloc((size_t)size / 32 + 1, sizeof *own);
    struct err e = {0};
    int slices = 0, rc = ERR_UNFINISHED;
    for (; rc == ERR_UNFINISHED; slices++) {
        int64_t before = grammar_matcher_work(m);
        grammar_matcher_allow(m, SLICE);
        rc = grammar_mask(m, s, own, &e);
        // The last call that is counted, and places that were looked at again, come on top.
        assert_true(grammar_matcher_work(m) - before < SLICE + SLICE / 2);
    }
    grammar_matcher_allow(m, INT64_MAX);
    assert_int_equal(rc, 0);
    assert_memory_equal(own, bits, ((size_t)size + 31) / 32 * sizeof *own);
    free(own);
    return slices;
}

// However ambiguous a grammar is, a token takes a bounded number of steps: of the masks, and of the
// states after them. Masks may be made in slices.
static void test_work_of_a_token(void **state) {
    struct str wide = {0}; // of 1,500 alternatives
    for (int i = 0; i < 1500; i++)
        str_printf(&wide, "%s[ -~]*%d[ -~]*", i ? "|" : "", i);
    const char *const texts[] = {
        wide.data,
        "(a|b)*a(a|b){3000}",
        ".*a.{3000}",
        "( ?[a-z]{1,20}){0,1000}",
        "((a?b?){0,1500}c?){0,1500}",
        "([ab]{0,1000}b){0,1000}",
        "(((a{0,300}b?){0,300}c?){0,300}d?){0,300}",
        "((([a-z ]{0,300}b?){0,300}c?){0,300}d?){0,300}",
        "root ::= \"x\" a*\na ::= b? b?\nb ::= [a-z]* c? [a-z]*\nc ::= [a-z] a\n",
        "root ::= s\ns ::= [a-z ] s [a-z ] | [a-z ] s | [a-z ] s s \"x\" | [a-z ]\n",
        "root ::= s*\ns ::= \"a\" s s? s? | [a-z]\n",
    };
    struct grammar_vocab *v = *state;
    uint32_t *bits = calloc((size_t)grammar_vocab_size(v) / 32 + 1, sizeof *bits);
    int slices = 0;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct grammar *g = compiled(texts[i]);
        struct grammar_matcher *m, *sliced;
        struct grammar_state *s, *next, *same;
        struct err e = {0};
        int64_t max = 0;
        assert_int_equal(grammar_matcher_create(&m, g, v, &e), 0);
        assert_int_equal(grammar_matcher_create(&sliced, g, v, &e), 0);
        s = grammar_start(m);
        same = grammar_start(sliced);
        for (int k = 0; k < 120 && s; k++) {
            int64_t before = grammar_matcher_work(m);
            if (grammar_mask(m, s, bits, &e))
                fail_msg("%s: %s", texts[i], e.text);
            int64_t masked = grammar_matcher_work(m);
            max = masked - before > max ? masked - before : max;
            slices = max_i32(slices, same_in_slices(sliced, same, grammar_vocab_size(v), bits));
            const char *part = k % 7 == 6 ? "x" : k % 5 == 4 ? "ab" : "a";
            if (grammar_accept_bytes(m, s, part, strlen(part), &next, &e) != 1)
                continue;
            int64_t taken = grammar_matcher_work(m) - masked;
            max = taken > max ? taken : max;
            grammar_state_unref(m, s);
            s = next;
            assert_int_equal(grammar_accept_bytes(sliced, same, part, strlen(part), &next, &e), 1);
            grammar_state_unref(sliced, same);
            same = next;
        }
        if (max > 1 << 22)
            fail_msg("%.60s: %lld steps for one token", texts[i], (long long)max);
        grammar_state_unref(m, s);
        grammar_state_unref(sliced, same);
        grammar_matcher_destroy(m);
        grammar_matcher_destroy(sliced);
        grammar_unref(g);
    }
    assert_true(slices > 1); // of some mask
    str_fini(&wide);
    free(bits);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ambiguous),  cmocka_unit_test(test_empty_parts),
        cmocka_unit_test(test_deep),       cmocka_unit_test(test_doubled),
        cmocka_unit_test(test_slow_masks), cmocka_unit_test(test_work_of_a_token),
    };
    return cmocka_run_group_tests(tests, make_vocab, drop_vocab);
}
