// SPDX-License-Identifier: Apache-2.0
// One value of a row in the file's own blocks, on the device: the same f32 operations as the scalar
// codecs of src/formats (their specification), for the types that linear layers read undisturbed.
// Rows may begin at any byte.
#ifndef COPPICE_OPS_GPU_LINEAR_FORM_RAW_CUH
#define COPPICE_OPS_GPU_LINEAR_FORM_RAW_CUH

#include "formats/quant.h"
#include "ops/gpu/runtime/gpu.h"

static __device__ __forceinline__ uint32_t raw_u16(const unsigned char *p) {
    return p[0] | (uint32_t)p[1] << 8;
}

static __device__ __forceinline__ uint32_t raw_u32(const unsigned char *p) {
    return raw_u16(p) | raw_u16(p + 2) << 16;
}

static __device__ __forceinline__ float raw_half(const unsigned char *p) {
    __half_raw h;
    h.x = (unsigned short)raw_u16(p);
    return __half2float(__half(h));
}

// Nibble of element i of 32: low ones first.
static __device__ __forceinline__ int raw_nibble(const unsigned char *q, int i) {
    return i < 16 ? q[i] & 15 : q[i - 16] >> 4;
}

// Twice the value of an E2M1 code.
static __device__ __forceinline__ float raw_e2m1(int code) {
    int size = code & 7;
    int twice = size < 4 ? size : size == 7 ? 12 : size == 6 ? 8 : size + (size == 5 ? 1 : 0);
    return (float)(code & 8 ? -twice : twice);
}

// The 16 levels of IQ4, as bytes of four words.
static __device__ __forceinline__ float raw_level(int code) {
    uint32_t four = code < 4    ? 0xBFAD9881u
                    : code < 8  ? 0xF6EADDCFu
                    : code < 12 ? 0x26190D01u
                                : 0x71594535u;
    return (float)(signed char)(four >> code % 4 * 8);
}

static __device__ __forceinline__ float raw_ue4m3(int code) {
    int e = code >> 3 & 15, m = code & 7;
    if (code == 0x7F)
        return 0;
    return e ? ldexpf((float)(8 + m), e - 10) : ldexpf((float)m, -9);
}

static __device__ __forceinline__ float raw_q5(const unsigned char *codes, uint32_t high, int i) {
    return (float)(raw_nibble(codes, i) | (int)(high >> i & 1) << 4);
}

static __device__ __forceinline__ float raw_q2_k(const unsigned char *b, int i) {
    int sc = b[i / 16], q = b[16 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
    return raw_half(b + 80) * (float)(sc & 15) * (float)q - raw_half(b + 82) * (float)(sc >> 4);
}

static __device__ __forceinline__ float raw_q3_k(const unsigned char *b, int i) {
    const unsigned char *c = b + 96;
    int half = i / 128, g = i % 128 / 32, l = i % 32, s = i / 16;
    int q = (b[32 + 32 * half + l] >> 2 * g & 3) - (b[l] >> (4 * half + g) & 1 ? 0 : 4);
    int low = s < 8 ? c[s] & 15 : c[s - 8] >> 4;
    int scale = (low | (c[8 + s % 4] >> 2 * (s / 4) & 3) << 4) - 32;
    return raw_half(b + 108) * (float)scale * (float)q;
}

static __device__ __forceinline__ float raw_iq4_xs(const unsigned char *b, int i) {
    int s = i / 32, low = b[4 + s / 2] >> s % 2 * 4 & 15;
    int scale = (low | (int)(raw_u16(b + 2) >> 2 * s & 3) << 4) - 32;
    return raw_half(b) * (float)scale * raw_level(raw_nibble(b + 8 + 16 * s, i % 32));
}

static __device__ __forceinline__ float raw_nvfp4(const unsigned char *b, int i) {
    int s = i / 16, j = i % 16, byte = b[4 + 8 * s + j % 8];
    return 0.5f * raw_ue4m3(b[s]) * raw_e2m1(j < 8 ? byte & 15 : byte >> 4);
}

// Element i of a row; 0 for types that linear layers do not read.
static __device__ __noinline__ float raw_value(uint32_t type, const unsigned char *row, int64_t i) {
    const unsigned char *b32 = row + i / 32 *
                                         (type == TYPE_Q4_1     ? 20
                                          : type == TYPE_Q5_0   ? 22
                                          : type == TYPE_Q5_1   ? 24
                                          : type == TYPE_IQ4_NL ? 18
                                                                : 17);
    int j = (int)(i % 32), j256 = (int)(i % 256);
    switch (type) {
    case TYPE_F32:
        return __uint_as_float(raw_u32(row + 4 * i));
    case TYPE_F16:
        return raw_half(row + 2 * i);
    case TYPE_BF16:
        return __uint_as_float(raw_u16(row + 2 * i) << 16);
    case TYPE_Q4_1:
        return raw_half(b32) * (float)raw_nibble(b32 + 4, j) + raw_half(b32 + 2);
    case TYPE_Q5_0:
        return raw_half(b32) * (raw_q5(b32 + 6, raw_u32(b32 + 2), j) - 16);
    case TYPE_Q5_1:
        return raw_half(b32) * raw_q5(b32 + 8, raw_u32(b32 + 4), j) + raw_half(b32 + 2);
    case TYPE_IQ4_NL:
        return raw_half(b32) * raw_level(raw_nibble(b32 + 2, j));
    case TYPE_MXFP4:
        return ldexpf(1, b32[0] - 128) * raw_e2m1(raw_nibble(b32 + 1, j));
    case TYPE_NVFP4:
        return raw_nvfp4(row + i / 64 * 36, (int)(i % 64));
    case TYPE_Q2_K:
        return raw_q2_k(row + i / 256 * 84, j256);
    case TYPE_Q3_K:
        return raw_q3_k(row + i / 256 * 110, j256);
    case TYPE_IQ4_XS:
        return raw_iq4_xs(row + i / 256 * 136, j256);
    default:
        return 0;
    }
}

#endif
