// SPDX-License-Identifier: Apache-2.0
// Folding a block of log rows into a recurrent state, over sixteen lanes, and the table of all
// kernels of a level: the last of the templates that ops/cpu/simd/row/avx2.c,
// ops/cpu/simd/row/avx512.c and ops/cpu/simd/row/neon.c include.

enum { FOLD_WIDE = DELTA_BLOCK >= 4 ? 4 : 1 }; // chunks of columns whose sums are in registers

// c[j] k[j]
struct fold_keys {
    float of[FOLD_LOG][OPS_HEAD_MAX];
};

// Rows i .. i + rows - 1 of the state by `wide` chunks of 16 columns from `at`. rows and wide are
// constants.
INLINE void fold_block(const struct state_fold *a, const struct fold_keys *ck, int i, int rows,
                       int at, int wide, int left) {
    vf s[4][4];
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int c = 0; c < wide; c++) {
        s[r][c] = v_set(0);
        if (a->s)
            s[r][c] = v_mul(v_load_n(a->s + (int64_t)(i + r) * a->dv + at + 16 * c, left),
                            v_set(a->decay));
    }
    for (int j = 0; j < a->n; j++) {
        vf d[4];
        UNROLL for (int c = 0; c < wide; c++) d[c] = v_load_n(a->d[j] + at + 16 * c, left);
        UNROLL for (int r = 0; r < rows; r++) {
            vf f = v_set(ck->of[j][i + r]);
            UNROLL for (int c = 0; c < wide; c++) s[r][c] = v_fma(f, d[c], s[r][c]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int c = 0; c < wide; c++)
        v_store_n(a->out + (int64_t)(i + r) * a->dv + at + 16 * c, s[r][c], left);
}

INLINE void fold_rows(const struct state_fold *a, const struct fold_keys *ck, int i, int rows) {
    int at = 0;
    for (; at + 16 * FOLD_WIDE <= a->dv; at += 16 * FOLD_WIDE)
        fold_block(a, ck, i, rows, at, FOLD_WIDE, 16);
    for (; at + 16 <= a->dv; at += 16)
        fold_block(a, ck, i, rows, at, 1, 16);
    if (at < a->dv)
        fold_block(a, ck, i, rows, at, 1, a->dv - at);
}

static void delta_fold(const struct state_fold *a) {
    struct fold_keys ck;
    for (int j = 0; j < a->n; j++)
        scale_mul(ck.of[j], a->k[j], NULL, a->c[j], a->dk);
    int i = 0;
    for (; i + 4 <= a->dk; i += 4)
        fold_rows(a, &ck, i, 4);
    for (; i < a->dk; i++)
        fold_rows(a, &ck, i, 1);
}

INLINE void fill_table(struct row_kernels *r, const char *name) {
    r->name = name;
    r->load_f16 = load_f16;
    r->load_bf16 = load_bf16;
    r->load_q8_0 = load_q8_0;
    r->kv_load[KV_F16] = kv_load_f16;
    r->kv_load[KV_BF16] = kv_load_bf16;
    r->kv_load[KV_Q8_0] = kv_load_q8_0;
    r->kv_load[KV_Q5_1] = kv_load_q5_1;
    r->kv_load[KV_Q5_0] = kv_load_q5_0;
    r->kv_load[KV_Q4_1] = kv_load_q4_1;
    r->kv_load[KV_Q4_0] = kv_load_q4_0;
    r->kv_load[KV_TQ3_0] = kv_load_tq3_0;
    r->kv_store[KV_F16] = kv_store_f16;
    r->quantise = quantise;
    r->sum_sq = sum_sq;
    r->max = max_of;
    r->scale_mul = scale_mul;
    r->silu_mul = silu_mul;
    r->gate = gate;
    r->dots = dots;
    r->exp_sum = exp_sum;
    r->weigh = weigh;
    r->weigh4 = weigh4;
    r->stored_dots = stored_dots;
    r->stored_weigh = stored_weigh;
    r->sigmoid = sigmoid;
    r->softplus = softplus;
    r->conv4 = conv4;
    r->gumbel = gumbel;
    r->columns = columns_of;
    r->mass_rows = mass_rows;
    r->delta = (struct delta_kernels){.dots = delta_dots,
                                      .fade = delta_fade,
                                      .read = delta_read,
                                      .row = delta_row,
                                      .fold = delta_fold};
}
