// SPDX-License-Identifier: Apache-2.0
// Encoders of the super-block types whose groups have a scale and a minimum: Q2_K, Q4_K, Q5_K.
// Each group is searched on its own; then the group scales and minimums are rounded under one half
// each and the codes derived again from what a reader will see. Without importances the bytes equal
// those of the reference quantisers. Q3_K and Q6_K are in k_signed.c.
#include "formats/quant/impl.h"
#include "formats/quant/search.h"

// What tells the types apart.
struct affine_type {
    struct quant_grid plain, weighted;
    int size, levels; // values of a group; largest rounded scale
    float spread;     // the super-block's mean square counts that often beside x^2
    bool root;        // plain weights are root mean square + |x|, else |x|
};

// What is written of a super-block beside the codes.
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

QUANT_ENCODERS(q2_k, 256, 84)
QUANT_ENCODERS(q4_k, 256, 144)
QUANT_ENCODERS(q5_k, 256, 176)
