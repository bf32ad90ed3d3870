// SPDX-License-Identifier: Apache-2.0
// Sixteen lanes as two AVX2 registers, under the names of avx512.h. For ops/cpu/simd/row/avx2.c.
#ifndef COPPICE_OPS_CPU_SIMD_VEC_AVX2_H
#define COPPICE_OPS_CPU_SIMD_VEC_AVX2_H

#include "ops/cpu/simd/vec/x86.h"

enum { DELTA_BLOCK = 2, DELTA_WIDE = 2, DELTA_PANEL = 1, DOT_SUMS = 4 }; // as in avx512.h

struct two {
    __m256 a, b;
};
#define vf struct two

INLINE vf v_set(float x) {
    return (vf){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

INLINE vf v_load(const float *p) {
    return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}

INLINE void v_store(float *p, vf v) {
    _mm256_storeu_ps(p, v.a);
    _mm256_storeu_ps(p + 8, v.b);
}

// All bits set in the first n of eight lanes.
INLINE __m256i v_mask(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// Whole vectors without a mask: on some processors a masked store takes as long as a dozen others.
INLINE vf v_load_n(const float *p, int n) {
    return n >= 16
               ? v_load(p)
               : (vf){_mm256_maskload_ps(p, v_mask(n)), _mm256_maskload_ps(p + 8, v_mask(n - 8))};
}

INLINE void v_store_n(float *p, vf v, int n) {
    if (n >= 16) {
        v_store(p, v);
        return;
    }
    _mm256_maskstore_ps(p, v_mask(n), v.a);
    _mm256_maskstore_ps(p + 8, v_mask(n - 8), v.b);
}

INLINE vf v_keep(vf v, int n) {
    return (vf){_mm256_and_ps(v.a, _mm256_castsi256_ps(v_mask(n))),
                _mm256_and_ps(v.b, _mm256_castsi256_ps(v_mask(n - 8)))};
}

#define TWICE(op, x, y)                                                                            \
    (vf) {                                                                                         \
        op((x).a, (y).a), op((x).b, (y).b)                                                         \
    }

// A function of two vectors that is one instruction of each half.
#define TWO(name, op)                                                                              \
    INLINE vf name(vf x, vf y) {                                                                   \
        return TWICE(op, x, y);                                                                    \
    }
TWO(v_add, _mm256_add_ps)
TWO(v_sub, _mm256_sub_ps)
TWO(v_mul, _mm256_mul_ps)
TWO(v_div, _mm256_div_ps)
TWO(v_max, _mm256_max_ps)
TWO(v_min, _mm256_min_ps)

INLINE vf v_neg(vf x) {
    return TWICE(_mm256_xor_ps, x, v_set(-0.0f));
}

INLINE vf v_abs(vf x) {
    return TWICE(_mm256_andnot_ps, v_set(-0.0f), x);
}

INLINE vf v_fma(vf x, vf y, vf c) {
    return (vf){_mm256_fmadd_ps(x.a, y.a, c.a), _mm256_fmadd_ps(x.b, y.b, c.b)};
}

INLINE vf v_fnma(vf x, vf y, vf c) {
    return (vf){_mm256_fnmadd_ps(x.a, y.a, c.a), _mm256_fnmadd_ps(x.b, y.b, c.b)};
}

INLINE __m256 power(__m256 p, __m256 shifted, __m256 x, float lo) {
    __m256i bits = _mm256_add_epi32(_mm256_castps_si256(p),
                                    _mm256_slli_epi32(_mm256_castps_si256(shifted), 23));
    return _mm256_and_ps(_mm256_castsi256_ps(bits),
                         _mm256_cmp_ps(x, _mm256_set1_ps(lo), _CMP_GE_OQ));
}

INLINE vf v_power(vf p, vf shifted, vf x, float lo) {
    return (vf){power(p.a, shifted.a, x.a, lo), power(p.b, shifted.b, x.b, lo)};
}

INLINE __m256 split(__m256 x, __m256 *m) {
    __m256i bits = _mm256_castps_si256(x);
    __m256i n = _mm256_srai_epi32(_mm256_sub_epi32(bits, _mm256_set1_epi32(LOG_SPLIT)), 23);
    *m = _mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32(n, 23)));
    return _mm256_cvtepi32_ps(n);
}

INLINE vf v_split(vf x, vf *m) {
    return (vf){split(x.a, &m->a), split(x.b, &m->b)};
}

INLINE __m256 v_half(vf v) {
    return _mm256_add_ps(v.a, v.b);
}
#define v_fold_all v_fold4

INLINE float v_top(vf v) {
    __m256 m = _mm256_max_ps(v.a, v.b);
    __m128 t = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    t = _mm_max_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_max_ss(t, _mm_movehdup_ps(t)));
}

INLINE __m256 v_half_max(vf v) {
    return _mm256_max_ps(v.a, v.b);
}

INLINE __m256i codes(__m256 x, __m256 inverse) {
    const __m256 round = _mm256_set1_ps(EXP_ROUND);
    __m256 v = _mm256_add_ps(_mm256_mul_ps(x, inverse), round);
    return _mm256_sub_epi32(_mm256_castps_si256(v), _mm256_castps_si256(round));
}

INLINE vcodes v_codes(vf low, vf high, vf inverse) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i a = _mm256_packs_epi32(codes(low.a, inverse.a), codes(low.b, inverse.b));
    __m256i b = _mm256_packs_epi32(codes(high.a, inverse.a), codes(high.b, inverse.b));
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order);
}

// w[8][4] by columns.
INLINE void columns(const float *w, __m256 t[4]) {
    __m256 y[4], u[4];
    for (int i = 0; i < 4; i++) // rows i and i + 4
        y[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(w + 4 * i)),
                                    _mm_loadu_ps(w + 4 * i + 16), 1);
    u[0] = _mm256_unpacklo_ps(y[0], y[1]);
    u[1] = _mm256_unpackhi_ps(y[0], y[1]);
    u[2] = _mm256_unpacklo_ps(y[2], y[3]);
    u[3] = _mm256_unpackhi_ps(y[2], y[3]);
    t[0] = _mm256_shuffle_ps(u[0], u[2], 0x44);
    t[1] = _mm256_shuffle_ps(u[0], u[2], 0xEE);
    t[2] = _mm256_shuffle_ps(u[1], u[3], 0x44);
    t[3] = _mm256_shuffle_ps(u[1], u[3], 0xEE);
}

INLINE void v_columns(const float *w, vf t[4]) {
    __m256 a[4], b[4];
    columns(w, a);
    columns(w + 32, b);
    for (int i = 0; i < 4; i++)
        t[i] = (vf){a[i], b[i]};
}

// AVX2 has no 64-bit product: the hash stays scalar.
INLINE vf v_units(uint64_t key, int64_t first) {
    float u[16];
    for (int i = 0; i < 16; i++)
        u[i] = rng_unit(rng_mix(rng_mix(key ^ (uint64_t)(first + i))));
    return v_load(u);
}

INLINE vf v_from_f16(const uint16_t *p) {
    return (vf){_mm256_cvtph_ps(load128(p)), _mm256_cvtph_ps(load128(p + 8))};
}

INLINE vf v_from_bf16(const uint16_t *p) {
    return (vf){from_bf16(p), from_bf16(p + 8)};
}

// Of signed bytes.
INLINE vf v_from_bytes(__m128i q) {
    return (vf){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)),
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(q, 8)))};
}

INLINE vf v_from_i8(const int8_t *p) {
    return (vf){from_i8(p), from_i8(p + 8)};
}

INLINE vf v_set_f16(uint16_t h) {
    return (vf){set_f16(h), set_f16(h)};
}

// Of the eight centroids of TQ3_0, by bytes.
INLINE vf v_centroids(__m128i c) {
    static const float centroid[8] = KV_TQ3_CENTROIDS;
    const __m256 table = _mm256_loadu_ps(centroid);
    return (vf){_mm256_permutevar8x32_ps(table, _mm256_cvtepu8_epi32(c)),
                _mm256_permutevar8x32_ps(table, _mm256_cvtepu8_epi32(_mm_srli_si128(c, 8)))};
}

#endif
