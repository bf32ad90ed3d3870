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
        vf d = v_set_f16(h);
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

// Bytes of a block of 32 values, as constants.
struct kv_sizes {
    int codes, scales;
};
INLINE struct kv_sizes kv_sizes_of(int codec) {
    switch (codec) {
#define SIZES(id, name, type, block, code_bytes, scale_bytes, rotates)                             \
    case id:                                                                                       \
        return (struct kv_sizes){32 / block * code_bytes, scale_bytes};
        KV_CODECS(SIZES)
#undef SIZES
    default:
        return (struct kv_sizes){0};
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

// Half 0 or 1 of a block of 32 values that is codes and scales; codec and half are constants where
// speed counts. d (c - 8), d (c - 16) and d centroid are what d is multiplied by, rounded once; so
// is d c + m, since the product of a half and five bits is exact.
INLINE vf coded_16(int codec, const unsigned char *codes, const unsigned char *scales, int block,
                   int half) {
    const struct kv_sizes z = kv_sizes_of(codec);
    const unsigned char *q = codes + block * z.codes, *s = scales + block * z.scales;
    uint16_t d, m = 0, bits = 0; // bits of this half
    memcpy(&d, s, sizeof d);
    if (codec == KV_Q4_1 || codec == KV_Q5_1)
        memcpy(&m, s + 2, sizeof m);
    if (codec == KV_Q5_0 || codec == KV_Q5_1 || codec == KV_TQ3_0)
        memcpy(&bits, s + z.scales - 4 + 2 * half, sizeof bits);
    const vf scale = v_set_f16(d);
    if (codec == KV_Q8_0)
        return v_mul(scale, v_from_i8((const int8_t *)q + 16 * half));
    if (codec == KV_Q4_0)
        return v_mul(scale, v_from_i4(q, half));
    if (codec == KV_Q5_0)
        return v_mul(scale, v_from_i5(q, half, bits));
    if (codec == KV_TQ3_0)
        return v_mul(scale, v_from_tq3(q, half, bits));
    const vf code = codec == KV_Q4_1 ? v_from_u4(q, half) : v_from_u5(q, half, bits);
    return v_fma(scale, code, v_set_f16(m));
}

static void kv_store_f16(const float *x, unsigned char *codes, unsigned char *scales, int64_t n) {
    (void)scales;
    store_f16(x, codes, n);
}

#define KV_LOAD(name, codec)                                                                       \
    static void name(const unsigned char *codes, const unsigned char *scales, float *x,            \
                     int64_t n) {                                                                  \
        for (int i = 0; i < (int)n; i += 32) {                                                     \
            v_store(x + i, coded_16(codec, codes, scales, i / 32, 0));                             \
            v_store(x + i + 16, coded_16(codec, codes, scales, i / 32, 1));                        \
        }                                                                                          \
    }
KV_LOAD(kv_load_q8_0, KV_Q8_0)
KV_LOAD(kv_load_q5_1, KV_Q5_1)
KV_LOAD(kv_load_q5_0, KV_Q5_0)
KV_LOAD(kv_load_q4_1, KV_Q4_1)
KV_LOAD(kv_load_q4_0, KV_Q4_0)
KV_LOAD(kv_load_tq3_0, KV_TQ3_0)

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
