// SPDX-License-Identifier: Apache-2.0
// What the linear layers of the levels avx512 and amx share: how the codes and scales of a group of
// 32 weights x 16 outputs are decoded, and how sums are stored. Internal to those two files.
#ifndef COPPICE_OPS_CPU_LINEAR_AVX512_H
#define COPPICE_OPS_CPU_LINEAR_AVX512_H

#include <immintrin.h>

#include "ops/cpu/unpack.h"

#define INLINE static inline __attribute__((always_inline))
// Before a loop whose count is a constant after inlining: its arrays then live in registers.
#ifdef COPPICE_CHECKED // see vec_common.h
#define UNROLL
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

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

// Codes as unsigned bytes, with the offset.
INLINE void load_codes(struct form f, const unsigned char *p, struct group *g) {
    for (int j = 0; j < (f.bits == 4 ? 4 : 8); j++) {
        __m512i v = _mm512_loadu_si512(p + 64 * j);
        if (f.bits != 4) {
            g->code[j] = f.shift ? _mm512_add_epi8(v, _mm512_set1_epi8((char)(1 << f.shift))) : v;
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

INLINE void put(const struct linear_part *p, float *out, __m512 v) {
    _mm512_storeu_ps(out, p->add ? _mm512_add_ps(_mm512_loadu_ps(out), v) : v);
}

#endif
