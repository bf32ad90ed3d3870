// SPDX-License-Identifier: Apache-2.0
// Row kernels of block-sparse attention over sixteen lanes, as a template that continues
// ops/cpu/simd/row/tmpl.h: keys by columns, and the masses of blocks.

// Sixteen rows from r on: four columns at a time.
INLINE void columns_of_16(const struct columns *a, int r) {
    const float *in = a->in + r * a->from;
    int c = 0;
    for (; c + 4 <= a->cols; c += 4) {
        float w[64];
        vf t[4];
        for (int i = 0; i < 16; i++)
            memcpy(w + 4 * i, in + i * a->from + c, 4 * sizeof *w);
        v_columns(w, t);
        for (int i = 0; i < 4; i++)
            v_store(a->out + (c + i) * a->to + r, t[i]);
    }
    for (; c < a->cols; c++)
        for (int i = 0; i < 16; i++)
            a->out[c * a->to + r + i] = in[i * a->from + c];
}

static void columns_of(const struct columns *a) {
    int r = 0;
    for (; r + 16 <= a->rows; r += 16)
        columns_of_16(a, r);
    for (; r < a->rows; r++)
        for (int c = 0; c < a->cols; c++)
            a->out[c * a->to + r] = a->in[r * a->from + c];
}

static void mass_rows(const struct mass_rows *a) {
    const vf scale = v_set(a->scale);
    for (int b = 0; b < a->n; b += 16) {
        int left = a->n - b < 16 ? a->n - b : 16;
        vf max = v_load_n(a->max + b, left), top = max;
        for (int r = 0; r < a->rows; r++)
            top = v_max(top, v_mul(v_load_n(a->score[r] + b, left), scale));
        vf sum = v_mul(v_load_n(a->sum + b, left), v_exp(v_sub(max, top)));
        for (int r = 0; r < a->rows; r++)
            sum = v_add(sum, v_exp(v_sub(v_mul(v_load_n(a->score[r] + b, left), scale), top)));
        v_store_n(a->sum + b, sum, left);
        v_store_n(a->max + b, top, left);
    }
}
