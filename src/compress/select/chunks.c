// SPDX-License-Identifier: Apache-2.0
// Borders by the bytes around a place, then chunks, greedily from the begin of each part: for every
// token the border near its end is looked at, and the best one within bounds is taken. What is not
// ASCII counts as part of a word, but for ideographs, kana and the full-width and general
// punctuation that is named here.
#include "compress/select/chunks.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "base/vec.h"

// How far white space, closing quotes and tags are looked at.
enum { LOOK = 256, TAG_MAX = 64 };

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// The character that ends before byte `at` > 0; its first byte in *begin. Bytes that are none are
// characters of their own.
static uint32_t char_before(const char *text, size_t at, size_t *begin) {
    size_t b = at - 1;
    while (b > 0 && at - b < 4 && ((unsigned char)text[b] & 0xC0) == 0x80)
        b--;
    uint32_t c;
    if (utf8_decode(text + b, at - b, &c) != (int)(at - b)) {
        b = at - 1;
        c = (unsigned char)text[b] < 0x80 ? (unsigned char)text[b] : 0xFFFD;
    }
    *begin = b;
    return c;
}

static uint32_t char_at(const char *text, size_t n, size_t at) {
    uint32_t c;
    return at < n && utf8_decode(text + at, n - at, &c) > 0 ? c : 0xFFFD;
}

// What is drawn onto or tied to the character before it.
static bool is_joined(uint32_t c) {
    return (c >= 0x300 && c < 0x370) || (c >= 0x1AB0 && c < 0x1B00) ||
           (c >= 0x20D0 && c < 0x2100) || (c >= 0x3099 && c <= 0x309A) ||
           (c >= 0xFE00 && c < 0xFE10) || (c >= 0xFE20 && c < 0xFE30) || c == 0x200D ||
           (c >= 0x1F3FB && c <= 0x1F3FF) || (c >= 0xE0100 && c < 0xE01F0);
}

// Scripts that set no blanks between words: ideographs and kana.
static bool is_ideograph(uint32_t c) {
    return (c >= 0x2E80 && c < 0x3000) || (c >= 0x3040 && c < 0x3100) ||
           (c >= 0x3400 && c < 0xA000) || (c >= 0xF900 && c < 0xFB00) ||
           (c >= 0x20000 && c < 0x40000);
}

static bool ends_wide(uint32_t c) {
    return c == 0x3002 || c == 0xFF01 || c == 0xFF1F || c == 0xFF0E;
}

static bool is_wide_mark(uint32_t c) {
    return (c >= 0x3000 && c < 0x3020) || (c >= 0xFF00 && c < 0xFF10) ||
           (c >= 0xFF1A && c < 0xFF21);
}

// Closing quotes and brackets, which belong to what they close.
static bool is_closing(uint32_t c) {
    return c == '"' || c == '\'' || c == ')' || c == ']' || c == '}' || c == '*' || c == '_' ||
           c == 0x201D || c == 0x2019 || c == 0xBB || c == 0x300D || c == 0x300F || c == 0xFF09;
}

// Whether a sentence ends before byte `at`, where white space begins; next: what follows that.
static bool ends_sentence(const char *text, size_t at, char next) {
    size_t b = at;
    uint32_t c = 0;
    for (size_t i = 0; b > 0 && i < 8; i++) {
        size_t before;
        c = char_before(text, b, &before);
        if (!is_closing(c))
            break;
        b = before;
    }
    if (c == '.' && next >= 'a' && next <= 'z')
        return false; // an abbreviation
    return c == '.' || c == '!' || c == '?' || c == 0x2026 || ends_wide(c);
}

bool border_of_character(const char *text, size_t n, size_t at) {
    if (at == 0 || at >= n)
        return true;
    if (((unsigned char)text[at] & 0xC0) == 0x80) {
        // Within a character, unless that is broken anyway.
        for (size_t back = 1; back <= 3 && back <= at; back++) {
            uint32_t c;
            int len = utf8_decode(text + at - back, n - (at - back), &c);
            if (len > (int)back)
                return false;
        }
        return true;
    }
    size_t begin;
    if (text[at] == '\n' && text[at - 1] == '\r')
        return false;
    return !is_joined(char_at(text, n, at)) && char_before(text, at, &begin) != 0x200D;
}

// Whether `at` lies within "<name ...>" or "<|name|>".
static bool in_tag(const char *text, size_t n, size_t at) {
    size_t b = at;
    while (b > 0 && at - b < TAG_MAX && text[b - 1] != '<') {
        b--;
        if (text[b] == '>' || text[b] == '\n')
            return false;
    }
    if (b == 0 || text[b - 1] != '<' || b >= n)
        return false;
    if (!(is_letter(text[b]) || text[b] == '|' || text[b] == '/' || text[b] == '!'))
        return false;
    for (size_t i = at; i < n && i - b < TAG_MAX && text[i] != '\n' && text[i] != '<'; i++)
        if (text[i] == '>')
            return true;
    return false;
}

size_t border_near(const char *text, size_t n, size_t at) {
    size_t l = at, r = at;
    while (l > 0 && at - l < LOOK && is_space(text[l - 1]))
        l--;
    while (r < n && r - at < LOOK && is_space(text[r]))
        r++;
    for (size_t i = r; i > l; i--)
        if (text[i - 1] == '\n')
            return i;
    while (r < n && !border_of_character(text, n, r))
        r++;
    return r;
}

static enum border after_space(const char *text, size_t at) {
    size_t w = at;
    int lines = 0;
    while (w > 0 && at - w < LOOK && is_space(text[w - 1]))
        lines += text[--w] == '\n';
    return lines > 1 ? BORDER_SENTENCE : lines ? BORDER_LINE : BORDER_WORD;
}

static bool follows_mark(const char *text, size_t at, uint32_t before, char next) {
    if (!(before == ',' || before == ';' || before == ')' || before == ']' || before == '}'))
        return false;
    if (next == '.' || next == ',' || next == ';' || is_closing((unsigned char)next))
        return false;
    return !(at > 1 && is_digit(text[at - 2]) && is_digit(next)); // 1,000
}

enum border border_kind(const char *text, size_t n, size_t at) {
    if (at == n)
        return BORDER_END;
    if (at == 0 || !border_of_character(text, n, at) || in_tag(text, n, at))
        return BORDER_NONE;
    size_t begin;
    uint32_t before = char_before(text, at, &begin), after = char_at(text, n, at);
    if (before < 0x80 && is_space((char)before)) {
        if (is_space(text[at]) && before != '\n')
            return BORDER_NONE; // within white space
        size_t w = at;
        while (w > 0 && at - w < LOOK && is_space(text[w - 1]))
            w--;
        enum border kind = after_space(text, at);
        return ends_sentence(text, w, text[at]) ? BORDER_SENTENCE : kind;
    }
    if (is_space(text[at]) || is_wide_mark(after) || is_closing(after))
        return BORDER_NONE; // they belong to what is before them
    if (ends_wide(before))
        return BORDER_SENTENCE;
    if (is_ideograph(before) || is_ideograph(after) || is_wide_mark(before))
        return BORDER_WORD;
    return follows_mark(text, at, before, text[at]) ? BORDER_MARK : BORDER_NONE;
}

enum { LEAST = 16, AIM = 32, MOST = 48, FAR = 128 };

// The part that is being cut, relative to its begin.
struct cutter {
    const struct select_text *t;
    const char *text;
    size_t base, n;
};

struct choice {
    enum border kind;
    size_t at;
    int64_t off; // distance from AIM
};

static void consider(struct choice *best, enum border kind, size_t at, int64_t tokens) {
    int64_t off = tokens > AIM ? tokens - AIM : AIM - tokens;
    if (kind > best->kind || (kind == best->kind && off < best->off))
        *best = (struct choice){kind, at, off};
}

// The end of the chunk that begins at byte `from` of the part with token `first`.
static size_t chunk_end(const struct cutter *c, size_t from, int64_t first) {
    const struct select_text *t = c->t;
    struct choice best = {0}, late = {0};
    for (int64_t k = first; k < t->n_tokens && t->at[k + 1] <= c->base + c->n; k++) {
        int64_t tokens = k - first + 1;
        if (tokens > MOST && best.kind >= BORDER_LINE)
            return best.at;
        if (tokens > FAR && (best.kind || late.kind))
            break;
        size_t near = t->at[k + 1] < c->base ? 0 : t->at[k + 1] - c->base;
        size_t at = border_near(c->text, c->n, near);
        if (at <= from)
            continue;
        enum border kind = border_kind(c->text, c->n, at);
        if (kind == BORDER_END && tokens <= MOST)
            return c->n;
        if (tokens > MOST && kind >= BORDER_LINE)
            return at;
        if (kind && tokens >= LEAST && tokens <= MOST)
            consider(&best, kind, at, tokens);
        if (kind && tokens > MOST)
            consider(&late, kind, at, tokens);
        if (!best.kind && !late.kind && at - from > BORDER_WORD_MAX)
            return at;
    }
    return best.kind ? best.at : late.kind ? late.at : c->n;
}

static int push(struct chunks *out, const struct chunk *c, struct err *e) {
    int rc = vec_reserve(&out->c, &out->cap, out->n + 1, sizeof *out->c, e);
    if (!rc)
        out->c[out->n++] = *c;
    return rc;
}

int chunks_make(const struct select_text *t, struct chunks *out, struct err *e) {
    int64_t token = 0;
    for (int64_t p = 0; p < t->n_parts; p++) {
        const struct select_part *part = &t->parts[p];
        struct cutter c = {t, t->text + part->begin, part->begin, part->end - part->begin};
        while (token < t->n_tokens && t->at[token + 1] <= part->begin)
            token++; // of no part
        for (size_t from = 0; from < c.n;) {
            size_t end = part->whole ? c.n : chunk_end(&c, from, token);
            struct chunk made = {c.base + from, c.base + end, token, 0, p};
            while (token < t->n_tokens && t->at[token + 1] <= made.end)
                token++;
            made.count = token - made.first;
            int rc = push(out, &made, e);
            if (rc)
                return rc;
            from = end;
        }
    }
    return 0;
}

void chunks_fini(struct chunks *c) {
    free(c->c);
    *c = (struct chunks){0};
}
