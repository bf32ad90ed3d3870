// SPDX-License-Identifier: Apache-2.0
// Sixteen codes of keys or values (ops/kv/codec.h) as bytes, half 0 or 1 of a block of 32, then as
// floats. Included by ops/cpu/simd/row/avx2.c and ops/cpu/simd/row/avx512.c after their lanes.
#ifndef COPPICE_OPS_CPU_SIMD_VEC_X86_KV_H
#define COPPICE_OPS_CPU_SIMD_VEC_X86_KV_H

INLINE __m128i kv_nibbles(const unsigned char *q, int half) {
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)q);
    return _mm_and_si128(half ? _mm_srli_epi16(b, 4) : b, _mm_set1_epi8(15));
}

// `value` in the bytes whose bit is set.
INLINE __m128i kv_bits(uint16_t bits, char value) {
    const __m128i spread = _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m128i one = _mm_set1_epi64x((long long)0x8040201008040201u);
    __m128i b = _mm_shuffle_epi8(_mm_cvtsi32_si128(bits), spread);
    return _mm_and_si128(_mm_cmpeq_epi8(_mm_and_si128(b, one), one), _mm_set1_epi8(value));
}

INLINE __m128i kv_fives(const unsigned char *q, int half, uint16_t bits) {
    return _mm_or_si128(kv_nibbles(q, half), kv_bits(bits, 16));
}

INLINE __m128i kv_threes(const unsigned char *q, int half, uint16_t bits) {
    __m128i b = _mm_loadl_epi64((const __m128i *)(const void *)q);
    b = half ? _mm_srli_epi16(b, 4) : b;
    b = _mm_and_si128(_mm_unpacklo_epi64(b, _mm_srli_epi16(b, 2)), _mm_set1_epi8(3));
    return _mm_or_si128(b, kv_bits(bits, 4));
}

INLINE vf v_from_u4(const unsigned char *q, int half) {
    return v_from_bytes(kv_nibbles(q, half));
}

INLINE vf v_from_i4(const unsigned char *q, int half) {
    return v_from_bytes(_mm_sub_epi8(kv_nibbles(q, half), _mm_set1_epi8(8)));
}

INLINE vf v_from_u5(const unsigned char *q, int half, uint16_t bits) {
    return v_from_bytes(kv_fives(q, half, bits));
}

INLINE vf v_from_i5(const unsigned char *q, int half, uint16_t bits) {
    return v_from_bytes(_mm_sub_epi8(kv_fives(q, half, bits), _mm_set1_epi8(16)));
}

INLINE vf v_from_tq3(const unsigned char *q, int half, uint16_t bits) {
    return v_centroids(kv_threes(q, half, bits));
}

#endif
