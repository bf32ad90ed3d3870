// SPDX-License-Identifier: Apache-2.0
// Encoders of the super-block types whose groups of 16 have a signed scale and no minimum: Q3_K and
// Q6_K. Each group is searched on its own; then the scales are rounded under one half and the codes
// derived again from what a reader will see. Without importances the bytes equal those of the
// reference quantisers.
#include "formats/quant/impl.h"
#include "formats/quant/search.h"

enum { SIZE = 16, GROUPS = 16 };

// Codes 0 .. 2 half - 1 of x under the scale that a reader computes; those of a scale 0 stay.
static void round_codes(const float *x, float unit, int half, int *code) {
    for (int i = 0; i < SIZE && unit != 0.0f; i++)
        code[i] = clamp_i32(round_even(x[i] / unit), -half, half - 1) + half;
}

// Searches all groups by their weights [256], QUANT_LANES at a time.
static void search_groups(const float *x, const float *w, int half, float *scale, int *code) {
    struct quant_batch batch = {.n = SIZE};
    for (int k = 0; k < GROUPS; k++) {
        int lane = k % QUANT_LANES, first = k + 1 - QUANT_LANES;
        quant_batch_put(&batch, lane, x + SIZE * k, w + SIZE * k);
        if (lane == QUANT_LANES - 1)
            quant_search_signed(&batch, half, scale + first, code + SIZE * first);
    }
}

// Scales and codes of a Q3_K block with importances; the scales get codes 0 .. 63, too, by the
// weight of their groups. Returns the scale of the scales.
static float search_q3_k(const float *x, const float *importance, int *rounded, int *code) {
    float w[256], scale[GROUPS], total[GROUPS] = {0}, d[QUANT_LANES];
    float spread = 2.0f * quant_sum_squares(x, 256) / 256.0f;
    int codes[QUANT_LANES * GROUPS];
    for (int k = 0; k < GROUPS; k++)
        quant_importance_weights(x + SIZE * k, importance + SIZE * k, SIZE, spread, w + SIZE * k);
    for (int i = 0; i < 256; i++)
        total[i / SIZE] += w[i];
    search_groups(x, w, 4, scale, code);
    struct quant_batch batch = {.n = GROUPS};
    quant_batch_put(&batch, 0, scale, total);
    quant_search_signed(&batch, 32, d, codes);
    memcpy(rounded, codes, GROUPS * sizeof *rounded);
    return d[0];
}

// The same without importances: the largest scale gets code 0 or nearly so.
static float refine_q3_k(const float *x, int *rounded, int *code) {
    float scale[GROUPS], top;
    for (int k = 0; k < GROUPS; k++)
        scale[k] = quant_refine_signed(x + SIZE * k, SIZE, 4, code + SIZE * k);
    memset(rounded, 0, GROUPS * sizeof *rounded);
    top = quant_extreme(scale, GROUPS);
    if (!(fabsf(top) > 0.0f))
        return 0.0f;
    float inv = -32.0f / top;
    inv = isfinite(inv) ? inv : 0.0f;
    for (int k = 0; k < GROUPS; k++)
        rounded[k] = clamp_i32(round_even(inv * scale[k]), -32, 31) + 32;
    return inverse_scale(inv);
}

// Six-bit scales with 32 added: 16 nibbles, then the top pairs.
static void pack_q3_k_scales(const int *scale, unsigned char *c) {
    memset(c, 0, 12);
    for (int k = 0; k < GROUPS; k++) {
        c[k % 8] = (unsigned char)(c[k % 8] | (scale[k] & 15) << (k < 8 ? 0 : 4));
        c[8 + k % 4] = (unsigned char)(c[8 + k % 4] | (scale[k] >> 4) << 2 * (k / 4));
    }
}

static void pack_q3_k(const int *code, unsigned char *b) {
    for (int l = 0; l < 32; l++) {
        unsigned high = 0;
        for (int k = 0; k < 8; k++)
            high |= ((unsigned)code[32 * k + l] >> 2 & 1u) << k;
        b[l] = (unsigned char)high;
    }
    for (int i = 0; i < 64; i++) {
        const int *c = code + i / 32 * 128 + i % 32;
        b[32 + i] =
            (unsigned char)((c[0] & 3) | (c[32] & 3) << 2 | (c[64] & 3) << 4 | (c[96] & 3) << 6);
    }
}

static void q3_k_encode(const float *x, const float *importance, unsigned char *b) {
    int code[256], rounded[GROUPS];
    float d =
        importance ? search_q3_k(x, importance, rounded, code) : refine_q3_k(x, rounded, code);
    uint16_t half = f32_to_f16(d);
    for (int k = 0; k < GROUPS; k++)
        round_codes(x + SIZE * k, f16_to_f32(half) * (float)(rounded[k] - 32), 4, code + SIZE * k);
    pack_q3_k(code, b);
    pack_q3_k_scales(rounded, b + 96);
    store_u16(b + 108, half);
}

static void pack_q6_k(const int *code, unsigned char *b) {
    for (int i = 0; i < 64; i++) {
        int half = i / 32, l = i % 32;
        const int *c = code + 128 * half + l;
        b[64 * half + l] = (unsigned char)((c[0] & 15) | (c[64] & 15) << 4);
        b[64 * half + 32 + l] = (unsigned char)((c[32] & 15) | (c[96] & 15) << 4);
        b[128 + 32 * half + l] =
            (unsigned char)(c[0] >> 4 | c[32] >> 4 << 2 | c[64] >> 4 << 4 | c[96] >> 4 << 6);
    }
}

// Weights of a Q6_K group: the importances themselves, or x^2.
static void q6_k_weights(const float *x, const float *importance, float *w) {
    float sum = 0.0f;
    for (int i = 0; i < SIZE && importance; i++)
        sum += importance[i];
    for (int i = 0; i < SIZE; i++)
        w[i] = sum > 0.0f ? importance[i] : x[i] * x[i];
}

static void q6_k_encode(const float *x, const float *importance, unsigned char *b) {
    int code[256];
    float scale[GROUPS], w[256];
    for (int k = 0; k < GROUPS; k++)
        q6_k_weights(x + SIZE * k, importance ? importance + SIZE * k : NULL, w + SIZE * k);
    search_groups(x, w, 32, scale, code);
    float top = quant_extreme(scale, GROUPS);
    if (fabsf(top) < QUANT_NEGLIGIBLE) {
        memset(b, 0, 210);
        return;
    }
    float inv = -128.0f / top;
    uint16_t d = f32_to_f16(1.0f / inv);
    store_u16(b + 208, d);
    for (int k = 0; k < GROUPS; k++) {
        int s = clamp_i32(round_even(inv * scale[k]), -128, 127);
        b[192 + k] = (unsigned char)(int8_t)s;
        round_codes(x + SIZE * k, f16_to_f32(d) * (float)s, 32, code + SIZE * k);
    }
    pack_q6_k(code, b);
}

QUANT_ENCODERS(q3_k, 256, 110)
QUANT_ENCODERS(q6_k, 256, 210)
