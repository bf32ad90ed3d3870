// SPDX-License-Identifier: Apache-2.0
// Values for four queries that see the same keys: a small matrix product whose sums stay in
// registers; each (query, column) takes the steps that weigh takes. Continues
// ops/cpu/simd/row/tmpl.h.

enum { SIDE = DOT_SUMS >= 16 ? 4 : 2 }; // queries and chunks of 16 columns of one pass

// `wide` chunks of 16 columns from `at`, a constant, of SIDE queries from i on.
INLINE void weigh_block(const struct weigh4 *w, int i, int at, int wide, int left) {
    vf a[SIDE * SIDE];
    UNROLL for (int r = 0; r < SIDE; r++) UNROLL for (int c = 0; c < wide; c++) a[r * SIDE + c] =
        v_mul(v_load_n(w->acc[i + r] + at + 16 * c, left), v_set(w->scale[i + r]));
    for (int j = 0; j < w->n; j++) {
        const float *v = w->v[j] + at;
        vf x[SIDE];
        UNROLL for (int c = 0; c < wide; c++) x[c] = v_load_n(v + 16 * c, left);
        UNROLL for (int r = 0; r < SIDE; r++) {
            vf p = v_set(w->p[i + r][j]);
            UNROLL for (int c = 0; c < wide; c++) a[r * SIDE + c] = v_fma(p, x[c], a[r * SIDE + c]);
        }
    }
    UNROLL for (int r = 0; r < SIDE; r++) UNROLL for (int c = 0; c < wide; c++)
        v_store_n(w->acc[i + r] + at + 16 * c, a[r * SIDE + c], left);
}

static void weigh4(const struct weigh4 *w) {
    int at = 0;
    for (; at + 16 * SIDE <= w->dim; at += 16 * SIDE)
        for (int i = 0; i < 4; i += SIDE)
            weigh_block(w, i, at, SIDE, 16);
    for (; at < w->dim; at += 16)
        for (int i = 0; i < 4; i += SIDE)
            weigh_block(w, i, at, 1, w->dim - at < 16 ? w->dim - at : 16);
}
