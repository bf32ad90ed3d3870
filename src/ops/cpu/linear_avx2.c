// SPDX-License-Identifier: Apache-2.0
// Linear layers with AVX2: two vectors are the 16 outputs of a tile. Without VNNI the byte products
// go through 16-bit sums, added only as long as they cannot overflow: codes below 16 for a whole
// group (8 * 2 * 15 * 127 < 2^15), codes below 64 for two steps, and full bytes as |w| times the
// activation with w's sign for one. So the integer sums are those of every other level.
#include <immintrin.h>

#include "ops/cpu/unpack.h"

#define INLINE static inline __attribute__((always_inline))

struct group {
    __m256i code[8][2]; // with 8 bits: signed weights
    __m256 scale[2][2], min[2][2];
};

INLINE __m256 halves(const unsigned char *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

INLINE __m256 bytes(const unsigned char *p) {
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

INLINE __m256i load(const unsigned char *p) {
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

INLINE void load_codes(struct form f, const unsigned char *p, struct group *g) {
    for (int j = 0; j < (f.bits == 4 ? 4 : 8); j++)
        for (int h = 0; h < 2; h++) {
            __m256i v = load(p + 64 * j + 32 * h);
            if (f.bits == 8)
                v = _mm256_xor_si256(v, _mm256_set1_epi8(-128));
            if (f.bits == 4) {
                const __m256i low = _mm256_set1_epi8(15);
                g->code[j + 4][h] = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
                v = _mm256_and_si256(v, low);
            }
            g->code[j][h] = v;
        }
}

INLINE void load_scales(struct form f, const unsigned char *scales, int64_t i, struct group *g) {
    int n = 8 * f.subs * TILE, sets = 1 + f.min;
    for (int s = 0; s < f.subs; s++)
        for (int h = 0; h < 2; h++) {
            int64_t at = i * f.subs + s;
            const unsigned char *p = scales + at * 2 * TILE * sets + 16 * h;
            if (f.scale == SCALE_FLOAT)
                g->scale[s][h] = _mm256_loadu_ps(
                    (const float *)(const void *)(scales + (at * TILE + 8 * h) * 4));
            if (f.scale == SCALE_HALF)
                g->scale[s][h] = halves(p);
            if (f.scale == SCALE_HALF && f.min)
                g->min[s][h] = halves(p + 2 * TILE);
            if (f.scale != SCALE_SUPER)
                continue;
            p = scales + i / 8 * (n + 2 * TILE) * sets;
            int64_t sub = (i % 8 * f.subs + s) * TILE + 8 * h;
            g->scale[s][h] = _mm256_mul_ps(halves(p + n * sets + 16 * h), bytes(p + sub));
            if (f.min)
                g->min[s][h] =
                    _mm256_mul_ps(halves(p + n * sets + 2 * TILE + 16 * h), bytes(p + n + sub));
        }
}

INLINE __m256i product(struct form f, __m256i code, const int8_t *q) {
    int32_t v;
    memcpy(&v, q, 4);
    __m256i a = _mm256_set1_epi32(v);
    if (f.bits == 8)
        return _mm256_maddubs_epi16(_mm256_abs_epi8(code), _mm256_sign_epi8(a, code));
    return _mm256_maddubs_epi16(code, a);
}

// Sum of code times activation over one sub-group, offset taken out.
INLINE __m256i sub_sum(struct form f, const struct group *g, int s, int h, const int8_t *q,
                       const struct act_block *b) {
    const __m256i ones = _mm256_set1_epi16(1);
    int steps = 8 / f.subs, each = f.bits == 4 ? steps : f.bits == 6 ? 2 : 1;
    __m256i sum = _mm256_setzero_si256();
    if (f.shift && f.bits != 8)
        sum = _mm256_slli_epi32(_mm256_set1_epi32(f.subs == 1 ? b->nsum : b->nsum16[s]), f.shift);
    for (int j = s * steps; j < (s + 1) * steps; j += each) {
        __m256i part = product(f, g->code[j][h], q + 4 * j);
        for (int i = 1; i < each; i++)
            part = _mm256_add_epi16(part, product(f, g->code[j + i][h], q + 4 * (j + i)));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(part, ones));
    }
    return sum;
}

INLINE __m256 add_group(struct form f, __m256 acc, const struct group *g, int h, const int8_t *q,
                        const struct act_block *b) {
    for (int s = 0; s < f.subs; s++) {
        __m256i sum = sub_sum(f, g, s, h, q, b);
        acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum),
                              _mm256_mul_ps(g->scale[s][h], _mm256_set1_ps(b->d)), acc);
        if (f.min)
            acc = _mm256_fnmadd_ps(g->min[s][h], _mm256_set1_ps(f.subs == 1 ? b->ds : b->ds16[s]),
                                   acc);
    }
    return acc;
}

INLINE void tile_rows(struct form f, const struct weight *w, int64_t tile, const struct act *in,
                      int64_t row, int n, float *out) {
    const unsigned char *codes = w->data + tile * w->tile_bytes, *scales = codes + w->scales_at;
    int64_t blocks = in->stride / GROUP, groups = w->k / GROUP;
    const int8_t *q = in->q + row * in->stride;
    const struct act_block *b = in->b + row * blocks;
    __m256 acc[ROWS][2];
    for (int i = 0; i < n; i++)
        acc[i][0] = acc[i][1] = _mm256_setzero_ps();
    for (int64_t i = 0; i < groups; i++, q += GROUP, b++, codes += f.bits == 4 ? 256 : 512) {
        struct group g;
        load_codes(f, codes, &g);
        load_scales(f, scales, i, &g);
        for (int r = 0; r < n; r++)
            for (int h = 0; h < 2; h++)
                acc[r][h] = add_group(f, acc[r][h], &g, h, q + r * in->stride, b + r * blocks);
    }
    for (int i = 0; i < n; i++)
        for (int h = 0; h < 2; h++)
            _mm256_storeu_ps(out + i * TILE + 8 * h, acc[i][h]);
}

#define X(name, bits, shift, subs, min, scale)                                                     \
    static void linear_##name(const struct weight *w, int64_t tile, const struct act *in,          \
                              int64_t row, int n, float *out) {                                    \
        const struct form f = {bits, shift, subs, min, scale};                                     \
        if (n == 1)                                                                                \
            tile_rows(f, w, tile, in, row, 1, out);                                                \
        else                                                                                       \
            tile_rows(f, w, tile, in, row, n, out);                                                \
    }
LINEAR_FORMS(X)
#undef X

INLINE __m256 numbers(enum linear_form form, const unsigned char *p, int64_t i) {
    if (form == FORM_F32)
        return _mm256_loadu_ps((const float *)(const void *)(p + i * 4));
    if (form == FORM_F16)
        return halves(p + i * 2);
    __m128i h = _mm_loadu_si128((const __m128i *)(const void *)(p + i * 2));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

INLINE void number_row(enum linear_form form, const unsigned char *p, int64_t k, const float *x,
                       float *out) {
    __m256 acc[4][2];
    for (int s = 0; s < 4; s++)
        acc[s][0] = acc[s][1] = _mm256_setzero_ps();
    int64_t at = 0;
    for (; at + 4 <= k; at += 4)
        for (int s = 0; s < 4; s++)
            for (int h = 0; h < 2; h++)
                acc[s][h] = _mm256_fmadd_ps(numbers(form, p, (at + s) * TILE + 8 * h),
                                            _mm256_set1_ps(x[at + s]), acc[s][h]);
    for (int s = 0; s < 3; s++)
        for (int h = 0; h < 2 && at + s < k; h++)
            acc[s][h] = _mm256_fmadd_ps(numbers(form, p, (at + s) * TILE + 8 * h),
                                        _mm256_set1_ps(x[at + s]), acc[s][h]);
    for (int h = 0; h < 2; h++)
        _mm256_storeu_ps(out + 8 * h, _mm256_add_ps(_mm256_add_ps(acc[0][h], acc[1][h]),
                                                    _mm256_add_ps(acc[2][h], acc[3][h])));
}

#define NUMBERS(name, form)                                                                        \
    static void linear_##name(const struct weight *w, int64_t tile, const struct act *in,          \
                              int64_t row, int n, float *out) {                                    \
        for (int i = 0; i < n; i++)                                                                \
            number_row(form, w->data + tile * w->tile_bytes, w->k, in->x + (row + i) * in->stride, \
                       out + i * TILE);                                                            \
    }
NUMBERS(f32, FORM_F32)
NUMBERS(f16, FORM_F16)
NUMBERS(bf16, FORM_BF16)
#undef NUMBERS

void linear_fill_avx2(struct row_kernels *r) {
#define X(name, ...) r->linear[FORM_##name] = linear_##name;
    LINEAR_FORMS(X)
#undef X
    r->linear[FORM_F32] = linear_f32;
    r->linear[FORM_F16] = linear_f16;
    r->linear[FORM_BF16] = linear_bf16;
}
