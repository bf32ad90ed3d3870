// SPDX-License-Identifier: Apache-2.0
// Activations to int8 blocks; a template that follows row_tmpl.h.

// The largest of each of four vectors.
INLINE __m128 v_top4(const vf a[4]) {
    __m256 h[4];
    for (int i = 0; i < 4; i++)
        h[i] = v_half_max(a[i]);
    __m256 x = _mm256_max_ps(_mm256_permute2f128_ps(h[0], h[1], 0x20),
                             _mm256_permute2f128_ps(h[0], h[1], 0x31));
    __m256 y = _mm256_max_ps(_mm256_permute2f128_ps(h[2], h[3], 0x20),
                             _mm256_permute2f128_ps(h[2], h[3], 0x31));
    x = _mm256_max_ps(_mm256_shuffle_ps(x, y, 0x44), _mm256_shuffle_ps(x, y, 0xEE));
    x = _mm256_max_ps(_mm256_shuffle_ps(x, x, 0x88), _mm256_shuffle_ps(x, x, 0xDD));
    return _mm_unpacklo_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
}

// Four groups at a time, so that two vector divisions serve them all.
static void quantise(const struct quantise *a) {
    for (int64_t i = 0; i < a->n; i += 4) {
        vf low[4], high[4], top[4];
        float d[4], inverse[4];
        int n = a->n - i < 4 ? (int)(a->n - i) : 4;
        for (int g = 0; g < 4; g++) {
            const float *x = a->x + (i + (g < n ? g : 0)) * a->x_step;
            low[g] = v_load(x);
            high[g] = v_load(x + 16);
            top[g] = v_max(v_abs(low[g]), v_abs(high[g]));
        }
        const __m128 full = _mm_set1_ps(127.0f);
        __m128 most = v_top4(top), large = _mm_cmpgt_ps(most, _mm_set1_ps(1e-30f));
        _mm_storeu_ps(d, _mm_div_ps(most, full));
        _mm_storeu_ps(inverse, _mm_and_ps(_mm_div_ps(full, most), large));
        for (int g = 0; g < n; g++) {
            int half[2];
            v_codes(low[g], high[g], v_set(inverse[g]), a->q + (i + g) * a->q_step, half);
            act_block_put(a->b + (i + g) * a->b_step, a->lane + (int)(i + g) * a->lane_step, d[g],
                          half);
        }
    }
}
