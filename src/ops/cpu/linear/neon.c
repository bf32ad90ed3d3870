// SPDX-License-Identifier: Apache-2.0
// Linear layers with plain NEON. Products of bytes go through 16-bit sums, as many as cannot
// overflow: four of codes below 64 (4 * 63 * 127 < 2^15), two of full bytes. Each output then has
// two 32-bit sums, which are added at the end. Weights that are plain numbers are taken here for
// the levels above, too.
#include "ops/cpu/linear/neon.h"

enum { VECTOR_BYTES = 16 };

// Sums of two outputs each, in pairs of lanes.
struct pairs {
    int32x4_t low, high;
};

// Products of codes c[from] .. of two outputs with activations, `n` of them in one 16-bit sum.
INLINE int32x4_t add_low(int32x4_t sum, const int8x16_t *c, const int8x16_t *q, int n) {
    int16x8_t part = vmull_s8(vget_low_s8(c[0]), vget_low_s8(q[0]));
    UNROLL for (int j = 1; j < n; j++) part = vmlal_s8(part, vget_low_s8(c[j]), vget_low_s8(q[j]));
    return vpadalq_s16(sum, part);
}

// The same of the other two outputs.
INLINE int32x4_t add_high(int32x4_t sum, const int8x16_t *c, const int8x16_t *q, int n) {
    int16x8_t part = vmull_high_s8(c[0], q[0]);
    UNROLL for (int j = 1; j < n; j++) part = vmlal_high_s8(part, c[j], q[j]);
    return vpadalq_s16(sum, part);
}

INLINE int8x16_t four(const int8_t *q) {
    int32_t x;
    memcpy(&x, q, 4);
    return vreinterpretq_s8_s32(vdupq_n_s32(x));
}

INLINE void sub_sums(struct form f, const struct operands *x, int s, struct block b,
                     struct sums *sums) {
    const int n = f.bits == 8 ? 2 : 4;
    struct pairs sum[2][VECTORS];
    UNROLL for (int r = 0; r < b.rows; r++) UNROLL for (int v = 0; v < b.wide; v++) sum[r][v] =
        (struct pairs){vdupq_n_s32(0), vdupq_n_s32(0)};
    UNROLL for (int at = s * 8 / f.subs; at < (s + 1) * 8 / f.subs; at += n) {
        int8x16_t q[2][4];
        UNROLL for (int r = 0; r < b.rows; r++) UNROLL for (int j = 0; j < n; j++) q[r][j] =
            four(x->q + r * x->stride + 4 * (at + j));
        UNROLL for (int v = 0; v < b.wide; v++) {
            int8x16_t c[4];
            UNROLL for (int j = 0; j < n; j++) c[j] = step_codes(f, x->codes, at + j, v);
            UNROLL for (int r = 0; r < b.rows; r++) {
                sum[r][v].low = add_low(sum[r][v].low, c, q[r], n);
                sum[r][v].high = add_high(sum[r][v].high, c, q[r], n);
            }
        }
    }
    UNROLL for (int r = 0; r < b.rows; r++) UNROLL for (int v = 0; v < b.wide; v++) sums->of[r][v] =
        vpaddq_s32(sum[r][v].low, sum[r][v].high);
}

#include "ops/cpu/linear/neon_tmpl.h"

INLINE void part(struct form f, const struct linear_part *p) {
    for (int64_t t = 0; t < p->tiles; t++) {
        int i = 0;
        for (; i + 2 <= p->n; i += 2)
            tile_rows(f, p, t, i, 2, 2);
        if (i < p->n)
            tile_rows(f, p, t, i, 1, 4);
    }
}

CODE_FORMS(LINEAR_KERNEL)

// Numbers i .. i + 3 of a tile.
INLINE float32x4_t numbers(enum code_form form, const unsigned char *p, int64_t i) {
    if (form == FORM_F32)
        return floats(p + 4 * i);
    return halves(p + 2 * i);
}

// Where a block's numbers are: those of its tile, and its first row.
struct number_operands {
    const unsigned char *tile;
    const float *x;
    int64_t stride; // of x
};

// One k of all rows and vectors of a block, into partial sum s = k mod 4, a constant.
INLINE void add_numbers(enum code_form form, const struct number_operands *o, struct block b,
                        int64_t k, int s, float32x4_t sum[4][4]) {
    UNROLL for (int v = 0; v < b.wide; v++) {
        float32x4_t w = numbers(form, o->tile, k * TILE + 4 * (b.vector + v));
        UNROLL for (int r = 0; r < b.rows; r++) sum[r * b.wide + v][s] =
            vfmaq_n_f32(sum[r * b.wide + v][s], w, o->x[r * o->stride + k]);
    }
}

INLINE void number_block(enum code_form form, const struct linear_part *p, int64_t t,
                         struct block b) {
    int64_t k = p->w->k, stride = p->in->stride, at = 0;
    struct number_operands o = {p->w->data + (p->tile + t) * p->w->tile_bytes,
                                p->in->x + (p->row + b.row) * stride, stride};
    float32x4_t sum[4][4]; // [row and vector][k mod 4]
    UNROLL for (int i = 0; i < b.rows * b.wide; i++) UNROLL for (int s = 0; s < 4; s++) sum[i][s] =
        vdupq_n_f32(0);
    for (; at + 4 <= k; at += 4)
        UNROLL for (int s = 0; s < 4; s++) add_numbers(form, &o, b, at + s, s, sum);
    UNROLL for (int s = 0; s < 3; s++) if (at + s < k) add_numbers(form, &o, b, at + s, s, sum);
    float *out = p->out + b.row * p->stride + t * TILE + 4 * b.vector;
    UNROLL for (int r = 0; r < b.rows; r++) UNROLL for (int v = 0; v < b.wide; v++) {
        const float32x4_t *s = sum[r * b.wide + v];
        put(p, out + r * p->stride + 4 * v,
            vaddq_f32(vaddq_f32(s[0], s[1]), vaddq_f32(s[2], s[3])));
    }
}

#define NUMBERS(name, form)                                                                        \
    static void linear_##name(const struct linear_part *p) {                                       \
        for (int64_t t = 0; t < p->tiles; t++) {                                                   \
            int i = 0;                                                                             \
            for (; i + 4 <= p->n; i += 4)                                                          \
                for (int v = 0; v < VECTORS; v++)                                                  \
                    number_block(form, p, t, (struct block){i, 4, v, 1});                          \
            for (; i < p->n; i++)                                                                  \
                number_block(form, p, t, (struct block){i, 1, 0, VECTORS});                        \
        }                                                                                          \
    }
NUMBERS(f32, FORM_F32)
NUMBERS(f16, FORM_F16)
#undef NUMBERS

void linear_fill_neon(struct row_kernels *r) {
    CODE_FORMS(LINEAR_ENTRY)
    r->linear[FORM_F32] = linear_f32;
    r->linear[FORM_F16] = linear_f16;
}
