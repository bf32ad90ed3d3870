// SPDX-License-Identifier: Apache-2.0
// One function for the family of expressions that most tokenizers use, distinguished by a few
// parameters. Every run is followed to its end; when it ends at a byte outside ASCII that could
// have belonged to it, the answer is "undecided".
#include "text/tokenizer/rules.h"

#include <stdint.h>
#include <string.h>

enum {
    LETTER = SPLIT_LETTER,
    DIGIT = SPLIT_DIGIT,
    NEWLINE = SPLIT_NEWLINE,
    SPACE = SPLIT_SPACE,
    WIDE = SPLIT_WIDE,
    MARK = SPLIT_PUNCT | SPLIT_SIGN,
};

#define P SPLIT_PUNCT
#define G SPLIT_SIGN
static const uint16_t kinds[256] = {
    [0x00 ... 0x08] = SPLIT_CONTROL,
    ['\t'] = SPLIT_BLANK,
    ['\n'] = SPLIT_NEWLINE,
    [0x0B ... 0x0C] = SPLIT_BLANK,
    ['\r'] = SPLIT_NEWLINE,
    [0x0E ... 0x1F] = SPLIT_CONTROL,
    [' '] = SPLIT_BLANK,
    // clang-format off
    ['!'] = P, ['"'] = P, ['#'] = P, ['$'] = G, ['%'] = P, ['&'] = P, ['\''] = P, ['('] = P,
    [')'] = P, ['*'] = P, ['+'] = G, [','] = P, ['-'] = P, ['.'] = P, ['/'] = P, [':'] = P,
    [';'] = P, ['<'] = G, ['='] = G, ['>'] = G, ['?'] = P, ['@'] = P, ['['] = P, ['\\'] = P,
    [']'] = P, ['^'] = G, ['_'] = P, ['`'] = G, ['{'] = P, ['|'] = G, ['}'] = P, ['~'] = G,
    // clang-format on
    ['0' ... '9'] = SPLIT_DIGIT,
    ['A' ... 'Z'] = SPLIT_UPPER,
    ['a' ... 'z'] = SPLIT_LOWER,
    [0x7F] = SPLIT_CONTROL,
    [0x80 ... 0xFF] = SPLIT_WIDE,
};
#undef P
#undef G

struct view {
    const unsigned char *s;
    size_t n;
};

// 0 after the end.
static unsigned kind_at(const struct view *v, size_t i) {
    return i < v->n ? kinds[v->s[i]] : 0;
}

static size_t run_end(const struct view *v, size_t i, unsigned mask) {
    while (i < v->n && (kinds[v->s[i]] & mask))
        i++;
    return i;
}

// The functions below return the end of the match that begins at `at`, 0 when there is none of
// their kind, and UNDECIDED.
#define UNDECIDED ((size_t)-1)

static size_t decided(const struct view *v, size_t end) {
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
    size_t end = run_end(v, at, a->camel ? SPLIT_UPPER : LETTER);
    if (a->camel)
        end = run_end(v, end, SPLIT_LOWER);
    end = decided(v, end);
    if (end == UNDECIDED || a->contraction != SPLIT_AFTER_WORD)
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
    if (a->prefix == SPLIT_NO_SYMBOL_BEFORE && (kind & MARK))
        return next & LETTER ? run_end(v, at + 1, LETTER) : 0;
    if (next & WIDE)
        return UNDECIDED;
    return next & LETTER ? word(a, v, at + 1) : 0;
}

static size_t digits_end(const struct split_ascii *a, const struct view *v, size_t at) {
    if (a->digits == SPLIT_MANY_DIGITS) {
        size_t first = at + (v->s[at] == ' ');
        return kind_at(v, first) & DIGIT ? decided(v, run_end(v, first, DIGIT)) : 0;
    }
    size_t end = at;
    while (end - at < (size_t)a->digits && (kind_at(v, end) & DIGIT))
        end++;
    if (end > at && end - at < (size_t)a->digits)
        return decided(v, end);
    return end > at ? end : 0;
}

static size_t symbols(const struct split_ascii *a, const struct view *v, size_t at) {
    unsigned mask = a->prefix == SPLIT_NO_SYMBOL_BEFORE ? MARK : MARK | SPLIT_CONTROL;
    size_t first = at + (v->s[at] == ' ');
    if (kind_at(v, first) & WIDE)
        return UNDECIDED;
    if (!(kind_at(v, first) & mask))
        return 0;
    size_t end = decided(v, run_end(v, first, mask));
    while (end < v->n && a->trail && v->s[end] && strchr(a->trail, v->s[end]))
        end++;
    return end;
}

// White space up to its last line end; else all of it but the last character, which the next
// match may take along, unless that would leave nothing or the text ends.
static size_t spaces(const struct split_ascii *a, const struct view *v, size_t at) {
    size_t end = run_end(v, at, SPACE), last = end;
    if (decided(v, end) == UNDECIDED)
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
        end = digits_end(a, v, at);
    if (!end)
        end = symbols(a, v, at);
    return end ? end : spaces(a, v, at);
}

// A line, or the line ends between two.
static enum split_ascii_found find_line(const struct view *v, size_t at, struct split_span *span) {
    span->begin = at;
    if (v->s[at] == '\n') {
        for (span->end = at; span->end < v->n && v->s[span->end] == '\n';)
            span->end++;
        return SPLIT_FOUND;
    }
    const unsigned char *end = memchr(v->s + at, '\n', v->n - at);
    span->end = end ? (size_t)(end - v->s) : v->n;
    return SPLIT_FOUND;
}

// White space at the end of the text.
static enum split_ascii_found find_tail(const struct view *v, size_t at, struct split_span *span) {
    size_t begin = v->n;
    while (begin > at && (kinds[v->s[begin - 1]] & SPACE))
        begin--;
    if (begin > at && (kinds[v->s[begin - 1]] & WIDE))
        return SPLIT_UNDECIDED;
    span->begin = begin;
    span->end = v->n;
    return begin < v->n ? SPLIT_FOUND : SPLIT_ABSENT;
}

static enum split_ascii_found find_run(const struct split_ascii *a, const struct view *v, size_t at,
                                       struct split_span *span) {
    while (at < v->n) {
        size_t begin = run_end(v, at, ~(a->bytes | WIDE)), end = begin;
        if (kind_at(v, begin) & WIDE)
            return SPLIT_UNDECIDED;
        while (end - begin < (size_t)a->max && (kind_at(v, end) & a->bytes))
            end++;
        if (end - begin < (size_t)a->max && (kind_at(v, end) & WIDE))
            return SPLIT_UNDECIDED;
        if (end > begin && end - begin >= (size_t)a->min) {
            bool space = a->space_before && begin > at && (kinds[v->s[begin - 1]] & SPACE);
            unsigned before = space ? SPACE | SPLIT_LED : 0u;
            *span = (struct split_span){begin - space, end, a->bytes | before};
            return SPLIT_FOUND;
        }
        at = end;
    }
    return SPLIT_ABSENT;
}

enum split_ascii_found split_ascii_find(const struct split_ascii *a, const char *text, size_t n,
                                        size_t at, struct split_span *span) {
    struct view v = {(const unsigned char *)text, n};
    span->bytes = 0;
    if (a->kind == SPLIT_LINES)
        return find_line(&v, at, span);
    if (a->kind == SPLIT_TAIL)
        return find_tail(&v, at, span);
    if (a->kind == SPLIT_RUNS)
        return find_run(a, &v, at, span);
    span->begin = at;
    span->end = match(a, &v, at);
    return span->end == UNDECIDED || span->end <= at ? SPLIT_UNDECIDED : SPLIT_FOUND;
}

bool split_ascii_idle(const struct split_ascii *a, unsigned bytes) {
    if (!bytes)
        return false;
    if (a->kind == SPLIT_TAIL)
        return !(bytes & SPACE) || (bytes & SPLIT_LED);
    if (a->kind != SPLIT_RUNS)
        return false;
    unsigned taken = a->bytes;
    if ((bytes & SPLIT_LED) && a->space_before)
        taken |= SPACE | SPLIT_LED;
    return !(a->bytes & bytes) || (a->max == SPLIT_ANY_NUMBER && a->min == 1 && !(bytes & ~taken));
}
