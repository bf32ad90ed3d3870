// SPDX-License-Identifier: Apache-2.0
// Row kernels over sixteen lanes, written once; avx2.c, avx512.c and neon.c include
// it after the lanes (vec_*.h). Each repeats the operations of scalar.c lane by lane, so the
// bits agree. No include guard names a level: this text is a template.

// e^x, and 0 where not x >= lo.
INLINE vf v_exp_from(vf x, float lo) {
    static const float term[8] = EXP_TERMS;
    vf c = v_min(x, v_set(EXP_HI));
    vf shifted = v_fma(c, v_set(EXP_LOG2E), v_set(EXP_ROUND));
    vf n = v_sub(shifted, v_set(EXP_ROUND));
    vf r = v_fnma(n, v_set(EXP_LN2_B), v_fnma(n, v_set(EXP_LN2_A), c));
    vf p = v_set(term[0]);
    for (int i = 1; i < 8; i++)
        p = v_fma(p, r, v_set(term[i]));
    return v_power(p, shifted, x, lo);
}

INLINE vf v_exp(vf x) {
    return v_exp_from(x, EXP_LO);
}

INLINE vf v_log(vf x) {
    static const float term[5] = LOG_TERMS;
    vf m, n = v_split(x, &m), p = v_set(term[0]);
    vf s = v_div(v_sub(m, v_set(1.0f)), v_add(m, v_set(1.0f))), s2 = v_mul(s, s);
    for (int i = 1; i < 5; i++)
        p = v_fma(p, s2, v_set(term[i]));
    return v_fma(n, v_set(EXP_LN2_A), v_fma(n, v_set(EXP_LN2_B), v_mul(p, s)));
}

INLINE float v_fold(vf v) {
    float out[4];
    const vf four[4] = {v, v, v, v};
    v_fold4(four, out);
    return out[0];
}

static float sum_sq(const float *x, int64_t n) {
    vf acc = v_set(0);
    for (int64_t i = 0; i < n; i += 16) {
        vf v = v_load_n(x + i, n - i < 16 ? (int)(n - i) : 16);
        acc = v_fma(v, v, acc);
    }
    return v_fold(acc);
}

static float max_of(const float *x, int64_t n) {
    float max = x[0];
    if (n < 16) {
        for (int64_t i = 1; i < n; i++)
            max = x[i] > max ? x[i] : max;
        return max;
    }
    vf top = v_load(x + n - 16); // may overlap the others
    for (int64_t i = 0; i + 16 <= n; i += 16)
        top = v_max(top, v_load(x + i));
    return v_top(top);
}

static void scale_mul(float *out, const float *x, const float *w, float s, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) {
        int left = n - i < 16 ? (int)(n - i) : 16;
        vf v = v_mul(v_load_n(x + i, left), v_set(s));
        v_store_n(out + i, w ? v_mul(v, v_load_n(w + i, left)) : v, left);
    }
}

static void dots(float *out, const float *q, const float *const *k, int n, int dim) {
    for (int j = 0; j < n; j += 4) {
        const float *at[4];
        vf acc[4];
        float four[4];
        for (int r = 0; r < 4; r++) {
            at[r] = k[j + r < n ? j + r : n - 1];
            acc[r] = v_set(0);
        }
        int i = 0;
        for (; i + 16 <= dim; i += 16)
            for (int r = 0; r < 4; r++)
                acc[r] = v_fma(v_load(q + i), v_load(at[r] + i), acc[r]);
        for (int r = 0; i < dim && r < 4; r++)
            acc[r] = v_fma(v_load_n(q + i, dim - i), v_load_n(at[r] + i, dim - i), acc[r]);
        v_fold4(acc, four);
        for (int r = 0; r < 4 && j + r < n; r++)
            out[j + r] = four[r];
    }
}

static float exp_sum(float *out, const float *x, float m, int64_t n) {
    vf sum = v_set(0);
    for (int64_t i = 0; i < n; i += 16) {
        int left = n - i < 16 ? (int)(n - i) : 16;
        vf e = v_keep(v_exp(v_sub(v_load_n(x + i, left), v_set(m))), left);
        sum = v_add(sum, e);
        if (out)
            v_store_n(out + i, e, left);
    }
    return v_fold(sum);
}

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
    if (DELTA_WIDE >= 8)
        for (; i + 128 <= dim; i += 128)
            weigh_chunk(&w, i, 8, 16);
    for (; i + 64 <= dim; i += 64)
        weigh_chunk(&w, i, 4, 16);
    for (; i + 16 <= dim; i += 16)
        weigh_chunk(&w, i, 1, 16);
    if (i < dim)
        weigh_chunk(&w, i, 1, dim - i);
}

static void gumbel(float *out, uint64_t key, int64_t first, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) {
        vf u = v_units(key, first + i);
        v_store_n(out + i, v_neg(v_log(v_neg(v_log(u)))), n - i < 16 ? (int)(n - i) : 16);
    }
}
