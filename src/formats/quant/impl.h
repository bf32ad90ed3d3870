// SPDX-License-Identifier: Apache-2.0
// Shared by the quant_*.c files only: little-endian loads and stores, the loop over blocks,
// and the list of codecs that the table in quant.c points to.
#ifndef COPPICE_FORMATS_QUANT_IMPL_H
#define COPPICE_FORMATS_QUANT_IMPL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/num.h"
#include "formats/quant/quant.h"

typedef void quant_decode_fn(const void *src, float *dst, int64_t n);
typedef void quant_encode_fn(const float *src, void *dst, int64_t n);
typedef void quant_weighted_fn(const float *src, const float *importance, void *dst, int64_t n);

quant_decode_fn quant_decode_f32, quant_decode_f16, quant_decode_bf16, quant_decode_f64,
    quant_decode_i8, quant_decode_i16, quant_decode_i32, quant_decode_i64, quant_decode_mxfp4,
    quant_decode_nvfp4;
quant_decode_fn quant_decode_q4_0, quant_decode_q4_1, quant_decode_q5_0, quant_decode_q5_1,
    quant_decode_q8_0, quant_decode_q8_1;
quant_decode_fn quant_decode_q2_k, quant_decode_q3_k, quant_decode_q4_k, quant_decode_q5_k,
    quant_decode_q6_k, quant_decode_q8_k;
quant_decode_fn quant_decode_iq4_nl, quant_decode_iq4_xs;
quant_decode_fn quant_decode_iq1_s, quant_decode_iq1_m, quant_decode_iq2_xxs, quant_decode_iq2_xs,
    quant_decode_iq2_s, quant_decode_iq3_xxs, quant_decode_iq3_s, quant_decode_tq1_0,
    quant_decode_tq2_0;

quant_encode_fn quant_encode_f32, quant_encode_f16, quant_encode_bf16, quant_encode_mxfp4,
    quant_encode_nvfp4;
quant_encode_fn quant_encode_q4_0, quant_encode_q4_1, quant_encode_q5_0, quant_encode_q5_1,
    quant_encode_q8_0;
quant_encode_fn quant_encode_q2_k, quant_encode_q3_k, quant_encode_q4_k, quant_encode_q5_k,
    quant_encode_q6_k;
quant_encode_fn quant_encode_iq4_nl, quant_encode_iq4_xs;
quant_encode_fn quant_encode_iq1_s, quant_encode_iq1_m, quant_encode_iq2_xxs, quant_encode_iq2_xs,
    quant_encode_iq2_s, quant_encode_iq3_xxs, quant_encode_iq3_s, quant_encode_tq1_0,
    quant_encode_tq2_0;

quant_weighted_fn quant_weighted_q4_0, quant_weighted_q4_1, quant_weighted_q5_0,
    quant_weighted_q5_1;
quant_weighted_fn quant_weighted_q2_k, quant_weighted_q3_k, quant_weighted_q4_k,
    quant_weighted_q5_k, quant_weighted_q6_k;
quant_weighted_fn quant_weighted_iq4_nl, quant_weighted_iq4_xs;
quant_weighted_fn quant_weighted_iq1_s, quant_weighted_iq1_m, quant_weighted_iq2_xxs,
    quant_weighted_iq2_xs, quant_weighted_iq2_s, quant_weighted_iq3_xxs, quant_weighted_iq3_s,
    quant_weighted_tq1_0, quant_weighted_tq2_0;

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

// The inlined function pointer is a constant, so each use becomes one plain loop.
typedef void block_decode_fn(const unsigned char *b, float *y);
static inline void decode_blocks(const void *src, float *dst, int64_t n, int block, int bytes,
                                 block_decode_fn *fn) {
    const unsigned char *b = src;
    for (int64_t i = 0; i < n; i += block, b += bytes)
        fn(b, dst + i);
}

typedef void block_encode_fn(const float *x, unsigned char *b);
static inline void encode_blocks(const float *src, void *dst, int64_t n, int block, int bytes,
                                 block_encode_fn *fn) {
    unsigned char *b = dst;
    for (int64_t i = 0; i < n; i += block, b += bytes)
        fn(src + i, b);
}

// Defines the two encoders of a type from NAME_encode(x, importance or NULL, block).
#define QUANT_ENCODERS(name, block, bytes)                                                         \
    void quant_encode_##name(const float *src, void *dst, int64_t n) {                             \
        unsigned char *b = dst;                                                                    \
        for (int64_t i = 0; i < n; i += (block), b += (bytes))                                     \
            name##_encode(src + i, NULL, b);                                                       \
    }                                                                                              \
    void quant_weighted_##name(const float *src, const float *importance, void *dst, int64_t n) {  \
        unsigned char *b = dst;                                                                    \
        for (int64_t i = 0; i < n; i += (block), b += (bytes))                                     \
            name##_encode(src + i, importance + i, b);                                             \
    }

#endif
