// SPDX-License-Identifier: Apache-2.0
// Sets of code points as expressions over bytes. A range is cut where its ends do not fill whole
// trailing bytes, so that each piece is a sequence of byte ranges; inside of a JSON string a code
// point that needs an escape is written as one.
#include "grammar/expression/build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/utf8.h"
#include "base/vec.h"
#include "grammar/expression/expr.h"

struct pieces {
    struct build *b;
    uint32_t *list;
    int64_t count, cap;
};

static void add_piece(struct pieces *p, uint32_t piece) {
    if (vec_reserve(&p->list, &p->cap, p->count + 1, sizeof *p->list, &p->b->e) == 0)
        p->list[p->count++] = piece;
}

// Where [lo, hi] must be cut: the last code point of the first part, or hi. What a cut leaves may
// need another one: at its length, and at trailing bytes further ahead.
static uint32_t cut_at(uint32_t lo, uint32_t hi) {
    static const uint32_t lengths[] = {0x7F, 0x7FF, 0xD7FF, 0xFFFF};
    for (int i = 3; i >= 0; i--)
        if (lo <= lengths[i] && hi > lengths[i])
            hi = lengths[i];
    if (lo < 0x80)
        return hi;
    for (int bits = 6; bits <= 18; bits += 6) {
        uint32_t rest = (1u << bits) - 1;
        if ((lo & ~rest) == (hi & ~rest))
            break;
        if (lo & rest)
            return lo | rest;
        if ((hi & rest) != rest)
            hi = (hi & ~rest) - 1;
    }
    return hi;
}

static void add_utf8(struct pieces *p, uint32_t lo, uint32_t hi) {
    while (lo <= hi && !p->b->e.code) {
        char first[4], last[4];
        uint32_t parts[4], until = cut_at(lo, hi);
        int n = utf8_encode(first, lo);
        utf8_encode(last, until);
        for (int i = 0; i < n; i++)
            parts[i] = build_range(p->b, (uint8_t)first[i], (uint8_t)last[i]);
        add_piece(p, build_seq(p->b, parts, (size_t)n));
        lo = until + 1;
    }
}

static void add_escape(struct pieces *p, uint32_t code) {
    static const char letters[] = "btn\0fr"; // of U+0008 to U+000D
    char text[8];
    if (code == '"' || code == '\\')
        snprintf(text, sizeof text, "\\%c", (char)code);
    else if (code >= 8 && code <= 13 && letters[code - 8])
        snprintf(text, sizeof text, "\\%c", letters[code - 8]);
    else
        snprintf(text, sizeof text, "\\u%04x", (unsigned)code & 0xFFFF);
    add_piece(p, build_text(p->b, text));
}

// The part of [lo, hi] within [from, to].
static void add_within(struct pieces *p, struct build_chars r, uint32_t from, uint32_t to) {
    uint32_t lo = r.lo > from ? r.lo : from, hi = r.hi < to ? r.hi : to;
    if (lo <= hi)
        add_utf8(p, lo, hi);
}

static void add_coded(struct pieces *p, struct build_chars r, enum build_coding coding) {
    if (coding == BUILD_PLAIN) {
        add_within(p, r, 0, 0xD7FF);
    } else {
        for (uint32_t code = r.lo; code <= r.hi && code < 0x20; code++)
            add_escape(p, code);
        for (const char *c = "\"\\"; *c; c++)
            if (r.lo <= (uint32_t)*c && r.hi >= (uint32_t)*c)
                add_escape(p, (uint32_t)*c);
        add_within(p, r, 0x20, '"' - 1);
        add_within(p, r, '"' + 1, '\\' - 1);
        add_within(p, r, '\\' + 1, 0xD7FF);
    }
    add_within(p, r, 0xE000, 0x10FFFF);
}

uint32_t build_class(struct build *b, const struct build_chars *ranges, size_t n,
                     enum build_coding coding) {
    struct pieces p = {.b = b};
    for (size_t i = 0; i < n && !b->e.code; i++)
        add_coded(&p, ranges[i], coding);
    uint32_t all = build_alt(b, p.list, (size_t)p.count);
    free(p.list);
    return all;
}

static int by_start(const void *a, const void *b) {
    uint32_t x = ((const struct build_chars *)a)->lo, y = ((const struct build_chars *)b)->lo;
    return (x > y) - (x < y);
}

void chars_add(struct build *b, struct chars *set, const struct build_chars *ranges, size_t n) {
    int64_t all = set->count + (int64_t)n;
    if (b->e.code || n == 0 ||
        vec_reserve(&set->ranges, &set->cap, all, sizeof *set->ranges, &b->e))
        return;
    memcpy(set->ranges + set->count, ranges, n * sizeof *ranges);
    set->count = all;
}

// Rising order, and ranges that touch joined.
static void tidy(struct chars *set) {
    int64_t kept = 0;
    if (set->count == 0)
        return;
    qsort(set->ranges, (size_t)set->count, sizeof *set->ranges, by_start);
    for (int64_t i = 1; i < set->count; i++) {
        struct build_chars *last = &set->ranges[kept], next = set->ranges[i];
        if (next.lo > last->hi + 1)
            set->ranges[++kept] = next;
        else
            last->hi = next.hi > last->hi ? next.hi : last->hi;
    }
    set->count = kept + 1;
}

void chars_invert(struct build *b, struct chars *set) {
    struct chars gaps = {0};
    uint32_t from = 0;
    tidy(set);
    for (int64_t i = 0; i <= set->count && !b->e.code; i++) {
        bool end = i == set->count;
        uint32_t until = end ? 0x110000 : set->ranges[i].lo;
        if (until > from)
            chars_add(b, &gaps, &(struct build_chars){from, until - 1}, 1);
        from = end ? from : set->ranges[i].hi + 1;
    }
    free(set->ranges);
    *set = gaps;
}

uint32_t chars_class(struct build *b, struct chars *set, enum build_coding coding) {
    tidy(set);
    uint32_t x = build_class(b, set->ranges, (size_t)set->count, coding);
    free(set->ranges);
    *set = (struct chars){0};
    return x;
}

// Text that does not hold another text, with a least and a greatest length: the places in it are
// rows of an automaton after Knuth, Morris and Pratt (grammar/automaton/emit.c writes it), one row
// for each code point, so that far from its ends one row's masks serve all.

enum { TEXT_NODES = 1 << 17 };

uint32_t chars_matched(const char *text, uint32_t k, char byte) {
    for (uint32_t n = k + 1; n > 0; n--)
        if (text[n - 1] == byte && memcmp(text, text + k + 1 - n, n - 1) == 0)
            return n;
    return 0;
}

// What may stand where k bytes of a text have come and the next one begins none of it.
static uint32_t apart_from(struct build *b, const char *text, uint32_t n, uint32_t k) {
    struct chars set = {0};
    for (uint32_t i = 0; i < n; i++)
        if (chars_matched(text, k, text[i])) {
            uint32_t code = (uint8_t)text[i];
            chars_add(b, &set, &(struct build_chars){code, code}, 1);
        }
    chars_invert(b, &set);
    return build_small_rule(b, chars_class(b, &set, BUILD_PLAIN));
}

uint32_t build_text_without(struct build *b, const char *without, int64_t min, int64_t max) {
    size_t n = strlen(without);
    bool ascii = n > 0 && n <= EXPR_TEXT_BYTES;
    uint32_t kids[EXPR_TEXT_BYTES + 1];
    for (size_t i = 0; i < n; i++)
        ascii &= (unsigned char)without[i] < 0x80;
    if (!ascii)
        return build_fail(b, ERR_UNSUPPORTED, "text cannot be kept free of '%s'", without);
    int64_t maximum = TEXT_NODES / (int64_t)n - 1;
    if (min > maximum)
        return build_fail(b, ERR_LIMIT,
                          "a text is to have at least %lld characters; at most %lld can be asked "
                          "for between marks",
                          (long long)min, (long long)maximum);
    if (max > maximum)
        max = BUILD_ENDLESS;
    min = max_i64(min, 0);
    if (b->e.code || (max != BUILD_ENDLESS && max < min))
        return BUILD_NEVER;
    kids[0] = build_bytes(b, without, n);
    for (uint32_t k = 0; k < n; k++)
        kids[k + 1] = apart_from(b, without, (uint32_t)n, k);
    if (b->e.code ||
        vec_reserve(&b->kids, &b->kid_cap, b->kid_count + 1 + (int64_t)n, sizeof *b->kids, &b->e))
        return BUILD_NEVER;
    int64_t size = (max_i64(min, max) + 1) * (int64_t)n;
    uint32_t at = (uint32_t)b->kid_count;
    memcpy(b->kids + at, kids, (n + 1) * sizeof *kids);
    b->kid_count += 1 + (int64_t)n;
    struct expr x = {.kind = EXPR_TEXT,
                     .a = at,
                     .b = (uint32_t)n,
                     .min = (int32_t)min,
                     .max = (int32_t)max,
                     .size = (uint32_t)size};
    return build_small_rule(b, build_expr(b, x));
}
