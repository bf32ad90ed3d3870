// SPDX-License-Identifier: Apache-2.0
// GBNF, the notation of llama.cpp's grammars: `name ::= alternatives`, "texts", [classes], groups,
// *, +, ?, {n}, {n,}, {n,m}, any code point by a dot, comments after #. A rule goes on over line
// ends inside of parentheses and after ::= and |. The text is what `root` says.
#include <string.h>

#include "base/map.h"
#include "base/num.h"
#include "base/utf8.h"
#include "grammar/expression/build.h"
#include "grammar/expression/expr.h"

enum { DEPTH = 200, NAME = 128 };

struct gbnf {
    struct build *b;
    const char *text;
    size_t n, at;
    int depth;
    struct map rules; // name -> number; names are in the text
};

static uint32_t refuse_line(struct gbnf *g, int code, const char *what) {
    int line = 1;
    for (size_t i = 0; i < g->at && i < g->n; i++)
        line += g->text[i] == '\n';
    return build_fail(g->b, code, "line %d of the grammar: %s", line, what);
}

static char peek_byte(const struct gbnf *g) {
    return g->at < g->n ? g->text[g->at] : '\0';
}

static bool take_mark(struct gbnf *g, char c) {
    bool is = g->at < g->n && g->text[g->at] == c;
    g->at += is;
    return is;
}

// Blanks and comments, line ends too where a rule may go on after them.
static void skip_blanks(struct gbnf *g, bool lines) {
    while (g->at < g->n) {
        char c = peek_byte(g);
        if (c == '#') {
            while (g->at < g->n && peek_byte(g) != '\n' && peek_byte(g) != '\r')
                g->at++;
        } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
            g->at++;
        } else {
            return;
        }
    }
}

static bool in_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

// The number of the rule whose name comes next.
static uint32_t rule_name(struct gbnf *g) {
    size_t from = g->at;
    uint32_t rule;
    while (g->at < g->n && in_name(peek_byte(g)))
        g->at++;
    size_t n = g->at - from;
    if (n == 0 || n > NAME)
        return refuse_line(g, ERR_FORMAT,
                           n ? "a name is longer than 128 bytes"
                             : "a name, a text, a class or a group should stand here");
    if (map_find(&g->rules, g->text + from, n, &rule))
        return rule;
    char name[NAME + 1];
    memcpy(name, g->text + from, n);
    name[n] = '\0';
    rule = build_rule(g->b, name);
    if (!g->b->e.code && map_insert(&g->rules, g->text + from, n, rule) < 0)
        build_fail(g->b, ERR_MEMORY, "no memory for the rules of a grammar");
    return rule;
}

static uint32_t hex_digits(struct gbnf *g, int n) {
    uint32_t code = 0;
    for (int i = 0; i < n; i++, g->at++) {
        int digit = hex_digit(peek_byte(g));
        if (digit < 0)
            return refuse_line(g, ERR_FORMAT, "an escape has too few hexadecimal digits");
        code = code * 16 + (uint32_t)digit;
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
        return refuse_line(g, ERR_FORMAT, "an escape names no code point");
    return code;
}

// The next code point of a text or class, escaped or not.
static uint32_t code_point(struct gbnf *g) {
    static const char letters[] = "tnr\\\"[]", codes[] = "\t\n\r\\\"[]";
    uint32_t code = 0;
    if (!take_mark(g, '\\')) {
        int len = utf8_decode(g->text + g->at, g->n - g->at, &code);
        if (g->at >= g->n || len <= 0)
            return refuse_line(g, ERR_FORMAT, "a text or class has no end, or is not UTF-8");
        g->at += (size_t)len;
        return code;
    }
    char c = peek_byte(g);
    const char *letter = c ? strchr(letters, c) : NULL;
    g->at++;
    if (letter)
        return (uint8_t)codes[letter - letters];
    if (c == 'x' || c == 'u' || c == 'U')
        return hex_digits(g, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    return refuse_line(g, ERR_FORMAT, "a backslash stands before what is no escape");
}

static uint32_t read_quoted(struct gbnf *g) {
    struct chars one = {0};
    struct build_list parts = {0};
    size_t from = g->at;
    while (g->at < g->n && peek_byte(g) != '"' && peek_byte(g) != '\\' && peek_byte(g) != '\n')
        g->at++;
    if (!utf8_valid(g->text + from, g->at - from))
        return refuse_line(g, ERR_FORMAT, "a text is not UTF-8");
    build_add(g->b, &parts, build_bytes(g->b, g->text + from, g->at - from));
    while (!g->b->e.code && !take_mark(g, '"')) {
        uint32_t code = code_point(g);
        chars_add(g->b, &one, &(struct build_chars){code, code}, 1);
        build_add(g->b, &parts, chars_class(g->b, &one, BUILD_PLAIN));
    }
    return build_list_seq(g->b, &parts);
}

static uint32_t read_class(struct gbnf *g) {
    struct chars set = {0};
    bool inverted = take_mark(g, '^');
    while (!g->b->e.code && !take_mark(g, ']')) {
        uint32_t lo = code_point(g), hi = lo;
        if (peek_byte(g) == '-' && g->at + 1 < g->n && g->text[g->at + 1] != ']') {
            g->at++;
            hi = code_point(g);
        }
        if (hi < lo)
            refuse_line(g, ERR_FORMAT, "a range in brackets has no order");
        chars_add(g->b, &set, &(struct build_chars){lo, hi}, 1);
    }
    if (inverted)
        chars_invert(g->b, &set);
    return chars_class(g->b, &set, BUILD_PLAIN);
}

static uint32_t read_alternatives(struct gbnf *g, bool lines);

static uint32_t read_group(struct gbnf *g) {
    if (g->depth >= DEPTH)
        return refuse_line(g, ERR_LIMIT, "groups are nested deeper than 200");
    g->depth++;
    skip_blanks(g, true);
    uint32_t x = read_alternatives(g, true);
    g->depth--;
    if (!take_mark(g, ')'))
        return refuse_line(g, ERR_FORMAT, "a group is not closed");
    return x;
}

static uint32_t read_atom(struct gbnf *g) {
    struct chars any = {0};
    if (take_mark(g, '"'))
        return read_quoted(g);
    if (take_mark(g, '['))
        return read_class(g);
    if (take_mark(g, '('))
        return read_group(g);
    if (!take_mark(g, '.'))
        return build_call(g->b, rule_name(g));
    chars_add(g->b, &any, &(struct build_chars){0, 0x10FFFF}, 1);
    return chars_class(g->b, &any, BUILD_PLAIN);
}

static bool read_count(struct gbnf *g, int64_t *n) {
    size_t from = g->at;
    skip_blanks(g, false);
    for (*n = 0, from = g->at; peek_byte(g) >= '0' && peek_byte(g) <= '9'; g->at++)
        *n = min_i64(*n * 10 + (peek_byte(g) - '0'), 1 << 30);
    bool has = g->at > from;
    skip_blanks(g, false);
    return has;
}

static uint32_t repeated(struct gbnf *g, uint32_t x) {
    int64_t min = 0, max = BUILD_ENDLESS;
    if (take_mark(g, '*'))
        return build_repeat(g->b, x, 0, BUILD_ENDLESS);
    if (take_mark(g, '+'))
        return build_repeat(g->b, x, 1, BUILD_ENDLESS);
    if (take_mark(g, '?'))
        return build_repeat(g->b, x, 0, 1);
    if (!take_mark(g, '{'))
        return x;
    bool has = read_count(g, &min);
    max = min;
    if (take_mark(g, ',')) {
        if (!read_count(g, &max))
            max = BUILD_ENDLESS;
        else
            has = true;
    }
    if (!has || !take_mark(g, '}') || (max != BUILD_ENDLESS && max < min))
        return refuse_line(g, ERR_FORMAT, "a repetition in braces is not {n}, {n,} or {n,m}");
    return build_repeat(g->b, x, min, max);
}

static bool sequence_goes_on(const struct gbnf *g) {
    char c = peek_byte(g);
    return g->at < g->n && c != '|' && c != ')' && c != '\n' && c != '\r';
}

static uint32_t read_sequence(struct gbnf *g, bool lines) {
    struct build_list parts = {0};
    skip_blanks(g, lines);
    while (!g->b->e.code && sequence_goes_on(g)) {
        uint32_t part = read_atom(g);
        skip_blanks(g, lines);
        while (!g->b->e.code && strchr("*+?{", peek_byte(g)) && peek_byte(g)) {
            part = repeated(g, part);
            skip_blanks(g, lines);
        }
        build_add(g->b, &parts, part);
    }
    return build_list_seq(g->b, &parts);
}

// lines: inside of parentheses, where a line end ends nothing.
static uint32_t read_alternatives(struct gbnf *g, bool lines) {
    struct build_list list = {0};
    do {
        if (list.count)
            skip_blanks(g, true);
        build_add(g->b, &list, read_sequence(g, lines));
    } while (!g->b->e.code && take_mark(g, '|'));
    return build_list_alt(g->b, &list);
}

static void read_rule(struct gbnf *g) {
    uint32_t rule = rule_name(g);
    skip_blanks(g, false);
    if (g->b->e.code)
        return;
    if (g->n - g->at < 3 || memcmp(g->text + g->at, "::=", 3) != 0) {
        refuse_line(g, ERR_FORMAT, "'::=' should stand after the rule's name");
        return;
    }
    if (g->b->rules[rule].defined) {
        refuse_line(g, ERR_FORMAT, "the rule is defined twice");
        return;
    }
    g->at += 3;
    skip_blanks(g, true);
    build_define(g->b, rule, read_alternatives(g, false));
    if (!g->b->e.code && g->at < g->n && peek_byte(g) != '\n' && peek_byte(g) != '\r')
        refuse_line(g, ERR_FORMAT, "a group is closed that was not opened");
}

int grammar_from_gbnf(struct grammar **out, const char *text, size_t n, struct grammar_work *work,
                      struct err *e) {
    struct gbnf g = {.text = text, .n = n};
    uint32_t root;
    *out = NULL;
    int rc = build_create(&g.b, work, n, e);
    if (rc)
        return rc;
    for (skip_blanks(&g, true); !g.b->e.code && g.at < n; skip_blanks(&g, true))
        read_rule(&g);
    if (!g.b->e.code && !map_find(&g.rules, "root", 4, &root))
        build_fail(g.b, ERR_FORMAT, "the grammar has no rule 'root'");
    rc = build_error(g.b, e);
    if (!rc)
        rc = build_finish(g.b, build_call(g.b, root), out, e);
    map_fini(&g.rules);
    build_destroy(g.b);
    return rc;
}
