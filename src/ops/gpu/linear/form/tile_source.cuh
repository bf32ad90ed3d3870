// SPDX-License-Identifier: Apache-2.0
// What repack.cu makes tiles of, and where a value sits in them. Also for the host (raw.cuh).
#ifndef COPPICE_OPS_GPU_LINEAR_FORM_TILE_SOURCE_CUH
#define COPPICE_OPS_GPU_LINEAR_FORM_TILE_SOURCE_CUH

#include "ops/gpu/linear/form/raw.cuh"
#include "ops/gpu/linear/linear.h"

#define TILE_WORD inline __host__ __device__

// Rows first .. first + 15 of a matrix that is being made.
struct tile_source {
    const unsigned char *rows; // in device memory; those beyond `count` do not exist
    int64_t count, row_bytes, k;
    uint32_t type;
    const int *exponent;  // [16]
    const uint16_t *grid; // of a type with a codebook
};

// Where a value sits: lane, step of 16 and register of a section of 64, half of the register.
RAW_FN int row_of(int lane, int reg) {
    return lane / 4 + reg % 2 * 8;
}

RAW_FN int column_of(int lane, int step, int reg, int half) {
    return 16 * step + lane % 4 * 2 + reg / 2 * 8 + half;
}

RAW_FN uint32_t rotated(uint32_t v, int by) {
    return (v << by | v >> (16 - by)) & 0xFFFF;
}

RAW_FN uint32_t half_bits(float v) {
    return __half_as_ushort(__float2half_rn(v));
}

// The block of a row that holds k, or NULL.
RAW_FN const unsigned char *block_at(const tile_source &s, int row, int64_t k, int size,
                                     int bytes) {
    return row < s.count && k < s.k ? s.rows + row * s.row_bytes + k / size * bytes : nullptr;
}

// 2^e of the row times the factor of its half of the tile.
RAW_FN uint32_t scale_bits(const tile_source &s, int row, float d, int low, int high) {
    return half_bits(ldexpf(d, s.exponent[row] + (row < 8 ? low : high)));
}

// Word `word` of the chunk of 16 rows that begins at k0.
template <int FORM>
static TILE_WORD uint32_t chunk_word(const tile_source &s, int64_t k0, int word);

// The bound of a row is brought into [2^(t-1), 2^t).
RAW_FN int target_of(int form) {
    switch (form) {
    case WEIGHT_Q4_K:
    case WEIGHT_Q5_K:
    case WEIGHT_Q5_1:
        return -3;
    case WEIGHT_Q6_K:
    case WEIGHT_Q4_0:
        return -4;
    case WEIGHT_Q8_0:
    case WEIGHT_Q2_K:
    case WEIGHT_LEVELS8:
    case WEIGHT_LEVELS16:
        return -2;
    case WEIGHT_NVFP4:
        return -6; // 2^-7
    case WEIGHT_MXFP4:
        return 1; // scales up to 2^15
    case WEIGHT_HALF:
        return 16; // exact up to there
    default:
        return 15;
    }
}

#endif
