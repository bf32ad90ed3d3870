// SPDX-License-Identifier: Apache-2.0
// Codecs of the two types whose 4-bit codes index a fixed non-linear table (IQ4_NL, IQ4_XS).
#include "formats/quant_impl.h"
#include "formats/quant_search.h"

static const signed char levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113};

static void scaled_levels(const unsigned char *q, float d, float *y) {
    for (int j = 0; j < 16; j++) {
        y[j] = d * (float)levels[q[j] & 15];
        y[j + 16] = d * (float)levels[q[j] >> 4];
    }
}

static void iq4_nl_block(const unsigned char *b, float *y) {
    scaled_levels(b + 2, load_half(b), y);
}

// Eight groups of 32; the 6-bit scale of group k is a nibble of b[4..7] and two bits of b[2..3].
static void iq4_xs_block(const unsigned char *b, float *y) {
    float d = load_half(b);
    unsigned high = load_u16(b + 2);
    for (int k = 0; k < 8; k++) {
        int low = b[4 + k / 2] >> 4 * (k % 2) & 15;
        int scale = low | (int)(high >> 2 * k & 3u) << 4;
        scaled_levels(b + 8 + 16 * k, d * (float)(scale - 32), y + 32 * k);
    }
}

void quant_decode_iq4_nl(const void *src, float *dst, int64_t n) {
    decode_blocks(src, dst, n, 32, 18, iq4_nl_block);
}

void quant_decode_iq4_xs(const void *src, float *dst, int64_t n) {
    decode_blocks(src, dst, n, 256, 136, iq4_xs_block);
}

// Halfway between neighbouring levels; a value there takes the higher one.
static const float middles[15] = {-115.5f, -93.5f, -74.0f, -57.0f, -42.0f, -28.5f, -16.0f, -4.5f,
                                  7.0f,    19.0f,  31.5f,  45.5f,  61.0f,  79.0f,  101.0f};

static int nearest_level(float x) {
    int code = 0;
    for (int i = 0; i < 15; i++)
        code += x >= middles[i];
    return code;
}

// Keeps the better of *scale and the least-squares scale of the codes that 1/inv gives. *best: the
// part of the weighted squares that *scale explains.
static void try_levels(const float *x, const float *w, float inv, float *scale, float *best) {
    float xl = 0.0f, ll = 0.0f;
    for (int i = 0; i < 32; i++) {
        float q = (float)levels[nearest_level(inv * x[i])];
        xl += w[i] * q * x[i];
        ll += w[i] * q * q;
    }
    if (ll > 0.0f && xl * xl > *best * ll) {
        *scale = xl / ll;
        *best = *scale * xl;
    }
}

// The scale of 32 values: steps that put the largest one near either end of the table.
static float search_levels(const float *x, const float *w) {
    float extreme = quant_extreme(x, 32), scale = 0.0f, best = 0.0f;
    if (fabsf(extreme) < QUANT_NEGLIGIBLE)
        return 0.0f;
    try_levels(x, w, 1.0f / (-extreme / (float)levels[0]), &scale, &best);
    for (int t = -7; t <= 7; t++)
        try_levels(x, w, (float)(t + levels[0]) / extreme, &scale, &best);
    return scale;
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

static void iq4_nl_encode(const float *x, const float *importance, unsigned char *b) {
    float w[32];
    level_weights(x, importance, 2.0f / 32.0f * quant_sum_squares(x, 32), w);
    float d = search_levels(x, w);
    store_u16(b, f32_to_f16(d));
    put_levels(x, inverse_scale(d), b + 2);
}

static void iq4_xs_encode(const float *x, const float *importance, unsigned char *b) {
    float w[32], scale[8], spread = 2.0f / 256.0f * quant_sum_squares(x, 256);
    for (int k = 0; k < 8; k++) {
        level_weights(x + 32 * k, importance ? importance + 32 * k : NULL, spread, w);
        scale[k] = search_levels(x + 32 * k, w);
    }
    float d = quant_extreme(scale, 8) / -32.0f, inv = inverse_scale(d);
    unsigned high = 0;
    store_u16(b, f32_to_f16(d));
    memset(b + 4, 0, 4);
    for (int k = 0; k < 8; k++) {
        int s = clamp_int(round_even(inv * scale[k]), -32, 31);
        put_levels(x + 32 * k, inverse_scale(d * (float)s), b + 8 + 16 * k);
        b[4 + k / 2] = (unsigned char)(b[4 + k / 2] | ((s + 32) & 15) << 4 * (k % 2));
        high |= (unsigned)(s + 32) >> 4 << 2 * k;
    }
    store_u16(b + 2, (uint16_t)high);
}

QUANT_ENCODERS(iq4_nl, 32, 18)
QUANT_ENCODERS(iq4_xs, 256, 136)
