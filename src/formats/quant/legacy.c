// SPDX-License-Identifier: Apache-2.0
// Encoders of the 32-element block types Q4_0 to Q8_0. Byte j of a nibble array holds element j
// (low) and element j+16 (high); in the 5-bit types bit i of a 32-bit word is element i's top bit.
#include "formats/quant/impl.h"
#include "formats/quant/search.h"

// The second half of the scales, the scaled sum of the codes, serves dot products only.
void quant_decode_q8_1(const void *src, float *dst, int64_t n) {
    const unsigned char *b = src;
    for (int64_t i = 0; i < n; i += BLOCK_Q8_1, b += BYTES_Q8_1) {
        float d = load_half(b);
        for (int k = 0; k < BLOCK_Q8_1; k++)
            dst[i + k] = d * (float)(int8_t)b[4 + k];
    }
}

// Codes 0..2*half-1 of a symmetric type: the extreme element becomes code 0 exactly.
static float symmetric_codes(const float *x, int half, int *code) {
    float d = quant_extreme(x, 32) / (float)-half, inv = inverse_scale(d);
    for (int i = 0; i < 32; i++) {
        int c = (int)(x[i] * inv + (float)half + 0.5f);
        code[i] = c > 2 * half - 1 ? 2 * half - 1 : c;
    }
    return d;
}

// Codes 0..top of an affine type over [min, max]; returns the step and stores the minimum.
static float affine_codes(const float *x, int top, int *code, float *minimum) {
    float lo = x[0], hi = x[0];
    for (int i = 1; i < 32; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    float d = (hi - lo) / (float)top, inv = inverse_scale(d);
    for (int i = 0; i < 32; i++) {
        int c = (int)((x[i] - lo) * inv + 0.5f);
        code[i] = c > top ? top : c;
    }
    *minimum = lo;
    return d;
}

static void pack_nibbles(const int *code, unsigned char *q) {
    for (int j = 0; j < 16; j++)
        q[j] = (unsigned char)((code[j] & 15) | (code[j + 16] & 15) << 4);
}

static void pack_fifth_bits(const int *code, unsigned char *h) {
    for (int j = 0; j < 4; j++) {
        unsigned byte = 0;
        for (int k = 0; k < 8; k++)
            byte |= ((unsigned)code[8 * j + k] >> 4 & 1u) << k;
        h[j] = (unsigned char)byte;
    }
}

// Writes a block: d, the minimum m of an affine type, the fifth bits of codes above 15, the
// nibbles.
static void pack_block(float d, const float *m, bool fifth, const int *code, unsigned char *b) {
    store_u16(b, f32_to_f16(d));
    b += 2;
    if (m) {
        store_u16(b, f32_to_f16(*m));
        b += 2;
    }
    if (fifth) {
        pack_fifth_bits(code, b);
        b += 4;
    }
    pack_nibbles(code, b);
}

static void symmetric_block(const float *x, int half, unsigned char *b) {
    int code[32];
    float d = symmetric_codes(x, half, code);
    pack_block(d, NULL, half > 8, code, b);
}

static void affine_block(const float *x, int top, unsigned char *b) {
    int code[32];
    float m, d = affine_codes(x, top, code, &m);
    pack_block(d, &m, top > 15, code, b);
}

// Codes use the unrounded scale and round half away from zero.
static void q8_0_encode(const float *x, unsigned char *b) {
    float d = fabsf(quant_extreme(x, 32)) / 127.0f, inv = inverse_scale(d);
    store_u16(b, f32_to_f16(d));
    for (int i = 0; i < 32; i++)
        b[2 + i] = (unsigned char)(int8_t)roundf(x[i] * inv);
}
QUANT_ENCODER(Q8_0, q8_0)

// With importances the scale is searched, QUANT_LANES blocks at a time. The weights take the mean
// square of the whole row.

// Fills a batch with the first blocks of n values; returns how many there are.
static int batch_blocks(const float *x, const float *importance, float spread, int64_t n,
                        struct quant_batch *batch) {
    float w[32];
    int lane = 0;
    *batch = (struct quant_batch){.n = 32};
    for (int64_t at = 0; lane < QUANT_LANES && at < n; lane++, at += 32) {
        quant_importance_weights(x + at, importance + at, 32, spread, w);
        quant_batch_put(batch, lane, x + at, w);
    }
    return lane;
}

static void weighted_symmetric(const float *src, const float *importance, unsigned char *b,
                               int64_t n, int half) {
    struct quant_batch batch;
    float scale[QUANT_LANES], spread = quant_sum_squares(src, n) / (float)n;
    int code[QUANT_LANES * 32], bytes = half == 8 ? BYTES_Q4_0 : BYTES_Q5_0;
    for (int64_t at = 0; at < n; at += QUANT_LANES * 32) {
        int blocks = batch_blocks(src + at, importance + at, spread, n - at, &batch);
        quant_search_signed(&batch, half, scale, code);
        for (int k = 0; k < blocks; k++, b += bytes)
            pack_block(scale[k], NULL, half > 8, code + 32 * k, b);
    }
}

// A fit to one end of huge values may put the other end beyond a half; such a block is fitted
// plainly.
static void weighted_affine(const float *src, const float *importance, unsigned char *b, int64_t n,
                            int top) {
    const struct quant_grid grid = {.top = top, .count = 36, .start = -0.9f, .step = 0.05f};
    struct quant_batch batch;
    float scale[QUANT_LANES], minimum[QUANT_LANES], spread = quant_sum_squares(src, n) / (float)n;
    int code[QUANT_LANES * 32], bytes = top == 15 ? BYTES_Q4_1 : BYTES_Q5_1;
    for (int64_t at = 0; at < n; at += QUANT_LANES * 32) {
        int blocks = batch_blocks(src + at, importance + at, spread, n - at, &batch);
        quant_search_affine(&batch, &grid, scale, minimum, code);
        for (int k = 0; k < blocks; k++, b += bytes) {
            float d = scale[k], m = -minimum[k];
            if (!(d < 65504.0f && m > -65504.0f))
                d = affine_codes(src + at + 32 * k, top, code + 32 * k, &m);
            pack_block(d, &m, top > 15, code + 32 * k, b);
        }
    }
}

// The two encoders of a type; limit: half the codes of a symmetric type, the largest of an affine
// one.
#define LEGACY_ENCODERS(type, name, kind, limit)                                                   \
    static void name##_encode(const float *x, unsigned char *b) {                                  \
        kind##_block(x, limit, b);                                                                 \
    }                                                                                              \
    QUANT_ENCODER(type, name)                                                                      \
    void quant_weighted_##name(const float *src, const float *importance, void *dst, int64_t n) {  \
        weighted_##kind(src, importance, dst, n, limit);                                           \
    }
LEGACY_ENCODERS(Q4_0, q4_0, symmetric, 8)
LEGACY_ENCODERS(Q5_0, q5_0, symmetric, 16)
LEGACY_ENCODERS(Q4_1, q4_1, affine, 15)
LEGACY_ENCODERS(Q5_1, q5_1, affine, 31)
