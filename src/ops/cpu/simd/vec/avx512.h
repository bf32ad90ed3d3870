// SPDX-License-Identifier: Apache-2.0
// Sixteen lanes as one AVX-512 register: the vocabulary of the *_tmpl.h. Included
// by ops/cpu/simd/row/avx512.c only. avx2.h gives the same names two AVX2 registers.
#ifndef COPPICE_OPS_CPU_SIMD_VEC_AVX512_H
#define COPPICE_OPS_CPU_SIMD_VEC_AVX512_H

#include "ops/cpu/simd/vec/x86.h"

enum {
    DELTA_BLOCK = 4, // rows of delta_read whose sums are in registers together
    DELTA_WIDE = 8,  // chunks of 16 columns that one row takes there
    DELTA_PANEL = 2, // chunks of a panel of columns that many rows share
    DOT_SUMS = 16,   // sums that delta_dots keeps in registers
};

#define vf __m512

INLINE vf v_set(float x) {
    return _mm512_set1_ps(x);
}

INLINE vf v_load(const float *p) {
    return _mm512_loadu_ps(p);
}

INLINE __mmask16 v_mask(int n) {
    return (__mmask16)(n >= 16 ? 0xFFFF : (1 << n) - 1);
}

// The first n lanes, 0 in the others.
INLINE vf v_load_n(const float *p, int n) {
    return _mm512_maskz_loadu_ps(v_mask(n), p);
}

INLINE void v_store(float *p, vf v) {
    _mm512_storeu_ps(p, v);
}

INLINE void v_store_n(float *p, vf v, int n) {
    _mm512_mask_storeu_ps(p, v_mask(n), v);
}

// v with 0 in all but the first n lanes.
INLINE vf v_keep(vf v, int n) {
    return _mm512_maskz_mov_ps(v_mask(n), v);
}

// A function of two vectors that is one instruction.
#define TWO(name, op)                                                                              \
    INLINE vf name(vf a, vf b) {                                                                   \
        return op(a, b);                                                                           \
    }
TWO(v_add, _mm512_add_ps)
TWO(v_sub, _mm512_sub_ps)
TWO(v_mul, _mm512_mul_ps)
TWO(v_div, _mm512_div_ps)
TWO(v_max, _mm512_max_ps)
TWO(v_min, _mm512_min_ps)

INLINE vf v_neg(vf a) {
    return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f));
}

INLINE vf v_abs(vf a) {
    return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a);
}

INLINE vf v_fma(vf a, vf b, vf c) {
    return _mm512_fmadd_ps(a, b, c);
}

// c - a * b
INLINE vf v_fnma(vf a, vf b, vf c) {
    return _mm512_fnmadd_ps(a, b, c);
}

// p * 2^n, n in the low bits of `shifted`; 0 where not x >= lo.
INLINE vf v_power(vf p, vf shifted, vf x, float lo) {
    __m512i bits = _mm512_add_epi32(_mm512_castps_si512(p),
                                    _mm512_slli_epi32(_mm512_castps_si512(shifted), 23));
    __mmask16 keep = _mm512_cmp_ps_mask(x, _mm512_set1_ps(lo), _CMP_GE_OQ);
    return _mm512_maskz_mov_ps(keep, _mm512_castsi512_ps(bits));
}

// x = 2^n m for row_log.
INLINE vf v_split(vf x, vf *m) {
    __m512i bits = _mm512_castps_si512(x);
    __m512i n = _mm512_srai_epi32(_mm512_sub_epi32(bits, _mm512_set1_epi32(LOG_SPLIT)), 23);
    *m = _mm512_castsi512_ps(_mm512_sub_epi32(bits, _mm512_slli_epi32(n, 23)));
    return _mm512_cvtepi32_ps(n);
}

// The two halves added: the first step of row_fold.
INLINE __m256 v_half(vf v) {
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}

// row_fold of 16 vectors at once: out[i] = the sum of a[i].
INLINE void v_fold_all(const vf a[16], float *out) {
    vf four[4], two[2];
    for (int i = 0; i < 4; i++) { // blocks of four lanes: those of a[i], a[i + 4], a[i + 8], ...
        vf x = v_add(_mm512_shuffle_f32x4(a[i], a[i + 4], 0x44),
                     _mm512_shuffle_f32x4(a[i], a[i + 4], 0xEE));
        vf y = v_add(_mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0x44),
                     _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0xEE));
        four[i] = v_add(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xDD));
    }
    for (int i = 0; i < 2; i++)
        two[i] = v_add(_mm512_shuffle_ps(four[2 * i], four[2 * i + 1], 0x44),
                       _mm512_shuffle_ps(four[2 * i], four[2 * i + 1], 0xEE));
    v_store(out, v_add(_mm512_shuffle_ps(two[0], two[1], 0x88),
                       _mm512_shuffle_ps(two[0], two[1], 0xDD)));
}

INLINE float v_top(vf v) {
    return _mm512_reduce_max_ps(v);
}

INLINE __m256 v_half_max(vf v) {
    return _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}

INLINE __m128i codes(vf x, vf inverse) {
    const __m512 round = _mm512_set1_ps(EXP_ROUND);
    return _mm512_cvtepi32_epi8(
        _mm512_castps_si512(_mm512_add_ps(_mm512_mul_ps(x, inverse), round)));
}

// Codes of 32 activations (ops/cpu/simd/row/scalar.c: quantise).
INLINE vcodes v_codes(vf low, vf high, vf inverse) {
    return _mm256_set_m128i(codes(high, inverse), codes(low, inverse));
}

// w[16][4] by columns.
INLINE void v_columns(const float *w, vf t[4]) {
    const __m512i ab = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    const __m512i cd = _mm512_add_epi32(ab, _mm512_set1_epi32(2));
    vf a = v_load(w), b = v_load(w + 16), c = v_load(w + 32), d = v_load(w + 48);
    vf low = _mm512_permutex2var_ps(a, ab, b), high = _mm512_permutex2var_ps(c, ab, d);
    t[0] = _mm512_shuffle_f32x4(low, high, 0x44);
    t[1] = _mm512_shuffle_f32x4(low, high, 0xEE);
    low = _mm512_permutex2var_ps(a, cd, b);
    high = _mm512_permutex2var_ps(c, cd, d);
    t[2] = _mm512_shuffle_f32x4(low, high, 0x44);
    t[3] = _mm512_shuffle_f32x4(low, high, 0xEE);
}

INLINE __m512i mix(__m512i x) {
    x = _mm512_add_epi64(x, _mm512_set1_epi64((long long)0x9E3779B97F4A7C15u));
    x = _mm512_mullo_epi64(_mm512_xor_si512(x, _mm512_srli_epi64(x, 30)),
                           _mm512_set1_epi64((long long)0xBF58476D1CE4E5B9u));
    x = _mm512_mullo_epi64(_mm512_xor_si512(x, _mm512_srli_epi64(x, 27)),
                           _mm512_set1_epi64((long long)0x94D049BB133111EBu));
    return _mm512_xor_si512(x, _mm512_srli_epi64(x, 31));
}

// rng_unit(rng_mix(rng_mix(key ^ id))) for ids first .. first + 15.
INLINE vf v_units(uint64_t key, int64_t first) {
    __m256i part[2];
    for (int h = 0; h < 2; h++) {
        __m512i id = _mm512_add_epi64(_mm512_set1_epi64(first + 8 * h),
                                      _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
        __m512i x = mix(mix(_mm512_xor_si512(id, _mm512_set1_epi64((long long)key))));
        part[h] = _mm512_cvtepi64_epi32(_mm512_srli_epi64(x, 41));
    }
    __m512i all = _mm512_inserti64x4(_mm512_castsi256_si512(part[0]), part[1], 1);
    return _mm512_mul_ps(_mm512_add_ps(_mm512_cvtepi32_ps(all), _mm512_set1_ps(0.5f)),
                         _mm512_set1_ps(0x1p-23f));
}

INLINE vf v_from_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

INLINE vf v_from_bf16(const uint16_t *p) {
    __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

// Of signed bytes.
INLINE vf v_from_bytes(__m128i q) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q));
}

INLINE vf v_from_i8(const int8_t *p) {
    return v_from_bytes(_mm_loadu_si128((const __m128i *)(const void *)p));
}

INLINE vf v_set_f16(uint16_t h) {
    return v_set(_mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))));
}

// Of the eight centroids of TQ3_0, by bytes.
INLINE vf v_centroids(__m128i c) {
    static const float centroid[8] = KV_TQ3_CENTROIDS;
    const __m512 table = _mm512_castps256_ps512(_mm256_loadu_ps(centroid));
    return _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(c), table);
}

#endif
