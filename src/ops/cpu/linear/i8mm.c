// SPDX-License-Identifier: Apache-2.0
// Linear layers with the int8 matrix instructions of ARMv8.6: one multiplies two outputs by two
// rows, over eight values of k. For that a tile's codes are arranged so that an output's bytes of
// two steps of k lie side by side. A pair of rows keeps its sums as the instruction leaves them,
// two outputs by two rows in a vector, until the end. A row alone takes dot products.
#include "ops/cpu/linear/neon.h"

enum {
    VECTOR_BYTES = 32, // two vectors of two outputs
    PAIR_BYTES = 128,  // 16 outputs, 8 values of k
    SUMS = 4,          // pairs of rows times vectors of a tile whose sums are in registers
};

// In place, also the upper bits of 6; vectors 2j and 2j + 1 of a group become one vector for
// outputs 0 and 1, and so on.
static void arrange(const struct weight *w, unsigned char *tile) {
    for (unsigned char *p = tile; p < tile + w->scales_at; p += PAIR_BYTES) {
        unsigned char old[PAIR_BYTES];
        memcpy(old, p, sizeof old);
        for (int i = 0; i < 2 * TILE; i++)
            memcpy(p + 8 * (i % TILE) + 4 * (i / TILE), old + 4 * i, 4);
    }
}

// Codes of steps 2at and 2at + 1 of a group, of two outputs: h = 0 or 1 of vector v.
INLINE int8x16_t two_outputs(struct form f, const unsigned char *codes, int at, int v, int h) {
    const unsigned char *p = codes + VECTOR_BYTES * v + 16 * h;
    return code_vector(f, p + PAIR_BYTES * (f.bits == 8 ? at : at % 2), p + 256, at);
}

// Eight activations, twice.
INLINE int8x16_t eight(const int8_t *q) {
    int64_t x;
    memcpy(&x, q, 8);
    return vreinterpretq_s8_s64(vdupq_n_s64(x));
}

// Of one row.
INLINE void sub_sums(struct form f, const struct operands *x, int s, struct block b,
                     struct sums *sums) {
    int32x4_t sum[2 * VECTORS]; // each output's in two lanes
    UNROLL for (int v = 0; v < 2 * b.wide; v++) sum[v] = vdupq_n_s32(0);
    UNROLL for (int at = s * 4 / f.subs; at < (s + 1) * 4 / f.subs; at++) {
        int8x16_t q = eight(x->q + 8 * at);
        UNROLL for (int v = 0; v < 2 * b.wide; v++) sum[v] =
            vdotq_s32(sum[v], two_outputs(f, x->codes, at, v / 2, v % 2), q);
    }
    UNROLL for (int v = 0; v < b.wide; v++) sums->of[0][v] = vpaddq_s32(sum[2 * v], sum[2 * v + 1]);
}

#include "ops/cpu/linear/neon_tmpl.h"

// Activations of two rows, 8 values of k.
INLINE int8x16_t two_rows(const int8_t *q, int64_t stride) {
    return vcombine_s8(vld1_s8(q), vld1_s8(q + stride));
}

INLINE float32x4_t twice(const float *p) {
    float32x2_t x = vld1_f32(p);
    return vcombine_f32(x, x);
}

// The integer sums of sub-group s for vector v of the block: sums->of[pair of rows][of outputs].
INLINE void pair_sums(struct form f, const struct operands *x, int s, int v, int pairs,
                      struct sums *sums) {
    UNROLL for (int r = 0; r < pairs; r++) sums->of[r][0] = sums->of[r][1] = vdupq_n_s32(0);
    UNROLL for (int at = s * 4 / f.subs; at < (s + 1) * 4 / f.subs; at++) {
        int8x16_t a = two_outputs(f, x->codes, at, v, 0);
        int8x16_t b = two_outputs(f, x->codes, at, v, 1);
        UNROLL for (int r = 0; r < pairs; r++) {
            int8x16_t q = two_rows(x->q + 2 * r * x->stride + 8 * at, x->stride);
            sums->of[r][0] = vmmlaq_s32(sums->of[r][0], a, q);
            sums->of[r][1] = vmmlaq_s32(sums->of[r][1], b, q);
        }
    }
}

// Scales them and adds them to acc; d and ds: of the first row.
INLINE void add_pairs(struct form f, const struct sums *sums, struct scale scale, int pairs,
                      const float *d, const float *ds, float32x4_t acc[2][2]) {
    UNROLL for (int h = 0; h < 2; h++) {
        float32x4_t by = h ? vzip2q_f32(scale.by, scale.by) : vzip1q_f32(scale.by, scale.by);
        float32x4_t min = h ? vzip2q_f32(scale.min, scale.min) : vzip1q_f32(scale.min, scale.min);
        UNROLL for (int r = 0; r < pairs; r++) {
            acc[r][h] = vfmaq_f32(acc[r][h], vcvtq_f32_s32(sums->of[r][h]),
                                  vmulq_f32(by, twice(d + 2 * r)));
            if (f.min)
                acc[r][h] = vfmsq_f32(acc[r][h], min, twice(ds + 2 * r));
        }
    }
}

// A block of pairs of rows; rows counts the pairs.
INLINE void pair_block(struct form f, const struct linear_part *p, int64_t t, struct block b) {
    const struct weight *w = p->w;
    const unsigned char *tile = w->data + (p->tile + t) * w->tile_bytes;
    int64_t stride = p->in->stride;
    struct operands x = {tile + VECTOR_BYTES * b.vector, p->in->q + (p->row + b.row) * stride,
                         stride};
    const struct act_block *a = act_blocks(p->in, p->row);
    float32x4_t acc[VECTORS][2][2]; // [vector][pair][outputs 0 and 1, or 2 and 3, of both rows]
    UNROLL for (int j = 0; j < b.wide * b.rows; j++) acc[j / b.rows][j % b.rows][0] =
        acc[j / b.rows][j % b.rows][1] = vdupq_n_f32(0);
    for (int64_t i = 0; i < w->k / GROUP; i++, a++, x.q += GROUP) {
        UNROLL for (int s = 0; s < f.subs; s++) {
            const float *ds = f.subs == 1 ? a->ds : a->ds16[s];
            UNROLL for (int v = 0; v < b.wide; v++) {
                struct sums sums;
                pair_sums(f, &x, s, v, b.rows, &sums);
                add_pairs(f, &sums, scale_at(f, tile + w->scales_at, i * f.subs + s, b.vector + v),
                          b.rows, a->d + b.row, ds + b.row, acc[v]);
            }
        }
        x.codes += group_bytes(f);
    }
    float *out = p->out + b.row * p->stride + t * TILE + 4 * b.vector;
    UNROLL for (int r = 0; r < b.rows; r++, out += 2 * p->stride)
        UNROLL for (int v = 0; v < b.wide; v++) {
        put(p, out + 4 * v, vuzp1q_f32(acc[v][r][0], acc[v][r][1]));
        put(p, out + p->stride + 4 * v, vuzp2q_f32(acc[v][r][0], acc[v][r][1]));
    }
}

// Tile t for some pairs of rows, a constant.
INLINE void tile_pairs(struct form f, const struct linear_part *p, int64_t t, int row, int pairs) {
    for (int v = 0; v < VECTORS; v += SUMS / pairs)
        pair_block(f, p, t, (struct block){row, pairs, v, SUMS / pairs});
}

INLINE void part(struct form f, const struct linear_part *p) {
    for (int64_t t = 0; t < p->tiles; t++) {
        int i = 0;
        for (; i + 4 <= p->n; i += 4)
            tile_pairs(f, p, t, i, 2);
        if (p->n & 2)
            tile_pairs(f, p, t, i, 1);
        i += p->n & 2;
        if (p->n & 1)
            tile_rows(f, p, t, i, 1, VECTORS);
    }
}

CODE_FORMS(LINEAR_KERNEL)

void linear_fill_i8mm(struct row_kernels *r) {
    CODE_FORMS(LINEAR_ENTRY)
    r->arrange = arrange;
}
