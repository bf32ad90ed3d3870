// SPDX-License-Identifier: Apache-2.0
// What the linear layers of the levels avx512 and amx share: how the codes and scales of a group of
// 32 weights x 16 outputs are decoded, and how sums are stored. Internal to those two files.
#ifndef COPPICE_OPS_CPU_LINEAR_AVX512_H
#define COPPICE_OPS_CPU_LINEAR_AVX512_H

#include <immintrin.h>

#include "ops/cpu/simd/row/row.h"

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

// Adds the upper two bits of 6.
INLINE void load_upper(const unsigned char *p, struct group *g) {
    enum { A_OR_B_AND_C = 0xF8 };
    const __m512i two = _mm512_set1_epi8(0x30);
    for (int v = 0; v < 2; v++) {
        __m512i u = _mm512_loadu_si512(p + 64 * v);
        const __m512i field[4] = {_mm512_slli_epi16(u, 4), _mm512_slli_epi16(u, 2), u,
                                  _mm512_srli_epi16(u, 2)};
        for (int i = 0; i < 4; i++)
            g->code[2 * i + v] =
                _mm512_ternarylogic_epi32(g->code[2 * i + v], field[i], two, A_OR_B_AND_C);
    }
}

// Codes as unsigned bytes, with the offset.
INLINE void load_codes(struct form f, const unsigned char *p, struct group *g) {
    const __m512i low = _mm512_set1_epi8(15);
    for (int j = 0; j < (f.bits == 8 ? 8 : 4); j++) {
        __m512i v = _mm512_loadu_si512(p + 64 * j);
        if (f.bits == 8) {
            g->code[j] = _mm512_add_epi8(v, _mm512_set1_epi8((char)(1 << f.shift)));
            continue;
        }
        g->code[j] = _mm512_and_si512(v, low);
        g->code[j + 4] = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
    }
    if (f.bits == 6)
        load_upper(p + 256, g);
}

// Scale and minimum of sub-group s of group i.
INLINE void load_scale(struct form f, struct outer *o, const unsigned char *scales, int64_t i,
                       int s, struct group *g) {
    int n = 8 * f.subs * TILE, sets = 1 + f.min;
    int64_t at = i * f.subs + s;
    if (f.scale == SCALE_SUPER && i % 8 == 0 && s == 0) {
        o->s = scales + i / 8 * (n + 2 * TILE) * sets;
        o->m = o->s + n;
        o->d = halves(o->s + n * sets);
        if (f.min)
            o->dm = halves(o->s + n * sets + 2 * TILE);
    }
    if (f.scale == SCALE_FLOAT)
        g->scale[s] = _mm512_loadu_ps(scales + at * TILE * 4);
    if (f.scale == SCALE_HALF)
        g->scale[s] = halves(scales + at * 2 * TILE * sets);
    if (f.scale == SCALE_HALF && f.min)
        g->min[s] = halves(scales + at * 2 * TILE * sets + 2 * TILE);
    if (f.scale == SCALE_SUPER)
        g->scale[s] = _mm512_mul_ps(o->d, bytes(o->s + at % (8 * f.subs) * TILE));
    if (f.scale == SCALE_SUPER && f.min)
        g->min[s] = _mm512_mul_ps(o->dm, bytes(o->m + at % (8 * f.subs) * TILE));
}

INLINE void put(const struct linear_part *p, float *out, __m512 v) {
    _mm512_storeu_ps(out, p->add ? _mm512_add_ps(_mm512_loadu_ps(out), v) : v);
}

#endif
