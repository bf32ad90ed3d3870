// SPDX-License-Identifier: Apache-2.0
// The part of gpu.h that only the largest matrix products need: maps by which the copy engine of
// sm_90 finds tiles of a matrix. The driver makes them; nothing is linked for it.
#ifndef COPPICE_OPS_CUDA_GPU_MAP_H
#define COPPICE_OPS_CUDA_GPU_MAP_H

#include <cuda.h>

#include "ops/cuda/gpu.h"

// How the copy engine of sm_90 finds tiles of a matrix of halves (a kernel's parameter).
typedef CUtensorMap gpu_tile_map;

// The driver's function that makes such maps; NULL where it has none.
static inline void *gpu_map_maker(void) {
    void *f = NULL;
    enum cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault,
                                         &found) != cudaSuccess ||
        found != cudaDriverEntryPointSuccess)
        return NULL;
    return f;
}

// Maps x [rows][stride]; a tile has `rows_each` rows of k_each values (128 bytes), which arrive in
// the 128-byte swizzle; rows beyond the last arrive as zeros.
static inline gpu_error gpu_make_map(void *maker, gpu_tile_map *map, const void *x, int64_t stride,
                                     int64_t rows, int k_each, int rows_each) {
    typedef CUresult make_fn(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                             const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                             const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                             CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    cuuint64_t size[2] = {(cuuint64_t)stride, (cuuint64_t)rows}, step[1] = {(cuuint64_t)stride * 2};
    cuuint32_t box[2] = {(cuuint32_t)k_each, (cuuint32_t)rows_each}, one[2] = {1, 1};
    if (!maker)
        return cudaErrorNotSupported;
    CUresult r =
        ((make_fn *)maker)(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, (void *)x, size, step, box, one,
                           CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return r == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

#endif
