// SPDX-License-Identifier: Apache-2.0
// Pre-tokenisers: splits measured with PCRE2 and Oniguruma alike, the odd white space of Unicode,
// and pieces that always add up to the text.
#include "test.h"

#include <stdio.h>

#include "base/rng.h"
#include "base/str.h"
#include "text/tokenizer/rules.h"
#include "text/tokenizer/split.h"

struct pieces {
    struct str joined; // with '|' between pieces
    struct str plain;
    int count, empty;
};

static int collect(void *arg, const char *piece, size_t n, struct err *e) {
    struct pieces *p = arg;
    (void)e;
    if (p->count++ > 0)
        str_putc(&p->joined, '|');
    str_append(&p->joined, piece, n);
    str_append(&p->plain, piece, n);
    p->empty += n == 0;
    return 0;
}

static void run(const char *pre, const char *text, size_t n, struct pieces *p) {
    struct split *s;
    struct split_job *j = NULL;
    struct err e = {0};
    if (split_create(&s, pre, strlen(pre), &e) || split_begin(&j, s, &e) ||
        split_text(j, text, n, collect, p, &e))
        fail_msg("%s: %s", pre, e.text);
    split_end(j);
    split_destroy(s);
}

static void pieces_fini(struct pieces *p) {
    str_fini(&p->joined);
    str_fini(&p->plain);
}

// Each row: names that share the result, the text, the pieces with '|' between.
static const struct measured {
    const char *names[6];
    const char *text, *pieces;
} measured[] = {
    {{"gpt-2"}, "Hello  world!!\n\n  I'LL go", "Hello| | world|!!|\n\n | I|'|LL| go"},
    {{"qwen2", "qwen35", "llama-bpe", "deepseek-v3", "tekken"},
     "Hello  world!!\n\n go",
     "Hello| | world|!!\n\n| go"},
    {{"qwen2", "qwen35", "llama-bpe", "deepseek-v3"},
     "Hello  world!!\n\n  I'LL go",
     "Hello| | world|!!\n\n| | I|'LL| go"},
    {{"gpt-4o"}, "Hello  world!!\n\n  I'LL go", "Hello| | world|!!\n\n| | I'LL| go"},
    {{"laguna"}, "Hello  world!!\n\n  I'LL go", "Hello| | world|!!|\n\n| | I|'LL| go"},

    {{"gpt-2"}, "don't 12345 x=3.14;\r\n\tret", "don|'t| 12345| x|=|3|.|14|;|\r\n|\t|ret"},
    {{"qwen2", "qwen35"},
     "don't 12345 x=3.14;\r\n\tret",
     "don|'t| |1|2|3|4|5| x|=|3|.|1|4|;\r\n|\tret"},
    {{"llama-bpe", "deepseek-v3", "smaug-bpe"},
     "don't 12345 x=3.14;\r\n\tret",
     "don|'t| |123|45| x|=|3|.|14|;\r\n|\tret"},
    {{"gpt-4o"}, "don't 12345 x=3.14;\r\n\tret", "don't| |123|45| x|=|3|.|14|;\r\n|\tret"},
    {{"laguna"}, "don't 12345 x=3.14;\r\n\tret", "don|'t| |1|2|3|4|5| x|=|3|.|1|4|;|\r\n|\tret"},
    {{"starcoder"}, "a 12b", "a| |1|2|b"},

    {{"qwen2", "llama-bpe", "laguna"},
     "e\u0301a naïve CamelCaseHTML's",
     "e|\u0301a| naïve| CamelCaseHTML|'s"},
    {{"qwen35", "deepseek-v3"},
     "e\u0301a naïve CamelCaseHTML's",
     "e\u0301a| naïve| CamelCaseHTML|'s"},
    {{"gpt-4o"}, "e\u0301a naïve CamelCaseHTML's", "e\u0301a| naïve| Camel|Case|HTML's"},
    {{"tekken"}, "e\u0301a naïve CamelCaseHTML's", "e\u0301a| naïve| Camel|Case|HTML|'s"},

    {{"qwen2", "laguna"}, "हिन्दी ٣٤٥", "ह|\u093Fन|\u094Dद|\u0940| |٣|٤|٥"},
    {{"qwen35"}, "हिन्दी ٣٤٥", "हिन्दी| |٣|٤|٥"},
    {{"llama-bpe"}, "हिन्दी ٣٤٥", "ह|\u093Fन|\u094Dद|\u0940| |٣٤٥"},
    {{"gpt-4o", "deepseek-v3"}, "हिन्दी ٣٤٥", "हिन्दी| |٣٤٥"},

    {{"qwen2", "qwen35", "laguna"}, "你好世界123 こんにちは。", "你好世界|1|2|3| こんにちは|。"},
    {{"llama-bpe", "gpt-4o"}, "你好世界123 こんにちは。", "你好世界|123| こんにちは|。"},
    {{"deepseek-v3"}, "你好世界123 こんにちは。", "你好世界|123| |こんにちは|。"},

    {{"qwen2", "qwen35", "llama-bpe", "gpt-4o", "deepseek-v3", "gpt-2"},
     "  \n \n x  ",
     "  \n \n| x|  "},
    {{"laguna"}, "  \n \n x  ", "  |\n| |\n| x|  "},

    {{"qwen2", "qwen35", "llama-bpe", "gpt-4o", "deepseek-v3", "laguna"},
     "//path/to\n#if(x){}",
     "//|path|/to|\n|#if|(x|){}"},
    {{"gpt-2"}, "//path/to\n#if(x){}", "//|path|/|to|\n|#|if|(|x|){}"},

    {{"qwen2", "qwen35", "llama-bpe"}, "a\u00A0b\u3000c", "a|\u00A0b|\u3000c"},
    {{"gpt-2"}, "a\u00A0b\u3000c", "a|\u00A0|b|\u3000|c"},

    // (?i:'s) takes the long s.
    {{"qwen2", "qwen35"}, "it'\u017F it'S", "it|'\u017F| it|'S"},
    {{"deepseek-r1-qwen"}, "a1", "a|1"},
};

static void test_measured(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
        const struct measured *m = &measured[i];
        for (int k = 0; k < 6 && m->names[k]; k++) {
            struct pieces p = {0};
            run(m->names[k], m->text, strlen(m->text), &p);
            assert_string_equal(p.joined.data, m->pieces);
            pieces_fini(&p);
        }
    }
}

// The 25 White_Space characters behave as white space in front of a newline; U+180E, U+200B and
// U+FEFF do not: they are symbols and end the run.
static void test_white_space(void **state) {
    (void)state;
    static const char *const spaces[] = {
        "\t",     "\v",     "\f",     " ",      "\xC2\x85", "\u00A0", "\u1680", "\u2000",
        "\u2001", "\u2002", "\u2003", "\u2004", "\u2005",   "\u2006", "\u2007", "\u2008",
        "\u2009", "\u200A", "\u2028", "\u2029", "\u202F",   "\u205F", "\u3000"};
    static const char *const others[] = {"\u180E", "\u200B", "\uFEFF"};
    char text[32], want[32];
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        struct pieces p = {0};
        snprintf(text, sizeof text, "a%s%s\nb", spaces[i], spaces[i]);
        snprintf(want, sizeof want, "a|%s%s\n|b", spaces[i], spaces[i]);
        run("qwen35", text, strlen(text), &p);
        assert_string_equal(p.joined.data, want);
        pieces_fini(&p);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct pieces p = {0};
        snprintf(text, sizeof text, "1 %s\n", others[i]);
        snprintf(want, sizeof want, "1| %s\n", others[i]);
        run("qwen35", text, strlen(text), &p);
        assert_string_equal(p.joined.data, want);
        pieces_fini(&p);
    }
}

static void random_text(struct rng *r, struct str *s) {
    static const char *const parts[] = {"a",  "Z",    "é",  "ß", "9",      "٣",      " ",  "  ",
                                        "\n", "\r\n", "\t", "'", "'s",     "\u0301", "हि", "中",
                                        "か", "한",   "!!", "/", "\u00A0", "\u180E", "🦙", "\u200D",
                                        "<",  "|",    ".",  "Ǆ", "ǅ",      "ʰ",      "½",  "\0"};
    str_clear(s);
    for (uint32_t i = rng_below(r, 40); i > 0; i--) {
        const char *part = parts[rng_below(r, sizeof parts / sizeof *parts)];
        str_append(s, part, *part ? strlen(part) : 1);
    }
}

static void test_pieces_add_up(void **state) {
    (void)state;
    static const char *const names[] = {"qwen2",  "qwen35",      "gpt-2",  "llama-bpe", "gpt-4o",
                                        "tekken", "deepseek-v3", "laguna", "starcoder"};
    struct rng r = {7};
    struct str text = {0};
    for (int round = 0; round < 1000; round++) {
        random_text(&r, &text);
        struct pieces p = {0};
        run(names[round % 9], text.data ? text.data : "", text.len, &p);
        assert_int_equal(p.plain.len, text.len);
        assert_int_equal(p.empty, 0);
        if (text.len > 0)
            assert_memory_equal(p.plain.data, text.data, text.len);
        pieces_fini(&p);
    }
    str_fini(&text);
}

static void test_flags(void **state) {
    (void)state;
    struct split *s;
    assert_int_equal(split_create(&s, "llama-bpe", 9, NULL), 0);
    assert_true(split_rule_of(s)->whole_pieces && split_rule_of(s)->add_bos);
    split_destroy(s);
    assert_int_equal(split_create(&s, "qwen35", 6, NULL), 0);
    assert_false(split_rule_of(s)->whole_pieces || split_rule_of(s)->add_bos);
    split_destroy(s);
}

static void test_unknown_names(void **state) {
    (void)state;
    static const char *const names[] = {"", "qwen", "qwen3", "qwen35x", "qwen2 deepseek-r1-qwen",
                                        " "};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct split *s;
        struct err e = {0};
        assert_int_equal(split_create(&s, names[i], strlen(names[i]), &e), ERR_UNSUPPORTED);
        assert_null(s);
        assert_non_null(strstr(e.text, "qwen35"));
    }
}

static int refuse(void *arg, const char *piece, size_t n, struct err *e) {
    int *calls = arg;
    (void)piece;
    (void)n;
    return ++*calls == 2 ? err_set(e, ERR_MEMORY, "stop") : 0;
}

static void test_callback_error_stops(void **state) {
    (void)state;
    struct split *s;
    struct split_job *j;
    struct err e = {0};
    int calls = 0;
    assert_int_equal(split_create(&s, "laguna", 6, &e), 0);
    assert_int_equal(split_begin(&j, s, &e), 0);
    assert_int_equal(split_text(j, "a b\nc d", 7, refuse, &calls, &e), ERR_MEMORY);
    assert_int_equal(calls, 2);
    split_end(j);
    split_destroy(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_measured),      cmocka_unit_test(test_white_space),
        cmocka_unit_test(test_pieces_add_up), cmocka_unit_test(test_flags),
        cmocka_unit_test(test_unknown_names), cmocka_unit_test(test_callback_error_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
