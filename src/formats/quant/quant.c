// SPDX-License-Identifier: Apache-2.0
// The table of tensor element formats and the half and bfloat16 conversions that all share.
// A format is one row; its codecs live in quant_{fp,legacy,k,iq,grid}.c. Ids that GGUF has removed
// have no row, so a file that uses them is refused rather than divided by a zero block size.
#include "formats/quant/quant.h"

#include <stdbool.h>
#include <stddef.h>
#include <strings.h>

#include "formats/quant/impl.h"

#define READ(x)  quant_decode_##x
#define WRITE(x) quant_encode_##x
#define WEIGH(x) quant_weighted_##x
static const struct quant_format formats[] = {
    {"F32", TYPE_F32, 1, 4, READ(f32), WRITE(f32), NULL, false},
    {"F16", TYPE_F16, 1, 2, READ(f16), WRITE(f16), NULL, false},
    {"BF16", TYPE_BF16, 1, 2, READ(bf16), WRITE(bf16), NULL, false},
    {"Q8_0", TYPE_Q8_0, 32, 34, READ(q8_0), WRITE(q8_0), NULL, false},
    {"Q4_0", TYPE_Q4_0, 32, 18, READ(q4_0), WRITE(q4_0), WEIGH(q4_0), false},
    {"Q4_1", TYPE_Q4_1, 32, 20, READ(q4_1), WRITE(q4_1), WEIGH(q4_1), false},
    {"Q5_0", TYPE_Q5_0, 32, 22, READ(q5_0), WRITE(q5_0), WEIGH(q5_0), false},
    {"Q5_1", TYPE_Q5_1, 32, 24, READ(q5_1), WRITE(q5_1), WEIGH(q5_1), false},
    {"Q8_1", TYPE_Q8_1, 32, 36, READ(q8_1), NULL, NULL, false},
    {"Q2_K", TYPE_Q2_K, 256, 84, READ(q2_k), WRITE(q2_k), WEIGH(q2_k), false},
    {"Q3_K", TYPE_Q3_K, 256, 110, READ(q3_k), WRITE(q3_k), WEIGH(q3_k), false},
    {"Q4_K", TYPE_Q4_K, 256, 144, READ(q4_k), WRITE(q4_k), WEIGH(q4_k), false},
    {"Q5_K", TYPE_Q5_K, 256, 176, READ(q5_k), WRITE(q5_k), WEIGH(q5_k), false},
    {"Q6_K", TYPE_Q6_K, 256, 210, READ(q6_k), WRITE(q6_k), WEIGH(q6_k), false},
    {"Q8_K", TYPE_Q8_K, 256, 292, READ(q8_k), NULL, NULL, false},
    {"IQ4_NL", TYPE_IQ4_NL, 32, 18, READ(iq4_nl), WRITE(iq4_nl), WEIGH(iq4_nl), false},
    {"IQ4_XS", TYPE_IQ4_XS, 256, 136, READ(iq4_xs), WRITE(iq4_xs), WEIGH(iq4_xs), false},
    {"MXFP4", TYPE_MXFP4, 32, 17, READ(mxfp4), WRITE(mxfp4), NULL, false},
    {"NVFP4", TYPE_NVFP4, 64, 36, READ(nvfp4), WRITE(nvfp4), NULL, false},
    {"F64", TYPE_F64, 1, 8, READ(f64), NULL, NULL, false},
    {"I8", TYPE_I8, 1, 1, READ(i8), NULL, NULL, false},
    {"I16", TYPE_I16, 1, 2, READ(i16), NULL, NULL, false},
    {"I32", TYPE_I32, 1, 4, READ(i32), NULL, NULL, false},
    {"I64", TYPE_I64, 1, 8, READ(i64), NULL, NULL, false},
    {"IQ2_XXS", TYPE_IQ2_XXS, 256, 66, READ(iq2_xxs), WRITE(iq2_xxs), WEIGH(iq2_xxs), true},
    {"IQ2_XS", TYPE_IQ2_XS, 256, 74, READ(iq2_xs), WRITE(iq2_xs), WEIGH(iq2_xs), true},
    {"IQ3_XXS", TYPE_IQ3_XXS, 256, 98, READ(iq3_xxs), WRITE(iq3_xxs), WEIGH(iq3_xxs), true},
    {"IQ1_S", TYPE_IQ1_S, 256, 50, READ(iq1_s), WRITE(iq1_s), WEIGH(iq1_s), true},
    {"IQ3_S", TYPE_IQ3_S, 256, 110, READ(iq3_s), WRITE(iq3_s), WEIGH(iq3_s), false},
    {"IQ2_S", TYPE_IQ2_S, 256, 82, READ(iq2_s), WRITE(iq2_s), WEIGH(iq2_s), true},
    {"IQ1_M", TYPE_IQ1_M, 256, 56, READ(iq1_m), WRITE(iq1_m), WEIGH(iq1_m), true},
    {"TQ1_0", TYPE_TQ1_0, 256, 54, READ(tq1_0), WRITE(tq1_0), WEIGH(tq1_0), false},
    {"TQ2_0", TYPE_TQ2_0, 256, 66, READ(tq2_0), WRITE(tq2_0), WEIGH(tq2_0), false},
    {"Q1_0", TYPE_Q1_0, 128, 18, NULL, NULL, NULL, false},
    {"Q2_0", TYPE_Q2_0, 64, 18, NULL, NULL, NULL, false},
};
#undef READ
#undef WRITE
#undef WEIGH

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
