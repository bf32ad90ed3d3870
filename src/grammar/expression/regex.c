// SPDX-License-Identifier: Apache-2.0
// Regular expressions as JSON Schema uses them (ECMA-262, with the u flag): literals, classes, . ,
// |, groups, greedy and lazy repetitions (the same language), ^ and $ at the ends of an
// alternative, or of a group that is such an end. Look-around, back references, \b and \p are
// refused by name. The reader goes down by recursion, to a bounded depth.
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/utf8.h"
#include "grammar/expression/build.h"
#include "grammar/expression/expr.h"

enum { DEPTH = 200, LAST_CODE = 0x10FFFF };

struct regex {
    struct build *b;
    const char *text, *where;
    size_t n, at;
    enum build_coding coding;
    int depth;
    uint32_t any; // any text; 0: not made yet
};

// What lies before and after an alternative: more of the expression, so that no anchor can stand
// there; any text, unless one does; the end of the text, where one says nothing new.
enum side { INSIDE, OPEN, EDGE };
struct sides {
    enum side before, after;
};

static uint32_t refuse_regex(struct regex *r, int code, const char *what) {
    return build_fail(r->b, code, "%s: %s, at byte %zu of it", r->where, what, r->at + 1);
}

static bool next_is(const struct regex *r, const char *s) {
    size_t n = strlen(s);
    return r->n - r->at >= n && memcmp(r->text + r->at, s, n) == 0;
}

static bool take_code_point(struct regex *r, const char *s) {
    bool is = next_is(r, s);
    r->at += is ? strlen(s) : 0;
    return is;
}

// The next code point as it stands; 0 after the end is an error.
static uint32_t code_point(struct regex *r) {
    uint32_t code = 0;
    if (r->at >= r->n)
        return refuse_regex(r, ERR_FORMAT, "it ends too early");
    int len = utf8_decode(r->text + r->at, r->n - r->at, &code);
    if (len <= 0)
        return refuse_regex(r, ERR_FORMAT, "it is not UTF-8");
    r->at += (size_t)len;
    return code;
}

static uint32_t hex_digits(struct regex *r, int max, const char *until) {
    uint32_t code = 0;
    int n = 0;
    for (; n < max && r->at < r->n && hex_digit(r->text[r->at]) >= 0; n++)
        code = code * 16 + (uint32_t)hex_digit(r->text[r->at++]);
    if (n == 0 || (*until ? !take_code_point(r, until) : n < max) || code > LAST_CODE)
        return refuse_regex(r, ERR_FORMAT, "an escape has no valid hexadecimal number");
    return code;
}

// \uXXXX, a pair of them, or \u{X...}.
static uint32_t unicode_escape(struct regex *r) {
    if (take_code_point(r, "{"))
        return hex_digits(r, 6, "}");
    uint32_t code = hex_digits(r, 4, "");
    if (code < 0xD800 || code > 0xDBFF || !take_code_point(r, "\\u"))
        return code;
    uint32_t low = hex_digits(r, 4, "");
    if (low < 0xDC00 || low > 0xDFFF)
        return refuse_regex(r, ERR_FORMAT, "half a surrogate pair stands alone");
    return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
}

// A control character by its letter.
static uint32_t control_escape(struct regex *r) {
    char c = r->at < r->n ? (char)(r->text[r->at] | 32) : '\0';
    if (c < 'a' || c > 'z')
        return refuse_regex(r, ERR_FORMAT, "\\c stands before what is no letter");
    return code_point(r) & 31;
}

static const struct build_chars digits[] = {{'0', '9'}};
static const struct build_chars words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const struct build_chars spaces[] = {
    {9, 13},          {32, 32},         {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
    {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
static const struct build_chars line_ends[] = {{10, 10}, {13, 13}, {0x2028, 0x2029}};

// The set of \d, \w, \s and their complements; false: the letter is none of these.
static bool class_escape(struct regex *r, char letter, struct chars *set) {
    struct chars some = {0};
    if (letter == 'd' || letter == 'D')
        chars_add(r->b, &some, digits, 1);
    else if (letter == 'w' || letter == 'W')
        chars_add(r->b, &some, words, 4);
    else if (letter == 's' || letter == 'S')
        chars_add(r->b, &some, spaces, sizeof spaces / sizeof *spaces);
    else
        return false;
    if (letter < 'a')
        chars_invert(r->b, &some);
    chars_add(r->b, set, some.ranges, (size_t)some.count);
    free(some.ranges);
    return true;
}

// A code point after a backslash; the backslash is read.
static uint32_t escaped(struct regex *r, bool in_class) {
    char c = r->at < r->n ? r->text[r->at] : '\0';
    static const char letters[] = "tnvfr0", codes[] = "\t\n\v\f\r";
    const char *letter = c ? strchr(letters, c) : NULL;
    if (letter) {
        r->at++;
        if (c == '0' && r->at < r->n && r->text[r->at] >= '0' && r->text[r->at] <= '9')
            return refuse_regex(r, ERR_UNSUPPORTED, "octal escapes are not supported");
        return c == '0' ? 0 : (uint32_t)codes[letter - letters];
    }
    if (take_code_point(r, "x"))
        return hex_digits(r, 2, "");
    if (take_code_point(r, "u"))
        return unicode_escape(r);
    if (take_code_point(r, "c"))
        return control_escape(r);
    if (c == 'b' && in_class) {
        r->at++;
        return 8;
    }
    if (c == 'b' || c == 'B')
        return refuse_regex(r, ERR_UNSUPPORTED, "word boundaries (\\b) are not supported");
    if (c == 'p' || c == 'P')
        return refuse_regex(r, ERR_UNSUPPORTED, "Unicode properties (\\p) are not supported");
    if ((c >= '1' && c <= '9') || c == 'k')
        return refuse_regex(r, ERR_UNSUPPORTED, "back references are not supported");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return refuse_regex(r, ERR_FORMAT, "a letter after a backslash means nothing");
    return code_point(r);
}

// A code point, or one end of a range in [...]. *was_set: it was a set of its own, which was added.
static uint32_t read_class_item(struct regex *r, struct chars *set, bool *was_set, bool in_class) {
    *was_set = false;
    if (!take_code_point(r, "\\"))
        return code_point(r);
    if (r->at < r->n && class_escape(r, r->text[r->at], set)) {
        r->at++;
        *was_set = true;
        return 0;
    }
    return escaped(r, in_class);
}

static uint32_t read_class(struct regex *r) {
    struct chars set = {0};
    bool inverted = take_code_point(r, "^"), from_set, to_set;
    while (!r->b->e.code && !take_code_point(r, "]")) {
        uint32_t lo = read_class_item(r, &set, &from_set, true), hi = lo;
        if (next_is(r, "-") && !next_is(r, "-]")) {
            r->at++;
            hi = read_class_item(r, &set, &to_set, true);
            if (from_set || to_set || hi < lo)
                refuse_regex(r, ERR_FORMAT, "a range in brackets has no order");
        }
        if (!from_set)
            chars_add(r->b, &set, &(struct build_chars){lo, hi}, 1);
    }
    if (inverted)
        chars_invert(r->b, &set);
    return chars_class(r->b, &set, r->coding);
}

static uint32_t read_alternatives(struct regex *r, struct sides s);

static uint32_t read_group(struct regex *r, struct sides s) {
    if (take_code_point(r, "?=") || take_code_point(r, "?!") || take_code_point(r, "?<=") ||
        take_code_point(r, "?<!"))
        return refuse_regex(r, ERR_UNSUPPORTED, "look-ahead and look-behind are not supported");
    if (take_code_point(r, "?<")) {
        while (r->at < r->n && r->text[r->at] != '>')
            r->at++;
        take_code_point(r, ">");
    } else if (next_is(r, "?") && !take_code_point(r, "?:")) {
        return refuse_regex(r, ERR_UNSUPPORTED,
                            "groups with (? are not supported, but (?: and (?<name>");
    }
    if (r->depth >= DEPTH)
        return refuse_regex(r, ERR_LIMIT, "groups are nested deeper than 200");
    r->depth++;
    uint32_t x = read_alternatives(r, s);
    r->depth--;
    if (!take_code_point(r, ")"))
        return refuse_regex(r, ERR_FORMAT, "a group is not closed");
    return x;
}

static uint32_t read_atom(struct regex *r) {
    if (take_code_point(r, "["))
        return read_class(r);
    if (take_code_point(r, ".")) {
        struct chars set = {0};
        chars_add(r->b, &set, line_ends, 3);
        chars_invert(r->b, &set);
        return chars_class(r->b, &set, r->coding);
    }
    if (next_is(r, "*") || next_is(r, "+") || next_is(r, "?") || next_is(r, "{"))
        return refuse_regex(r, ERR_FORMAT, "there is nothing to repeat");
    if (next_is(r, "^") || next_is(r, "$"))
        return refuse_regex(r, ERR_UNSUPPORTED, "^ and $ are supported only at the ends");
    struct chars set = {0};
    bool was_set;
    uint32_t code = read_class_item(r, &set, &was_set, false);
    if (!was_set)
        chars_add(r->b, &set, &(struct build_chars){code, code}, 1);
    return chars_class(r->b, &set, r->coding);
}

static bool read_count(struct regex *r, int64_t *n) {
    size_t from = r->at;
    *n = 0;
    for (; r->at < r->n && r->text[r->at] >= '0' && r->text[r->at] <= '9'; r->at++)
        *n = min_i64(*n * 10 + (r->text[r->at] - '0'), 1 << 30);
    return r->at > from;
}

static uint32_t repeated(struct regex *r, uint32_t x) {
    int64_t min = 1, max = 1;
    if (take_code_point(r, "*")) {
        min = 0;
        max = BUILD_ENDLESS;
    } else if (take_code_point(r, "+")) {
        max = BUILD_ENDLESS;
    } else if (take_code_point(r, "?")) {
        min = 0;
    } else if (take_code_point(r, "{")) {
        bool has = read_count(r, &min);
        max = min;
        if (has && take_code_point(r, ",") && !read_count(r, &max))
            max = BUILD_ENDLESS;
        if (!has || !take_code_point(r, "}") || (max != BUILD_ENDLESS && max < min))
            return refuse_regex(r, ERR_FORMAT, "a repetition in braces is not {n}, {n,} or {n,m}");
    } else {
        return x;
    }
    take_code_point(r, "?");
    return build_repeat(r->b, x, min, max);
}

static uint32_t any_text(struct regex *r) {
    static const struct build_chars all[] = {{0, LAST_CODE}};
    if (!r->any)
        r->any = build_repeat(r->b, build_class(r->b, all, 1, r->coding), 0, BUILD_ENDLESS);
    return r->any;
}

struct extent {
    size_t end;              // after the group, or 0 where it is not closed
    bool begins_at, ends_at; // it holds a ^, a $, which must be anchors
};

// Of the group that begins here.
static struct extent group_extent(const struct regex *r) {
    struct extent g = {0};
    int depth = 0;
    bool in_class = false;
    for (size_t i = r->at; i < r->n && !g.end; i++) {
        char c = r->text[i];
        if (c == '\\')
            i++;
        else if (in_class)
            in_class = c != ']';
        else if (c == '[')
            in_class = true;
        else if (c == '(')
            depth++;
        else if (c == ')' && --depth == 0)
            g.end = i + 1;
        else
            *(c == '^' ? &g.begins_at : &g.ends_at) |= c == '^' || c == '$';
    }
    build_work(r->b, (int64_t)((g.end ? g.end : r->n) - r->at) / 4);
    return g;
}

// The sides of the next part. A group with anchors that stands at an end of its alternative has
// that side itself, and *all has an edge there.
static struct sides part_sides(const struct regex *r, struct sides *all, bool first) {
    struct sides part = {INSIDE, INSIDE};
    struct extent g = next_is(r, "(") ? group_extent(r) : (struct extent){0};
    char next = g.end < r->n ? r->text[g.end] : '|';
    if (!g.end || memchr("*+?{", next, 4))
        return part;
    if (first && g.begins_at && all->before != INSIDE) {
        part.before = all->before;
        all->before = EDGE;
    }
    if (memchr("|)$", next, 3) && g.ends_at && all->after != INSIDE) {
        part.after = next == '$' ? EDGE : all->after;
        all->after = EDGE;
    }
    return part;
}

static bool take_all(struct regex *r, const char *s) {
    bool any = false;
    while (take_code_point(r, s))
        any = true;
    return any;
}

static uint32_t read_alternative(struct regex *r, struct sides s) {
    struct build *b = r->b;
    struct build_list parts = {0};
    bool first = true, begun = take_all(r, "^");
    if (begun && s.before == INSIDE)
        return refuse_regex(r, ERR_UNSUPPORTED, "^ is supported only at the beginning");
    s.before = begun ? EDGE : s.before;
    for (; !b->e.code && r->at < r->n && !next_is(r, "|") && !next_is(r, ")") && !next_is(r, "$");
         first = false) {
        struct sides part = part_sides(r, &s, first);
        build_add(b, &parts,
                  repeated(r, take_code_point(r, "(") ? read_group(r, part) : read_atom(r)));
    }
    uint32_t x = build_list_seq(b, &parts);
    bool ended = take_all(r, "$");
    if (ended && (s.after == INSIDE || (r->at < r->n && !next_is(r, "|") && !next_is(r, ")"))))
        return refuse_regex(r, ERR_UNSUPPORTED, "$ is supported only at the end");
    if (s.before == OPEN)
        x = build_cat(b, any_text(r), x);
    if (s.after == OPEN && !ended)
        x = build_cat(b, x, any_text(r));
    return x;
}

static uint32_t read_alternatives(struct regex *r, struct sides s) {
    struct build_list list = {0};
    do
        build_add(r->b, &list, read_alternative(r, s));
    while (!r->b->e.code && take_code_point(r, "|"));
    return build_list_alt(r->b, &list);
}

uint32_t build_regex(struct build *b, const char *text, size_t n, bool anchored,
                     enum build_coding coding, const char *where) {
    struct regex r = {.b = b, .text = text, .n = n, .where = where, .coding = coding};
    enum side end = anchored ? EDGE : OPEN;
    if (b->e.code)
        return BUILD_NEVER;
    uint32_t x = read_alternatives(&r, (struct sides){end, end});
    if (!b->e.code && r.at < n)
        return refuse_regex(&r, ERR_FORMAT, "a group is closed that was not opened");
    return x;
}

int grammar_from_regex(struct grammar **out, const char *text, size_t n, struct grammar_work *work,
                       struct err *e) {
    struct build *b;
    *out = NULL;
    int rc = build_create(&b, work, n, e);
    if (rc)
        return rc;
    uint32_t root = build_regex(b, text, n, true, BUILD_PLAIN, "the regular expression");
    rc = build_finish(b, root, out, e);
    build_destroy(b);
    return rc;
}
