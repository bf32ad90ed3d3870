// SPDX-License-Identifier: Apache-2.0
// One function for the family of expressions that most tokenizers use, told apart by a few
// parameters. Every run is followed to its end; when it ends at a byte outside ASCII that could
// have belonged to it, the answer is "undecided".
#include "text/split_ascii.h"

#include <string.h>

enum kind {
    UPPER = 1,
    LOWER = 2,
    DIGIT = 4,
    BLANK = 8, // white space that ends no line
    NEWLINE = 16,
    PUNCT = 32,
    CONTROL = 64,
    WIDE = 128, // part of a character outside ASCII
    LETTER = UPPER | LOWER,
    SYMBOL = PUNCT | CONTROL,
    SPACE = BLANK | NEWLINE,
};

static const unsigned char kinds[256] = {
    [0x00 ... 0x08] = CONTROL,
    ['\t'] = BLANK,
    ['\n'] = NEWLINE,
    [0x0B ... 0x0C] = BLANK,
    ['\r'] = NEWLINE,
    [0x0E ... 0x1F] = CONTROL,
    [' '] = BLANK,
    ['!' ... '/'] = PUNCT,
    ['0' ... '9'] = DIGIT,
    [':' ... '@'] = PUNCT,
    ['A' ... 'Z'] = UPPER,
    ['[' ... '`'] = PUNCT,
    ['a' ... 'z'] = LOWER,
    ['{' ... '~'] = PUNCT,
    [0x7F] = CONTROL,
    [0x80 ... 0xFF] = WIDE,
};

struct view {
    const unsigned char *s;
    size_t n;
};

// 0 behind the end.
static unsigned kind_at(const struct view *v, size_t i) {
    return i < v->n ? kinds[v->s[i]] : 0;
}

static size_t run(const struct view *v, size_t i, unsigned mask) {
    while (i < v->n && (kinds[v->s[i]] & mask))
        i++;
    return i;
}

// The functions below return the end of the match that begins at `at`, 0 when there is none of
// their kind, and UNDECIDED.
#define UNDECIDED ((size_t)-1)

static size_t settled(const struct view *v, size_t end) {
    return kind_at(v, end) & WIDE ? UNDECIDED : end;
}

static size_t contraction(const struct view *v, size_t at, bool any_case) {
    if (at + 1 >= v->n || v->s[at] != '\'')
        return 0;
    if (any_case && v->s[at + 1] >= 0x80)
        return UNDECIDED; // the long s matches an s
    unsigned fold = any_case ? 0x20 : 0;
    unsigned first = v->s[at + 1] | fold, second = at + 2 < v->n ? v->s[at + 2] | fold : 0;
    if (first == 's' || first == 't' || first == 'm' || first == 'd')
        return at + 2;
    bool two = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
               (first == 'l' && second == 'l');
    return two ? at + 3 : 0;
}

// The word whose first letter is at `at`.
static size_t word(const struct split_ascii *a, const struct view *v, size_t at) {
    size_t end = run(v, at, a->camel ? UPPER : LETTER);
    if (a->camel)
        end = run(v, end, LOWER);
    end = settled(v, end);
    if (end == UNDECIDED || a->contraction != SPLIT_BEHIND_WORD)
        return end;
    size_t longer = contraction(v, end, true);
    return longer ? longer : end;
}

// A word with the one character that may stand before it.
static size_t prefixed_word(const struct split_ascii *a, const struct view *v, size_t at) {
    unsigned kind = kind_at(v, at), next = kind_at(v, at + 1);
    if (kind & LETTER)
        return word(a, v, at);
    if (a->prefix == SPLIT_BLANK_BEFORE ? v->s[at] != ' ' : kind & (NEWLINE | DIGIT))
        return 0;
    if (a->prefix == SPLIT_NO_SYMBOL_BEFORE && (kind & PUNCT))
        return next & LETTER ? run(v, at + 1, LETTER) : 0;
    if (next & WIDE)
        return UNDECIDED;
    return next & LETTER ? word(a, v, at + 1) : 0;
}

static size_t number(const struct split_ascii *a, const struct view *v, size_t at) {
    if (a->digits == SPLIT_MANY_DIGITS) {
        size_t first = at + (v->s[at] == ' ');
        return kind_at(v, first) & DIGIT ? settled(v, run(v, first, DIGIT)) : 0;
    }
    size_t end = at;
    while (end - at < (size_t)a->digits && (kind_at(v, end) & DIGIT))
        end++;
    if (end > at && end - at < (size_t)a->digits)
        return settled(v, end);
    return end > at ? end : 0;
}

static size_t symbols(const struct split_ascii *a, const struct view *v, size_t at) {
    unsigned mask = a->prefix == SPLIT_NO_SYMBOL_BEFORE ? PUNCT : SYMBOL;
    size_t first = at + (v->s[at] == ' ');
    if (kind_at(v, first) & WIDE)
        return UNDECIDED;
    if (!(kind_at(v, first) & mask))
        return 0;
    size_t end = settled(v, run(v, first, mask));
    while (end < v->n && a->trail && v->s[end] && strchr(a->trail, v->s[end]))
        end++;
    return end;
}

// White space up to its last line end; else all of it but the last character, which the next
// match may take along, unless that would leave nothing or the text ends.
static size_t spaces(const struct split_ascii *a, const struct view *v, size_t at) {
    size_t end = run(v, at, SPACE), last = end;
    if (settled(v, end) == UNDECIDED)
        return UNDECIDED;
    while (a->newlines && last > at && !(kinds[v->s[last - 1]] & NEWLINE))
        last--;
    if (a->newlines && last > at)
        return last;
    return end == v->n || end - at <= 1 ? end : end - 1;
}

static size_t match(const struct split_ascii *a, const struct view *v, size_t at) {
    if (kind_at(v, at) & WIDE)
        return UNDECIDED;
    bool leading = a->contraction == SPLIT_EXACT_CASE || a->contraction == SPLIT_ANY_CASE;
    size_t end = leading ? contraction(v, at, a->contraction == SPLIT_ANY_CASE) : 0;
    if (!end)
        end = prefixed_word(a, v, at);
    if (!end && a->digits)
        end = number(a, v, at);
    if (!end)
        end = symbols(a, v, at);
    return end ? end : spaces(a, v, at);
}

enum split_ascii_found split_ascii_find(const struct split_ascii *a, const char *text, size_t n,
                                        size_t at, size_t span[2]) {
    struct view v = {(const unsigned char *)text, n};
    span[0] = at;
    if (a->kind == SPLIT_LINES) {
        bool line_end = text[at] == '\n';
        const char *next = line_end ? NULL : memchr(text + at, '\n', n - at);
        span[1] = next ? (size_t)(next - text) : n;
        if (line_end) {
            span[1] = at;
            while (span[1] < n && text[span[1]] == '\n')
                span[1]++;
        }
        return SPLIT_FOUND;
    }
    if (a->kind != SPLIT_WORDS) {
        span[0] =
            run(&v, at, a->kind == SPLIT_DIGITS ? (unsigned)~(DIGIT | WIDE) : ~(unsigned)WIDE);
        if (kind_at(&v, span[0]) & WIDE)
            return SPLIT_UNDECIDED;
        if (span[0] == n)
            return SPLIT_ABSENT;
        span[1] = number(a, &v, span[0]);
    } else {
        span[1] = match(a, &v, at);
    }
    return span[1] == UNDECIDED || span[1] <= span[0] ? SPLIT_UNDECIDED : SPLIT_FOUND;
}
