// SPDX-License-Identifier: Apache-2.0
// Linear layers with the int8 matrix instructions of ARMv8.6: one multiplies two outputs by two
// rows, over eight values of k. For that a tile's codes are arranged so that an output's bytes of
// two steps of k lie side by side. A pair of rows keeps its sums as the instruction leaves them,
// two outputs by two rows in a vector, until the end. A row alone takes dot products.
#include "ops/cpu/linear_neon.h"

enum {
    VECTOR_BYTES = 32, // two vectors of two outputs
    PAIR_BYTES = 128,  // 16 outputs, 8 values of k
    PAIRS = 2,         // pairs of rows that are taken together
};

// In place; vectors 2j and 2j + 1 of a group become one vector for outputs 0 and 1, and so on.
static void arrange(const struct weight *w, unsigned char *tile) {
    for (unsigned char *p = tile; p < tile + w->scales_at; p += PAIR_BYTES) {
        unsigned char old[PAIR_BYTES];
        memcpy(old, p, sizeof old);
        for (int i = 0; i < 2 * TILE; i++)
            memcpy(p + 8 * (i % TILE) + 4 * (i / TILE), old + 4 * i, 4);
    }
}

// Eight activations, twice.
INLINE int8x16_t eight(const int8_t *q) {
    int64_t x;
    memcpy(&x, q, 8);
    return vreinterpretq_s8_s64(vdupq_n_s64(x));
}

// Of one row.
INLINE void sub_sums(struct form f, const struct operands *x, int s, struct block b,
                     struct group *g) {
    int32x4_t sum[2 * VECTORS]; // each output's in two lanes
    UNROLL for (int v = 0; v < 2 * b.wide; v++) sum[v] = vdupq_n_s32(0);
    UNROLL for (int at = s * 4 / f.subs; at < (s + 1) * 4 / f.subs; at++) {
        const unsigned char *p = half_at(f, x->codes, at / 2) + PAIR_BYTES * (at % 2);
        int8x16_t q = eight(x->q + 8 * at);
        UNROLL for (int v = 0; v < 2 * b.wide; v++) sum[v] =
            vdotq_s32(sum[v], code_vector(f, p + 16 * v, at / 2), q);
    }
    UNROLL for (int v = 0; v < b.wide; v++) g->sum[0][v] = vpaddq_s32(sum[2 * v], sum[2 * v + 1]);
}

#include "ops/cpu/linear_neon_tmpl.h"

// Sums of two rows: vector h of a tile's vector v has outputs 2h and 2h + 1, each of both rows.
struct corner {
    float32x4_t of[VECTORS][2];
};

// Activations of two rows, 8 values of k from `at` on.
INLINE int8x16_t two_rows(const int8_t *q, int64_t stride, int at) {
    return vcombine_s8(vld1_s8(q + at), vld1_s8(q + stride + at));
}

INLINE float32x4_t twice(const float *p) {
    float32x2_t x = vld1_f32(p);
    return vcombine_f32(x, x);
}

// The integer sums of sub-group s for vector v of the tile: g->sum[pair][output pair].
INLINE void pair_sums(struct form f, const struct operands *x, int s, int v, int pairs,
                      int8x16_t q[PAIRS][4], struct group *g) {
    UNROLL for (int r = 0; r < pairs; r++) g->sum[r][0] = g->sum[r][1] = vdupq_n_s32(0);
    UNROLL for (int at = s * 4 / f.subs; at < (s + 1) * 4 / f.subs; at++) {
        const unsigned char *p =
            half_at(f, x->codes, at / 2) + PAIR_BYTES * (at % 2) + VECTOR_BYTES * v;
        UNROLL for (int h = 0; h < 2; h++) {
            int8x16_t c = code_vector(f, p + 16 * h, at / 2);
            UNROLL for (int r = 0; r < pairs; r++) g->sum[r][h] =
                vmmlaq_s32(g->sum[r][h], c, q[r][at]);
        }
    }
}

// Scales them and adds them, for vector v; d and ds: of the first row.
INLINE void add_pairs(struct form f, const struct group *g, int v, int pairs, const float *d,
                      const float *ds, struct corner *acc) {
    UNROLL for (int h = 0; h < 2; h++) {
        float32x4_t scale =
            h ? vzip2q_f32(g->scale[v], g->scale[v]) : vzip1q_f32(g->scale[v], g->scale[v]);
        UNROLL for (int r = 0; r < pairs; r++) acc[r].of[v][h] = vfmaq_f32(
            acc[r].of[v][h], vcvtq_f32_s32(g->sum[r][h]), vmulq_f32(scale, twice(d + 2 * r)));
        if (!f.min)
            continue;
        float32x4_t min = h ? vzip2q_f32(g->min[v], g->min[v]) : vzip1q_f32(g->min[v], g->min[v]);
        UNROLL for (int r = 0; r < pairs; r++) acc[r].of[v][h] =
            vfmsq_f32(acc[r].of[v][h], min, twice(ds + 2 * r));
    }
}

// Both rows of a pair; out: the first one's outputs of the tile.
INLINE void put_pair(const struct linear_part *p, float *out, const struct corner *acc) {
    UNROLL for (int v = 0; v < VECTORS; v++) {
        put(p, out + 4 * v, vuzp1q_f32(acc->of[v][0], acc->of[v][1]));
        put(p, out + p->stride + 4 * v, vuzp2q_f32(acc->of[v][0], acc->of[v][1]));
    }
}

// Rows row .. row + 2 pairs - 1 of the part times its tile t; pairs is a constant.
INLINE void tile_pairs(struct form f, const struct linear_part *p, int64_t t, int row, int pairs) {
    const struct weight *w = p->w;
    const unsigned char *tile = w->data + (p->tile + t) * w->tile_bytes;
    int64_t stride = p->in->stride;
    struct operands x = {tile, p->in->q + (p->row + row) * stride, stride};
    const struct act_block *a = act_blocks(p->in, p->row);
    const struct block all = {0, 1, 0, VECTORS};
    struct outer o = {0};
    struct corner acc[PAIRS];
    UNROLL for (int i = 0; i < 2 * VECTORS * pairs; i++) acc[i / 8].of[i / 2 % 4][i % 2] =
        vdupq_n_f32(0);
    for (int64_t i = 0; i < w->k / GROUP; i++, a++, x.q += GROUP) {
        int8x16_t q[PAIRS][4];
        UNROLL for (int j = 0; j < 4 * pairs; j++) q[j / 4][j % 4] =
            two_rows(x.q + j / 4 * 2 * stride, stride, j % 4 * 8);
        UNROLL for (int s = 0; s < f.subs; s++) {
            const float *ds = f.subs == 1 ? a->ds : a->ds16[s];
            struct group g;
            load_scales(f, &o, tile + w->scales_at, i * f.subs + s, all, &g);
            UNROLL for (int v = 0; v < VECTORS; v++) {
                pair_sums(f, &x, s, v, pairs, q, &g);
                add_pairs(f, &g, v, pairs, a->d + row, ds + row, acc);
            }
        }
        x.codes += f.bits == 4 ? 256 : 512;
    }
    UNROLL for (int r = 0; r < pairs; r++)
        put_pair(p, p->out + (row + 2 * r) * p->stride + t * TILE, &acc[r]);
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

#define X(name, bits, shift, subs, min, scale)                                                     \
    static void linear_##name(const struct linear_part *p) {                                       \
        const struct form f = {bits, shift, subs, min, scale};                                     \
        part(f, p);                                                                                \
    }
LINEAR_FORMS(X)
#undef X

void linear_fill_i8mm(struct row_kernels *r) {
#define X(name, ...) r->linear[FORM_##name] = linear_##name;
    LINEAR_FORMS(X)
#undef X
    r->arrange = arrange;
}
