// SPDX-License-Identifier: Apache-2.0
// The second half of the kernels of the gated delta rule (delta.h): what a state, its log and
// ancestors in flight give. Lanes run along the values, so no sum crosses lanes. Rows are taken in
// blocks by panels of columns, whose sums stay in registers. A template, like
// ops/cpu/simd/row/tmpl.h.

// A block of rows by a panel of columns: `rows` rows by `wide` chunks of 16 columns, whose sums
// stay in registers. All are constants where it is called.
struct block {
    int rows, wide;
    int left;  // columns of each chunk that are there
    bool keep; // copy what is read to the panel
};

struct block_sums {
    vf of[2 * DELTA_BLOCK][DELTA_WIDE]; // key and query of each row
};

// Rows of a state or of a log.
struct piece {
    const float *m;
    int64_t stride;
    int n;
    float *panel; // where the block keeps them
};

INLINE void read_piece(struct block_sums *s, const struct piece *t, const float *x,
                       struct block b) {
    const float *m = t->m;
    float *panel = t->panel;
    UNROLL_BY_4 for (int i = 0; i < t->n; i++, m += t->stride, x++) {
        vf v[DELTA_WIDE];
        UNROLL for (int c = 0; c < b.wide; c++) v[c] = v_load_n(m + 16 * c, b.left);
        if (b.keep)
            UNROLL for (int c = 0; c < b.wide; c++, panel += 16) v_store(panel, v[c]);
        UNROLL for (int j = 0; j < 2 * b.rows; j++) {
            vf f = v_set(x[j * DELTA_X]);
            UNROLL for (int c = 0; c < b.wide; c++) s->of[j][c] = v_fma(v[c], f, s->of[j][c]);
        }
    }
}

// Rows r .. of a by the columns from `at`; p: the state and both pieces of the log.
INLINE void read_block(const struct delta_read *a, const struct piece *p, int r, int at,
                       struct block b) {
    const struct delta_reader *w = a->row + r;
    const float *x = a->x + (int64_t)2 * r * DELTA_X;
    struct block_sums s;
    UNROLL for (int j = 0; j < 2 * b.rows; j++) UNROLL for (int c = 0; c < b.wide; c++) s.of[j][c] =
        v_set(0);
    if (a->s) {
        read_piece(&s, p, x, b);
        UNROLL for (int j = 0; j < 2 * b.rows; j++) UNROLL for (int c = 0; c < b.wide; c++)
            s.of[j][c] = v_fma(s.of[j][c], v_set(w[j / 2].scale), v_set(0));
    }
    read_piece(&s, p + 1, x + a->dk, b);
    read_piece(&s, p + 2, x + a->dk + p[1].n, b);
    UNROLL for (int j = 0; j < b.rows; j++) UNROLL for (int c = 0; c < b.wide; c++) {
        v_store_n(w[j].a + at + 16 * c, s.of[2 * j][c], b.left);
        v_store_n(w[j].b + at + 16 * c, s.of[2 * j + 1][c], b.left);
    }
}

// The columns from `at` of S and both pieces of the log.
INLINE void open_pieces(const struct delta_read *a, int at, struct piece p[3]) {
    p[0] = (struct piece){.m = a->s ? a->s + at : NULL, .stride = a->dv, .n = a->dk};
    for (int i = 0; i < 2; i++)
        p[1 + i] = (struct piece){.m = a->d[i] + at, .stride = a->stride, .n = a->count[i]};
}

// All columns of few rows: panels of `wide` chunks, then single ones.
INLINE void read_few(const struct delta_read *a, int rows, int wide) {
    struct piece p[3];
    int at = 0;
    for (; at + 16 * wide <= a->dv; at += 16 * wide) {
        open_pieces(a, at, p);
        read_block(a, p, 0, at, (struct block){rows, wide, 16, false});
    }
    for (; at < a->dv; at += 16) {
        open_pieces(a, at, p);
        if (at + 16 <= a->dv)
            read_block(a, p, 0, at, (struct block){rows, 1, 16, false});
        else
            read_block(a, p, 0, at, (struct block){rows, 1, a->dv - at, false});
    }
}

// Many rows by the columns from `at`: the first block copies the panel for the others.
INLINE void read_panel(const struct delta_read *a, int at, int wide, int left) {
    struct piece p[3];
    open_pieces(a, at, p);
    p[0].panel = a->panel;
    p[1].panel = a->panel + 16 * wide * a->dk;
    p[2].panel = p[1].panel + 16 * wide * a->count[0];
    read_block(a, p, 0, at, (struct block){DELTA_BLOCK, wide, left, true});
    for (int i = 0; i < 3; i++) {
        p[i].m = p[i].panel;
        p[i].stride = 16 * wide;
    }
    int r = DELTA_BLOCK;
    for (; r + DELTA_BLOCK <= a->n; r += DELTA_BLOCK)
        read_block(a, p, r, at, (struct block){DELTA_BLOCK, wide, left, false});
    if (DELTA_BLOCK > 2 && r + 2 <= a->n) {
        read_block(a, p, r, at, (struct block){2, wide, left, false});
        r += 2;
    }
    if (r < a->n)
        read_block(a, p, r, at, (struct block){1, wide, left, false});
}

static void read_many(const struct delta_read *a) {
    int at = 0;
    for (; at + 16 * DELTA_PANEL <= a->dv; at += 16 * DELTA_PANEL)
        read_panel(a, at, DELTA_PANEL, 16);
    for (; at < a->dv; at += 16)
        read_panel(a, at, 1, a->dv - at < 16 ? a->dv - at : 16);
}

static void delta_read(const struct delta_read *a) {
    if (a->n > DELTA_BLOCK)
        read_many(a);
    else if (DELTA_BLOCK >= 4 && a->n == 4)
        read_few(a, DELTA_BLOCK, DELTA_PANEL);
    else if (DELTA_BLOCK >= 4 && a->n == 3)
        read_few(a, DELTA_BLOCK - 1, DELTA_WIDE / 2);
    else if (a->n == 2)
        read_few(a, 2, DELTA_WIDE / 2);
    else if (a->n == 1)
        read_few(a, 1, DELTA_WIDE);
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
