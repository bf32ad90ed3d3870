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

INLINE vf v_set_f16(uint16_t h) {
    return v_set(vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0));
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

// Of signed bytes.
INLINE vf v_from_bytes(int8x16_t q) {
    int16x8_t low = vmovl_s8(vget_low_s8(q)), high = vmovl_high_s8(q);
    return (vf){float_low(low), float_high(low), float_low(high), float_high(high)};
}

INLINE vf v_from_i8(const int8_t *p) {
    return v_from_bytes(vld1q_s8(p));
}

// Codes of 16 keys or values (ops/kv/codec.h) as bytes: half 0 or 1 of a block of 32.
INLINE uint8x16_t kv_nibbles(const unsigned char *q, int half) {
    uint8x16_t b = vld1q_u8(q);
    return half ? vshrq_n_u8(b, 4) : vandq_u8(b, vdupq_n_u8(15));
}

// `value` in the bytes whose bit is set.
INLINE uint8x16_t kv_bits(uint16_t bits, uint8_t value) {
    const uint8x8_t one = vcreate_u8(0x8040201008040201u);
    uint8x8_t low = vtst_u8(vdup_n_u8((uint8_t)bits), one);
    uint8x8_t high = vtst_u8(vdup_n_u8((uint8_t)(bits >> 8)), one);
    return vandq_u8(vcombine_u8(low, high), vdupq_n_u8(value));
}

INLINE uint8x16_t kv_fives(const unsigned char *q, int half, uint16_t bits) {
    return vorrq_u8(kv_nibbles(q, half), kv_bits(bits, 16));
}

INLINE vf v_from_u4(const unsigned char *q, int half) {
    return v_from_bytes(vreinterpretq_s8_u8(kv_nibbles(q, half)));
}

INLINE vf v_from_i4(const unsigned char *q, int half) {
    return v_from_bytes(vsubq_s8(vreinterpretq_s8_u8(kv_nibbles(q, half)), vdupq_n_s8(8)));
}

INLINE vf v_from_u5(const unsigned char *q, int half, uint16_t bits) {
    return v_from_bytes(vreinterpretq_s8_u8(kv_fives(q, half, bits)));
}

INLINE vf v_from_i5(const unsigned char *q, int half, uint16_t bits) {
    return v_from_bytes(vsubq_s8(vreinterpretq_s8_u8(kv_fives(q, half, bits)), vdupq_n_s8(16)));
}

// Four of the eight floats of a table, by four indices.
INLINE float32x4_t of_table(uint8x16x2_t table, uint16x4_t index) {
    uint32x4_t at = vmlaq_n_u32(vdupq_n_u32(0x03020100), vmovl_u16(index), 0x04040404);
    return vreinterpretq_f32_u8(vqtbl2q_u8(table, vreinterpretq_u8_u32(at)));
}

INLINE vf v_from_tq3(const unsigned char *q, int half, uint16_t bits) {
    static const float centroid[8] = KV_TQ3_CENTROIDS;
    const uint8x16x2_t table = {
        {vreinterpretq_u8_f32(vld1q_f32(centroid)), vreinterpretq_u8_f32(vld1q_f32(centroid + 4))}};
    uint8x8_t b = half ? vshr_n_u8(vld1_u8(q), 4) : vld1_u8(q);
    uint8x16_t c = vandq_u8(vcombine_u8(b, vshr_n_u8(b, 2)), vdupq_n_u8(3));
    c = vorrq_u8(c, kv_bits(bits, 4));
    uint16x8_t low = vmovl_u8(vget_low_u8(c)), high = vmovl_u8(vget_high_u8(c));
    return (vf){of_table(table, vget_low_u16(low)), of_table(table, vget_high_u16(low)),
                of_table(table, vget_low_u16(high)), of_table(table, vget_high_u16(high))};
}

#endif
