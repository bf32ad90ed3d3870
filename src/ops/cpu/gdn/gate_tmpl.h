// SPDX-License-Identifier: Apache-2.0
// Row kernels around the sigmoid, over sixteen lanes: gates, SwiGLU, the causal convolution with
// its SiLU. Continues ops/cpu/simd/row/tmpl.h, as a template for one level.

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
