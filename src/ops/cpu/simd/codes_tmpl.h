// SPDX-License-Identifier: Apache-2.0
// Stored numbers and f32: rows of weights, keys and values to f32, keys and values back, and
// activations to int8 blocks. A template that continues ops/cpu/simd/row/tmpl.h. The conversions of
// rows are exact, so these agree with the decoders of src/formats by themselves.

static void load_f16(const void *src, float *dst, int64_t n) {
    const uint16_t *p = src;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        v_store(dst + i, v_from_f16(p + i));
    uint16_t rest[16] = {0};
    if (i < n) {
        memcpy(rest, p + i, (size_t)(n - i) * sizeof *p);
        v_store_n(dst + i, v_from_f16(rest), (int)(n - i));
    }
}

static void load_bf16(const void *src, float *dst, int64_t n) {
    const uint16_t *p = src;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        v_store(dst + i, v_from_bf16(p + i));
    uint16_t rest[16] = {0};
    if (i < n) {
        memcpy(rest, p + i, (size_t)(n - i) * sizeof *p);
        v_store_n(dst + i, v_from_bf16(rest), (int)(n - i));
    }
}

// Blocks of 32 of a weight: an fp16 scale, then the codes.
static void load_q8_0(const void *src, float *dst, int64_t n) {
    const unsigned char *p = src;
    for (int64_t i = 0; i < n; i += 32, p += 34) {
        uint16_t h;
        memcpy(&h, p, 2);
        vf d = v_set(v_one_f16(h));
        v_store(dst + i, v_mul(d, v_from_i8((const int8_t *)p + 2)));
        v_store(dst + i + 16, v_mul(d, v_from_i8((const int8_t *)p + 18)));
    }
}

// To the nearest, ties to even, as the encoder of src/formats.
static void store_f16(const float *src, void *dst, int64_t n) {
    uint16_t *p = dst, h[8];
    float rest[8] = {0};
    for (int64_t i = 0; i < n; i += 8) {
        int64_t left = n - i < 8 ? n - i : 8;
        if (left < 8)
            memcpy(rest, src + i, (size_t)left * sizeof *src);
        v_to_f16(left < 8 ? rest : src + i, h);
        memcpy(p + i, h, (size_t)left * sizeof *p);
    }
}

static void kv_load_f16(const unsigned char *codes, const unsigned char *scales, float *x,
                        int64_t n) {
    (void)scales;
    load_f16(codes, x, n);
}

static void kv_load_bf16(const unsigned char *codes, const unsigned char *scales, float *x,
                         int64_t n) {
    (void)scales;
    load_bf16(codes, x, n);
}

// 32 codes of an fp16 scale.
static void kv_load_q8_0(const unsigned char *codes, const unsigned char *scales, float *x,
                         int64_t n) {
    for (int64_t i = 0; i < n; i += 32, scales += 2) {
        uint16_t h;
        memcpy(&h, scales, 2);
        vf d = v_set(v_one_f16(h));
        v_store(x + i, v_mul(d, v_from_i8((const int8_t *)codes + i)));
        v_store(x + i + 16, v_mul(d, v_from_i8((const int8_t *)codes + i + 16)));
    }
}

static void kv_store_f16(const float *x, unsigned char *codes, unsigned char *scales, int64_t n) {
    (void)scales;
    store_f16(x, codes, n);
}

// What is known of four groups: their scales, and the sums of the codes' halves.
struct sums {
    v4f d;
    v4i half[2];
};

// act_block_put for one group of four rows.
INLINE void put_rows(struct act_block *b, int lane, const struct sums *s) {
    v4i all = s->half[0] + s->half[1], minus = -all;
    v4f ds = s->d * four_floats(all);
    memcpy(b->d + lane, &s->d, sizeof s->d);
    memcpy(b->ds + lane, &ds, sizeof ds);
    memcpy(b->nsum + lane, &minus, sizeof minus);
    for (int h = 0; h < 2; h++) {
        ds = s->d * four_floats(s->half[h]);
        minus = -s->half[h];
        memcpy(b->ds16[h] + lane, &ds, sizeof ds);
        memcpy(b->nsum16[h] + lane, &minus, sizeof minus);
    }
}

// The same for n groups of one row.
INLINE void put_groups(struct act_block *b, int lane, int n, const struct sums *s) {
    for (int g = 0; g < n; g++)
        act_block_put(b + g, lane, s->d[g], (const int[2]){s->half[0][g], s->half[1][g]});
}

// Codes of n groups, at most 4, that are `step` values apart: two vector divisions serve them all.
INLINE void quantise_four(const float *x, int8_t *q, int64_t step, int n, struct sums *s) {
    const v4f full = {127.0f, 127.0f, 127.0f, 127.0f};
    vf low[4], high[4], top[4];
    vcodes code[4];
    for (int g = 0; g < 4; g++) {
        const float *from = x + (g < n ? g : 0) * step;
        low[g] = v_load(from);
        high[g] = v_load(from + 16);
        top[g] = v_max(v_abs(low[g]), v_abs(high[g]));
    }
    v4f max = v_top4(top);
    v4f inverse = (v4f)((v4i)(full / max) & (v4i)(max > 1e-30f));
    s->d = max / full;
    for (int g = 0; g < 4; g++)
        code[g] = v_codes(low[g], high[g], v_set(inverse[g]));
    for (int g = 0; g < n; g++)
        v_store_codes(q + g * step, code[g]);
    code_sums(code, s->half);
}

// Four rows side by side, then what is left row by row, four groups at a time.
static void quantise(const struct quantise *a) {
    struct sums s;
    int r = 0;
    for (; r + 4 <= a->rows; r += 4)
        for (int64_t g = 0; g < a->groups; g++) {
            int64_t at = r * a->stride + g * GROUP;
            quantise_four(a->x + at, a->q + at, a->stride, 4, &s);
            put_rows(a->b + g, a->lane + r, &s);
        }
    for (; r < a->rows; r++)
        for (int64_t g = 0; g < a->groups; g += 4) {
            int64_t at = r * a->stride + g * GROUP;
            int n = a->groups - g < 4 ? (int)(a->groups - g) : 4;
            quantise_four(a->x + at, a->q + at, GROUP, n, &s);
            put_groups(a->b + g, a->lane + r, n, &s);
        }
}
