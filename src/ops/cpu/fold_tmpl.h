// SPDX-License-Identifier: Apache-2.0
// Folding a block of log rows into a recurrent state, over sixteen lanes, and the table of all
// kernels of a level: the last of the templates that row_avx2.c and row_avx512.c include.

// Rows i .. i + rows - 1 of the state; factor[j] holds c[j] k[j][i ..].
INLINE void fold_chunk(const struct state_fold *a, int i, int rows, const float (*factor)[4],
                       int at, int left) {
    vf s[4];
    for (int r = 0; r < rows; r++)
        s[r] = v_mul(v_load_n(a->s + (int64_t)(i + r) * a->dv + at, left), v_set(a->decay));
    for (int j = 0; j < a->n; j++) {
        vf d = v_load_n(a->d[j] + at, left);
        for (int r = 0; r < rows; r++)
            s[r] = v_fma(v_set(factor[j][r]), d, s[r]);
    }
    for (int r = 0; r < rows; r++)
        v_store_n(a->out + (int64_t)(i + r) * a->dv + at, s[r], left);
}

INLINE void fold_rows(const struct state_fold *a, int i, int rows) {
    float factor[FOLD_LOG][4];
    for (int j = 0; j < a->n; j++)
        for (int r = 0; r < rows; r++)
            factor[j][r] = a->c[j] * a->k[j][i + r];
    int at = 0;
    for (; at + 16 <= a->dv; at += 16)
        fold_chunk(a, i, rows, factor, at, 16);
    if (at < a->dv)
        fold_chunk(a, i, rows, factor, at, a->dv - at);
}

static void delta_fold(const struct state_fold *a) {
    int i = 0;
    for (; i + 4 <= a->dk; i += 4)
        fold_rows(a, i, 4);
    for (; i < a->dk; i++)
        fold_rows(a, i, 1);
}

INLINE void fill_table(struct row_kernels *r, const char *name) {
    r->name = name;
    r->load_f16 = load_f16;
    r->load_bf16 = load_bf16;
    r->load_q8_0 = load_q8_0;
    r->store_f16 = store_f16;
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
    r->sigmoid = sigmoid;
    r->softplus = softplus;
    r->conv4 = conv4;
    r->gumbel = gumbel;
    r->delta = (struct delta_kernels){.dots = delta_dots,
                                      .fade = delta_fade,
                                      .read = delta_read,
                                      .row = delta_row,
                                      .fold = delta_fold};
}
