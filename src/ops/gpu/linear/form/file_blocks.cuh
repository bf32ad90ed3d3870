// SPDX-License-Identifier: Apache-2.0
// The file's own blocks, whose parts may begin at any byte, as the scalar codecs of src/formats
// read them (their specification); and those of types that share a form (dequant.cuh) as that form
// has them: codes, levels, whole scales and factors. A block of a codebook type needs its grid
// (formats/quant/grid.h), which comes to the device in front of the rows.
#ifndef COPPICE_OPS_GPU_LINEAR_FORM_FILE_BLOCKS_CUH
#define COPPICE_OPS_GPU_LINEAR_FORM_FILE_BLOCKS_CUH

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

// Values and bytes of a block of these types.
RAW_FN int low_block(uint32_t type) {
    return type == TYPE_NVFP4 ? 64
           : type == TYPE_IQ4_NL || type == TYPE_Q4_1 || type == TYPE_Q5_0 || type == TYPE_Q5_1
               ? 32
               : 256;
}

RAW_FN int low_bytes(uint32_t type) {
    switch (type) {
    case TYPE_Q4_1:
        return 20;
    case TYPE_Q5_0:
        return 22;
    case TYPE_Q5_1:
        return 24;
    case TYPE_Q2_K:
        return 84;
    case TYPE_Q3_K:
    case TYPE_IQ3_S:
        return 110;
    case TYPE_IQ4_NL:
        return 18;
    case TYPE_IQ4_XS:
        return 136;
    case TYPE_NVFP4:
        return 36;
    case TYPE_IQ1_S:
        return 50;
    case TYPE_IQ1_M:
        return 56;
    case TYPE_IQ2_XS:
        return 74;
    case TYPE_IQ2_S:
        return 82;
    case TYPE_IQ3_XXS:
        return 98;
    case TYPE_TQ1_0:
        return 54;
    default:
        return 66; // IQ2_XXS, TQ2_0
    }
}

// Sign bits of eight values, an even number of which are negative, from seven.
RAW_FN uint32_t low_parity(uint32_t seven) {
    uint32_t p = seven ^ seven >> 4;
    p ^= p >> 2;
    return seven | ((p ^ p >> 1) & 1) << 7;
}

// ---- two bits: Q2_K, TQ1_0, TQ2_0 ----

RAW_FN int low_two_code(uint32_t type, const unsigned char *b, int i) {
    if (type != TYPE_TQ1_0)
        return b[(type == TYPE_Q2_K ? 16 : 0) + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
    const int first = i < 160 ? 0 : i < 240 ? 160 : 240, from = i < 160 ? 0 : i < 240 ? 32 : 48;
    const int side = i < 160 ? 32 : i < 240 ? 16 : 4;
    uint32_t rest = b[from + (i - first) % side];
    for (int n = (i - first) / side; n > 0; n--)
        rest = rest * 3 & 255;
    return (int)(rest * 3 >> 8);
}

// Scale (low nibble) and minimum of a group of 16. The ternary types have eights of an eighth.
RAW_FN uint32_t low_two_scales(uint32_t type, const unsigned char *b, int group) {
    return type == TYPE_Q2_K ? b[group] : 0x88;
}

// d and dmin.
RAW_FN float2 low_two_factors(uint32_t type, const unsigned char *b) {
    if (type == TYPE_Q2_K)
        return make_float2(raw_half(b + 80), raw_half(b + 82));
    const float d = raw_half(b + (type == TYPE_TQ1_0 ? 52 : 64)) / 8;
    return make_float2(d, d);
}

// ---- eight levels: Q3_K, IQ2_*, IQ1_* ----

// The fields that levels and scales of codebooks are found by: the entry of value i, and its sign.
struct low_entry {
    uint32_t digits, sign;
};

RAW_FN low_entry low_entry_iq2(uint32_t type, const unsigned char *b, int i, const uint16_t *grid) {
    const int e = i / 8;
    if (type == TYPE_IQ2_XXS) {
        const unsigned char *q = b + 2 + 8 * (i / 32);
        const uint32_t w = raw_u32(q + 4);
        return {grid[q[e % 4]], low_parity(w >> 7 * (e % 4) & 127) >> i % 8 & 1};
    }
    if (type == TYPE_IQ2_XS) {
        const uint32_t w = raw_u16(b + 2 + 2 * e);
        return {grid[w & 511], low_parity(w >> 9) >> i % 8 & 1};
    }
    const uint32_t high = b[66 + e / 4] >> 2 * (e % 4) & 3;
    return {grid[b[2 + e] + 256 * high], (uint32_t)b[34 + e] >> i % 8 & 1};
}

RAW_FN low_entry low_entry_iq1(uint32_t type, const unsigned char *b, int i, const uint16_t *grid) {
    const int e = i / 8;
    if (type == TYPE_IQ1_S) {
        const uint32_t h = raw_u16(b + 34 + 2 * (i / 32));
        return {grid[b[2 + e] + 256 * (h >> 3 * (e % 4) & 7)], h >> 15};
    }
    const uint32_t n = b[32 + e / 2] >> 4 * (e % 2) & 15;
    return {grid[b[e] + 256 * (n & 7)], n >> 3};
}

RAW_FN bool low_is_iq1(uint32_t type) {
    return type == TYPE_IQ1_S || type == TYPE_IQ1_M;
}

RAW_FN uint32_t low_eight_code(uint32_t type, const unsigned char *b, int i, const uint16_t *grid) {
    if (type == TYPE_Q3_K) {
        const int l = i % 32, half = i / 128, g = i % 128 / 32;
        return (b[32 + 32 * half + l] >> 2 * g & 3) | (b[l] >> (4 * half + g) & 1) << 2;
    }
    const low_entry e =
        low_is_iq1(type) ? low_entry_iq1(type, b, i, grid) : low_entry_iq2(type, b, i, grid);
    return (e.digits >> i % 8 * 2 & 3) + 3 * e.sign;
}

// Level of a code, times what brings the largest near 127.
RAW_FN int low_eight_level(uint32_t type, int code) {
    if (type == TYPE_Q3_K)
        return (code - 4) * 16;
    const int digit = code % 3, sign = code / 3;
    if (code > 5)
        return 0;
    if (low_is_iq1(type))
        return (digit - 1) * 64 + (sign ? -8 : 8);
    const int size = digit == 0 ? 16 : digit == 1 ? 50 : 86;
    return sign ? -size : size;
}

// The whole scale of a group of 16.
RAW_FN int low_eight_scale(uint32_t type, const unsigned char *b, int group) {
    if (type == TYPE_Q3_K) {
        const unsigned char *c = b + 96;
        const int low = group < 8 ? c[group] & 15 : c[group - 8] >> 4;
        return (low | (c[8 + group % 4] >> 2 * (group / 4) & 3) << 4) - 32;
    }
    uint32_t s;
    if (type == TYPE_IQ2_XXS)
        s = raw_u32(b + 6 + 8 * (group / 2)) >> 28;
    else if (type == TYPE_IQ1_S)
        s = raw_u16(b + 34 + 2 * (group / 2)) >> 12 & 7;
    else if (type == TYPE_IQ1_M)
        s = raw_u16(b + 48 + 2 * (group / 4)) >> 3 * (group % 4) & 7;
    else
        s = b[(type == TYPE_IQ2_XS ? 66 : 74) + group / 2] >> 4 * (group % 2) & 15;
    return (int)(2 * s + 1);
}

// What the product of level and scale is multiplied with.
RAW_FN float low_eight_factor(uint32_t type, const unsigned char *b) {
    if (type == TYPE_Q3_K)
        return raw_half(b + 108) / 16;
    if (type != TYPE_IQ1_M)
        return raw_half(b) / (type == TYPE_IQ1_S ? 64.0f : 16.0f);
    unsigned char d[2];
    d[0] = (unsigned char)(b[49] >> 4 | (b[51] & 0xF0));
    d[1] = (unsigned char)(b[53] >> 4 | (b[55] & 0xF0));
    return raw_half(d) / 64;
}

// ---- sixteen levels: IQ4_NL, IQ4_XS, IQ3_XXS, IQ3_S; b: the block that holds the value ----

RAW_FN uint32_t low_sixteen_code(uint32_t type, const unsigned char *b, int i,
                                 const uint16_t *grid) {
    const int p = i / 4;
    if (type == TYPE_IQ4_NL)
        return (uint32_t)raw_nibble(b + 2, i);
    if (type == TYPE_IQ4_XS)
        return (uint32_t)raw_nibble(b + 8 + 16 * (i / 32), i % 32);
    if (type == TYPE_IQ3_XXS) {
        const uint32_t w = raw_u32(b + 66 + 4 * (i / 32));
        const uint32_t signs = low_parity(w >> 7 * (i % 32 / 8) & 127);
        return (grid[b[2 + p]] >> 3 * (i % 4) & 7) | (signs >> i % 8 & 1) << 3;
    }
    const uint32_t high = b[66 + p / 8] >> p % 8 & 1;
    return (grid[b[2 + p] + 256 * high] >> 3 * (i % 4) & 7) | (b[74 + i / 8] >> i % 8 & 1) << 3;
}

// Where among the 16 levels in order that of a code lies.
RAW_FN int low_sixteen_order(uint32_t type, uint32_t code) {
    if (type == TYPE_IQ4_NL || type == TYPE_IQ4_XS)
        return (int)code;
    return (int)(code & 8 ? 7 - (code & 7) : 8 + code);
}

// Level `at` of the 16 in order; the first eight are negative.
RAW_FN int low_sixteen_level(uint32_t type, int at) {
    if (type == TYPE_IQ4_NL || type == TYPE_IQ4_XS)
        return (int)raw_level(at);
    const int digit = at < 8 ? 7 - at : at - 8;
    const int size = type == TYPE_IQ3_S ? 8 * (2 * digit + 1) : digit == 7 ? 124 : 8 + 16 * digit;
    return at < 8 ? -size : size;
}

// What the level of a value of group i / 32 is multiplied with.
RAW_FN float low_sixteen_scale(uint32_t type, const unsigned char *b, int i) {
    const float d = raw_half(b);
    const int g = i / 32;
    if (type == TYPE_IQ4_NL)
        return d;
    if (type == TYPE_IQ4_XS) {
        const int low = b[4 + g / 2] >> g % 2 * 4 & 15;
        return d * (float)((low | (int)(raw_u16(b + 2) >> 2 * g & 3) << 4) - 32);
    }
    const uint32_t s =
        type == TYPE_IQ3_XXS ? raw_u32(b + 66 + 4 * g) >> 28 : b[106 + g / 2] >> 4 * (g % 2) & 15;
    return d * (float)(2 * s + 1) / 8;
}

// ---- five bits: Q4_1, Q5_0, Q5_1 ----

RAW_FN uint32_t low_five_code(uint32_t type, const unsigned char *b, int i) {
    if (type == TYPE_Q4_1)
        return (uint32_t)raw_nibble(b + 4, i);
    const unsigned char *at = b + (type == TYPE_Q5_0 ? 2 : 4);
    return (uint32_t)raw_nibble(at + 4, i) | (raw_u32(at) >> i & 1) << 4;
}

// Scale, and what is added.
RAW_FN float2 low_five_factors(uint32_t type, const unsigned char *b) {
    const float d = raw_half(b);
    return make_float2(d, type == TYPE_Q5_0 ? -16 * d : raw_half(b + 2));
}

#endif
