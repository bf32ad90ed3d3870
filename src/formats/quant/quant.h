// SPDX-License-Identifier: Apache-2.0
// Tensor element formats: one row per ggml type with its block size and scalar codecs.
// Layouts and formulas: docs/formats.md. These scalar codecs are the specification that
// every kernel is checked against.
#ifndef COPPICE_FORMATS_QUANT_QUANT_H
#define COPPICE_FORMATS_QUANT_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Numbers are the type ids of GGUF files.
enum tensor_type {
    TYPE_F32 = 0,
    TYPE_F16 = 1,
    TYPE_Q4_0 = 2,
    TYPE_Q4_1 = 3,
    TYPE_Q5_0 = 6,
    TYPE_Q5_1 = 7,
    TYPE_Q8_0 = 8,
    TYPE_Q8_1 = 9,
    TYPE_Q2_K = 10,
    TYPE_Q3_K = 11,
    TYPE_Q4_K = 12,
    TYPE_Q5_K = 13,
    TYPE_Q6_K = 14,
    TYPE_Q8_K = 15,
    TYPE_IQ2_XXS = 16,
    TYPE_IQ2_XS = 17,
    TYPE_IQ3_XXS = 18,
    TYPE_IQ1_S = 19,
    TYPE_IQ4_NL = 20,
    TYPE_IQ3_S = 21,
    TYPE_IQ2_S = 22,
    TYPE_IQ4_XS = 23,
    TYPE_I8 = 24,
    TYPE_I16 = 25,
    TYPE_I32 = 26,
    TYPE_I64 = 27,
    TYPE_F64 = 28,
    TYPE_IQ1_M = 29,
    TYPE_BF16 = 30,
    TYPE_TQ1_0 = 34,
    TYPE_TQ2_0 = 35,
    TYPE_MXFP4 = 39,
    TYPE_NVFP4 = 40,
    TYPE_Q1_0 = 41,
    TYPE_Q2_0 = 42,
};

struct quant_format {
    const char *name; // "Q4_K"
    int type;         // enum tensor_type
    int block;        // elements per block, > 0
    int bytes;        // bytes per block
    // n elements, a multiple of block; NULL when the type holds no numbers we compute with.
    void (*dequantize)(const void *src, float *dst, int64_t n);
    // NULL when this build cannot write the type. Input must be finite (callers check).
    void (*quantize)(const float *src, void *dst, int64_t n);
    // The same for one row of a matrix where errors count by column: importance[n] >= 0, usually
    // the mean square of what a column is multiplied by. NULL when the type has no choice to make.
    void (*quantize_weighted)(const float *src, const float *importance, void *dst, int64_t n);
    // So few bits that matrices of a model should not be written without importances.
    bool by_importance;
};

// The row of a type, or NULL for an unknown or removed one (a known name with NULL codecs is
// a type that can be skipped but not read).
const struct quant_format *quant_format(uint32_t type);

// Case-insensitive lookup by name ("q4_k"); NULL when unknown.
const struct quant_format *quant_format_by_name(const char *name);

// Iteration for tests and help: i = 0, 1, … until NULL.
const struct quant_format *quant_format_at(int i);

// Bytes of n contiguous elements; -1 when n is negative, no multiple of the block or too large.
int64_t quant_row_bytes(const struct quant_format *f, int64_t n);

// IEEE half and bfloat16, round to nearest even; NaN stays NaN.
uint16_t f32_to_f16(float x);
float f16_to_f32(uint16_t h);
uint16_t f32_to_bf16(float x);
float bf16_to_f32(uint16_t h);

#endif
