// SPDX-License-Identifier: Apache-2.0
// What vec_avx2.h and vec_avx512.h share: integer helpers on 256-bit registers.
#ifndef COPPICE_OPS_CPU_VEC_COMMON_H
#define COPPICE_OPS_CPU_VEC_COMMON_H

#include <immintrin.h>

#include "ops/cpu/row.h"

#define INLINE static inline __attribute__((always_inline))
// Before a loop whose count is a constant after inlining: its arrays then live in registers.
#define UNROLL _Pragma("GCC unroll 16")

// Sums of the first and the last 16 of 32 signed bytes.
INLINE void code_sums(__m256i v, int half[2]) {
    __m256i u = _mm256_xor_si256(v, _mm256_set1_epi8(-128)); // 128 added
    __m256i s = _mm256_sad_epu8(u, _mm256_setzero_si256());
    __m128i low = _mm256_castsi256_si128(s), high = _mm256_extracti128_si256(s, 1);
    low = _mm_add_epi64(low, _mm_srli_si128(low, 8));
    high = _mm_add_epi64(high, _mm_srli_si128(high, 8));
    half[0] = _mm_cvtsi128_si32(low) - 16 * 128;
    half[1] = _mm_cvtsi128_si32(high) - 16 * 128;
}

#endif
