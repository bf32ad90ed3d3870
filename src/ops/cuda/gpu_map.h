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

typedef CUresult gpu_make_fn(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                             const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                             const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                             CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

// `size`: values, then counts of the dimensions above; `step`: their bytes; `box`: of a tile.
static inline gpu_error gpu_make_tile_map(void *maker, gpu_tile_map *map, const void *x,
                                          unsigned dims, const cuuint64_t *size,
                                          const cuuint64_t *step, const cuuint32_t *box) {
    const cuuint32_t one[3] = {1, 1, 1};
    if (!maker)
        return cudaErrorNotSupported;
    CUresult r = ((gpu_make_fn *)maker)(
        map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, dims, (void *)x, size, step, box, one,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return r == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// Maps x [rows][stride]; a tile has `rows_each` rows of k_each values (128 bytes), which arrive in
// the 128-byte swizzle; rows beyond the last arrive as zeros.
static inline gpu_error gpu_make_map(void *maker, gpu_tile_map *map, const void *x, int64_t stride,
                                     int64_t rows, int k_each, int rows_each) {
    const cuuint64_t size[2] = {(cuuint64_t)stride, (cuuint64_t)rows};
    const cuuint64_t step[1] = {(cuuint64_t)stride * 2};
    const cuuint32_t box[2] = {(cuuint32_t)k_each, (cuuint32_t)rows_each};
    return gpu_make_tile_map(maker, map, x, 2, size, step, box);
}

// Maps all memory from x on for `bytes` as rows of `dim` halves, whoever it belongs to; a tile has
// rows_each rows, which arrive in columns of 64 halves (128 bytes) in the 128-byte swizzle, a
// column's rows one behind the other.
static inline gpu_error gpu_make_row_map(void *maker, gpu_tile_map *map, const void *x,
                                         uint64_t bytes, int dim, int rows_each) {
    const cuuint64_t size[3] = {64, bytes / (cuuint64_t)dim / 2, (cuuint64_t)dim / 64};
    const cuuint64_t step[2] = {(cuuint64_t)dim * 2, 128};
    const cuuint32_t box[3] = {64, (cuuint32_t)rows_each, (cuuint32_t)dim / 64};
    return gpu_make_tile_map(maker, map, x, 3, size, step, box);
}

#endif
