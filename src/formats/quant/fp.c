// SPDX-License-Identifier: Apache-2.0
// Codecs of the plain number types, and encoders of the two 4-bit float block types (MXFP4, NVFP4).
// Sources may start at any byte, so values are copied, never cast to a pointer.
#include "formats/quant/impl.h"

void quant_decode_f32(const void *src, float *dst, int64_t n) {
    memcpy(dst, src, (size_t)n * sizeof *dst);
}

void quant_encode_f32(const float *src, void *dst, int64_t n) {
    memcpy(dst, src, (size_t)n * sizeof *src);
}

void quant_decode_f16(const void *src, float *dst, int64_t n) {
    const unsigned char *b = src;
    for (int64_t i = 0; i < n; i++)
        dst[i] = load_half(b + 2 * i);
}

void quant_encode_f16(const float *src, void *dst, int64_t n) {
    unsigned char *b = dst;
    for (int64_t i = 0; i < n; i++)
        store_u16(b + 2 * i, f32_to_f16(src[i]));
}

void quant_decode_bf16(const void *src, float *dst, int64_t n) {
    const unsigned char *b = src;
    for (int64_t i = 0; i < n; i++) { // as bf16_to_f32, in a form that compilers make vectors of
        const uint32_t bits = (uint32_t)b[2 * i] << 16 | (uint32_t)b[2 * i + 1] << 24;
        memcpy(dst + i, &bits, sizeof bits);
    }
}

void quant_encode_bf16(const float *src, void *dst, int64_t n) {
    unsigned char *b = dst;
    for (int64_t i = 0; i < n; i++)
        store_u16(b + 2 * i, f32_to_bf16(src[i]));
}

// The helper types of small tensors: each value is converted to the nearest float.
#define DECODE_PLAIN(name, ctype)                                                                  \
    void quant_decode_##name(const void *src, float *dst, int64_t n) {                             \
        const unsigned char *b = src;                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            ctype v;                                                                               \
            memcpy(&v, b + (size_t)i * sizeof v, sizeof v);                                        \
            dst[i] = (float)v;                                                                     \
        }                                                                                          \
    }
DECODE_PLAIN(f64, double)
DECODE_PLAIN(i8, int8_t)
DECODE_PLAIN(i16, int16_t)
DECODE_PLAIN(i32, int32_t)
DECODE_PLAIN(i64, int64_t)

// The code nearest to x / d, the lower one on ties, so that 0 has no sign.
static unsigned nearest_e2m1(float x, float d) {
    unsigned best = 0;
    float min = fabsf(x);
    for (unsigned code = 1; code < 16; code++) {
        float error = fabsf((float)quant_e2m1_doubled[code] * d - x);
        if (error < min) {
            min = error;
            best = code;
        }
    }
    return best;
}

static float largest(const float *x, int n) {
    float peak = 0.0f;
    for (int i = 0; i < n; i++)
        peak = fabsf(x[i]) > peak ? fabsf(x[i]) : peak;
    return peak;
}

// n values, the second half of them in the high nibbles.
static void put_e2m1(const float *x, int n, float d, unsigned char *q) {
    for (int j = 0; j < n / 2; j++)
        q[j] = (unsigned char)(nearest_e2m1(x[j], d) | nearest_e2m1(x[j + n / 2], d) << 4);
}

// The exponent puts the largest value between 4 and 8 times the scale; 6 is the largest code.
static void mxfp4_encode(const float *x, unsigned char *b) {
    float peak = largest(x, 32);
    int exponent = 0;
    if (peak > 0.0f) {
        frexpf(peak, &exponent); // most = f * 2^exponent with f in [0.5, 1)
        exponent = clamp_i32(exponent - 1 - 2 + 127, 0, 254);
    }
    b[0] = (unsigned char)exponent;
    put_e2m1(x, 32, ldexpf(1.0f, exponent - 128), b + 1);
}

// Rounds half up on the bit after the mantissa; 448 is the largest value.
static unsigned to_ue4m3(float x) {
    if (x < 0x1p-6f) {
        int units = (int)(x * 512.0f + 0.5f);
        return (unsigned)(units > 7 ? 7 : units);
    }
    int exponent;
    float f = frexpf(x, &exponent); // f in [0.5, 1)
    int code = (exponent + 6) * 8 + (int)(f * 16.0f + 0.5f) - 8;
    return code >= 15 * 8 ? 0x7Eu : (unsigned)code;
}

static void nvfp4_encode(const float *x, unsigned char *b) {
    for (int s = 0; s < 4; s++) {
        b[s] = (unsigned char)to_ue4m3(largest(x + 16 * s, 16) / 6.0f);
        put_e2m1(x + 16 * s, 16, 0.5f * quant_ue4m3(b[s]), b + 4 + 8 * s);
    }
}

QUANT_ENCODER(MXFP4, mxfp4)
QUANT_ENCODER(NVFP4, nvfp4)
