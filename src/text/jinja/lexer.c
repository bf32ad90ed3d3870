// SPDX-License-Identifier: Apache-2.0
// The lexer; see lexer.h. It follows jinja2's: between tags everything is text, a tag ends at its
// end mark only while no bracket is open, and white space is cut where the signs and settings say
// so. Strings have Python's escapes; what begins like none of them stays as it is, and two halves
// of a surrogate pair become the character that they mean.
#include "text/jinja/lexer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/utf8.h"
#include "base/vec.h"
#include "text/jinja/container.h"
#include "text/tokenizer/norm.h"

// Reads `count` hexadecimal digits.
static bool read_hex(const char *s, size_t n, size_t count, uint32_t *code) {
    *code = 0;
    if (n < count)
        return false;
    for (size_t i = 0; i < count; i++) {
        int digit = hex_digit(s[i]);
        if (digit < 0)
            return false;
        *code = *code << 4 | (uint32_t)digit;
    }
    return true;
}

// The second half of a pair at s, joined to the first.
static size_t join_pair(const char *s, size_t n, uint32_t *code) {
    uint32_t low;
    if (*code < 0xD800 || *code >= 0xDC00 || n < 6 || s[0] != '\\' || s[1] != 'u' ||
        !read_hex(s + 2, n - 2, 4, &low) || low < 0xDC00 || low >= 0xE000)
        return 0;
    *code = 0x10000 + ((*code - 0xD800) << 10) + (low - 0xDC00);
    return 6;
}

// One escape after its backslash; returns the bytes that it takes, 0 when it is broken, and
// SIZE_MAX when it is none.
static size_t read_escape(const char *s, size_t n, uint32_t *code) {
    static const char letters[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
    const char *known = s[0] ? strchr(letters, s[0]) : NULL;
    if (known) {
        *code = (unsigned char)values[known - letters];
        return 1;
    }
    if (s[0] >= '0' && s[0] <= '7') {
        size_t i = 0;
        for (*code = 0; i < 3 && i < n && s[i] >= '0' && s[i] <= '7'; i++)
            *code = *code * 8 + (uint32_t)(s[i] - '0');
        return i;
    }
    size_t digits = s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : s[0] == 'U' ? 8 : 0;
    if (s[0] == 'N')
        return 0;
    if (!digits)
        return SIZE_MAX;
    if (!read_hex(s + 1, n - 1, digits, code) || *code > 0x10FFFF)
        return 0;
    return 1 + digits + join_pair(s + 1 + digits, n - 1 - digits, code);
}

static int unescape(struct jinja_context *c, const char *s, size_t n, struct jinja_value *out) {
    size_t mark = jinja_mark(c), plain = 0;
    int rc = 0;
    for (size_t at = 0; at < n && !rc;) {
        uint32_t code = 0;
        if (s[at] != '\\' || at + 1 >= n) {
            at++;
            continue;
        }
        size_t used = s[at + 1] == '\n' ? 1 : read_escape(s + at + 1, n - at - 1, &code);
        if (used == 0)
            return ERR_FORMAT;
        if (used != SIZE_MAX) {
            rc = jinja_put(c, s + plain, at - plain, true);
            if (!rc && s[at + 1] != '\n')
                rc = jinja_put_code(c, code, true);
            plain = at + 1 + used;
        }
        at += used == SIZE_MAX ? 2 : 1 + used;
    }
    if (!rc)
        rc = jinja_put(c, s + plain, n - plain, true);
    return rc ? rc : jinja_take(c, mark, out);
}

enum { BRACKETS = 256 };

struct lexer {
    struct jinja_context *c;
    struct jinja_tokens *tokens;
    const char *s; // newlines normalised, without the last one
    size_t n, at;
    int line;
    bool line_starting; // what was consumed last ends a line
    char open[BRACKETS];
    int n_open;
};

void jinja_tokens_fini(struct jinja_tokens *t) {
    free(t->list);
    *t = (struct jinja_tokens){0};
}

struct jinja_value jinja_constant(struct jinja_context *c, const char *bytes, size_t n) {
    struct jinja_value v = jinja_string(c, bytes, n, false);
    uint64_t hash;
    if (v.kind) {
        jinja_chars(v.as.s);
        jinja_hash(c, v, &hash);
    }
    return v;
}

static int fail_at_line(struct lexer *x, const char *what) {
    return jinja_fail(x->c, ERR_FORMAT, "line %d: %s", x->line, what);
}

static int add_token(struct lexer *x, struct jinja_token token) {
    struct jinja_tokens *t = x->tokens;
    if (vec_reserve(&t->list, &t->cap, t->n + 1, sizeof *t->list, NULL))
        return jinja_fail(x->c, ERR_MEMORY, "no memory for the tokens of a template");
    token.line = x->line;
    t->list[t->n++] = token;
    return x->c->e.code;
}

// Moves on, counting lines.
static void advance(struct lexer *x, size_t to) {
    for (; x->at < to; x->at++)
        x->line += x->s[x->at] == '\n';
}

static bool text_starts(const struct lexer *x, size_t at, const char *text) {
    size_t n = strlen(text);
    return x->n - at >= n && memcmp(x->s + at, text, n) == 0;
}

// Length of the white space character at s[at), 0 for none.
static size_t space_at(const char *s, size_t n, size_t at) {
    uint32_t code;
    int len = at < n ? utf8_decode(s + at, n - at, &code) : 0;
    return len > 0 && jinja_code_is_space(code) ? (size_t)len : 0;
}

static size_t skip_space(const struct lexer *x, size_t at) {
    for (size_t len; (len = space_at(x->s, x->n, at)) > 0;)
        at += len;
    return at;
}

// The end of s[from, to) without trailing white space.
static size_t cut_space(const char *s, size_t from, size_t to) {
    while (to > from) {
        size_t at = to - 1;
        while (at > from && ((unsigned char)s[at] & 0xC0) == 0x80)
            at--;
        if (space_at(s, to, at) != to - at)
            break;
        to = at;
    }
    return to;
}

// The end of text s[from, to) before a tag with a sign ('-', '+' or 0).
static size_t cut_text(const struct lexer *x, size_t from, size_t to, char sign, bool print) {
    if (sign == '-')
        return cut_space(x->s, from, to);
    if (sign == '+' || print)
        return to;
    size_t line = to;
    while (line > from && x->s[line - 1] != '\n')
        line--;
    if (line == from && !x->line_starting)
        return to;
    return cut_space(x->s, line, to) == line ? line : to;
}

static int add_text(struct lexer *x, size_t from, size_t to) {
    if (from == to)
        return 0;
    return add_token(x,
                     (struct jinja_token){.type = TOKEN_DATA,
                                          .value = jinja_constant(x->c, x->s + from, to - from)});
}

// Where text after an end mark goes on: '-' eats white space, otherwise one newline goes.
static size_t after_mark(const struct lexer *x, size_t at, char sign) {
    if (sign == '-')
        return skip_space(x, at);
    return sign != '+' && at < x->n && x->s[at] == '\n' ? at + 1 : at;
}

static void consume_text(struct lexer *x, size_t to) {
    advance(x, to);
    x->line_starting = to > 0 && x->s[to - 1] == '\n';
}

static int lex_comment(struct lexer *x) {
    const char *end = memmem(x->s + x->at, x->n - x->at, "#}", 2);
    if (!end && x->at == x->n) // jinja2 sees nothing wrong then
        return 0;
    if (!end)
        return fail_at_line(x, "a comment {# has no end #}");
    size_t at = (size_t)(end - x->s);
    char sign = at > x->at && strchr("+-", x->s[at - 1]) ? x->s[at - 1] : 0;
    consume_text(x, after_mark(x, at + 2, sign));
    return 0;
}

// Whether "{% raw %}" stands at `at` (a "{%"); *after: where it ends.
static bool is_raw(const struct lexer *x, size_t at, const char *word, char *sign, char *end_sign,
                   size_t *after) {
    size_t p = at + 2;
    *sign = p < x->n && (x->s[p] == '-' || x->s[p] == '+') ? x->s[p] : 0;
    p = skip_space(x, p + (*sign != 0));
    if (!text_starts(x, p, word))
        return false;
    p = skip_space(x, p + strlen(word));
    *end_sign = p < x->n && (x->s[p] == '-' || x->s[p] == '+') ? x->s[p] : 0;
    p += *end_sign != 0;
    if (!text_starts(x, p, "%}"))
        return false;
    *after = p + 2;
    return true;
}

static int lex_raw(struct lexer *x, size_t from) {
    x->line_starting = from > 0 && x->s[from - 1] == '\n';
    advance(x, from);
    for (size_t at = from; at + 2 <= x->n; at++) {
        char sign, end_sign;
        size_t after;
        if (!text_starts(x, at, "{%") || !is_raw(x, at, "endraw", &sign, &end_sign, &after))
            continue;
        int rc = add_text(x, from, cut_text(x, from, at, sign, false));
        consume_text(x, after_mark(x, after, end_sign));
        return rc;
    }
    return from == x->n ? 0 : fail_at_line(x, "{% raw %} has no {% endraw %}");
}

static int lex_string(struct lexer *x) {
    size_t from = x->at + 1, at = from;
    char quote = x->s[x->at];
    while (at < x->n && x->s[at] != quote)
        at += x->s[at] == '\\' ? 2 : 1;
    if (at >= x->n)
        return fail_at_line(x, "a string has no closing quote");
    struct jinja_value v;
    int rc = unescape(x->c, x->s + from, at - from, &v);
    if (rc == ERR_FORMAT)
        return fail_at_line(x, "a string has an escape that Python does not know");
    if (!rc)
        rc = add_token(
            x, (struct jinja_token){.type = TOKEN_STRING,
                                    .value = jinja_constant(x->c, v.as.s->bytes, v.as.s->n)});
    advance(x, at + 1);
    return rc;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// Whether a name, which is ASCII, may have this character, at its beginning or later.
static bool in_name(char c, bool begins) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!begins && is_digit(c));
}

// Digits with single underscores between them.
static size_t skip_digits(const struct lexer *x, size_t at) {
    while (at < x->n &&
           (is_digit(x->s[at]) || (x->s[at] == '_' && at > 0 && is_digit(x->s[at - 1]) &&
                                   at + 1 < x->n && is_digit(x->s[at + 1]))))
        at++;
    return at;
}

// The end of a float at x->at, or 0.
static size_t float_end(const struct lexer *x) {
    if (x->at > 0 && x->s[x->at - 1] == '.')
        return 0;
    size_t whole = skip_digits(x, x->at), at = whole;
    if (at + 1 < x->n && x->s[at] == '.' && is_digit(x->s[at + 1]))
        at = skip_digits(x, at + 1);
    if (at < x->n && (x->s[at] | 0x20) == 'e') {
        size_t e = at + 1;
        e += e < x->n && (x->s[e] == '+' || x->s[e] == '-');
        if (e < x->n && is_digit(x->s[e]))
            return skip_digits(x, e);
    }
    return at > whole ? at : 0;
}

static int lex_number(struct lexer *x) {
    size_t end = float_end(x);
    struct jinja_token token = {.type = TOKEN_NUMBER};
    bool good, over = false;
    if (end) {
        token.value = jinja_float(0, false);
        good = jinja_parse_float(x->s + x->at, end - x->at, &token.value.as.d);
    } else {
        end = skip_digits(x, x->at);
        if (x->s[x->at] == '0') // nothing but more of them may follow
            for (end = x->at + 1; end < x->n && x->s[end] == '0';)
                end++;
        if (end == x->at + 1 && end < x->n && memchr("xXoObB", x->s[end], 6))
            return fail_at_line(x, "an integer in another base than ten is not supported here");
        token.value = jinja_int(0);
        good = jinja_parse_integer(x->s + x->at, end - x->at, &token.value.as.i, &over);
    }
    if (over)
        return fail_at_line(x, "an integer beyond 64 bits is not supported here");
    if (!good)
        return fail_at_line(x, "a number is written wrongly or too long");
    x->at = end;
    return add_token(x, token);
}

static int lex_name(struct lexer *x) {
    size_t end = x->at + 1;
    while (end < x->n && in_name(x->s[end], false))
        end++;
    int rc = add_token(
        x, (struct jinja_token){.type = TOKEN_NAME,
                                .value = jinja_constant(x->c, x->s + x->at, end - x->at)});
    x->at = end;
    return rc;
}

static int lex_bracket(struct lexer *x, char op) {
    static const char opening[] = "([{", closing[] = ")]}";
    const char *open = strchr(opening, op), *close = strchr(closing, op);
    if (open) {
        if (x->n_open == BRACKETS)
            return fail_at_line(x, "brackets nest too deep");
        x->open[x->n_open++] = closing[open - opening];
    } else if (close && (x->n_open == 0 || x->open[--x->n_open] != op)) {
        return jinja_fail(x->c, ERR_FORMAT, "line %d: unexpected '%c'", x->line, op);
    }
    return 0;
}

// What stands at x->at is no part of a tag. Besides ASCII its number is told, since many a
// character looks like another or like nothing.
static int unexpected(struct lexer *x) {
    uint32_t code = 0;
    int len = utf8_decode(x->s + x->at, x->n - x->at, &code);
    char number[16] = "", shown[8] = "";
    if (code <= ' ' || code >= 0x7F)
        snprintf(number, sizeof number, " U+%04X", (unsigned)code);
    if (norm_is_printable(code))
        snprintf(shown, sizeof shown, " '%.*s'", len, x->s + x->at);
    return jinja_fail(x->c, ERR_FORMAT, "line %d: unexpected character%s%s", x->line, number,
                      shown);
}

static int lex_operator(struct lexer *x) {
    static const struct {
        const char *text;
        char op;
    } twos[] = {{"//", OP_FLOORDIV}, {"**", OP_POW}, {"==", OP_EQ},
                {"!=", OP_NE},       {">=", OP_GE},  {"<=", OP_LE}};
    char op = x->s[x->at];
    size_t n = 1;
    for (size_t i = 0; i < sizeof twos / sizeof *twos && n == 1; i++)
        if (text_starts(x, x->at, twos[i].text)) {
            op = twos[i].op;
            n = 2;
        }
    if (n == 1 && !memchr("+-/*%~[](){}><=.:|,;", op, 20))
        return unexpected(x);
    int rc = n == 1 ? lex_bracket(x, op) : 0;
    if (!rc)
        rc = add_token(x, (struct jinja_token){.type = TOKEN_OPERATOR, .op = op});
    x->at += n;
    return rc;
}

// The end mark of the tag at x->at when one stands there; *sign is its sign.
static bool at_end_mark(const struct lexer *x, bool print, char *sign) {
    *sign = 0;
    if (x->n_open > 0)
        return false;
    const char *mark = print ? "}}" : "%}";
    if (text_starts(x, x->at, mark))
        return true;
    *sign = x->s[x->at];
    return (*sign == '-' || (*sign == '+' && !print)) && text_starts(x, x->at + 1, mark);
}

static int lex_tag(struct lexer *x, bool print) {
    int rc =
        add_token(x, (struct jinja_token){.type = print ? TOKEN_PRINT_BEGIN : TOKEN_BLOCK_BEGIN});
    while (!rc && x->at < x->n) {
        char sign, ch = x->s[x->at];
        size_t space = space_at(x->s, x->n, x->at);
        if (at_end_mark(x, print, &sign)) {
            rc = add_token(x,
                           (struct jinja_token){.type = print ? TOKEN_PRINT_END : TOKEN_BLOCK_END});
            size_t end = x->at + 2 + (sign != 0);
            consume_text(x, print && sign != '-' ? end : after_mark(x, end, sign));
            return rc;
        }
        if (space)
            advance(x, x->at + space);
        else if (is_digit(ch))
            rc = lex_number(x);
        else if (in_name(ch, true))
            rc = lex_name(x);
        else if (ch == '"' || ch == '\'')
            rc = lex_string(x);
        else
            rc = lex_operator(x);
    }
    return rc; // the parser misses the end mark
}

static int lex_root(struct lexer *x) {
    size_t from = x->at, at = from;
    while (at + 1 < x->n && !(x->s[at] == '{' && strchr("{%#", x->s[at + 1]) && x->s[at + 1]))
        at++;
    if (at + 1 >= x->n) {
        int rc = add_text(x, from, x->n);
        consume_text(x, x->n);
        return rc;
    }
    char kind = x->s[at + 1], sign = 0, end_sign;
    size_t after = at + 2;
    bool raw = kind == '%' && is_raw(x, at, "raw", &sign, &end_sign, &after) && end_sign != '+';
    if (!raw) {
        after = at + 2;
        sign = after < x->n && (x->s[after] == '-' || x->s[after] == '+') ? x->s[after] : 0;
        after += sign != 0;
    }
    int rc = add_text(x, from, cut_text(x, from, at, sign, kind == '{'));
    if (rc)
        return rc;
    if (raw) {
        advance(x, after);
        return lex_raw(x, end_sign == '-' ? skip_space(x, after) : after);
    }
    consume_text(x, after);
    return kind == '#' ? lex_comment(x) : lex_tag(x, kind == '{');
}

// Newlines are "\n", and the last one goes.
static int normalise_lines(struct lexer *x, const char *text, size_t n) {
    char *s = jinja_alloc(x->c, n + 1);
    if (!s)
        return x->c->e.code;
    for (size_t i = 0; i < n; i++) {
        bool pair = text[i] == '\r' && i + 1 < n && text[i + 1] == '\n';
        if (!pair)
            s[x->n++] = text[i] == '\r' ? '\n' : text[i];
    }
    x->n -= x->n > 0 && s[x->n - 1] == '\n';
    s[x->n] = 0;
    x->s = s;
    return 0;
}

int jinja_lex(struct jinja_context *c, const char *text, size_t n, struct jinja_tokens *t) {
    struct lexer x = {.c = c, .tokens = t, .line = 1, .line_starting = true};
    int rc = normalise_lines(&x, text, n);
    while (!rc && x.at < x.n)
        rc = lex_root(&x);
    return rc ? rc : add_token(&x, (struct jinja_token){.type = TOKEN_END});
}
