// SPDX-License-Identifier: Apache-2.0
// Shared by the files of this folder only: the list of formats with their codecs, little-endian
// loads and stores, and the loops of encoders over blocks.
#ifndef COPPICE_FORMATS_QUANT_IMPL_H
#define COPPICE_FORMATS_QUANT_IMPL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/num.h"
#include "formats/quant/quant.h"

// The formats: name and its codecs' name, elements and bytes of a block, and whether matrices of a
// model should not be written without importances. N: neither read nor written; R: read; W:
// written, too; I: also with importances.
#define QUANT_FORMATS(N, R, W, I)                                                                  \
    W(F32, f32, 1, 4, false)                                                                       \
    W(F16, f16, 1, 2, false)                                                                       \
    W(BF16, bf16, 1, 2, false)                                                                     \
    W(Q8_0, q8_0, 32, 34, false)                                                                   \
    I(Q4_0, q4_0, 32, 18, false)                                                                   \
    I(Q4_1, q4_1, 32, 20, false)                                                                   \
    I(Q5_0, q5_0, 32, 22, false)                                                                   \
    I(Q5_1, q5_1, 32, 24, false)                                                                   \
    R(Q8_1, q8_1, 32, 36, false)                                                                   \
    I(Q2_K, q2_k, 256, 84, false)                                                                  \
    I(Q3_K, q3_k, 256, 110, false)                                                                 \
    I(Q4_K, q4_k, 256, 144, false)                                                                 \
    I(Q5_K, q5_k, 256, 176, false)                                                                 \
    I(Q6_K, q6_k, 256, 210, false)                                                                 \
    R(Q8_K, q8_k, 256, 292, false)                                                                 \
    I(IQ4_NL, iq4_nl, 32, 18, false)                                                               \
    I(IQ4_XS, iq4_xs, 256, 136, false)                                                             \
    W(MXFP4, mxfp4, 32, 17, false)                                                                 \
    W(NVFP4, nvfp4, 64, 36, false)                                                                 \
    R(F64, f64, 1, 8, false)                                                                       \
    R(I8, i8, 1, 1, false)                                                                         \
    R(I16, i16, 1, 2, false)                                                                       \
    R(I32, i32, 1, 4, false)                                                                       \
    R(I64, i64, 1, 8, false)                                                                       \
    I(IQ2_XXS, iq2_xxs, 256, 66, true)                                                             \
    I(IQ2_XS, iq2_xs, 256, 74, true)                                                               \
    I(IQ3_XXS, iq3_xxs, 256, 98, true)                                                             \
    I(IQ1_S, iq1_s, 256, 50, true)                                                                 \
    I(IQ3_S, iq3_s, 256, 110, false)                                                               \
    I(IQ2_S, iq2_s, 256, 82, true)                                                                 \
    I(IQ1_M, iq1_m, 256, 56, true)                                                                 \
    I(TQ1_0, tq1_0, 256, 54, false)                                                                \
    I(TQ2_0, tq2_0, 256, 66, false)                                                                \
    N(Q1_0, q1_0, 128, 18, false)                                                                  \
    N(Q2_0, q2_0, 64, 18, false)

#define QUANT_NONE(name, x, block, bytes, few)
#define QUANT_READ(name, x, block, bytes, few)                                                     \
    void quant_decode_##x(const void *src, float *dst, int64_t n);
#define QUANT_WRITTEN(name, x, block, bytes, few)                                                  \
    QUANT_READ(name, x, block, bytes, few)                                                         \
    void quant_encode_##x(const float *src, void *dst, int64_t n);
#define QUANT_WEIGHED(name, x, block, bytes, few)                                                  \
    QUANT_WRITTEN(name, x, block, bytes, few)                                                      \
    void quant_weighted_##x(const float *src, const float *importance, void *dst, int64_t n);
QUANT_FORMATS(QUANT_NONE, QUANT_READ, QUANT_WRITTEN, QUANT_WEIGHED)

// BLOCK_x elements, BYTES_x bytes of a block.
#define QUANT_SIZES(name, x, block, bytes, few) BLOCK_##name = block, BYTES_##name = bytes,
enum quant_sizes { QUANT_FORMATS(QUANT_SIZES, QUANT_SIZES, QUANT_SIZES, QUANT_SIZES) };

extern const int8_t quant_iq4_levels[16];   // what the codes of IQ4_NL and IQ4_XS stand for
extern const int8_t quant_e2m1_doubled[16]; // twice the values of the 4-bit float E2M1; bit 3: sign
// Unsigned float of 4 exponent bits (bias 7) and 3 mantissa bits; 0x7F is no number and reads 0.
float quant_ue4m3(unsigned code);

static inline uint16_t load_u16(const unsigned char *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t load_u32(const unsigned char *p) {
    return (uint32_t)load_u16(p) | (uint32_t)load_u16(p + 2) << 16;
}

static inline void store_u16(unsigned char *p, uint16_t v) {
    p[0] = (unsigned char)(v & 255);
    p[1] = (unsigned char)(v >> 8);
}

static inline float load_half(const unsigned char *p) {
    return f16_to_f32(load_u16(p));
}

// The nearest integer, halves to even.
static inline int round_even(float x) {
    return (int)lrintf(x);
}

// 1/d, or 0 where that would not be finite: such a scale is 0 as a half anyway.
static inline float inverse_scale(float d) {
    return fabsf(d) > 3e-39f ? 1.0f / d : 0.0f;
}

// Defines the encoder of a type from NAME_encode(x, block).
#define QUANT_ENCODER(type, name)                                                                  \
    void quant_encode_##name(const float *src, void *dst, int64_t n) {                             \
        unsigned char *b = dst;                                                                    \
        for (int64_t i = 0; i < n; i += BLOCK_##type, b += BYTES_##type)                           \
            name##_encode(src + i, b);                                                             \
    }

// The two encoders of a type from NAME_encode(x, importance or NULL, block).
#define QUANT_ENCODERS(type, name)                                                                 \
    void quant_encode_##name(const float *src, void *dst, int64_t n) {                             \
        unsigned char *b = dst;                                                                    \
        for (int64_t i = 0; i < n; i += BLOCK_##type, b += BYTES_##type)                           \
            name##_encode(src + i, NULL, b);                                                       \
    }                                                                                              \
    void quant_weighted_##name(const float *src, const float *importance, void *dst, int64_t n) {  \
        unsigned char *b = dst;                                                                    \
        for (int64_t i = 0; i < n; i += BLOCK_##type, b += BYTES_##type)                           \
            name##_encode(src + i, importance + i, b);                                             \
    }

#endif
