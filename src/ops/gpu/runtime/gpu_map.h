// SPDX-License-Identifier: Apache-2.0
// The part of gpu.h that only the largest matrix products need: maps by which the copy engine of
// sm_90 finds tiles of a matrix. The driver makes them; nothing is linked for it.
#ifndef COPPICE_OPS_GPU_RUNTIME_GPU_MAP_H
#define COPPICE_OPS_GPU_RUNTIME_GPU_MAP_H

#include <cuda.h>

#include "ops/gpu/runtime/gpu.h"

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

// Tiles of an array of up to five dimensions. step: bytes between neighbours of the dimensions
// after the first; box: values of a tile.
struct gpu_tiles {
    int dims;
    const cuuint64_t *size, *step;
    const cuuint32_t *box;
};

// Maps values at x for tiles in the 128-byte swizzle; what lies outside arrives as zeros and is not
// stored.
static inline gpu_error gpu_make_typed_map(void *maker, gpu_tile_map *map, CUtensorMapDataType type,
                                           const void *x, const struct gpu_tiles *t) {
    typedef CUresult make_fn(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                             const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                             const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                             CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    const cuuint32_t one[5] = {1, 1, 1, 1, 1};
    if (!maker)
        return cudaErrorNotSupported;
    CUresult r =
        ((make_fn *)maker)(map, type, (cuuint32_t)t->dims, (void *)x, t->size, t->step, t->box, one,
                           CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return r == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// The same for halves.
static inline gpu_error gpu_make_map_of(void *maker, gpu_tile_map *map, const void *x, int dims,
                                        const cuuint64_t *size, const cuuint64_t *step,
                                        const cuuint32_t *box) {
    const struct gpu_tiles t = {dims, size, step, box};
    return gpu_make_typed_map(maker, map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, x, &t);
}

// Maps floats x [rows][stride], of which `wide` of a row are there; a tile has 32 of each of
// `rows_each` rows (128 bytes). Rows are whole multiples of 16 bytes apart.
static inline gpu_error gpu_make_float_map(void *maker, gpu_tile_map *map, const float *x,
                                           int64_t wide, int64_t stride, int64_t rows,
                                           int rows_each) {
    const cuuint64_t size[2] = {(cuuint64_t)wide, (cuuint64_t)rows};
    const cuuint64_t step[1] = {(cuuint64_t)stride * 4};
    const cuuint32_t box[2] = {32, (cuuint32_t)rows_each};
    const struct gpu_tiles t = {2, size, step, box};
    return gpu_make_typed_map(maker, map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, x, &t);
}

// Maps x [rows][stride]; a tile has `rows_each` rows of k_each values (128 bytes), which arrive in
// the 128-byte swizzle; rows beyond the last arrive as zeros.
static inline gpu_error gpu_make_map(void *maker, gpu_tile_map *map, const void *x, int64_t stride,
                                     int64_t rows, int k_each, int rows_each) {
    const cuuint64_t size[2] = {(cuuint64_t)stride, (cuuint64_t)rows};
    const cuuint64_t step[1] = {(cuuint64_t)stride * 2};
    const cuuint32_t box[2] = {(cuuint32_t)k_each, (cuuint32_t)rows_each};
    return gpu_make_map_of(maker, map, x, 2, size, step, box);
}

// The same for several such tiles at once, one after the other: coordinates are the first value of
// a row's 64, row, and which 64 of the row.
static inline gpu_error gpu_make_panels_map(void *maker, gpu_tile_map *map, const void *x,
                                            int64_t stride, int64_t rows, int panels_each,
                                            int rows_each) {
    const cuuint64_t size[3] = {64, (cuuint64_t)rows, (cuuint64_t)stride / 64};
    const cuuint64_t step[2] = {(cuuint64_t)stride * 2, 128};
    const cuuint32_t box[3] = {64, (cuuint32_t)rows_each, (cuuint32_t)panels_each};
    return gpu_make_map_of(maker, map, x, 3, size, step, box);
}

#endif
