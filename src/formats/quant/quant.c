// SPDX-License-Identifier: Apache-2.0
// The table of tensor element formats and the half and bfloat16 conversions that all share.
// A format is one row of QUANT_FORMATS (impl.h); its decoder is in codes.c
// (plain numbers: fp.c), its encoder in fp.c, legacy.c, k.c, iq.c or encode_grid.c. Ids that GGUF
// has removed have no row, so a file that uses them is refused rather than divided by a zero block
// size.
#include "formats/quant/quant.h"

#include <stdbool.h>
#include <stddef.h>
#include <strings.h>

#include "formats/quant/impl.h"

#define NOT_READ(name, x, block, bytes, few)                                                       \
    {#name, TYPE_##name, block, bytes, NULL, NULL, NULL, few},
#define READ(name, x, block, bytes, few)                                                           \
    {#name, TYPE_##name, block, bytes, quant_decode_##x, NULL, NULL, few},
#define WRITTEN(name, x, block, bytes, few)                                                        \
    {#name, TYPE_##name, block, bytes, quant_decode_##x, quant_encode_##x, NULL, few},
#define WEIGHED(name, x, block, bytes, few)                                                        \
    {#name, TYPE_##name, block, bytes, quant_decode_##x, quant_encode_##x, quant_weighted_##x, few},
static const struct quant_format formats[] = {QUANT_FORMATS(NOT_READ, READ, WRITTEN, WEIGHED)};
static const int format_count = (int)(sizeof formats / sizeof formats[0]);

const struct quant_format *quant_format(uint32_t type) {
    for (int i = 0; i < format_count; i++)
        if ((uint32_t)formats[i].type == type)
            return &formats[i];
    return NULL;
}

const struct quant_format *quant_format_by_name(const char *name) {
    for (int i = 0; i < format_count; i++)
        if (strcasecmp(formats[i].name, name) == 0)
            return &formats[i];
    return NULL;
}

const struct quant_format *quant_format_at(int i) {
    return i >= 0 && i < format_count ? &formats[i] : NULL;
}

int64_t quant_row_bytes(const struct quant_format *f, int64_t n) {
    if (n < 0 || n % f->block || n / f->block > INT64_MAX / f->bytes)
        return -1;
    return n / f->block * f->bytes;
}

union f32_bits {
    float f;
    uint32_t u;
};

uint16_t f32_to_f16(float x) {
    union f32_bits v = {.f = x};
    uint32_t sign = v.u >> 16 & 0x8000u;
    v.u &= 0x7FFFFFFFu;
    if (v.u > 0x7F800000u)
        return (uint16_t)(sign | 0x7E00u);
    if (v.u >= 0x477FF000u) // 65520 and above round to infinity
        return (uint16_t)(sign | 0x7C00u);
    if (v.u < 0x38800000u) { // below 2^-14: a sum with 0.5 rounds at 2^-24, the half's unit
        v.f += 0.5f;
        return (uint16_t)(sign | (v.u - 0x3F000000u));
    }
    v.u += 0xFFFu + (v.u >> 13 & 1u);
    return (uint16_t)(sign | ((v.u - 0x38000000u) >> 13));
}

float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31u, mantissa = h & 0x3FFu;
    union f32_bits v = {.u = 0};
    if (exponent == 0)
        v.f = (float)mantissa * 0x1p-24f;
    else if (exponent == 31)
        v.u = 0x7F800000u | mantissa << 13;
    else
        v.u = (exponent + 112u) << 23 | mantissa << 13;
    v.u |= sign;
    return v.f;
}

uint16_t f32_to_bf16(float x) {
    union f32_bits v = {.f = x};
    if ((v.u & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)(v.u >> 16 | 0x40u);
    return (uint16_t)((v.u + 0x7FFFu + (v.u >> 16 & 1u)) >> 16);
}

float bf16_to_f32(uint16_t h) {
    union f32_bits v = {.u = (uint32_t)h << 16};
    return v.f;
}
