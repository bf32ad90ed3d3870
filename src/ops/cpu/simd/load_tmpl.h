// SPDX-License-Identifier: Apache-2.0
// Rows of weights, keys and values to f32, and keys and values back; a template like
// ops/cpu/simd/row/tmpl.h. The conversions are exact, so these agree with the decoders of
// src/formats by themselves.

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
