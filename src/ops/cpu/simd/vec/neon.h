// SPDX-License-Identifier: Apache-2.0
// Sixteen lanes as four NEON registers, under the names of avx512.h. Included by
// ops/cpu/simd/row/neon.c only. It needs nothing beyond the first version of the instruction set.
#ifndef COPPICE_OPS_CPU_SIMD_VEC_NEON_H
#define COPPICE_OPS_CPU_SIMD_VEC_NEON_H

#include <arm_neon.h>

#include "ops/cpu/simd/vec/common.h"

enum { DELTA_BLOCK = 2, DELTA_WIDE = 2, DELTA_PANEL = 1, DOT_SUMS = 4 }; // as in avx512.h

struct quarters {
    float32x4_t a, b, c, d;
};
#define vf struct quarters

INLINE vf v_set(float x) {
    const float32x4_t v = vdupq_n_f32(x);
    return (vf){v, v, v, v};
}

INLINE vf v_load(const float *p) {
    return (vf){vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}

INLINE void v_store(float *p, vf v) {
    vst1q_f32(p, v.a);
    vst1q_f32(p + 4, v.b);
    vst1q_f32(p + 8, v.c);
    vst1q_f32(p + 12, v.d);
}

// NEON has no masks for memory: what is ragged goes through a copy.
INLINE vf v_load_n(const float *p, int n) {
    float x[16] = {0};
    if (n >= 16)
        return v_load(p);
    if (n > 0)
        memcpy(x, p, (size_t)n * sizeof *p);
    return v_load(x);
}

INLINE void v_store_n(float *p, vf v, int n) {
    float x[16];
    if (n >= 16) {
        v_store(p, v);
        return;
    }
    v_store(x, v);
    if (n > 0)
        memcpy(p, x, (size_t)n * sizeof *p);
}

// x with 0 in all but the first n lanes.
INLINE float32x4_t keep(float32x4_t x, int n) {
    static const int32_t lane[4] = {0, 1, 2, 3};
    uint32x4_t mask = vcltq_s32(vld1q_s32(lane), vdupq_n_s32(n));
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x), mask));
}

INLINE vf v_keep(vf v, int n) {
    return (vf){keep(v.a, n), keep(v.b, n - 4), keep(v.c, n - 8), keep(v.d, n - 12)};
}

#define EACH(op, x)                                                                                \
    (vf) {                                                                                         \
        op((x).a), op((x).b), op((x).c), op((x).d)                                                 \
    }
#define EACH_TWO(op, x, y)                                                                         \
    (vf) {                                                                                         \
        op((x).a, (y).a), op((x).b, (y).b), op((x).c, (y).c), op((x).d, (y).d)                     \
    }
#define EACH_THREE(op, x, y, z)                                                                    \
    (vf) {                                                                                         \
        op((x).a, (y).a, (z).a), op((x).b, (y).b, (z).b), op((x).c, (y).c, (z).c),                 \
            op((x).d, (y).d, (z).d)                                                                \
    }

// A function of two vectors that is one instruction of each quarter.
#define TWO(name, op)                                                                              \
    INLINE vf name(vf x, vf y) {                                                                   \
        return EACH_TWO(op, x, y);                                                                 \
    }
TWO(v_add, vaddq_f32)
TWO(v_sub, vsubq_f32)
TWO(v_mul, vmulq_f32)
TWO(v_div, vdivq_f32)
// Where one is no number, the other, as the scalar comparisons.
TWO(v_max, vmaxnmq_f32)
TWO(v_min, vminnmq_f32)

INLINE vf v_neg(vf x) {
    return EACH(vnegq_f32, x);
}

INLINE vf v_abs(vf x) {
    return EACH(vabsq_f32, x);
}

INLINE vf v_fma(vf x, vf y, vf c) {
    return EACH_THREE(vfmaq_f32, c, x, y);
}

INLINE vf v_fnma(vf x, vf y, vf c) {
    return EACH_THREE(vfmsq_f32, c, x, y);
}

INLINE float32x4_t power(float32x4_t p, float32x4_t shifted, float32x4_t x, float lo) {
    int32x4_t bits =
        vaddq_s32(vreinterpretq_s32_f32(p), vshlq_n_s32(vreinterpretq_s32_f32(shifted), 23));
    uint32x4_t kept = vcgeq_f32(x, vdupq_n_f32(lo));
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_s32(bits), kept));
}

INLINE vf v_power(vf p, vf shifted, vf x, float lo) {
    return (vf){power(p.a, shifted.a, x.a, lo), power(p.b, shifted.b, x.b, lo),
                power(p.c, shifted.c, x.c, lo), power(p.d, shifted.d, x.d, lo)};
}

INLINE float32x4_t split(float32x4_t x, float32x4_t *m) {
    int32x4_t bits = vreinterpretq_s32_f32(x);
    int32x4_t n = vshrq_n_s32(vsubq_s32(bits, vdupq_n_s32(LOG_SPLIT)), 23);
    *m = vreinterpretq_f32_s32(vsubq_s32(bits, vshlq_n_s32(n, 23)));
    return vcvtq_f32_s32(n);
}

INLINE vf v_split(vf x, vf *m) {
    return (vf){split(x.a, &m->a), split(x.b, &m->b), split(x.c, &m->c), split(x.d, &m->d)};
}

// The first two steps of row_fold: lanes i, i + 4, i + 8 and i + 12 in one.
INLINE float32x4_t fold_once(vf v) {
    return vaddq_f32(vaddq_f32(v.a, v.c), vaddq_f32(v.b, v.d));
}

// The third step for two vectors: each one's lanes i and i + 2.
INLINE float32x4_t fold_two(float32x4_t x, float32x4_t y) {
    return vaddq_f32(vcombine_f32(vget_low_f32(x), vget_low_f32(y)),
                     vcombine_f32(vget_high_f32(x), vget_high_f32(y)));
}

// row_fold of four vectors at once: out[i] = the sum of a[i].
INLINE void v_fold4(const vf a[4], float *out) {
    float32x4_t x = fold_two(fold_once(a[0]), fold_once(a[1]));
    float32x4_t y = fold_two(fold_once(a[2]), fold_once(a[3]));
    vst1q_f32(out, vpaddq_f32(x, y));
}
#define v_fold_all v_fold4

INLINE float32x4_t top_once(vf v) {
    return vmaxnmq_f32(vmaxnmq_f32(v.a, v.c), vmaxnmq_f32(v.b, v.d));
}

INLINE float v_top(vf v) {
    return vmaxnmvq_f32(top_once(v));
}

// The largest of each of four vectors.
INLINE v4f v_top4(const vf a[4]) {
    float32x4_t x = vpmaxnmq_f32(top_once(a[0]), top_once(a[1]));
    float32x4_t y = vpmaxnmq_f32(top_once(a[2]), top_once(a[3]));
    return (v4f)vpmaxnmq_f32(x, y);
}

// w[16][4] by columns.
INLINE void v_columns(const float *w, vf t[4]) {
    const float32x4x4_t a = vld4q_f32(w), b = vld4q_f32(w + 16);
    const float32x4x4_t c = vld4q_f32(w + 32), d = vld4q_f32(w + 48);
    for (int i = 0; i < 4; i++)
        t[i] = (vf){a.val[i], b.val[i], c.val[i], d.val[i]};
}

// NEON has no 64-bit product: the hash stays scalar.
INLINE vf v_units(uint64_t key, int64_t first) {
    float u[16];
    for (int i = 0; i < 16; i++)
        u[i] = rng_unit(rng_mix(rng_mix(key ^ (uint64_t)(first + i))));
    return v_load(u);
}

#endif
