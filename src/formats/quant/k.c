// SPDX-License-Identifier: Apache-2.0
// Encoders of the 256-element super-block types Q2_K to Q6_K: one or two half scales, and small
// integer scales per group of 16 or 32. Each group is searched on its own; then the group scales
// (and minimums, of Q2_K, Q4_K and Q5_K; Q3_K and Q6_K have signed scales) are rounded under one
// half each and the codes derived again from what a reader will see. Without importances the bytes
// equal those of the reference quantisers.
#include "formats/quant/impl.h"
#include "formats/quant/search.h"

void quant_decode_q8_k(const void *src, float *dst, int64_t n) {
    const unsigned char *b = src;
    for (int64_t i = 0; i < n; i += BLOCK_Q8_K, b += BYTES_Q8_K) {
        float d;
        memcpy(&d, b, sizeof d);
        for (int k = 0; k < BLOCK_Q8_K; k++)
            dst[i + k] = d * (float)(int8_t)b[4 + k];
    }
}

// What distinguishes the types.
struct affine_type {
    struct quant_grid plain, weighted;
    int size, levels; // values of a group; largest rounded scale
    float spread;     // the super-block's mean square counts that often next to x^2
    bool root;        // plain weights are root mean square + |x|, else |x|
};

// What is written of a super-block besides the codes.
struct affine_block {
    uint16_t d, dm;
    int scale[16], minimum[16], code[256];
};

static void plain_weights(const struct affine_type *t, const float *x, float *w) {
    float base = t->root ? sqrtf(quant_sum_squares(x, t->size) / (float)t->size) : 0.0f;
    for (int i = 0; i < t->size; i++)
        w[i] = base + fabsf(x[i]);
}

// Rounds values to 0 .. levels of their maximum and returns the half that scales them back.
static uint16_t round_group(const float *v, int n, int levels, int *rounded) {
    float top = 0.0f;
    for (int k = 0; k < n; k++)
        top = v[k] > top ? v[k] : top;
    float inv = top > 0.0f ? (float)levels / top : 0.0f;
    inv = isfinite(inv) ? inv : 0.0f;
    for (int k = 0; k < n; k++)
        rounded[k] = clamp_i32(round_even(inv * v[k]), 0, levels);
    return f32_to_f16(top / (float)levels);
}

// The search for a super-block; importance: of its 256 columns, or NULL.
static void affine_superblock(const struct affine_type *t, const float *x, const float *importance,
                              struct affine_block *b) {
    float scale[16], minimum[16], total[16], w[QUANT_GROUP];
    float spread = importance ? t->spread * quant_sum_squares(x, 256) / 256.0f : 0.0f;
    int n = t->size, groups = 256 / n;
    struct quant_batch batch = {.n = n};
    for (int k = 0; k < groups; k++) {
        const float *from = x + n * k;
        if (importance)
            quant_importance_weights(from, importance + n * k, n, spread, w);
        else
            plain_weights(t, from, w);
        total[k] = 0.0f;
        for (int i = 0; i < n; i++)
            total[k] += w[i];
        quant_batch_put(&batch, k % QUANT_LANES, from, w);
        int first = k + 1 - QUANT_LANES;
        if (k % QUANT_LANES == QUANT_LANES - 1)
            quant_search_affine(&batch, importance ? &t->weighted : &t->plain, scale + first,
                                minimum + first, b->code + n * first);
    }
    if (importance) {
        b->d = f32_to_f16(quant_search_positive(scale, total, groups, t->levels, b->scale));
        b->dm = f32_to_f16(quant_search_positive(minimum, total, groups, t->levels, b->minimum));
    } else {
        b->d = round_group(scale, groups, t->levels, b->scale);
        b->dm = round_group(minimum, groups, t->levels, b->minimum);
    }
    for (int i = 0; i < 256; i++) {
        float unit = f16_to_f32(b->d) * (float)b->scale[i / n];
        if (unit != 0.0f) {
            float shifted = x[i] + f16_to_f32(b->dm) * (float)b->minimum[i / n];
            b->code[i] = clamp_i32(round_even(shifted / unit), 0, t->plain.top);
        }
    }
}

// Packs eight 6-bit scales and minimums into 12 bytes.
static void pack_scales(const int *scale, const int *minimum, unsigned char *c) {
    for (int k = 0; k < 4; k++) {
        c[k] = (unsigned char)(scale[k] | (scale[k + 4] >> 4) << 6);
        c[k + 4] = (unsigned char)(minimum[k] | (minimum[k + 4] >> 4) << 6);
        c[k + 8] = (unsigned char)((scale[k + 4] & 15) | (minimum[k + 4] & 15) << 4);
    }
}

static void pack_low_nibbles(const int *code, unsigned char *q) {
    for (int i = 0; i < 128; i++) {
        const int *pair = code + i / 32 * 64 + i % 32;
        q[i] = (unsigned char)((pair[0] & 15) | (pair[32] & 15) << 4);
    }
}

// Searches a block of Q4_K or Q5_K and writes its first 16 bytes: the two factors and the scales.
static void search_with_6_bit_scales(const struct affine_type *t, const float *x,
                                     const float *importance, struct affine_block *a,
                                     unsigned char *b) {
    affine_superblock(t, x, importance, a);
    store_u16(b, a->d);
    store_u16(b + 2, a->dm);
    pack_scales(a->scale, a->minimum, b + 4);
}

static void q4_k_encode(const float *x, const float *importance, unsigned char *b) {
    static const struct affine_type type = {
        .plain = {.top = 15, .count = 20, .start = -1.0f, .step = 0.1f},
        .weighted = {.top = 15, .count = 36, .start = -0.9f, .step = 0.05f},
        .size = 32,
        .levels = 63,
        .spread = 2.0f,
        .root = true};
    struct affine_block a;
    search_with_6_bit_scales(&type, x, importance, &a, b);
    pack_low_nibbles(a.code, b + 16);
}

static void q5_k_encode(const float *x, const float *importance, unsigned char *b) {
    static const struct affine_type type = {
        .plain = {.top = 31, .count = 15, .start = -0.5f, .step = 0.1f},
        .weighted = {.top = 31, .count = 36, .start = -0.9f, .step = 0.05f},
        .size = 32,
        .levels = 63,
        .spread = 2.0f,
        .root = true};
    struct affine_block a;
    search_with_6_bit_scales(&type, x, importance, &a, b);
    for (int l = 0; l < 32; l++) {
        unsigned byte = 0;
        for (int k = 0; k < 8; k++)
            byte |= ((unsigned)a.code[32 * k + l] >> 4 & 1u) << k;
        b[16 + l] = (unsigned char)byte;
    }
    pack_low_nibbles(a.code, b + 48);
}

static void q2_k_encode(const float *x, const float *importance, unsigned char *b) {
    static const struct affine_type type = {
        .plain = {.top = 3, .count = 15, .start = -0.5f, .step = 0.1f, .absolute = true},
        .weighted = {.top = 3, .count = 36, .start = -0.9f, .step = 0.05f},
        .size = 16,
        .levels = 15,
        .spread = 1.0f};
    struct affine_block a;
    affine_superblock(&type, x, importance, &a);
    for (int k = 0; k < 16; k++)
        b[k] = (unsigned char)(a.scale[k] | a.minimum[k] << 4);
    for (int i = 0; i < 64; i++) {
        const int *c = a.code + i / 32 * 128 + i % 32;
        b[16 + i] = (unsigned char)(c[0] | c[32] << 2 | c[64] << 4 | c[96] << 6);
    }
    store_u16(b + 80, a.d);
    store_u16(b + 82, a.dm);
}

QUANT_ENCODERS(Q2_K, q2_k)
QUANT_ENCODERS(Q4_K, q4_k)
QUANT_ENCODERS(Q5_K, q5_k)

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
        memset(b, 0, BYTES_Q6_K);
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

QUANT_ENCODERS(Q3_K, q3_k)
QUANT_ENCODERS(Q6_K, q6_k)
