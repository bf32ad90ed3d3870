// SPDX-License-Identifier: Apache-2.0
// Four vectors folded into one number each, from their halves (v_half, v_half_max) on. Included by
// ops/cpu/simd/row/avx2.c and ops/cpu/simd/row/avx512.c after their lanes.
#ifndef COPPICE_OPS_CPU_SIMD_VEC_X86_FOLD_H
#define COPPICE_OPS_CPU_SIMD_VEC_X86_FOLD_H

INLINE __m256 sum_or_top(bool top, __m256 x, __m256 y) {
    return top ? _mm256_max_ps(x, y) : _mm256_add_ps(x, y);
}

// row_fold from its second step on, of four vectors at once; top, a constant: the largest instead.
INLINE __m128 fold_halves(bool top, const __m256 h[4]) {
    __m256 x = sum_or_top(top, _mm256_permute2f128_ps(h[0], h[1], 0x20),
                          _mm256_permute2f128_ps(h[0], h[1], 0x31));
    __m256 y = sum_or_top(top, _mm256_permute2f128_ps(h[2], h[3], 0x20),
                          _mm256_permute2f128_ps(h[2], h[3], 0x31));
    x = sum_or_top(top, _mm256_shuffle_ps(x, y, 0x44), _mm256_shuffle_ps(x, y, 0xEE));
    x = sum_or_top(top, _mm256_shuffle_ps(x, x, 0x88), _mm256_shuffle_ps(x, x, 0xDD));
    return _mm_unpacklo_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
}

// row_fold of four vectors at once: out[i] = the sum of a[i].
INLINE void v_fold4(const vf a[4], float *out) {
    const __m256 h[4] = {v_half(a[0]), v_half(a[1]), v_half(a[2]), v_half(a[3])};
    _mm_storeu_ps(out, fold_halves(false, h));
}

// The largest of each of four vectors.
INLINE v4f v_top4(const vf a[4]) {
    const __m256 h[4] = {v_half_max(a[0]), v_half_max(a[1]), v_half_max(a[2]), v_half_max(a[3])};
    return fold_halves(true, h);
}

#endif
