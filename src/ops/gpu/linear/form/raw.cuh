// SPDX-License-Identifier: Apache-2.0
// Parts of the file's own blocks, which may begin at any byte: as the scalar codecs of src/formats
// read them (their specification).
#ifndef COPPICE_OPS_GPU_LINEAR_FORM_RAW_CUH
#define COPPICE_OPS_GPU_LINEAR_FORM_RAW_CUH

#include <string.h>

#include "formats/quant/quant.h"
#include "ops/gpu/runtime/gpu.h"

// Also for the host, where tests look at tiles without a GPU.
#define RAW_FN static __host__ __device__ __forceinline__

RAW_FN uint32_t raw_u16(const unsigned char *p) {
    return p[0] | (uint32_t)p[1] << 8;
}

RAW_FN uint32_t raw_u32(const unsigned char *p) {
    return raw_u16(p) | raw_u16(p + 2) << 16;
}

RAW_FN float raw_half(const unsigned char *p) {
    __half_raw h;
    h.x = (unsigned short)raw_u16(p);
    return __half2float(__half(h));
}

// Nibble of element i of 32: low ones first.
RAW_FN int raw_nibble(const unsigned char *q, int i) {
    return i < 16 ? q[i] & 15 : q[i - 16] >> 4;
}

// Twice the value of an E2M1 code.
RAW_FN float raw_e2m1(int code) {
    int size = code & 7;
    int twice = size < 4 ? size : size == 7 ? 12 : size == 6 ? 8 : size + (size == 5 ? 1 : 0);
    return (float)(code & 8 ? -twice : twice);
}

// The 16 levels of IQ4, as bytes of four words.
RAW_FN float raw_level(int code) {
    uint32_t four = code < 4    ? 0xBFAD9881u
                    : code < 8  ? 0xF6EADDCFu
                    : code < 12 ? 0x26190D01u
                                : 0x71594535u;
    return (float)(signed char)(four >> code % 4 * 8);
}

// A float and its bits.
RAW_FN float raw_float(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

RAW_FN uint32_t raw_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

// Value i of a row of F32, F16 or BF16.
RAW_FN float raw_value(uint32_t type, const unsigned char *row, int64_t i) {
    if (type == TYPE_F32)
        return raw_float(raw_u32(row + 4 * i));
    if (type == TYPE_F16)
        return raw_half(row + 2 * i);
    return raw_float(raw_u16(row + 2 * i) << 16);
}

#endif
