// SPDX-License-Identifier: Apache-2.0
// Grammars: which texts regular expressions, GBNF and JSON accept; that masks allow exactly the
// tokens that steps accept, at random places; sentences of refusals; bounds of hostile grammars.
#include "grammar_helpers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "grammar/expression/build.h"

// text: accepted ones begin with '+', others with '-'.
static void check_texts(struct grammar *g, const char *const *texts) {
    for (; *texts; texts++) {
        bool want = **texts == '+';
        if (grammar_takes(g, *texts + 1, strlen(*texts + 1)) != want)
            fail_msg("'%s' should %s accepted", *texts + 1, want ? "be" : "not be");
    }
    grammar_unref(g);
}

static void regex_texts(const char *regex, const char *const *texts) {
    struct grammar *g;
    struct err e = {0};
    if (grammar_from_regex(&g, regex, strlen(regex), NULL, &e))
        fail_msg("%s: %s", regex, e.text);
    check_texts(g, texts);
}
#define REGEX(regex, ...) regex_texts(regex, (const char *const[]){__VA_ARGS__, NULL})

static void test_regex(void **state) {
    (void)state;
    REGEX("abc", "+abc", "-ab", "-abcd", "-");
    REGEX("^a(b|c)*d$", "+ad", "+abcbcd", "-abcb", "-aed");
    REGEX("[a-c]{2,4}", "-a", "+ab", "+abca", "-abcab", "-ad");
    REGEX("[^a-c\\]]+", "+xyz\xC3\xA4", "-a", "-]", "-");
    REGEX("\\d+(\\.\\d*)?", "+12", "+1.", "+1.50", "-.5");
    REGEX("\\u0041\\x42\\u{1F600}", "+AB\xF0\x9F\x98\x80", "-AB");
    REGEX("(?:a|^b$|c?)", "+a", "+b", "+c", "+", "-ab");
    REGEX("(^a|b)c$", "+ac", "+bc", "-c");
    REGEX("^(?:^a|(b$|c)$)$", "+a", "+b", "+c", "-ab");
    REGEX("(^|a)[)$^](b|$)", "+$", "+a)b", "-a", "-)c");
    REGEX("\\cA\\cz", "+\x01\x1A", "-A");
    REGEX(".", "+a", "+\xE2\x82\xAC", "-\n", "-\xE2\x82", "-\xFF");
    REGEX("a{0}b{1}c{2,}", "+bcc", "+bcccc", "-bc", "-abcc");
    REGEX("(a|b)*a(a|b){12}", "+abbbbbbbbbbbb", "+baaaaaaaaaaaaaaa", "-bbbbbbbbbbbbbb");
    REGEX("x{100,300}y?", "-x");
    REGEX("(?<year>\\d{4})-\\w*?", "+2026-", "+2026-a_Z9", "-202-");
    REGEX("[\\s\\S]*", "+", "+a\nb");
    REGEX("a-[-a]", "+a--", "+a-a");
}

// A code point of a random number of bits that UTF-8 can carry.
static uint32_t any_code(uint64_t seed) {
    uint32_t code = (uint32_t)(rng_hash(seed, 0, 0, 0) >> (43 + rng_hash(seed, 1, 0, 0) % 21));
    return code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF) ? code % 0xD800 : code;
}

static size_t write_utf8(uint32_t code, char *text) {
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; code >>= 6)
        text[i] = (char)(0x80 | (code & 0x3F));
    text[0] = (char)(n == 1 ? code : (0xF00u >> n & 0xFF) | code);
    return n;
}

static void check_range(uint64_t seed) {
    uint32_t lo = any_code(2 * seed), hi = any_code(2 * seed + 1), below = lo < hi ? lo : hi;
    char regex[32], text[4];
    struct grammar *g;
    struct err e = {0};
    hi = lo < hi ? hi : lo;
    snprintf(regex, sizeof regex, "[\\u{%X}-\\u{%X}]", (unsigned)below, (unsigned)hi);
    if (grammar_from_regex(&g, regex, strlen(regex), NULL, &e))
        fail_msg("%s: %s", regex, e.text);
    for (uint64_t i = 0; i < 64; i++) {
        uint32_t code = i < 2 ? (i ? hi : below) : any_code(rng_hash(seed, i, 0, 0));
        if (i >= 32) // within the range
            code = below + code % (hi - below + 1);
        if (code >= 0xD800 && code <= 0xDFFF)
            continue;
        bool want = code >= below && code <= hi;
        if (grammar_takes(g, text, write_utf8(code, text)) != want)
            fail_msg("U+%04X should %s accepted by %s", (unsigned)code, want ? "be" : "not be",
                     regex);
    }
    grammar_unref(g);
}

// Ends of ranges that fill no whole trailing bytes, several lengths in one range.
static void test_ranges(void **state) {
    (void)state;
    REGEX("[\\u00A1-\\u167F]", "+\xC3\x9F", "+\xD0\xB0", "-\xC2\xA0");
    REGEX("[\\u4E00-\\u9FA5]+", "+\xE4\xB8\x80\xE6\x97\xA5\xE5\x80\x80\xE9\xBE\xA5",
          "-\xE9\xBE\xA6");
    REGEX("\\S.", "+\xC3\x9F\xE1\x80\x80", "+\xE1\x83\x90\xE1\x9E\x80", "-\xC2\xA0-");
    for (uint64_t seed = 0; seed < 2000; seed++)
        check_range(seed);
}

static void gbnf_texts(const char *text, const char *const *texts) {
    struct grammar *g;
    struct err e = {0};
    if (grammar_from_gbnf(&g, text, strlen(text), NULL, &e))
        fail_msg("%s: %s", text, e.text);
    check_texts(g, texts);
}
#define GBNF(text, ...) gbnf_texts(text, (const char *const[]){__VA_ARGS__, NULL})

static void test_gbnf(void **state) {
    (void)state;
    GBNF("root ::= \"a\" | \"b\" root", "+a", "+bba", "-b", "-ab");
    GBNF("# comment\nroot ::= item (\",\" item)* # more\nitem ::= [a-z]+ |\n  [0-9]{1,3}",
         "+a,12,b", "+999", "-1234", "-a,", "-");
    GBNF("root ::= \"(\" root \")\" root | \"\"", "+", "+()(())", "-(", "-())");
    // Palindromes: many readings at once.
    GBNF("root ::= \"a\" root \"a\" | \"b\" root \"b\" | [ab]?", "+abba", "+ababa", "+a", "-ab",
         "-aab");
    GBNF("root ::= [^\\n\\x41-\\x43\\]] . \"\\\"\\u00e4\"", "+xA\"\xC3\xA4", "-AA\"\xC3\xA4");
    GBNF("root ::= s s\ns ::= \"x\"? t\nt ::= \"y\"?", "+", "+xyxy", "+yx", "-xxx");
    // A stack set that grows on both sides: two ways of returning at each level.
    GBNF("root ::= \"a\" root p | \"a\" root q | \"c\"\np ::= \"x\"\nq ::= \"x\" | \"y\"",
         "+aaaaaaaaaaaacxyxyxyxyxyxy", "-aacx", "-acz");
}

// `times` copies of a part, between a head and a tail.
static struct str long_text(const char *head, const char *part, int times, const char *tail) {
    struct str s = {0};
    str_puts(&s, head);
    for (int i = 0; i < times; i++)
        str_puts(&s, part);
    str_puts(&s, tail);
    assert_false(s.failed);
    return s;
}

// Parts after each other are no nesting, however many they are: literals of pages of text.
static void test_long(void **state) {
    static const struct {
        const char *head, *part, *tail; // of the grammar, in GBNF with `::=` in the head
        const char *text;               // of which each part takes one
    } cases[] = {
        {"", "quick", "", "quick"},         {"", "名", "", "名"},
        {"^", "(a|b)[^c].", "$", "axy"},    {"x(", "a\\.", ")?", "a."},
        {"root ::= \"", "\\n", "\"", "\n"}, {"root ::= ", "\"a\" r ", "\nr ::= [b-d]", "ac"},
    };
    enum { TIMES = 5000 };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct str given = long_text(cases[i].head, cases[i].part, TIMES, cases[i].tail);
        struct str text = long_text(i == 3 ? "x" : "", cases[i].text, TIMES, "");
        struct grammar *g;
        struct err e = {0};
        int rc = strstr(given.data, "::=")
                     ? grammar_from_gbnf(&g, given.data, given.len, NULL, &e)
                     : grammar_from_regex(&g, given.data, given.len, NULL, &e);
        if (rc)
            fail_msg("%s%s...: %s", cases[i].head, cases[i].part, e.text);
        assert_true(grammar_takes(g, text.data, text.len));
        assert_false(grammar_takes(g, text.data, text.len - 1));
        grammar_unref(g);
        str_fini(&given);
        str_fini(&text);
    }
}

static void test_json(void **state) {
    struct grammar *g;
    struct err e = {0};
    (void)state;
    assert_int_equal(grammar_json_object(&g, NULL, NULL, &e), 0);
    check_texts(g, (const char *const[]){
                       "+{}", "+{\"a\": [1, -2.5e3, true, null, \"x\\n\\u00e4\\\\\"]}",
                       "+{\n  \"a\":{\"b\": [ ]\n}}", "-[]", "-{\"a\"}", "-{\"a\":01}",
                       "-{\"a\":1,}", "-{\"\\ud800\":1}", "+{\"\\ud83d\\ude00\":1}",
                       "-{\"a\":\"\n\"}", "-{  }", "-{\"a\":\"\xFF\"}", "-{\"a\":tru}", "-", NULL});
}

static void test_until(void **state) {
    struct grammar *g;
    struct build *b;
    struct err e = {0};
    (void)state;
    assert_int_equal(build_create(&b, NULL, 0, &e), 0);
    uint32_t root = build_cat(b, build_until(b, "</p>"), build_text(b, "!"));
    assert_int_equal(build_finish(b, root, &g, &e), 0);
    build_destroy(b);
    check_texts(g, (const char *const[]){"+a < b </</p>!", "+</p>!", "-</p></p>!", "-a!",
                                         "+\xC3\xA4</p>!", "-\xC3</p>!", NULL});
}

static void refused(int code, const char *text, bool regex, const char *says) {
    struct grammar *g;
    struct err e = {0};
    int rc = regex ? grammar_from_regex(&g, text, strlen(text), NULL, &e)
                   : grammar_from_gbnf(&g, text, strlen(text), NULL, &e);
    if (g || rc != code || !strstr(e.text, says))
        fail_msg("'%s': code %d, '%s'", text, rc, e.text);
}

static void test_refusals(void **state) {
    (void)state;
    refused(ERR_FORMAT, "a(b", true, "not closed");
    refused(ERR_FORMAT, "ab)", true, "at byte 3");
    refused(ERR_UNSUPPORTED, "a(?=b)", true, "look-ahead");
    refused(ERR_UNSUPPORTED, "(a)\\1", true, "back references");
    refused(ERR_UNSUPPORTED, "a\\bc", true, "word boundaries");
    refused(ERR_UNSUPPORTED, "\\p{L}", true, "properties");
    refused(ERR_UNSUPPORTED, "a^b", true, "^");
    refused(ERR_UNSUPPORTED, "a(^b)", true, "^ is supported only at the beginning");
    refused(ERR_UNSUPPORTED, "(^a)*", true, "^ is supported only at the beginning");
    refused(ERR_UNSUPPORTED, "(a$)?", true, "$ is supported only at the end");
    refused(ERR_UNSUPPORTED, "(a$)b", true, "$ is supported only at the end");
    refused(ERR_FORMAT, "\\c1", true, "no letter");
    refused(ERR_FORMAT, "*", true, "nothing to repeat");
    refused(ERR_FORMAT, "[b-a]", true, "order");
    refused(ERR_FORMAT, "a{2,1}", true, "braces");
    refused(ERR_LIMIT, "a{70000}", true, "70000");
    refused(ERR_MISMATCH, "[^\\s\\S]", true, "no text");
    refused(ERR_FORMAT, "root ::= x", false, "'x' is used");
    refused(ERR_FORMAT, "x ::= \"a\"", false, "'root'");
    refused(ERR_FORMAT, "root ::= \"a\n", false, "line");
    refused(ERR_FORMAT, "root : \"a\"", false, "line 1");
    refused(ERR_UNSUPPORTED, "root ::= root \"a\" | \"b\"", false, "'root' can call itself");
    refused(ERR_UNSUPPORTED, "root ::= e b \"c\"\ne ::= \"x\"?\nb ::= e root | \"y\"", false,
            "left recursion");
    refused(ERR_MISMATCH, "root ::= \"a\" root", false, "no text");
    struct str million = long_text("", "0123456789", 105000, "");
    refused(ERR_LIMIT, million.data, true, "more than 1048576 states");
    str_fini(&million);
}

static const char *const walked[] = {
    "[a-z]{3,60}( [A-Z]\\w*){0,80}\\.",
    "(a|b)*a(a|b){20}",
    "\"[^\"\\\\]{5,9}\"",
    ".{3}|.{200,300}",
    "(the|cat|sat|[ -~])*\\n",
    "([0-9]{1,3}\\.){3}[0-9]{1,3}",
    "(.{1,5},){2,400}x",
};

static void test_masks(void **state) {
    struct grammar_vocab *v = *state;
    struct grammar *g;
    struct err e = {0};
    for (size_t i = 0; i < sizeof walked / sizeof *walked; i++) {
        if (grammar_from_regex(&g, walked[i], strlen(walked[i]), NULL, &e))
            fail_msg("%s", e.text);
        check_walks(g, v, 8, 60, i);
    }
    assert_int_equal(grammar_json_object(&g, NULL, NULL, &e), 0);
    check_walks(g, v, 30, 120, 99);
    const char *palindromes = "root ::= \"a\" root \"a\" | \"b\" root \"b\" | \" \" root | [ab\"]?";
    assert_int_equal(grammar_from_gbnf(&g, palindromes, strlen(palindromes), NULL, &e), 0);
    check_walks(g, v, 10, 40, 7);
}

static void test_forced(void **state) {
    struct grammar_vocab *v = *state;
    struct grammar_matcher *m;
    struct grammar_state *s, *t;
    struct grammar *g;
    struct str text = {0};
    struct err e = {0};
    int32_t token;
    assert_int_equal(grammar_from_regex(&g, "zq(zq|xj)k", 10, NULL, &e), 0);
    assert_int_equal(grammar_matcher_create(&m, g, v, &e), 0);
    s = grammar_start(m);
    assert_int_equal(grammar_forced_bytes(m, s, 100, &text, &e), 0);
    assert_string_equal(text.data, "zq");
    assert_int_equal(grammar_accept_bytes(m, s, "zqx", 3, &t, &e), 1);
    str_clear(&text);
    assert_int_equal(grammar_forced_bytes(m, t, 100, &text, &e), 0);
    assert_string_equal(text.data, "jk");
    assert_int_equal(grammar_accept_bytes(m, t, "j", 1, &s, &e), 1);
    assert_int_equal(grammar_forced(m, s, &token, &e), 0);
    assert_true(token >= 0);
    assert_int_equal(grammar_accept_bytes(m, s, "k", 1, &t, &e), 1);
    assert_true(grammar_must_end(m, t) && grammar_may_end(m, t));
    str_fini(&text);
    grammar_matcher_destroy(m);
    grammar_unref(g);
}

// More states than a matcher keeps: what is held stays right, whatever was left unfinished.
static void test_bounded(void **state) {
    struct grammar_vocab *v = *state;
    struct grammar_matcher *m;
    struct grammar_state *first, *s, *next;
    struct grammar *g;
    struct err e = {0};
    size_t max = 0;
    const char *text = "(((a|b)*a(a|b){1200})|([ab]{0,40000}c))";
    uint32_t *bits = calloc((size_t)grammar_vocab_size(v) / 32 + 1, sizeof *bits);
    assert_int_equal(grammar_from_regex(&g, text, strlen(text), NULL, &e), 0);
    assert_int_equal(grammar_matcher_create(&m, g, v, &e), 0);
    first = grammar_start(m);
    assert_int_equal(grammar_accept_bytes(m, first, "aaaaaaaaaaaaaaaa", 16, &next, &e), 1);
    grammar_matcher_allow(m, 0); // a mask that one of two has begun and given up
    assert_int_equal(grammar_mask(m, grammar_state_ref(next), bits, &e), ERR_UNFINISHED);
    grammar_state_unref(m, next);
    grammar_matcher_allow(m, INT64_MAX);
    s = grammar_state_ref(first);
    for (int i = 0; i < 30000; i++) {
        const char *byte = rng_hash(1, (uint64_t)i, 0, 0) & 1 ? "a" : "b";
        assert_int_equal(grammar_accept_bytes(m, s, byte, 1, &next, &e), 1);
        grammar_state_unref(m, s);
        s = next;
        max = max > grammar_matcher_bytes(m) ? max : grammar_matcher_bytes(m);
        if (i % 1000 == 0)
            assert_int_equal(grammar_mask(m, s, bits, &e), 0);
    }
    assert_true(max > (size_t)64 << 20 && max < (size_t)100 << 20);
    assert_int_equal(grammar_accept_bytes(m, s, "c", 1, &next, &e), 1);
    assert_true(grammar_must_end(m, next));
    assert_int_equal(grammar_accept_bytes(m, first, "c", 1, &next, &e), 1);
    free(bits);
    grammar_matcher_destroy(m);
    grammar_unref(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regex),    cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_gbnf),     cmocka_unit_test(test_json),
        cmocka_unit_test(test_until),    cmocka_unit_test(test_long),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_masks),
        cmocka_unit_test(test_forced),   cmocka_unit_test(test_bounded),
    };
    return cmocka_run_group_tests(tests, make_vocab, drop_vocab);
}
