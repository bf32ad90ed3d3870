// SPDX-License-Identifier: Apache-2.0
// Linear layers with AVX-512 VNNI: one vector is the 16 outputs of a tile. Codes are unsigned
// bytes, activations signed bytes broadcast four at a time; the codes' offset is taken out exactly
// by starting each integer sum at -offset * sum(q). The weights of a group are decoded once for
// all rows of a call. One inlined body serves every form.
#include <immintrin.h>

#include "ops/cpu/unpack.h"

#define INLINE static inline __attribute__((always_inline))

struct group {
    __m512i code[8];
    __m512 scale[2], min[2];
};

// Scales of one super-block that stay for its groups.
struct outer {
    const unsigned char *s, *m; // int8 sub-scales and sub-minima
    __m512 d, dm;
};

INLINE __m512 halves(const unsigned char *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

INLINE __m512 bytes(const unsigned char *p) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

INLINE void load_codes(struct form f, const unsigned char *p, struct group *g) {
    for (int j = 0; j < (f.bits == 4 ? 4 : 8); j++) {
        __m512i v = _mm512_loadu_si512(p + 64 * j);
        if (f.bits != 4) {
            g->code[j] = v;
            continue;
        }
        const __m512i low = _mm512_set1_epi8(15);
        g->code[j] = _mm512_and_si512(v, low);
        g->code[j + 4] = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
    }
}

INLINE void load_scales(struct form f, struct outer *o, const unsigned char *scales, int64_t i,
                        struct group *g) {
    int n = 8 * f.subs * TILE, sets = 1 + f.min;
    if (f.scale == SCALE_SUPER && i % 8 == 0) {
        o->s = scales + i / 8 * (n + 2 * TILE) * sets;
        o->m = o->s + n;
        o->d = halves(o->s + n * sets);
        if (f.min)
            o->dm = halves(o->s + n * sets + 2 * TILE);
    }
    for (int s = 0; s < f.subs; s++) {
        int64_t at = i * f.subs + s;
        if (f.scale == SCALE_FLOAT)
            g->scale[s] = _mm512_loadu_ps(scales + at * TILE * 4);
        if (f.scale == SCALE_HALF)
            g->scale[s] = halves(scales + at * 2 * TILE * sets);
        if (f.scale == SCALE_HALF && f.min)
            g->min[s] = halves(scales + at * 2 * TILE * sets + 2 * TILE);
        if (f.scale == SCALE_SUPER)
            g->scale[s] = _mm512_mul_ps(o->d, bytes(o->s + (i % 8 * f.subs + s) * TILE));
        if (f.scale == SCALE_SUPER && f.min)
            g->min[s] = _mm512_mul_ps(o->dm, bytes(o->m + (i % 8 * f.subs + s) * TILE));
    }
}

INLINE __m512i four(const int8_t *q) {
    int32_t v;
    memcpy(&v, q, 4);
    return _mm512_set1_epi32(v);
}

// One group of one row.
INLINE __m512 add_group(struct form f, __m512 acc, const struct group *g, const int8_t *q,
                        const struct act_block *b) {
    for (int s = 0; s < f.subs; s++) {
        __m512i sum = _mm512_setzero_si512();
        if (f.shift)
            sum = _mm512_slli_epi32(_mm512_set1_epi32(f.subs == 1 ? b->nsum : b->nsum16[s]),
                                    (unsigned)f.shift);
        for (int j = s * 8 / f.subs; j < (s + 1) * 8 / f.subs; j++)
            sum = _mm512_dpbusd_epi32(sum, g->code[j], four(q + 4 * j));
        acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum),
                              _mm512_mul_ps(g->scale[s], _mm512_set1_ps(b->d)), acc);
        if (f.min)
            acc =
                _mm512_fnmadd_ps(g->min[s], _mm512_set1_ps(f.subs == 1 ? b->ds : b->ds16[s]), acc);
    }
    return acc;
}

INLINE void tile_rows(struct form f, const struct weight *w, int64_t tile, const struct act *in,
                      int64_t row, int n, float *out) {
    const unsigned char *codes = w->data + tile * w->tile_bytes, *scales = codes + w->scales_at;
    int64_t blocks = in->stride / GROUP, groups = w->k / GROUP;
    const int8_t *q = in->q + row * in->stride;
    const struct act_block *b = in->b + row * blocks;
    __m512 acc[ROWS];
    struct outer o = {scales, scales, _mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int i = 0; i < n; i++)
        acc[i] = _mm512_setzero_ps();
    for (int64_t i = 0; i < groups; i++, q += GROUP, b++, codes += f.bits == 4 ? 256 : 512) {
        struct group g;
        load_codes(f, codes, &g);
        load_scales(f, &o, scales, i, &g);
        for (int r = 0; r < n; r++)
            acc[r] = add_group(f, acc[r], &g, q + r * in->stride, b + r * blocks);
    }
    for (int i = 0; i < n; i++)
        _mm512_storeu_ps(out + i * TILE, acc[i]);
}

// A call for one row keeps its sum in a register.
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

INLINE __m512 numbers(enum linear_form form, const unsigned char *p, int64_t k) {
    if (form == FORM_F32)
        return _mm512_loadu_ps(p + k * TILE * 4);
    if (form == FORM_F16)
        return halves(p + k * TILE * 2);
    __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)(p + k * TILE * 2));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

// n rows, a constant of at most 4: four partial sums each.
INLINE void number_rows(enum linear_form form, const unsigned char *p, int64_t k, const float *x,
                        int64_t stride, int n, float *out) {
    __m512 acc[4][4];
    for (int i = 0; i < n; i++)
        for (int s = 0; s < 4; s++)
            acc[i][s] = _mm512_setzero_ps();
    int64_t at = 0;
    for (; at + 4 <= k; at += 4)
        for (int s = 0; s < 4; s++) {
            __m512 v = numbers(form, p, at + s);
            for (int i = 0; i < n; i++)
                acc[i][s] = _mm512_fmadd_ps(v, _mm512_set1_ps(x[i * stride + at + s]), acc[i][s]);
        }
    for (int s = 0; s < 3; s++)
        for (int i = 0; i < n && at + s < k; i++)
            acc[i][s] = _mm512_fmadd_ps(numbers(form, p, at + s),
                                        _mm512_set1_ps(x[i * stride + at + s]), acc[i][s]);
    for (int i = 0; i < n; i++)
        _mm512_storeu_ps(out + i * TILE, _mm512_add_ps(_mm512_add_ps(acc[i][0], acc[i][1]),
                                                       _mm512_add_ps(acc[i][2], acc[i][3])));
}

#define NUMBERS(name, form)                                                                        \
    static void linear_##name(const struct weight *w, int64_t tile, const struct act *in,          \
                              int64_t row, int n, float *out) {                                    \
        const unsigned char *p = w->data + tile * w->tile_bytes;                                   \
        int i = 0;                                                                                 \
        for (; i + 4 <= n; i += 4)                                                                 \
            number_rows(form, p, w->k, in->x + (row + i) * in->stride, in->stride, 4,              \
                        out + i * TILE);                                                           \
        for (; i < n; i++)                                                                         \
            number_rows(form, p, w->k, in->x + (row + i) * in->stride, in->stride, 1,              \
                        out + i * TILE);                                                           \
    }
NUMBERS(f32, FORM_F32)
NUMBERS(f16, FORM_F16)
NUMBERS(bf16, FORM_BF16)
#undef NUMBERS

void linear_fill_avx512(struct row_kernels *r) {
#define X(name, ...) r->linear[FORM_##name] = linear_##name;
    LINEAR_FORMS(X)
#undef X
    r->linear[FORM_F32] = linear_f32;
    r->linear[FORM_F16] = linear_f16;
    r->linear[FORM_BF16] = linear_bf16;
}
