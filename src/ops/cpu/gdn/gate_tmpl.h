// SPDX-License-Identifier: Apache-2.0
// Row kernels around the sigmoid, over sixteen lanes: gates, SwiGLU, the causal convolution with
// its SiLU; then the first half of the gated delta rule (delta.h): products of keys, and the
// coefficients made of them. A template that continues ops/cpu/simd/row/tmpl.h.

INLINE vf v_sigmoid(vf x) {
    return v_div(v_set(1.0f), v_add(v_set(1.0f), v_exp(v_neg(x))));
}

INLINE vf v_silu(vf x) {
    return v_mul(x, v_sigmoid(x));
}

static void silu_mul(float *out, const float *g, const float *u, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) {
        int left = n - i < 16 ? (int)(n - i) : 16;
        v_store_n(out + i, v_mul(v_silu(v_load_n(g + i, left)), v_load_n(u + i, left)), left);
    }
}

static void gate(float *out, float s, const float *g, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) {
        int left = n - i < 16 ? (int)(n - i) : 16;
        vf v = v_mul(v_load_n(out + i, left), v_set(s));
        v_store_n(out + i, g ? v_mul(v, v_sigmoid(v_load_n(g + i, left))) : v, left);
    }
}

static void sigmoid(float *out, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) {
        int left = n - i < 16 ? (int)(n - i) : 16;
        v_store_n(out + i, v_sigmoid(v_load_n(x + i, left)), left);
    }
}

static void softplus(float *out, const float *x, int64_t n) {
    const vf one = v_set(1.0f);
    for (int64_t i = 0; i < n; i += 16) {
        int left = n - i < 16 ? (int)(n - i) : 16;
        vf e = v_exp(v_load_n(x + i, left)), u = v_add(one, e);
        vf lost = v_sub(e, v_sub(u, one));
        v_store_n(out + i, v_add(v_log(u), v_div(lost, u)), left);
    }
}

// `left` channels from c on of all rows.
INLINE void conv_chunk(const struct conv4 *a, int c, int left) {
    const float *w = a->w + 4 * (a->at + c);
    float padded[64] = {0}, *out = a->out + c;
    vf t[4];
    if (left < 16)
        memcpy(padded, w, (size_t)left * 4 * sizeof *w);
    v_columns(left < 16 ? padded : w, t);
    for (int64_t i = 0; i < a->n; i++, out += a->stride) {
        const float *const *in = a->in[i];
        vf sum = v_mul(t[0], v_load_n(in[0] + a->at + c, left));
        UNROLL for (int k = 1; k < 4; k++) sum =
            v_fma(t[k], v_load_n(in[k] + a->at + c, left), sum);
        v_store_n(out, v_silu(sum), left);
    }
}

static void conv4(const struct conv4 *a) {
    int c = 0;
    for (; c + 16 <= a->dim; c += 16)
        conv_chunk(a, c, 16);
    if (c < a->dim)
        conv_chunk(a, c, a->dim - c);
}

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

// Requests floats from c on, every step-th line, of keys first .. last - 1.
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
