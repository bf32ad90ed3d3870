// SPDX-License-Identifier: Apache-2.0
// What the linear layers of the levels neon, dotprod and i8mm share: how codes and scales of a
// group are decoded, and how sums become outputs. A tile is four vectors of four outputs; a kernel
// takes some rows by some of the vectors at a time, so that all sums stay in registers. Codes are
// taken as signed bytes, without the offset, so that nothing has to be taken out of a sum. Internal
// to those files.
#ifndef COPPICE_OPS_CPU_LINEAR_NEON_H
#define COPPICE_OPS_CPU_LINEAR_NEON_H

#include <arm_neon.h>

#include "ops/cpu/unpack.h"

#define INLINE static inline __attribute__((always_inline))
// Before a loop whose count is a constant after inlining: its arrays then live in registers.
#ifdef COPPICE_CHECKED // see vec_common.h
#define UNROLL
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum { VECTORS = 4 }; // of a tile

// `rows` rows of a part, from `row` on, by `wide` vectors of a tile, from `vector` on. rows and
// wide are constants where it is used.
struct block {
    int row, rows, vector, wide;
};

// A group where a kernel reads it: the codes of the block's first vector, and of its first row.
struct operands {
    const unsigned char *codes;
    const int8_t *q;
    int64_t stride; // of q
};

// Scales of one super-block that stay for its groups.
struct outer {
    float32x4_t d[VECTORS], dm[VECTORS];
};

// A sub-group: what its integer sums are multiplied by, and the sums.
struct group {
    float32x4_t scale[VECTORS], min[VECTORS];
    int32x4_t sum[4][VECTORS]; // [row][vector]
};

INLINE float32x4_t halves(const unsigned char *p) {
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

// Four signed bytes.
INLINE float32x4_t bytes(const unsigned char *p) {
    int32_t x;
    memcpy(&x, p, 4);
    int16x8_t wide = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(x)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
}

INLINE float32x4_t floats(const unsigned char *p) {
    return vreinterpretq_f32_u8(vld1q_u8(p));
}

// Codes of a half of a group; p: where they are in it (half_at).
INLINE int8x16_t code_vector(struct form f, const unsigned char *p, int half) {
    uint8x16_t v = vld1q_u8(p);
    if (f.bits != 4)
        return vreinterpretq_s8_u8(v);
    int8x16_t c = vreinterpretq_s8_u8(half ? vshrq_n_u8(v, 4) : vandq_u8(v, vdupq_n_u8(15)));
    return f.shift ? vsubq_s8(c, vdupq_n_s8((int8_t)(1 << f.shift))) : c;
}

// k = 16 half .. of a group: nibbles lie beside those of the other half, bytes behind them.
INLINE const unsigned char *half_at(struct form f, const unsigned char *codes, int half) {
    return f.bits == 4 ? codes : codes + 256 * half;
}

// Scales and minima of sub-group `at`, counted from the tile's first, for the block's vectors.
INLINE void load_scales(struct form f, struct outer *o, const unsigned char *from, int64_t at,
                        struct block b, struct group *g) {
    int n = 8 * f.subs * TILE, sets = 1 + f.min;
    const unsigned char *super = from + at / (8 * f.subs) * (n + 2 * TILE) * sets;
    bool opens = at % (8 * f.subs) == 0;
    UNROLL for (int w = 0; w < b.wide; w++) {
        int v = b.vector + w;
        const unsigned char *half = from + at * 2 * TILE * sets + 8 * v;
        const unsigned char *d = super + n * sets + 8 * v;
        const unsigned char *code = super + at % (8 * f.subs) * TILE + 4 * v;
        if (f.scale == SCALE_FLOAT)
            g->scale[w] = floats(from + at * 4 * TILE + 16 * v);
        if (f.scale == SCALE_HALF)
            g->scale[w] = halves(half);
        if (f.scale == SCALE_HALF && f.min)
            g->min[w] = halves(half + 2 * TILE);
        if (f.scale == SCALE_SUPER && opens)
            o->d[w] = halves(d);
        if (f.scale == SCALE_SUPER && f.min && opens)
            o->dm[w] = halves(d + 2 * TILE);
        if (f.scale == SCALE_SUPER)
            g->scale[w] = vmulq_f32(o->d[w], bytes(code));
        if (f.scale == SCALE_SUPER && f.min)
            g->min[w] = vmulq_f32(o->dm[w], bytes(code + n));
    }
}

INLINE void put(const struct linear_part *p, float *out, float32x4_t v) {
    vst1q_f32(out, p->add ? vaddq_f32(vld1q_f32(out), v) : v);
}

#endif
