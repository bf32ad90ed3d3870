// SPDX-License-Identifier: Apache-2.0
// Byte-level pairs from tiktoken.model (Kimi K2): each line has a token in base64 and its rank,
// which is its id. Merges are not in the file: a token's is what merging its bytes by lower ranks
// leaves as two parts.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "convert/vocab/vocab.h"

enum { LONGEST = 512, RESERVED = 258 }; // bytes of a token; ids after the ranks

struct ranks {
    struct vocab *v;
    struct map by_bytes;
    const char **bytes; // [rows], NULL: no token has this rank
    size_t *length;
    int64_t count;
    char glyph[256][3]; // the stand-in of each byte in texts
    uint8_t glyph_size[256];
};

// Printable bytes stand for themselves, others for U+0100 and on.
static void make_glyphs(struct ranks *r) {
    for (unsigned b = 0, next = 0x100; b < 256; b++) {
        bool own = (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD);
        unsigned c = own ? b : next++;
        r->glyph_size[b] = (uint8_t)utf8_encode(r->glyph[b], c);
    }
}

static void append_glyphs(const struct ranks *r, struct str *out, const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        unsigned char b = (unsigned char)bytes[i];
        str_append(out, r->glyph[b], r->glyph_size[b]);
    }
}

static int base64_digit(char c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

// Bytes of n characters of base64; 0 when they are none.
static size_t decode_base64(const char *s, size_t n, char *out) {
    size_t k = 0;
    if (!n || n % 4 || n / 4 * 3 > LONGEST)
        return 0;
    size_t pads = s[n - 1] != '=' ? 0 : s[n - 2] != '=' ? 1 : 2;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t bits = 0;
        for (size_t j = i; j < i + 4; j++) {
            int d = j >= n - pads ? 0 : base64_digit(s[j]);
            if (d < 0)
                return 0;
            bits = bits << 6 | (uint32_t)d;
        }
        for (int j = 2; j >= 0; j--)
            out[k++] = (char)(bits >> 8 * j & 255);
    }
    return k - pads;
}

static int add_rank_line(struct ranks *r, const char *line, const char *end) {
    struct vocab *v = r->v;
    char bytes[LONGEST], *stop;
    const char *space = memchr(line, ' ', (size_t)(end - line));
    size_t n = space ? decode_base64(line, (size_t)(space - line), bytes) : 0;
    int64_t rank = n ? strtoll(space + 1, &stop, 10) : -1;
    if (!n || stop != end || rank < 0 || rank >= v->rows || r->bytes[rank])
        return err_set(v->e, ERR_FORMAT,
                       "%s: line %" PRId64 " is not a token in base64 and a new rank below %" PRId64
                       ": get the file again",
                       v->where.data, r->count + 1, v->rows);
    const char *kept = arena_strndup(&v->arena, bytes, n);
    if (!kept || map_insert(&r->by_bytes, kept, n, (uint32_t)rank) < 0)
        return vocab_no_memory(v);
    r->bytes[rank] = kept;
    r->length[rank] = n;
    r->count++;
    return 0;
}

static int read_lines(struct ranks *r) {
    const char *at = r->v->ranks.data, *end = at + r->v->ranks.len;
    int rc = 0;
    while (at < end && !rc) {
        const char *line = at, *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        at = stop + 1;
        rc = stop > line ? add_rank_line(r, line, stop) : 0;
    }
    return rc;
}

// Where a token's bytes are cut when all merges of lower ranks are done, best first; 0 unless two
// parts are left.
static size_t cut_of(const struct ranks *r, int64_t rank) {
    const char *s = r->bytes[rank];
    size_t n = r->length[rank], start[LONGEST + 1], parts = n;
    for (size_t i = 0; i <= n; i++)
        start[i] = i;
    while (parts > 1) {
        uint32_t best = (uint32_t)rank, k;
        size_t at = 0;
        for (size_t i = 0; i + 2 <= parts; i++)
            if (map_find(&r->by_bytes, s + start[i], start[i + 2] - start[i], &k) && k < best) {
                best = k;
                at = i + 1;
            }
        if (!at)
            break;
        memmove(start + at, start + at + 1, (parts - at) * sizeof *start);
        parts--;
    }
    return parts == 2 ? start[1] : 0;
}

static int add_token(struct ranks *r, int64_t rank) {
    struct vocab *v = r->v;
    struct str text = {0}, merge = {0};
    size_t n = r->length[rank], cut = n > 1 ? cut_of(r, rank) : 0;
    append_glyphs(r, &text, r->bytes[rank], n);
    if (cut) {
        append_glyphs(r, &merge, r->bytes[rank], cut);
        str_putc(&merge, ' ');
        append_glyphs(r, &merge, r->bytes[rank] + cut, n - cut);
    }
    const char *kept = text.failed ? NULL : arena_strndup(&v->arena, text.data, text.len);
    const char *pair =
        cut && !merge.failed ? arena_strndup(&v->arena, merge.data, merge.len) : NULL;
    int rc = kept && (pair || !cut) ? vocab_add(v, kept, text.len, rank, TOKEN_NORMAL)
                                    : vocab_no_memory(v);
    if (!rc && pair) {
        v->merge[v->merges] = pair;
        v->merge_length[v->merges++] = merge.len;
    }
    str_fini(&text);
    str_fini(&merge);
    return rc;
}

static int add_special_rank(void *arg, const char *key, size_t n, const struct json *value) {
    struct vocab *v = arg;
    size_t size = 0;
    const char *s = json_str(json_get(value, "content"), &size);
    char id[24];
    snprintf(id, sizeof id, "%.*s", n < 20 ? (int)n : 20, key);
    if (!s || !size)
        return vocab_refuse(v, "an added token without text");
    return vocab_add(v, s, size, strtoll(id, NULL, 10), TOKEN_CONTROL);
}

// Ids after the ranks that have no name are control tokens, too.
static int add_reserved(struct ranks *r) {
    struct vocab *v = r->v;
    int rc = 0;
    for (int64_t i = r->count; !rc && i < v->rows && i < r->count + RESERVED; i++) {
        char text[48];
        size_t n = (size_t)snprintf(text, sizeof text, "<|reserved_token_%" PRId64 "|>", i);
        const char *kept = v->text[i] ? NULL : arena_strndup(&v->arena, text, n);
        if (!v->text[i])
            rc = kept ? vocab_add(v, kept, n, i, TOKEN_CONTROL) : vocab_no_memory(v);
    }
    return rc;
}

static int read_ranks(struct ranks *r) {
    struct vocab *v = r->v;
    int rc = read_lines(r);
    for (int64_t i = 0; !rc && i < v->rows; i++)
        rc = r->bytes[i] ? add_token(r, i) : 0;
    if (!rc && v->config.root)
        rc = json_each(hf_get(&v->config, "added_tokens_decoder"), add_special_rank, v);
    if (!rc)
        rc = add_reserved(r);
    return rc ? rc : vocab_fill_gaps(v);
}

int vocab_put_ranks(struct gguf_writer *w, struct vocab *v) {
    struct ranks r = {.v = v};
    if (!v->config.root || !hf_string_is(&v->config, "tokenizer_class", "TikTokenTokenizer"))
        return vocab_refuse(v, "a tokenizer_class other than TikTokenTokenizer next to it");
    make_glyphs(&r);
    r.bytes = calloc((size_t)v->rows, sizeof *r.bytes);
    r.length = calloc((size_t)v->rows, sizeof *r.length);
    v->merge = calloc((size_t)v->rows, sizeof *v->merge);
    v->merge_length = calloc((size_t)v->rows, sizeof *v->merge_length);
    int rc =
        r.bytes && r.length && v->merge && v->merge_length ? read_ranks(&r) : vocab_no_memory(v);
    map_fini(&r.by_bytes);
    free(r.bytes);
    free(r.length);
    if (!rc)
        vocab_write_pairs(w, v, "kimi-k2");
    return rc;
}
