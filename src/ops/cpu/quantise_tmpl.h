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

// What is known of four groups: their scales, and the sums of the codes' halves.
struct sums {
    __m128 d;
    __m128i half[2];
};

// act_block_put for one group of four rows.
INLINE void put_rows(struct act_block *b, int lane, const struct sums *s) {
    const __m128i zero = _mm_setzero_si128();
    __m128i all = _mm_add_epi32(s->half[0], s->half[1]);
    _mm_storeu_ps(b->d + lane, s->d);
    _mm_storeu_ps(b->ds + lane, _mm_mul_ps(s->d, _mm_cvtepi32_ps(all)));
    _mm_storeu_si128((__m128i *)(void *)(b->nsum + lane), _mm_sub_epi32(zero, all));
    for (int h = 0; h < 2; h++) {
        _mm_storeu_ps(b->ds16[h] + lane, _mm_mul_ps(s->d, _mm_cvtepi32_ps(s->half[h])));
        _mm_storeu_si128((__m128i *)(void *)(b->nsum16[h] + lane), _mm_sub_epi32(zero, s->half[h]));
    }
}

// The same for n groups of one row.
INLINE void put_groups(struct act_block *b, int lane, int n, const struct sums *s) {
    float d[4];
    int half[2][4];
    _mm_storeu_ps(d, s->d);
    for (int h = 0; h < 2; h++)
        _mm_storeu_si128((__m128i *)(void *)half[h], s->half[h]);
    for (int g = 0; g < n; g++)
        act_block_put(b + g, lane, d[g], (const int[2]){half[0][g], half[1][g]});
}

// Codes of n groups, at most 4, that are `step` values apart: two vector divisions serve them all.
INLINE void quantise_four(const float *x, int8_t *q, int64_t step, int n, struct sums *s) {
    const __m128 full = _mm_set1_ps(127.0f), tiny = _mm_set1_ps(1e-30f);
    vf low[4], high[4], top[4];
    __m256i code[4];
    float inverse[4];
    for (int g = 0; g < 4; g++) {
        const float *from = x + (g < n ? g : 0) * step;
        low[g] = v_load(from);
        high[g] = v_load(from + 16);
        top[g] = v_max(v_abs(low[g]), v_abs(high[g]));
    }
    __m128 most = v_top4(top);
    s->d = _mm_div_ps(most, full);
    _mm_storeu_ps(inverse, _mm_and_ps(_mm_div_ps(full, most), _mm_cmpgt_ps(most, tiny)));
    for (int g = 0; g < 4; g++)
        code[g] = v_codes(low[g], high[g], v_set(inverse[g]));
    for (int g = 0; g < n; g++)
        _mm256_storeu_si256((__m256i *)(void *)(q + g * step), code[g]);
    code_sums(code, s->half);
}

// Four rows side by side, then what is left row by row, four groups at a time.
static void quantise(const struct quantise *a) {
    struct sums s;
    int r = 0;
    for (; r + 4 <= a->rows; r += 4)
        for (int64_t g = 0; g < a->groups; g++) {
            int64_t at = r * a->stride + g * GROUP;
            quantise_four(a->x + at, a->q + at, a->stride, 4, &s);
            put_rows(a->b + g, a->lane + r, &s);
        }
    for (; r < a->rows; r++)
        for (int64_t g = 0; g < a->groups; g += 4) {
            int64_t at = r * a->stride + g * GROUP;
            int n = a->groups - g < 4 ? (int)(a->groups - g) : 4;
            quantise_four(a->x + at, a->q + at, GROUP, n, &s);
            put_groups(a->b + g, a->lane + r, n, &s);
        }
}
