// SPDX-License-Identifier: Apache-2.0
// Decoders of the types of grid.h. An entry of a codebook has eight or four values; a sign
// bit a value, or seven for eight values of which an even number is negative.
#include "formats/quant/grid.h"

#include <stdbool.h>

#include "formats/quant/impl.h"

const int8_t quant_digits_iq1[3] = {-8, 0, 8};
const int8_t quant_digits_iq2[3] = {8, 25, 43};
const int8_t quant_digits_iq3_xxs[8] = {4, 12, 20, 28, 36, 44, 52, 62};
const int8_t quant_digits_iq3_s[8] = {1, 3, 5, 7, 9, 11, 13, 15};

// Eight values of an entry with three digits; those whose bit in `signs` is set are negative.
static void eight(uint16_t entry, unsigned signs, int8_t *v) {
    for (int j = 0; j < 8; j++) {
        int x = quant_digits_iq2[entry >> 2 * j & 3];
        v[j] = (int8_t)(signs >> j & 1 ? -x : x);
    }
}

static void four(uint16_t entry, const int8_t *digit, unsigned signs, int8_t *v) {
    for (int j = 0; j < 4; j++) {
        int x = digit[entry >> 3 * j & 7];
        v[j] = (int8_t)(signs >> j & 1 ? -x : x);
    }
}

// The eighth sign makes the number of negative values even.
static unsigned with_parity(unsigned seven) {
    unsigned p = seven ^ seven >> 4;
    p ^= p >> 2;
    return seven | ((p ^ p >> 1) & 1) << 7;
}

static void both(struct quant_codes *c, int group, float f) {
    c->f[2 * group] = c->f[2 * group + 1] = f;
}

void quant_codes_iq2_xxs(const unsigned char *b, struct quant_codes *c) {
    float d = load_half(b);
    for (int g = 0; g < 8; g++) {
        const unsigned char *q = b + 2 + 8 * g;
        uint32_t w = load_u32(q + 4);
        both(c, g, d * (float)(2 * (w >> 28) + 1) / 8);
        for (int m = 0; m < 4; m++)
            eight(quant_grid_iq2_xxs[q[m]], with_parity(w >> 7 * m & 127), c->v + 32 * g + 8 * m);
    }
}

// Scales of 16 values, a nibble each.
static void nibble_scales(float d, const unsigned char *sc, struct quant_codes *c) {
    for (int k = 0; k < 16; k++)
        c->f[k] = d * (float)(2 * (sc[k / 2] >> 4 * (k % 2) & 15) + 1) / 8;
}

void quant_codes_iq2_xs(const unsigned char *b, struct quant_codes *c) {
    nibble_scales(load_half(b), b + 66, c);
    for (int m = 0; m < 32; m++) {
        unsigned w = load_u16(b + 2 + 2 * m);
        eight(quant_grid_iq2_xs[w & 511], with_parity(w >> 9), c->v + 8 * m);
    }
}

void quant_codes_iq2_s(const unsigned char *b, struct quant_codes *c) {
    nibble_scales(load_half(b), b + 74, c);
    for (int m = 0; m < 32; m++) {
        unsigned high = b[66 + m / 4] >> 2 * (m % 4) & 3;
        eight(quant_grid_iq2_s[b[2 + m] + 256 * high], b[34 + m], c->v + 8 * m);
    }
}

void quant_codes_iq3_xxs(const unsigned char *b, struct quant_codes *c) {
    float d = load_half(b);
    for (int g = 0; g < 8; g++) {
        uint32_t w = load_u32(b + 66 + 4 * g);
        both(c, g, d * (float)(2 * (w >> 28) + 1) / 4);
        for (int p = 0; p < 8; p++) {
            unsigned signs = with_parity(w >> 7 * (p / 2) & 127) >> 4 * (p % 2);
            four(quant_grid_iq3_xxs[b[2 + 8 * g + p]], quant_digits_iq3_xxs, signs,
                 c->v + 32 * g + 4 * p);
        }
    }
}

void quant_codes_iq3_s(const unsigned char *b, struct quant_codes *c) {
    float d = load_half(b);
    for (int g = 0; g < 8; g++)
        both(c, g, d * (float)(2 * (b[106 + g / 2] >> 4 * (g % 2) & 15) + 1));
    for (int p = 0; p < 64; p++) {
        unsigned high = (unsigned)b[66 + p / 8] >> p % 8 & 1,
                 signs = (unsigned)b[74 + p / 2] >> 4 * (p % 2);
        four(quant_grid_iq3_s[b[2 + p] + 256 * high], quant_digits_iq3_s, signs, c->v + 4 * p);
    }
}

// Eight times an entry of -1, 0, 1, and one more, or less, for each.
static void around(uint16_t entry, bool less, int8_t *v) {
    for (int j = 0; j < 8; j++)
        v[j] = (int8_t)(quant_digits_iq1[entry >> 2 * j & 3] + (less ? -1 : 1));
}

void quant_codes_iq1_s(const unsigned char *b, struct quant_codes *c) {
    float d = load_half(b);
    for (int g = 0; g < 8; g++) {
        unsigned h = load_u16(b + 34 + 2 * g);
        both(c, g, d * (float)(2 * (h >> 12 & 7) + 1) / 8);
        for (int m = 0; m < 4; m++)
            around(quant_grid_iq1[b[2 + 4 * g + m] + 256 * (h >> 3 * m & 7)], h >> 15,
                   c->v + 32 * g + 8 * m);
    }
}

// The half that scales the block is in the top nibbles of the four words of scales.
void quant_codes_iq1_m(const unsigned char *b, struct quant_codes *c) {
    uint16_t s[4], bits = 0;
    for (int k = 0; k < 4; k++) {
        s[k] = load_u16(b + 48 + 2 * k);
        bits = (uint16_t)(bits | s[k] >> 12 << 4 * k);
    }
    float d = f16_to_f32(bits);
    for (int k = 0; k < 16; k++)
        c->f[k] = d * (float)(2 * (s[k / 4] >> 3 * (k % 4) & 7) + 1) / 8;
    for (int m = 0; m < 32; m++) {
        unsigned n = b[32 + m / 2] >> 4 * (m % 2) & 15;
        around(quant_grid_iq1[b[m] + 256 * (n & 7)], n >> 3, c->v + 8 * m);
    }
}

static void all(struct quant_codes *c, float f) {
    for (int k = 0; k < 16; k++)
        c->f[k] = f;
}

// Five digits of base 3 in a byte, as a fraction of 256.
void quant_codes_tq1_0(const unsigned char *b, struct quant_codes *c) {
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    all(c, load_half(b + 52));
    for (int i = 0; i < 256; i++) {
        int first = i < 160 ? 0 : i < 240 ? 160 : 240, from = i < 160 ? 0 : i < 240 ? 32 : 48;
        int side = i < 160 ? 32 : i < 240 ? 16 : 4, n = (i - first) / side;
        unsigned rest = b[from + (i - first) % side] * power[n] & 255u;
        c->v[i] = (int8_t)((int)(rest * 3 >> 8) - 1);
    }
}

void quant_codes_tq2_0(const unsigned char *b, struct quant_codes *c) {
    all(c, load_half(b + 64));
    for (int i = 0; i < 256; i++)
        c->v[i] = (int8_t)((b[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3) - 1);
}

#define DECODER(name, bytes)                                                                       \
    static void name##_block(const unsigned char *b, float *y) {                                   \
        struct quant_codes c;                                                                      \
        quant_codes_##name(b, &c);                                                                 \
        for (int i = 0; i < 256; i++)                                                              \
            y[i] = c.f[i / 16] * (float)c.v[i];                                                    \
    }                                                                                              \
    void quant_decode_##name(const void *src, float *dst, int64_t n) {                             \
        decode_blocks(src, dst, n, 256, bytes, name##_block);                                      \
    }
DECODER(iq1_s, 50)
DECODER(iq1_m, 56)
DECODER(iq2_xxs, 66)
DECODER(iq2_xs, 74)
DECODER(iq2_s, 82)
DECODER(iq3_xxs, 98)
DECODER(iq3_s, 110)
DECODER(tq1_0, 54)
DECODER(tq2_0, 66)
