// SPDX-License-Identifier: Apache-2.0
// Encoders of the two types whose 4-bit codes index a fixed non-linear table (IQ4_NL, IQ4_XS).
#include "formats/quant/impl.h"
#include "formats/quant/search.h"

// Halfway between neighbouring levels; a value there takes the higher one.
static const float middles[15] = {-115.5f, -93.5f, -74.0f, -57.0f, -42.0f, -28.5f, -16.0f, -4.5f,
                                  7.0f,    19.0f,  31.5f,  45.5f,  61.0f,  79.0f,  101.0f};

static int nearest_level(float x) {
    int code = 0;
    for (int i = 0; i < 15; i++)
        code += x >= middles[i];
    return code;
}

typedef float lane_values[QUANT_LANES];

// The nearest level of each value: the lowest, raised at every middle that the value reaches.
static void nearest_levels(const lane_values *v, lane_values *q) {
    const float *from = v[0];
    float *to = q[0];
    for (int j = 0; j < 32 * QUANT_LANES; j++)
        to[j] = (float)quant_iq4_levels[0];
    for (int k = 0; k < 15; k++) {
        const float middle = middles[k],
                    up = (float)(quant_iq4_levels[k + 1] - quant_iq4_levels[k]);
        for (int j = 0; j < 32 * QUANT_LANES; j++)
            to[j] += from[j] >= middle ? up : 0.0f;
    }
}

// Keeps the better of each scale and the least-squares scale of the codes that inv gives. best: the
// part of the weighted squares that the scale explains.
static void try_levels(const struct quant_batch *b, const lane_values inv, float *scale,
                       lane_values best) {
    lane_values v[32], q[32], xl = {0}, ll = {0};
    for (int i = 0; i < 32; i++)
        for (int g = 0; g < QUANT_LANES; g++)
            v[i][g] = inv[g] * b->x[i][g];
    nearest_levels(v, q);
    for (int i = 0; i < 32; i++) {
        for (int g = 0; g < QUANT_LANES; g++) {
            xl[g] += b->w[i][g] * q[i][g] * b->x[i][g];
            ll[g] += b->w[i][g] * q[i][g] * q[i][g];
        }
    }
    for (int g = 0; g < QUANT_LANES; g++) {
        bool better = ll[g] > 0.0f && xl[g] * xl[g] > best[g] * ll[g];
        float a = xl[g] / ll[g];
        scale[g] = better ? a : scale[g];
        best[g] = better ? a * xl[g] : best[g];
    }
}

// The scales of groups of 32: steps that put the largest value near either end of the table.
static void search_levels(const struct quant_batch *b, float *scale) {
    lane_values extreme, inv, best = {0};
    for (int g = 0; g < QUANT_LANES; g++) {
        float column[32];
        for (int i = 0; i < 32; i++)
            column[i] = b->x[i][g];
        extreme[g] = quant_extreme(column, 32);
        inv[g] = 1.0f / (-extreme[g] / (float)quant_iq4_levels[0]);
        scale[g] = 0.0f;
    }
    try_levels(b, inv, scale, best);
    for (int t = -7; t <= 7; t++) {
        for (int g = 0; g < QUANT_LANES; g++)
            inv[g] = (float)(t + quant_iq4_levels[0]) / extreme[g];
        try_levels(b, inv, scale, best);
    }
    for (int g = 0; g < QUANT_LANES; g++)
        scale[g] = fabsf(extreme[g]) < QUANT_NEGLIGIBLE ? 0.0f : scale[g];
}

static void level_weights(const float *x, const float *importance, float spread, float *w) {
    if (importance)
        quant_importance_weights(x, importance, 32, spread, w);
    for (int i = 0; i < 32 && !importance; i++)
        w[i] = x[i] * x[i];
}

static void put_levels(const float *x, float inv, unsigned char *q) {
    for (int j = 0; j < 16; j++)
        q[j] = (unsigned char)(nearest_level(inv * x[j]) | nearest_level(inv * x[j + 16]) << 4);
}

// Scales of up to QUANT_LANES groups with one spread each (32), or with that of all 256.
static void search_blocks(const float *x, const float *importance, int groups, bool together,
                          float *scale) {
    struct quant_batch batch = {.n = 32};
    float w[32], spread = together ? 2.0f / 256.0f * quant_sum_squares(x, 256) : 0.0f;
    for (int k = 0; k < groups; k++) {
        const float *from = x + 32 * k;
        if (!together)
            spread = 2.0f / 32.0f * quant_sum_squares(from, 32);
        level_weights(from, importance ? importance + 32 * k : NULL, spread, w);
        quant_batch_put(&batch, k, from, w);
    }
    search_levels(&batch, scale);
}

static void iq4_nl_row(const float *x, const float *importance, unsigned char *b, int64_t n) {
    float scale[QUANT_LANES];
    for (int64_t at = 0; at < n; at += QUANT_LANES * 32) {
        int groups = n - at < QUANT_LANES * 32 ? (int)((n - at) / 32) : QUANT_LANES;
        search_blocks(x + at, importance ? importance + at : NULL, groups, false, scale);
        for (int k = 0; k < groups; k++, b += BYTES_IQ4_NL) {
            store_u16(b, f32_to_f16(scale[k]));
            put_levels(x + at + 32 * k, inverse_scale(scale[k]), b + 2);
        }
    }
}

static void iq4_xs_encode(const float *x, const float *importance, unsigned char *b) {
    float scale[QUANT_LANES];
    search_blocks(x, importance, 8, true, scale);
    float d = quant_extreme(scale, 8) / -32.0f, inv = inverse_scale(d);
    unsigned high = 0;
    store_u16(b, f32_to_f16(d));
    memset(b + 4, 0, 4);
    for (int k = 0; k < 8; k++) {
        int s = clamp_i32(round_even(inv * scale[k]), -32, 31);
        put_levels(x + 32 * k, inverse_scale(d * (float)s), b + 8 + 16 * k);
        b[4 + k / 2] = (unsigned char)(b[4 + k / 2] | ((s + 32) & 15) << 4 * (k % 2));
        high |= (unsigned)(s + 32) >> 4 << 2 * k;
    }
    store_u16(b + 2, (uint16_t)high);
}

void quant_encode_iq4_nl(const float *src, void *dst, int64_t n) {
    iq4_nl_row(src, NULL, dst, n);
}

void quant_weighted_iq4_nl(const float *src, const float *importance, void *dst, int64_t n) {
    iq4_nl_row(src, importance, dst, n);
}

QUANT_ENCODERS(IQ4_XS, iq4_xs)
