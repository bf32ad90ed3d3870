// SPDX-License-Identifier: Apache-2.0
// The kernels of the gated delta rule over sixteen lanes (delta.h). Lanes run along the values, so
// no sum crosses lanes, except in the products of keys. Rows are taken in blocks whose sums stay
// in registers. Continues row_tmpl.h, as a template for one level.

// `xs` vectors times `ks` keys from j on; xs * ks is DOT_SUMS.
INLINE void dot_block(const struct delta_dots *a, int i, int j, int xs, int ks) {
    const float *x[DELTA_DOTS], *k[DOT_SUMS];
    vf acc[DOT_SUMS];
    float out[DOT_SUMS];
    UNROLL for (int r = 0; r < xs; r++) x[r] = a->x[i + r];
    UNROLL for (int r = 0; r < ks; r++) k[r] = a->k[j + r < a->n ? j + r : a->n - 1];
    UNROLL for (int r = 0; r < DOT_SUMS; r++) acc[r] = v_set(0);
    int c = 0;
    for (; c + 16 <= a->dim; c += 16)
        UNROLL for (int r = 0; r < ks; r++) {
            vf v = v_load(k[r] + c);
            UNROLL for (int t = 0; t < xs; t++) acc[t * ks + r] =
                v_fma(v_load(x[t] + c), v, acc[t * ks + r]);
        }
    if (c < a->dim)
        UNROLL for (int r = 0; r < ks; r++) {
            vf v = v_load_n(k[r] + c, a->dim - c);
            UNROLL for (int t = 0; t < xs; t++) acc[t * ks + r] =
                v_fma(v_load_n(x[t] + c, a->dim - c), v, acc[t * ks + r]);
        }
    v_fold_all(acc, out);
    for (int t = 0; t < xs; t++)
        for (int r = 0; r < ks && j + r < a->n; r++)
            a->out[i + t][j + r] = out[t * ks + r];
}

static void delta_dots(const struct delta_dots *a) {
    int i = 0;
    if (DOT_SUMS >= 16)
        for (; i + 4 <= a->n_x; i += 4)
            for (int j = 0; j < a->n; j += DOT_SUMS / 4)
                dot_block(a, i, j, 4, DOT_SUMS / 4);
    for (; i + 2 <= a->n_x; i += 2)
        for (int j = 0; j < a->n; j += DOT_SUMS / 2)
            dot_block(a, i, j, 2, DOT_SUMS / 2);
}

static void delta_fade(const struct delta_fade *a) {
    for (int j = 0; j < a->n; j += 16) {
        int left = a->n - j < 16 ? a->n - j : 16;
        vf f = v_exp_from(v_sub(v_load_n(a->x + j, left), v_set(a->m)), FADE_LO);
        v_store_n(a->ck + j, v_mul(f, v_load_n(a->kk + j, left)), left);
        v_store_n(a->cq + j, v_mul(f, v_load_n(a->kq + j, left)), left);
    }
}

// What a block of rows sums up: `rows` rows (k first, then q) by `wide` chunks of 16 columns.
struct read_sums {
    vf of[2 * DELTA_BLOCK][DELTA_WIDE];
};

// Rows of floats, and what each vector multiplies them with.
struct read_piece {
    const float *m;
    int64_t stride;
    int n;
    const float *x[2 * DELTA_BLOCK]; // [n]
};

INLINE void read_piece(struct read_sums *s, const struct read_piece *t, int rows, int wide,
                       int left) {
    const float *m = t->m, *x[2 * DELTA_BLOCK];
    UNROLL for (int j = 0; j < 2 * rows; j++) x[j] = t->x[j];
    for (int i = 0; i < t->n; i++, m += t->stride) {
        vf v[DELTA_WIDE];
        UNROLL for (int c = 0; c < wide; c++) v[c] = v_load_n(m + 16 * c, left);
        UNROLL for (int j = 0; j < 2 * rows; j++) {
            vf f = v_set(x[j][i]);
            UNROLL for (int c = 0; c < wide; c++) s->of[j][c] = v_fma(v[c], f, s->of[j][c]);
        }
    }
}

// `wide` chunks of columns from `at`; all but a, r and at are constants where it is called.
INLINE void read_chunk(const struct delta_read *a, int r, int rows, int at, int wide, int left) {
    const struct delta_reader *w = a->row + r;
    struct read_sums s;
    UNROLL for (int j = 0; j < 2 * rows; j++) UNROLL for (int c = 0; c < wide; c++) s.of[j][c] =
        v_set(0);
    if (a->s) {
        struct read_piece t = {a->s + at, a->dv, a->dk, {0}};
        for (int j = 0; j < rows; j++) {
            t.x[j] = w[j].k;
            t.x[rows + j] = w[j].q;
        }
        read_piece(&s, &t, rows, wide, left);
        UNROLL for (int j = 0; j < 2 * rows; j++) UNROLL for (int c = 0; c < wide; c++) s.of[j][c] =
            v_fma(s.of[j][c], v_set(w[j % rows].scale), v_set(0));
    }
    for (int piece = 0, done = 0; piece < 2; done += a->count[piece++]) {
        struct read_piece t = {a->d[piece] + at, a->stride, a->count[piece], {0}};
        for (int j = 0; j < rows; j++) {
            t.x[j] = w[j].ck + done;
            t.x[rows + j] = w[j].cq + done;
        }
        read_piece(&s, &t, rows, wide, left);
    }
    UNROLL for (int j = 0; j < rows; j++) UNROLL for (int c = 0; c < wide; c++) {
        v_store_n(w[j].a + at + 16 * c, s.of[j][c], left);
        v_store_n(w[j].b + at + 16 * c, s.of[rows + j][c], left);
    }
}

// All columns of `rows` rows: pieces of `wide` chunks, then single ones.
INLINE void read_block(const struct delta_read *a, int r, int rows, int wide) {
    int at = 0;
    for (; at + 16 * wide <= a->dv; at += 16 * wide)
        read_chunk(a, r, rows, at, wide, 16);
    for (; at + 16 <= a->dv; at += 16)
        read_chunk(a, r, rows, at, 1, 16);
    if (at < a->dv)
        read_chunk(a, r, rows, at, 1, a->dv - at);
}

static void delta_read(const struct delta_read *a) {
    int r = 0;
    if (DELTA_BLOCK >= 4)
        for (; r + 4 <= a->n; r += 4)
            read_block(a, r, 4, 2);
    for (; r + 2 <= a->n; r += 2)
        read_block(a, r, 2, DELTA_WIDE / 2);
    if (r < a->n)
        read_block(a, r, 1, DELTA_WIDE);
}

INLINE void row_chunk(const struct delta_row *w, int at, int wide, int left) {
    vf a[4], b[4];
    UNROLL for (int c = 0; c < wide; c++) {
        a[c] = v_load_n(w->a + at + 16 * c, left);
        b[c] = v_load_n(w->b + at + 16 * c, left);
    }
    for (int j = 0; j < w->n; j++) {
        const float *d = w->d[j] + at;
        vf pa = v_set(w->pa[j]), pb = v_set(w->pb[j]);
        UNROLL for (int c = 0; c < wide; c++) {
            vf v = v_load_n(d + 16 * c, left);
            a[c] = v_fma(pa, v, a[c]);
            b[c] = v_fma(pb, v, b[c]);
        }
    }
    UNROLL for (int c = 0; c < wide; c++) {
        vf v = v_load_n(w->v + at + 16 * c, left);
        a[c] = v_mul(v_set(w->beta), v_sub(v, a[c]));
        v_store_n(w->a + at + 16 * c, a[c], left);
        v_store_n(w->b + at + 16 * c, v_fma(v_set(w->self), a[c], b[c]), left);
    }
}

static void delta_row(const struct delta_row *w) {
    int i = 0;
    if (DELTA_WIDE >= 8)
        for (; i + 64 <= w->dim; i += 64)
            row_chunk(w, i, 4, 16);
    for (; i + 32 <= w->dim; i += 32)
        row_chunk(w, i, 2, 16);
    for (; i + 16 <= w->dim; i += 16)
        row_chunk(w, i, 1, 16);
    if (i < w->dim)
        row_chunk(w, i, 1, w->dim - i);
}
