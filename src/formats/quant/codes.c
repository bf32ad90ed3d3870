// SPDX-License-Identifier: Apache-2.0
// How the blocks of a file hold their integers and scales: one function and one row a type, from
// which the decoders below and the CPU's packed weights are made. Layouts: docs/formats.md.
#include "formats/quant/codes.h"

#include <stdbool.h>

#include "formats/quant/grid.h"
#include "formats/quant/impl.h"

const int8_t quant_iq4_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
const int8_t quant_e2m1_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

float quant_ue4m3(unsigned code) {
    unsigned exponent = code >> 3 & 15u, mantissa = code & 7u;
    if (code == 0x7F)
        return 0.0f;
    if (exponent == 0)
        return (float)mantissa * 0x1p-9f;
    return ldexpf((float)(8u + mantissa), (int)exponent - 10);
}

// Element i's code is the low half of byte i, that of element i + 16 the high one.
static void nibbles(const unsigned char *restrict q, uint8_t *restrict code) {
    for (int j = 0; j < 16; j++) {
        code[j] = q[j] & 15;
        code[j + 16] = q[j] >> 4;
    }
}

static void q4_0(const unsigned char *b, struct quant_codes *c) {
    c->d = load_u16(b);
    nibbles(b + 2, c->code);
}

// The file adds its minimum, a form subtracts it: the sign of an fp16 is its top bit.
static void q4_1(const unsigned char *b, struct quant_codes *c) {
    c->d = load_u16(b);
    c->dm = load_u16(b + 2) ^ 0x8000;
    nibbles(b + 4, c->code);
}

static __attribute__((noinline)) void fifth_bits(const unsigned char *restrict h,
                                                 uint8_t *restrict code) {
    for (int j = 0; j < 4; j++)
        for (int k = 0; k < 8; k++)
            code[8 * j + k] = (uint8_t)(code[8 * j + k] | (h[j] >> k & 1) << 4);
}

static void q5_0(const unsigned char *b, struct quant_codes *c) {
    c->d = load_u16(b);
    nibbles(b + 6, c->code);
    fifth_bits(b + 2, c->code);
}

static void q5_1(const unsigned char *b, struct quant_codes *c) {
    c->d = load_u16(b);
    c->dm = load_u16(b + 2) ^ 0x8000;
    nibbles(b + 8, c->code);
    fifth_bits(b + 4, c->code);
}

static void q8_0(const unsigned char *b, struct quant_codes *c) {
    c->d = load_u16(b);
    for (int i = 0; i < 32; i++)
        c->code[i] = b[2 + i] ^ 0x80;
}

// The same where codes stand for levels. Inlined into a block it is unrolled into inserts of bytes
// into vectors, at half the speed.
static __attribute__((noinline)) void looked_up(const unsigned char *q, const int8_t *level,
                                                int offset, uint8_t *code) {
    for (int i = 0; i < 16; i++) {
        code[i] = (uint8_t)(level[q[i] & 15] + offset);
        code[i + 16] = (uint8_t)(level[q[i] >> 4] + offset);
    }
}

static void iq4_nl(const unsigned char *b, struct quant_codes *c) {
    c->d = load_u16(b);
    looked_up(b + 2, quant_iq4_levels, 128, c->code);
}

static void iq4_xs(const unsigned char *b, struct quant_codes *c) {
    c->d = load_u16(b);
    for (int k = 0; k < 8; k++) {
        int low = b[4 + k / 2] >> 4 * (k % 2) & 15, high = load_u16(b + 2) >> 2 * k & 3;
        c->s[k] = (int8_t)(low + 16 * high - 32);
        looked_up(b + 8 + 16 * k, quant_iq4_levels, 128, c->code + 32 * k);
    }
}

// 2^(e-128): the E8M0 scale 2^(e-127), halved because the code table is doubled.
static void mxfp4(const unsigned char *b, struct quant_codes *c) {
    const uint32_t bits = b[0] > 1 ? (b[0] - 1u) << 23 : 0x200000u << b[0]; // or subnormal
    memcpy(&c->f[0], &bits, sizeof bits);
    looked_up(b + 1, quant_e2m1_doubled, 16, c->code);
}

// Four sub-blocks of 16, each with its scale byte and 8 bytes of codes.
static void nvfp4(const unsigned char *b, struct quant_codes *c) {
    for (int s = 0; s < 4; s++) {
        c->f[s] = 0.5f * quant_ue4m3(b[s]);
        for (int j = 0; j < 8; j++) {
            uint8_t *pair = c->code + 16 * s + j;
            pair[0] = (uint8_t)(quant_e2m1_doubled[b[4 + 8 * s + j] & 15] + 16);
            pair[8] = (uint8_t)(quant_e2m1_doubled[b[4 + 8 * s + j] >> 4] + 16);
        }
    }
}

// 6-bit scales and minima of Q4_K and Q5_K.
static void k_scales(const unsigned char *q, struct quant_codes *c) {
    for (int k = 0; k < 4; k++) {
        c->s[k] = q[k] & 63;
        c->m[k] = q[k + 4] & 63;
        c->s[k + 4] = (int8_t)((q[k + 8] & 15) + 16 * (q[k] >> 6));
        c->m[k + 4] = (int8_t)((q[k + 8] >> 4) + 16 * (q[k + 4] >> 6));
    }
}

static void k_nibbles(const unsigned char *restrict q, uint8_t *restrict code) {
    for (int k = 0; k < 4; k++) {
        for (int l = 0; l < 32; l++) {
            code[64 * k + l] = q[32 * k + l] & 15;
            code[64 * k + 32 + l] = q[32 * k + l] >> 4;
        }
    }
}

static void q4_k(const unsigned char *b, struct quant_codes *c) {
    c->d = load_u16(b);
    c->dm = load_u16(b + 2);
    k_scales(b + 4, c);
    k_nibbles(b + 16, c->code);
}

static void q5_k(const unsigned char *b, struct quant_codes *c) {
    c->d = load_u16(b);
    c->dm = load_u16(b + 2);
    k_scales(b + 4, c);
    k_nibbles(b + 48, c->code);
    for (int k = 0; k < 8; k++)
        for (int l = 0; l < 32; l++)
            c->code[32 * k + l] = (uint8_t)(c->code[32 * k + l] | (b[16 + l] >> k & 1) << 4);
}

static void q6_k(const unsigned char *b, struct quant_codes *c) {
    c->d = load_u16(b + 208);
    memcpy(c->s, b + 192, 16);
    for (int i = 0; i < 256; i++) {
        int n = i / 128, g = i % 128 / 32, l = i % 32;
        int low = b[64 * n + 32 * (g & 1) + l] >> (g < 2 ? 0 : 4) & 15;
        c->code[i] = (uint8_t)(low + 16 * (b[128 + 32 * n + l] >> 2 * g & 3));
    }
}

static void q2_k(const unsigned char *b, struct quant_codes *c) {
    c->d = load_u16(b + 80);
    c->dm = load_u16(b + 82);
    for (int k = 0; k < 16; k++) {
        c->s[k] = b[k] & 15;
        c->m[k] = (int8_t)(b[k] >> 4);
    }
    for (int i = 0; i < 256; i++)
        c->code[i] = b[16 + i / 128 * 32 + i % 32] >> 2 * (i % 128 / 32) & 3;
}

static void q3_k(const unsigned char *b, struct quant_codes *c) {
    const unsigned char *q = b + 96;
    c->d = load_u16(b + 108);
    for (int k = 0; k < 16; k++) {
        int low = k < 8 ? q[k] & 15 : q[k - 8] >> 4;
        c->s[k] = (int8_t)(low + 16 * (q[8 + k % 4] >> 2 * (k / 4) & 3) - 32);
    }
    for (int i = 0; i < 256; i++) {
        int n = i / 128, g = i % 128 / 32, l = i % 32;
        int low = b[32 + 32 * n + l] >> 2 * g & 3, high = b[l] >> (4 * n + g) & 1;
        c->code[i] = (uint8_t)(low + 4 * high);
    }
}

// Eight values of an entry with three digits; those whose bit in `signs` is set are negative.
static void eight(uint16_t entry, unsigned signs, uint8_t *code) {
    for (int j = 0; j < 8; j++) {
        int x = quant_digits_iq2[entry >> 2 * j & 3];
        code[j] = (uint8_t)(128 + (signs >> j & 1 ? -x : x));
    }
}

static void four(uint16_t entry, const int8_t *digit, unsigned signs, int offset, uint8_t *code) {
    for (int j = 0; j < 4; j++) {
        int x = digit[entry >> 3 * j & 7];
        code[j] = (uint8_t)(offset + (signs >> j & 1 ? -x : x));
    }
}

// The eighth sign makes the number of negative values even.
static unsigned with_parity(unsigned seven) {
    unsigned p = seven ^ seven >> 4;
    p ^= p >> 2;
    return seven | ((p ^ p >> 1) & 1) << 7;
}

static void iq2_xxs(const unsigned char *b, struct quant_codes *c) {
    float d = load_half(b);
    for (int g = 0; g < 8; g++) {
        const unsigned char *q = b + 2 + 8 * g;
        uint32_t w = load_u32(q + 4);
        c->f[g] = d * (float)(2 * (w >> 28) + 1) / 8;
        for (int m = 0; m < 4; m++)
            eight(quant_grid_iq2_xxs[q[m]], with_parity(w >> 7 * m & 127),
                  c->code + 32 * g + 8 * m);
    }
}

// Scales of 16 values, a nibble each.
static void nibble_scales(float d, const unsigned char *sc, struct quant_codes *c) {
    for (int k = 0; k < 16; k++)
        c->f[k] = d * (float)(2 * (sc[k / 2] >> 4 * (k % 2) & 15) + 1) / 8;
}

static void iq2_xs(const unsigned char *b, struct quant_codes *c) {
    nibble_scales(load_half(b), b + 66, c);
    for (int m = 0; m < 32; m++) {
        unsigned w = load_u16(b + 2 + 2 * m);
        eight(quant_grid_iq2_xs[w & 511], with_parity(w >> 9), c->code + 8 * m);
    }
}

static void iq2_s(const unsigned char *b, struct quant_codes *c) {
    nibble_scales(load_half(b), b + 74, c);
    for (int m = 0; m < 32; m++) {
        unsigned high = b[66 + m / 4] >> 2 * (m % 4) & 3;
        eight(quant_grid_iq2_s[b[2 + m] + 256 * high], b[34 + m], c->code + 8 * m);
    }
}

static void iq3_xxs(const unsigned char *b, struct quant_codes *c) {
    float d = load_half(b);
    for (int g = 0; g < 8; g++) {
        uint32_t w = load_u32(b + 66 + 4 * g);
        c->f[g] = d * (float)(2 * (w >> 28) + 1) / 4;
        for (int p = 0; p < 8; p++) {
            unsigned signs = with_parity(w >> 7 * (p / 2) & 127) >> 4 * (p % 2);
            four(quant_grid_iq3_xxs[b[2 + 8 * g + p]], quant_digits_iq3_xxs, signs, 128,
                 c->code + 32 * g + 4 * p);
        }
    }
}

static void iq3_s(const unsigned char *b, struct quant_codes *c) {
    float d = load_half(b);
    for (int g = 0; g < 8; g++)
        c->f[g] = d * (float)(2 * (b[106 + g / 2] >> 4 * (g % 2) & 15) + 1);
    for (int p = 0; p < 64; p++) {
        unsigned high = (unsigned)b[66 + p / 8] >> p % 8 & 1,
                 signs = (unsigned)b[74 + p / 2] >> 4 * (p % 2);
        four(quant_grid_iq3_s[b[2 + p] + 256 * high], quant_digits_iq3_s, signs, 16,
             c->code + 4 * p);
    }
}

// Eight times an entry of -1, 0, 1, and one more, or less, for each.
static void around(uint16_t entry, bool less, uint8_t *code) {
    for (int j = 0; j < 8; j++)
        code[j] = (uint8_t)(16 + quant_digits_iq1[entry >> 2 * j & 3] + (less ? -1 : 1));
}

static void iq1_s(const unsigned char *b, struct quant_codes *c) {
    float d = load_half(b);
    for (int g = 0; g < 8; g++) {
        unsigned h = load_u16(b + 34 + 2 * g);
        c->f[g] = d * (float)(2 * (h >> 12 & 7) + 1) / 8;
        for (int m = 0; m < 4; m++)
            around(quant_grid_iq1[b[2 + 4 * g + m] + 256 * (h >> 3 * m & 7)], h >> 15,
                   c->code + 32 * g + 8 * m);
    }
}

// The half that scales the block is in the top nibbles of the four words of scales.
static void iq1_m(const unsigned char *b, struct quant_codes *c) {
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
        around(quant_grid_iq1[b[m] + 256 * (n & 7)], n >> 3, c->code + 8 * m);
    }
}

// One half for all; there is no form without scales of groups, so that these are 1.
static void ternary_scale(const unsigned char *half, struct quant_codes *c) {
    c->d = load_u16(half);
    memset(c->s, 1, sizeof c->s);
}

// Five digits of base 3 in a byte, as a fraction of 256.
static void tq1_0(const unsigned char *b, struct quant_codes *c) {
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    ternary_scale(b + 52, c);
    for (int i = 0; i < 256; i++) {
        int first = i < 160 ? 0 : i < 240 ? 160 : 240, from = i < 160 ? 0 : i < 240 ? 32 : 48;
        int side = i < 160 ? 32 : i < 240 ? 16 : 4, n = (i - first) / side;
        unsigned rest = b[from + (i - first) % side] * power[n] & 255u;
        c->code[i] = (uint8_t)((rest * 3 >> 8) + 3);
    }
}

static void tq2_0(const unsigned char *b, struct quant_codes *c) {
    ternary_scale(b + 64, c);
    for (int i = 0; i < 256; i++)
        c->code[i] = (uint8_t)((b[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3) + 3);
}

// The types with such blocks: name, its functions' name, form.
#define CODE_TYPES(X)                                                                              \
    X(Q8_0, q8_0, B8_HALF)                                                                         \
    X(Q4_0, q4_0, N4_HALF)                                                                         \
    X(Q4_1, q4_1, N4_HALF_MIN)                                                                     \
    X(Q5_0, q5_0, B6_HALF)                                                                         \
    X(Q5_1, q5_1, B6_HALF_MIN)                                                                     \
    X(Q2_K, q2_k, N4_SUPER_2MIN)                                                                   \
    X(Q3_K, q3_k, N4_SUPER_2)                                                                      \
    X(Q4_K, q4_k, N4_SUPER_MIN)                                                                    \
    X(Q5_K, q5_k, B6_SUPER_MIN)                                                                    \
    X(Q6_K, q6_k, B6_SUPER_2)                                                                      \
    X(IQ4_NL, iq4_nl, B8_HALF)                                                                     \
    X(IQ4_XS, iq4_xs, B8_SUPER)                                                                    \
    X(MXFP4, mxfp4, B6_FLOAT)                                                                      \
    X(NVFP4, nvfp4, B6_FLOAT_2)                                                                    \
    X(IQ1_S, iq1_s, B6_FLOAT)                                                                      \
    X(IQ1_M, iq1_m, B6_FLOAT_2)                                                                    \
    X(IQ2_XXS, iq2_xxs, B8_FLOAT)                                                                  \
    X(IQ2_XS, iq2_xs, B8_FLOAT_2)                                                                  \
    X(IQ2_S, iq2_s, B8_FLOAT_2)                                                                    \
    X(IQ3_XXS, iq3_xxs, B8_FLOAT)                                                                  \
    X(IQ3_S, iq3_s, B6_FLOAT)                                                                      \
    X(TQ1_0, tq1_0, N4_SUPER_2)                                                                    \
    X(TQ2_0, tq2_0, N4_SUPER_2)

static const struct quant_code_type types[] = {{TYPE_F32, FORM_F32, NULL},
                                               {TYPE_F16, FORM_F16, NULL},
                                               {TYPE_BF16, FORM_BF16, NULL},
#define X(type, x, form) {TYPE_##type, FORM_##form, x},
                                               CODE_TYPES(X)
#undef X
};

const struct quant_code_type *quant_code_type(uint32_t type) {
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].type == type)
            return &types[i];
    return NULL;
}

static const struct form forms[FORM_COUNT] = {
#define X(name, bits, shift, subs, min, scale) [FORM_##name] = {bits, shift, subs, min, scale},
    CODE_FORMS(X)
#undef X
};

const struct form *code_form(enum code_form f) {
    return &forms[f];
}

// The n values of a block; f and n are constants.
static inline __attribute__((always_inline)) void values_of(const struct quant_codes *c,
                                                            struct form f, int n, float *y) {
    const bool floats = f.scale == SCALE_FLOAT, super = f.scale == SCALE_SUPER;
    const int each = 32 / f.subs, offset = f.shift ? 1 << f.shift : 0;
    const float d = floats ? 0.0f : f16_to_f32(c->d), dm = f.min ? f16_to_f32(c->dm) : 0.0f;
    for (int s = 0; s < n / each; s++) {
        const float by = floats ? c->f[s] : super ? d * (float)c->s[s] : d;
        const float minimum = f.min && super ? dm * (float)c->m[s] : dm;
        for (int i = s * each; i < (s + 1) * each; i++) {
            const float v = by * (float)(c->code[i] - offset);
            y[i] = f.min ? v - minimum : v;
        }
    }
}

// Blocks of 256 values at a time: codes that were stored byte by byte are not loaded as vectors at
// once, which would wait for the stores.
#define X(type, x, form_name)                                                                      \
    void quant_decode_##x(const void *src, float *dst, int64_t n) {                                \
        enum { TOGETHER = 256 / BLOCK_##type };                                                    \
        const unsigned char *b = src;                                                              \
        struct quant_codes c[TOGETHER];                                                            \
        for (int64_t left = n / BLOCK_##type; left > 0; left -= TOGETHER) {                        \
            const int blocks = left < TOGETHER ? (int)left : TOGETHER;                             \
            for (int i = 0; i < blocks; i++, b += BYTES_##type)                                    \
                x(b, &c[i]);                                                                       \
            for (int i = 0; i < blocks; i++, dst += BLOCK_##type)                                  \
                values_of(&c[i], forms[FORM_##form_name], BLOCK_##type, dst);                      \
        }                                                                                          \
    }
CODE_TYPES(X)
#undef X
