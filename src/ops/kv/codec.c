// SPDX-License-Identifier: Apache-2.0
// The rows of the KV codecs. Plain numbers are rounded by the encoders of src/formats; codes with
// scales are the same there but for where they lie: a block of a file begins with what goes to the
// plane of scales. TQ3_0 has no type of a file.
#include "ops/kv/codec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "formats/quant/finite.h"

enum { BLOCK = 32 }; // values of a block of all codecs with scales

#define PLAIN(id, tensor, finite_fn)                                                               \
    static void decode_##id(const unsigned char *codes, const unsigned char *scales, float *x,     \
                            int64_t n) {                                                           \
        (void)scales;                                                                              \
        quant_format(tensor)->dequantize(codes, x, n);                                             \
    }                                                                                              \
    static void encode_##id(const float *x, unsigned char *codes, unsigned char *scales,           \
                            int64_t n) {                                                           \
        (void)scales;                                                                              \
        quant_format(tensor)->quantize(x, codes, n);                                               \
    }                                                                                              \
    static bool finite_##id(const unsigned char *codes, const unsigned char *scales, int64_t n) {  \
        (void)scales;                                                                              \
        return finite_fn(codes, n);                                                                \
    }

PLAIN(KV_F16, TYPE_F16, finite_f16)
PLAIN(KV_F32, TYPE_F32, finite_f32)
PLAIN(KV_BF16, TYPE_BF16, finite_bf16)

// What lies together in a block of a file: `scale_bytes`, then `code_bytes`.
struct parts {
    uint32_t type;
    int code_bytes, scale_bytes;
};

static void decode_blocks(const struct parts *p, const unsigned char *codes,
                          const unsigned char *scales, float *x, int64_t n) {
    const struct quant_format *f = quant_format(p->type);
    for (int64_t i = 0; i < n; i += BLOCK) {
        unsigned char block[BLOCK + 8];
        memcpy(block, scales + i / BLOCK * p->scale_bytes, (size_t)p->scale_bytes);
        memcpy(block + p->scale_bytes, codes + i / BLOCK * p->code_bytes, (size_t)p->code_bytes);
        f->dequantize(block, x + i, BLOCK);
    }
}

static void encode_blocks(const struct parts *p, const float *x, unsigned char *codes,
                          unsigned char *scales, int64_t n) {
    const struct quant_format *f = quant_format(p->type);
    for (int64_t i = 0; i < n; i += BLOCK) {
        unsigned char block[BLOCK + 8];
        f->quantize(x + i, block, BLOCK);
        memcpy(scales + i / BLOCK * p->scale_bytes, block, (size_t)p->scale_bytes);
        memcpy(codes + i / BLOCK * p->code_bytes, block + p->scale_bytes, (size_t)p->code_bytes);
    }
}

// Of each block's bytes the first `halves` halves are numbers.
static bool finite_blocks(const unsigned char *scales, int scale_bytes, int halves, int64_t n) {
    if (scale_bytes == 2 * halves)
        return finite_f16(scales, n / BLOCK * halves);
    unsigned bad = 0;
    for (int64_t i = 0; i < n / BLOCK; i++)
        for (int j = 0; j < halves; j++) {
            uint16_t h;
            memcpy(&h, scales + i * scale_bytes + 2 * j, sizeof h);
            bad |= (h & 0x7c00u) == 0x7c00u;
        }
    return !bad;
}

#define BLOCKS(id, tensor, code_bytes, scale_bytes, halves)                                        \
    static void decode_##id(const unsigned char *codes, const unsigned char *scales, float *x,     \
                            int64_t n) {                                                           \
        decode_blocks(&(struct parts){tensor, code_bytes, scale_bytes}, codes, scales, x, n);      \
    }                                                                                              \
    static void encode_##id(const float *x, unsigned char *codes, unsigned char *scales,           \
                            int64_t n) {                                                           \
        encode_blocks(&(struct parts){tensor, code_bytes, scale_bytes}, x, codes, scales, n);      \
    }                                                                                              \
    static bool finite_##id(const unsigned char *codes, const unsigned char *scales, int64_t n) {  \
        (void)codes;                                                                               \
        return finite_blocks(scales, scale_bytes, halves, n);                                      \
    }

BLOCKS(KV_Q8_0, TYPE_Q8_0, 32, 2, 1)
BLOCKS(KV_Q5_1, TYPE_Q5_1, 16, 8, 2)
BLOCKS(KV_Q5_0, TYPE_Q5_0, 16, 6, 1)
BLOCKS(KV_Q4_1, TYPE_Q4_1, 16, 4, 2)
BLOCKS(KV_Q4_0, TYPE_Q4_0, 16, 2, 1)

static const float centroid[8] = KV_TQ3_CENTROIDS;

static int nearest_centroid(float x) {
    int c = 0;
    while (c < 7 && x >= 0.5f * (centroid[c] + centroid[c + 1]))
        c++;
    return c;
}

static void decode_KV_TQ3_0(const unsigned char *codes, const unsigned char *scales, float *x,
                            int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const unsigned char *q = codes + i / BLOCK * 8, *s = scales + i / BLOCK * 6;
        int at = (int)(i % BLOCK);
        int low = q[at % 8] >> at / 8 * 2 & 3, high = s[2 + at / 8] >> at % 8 & 1;
        uint16_t d;
        memcpy(&d, s, sizeof d);
        x[i] = f16_to_f32(d) * centroid[high * 4 + low];
    }
}

// Codes by the block's root mean square, then the scale with which they have the least error.
static void encode_tq3_block(const float *x, unsigned char *q, unsigned char *s) {
    float squares = 0, product = 0, size = 0;
    memset(q, 0, 8);
    memset(s, 0, 6);
    for (int i = 0; i < BLOCK; i++)
        squares += x[i] * x[i];
    float rms = sqrtf(squares / BLOCK), inverse = rms > 1e-30f ? 1.0f / rms : 0.0f;
    for (int i = 0; i < BLOCK; i++) {
        int c = nearest_centroid(x[i] * inverse);
        product += x[i] * centroid[c];
        size += centroid[c] * centroid[c];
        q[i % 8] = (unsigned char)(q[i % 8] | (c & 3) << i / 8 * 2);
        s[2 + i / 8] = (unsigned char)(s[2 + i / 8] | c >> 2 << i % 8);
    }
    uint16_t d = f32_to_f16(product / size);
    memcpy(s, &d, sizeof d);
}

static void encode_KV_TQ3_0(const float *x, unsigned char *codes, unsigned char *scales,
                            int64_t n) {
    for (int64_t i = 0; i < n / BLOCK; i++)
        encode_tq3_block(x + i * BLOCK, codes + i * 8, scales + i * 6);
}

static bool finite_KV_TQ3_0(const unsigned char *codes, const unsigned char *scales, int64_t n) {
    (void)codes;
    return finite_blocks(scales, 6, 1, n);
}

static const struct kv_codec rows[] = {
#define ROW(id, name, type, block, code_bytes, scale_bytes, rotates)                               \
    [id] = {name,    type,        block,       code_bytes, scale_bytes,                            \
            rotates, decode_##id, encode_##id, finite_##id},
    KV_CODECS(ROW)
#undef ROW
};

const struct kv_codec *kv_codec_of(enum kv_codec_id id) {
    return (unsigned)id < KV_CODEC_COUNT ? &rows[id] : NULL;
}

// "f16, f32, ... or tq3_0".
static void list_names(char *text, size_t size) {
    size_t at = 0;
    for (int i = 0; i < KV_CODEC_COUNT && at < size; i++) {
        const char *before = i == 0 ? "" : i + 1 < KV_CODEC_COUNT ? ", " : " or ";
        at += (size_t)snprintf(text + at, size - at, "%s%s", before, rows[i].name);
    }
}

int kv_codec_by_name(const char *name, const char *what, enum kv_codec_id *out, struct err *e) {
    char names[128];
    for (int i = 0; i < KV_CODEC_COUNT; i++)
        if (!strcasecmp(rows[i].name, name)) {
            *out = (enum kv_codec_id)i;
            return 0;
        }
    list_names(names, sizeof names);
    return err_set(e, ERR_USAGE, "%s is %s, not '%.40s'", what, names, name);
}

int kv_codec_check(enum kv_codec_id id, struct err *e) {
    char names[128];
    if (kv_codec_of(id))
        return 0;
    list_names(names, sizeof names);
    return err_set(e, ERR_UNSUPPORTED, "keys and values can be stored as %s, not as codec %d",
                   names, (int)id);
}

int64_t kv_codec_bytes(enum kv_codec_id id, int64_t n) {
    const struct kv_codec *c = &rows[id];
    return n / c->block * (c->code_bytes + c->scale_bytes);
}
