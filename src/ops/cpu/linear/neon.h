// SPDX-License-Identifier: Apache-2.0
// What the linear layers of the levels neon, dotprod and i8mm share: how codes and scales of a
// group are decoded, and how sums become outputs. A tile is four vectors of four outputs; a kernel
// takes some rows by some of the vectors at a time, so that all sums stay in registers. Codes are
// taken as signed bytes, without the offset, so that nothing has to be taken out of a sum. Internal
// to those files.
#ifndef COPPICE_OPS_CPU_LINEAR_NEON_H
#define COPPICE_OPS_CPU_LINEAR_NEON_H

#include <arm_neon.h>

#include "ops/cpu/simd/row/row.h"

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

// Integer sums of a sub-group.
struct sums {
    int32x4_t of[4][VECTORS]; // [row][vector]
};

// What a vector's sums are multiplied by, and what is taken off.
struct scale {
    float32x4_t by, min;
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

// The upper two of 6 bits, where they belong: field i of the bytes is that of steps 2i and 2i + 1.
INLINE uint8x16_t upper_bits(uint8x16_t u, int field) {
    if (field < 2)
        return field ? vshlq_n_u8(u, 2) : vshlq_n_u8(u, 4);
    return field == 2 ? u : vshrq_n_u8(u, 2);
}

// Codes of step 2 field or 2 field + 1 of a group, of sixteen bytes; upper: see linear.h.
INLINE int8x16_t code_vector(struct form f, const unsigned char *p, const unsigned char *upper,
                             int field) {
    uint8x16_t v = vld1q_u8(p);
    if (f.bits == 8)
        return vreinterpretq_s8_u8(v);
    v = field < 2 ? vandq_u8(v, vdupq_n_u8(15)) : vshrq_n_u8(v, 4);
    if (f.bits == 6)
        v = vbslq_u8(vdupq_n_u8(0x30), upper_bits(vld1q_u8(upper), field), v);
    int8x16_t c = vreinterpretq_s8_u8(v);
    return f.shift ? vsubq_s8(c, vdupq_n_s8((int8_t)(1 << f.shift))) : c;
}

// Codes of step j, k = 4j .., of a group where they lie as weight.c puts them; vector v.
INLINE int8x16_t step_codes(struct form f, const unsigned char *codes, int j, int v) {
    const unsigned char *p = codes + 16 * v;
    return code_vector(f, p + 64 * (f.bits == 8 ? j : j % 4), p + 256 + 64 * (j % 2), j / 2);
}

// Of sub-group `at`, counted from the tile's first, for vector v; from: the tile's scales.
INLINE struct scale scale_at(struct form f, const unsigned char *from, int64_t at, int v) {
    int n = 8 * f.subs * TILE, sets = 1 + f.min;
    const unsigned char *half = from + at * 2 * TILE * sets + 8 * v;
    const unsigned char *super = from + at / (8 * f.subs) * (n + 2 * TILE) * sets;
    const unsigned char *d = super + n * sets + 8 * v;
    const unsigned char *code = super + at % (8 * f.subs) * TILE + 4 * v;
    struct scale s;
    if (f.scale == SCALE_FLOAT)
        s.by = floats(from + at * 4 * TILE + 16 * v);
    else if (f.scale == SCALE_HALF)
        s.by = halves(half);
    else
        s.by = vmulq_f32(halves(d), bytes(code));
    if (!f.min)
        s.min = vdupq_n_f32(0);
    else if (f.scale == SCALE_HALF)
        s.min = halves(half + 2 * TILE);
    else
        s.min = vmulq_f32(halves(d + 2 * TILE), bytes(code + n));
    return s;
}

INLINE void put(const struct linear_part *p, float *out, float32x4_t v) {
    vst1q_f32(out, p->add ? vaddq_f32(vld1q_f32(out), v) : v);
}

#endif
