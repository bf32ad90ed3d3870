// SPDX-License-Identifier: Apache-2.0
// Linear layers of bf16 weights with plain NEON: the products and sums of scalar.c, where
// numbers below the normal ones count as zeros, which a bit of the control register requires.
#include <arm_neon.h>

#include "ops/cpu/simd/row/row.h"

enum { VECTORS = 4, FLUSH = 1 << 24 };

INLINE uint64_t control(void) {
    uint64_t x;
    __asm__ volatile("mrs %0, fpcr" : "=r"(x));
    return x;
}

INLINE void set_control(uint64_t x) {
    __asm__ volatile("msr fpcr, %0" : : "r"(x) : "memory");
}

// Pairs of bf16 as floats, those of even and those of odd k.
INLINE float32x4_t even(uint32x4_t v) {
    return vreinterpretq_f32_u32(vshlq_n_u32(v, 16));
}
INLINE float32x4_t odd(uint32x4_t v) {
    return vreinterpretq_f32_u32(vandq_u32(v, vdupq_n_u32(0xFFFF0000u)));
}

// Vector v of tile t for rows [i, i + n), n a constant of at most 4.
INLINE void block(const struct linear_part *p, int64_t t, int v, int i, int n) {
    int64_t stride = p->in->stride;
    const unsigned char *w = p->w->data + (p->tile + t) * p->w->tile_bytes + 16 * v;
    const uint16_t *x = p->in->h + (p->row + i) * stride;
    float32x4_t acc[4];
    for (int r = 0; r < n; r++)
        acc[r] = vdupq_n_f32(0);
    for (int64_t k = 0; k < stride; k += GROUP, w += GROUP * TILE * 2, x += GROUP) {
        float32x4_t sum[2][4];
        for (int r = 0; r < n; r++)
            sum[0][r] = sum[1][r] = vdupq_n_f32(0);
        for (int j = 0; j < GROUP / 2; j++) {
            uint32x4_t c = vreinterpretq_u32_u8(vld1q_u8(w + 4 * TILE * j));
            for (int r = 0; r < n; r++) {
                uint32_t pair;
                memcpy(&pair, x + r * stride + 2 * j, sizeof pair);
                uint32x4_t a = vdupq_n_u32(pair);
                sum[0][r] = vfmaq_f32(sum[0][r], even(a), even(c));
                sum[1][r] = vfmaq_f32(sum[1][r], odd(a), odd(c));
            }
        }
        for (int r = 0; r < n; r++)
            acc[r] = vaddq_f32(acc[r], vaddq_f32(sum[0][r], sum[1][r]));
    }
    for (int r = 0; r < n; r++) {
        float *out = p->out + (i + r) * p->stride + t * TILE + 4 * v;
        vst1q_f32(out, p->add ? vaddq_f32(vld1q_f32(out), acc[r]) : acc[r]);
    }
}

static void linear_bf16(const struct linear_part *p) {
    uint64_t mode = control();
    set_control(mode | FLUSH);
    for (int64_t at = 0; at < p->tiles * VECTORS; at++) {
        int i = 0, v = (int)(at % VECTORS);
        for (; i + 4 <= p->n; i += 4)
            block(p, at / VECTORS, v, i, 4);
        for (; i < p->n; i++)
            block(p, at / VECTORS, v, i, 1);
    }
    set_control(mode);
}

void linear_fill_bf16_neon(struct row_kernels *r) {
    r->linear[FORM_BF16] = linear_bf16;
}
