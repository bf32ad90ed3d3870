// SPDX-License-Identifier: Apache-2.0
// What linear layers multiply: activations, and weights as the kernels read them. A matrix is cut
// into tiles of 16 output rows, a tile into chunks of `span` values of k, one after another; within
// a chunk each lane's bytes are its own fragments of the A operand of mma m16n8k16 (and of wgmma
// m64), see dequant.cuh. Every row has a power of two 2^e, which puts its largest values where fp16
// has most room; it is taken back when a sum is finished.
//
// The order of every sum (rule E1) is fixed here: k is cut into linear_parts() parts, each part is
// summed from zero in k order by matrix instructions, and the parts are added in order.
#ifndef COPPICE_OPS_GPU_LINEAR_OPERANDS_H
#define COPPICE_OPS_GPU_LINEAR_OPERANDS_H

#include <stdint.h>

#include "formats/quant/quant.h"

#ifdef __CUDACC__
#define LINEAR_BOTH static inline __host__ __device__
#else
#define LINEAR_BOTH static inline
#endif

// X(form, span, bytes of a chunk: 16 rows of span values), those of 256 first. A form may serve
// several types (weight_form_of); docs/cuda.md says what that takes besides the file's own bytes.
#define WEIGHT_FORMS_LIST(X)                                                                       \
    X(Q2_K, 256, 1344)    /* and TQ1_0, TQ2_0 */                                                   \
    X(LEVELS8, 256, 1840) /* a table of 8 levels: Q3_K, IQ2_*, IQ1_* */                            \
    X(Q4_K, 256, 2304)                                                                             \
    X(Q5_K, 256, 2816)                                                                             \
    X(Q6_K, 256, 3360)                                                                             \
    X(Q8_0, 64, 1088)                                                                              \
    X(Q4_0, 64, 576)                                                                               \
    X(MXFP4, 64, 544)                                                                              \
    X(NVFP4, 64, 576)                                                                              \
    X(LEVELS16, 64, 592) /* a table of 16 levels: IQ4_NL, IQ4_XS, IQ3_* */                         \
    X(Q5_1, 64, 768)     /* and Q4_1, Q5_0 */                                                      \
    X(HALF, 64, 2048)    /* F16, BF16 */                                                           \
    X(FLOAT, 64, 4096)   /* F32: enters the products as two halves, high and low */

enum weight_form {
#define X(name, span, chunk) WEIGHT_##name,
    WEIGHT_FORMS_LIST(X)
#undef X
        WEIGHT_FORMS
};

enum weight_layout {
#define X(name, span, chunk) SPAN_##name = span, CHUNK_##name = chunk,
    WEIGHT_FORMS_LIST(X)
#undef X
        TILE_ROWS = 16,
    PART_UNIT = 256, // parts begin at multiples of it
};

// What the kernels need to know of one matrix.
struct matrix_view {
    const unsigned char *data;
    const signed char *exponent; // [tiles * 16] e of each row
    int64_t k, m, tiles;
    int64_t pitch; // bytes of a tile
    uint32_t type; // enum tensor_type of the file
};

#ifdef __cplusplus
// Forms whose codes have about four bits: kernels have 256 values of k of them at once.
LINEAR_BOTH constexpr bool weight_of_fours(int form) {
    return form <= WEIGHT_Q6_K || (form >= WEIGHT_Q4_0 && form <= WEIGHT_Q5_1);
}
#endif

// WEIGHT_FORMS for a type that linear layers do not read.
static inline int weight_form_of(uint32_t type) {
    switch (type) {
    case TYPE_Q4_K:
        return WEIGHT_Q4_K;
    case TYPE_Q5_K:
        return WEIGHT_Q5_K;
    case TYPE_Q6_K:
        return WEIGHT_Q6_K;
    case TYPE_Q8_0:
        return WEIGHT_Q8_0;
    case TYPE_Q4_0:
        return WEIGHT_Q4_0;
    case TYPE_MXFP4:
        return WEIGHT_MXFP4;
    case TYPE_NVFP4:
        return WEIGHT_NVFP4;
    case TYPE_IQ4_NL:
    case TYPE_IQ4_XS:
    case TYPE_IQ3_XXS:
    case TYPE_IQ3_S:
        return WEIGHT_LEVELS16;
    case TYPE_Q3_K:
    case TYPE_IQ2_XXS:
    case TYPE_IQ2_XS:
    case TYPE_IQ2_S:
    case TYPE_IQ1_S:
    case TYPE_IQ1_M:
        return WEIGHT_LEVELS8;
    case TYPE_Q2_K:
    case TYPE_TQ1_0:
    case TYPE_TQ2_0:
        return WEIGHT_Q2_K;
    case TYPE_Q4_1:
    case TYPE_Q5_0:
    case TYPE_Q5_1:
        return WEIGHT_Q5_1;
    case TYPE_F16:
    case TYPE_BF16:
        return WEIGHT_HALF;
    case TYPE_F32:
        return WEIGHT_FLOAT;
    default:
        return WEIGHT_FORMS;
    }
}

static inline int weight_span(int form) {
    static const int span[] = {
#define X(name, span, chunk) span,
        WEIGHT_FORMS_LIST(X)
#undef X
    };
    return span[form];
}

static inline int weight_chunk(int form) {
    static const int chunk[] = {
#define X(name, span, chunk) chunk,
        WEIGHT_FORMS_LIST(X)
#undef X
    };
    return chunk[form];
}

// Bytes of an m x k matrix on a device: its tiles, and a power of two a row. 0 for a type that
// linear layers do not read.
static inline int64_t weight_tile_bytes(uint32_t type, int64_t k, int64_t m) {
    const int form = weight_form_of(type);
    const int64_t tiles = (m + TILE_ROWS - 1) / TILE_ROWS;
    if (form == WEIGHT_FORMS)
        return 0;
    return tiles *
           ((k + weight_span(form) - 1) / weight_span(form) * weight_chunk(form) + TILE_ROWS);
}

// Parts that k is cut into, for the m outputs of one op (both matrices of linear_gate_up). Depends
// on the shape alone: few outputs need the cut to occupy a large device, and every part costs a
// round of its sums through memory.
LINEAR_BOTH int linear_parts(int64_t k, int64_t m) {
    int64_t units = (k + PART_UNIT - 1) / PART_UNIT;
    int64_t max = m <= 5120 ? 8 : m <= 12288 ? 2 : 1;
    max = max > units / 2 ? units / 2 : max;
    for (int64_t c = max; c > 1 && 5 * c >= 3 * max; c--)
        if (units % c == 0)
            return (int)c;
    return max < 1 ? 1 : (int)max;
}

// First value of k of part p; p = parts gives the end, which may lie beyond k.
LINEAR_BOTH int64_t linear_part_begin(int64_t k, int parts, int p) {
    int64_t units = (k + PART_UNIT - 1) / PART_UNIT;
    return units * p / parts * PART_UNIT;
}

// A matrix [k -> m] in device form: tiles, then the rows' exponents, in one allocation;
// or those of experts, each in whole tiles, one after the other: all tiles, then all exponents.
struct weight {
    int64_t k, m;
    int form;                // enum weight_form
    int64_t bytes;           // of data
    unsigned char *data;     // owned; view points into it
    struct matrix_view view; // of the first expert, if there are some
    int64_t experts;         // 0: it is one matrix
    int64_t step;            // bytes of an expert's data; its exponents are tiles * TILE_ROWS
    // Of experts that come and go (moe/store.h), else NULL: their layer; then data has the
    // exponents alone, and tiles lie at place[expert] + at.
    struct moe_home *home;
    const unsigned char *const *place;
    int64_t at;
};

// Rows for linear layers: x[i][0..k) * 2^exponent as fp16, zeros from k to stride. Ops that make an
// act out of independent pieces write `wide` first and finish rows by cuda_act_finish; that buffer
// is one for all acts of an exec, so nothing may be left in it for a later op.
struct act {
    struct act *next;
    int64_t rows, cap_k; // capacity
    int64_t k, stride;   // shape of the present contents; stride is k rounded up to 64
    void *x;             // __half [rows][stride]
    float *unscale;      // [rows] 2^-exponent
    float *wide;         // [rows][stride] f32
};

#endif
