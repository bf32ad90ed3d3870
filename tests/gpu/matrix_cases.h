// SPDX-License-Identifier: Apache-2.0
// What test_matrix.cu hands to both versions of the cases (matrix_cases.cuh).
#ifndef COPPICE_TESTS_GPU_MATRIX_CASES_H
#define COPPICE_TESTS_GPU_MATRIX_CASES_H

#include <stdint.h>

#include "ops/gpu/runtime/gpu_map.h"

enum { CASE_THREADS = 128, CASE_WORDS = 1024, CASE_NEAR = 8192 };

// Maps of halves [60][128] with tiles of 16 rows of 64: of two dimensions, of three (64 values,
// rows, which 64), of five; and of what tiles are stored to, likewise.
struct case_maps {
    gpu_tile_map two, three, five, to;
};

// On the device.
struct case_arrays {
    uint32_t *in;          // [4096], halves that are small whole numbers
    uint32_t *global;      // [2 CASE_THREADS]
    uint32_t *out;         // [CASE_WORDS][CASE_THREADS]
    unsigned char *stored; // halves [64][128]
    float *near;           // [CASE_NEAR][2]
};

void run_plain_cases(const struct case_arrays *a); // matrix_plain.cu

#endif
