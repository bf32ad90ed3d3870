// SPDX-License-Identifier: Apache-2.0
// The first half of the kernels of the gated delta rule (delta.h) over sixteen lanes: products of
// keys, and the coefficients made of them. Continues ops/cpu/simd/row/tmpl.h, as a template for one
// level.

// Vectors i .. i + xs - 1 times keys j .. j + ks - 1; xs * ks is DOT_SUMS.
INLINE void dot_block(const struct delta_dots *a, int i, int j, int xs, int ks) {
    const float *x[4], *k[DOT_SUMS];
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
    bool whole = j + ks <= a->n;
    for (int t = 0; whole && t < xs; t++)
        memcpy(a->out[i + t] + j, out + t * ks, (size_t)ks * sizeof *out);
    for (int t = 0; !whole && t < xs; t++)
        for (int r = 0; j + r < a->n; r++)
            a->out[i + t][j + r] = out[t * ks + r];
}

// Asks for floats from c on, every step-th line, of keys first .. last - 1.
INLINE void fetch_keys(const struct delta_dots *a, int first, int last, int c, int step) {
    for (int j = first; j < last && j < a->n; j++)
        for (int i = c; i < a->dim; i += step)
            __builtin_prefetch(a->k[j] + i);
}

// Four keys at a time for all vectors, while part after part of the next four is fetched.
static void dots_of_many(const struct delta_dots *a) {
    int step = 16 * ((a->n_x + 3) / 4);
    for (int j = 0; j < a->n; j += DOT_SUMS / 4) {
        int i = 0;
        for (; i + 4 <= a->n_x; i += 4) {
            fetch_keys(a, j + DOT_SUMS / 4, j + DOT_SUMS / 2, 4 * i, step);
            dot_block(a, i, j, 4, DOT_SUMS / 4);
        }
        if (i < a->n_x)
            for (int r = 0; r < DOT_SUMS / 4 && j + r < a->n; r += DOT_SUMS / 2)
                dot_block(a, i, j + r, 2, DOT_SUMS / 2);
    }
}

static void delta_dots(const struct delta_dots *a) {
    if (DOT_SUMS >= 16 && a->n_x >= 4) {
        dots_of_many(a);
        return;
    }
    for (int i = 0; i + 2 <= a->n_x; i += 2)
        for (int j = 0; j < a->n; j += DOT_SUMS / 2)
            dot_block(a, i, j, 2, DOT_SUMS / 2);
}

static float delta_fade(const struct delta_fade *a) {
    float scale[16];
    for (int j = 0; j < a->n; j += 16) {
        int left = a->n - j < 16 ? a->n - j : 16;
        vf f = v_exp_from(v_sub(v_load_n(a->x + j, left), v_set(a->m)), FADE_LO);
        v_store_n(a->ck + j, v_mul(f, v_load_n(a->kk + j, left)), left);
        v_store_n(a->cq + j, v_mul(f, v_load_n(a->kq + j, left)), left);
    }
    v_store(scale, v_exp_from(v_set(-a->m), FADE_LO));
    return scale[0];
}
