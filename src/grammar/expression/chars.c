// SPDX-License-Identifier: Apache-2.0
// Sets of code points as expressions over bytes. A range is cut where its ends do not fill whole
// trailing bytes, so that each piece is a sequence of byte ranges; inside of a JSON string a code
// point that needs an escape is written as one.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/utf8.h"
#include "base/vec.h"
#include "grammar/expression/chars.h"
#include "grammar/grammar_impl.h"

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
