// SPDX-License-Identifier: Apache-2.0
// Linear layers with the dot-product instructions of ARMv8.2: one adds four signed products to each
// of four outputs, and takes four activations of any row out of a vector of sixteen.
#include "ops/cpu/linear/neon.h"

enum { VECTOR_BYTES = 16 };

// Four outputs, 16 values of k.
INLINE int32x4_t dot(int32x4_t sum, const int8x16_t c[4], int8x16_t q) {
    sum = vdotq_laneq_s32(sum, c[0], q, 0);
    sum = vdotq_laneq_s32(sum, c[1], q, 1);
    sum = vdotq_laneq_s32(sum, c[2], q, 2);
    return vdotq_laneq_s32(sum, c[3], q, 3);
}

INLINE void sub_sums(struct form f, const struct operands *x, int s, struct block b,
                     struct sums *sums) {
    UNROLL for (int r = 0; r < b.rows; r++) UNROLL for (int v = 0; v < b.wide; v++) sums->of[r][v] =
        vdupq_n_s32(0);
    UNROLL for (int half = s * 2 / f.subs; half < (s + 1) * 2 / f.subs; half++) {
        int8x16_t q[4];
        UNROLL for (int r = 0; r < b.rows; r++) q[r] = vld1q_s8(x->q + r * x->stride + 16 * half);
        UNROLL for (int v = 0; v < b.wide; v++) {
            int8x16_t c[4];
            UNROLL for (int j = 0; j < 4; j++) c[j] = step_codes(f, x->codes, 4 * half + j, v);
            UNROLL for (int r = 0; r < b.rows; r++) sums->of[r][v] = dot(sums->of[r][v], c, q[r]);
        }
    }
}

#include "ops/cpu/linear/neon_tmpl.h"

INLINE void part(struct form f, const struct linear_part *p) {
    for (int64_t t = 0; t < p->tiles; t++) {
        int i = 0;
        for (; i + 4 <= p->n; i += 4)
            tile_rows(f, p, t, i, 4, 2);
        if (p->n & 2)
            tile_rows(f, p, t, i, 2, 4);
        i += p->n & 2;
        if (p->n & 1)
            tile_rows(f, p, t, i, 1, 4);
    }
}

CODE_FORMS(LINEAR_KERNEL)

void linear_fill_dotprod(struct row_kernels *r) {
    CODE_FORMS(LINEAR_ENTRY)
}
