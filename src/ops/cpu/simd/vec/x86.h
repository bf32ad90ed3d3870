// SPDX-License-Identifier: Apache-2.0
// What avx2.h and avx512.h share: codes of activations and halves, on 256-bit registers.
#ifndef COPPICE_OPS_CPU_SIMD_VEC_X86_H
#define COPPICE_OPS_CPU_SIMD_VEC_X86_H

#include <immintrin.h>

#include "ops/cpu/simd/vec/common.h"

#define vcodes __m256i // 32 codes

INLINE __m128i load128(const void *p) {
    return _mm_loadu_si128((const __m128i *)p);
}

INLINE __m256 from_bf16(const uint16_t *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16));
}

INLINE __m256 from_i8(const int8_t *p) {
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

INLINE __m256 set_f16(uint16_t h) {
    return _mm256_cvtph_ps(_mm_set1_epi16((short)h));
}

INLINE void v_store_codes(int8_t *q, vcodes v) {
    _mm256_storeu_si256((__m256i *)(void *)q, v);
}

// Sums of the first and the last 16 of 32 codes, for four vectors.
INLINE void code_sums(const vcodes v[4], v4i half[2]) {
    const __m256i flip = _mm256_set1_epi8(-128), zero = _mm256_setzero_si256();
    __m256i s[4];
    for (int i = 0; i < 4; i++) // of 8 bytes with 128 added
        s[i] = _mm256_sad_epu8(_mm256_xor_si256(v[i], flip), zero);
    for (int i = 0; i < 4; i += 2) // of 16, two vectors side by side
        s[i] = _mm256_add_epi64(_mm256_unpacklo_epi64(s[i], s[i + 1]),
                                _mm256_unpackhi_epi64(s[i], s[i + 1]));
    __m256i all = _mm256_castps_si256(
        _mm256_shuffle_ps(_mm256_castsi256_ps(s[0]), _mm256_castsi256_ps(s[2]), 0x88));
    all = _mm256_sub_epi32(all, _mm256_set1_epi32(16 * 128));
    half[0] = (v4i)_mm256_castsi256_si128(all);
    half[1] = (v4i)_mm256_extracti128_si256(all, 1);
}

// Eight numbers to the nearest, ties to even.
INLINE void v_to_f16(const float *x, uint16_t out[8]) {
    _mm_storeu_si128(
        (__m128i *)(void *)out,
        _mm256_cvtps_ph(_mm256_loadu_ps(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#endif
