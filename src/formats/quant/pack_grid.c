// SPDX-License-Identifier: Apache-2.0
// The codebook types as the encoder sees them, and the bytes of their blocks; the ternary types,
// which need no search.
#include <stdlib.h>

#include "formats/quant/encode_grid.h"
#include "formats/quant/grid.h"
#include "formats/quant/impl.h"

static void store_u32(unsigned char *p, uint32_t v) {
    store_u16(p, (uint16_t)(v & 0xFFFF));
    store_u16(p + 2, (uint16_t)(v >> 16));
}

static void put_nibbles(const int *scale, int n, unsigned char *b) {
    for (int k = 0; k < n; k += 2)
        b[k / 2] = (unsigned char)(scale[k] | scale[k + 1] << 4);
}

// Four times seven signs and a scale.
static uint32_t signs_and_scale(const unsigned char *signs, int scale) {
    uint32_t w = (uint32_t)scale << 28;
    for (int m = 0; m < 4; m++)
        w |= (uint32_t)(signs[m] & 127) << 7 * m;
    return w;
}

static void pack_iq2_xxs(const struct grid_block *g, unsigned char *b) {
    store_u16(b, f32_to_f16(g->d));
    for (int k = 0; k < 8; k++) {
        for (int m = 0; m < 4; m++)
            b[2 + 8 * k + m] = (unsigned char)g->index[4 * k + m];
        store_u32(b + 6 + 8 * k, signs_and_scale(g->signs + 4 * k, g->scale[k]));
    }
}

static void pack_iq2_xs(const struct grid_block *g, unsigned char *b) {
    store_u16(b, f32_to_f16(g->d));
    for (int m = 0; m < 32; m++)
        store_u16(b + 2 + 2 * m, (uint16_t)(g->index[m] | (g->signs[m] & 127) << 9));
    put_nibbles(g->scale, 16, b + 66);
}

static void pack_iq2_s(const struct grid_block *g, unsigned char *b) {
    store_u16(b, f32_to_f16(g->d));
    memset(b + 66, 0, 8);
    for (int m = 0; m < 32; m++) {
        b[2 + m] = (unsigned char)(g->index[m] & 255);
        b[34 + m] = g->signs[m];
        b[66 + m / 4] |= (unsigned char)(g->index[m] >> 8 << 2 * (m % 4));
    }
    put_nibbles(g->scale, 16, b + 74);
}

static void pack_iq3_xxs(const struct grid_block *g, unsigned char *b) {
    store_u16(b, f32_to_f16(g->d));
    for (int p = 0; p < 64; p++)
        b[2 + p] = (unsigned char)g->index[p];
    for (int k = 0; k < 8; k++)
        store_u32(b + 66 + 4 * k, signs_and_scale(g->signs + 4 * k, g->scale[k]));
}

static void pack_iq3_s(const struct grid_block *g, unsigned char *b) {
    store_u16(b, f32_to_f16(g->d));
    memset(b + 66, 0, 8);
    for (int p = 0; p < 64; p++) {
        b[2 + p] = (unsigned char)(g->index[p] & 255);
        b[66 + p / 8] |= (unsigned char)(g->index[p] >> 8 << p % 8);
    }
    memcpy(b + 74, g->signs, 32);
    put_nibbles(g->scale, 8, b + 106);
}

static void pack_iq1_s(const struct grid_block *g, unsigned char *b) {
    store_u16(b, f32_to_f16(g->d));
    for (int k = 0; k < 8; k++) {
        unsigned h = (unsigned)g->scale[k] << 12 | (unsigned)g->less[4 * k] << 15;
        for (int m = 0; m < 4; m++) {
            b[2 + 4 * k + m] = (unsigned char)(g->index[4 * k + m] & 255);
            h |= (unsigned)(g->index[4 * k + m] >> 8) << 3 * m;
        }
        store_u16(b + 34 + 2 * k, (uint16_t)h);
    }
}

static void pack_iq1_m(const struct grid_block *g, unsigned char *b) {
    uint16_t d = f32_to_f16(g->d);
    memset(b + 32, 0, 16);
    for (int m = 0; m < 32; m++) {
        unsigned n = (unsigned)(g->index[m] >> 8) | (unsigned)g->less[m] << 3;
        b[m] = (unsigned char)(g->index[m] & 255);
        b[32 + m / 2] |= (unsigned char)(n << 4 * (m % 2));
    }
    for (int k = 0; k < 4; k++) {
        unsigned s = (unsigned)(d >> 4 * k & 15) << 12;
        for (int i = 0; i < 4; i++)
            s |= (unsigned)g->scale[4 * k + i] << 3 * i;
        store_u16(b + 48 + 2 * k, (uint16_t)s);
    }
}

// Trial scales: `from` in units of the scale at which the largest value gets the largest code.
#define TYPE(name, size, book, n, of, ...)                                                         \
    static const struct grid_type type_##name = {.bytes = size,                                    \
                                                 .entry = book,                                    \
                                                 .entries = n,                                     \
                                                 .digit = of,                                      \
                                                 .pack = pack_##name,                              \
                                                 __VA_ARGS__};                                     \
    void quant_encode_##name(const float *src, void *dst, int64_t n_) {                            \
        quant_grid_encode(&type_##name, src, NULL, dst, n_);                                       \
    }                                                                                              \
    void quant_weighted_##name(const float *src, const float *importance, void *dst, int64_t n_) { \
        quant_grid_encode(&type_##name, src, importance, dst, n_);                                 \
    }
#define OF_8 .values = 8, .unit = 0.125f

TYPE(iq2_xxs, 66, quant_grid_iq2_xxs, 256, quant_digits_iq2, OF_8, .group = 32, .top = 15,
     .parity = true, .spread = 1.0f, .from = 0.4f, .step = 1.13f)
TYPE(iq2_xs, 74, quant_grid_iq2_xs, 512, quant_digits_iq2, OF_8, .group = 16, .top = 15,
     .parity = true, .spread = 1.0f, .from = 0.4f, .step = 1.13f)
TYPE(iq2_s, 82, quant_grid_iq2_s, 1024, quant_digits_iq2, OF_8, .group = 16, .top = 15,
     .spread = 2.0f, .from = 0.4f, .step = 1.13f)
TYPE(iq3_xxs, 98, quant_grid_iq3_xxs, 256, quant_digits_iq3_xxs, .values = 4, .unit = 0.25f,
     .group = 32, .top = 15, .parity = true, .spread = 2.0f, .from = 0.5f, .step = 1.1f)
TYPE(iq3_s, 110, quant_grid_iq3_s, 512, quant_digits_iq3_s, .values = 4, .unit = 1.0f, .group = 32,
     .top = 15, .spread = 2.0f, .from = 0.5f, .step = 1.1f)
TYPE(iq1_s, 50, quant_grid_iq1, 2048, quant_digits_iq1, OF_8, .group = 32, .top = 7, .span = 4,
     .spread = 2.0f, .from = 0.3f, .step = 1.15f)
TYPE(iq1_m, 56, quant_grid_iq1, 2048, quant_digits_iq1, OF_8, .group = 16, .top = 7, .span = 1,
     .spread = 2.0f, .from = 0.3f, .step = 1.15f)

// Ternary types: the largest k values as d or -d and the rest as 0. For any k the best d is the
// weighted mean of their sizes, and no other choice of values is better for that d.

struct sized {
    float size, w;
};

static int by_size(const void *a, const void *b) {
    float x = ((const struct sized *)a)->size, y = ((const struct sized *)b)->size;
    return (x < y) - (x > y);
}

// d, and the digits 0, 1, 2 of 256 values. Importances that are all 0 count as equal.
static float ternary(const float *x, const float *importance, unsigned char *digit) {
    struct sized v[256];
    float sum = 0.0f, weight = 0.0f, best = 0.0f, d = 0.0f, any = 0.0f;
    for (int i = 0; i < 256 && importance; i++)
        any += importance[i];
    for (int i = 0; i < 256; i++)
        v[i] = (struct sized){fabsf(x[i]), any > 0.0f ? importance[i] : 1.0f};
    qsort(v, 256, sizeof *v, by_size);
    for (int i = 0; i < 256; i++) {
        sum += v[i].w * v[i].size;
        weight += v[i].w;
        if (weight > 0.0f && sum * sum > best * weight) {
            best = sum * sum / weight;
            d = sum / weight;
        }
    }
    for (int i = 0; i < 256; i++)
        digit[i] = (unsigned char)(1 + (2.0f * x[i] > d) - (2.0f * x[i] < -d));
    return d;
}

// A byte stands for a fraction of 256; rounded up, so that no digit falls below itself.
static unsigned char five_digits(const unsigned char *digit, int side, int n) {
    unsigned sum = 0;
    for (int k = 0; k < 5; k++)
        sum = 3 * sum + (k < n ? digit[k * side] : 0u);
    return (unsigned char)((256 * sum + 242) / 243);
}

static void tq1_0_encode(const float *x, const float *importance, unsigned char *b) {
    unsigned char digit[256];
    store_u16(b + 52, f32_to_f16(ternary(x, importance, digit)));
    for (int i = 0; i < 32; i++)
        b[i] = five_digits(digit + i, 32, 5);
    for (int i = 0; i < 16; i++)
        b[32 + i] = five_digits(digit + 160 + i, 16, 5);
    for (int i = 0; i < 4; i++)
        b[48 + i] = five_digits(digit + 240 + i, 4, 4);
}

static void tq2_0_encode(const float *x, const float *importance, unsigned char *b) {
    unsigned char digit[256];
    store_u16(b + 64, f32_to_f16(ternary(x, importance, digit)));
    memset(b, 0, 64);
    for (int i = 0; i < 256; i++)
        b[32 * (i / 128) + i % 32] |= (unsigned char)(digit[i] << 2 * (i % 128 / 32));
}

QUANT_ENCODERS(tq1_0, 256, 54)
QUANT_ENCODERS(tq2_0, 256, 66)
