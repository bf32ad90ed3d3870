// SPDX-License-Identifier: Apache-2.0
// Kernels that combine many vectors: weighted sums of keys or deltas, and the recurrent state.
// Lanes run along the values, so no sum crosses lanes; the template continues row_tmpl.h and fills
// the table.

struct weigh {
    float *acc, scale;
    const float *p, *const *v;
    int n;
};

// `wide` chunks of 16 columns from `at`, a constant; `left` of each are there.
INLINE void weigh_chunk(const struct weigh *w, int64_t at, int wide, int left) {
    vf a[8];
    UNROLL for (int c = 0; c < wide; c++) a[c] =
        v_mul(v_load_n(w->acc + at + 16 * c, left), v_set(w->scale));
    for (int j = 0; j < w->n; j++) {
        vf p = v_set(w->p[j]);
        const float *x = w->v[j] + at;
        UNROLL for (int c = 0; c < wide; c++) a[c] = v_fma(p, v_load_n(x + 16 * c, left), a[c]);
    }
    UNROLL for (int c = 0; c < wide; c++) v_store_n(w->acc + at + 16 * c, a[c], left);
}

static void weigh(float *acc, float scale, const float *p, const float *const *v, int n, int dim) {
    const struct weigh w = {acc, scale, p, v, n};
    int i = 0;
    if (STATE_WIDE >= 8)
        for (; i + 128 <= dim; i += 128)
            weigh_chunk(&w, i, 8, 16);
    for (; i + 64 <= dim; i += 64)
        weigh_chunk(&w, i, 4, 16);
    for (; i + 16 <= dim; i += 16)
        weigh_chunk(&w, i, 1, 16);
    if (i < dim)
        weigh_chunk(&w, i, 1, dim - i);
}

INLINE void weigh2_chunk(const struct weigh2 *w, int64_t at, int wide, int left) {
    vf a[4], b[4];
    for (int c = 0; c < wide; c++) {
        a[c] = v_mul(v_load_n(w->a + at + 16 * c, left), v_set(w->scale));
        b[c] = v_mul(v_load_n(w->b + at + 16 * c, left), v_set(w->scale));
    }
    for (int j = 0; j < w->n; j++)
        for (int c = 0; c < wide; c++) {
            vf v = v_load_n(w->v[j] + at + 16 * c, left);
            a[c] = v_fma(v_set(w->pa[j]), v, a[c]);
            b[c] = v_fma(v_set(w->pb[j]), v, b[c]);
        }
    for (int c = 0; c < wide; c++) {
        v_store_n(w->a + at + 16 * c, a[c], left);
        v_store_n(w->b + at + 16 * c, b[c], left);
    }
}

static void weigh2(const struct weigh2 *w) {
    int i = 0;
    if (STATE_WIDE >= 8)
        for (; i + 64 <= w->dim; i += 64)
            weigh2_chunk(w, i, 4, 16);
    for (; i + 32 <= w->dim; i += 32)
        weigh2_chunk(w, i, 2, 16);
    for (; i + 16 <= w->dim; i += 16)
        weigh2_chunk(w, i, 1, 16);
    if (i < w->dim)
        weigh2_chunk(w, i, 1, w->dim - i);
}

// `rows` rows, `wide` chunks of 16 columns from `at`; both constant where it is called.
// x: [dk][2][rows], the keys and queries side by side, so that one pointer reaches them all.
INLINE void read_chunk(const struct state_read *a, const float *x, int r, int rows, int at,
                       int wide, int left) {
    vf sum[2][STATE_WIDE > 4 ? STATE_WIDE : 4];
    UNROLL for (int i = 0; i < rows * wide; i++) sum[0][i] = sum[1][i] = v_set(0);
    const float *s = a->s + at;
    for (int i = 0; i < a->dk; i++, s += a->dv, x += 2 * rows) {
        if (at == 0) // the first pass fetches whole rows for those that follow
            for (int c = 0; c < a->dv; c += 16)
                _mm_prefetch((const char *)(s + 8 * (int64_t)a->dv + c), _MM_HINT_T0);
        UNROLL for (int c = 0; c < wide; c++) {
            vf v = v_load_n(s + 16 * c, left);
            UNROLL for (int j = 0; j < rows; j++) {
                sum[0][j * wide + c] = v_fma(v, v_set(x[j]), sum[0][j * wide + c]);
                sum[1][j * wide + c] = v_fma(v, v_set(x[rows + j]), sum[1][j * wide + c]);
            }
        }
    }
    UNROLL for (int j = 0; j < rows; j++) UNROLL for (int c = 0; c < wide; c++) {
        v_store_n(a->sk[r + j] + at + 16 * c, sum[0][j * wide + c], left);
        v_store_n(a->sq[r + j] + at + 16 * c, sum[1][j * wide + c], left);
    }
}

// All columns of `rows` rows: pieces of `wide` chunks, then single ones.
INLINE void read_rows(const struct state_read *a, int r, int rows, int wide) {
    float x[OPS_HEAD_MAX * 2 * STATE_WIDE];
    for (int j = 0; j < rows; j++)
        for (int i = 0; i < a->dk; i++) {
            x[i * 2 * rows + j] = a->k[r + j][i];
            x[i * 2 * rows + rows + j] = a->q[r + j][i];
        }
    int at = 0;
    for (; at + 16 * wide <= a->dv; at += 16 * wide)
        read_chunk(a, x, r, rows, at, wide, 16);
    for (; at + 16 <= a->dv; at += 16)
        read_chunk(a, x, r, rows, at, 1, 16);
    if (at < a->dv)
        read_chunk(a, x, r, rows, at, 1, a->dv - at);
}

static void state_read(const struct state_read *a) {
    int r = 0;
    if (STATE_WIDE >= 8)
        for (; r + 8 <= a->n; r += 8)
            read_rows(a, r, 8, 1);
    if (STATE_WIDE >= 4)
        for (; r + 4 <= a->n; r += 4)
            read_rows(a, r, 4, 2);
    for (; r + 2 <= a->n; r += 2)
        read_rows(a, r, 2, STATE_WIDE >= 4 ? 4 : 1);
    if (r < a->n)
        read_rows(a, r, 1, STATE_WIDE >= 4 ? 4 : 2);
}

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
    float factor[STATE_LOG][4];
    for (int j = 0; j < a->n; j++)
        for (int r = 0; r < rows; r++)
            factor[j][r] = a->c[j] * a->k[j][i + r];
    int at = 0;
    for (; at + 16 <= a->dv; at += 16)
        fold_chunk(a, i, rows, factor, at, 16);
    if (at < a->dv)
        fold_chunk(a, i, rows, factor, at, a->dv - at);
}

static void state_fold(const struct state_fold *a) {
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
    r->quantise = quantise;
    r->sum_sq = sum_sq;
    r->max = max_of;
    r->scale_mul = scale_mul;
    r->silu_mul = silu_mul;
    r->gate = gate;
    r->dots = dots;
    r->exp_sum = exp_sum;
    r->weigh = weigh;
    r->weigh2 = weigh2;
    r->conv4 = conv4;
    r->gumbel = gumbel;
    r->state_read = state_read;
    r->state_fold = state_fold;
}
