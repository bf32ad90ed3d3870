// SPDX-License-Identifier: Apache-2.0
// Codecs of the plain number types and of the two 4-bit float block types (MXFP4, NVFP4).
// Sources may start at any byte, so values are copied, never cast to a pointer.
#include "formats/quant_impl.h"

// Twice the values of the 4-bit float E2M1, by code; bit 3 is the sign.
static const signed char e2m1_doubled[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                             0, -1, -2, -3, -4, -6, -8, -12};

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
    for (int64_t i = 0; i < n; i++)
        dst[i] = bf16_to_f32(load_u16(b + 2 * i));
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

// 2^(e-128): the E8M0 scale 2^(e-127), halved because the code table is doubled.
static void mxfp4_block(const unsigned char *b, float *y) {
    float d = ldexpf(1.0f, b[0] - 128);
    for (int j = 0; j < 16; j++) {
        y[j] = d * (float)e2m1_doubled[b[1 + j] & 15];
        y[j + 16] = d * (float)e2m1_doubled[b[1 + j] >> 4];
    }
}

// Unsigned float of 4 exponent bits (bias 7) and 3 mantissa bits; 0x7F is no number and reads 0.
static float ue4m3(unsigned code) {
    if (code == 0x7F)
        return 0.0f;
    unsigned exponent = code >> 3 & 15u, mantissa = code & 7u;
    if (exponent == 0)
        return (float)mantissa * 0x1p-9f;
    return ldexpf((float)(8u + mantissa), (int)exponent - 10);
}

// Four sub-blocks of 16, each with its scale byte and 8 bytes of codes.
static void nvfp4_block(const unsigned char *b, float *y) {
    for (int s = 0; s < 4; s++) {
        float d = 0.5f * ue4m3(b[s]);
        const unsigned char *q = b + 4 + 8 * s;
        for (int j = 0; j < 8; j++) {
            y[16 * s + j] = d * (float)e2m1_doubled[q[j] & 15];
            y[16 * s + j + 8] = d * (float)e2m1_doubled[q[j] >> 4];
        }
    }
}

void quant_decode_mxfp4(const void *src, float *dst, int64_t n) {
    decode_blocks(src, dst, n, 32, 17, mxfp4_block);
}

void quant_decode_nvfp4(const void *src, float *dst, int64_t n) {
    decode_blocks(src, dst, n, 64, 36, nvfp4_block);
}
