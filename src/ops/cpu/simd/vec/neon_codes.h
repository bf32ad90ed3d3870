// SPDX-License-Identifier: Apache-2.0
// The rest of the vocabulary of neon.h: codes of activations, and stored numbers to f32 and
// back. Included by ops/cpu/simd/row/neon.c only.
#ifndef COPPICE_OPS_CPU_SIMD_VEC_NEON_CODES_H
#define COPPICE_OPS_CPU_SIMD_VEC_NEON_CODES_H

#include "ops/cpu/simd/vec/neon.h"

struct two_codes {
    int8x16_t a, b;
};
#define vcodes struct two_codes

INLINE int32x4_t codes(float32x4_t x, float32x4_t inverse) {
    const float32x4_t round = vdupq_n_f32(EXP_ROUND);
    return vreinterpretq_s32_f32(vaddq_f32(vmulq_f32(x, inverse), round));
}

// The low byte of each of sixteen integers.
INLINE int8x16_t low_bytes(vf x, vf inverse) {
    int16x8_t a = vuzp1q_s16(vreinterpretq_s16_s32(codes(x.a, inverse.a)),
                             vreinterpretq_s16_s32(codes(x.b, inverse.b)));
    int16x8_t b = vuzp1q_s16(vreinterpretq_s16_s32(codes(x.c, inverse.c)),
                             vreinterpretq_s16_s32(codes(x.d, inverse.d)));
    return vuzp1q_s8(vreinterpretq_s8_s16(a), vreinterpretq_s8_s16(b));
}

// Codes of 32 activations (ops/cpu/simd/row/scalar.c: quantise).
INLINE vcodes v_codes(vf low, vf high, vf inverse) {
    return (vcodes){low_bytes(low, inverse), low_bytes(high, inverse)};
}

INLINE void v_store_codes(int8_t *q, vcodes v) {
    vst1q_s8(q, v.a);
    vst1q_s8(q + 16, v.b);
}

// Sums of sixteen codes, for four vectors.
INLINE v4i sum_codes(int8x16_t a, int8x16_t b, int8x16_t c, int8x16_t d) {
    int32x4_t x = vpaddq_s32(vpaddlq_s16(vpaddlq_s8(a)), vpaddlq_s16(vpaddlq_s8(b)));
    int32x4_t y = vpaddq_s32(vpaddlq_s16(vpaddlq_s8(c)), vpaddlq_s16(vpaddlq_s8(d)));
    return (v4i)vpaddq_s32(x, y);
}

// Sums of the first and the last 16 of 32 codes, for four vectors.
INLINE void code_sums(const vcodes v[4], v4i half[2]) {
    half[0] = sum_codes(v[0].a, v[1].a, v[2].a, v[3].a);
    half[1] = sum_codes(v[0].b, v[1].b, v[2].b, v[3].b);
}

INLINE float32x4_t from_f16(const uint16_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

INLINE vf v_from_f16(const uint16_t *p) {
    return (vf){from_f16(p), from_f16(p + 4), from_f16(p + 8), from_f16(p + 12)};
}

INLINE float v_one_f16(uint16_t h) {
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
}

// Eight numbers to the nearest, ties to even.
INLINE void v_to_f16(const float *x, uint16_t out[8]) {
    vst1_u16(out, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(x))));
    vst1_u16(out + 4, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(x + 4))));
}

INLINE float32x4_t from_bf16(const uint16_t *p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}

INLINE vf v_from_bf16(const uint16_t *p) {
    return (vf){from_bf16(p), from_bf16(p + 4), from_bf16(p + 8), from_bf16(p + 12)};
}

INLINE float32x4_t float_low(int16x8_t x) {
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(x)));
}

INLINE float32x4_t float_high(int16x8_t x) {
    return vcvtq_f32_s32(vmovl_high_s16(x));
}

INLINE vf v_from_i8(const int8_t *p) {
    int8x16_t q = vld1q_s8(p);
    int16x8_t low = vmovl_s8(vget_low_s8(q)), high = vmovl_high_s8(q);
    return (vf){float_low(low), float_high(low), float_low(high), float_high(high)};
}

#endif
