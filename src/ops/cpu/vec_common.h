// SPDX-License-Identifier: Apache-2.0
// What vec_avx2.h and vec_avx512.h share: integer helpers on 256-bit registers.
#ifndef COPPICE_OPS_CPU_VEC_COMMON_H
#define COPPICE_OPS_CPU_VEC_COMMON_H

#include <immintrin.h>

#include "ops/cpu/row.h"

#define INLINE static inline __attribute__((always_inline))
// Before a loop whose count is a constant after inlining: its arrays then live in registers.
#ifdef COPPICE_CHECKED // every access is checked: unrolled, a file takes the compiler ten minutes
#define UNROLL
#define UNROLL_BY_4
#else
#define UNROLL      _Pragma("GCC unroll 16")
#define UNROLL_BY_4 _Pragma("GCC unroll 4")
#endif

// Sums of the first and the last 16 of 32 signed bytes, for four vectors.
INLINE void code_sums(const __m256i v[4], __m128i half[2]) {
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
    half[0] = _mm256_castsi256_si128(all);
    half[1] = _mm256_extracti128_si256(all, 1);
}

#endif
