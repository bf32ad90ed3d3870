// SPDX-License-Identifier: Apache-2.0
// Some rows times some vectors of a tile. The files of the levels neon, dotprod and i8mm include it
// after two things of their own:
//
//     VECTOR_BYTES                bytes from one vector's codes to the next one's
//     sub_sums(f, x, s, b, sums)  sums->of[row][vector] = codes times activations of sub-group s
//
// The f32 steps are those of scalar.c. This text is a template.

// acc with a sum scaled and added, and the minimum taken off; d and ds: of the row.
INLINE float32x4_t add_sum(struct form f, float32x4_t acc, int32x4_t sum, struct scale scale,
                           float d, float ds) {
    acc = vfmaq_f32(acc, vcvtq_f32_s32(sum), vmulq_n_f32(scale.by, d));
    return f.min ? vfmsq_f32(acc, scale.min, vdupq_n_f32(ds)) : acc;
}

// The block of tile t of the part.
INLINE void tile_block(struct form f, const struct linear_part *p, int64_t t, struct block b) {
    const struct weight *w = p->w;
    const unsigned char *tile = w->data + (p->tile + t) * w->tile_bytes;
    int64_t stride = p->in->stride;
    struct operands x = {tile + VECTOR_BYTES * b.vector, p->in->q + (p->row + b.row) * stride,
                         stride};
    const struct act_block *a = act_blocks(p->in, p->row);
    float32x4_t acc[4][VECTORS];
    UNROLL for (int r = 0; r < b.rows; r++) UNROLL for (int v = 0; v < b.wide; v++) acc[r][v] =
        vdupq_n_f32(0);
    for (int64_t i = 0; i < w->k / GROUP; i++, a++, x.q += GROUP) {
        UNROLL for (int s = 0; s < f.subs; s++) {
            const float *ds = f.subs == 1 ? a->ds : a->ds16[s];
            struct sums sums;
            sub_sums(f, &x, s, b, &sums);
            UNROLL for (int v = 0; v < b.wide; v++) {
                struct scale scale = scale_at(f, tile + w->scales_at, i * f.subs + s, b.vector + v);
                UNROLL for (int r = 0; r < b.rows; r++) acc[r][v] =
                    add_sum(f, acc[r][v], sums.of[r][v], scale, a->d[b.row + r], ds[b.row + r]);
            }
        }
        x.codes += group_bytes(f);
    }
    float *out = p->out + b.row * p->stride + t * TILE + 4 * b.vector;
    UNROLL for (int r = 0; r < b.rows; r++) UNROLL for (int v = 0; v < b.wide; v++)
        put(p, out + r * p->stride + 4 * v, acc[r][v]);
}

// Tile t for `rows` rows from `row` on, `wide` vectors after another; both are constants.
INLINE void tile_rows(struct form f, const struct linear_part *p, int64_t t, int row, int rows,
                      int wide) {
    for (int v = 0; v < VECTORS; v += wide)
        tile_block(f, p, t, (struct block){row, rows, v, wide});
}
