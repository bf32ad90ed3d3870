// SPDX-License-Identifier: Apache-2.0
// Decoders of the 256-element super-block types Q2_K to Q8_K. A super-block has one or two half
// scales and small integer scales per group of 16 or 32. The encoders are in k_encode.c.
#include "formats/quant/impl.h"

static void q2_k_block(const unsigned char *b, float *y) {
    const unsigned char *scales = b, *qs = b + 16;
    float d = load_half(b + 80), dm = load_half(b + 82);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, shift = i % 128 / 32 * 2, sc = scales[i / 16];
        int q = qs[32 * half + i % 32] >> shift & 3;
        y[i] = d * (float)(sc & 15) * (float)q - dm * (float)(sc >> 4);
    }
}

// Scale k of 16, six bits, stored with an offset of 32 (12 bytes: nibbles, then the top bits).
static int q3_k_scale(const unsigned char *c, int k) {
    int low = k < 8 ? c[k] & 15 : c[k - 8] >> 4;
    return (low | (c[8 + k % 4] >> 2 * (k / 4) & 3) << 4) - 32;
}

static void q3_k_block(const unsigned char *b, float *y) {
    const unsigned char *high = b, *qs = b + 32;
    float d = load_half(b + 108);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, g = i % 128 / 32, l = i % 32;
        int q = (qs[32 * half + l] >> 2 * g & 3) - (high[l] >> (4 * half + g) & 1 ? 0 : 4);
        y[i] = d * (float)q3_k_scale(b + 96, i / 16) * (float)q;
    }
}

// The 6-bit scale and minimum of group k, shared by Q4_K and Q5_K (12 bytes c).
static void scale_and_min(const unsigned char *c, int k, int *scale, int *minimum) {
    if (k < 4) {
        *scale = c[k] & 63;
        *minimum = c[k + 4] & 63;
    } else {
        *scale = (c[k + 4] & 15) | c[k - 4] >> 6 << 4;
        *minimum = c[k + 4] >> 4 | c[k] >> 6 << 4;
    }
}

static void q4_k_block(const unsigned char *b, float *y) {
    float d = load_half(b), dm = load_half(b + 2);
    for (int k = 0; k < 8; k++) {
        const unsigned char *q = b + 16 + 32 * (k / 2);
        int scale, minimum, shift = 4 * (k % 2);
        scale_and_min(b + 4, k, &scale, &minimum);
        float a = d * (float)scale, m = dm * (float)minimum;
        for (int l = 0; l < 32; l++)
            y[32 * k + l] = a * (float)(q[l] >> shift & 15) - m;
    }
}

static void q5_k_block(const unsigned char *b, float *y) {
    const unsigned char *high = b + 16;
    float d = load_half(b), dm = load_half(b + 2);
    for (int k = 0; k < 8; k++) {
        const unsigned char *q = b + 48 + 32 * (k / 2);
        int scale, minimum, shift = 4 * (k % 2);
        scale_and_min(b + 4, k, &scale, &minimum);
        float a = d * (float)scale, m = dm * (float)minimum;
        for (int l = 0; l < 32; l++)
            y[32 * k + l] = a * (float)((q[l] >> shift & 15) | (high[l] >> k & 1) << 4) - m;
    }
}

static void q6_k_block(const unsigned char *b, float *y) {
    float d = load_half(b + 208);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, g = i % 128 / 32, l = i % 32;
        int low = b[64 * half + 32 * (g & 1) + l] >> (g < 2 ? 0 : 4) & 15;
        int high = b[128 + 32 * half + l] >> 2 * g & 3;
        y[i] = d * (float)(int8_t)b[192 + i / 16] * (float)((low | high << 4) - 32);
    }
}

static void q8_k_block(const unsigned char *b, float *y) {
    float d;
    memcpy(&d, b, sizeof d);
    for (int i = 0; i < 256; i++)
        y[i] = d * (float)(int8_t)b[4 + i];
}

void quant_decode_q2_k(const void *src, float *dst, int64_t n) {
    decode_blocks(src, dst, n, 256, 84, q2_k_block);
}

void quant_decode_q3_k(const void *src, float *dst, int64_t n) {
    decode_blocks(src, dst, n, 256, 110, q3_k_block);
}

void quant_decode_q4_k(const void *src, float *dst, int64_t n) {
    decode_blocks(src, dst, n, 256, 144, q4_k_block);
}

void quant_decode_q5_k(const void *src, float *dst, int64_t n) {
    decode_blocks(src, dst, n, 256, 176, q5_k_block);
}

void quant_decode_q6_k(const void *src, float *dst, int64_t n) {
    decode_blocks(src, dst, n, 256, 210, q6_k_block);
}

void quant_decode_q8_k(const void *src, float *dst, int64_t n) {
    decode_blocks(src, dst, n, 256, 292, q8_k_block);
}
