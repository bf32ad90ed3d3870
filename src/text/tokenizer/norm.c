// SPDX-License-Identifier: Apache-2.0
// NFC by Unicode Standard Annex 15: decompose, order the marks, compose. A code point below
// U+0300 neither changes nor joins what stands before it, so text is cut before each of them and
// every stretch is normalised by itself; most stretches are one character and are copied. The
// marks are ordered here and not by utf8proc, whose insertion sort is quadratic on a
// long run of marks in falling order.
#include "text/tokenizer/norm.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"

#define FIRST_ACTIVE 0x300

bool norm_is_plain(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)s[i] >= 0xCC) // lead byte of U+0300
            return false;
    }
    return true;
}

// Buffers of one call, grown to the longest stretch.
struct norm_work {
    int32_t *code, *sorted; // [cap]
    size_t count, cap;
};

static int reserve_codes(struct norm_work *w, size_t count, struct err *e) {
    if (count <= w->cap)
        return 0;
    size_t cap = count + count / 2 + 64;
    int32_t *code = realloc(w->code, cap * sizeof *code);
    w->code = code ? code : w->code;
    int32_t *sorted = realloc(w->sorted, cap * sizeof *sorted);
    w->sorted = sorted ? sorted : w->sorted;
    if (!code || !sorted)
        return err_set(e, ERR_MEMORY,
                       "no memory to normalise a stretch of %zu characters; "
                       "shorten the text or free memory",
                       count);
    w->cap = cap;
    return 0;
}

static unsigned mark_class(int32_t code) {
    return (unsigned)utf8proc_get_property(code)->combining_class & 0xFF;
}

// Stable counting sort of a run of marks by combining class.
static void order_run(int32_t *run, int32_t *sorted, size_t n) {
    size_t place[257] = {0};
    for (size_t i = 0; i < n; i++)
        place[mark_class(run[i]) + 1]++;
    for (int c = 0; c < 256; c++)
        place[c + 1] += place[c];
    for (size_t i = 0; i < n; i++)
        sorted[place[mark_class(run[i])]++] = run[i];
    memcpy(run, sorted, n * sizeof *run);
}

static void order_marks(struct norm_work *w) {
    size_t begin = 0; // of the current run of marks
    for (size_t i = 0; i <= w->count; i++) {
        if (i < w->count && mark_class(w->code[i]) != 0)
            continue;
        if (i - begin > 1)
            order_run(w->code + begin, w->sorted, i - begin);
        begin = i + 1;
    }
}

static int decompose(struct norm_work *w, const char *s, size_t n, struct err *e) {
    w->count = 0;
    for (size_t at = 0; at < n;) {
        uint32_t code;
        int length = utf8_decode(s + at, n - at, &code);
        if (length <= 0)
            return err_set(e, ERR_FORMAT, "the text to normalise is not UTF-8 at byte %zu", at);
        at += (size_t)length;
        int rc = reserve_codes(w, w->count + 8, e); // no code point has more than four parts
        if (rc)
            return rc;
        int boundary = 0;
        utf8proc_ssize_t parts = utf8proc_decompose_char(
            (int32_t)code, w->code + w->count, 8, UTF8PROC_STABLE | UTF8PROC_COMPOSE, &boundary);
        if (parts < 1 || parts > 8) { // outside its tables: keep the character
            w->code[w->count] = (int32_t)code;
            parts = 1;
        }
        w->count += (size_t)parts;
    }
    return 0;
}

static int normalise_stretch(struct norm_work *w, struct str *out, const char *s, size_t n,
                             struct err *e) {
    int rc = decompose(w, s, n, e);
    if (rc)
        return rc;
    order_marks(w);
    utf8proc_ssize_t count = utf8proc_normalize_utf32(w->code, (utf8proc_ssize_t)w->count,
                                                      UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    for (utf8proc_ssize_t i = 0; i < count; i++) {
        utf8proc_uint8_t bytes[4];
        utf8proc_ssize_t length = utf8proc_encode_char(w->code[i], bytes);
        str_append(out, (const char *)bytes, (size_t)length);
    }
    return 0;
}

// The end of the stretch that begins at `at`: the next code point below U+0300.
static size_t stretch_end(const char *s, size_t n, size_t at) {
    do {
        at++;
    } while (at < n && (unsigned char)s[at] >= 0x80 &&
             ((unsigned char)s[at] < 0xC0 || (unsigned char)s[at] >= 0xCC));
    return at;
}

int norm_nfc(struct str *out, const char *s, size_t n, struct err *e) {
    struct norm_work w = {0};
    size_t plain = 0, at = 0; // s[plain..at) is copied as it is
    int rc = 0;
    while (at < n && !rc) {
        size_t end = stretch_end(s, n, at);
        uint32_t code;
        int first = utf8_decode(s + at, end - at, &code);
        if (first > 0 && (size_t)first == end - at && code < FIRST_ACTIVE) {
            at = end;
            continue;
        }
        str_append(out, s + plain, at - plain);
        rc = normalise_stretch(&w, out, s + at, end - at, e);
        plain = at = end;
    }
    if (!rc)
        str_append(out, s + plain, n - plain);
    if (!rc && out->failed)
        rc = err_set(e, ERR_MEMORY,
                     "no memory to normalise %zu bytes of text; shorten it or "
                     "free memory",
                     n);
    free(w.code);
    free(w.sorted);
    return rc;
}

// Code points whose upper or title case is more than one code point (SpecialCasing of the Unicode
// character database); a title of 0 is the simple one. Those of U+1F80 to U+1FAF follow a rule.
static const struct special_case {
    uint32_t code, upper[NORM_CASE_MAX], title[NORM_CASE_MAX];
} special_cases[] = {
    {0xDF, {0x53, 0x53}, {0x53, 0x73}},
    {0x149, {0x2BC, 0x4E}, {0x2BC, 0x4E}},
    {0x1F0, {0x4A, 0x30C}, {0x4A, 0x30C}},
    {0x390, {0x399, 0x308, 0x301}, {0x399, 0x308, 0x301}},
    {0x3B0, {0x3A5, 0x308, 0x301}, {0x3A5, 0x308, 0x301}},
    {0x587, {0x535, 0x552}, {0x535, 0x582}},
    {0x1E96, {0x48, 0x331}, {0x48, 0x331}},
    {0x1E97, {0x54, 0x308}, {0x54, 0x308}},
    {0x1E98, {0x57, 0x30A}, {0x57, 0x30A}},
    {0x1E99, {0x59, 0x30A}, {0x59, 0x30A}},
    {0x1E9A, {0x41, 0x2BE}, {0x41, 0x2BE}},
    {0x1F50, {0x3A5, 0x313}, {0x3A5, 0x313}},
    {0x1F52, {0x3A5, 0x313, 0x300}, {0x3A5, 0x313, 0x300}},
    {0x1F54, {0x3A5, 0x313, 0x301}, {0x3A5, 0x313, 0x301}},
    {0x1F56, {0x3A5, 0x313, 0x342}, {0x3A5, 0x313, 0x342}},
    {0x1FB2, {0x1FBA, 0x399}, {0x1FBA, 0x345}},
    {0x1FB3, {0x391, 0x399}, {0}},
    {0x1FB4, {0x386, 0x399}, {0x386, 0x345}},
    {0x1FB6, {0x391, 0x342}, {0x391, 0x342}},
    {0x1FB7, {0x391, 0x342, 0x399}, {0x391, 0x342, 0x345}},
    {0x1FBC, {0x391, 0x399}, {0}},
    {0x1FC2, {0x1FCA, 0x399}, {0x1FCA, 0x345}},
    {0x1FC3, {0x397, 0x399}, {0}},
    {0x1FC4, {0x389, 0x399}, {0x389, 0x345}},
    {0x1FC6, {0x397, 0x342}, {0x397, 0x342}},
    {0x1FC7, {0x397, 0x342, 0x399}, {0x397, 0x342, 0x345}},
    {0x1FCC, {0x397, 0x399}, {0}},
    {0x1FD2, {0x399, 0x308, 0x300}, {0x399, 0x308, 0x300}},
    {0x1FD3, {0x399, 0x308, 0x301}, {0x399, 0x308, 0x301}},
    {0x1FD6, {0x399, 0x342}, {0x399, 0x342}},
    {0x1FD7, {0x399, 0x308, 0x342}, {0x399, 0x308, 0x342}},
    {0x1FE2, {0x3A5, 0x308, 0x300}, {0x3A5, 0x308, 0x300}},
    {0x1FE3, {0x3A5, 0x308, 0x301}, {0x3A5, 0x308, 0x301}},
    {0x1FE4, {0x3A1, 0x313}, {0x3A1, 0x313}},
    {0x1FE6, {0x3A5, 0x342}, {0x3A5, 0x342}},
    {0x1FE7, {0x3A5, 0x308, 0x342}, {0x3A5, 0x308, 0x342}},
    {0x1FF2, {0x1FFA, 0x399}, {0x1FFA, 0x345}},
    {0x1FF3, {0x3A9, 0x399}, {0}},
    {0x1FF4, {0x38F, 0x399}, {0x38F, 0x345}},
    {0x1FF6, {0x3A9, 0x342}, {0x3A9, 0x342}},
    {0x1FF7, {0x3A9, 0x342, 0x399}, {0x3A9, 0x342, 0x345}},
    {0x1FFC, {0x3A9, 0x399}, {0}},
    {0xFB00, {0x46, 0x46}, {0x46, 0x66}},
    {0xFB01, {0x46, 0x49}, {0x46, 0x69}},
    {0xFB02, {0x46, 0x4C}, {0x46, 0x6C}},
    {0xFB03, {0x46, 0x46, 0x49}, {0x46, 0x66, 0x69}},
    {0xFB04, {0x46, 0x46, 0x4C}, {0x46, 0x66, 0x6C}},
    {0xFB05, {0x53, 0x54}, {0x53, 0x74}},
    {0xFB06, {0x53, 0x54}, {0x53, 0x74}},
    {0xFB13, {0x544, 0x546}, {0x544, 0x576}},
    {0xFB14, {0x544, 0x535}, {0x544, 0x565}},
    {0xFB15, {0x544, 0x53B}, {0x544, 0x56B}},
    {0xFB16, {0x54E, 0x546}, {0x54E, 0x576}},
    {0xFB17, {0x544, 0x53D}, {0x544, 0x56D}},
};

static int compare_code(const void *code, const void *row) {
    uint32_t a = *(const uint32_t *)code, b = ((const struct special_case *)row)->code;
    return a < b ? -1 : a > b;
}

size_t norm_map_case(uint32_t code, enum norm_case how, uint32_t out[NORM_CASE_MAX]) {
    int32_t c = (int32_t)code;
    const struct special_case *row =
        how == NORM_LOWER_CASE
            ? NULL
            : bsearch(&code, special_cases, sizeof special_cases / sizeof *special_cases,
                      sizeof *special_cases, compare_code);
    const uint32_t *special = !row ? NULL : how == NORM_UPPER_CASE ? row->upper : row->title;
    size_t n = 0;
    for (; special && n < NORM_CASE_MAX && special[n]; n++)
        out[n] = special[n];
    if (how == NORM_UPPER_CASE && code >= 0x1F80 && code <= 0x1FAF) { // with an iota below
        static const uint32_t first[] = {0x1F08, 0x1F28, 0x1F68};
        out[n++] = first[(code - 0x1F80) / 16] + code % 8;
        out[n++] = 0x399;
    } else if (how == NORM_LOWER_CASE && code == 0x130) { // I with a dot
        out[n++] = 'i';
        out[n++] = 0x307;
    }
    if (n > 0)
        return n;
    out[0] = (uint32_t)(how == NORM_UPPER_CASE   ? utf8proc_toupper(c)
                        : how == NORM_TITLE_CASE ? utf8proc_totitle(c)
                                                 : utf8proc_tolower(c));
    return 1;
}

unsigned norm_class(uint32_t code) {
    switch (utf8proc_category((int32_t)code)) {
    case UTF8PROC_CATEGORY_LU:
        return NORM_LETTER | NORM_UPPER;
    case UTF8PROC_CATEGORY_LL:
        return NORM_LETTER | NORM_LOWER;
    case UTF8PROC_CATEGORY_LT:
        return NORM_LETTER | NORM_TITLE;
    case UTF8PROC_CATEGORY_LM:
        return NORM_IGNORED_BY_CASE | NORM_LETTER |
               (utf8proc_islower((int32_t)code) ? NORM_LOWER : 0u);
    case UTF8PROC_CATEGORY_LO:
        return NORM_LETTER | (utf8proc_islower((int32_t)code) ? NORM_LOWER : 0u);
    case UTF8PROC_CATEGORY_ND:
        return NORM_DECIMAL | NORM_NUMBER;
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return NORM_NUMBER;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_SK:
        return NORM_IGNORED_BY_CASE;
    default:
        return code == '\'' || code == '.' || code == ':' || code == 0xB7 || code == 0x2019
                   ? NORM_IGNORED_BY_CASE
                   : 0;
    }
}

bool norm_is_printable(uint32_t code) {
    switch (utf8proc_category((int32_t)code)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return code == ' ';
    default:
        return true;
    }
}
