// SPDX-License-Identifier: Apache-2.0
// The part of gpu.h that only the largest matrix products need: maps by which the copy engine of
// sm_90 finds tiles of a matrix. The driver makes them; nothing is linked for it.
#ifndef COPPICE_OPS_GPU_RUNTIME_GPU_MAP_H
#define COPPICE_OPS_GPU_RUNTIME_GPU_MAP_H

#include "ops/gpu/runtime/vendor.h"

// The driver's function that makes such maps; NULL where it has none.
static inline void *gpu_map_maker(void) {
    void *f = NULL;
    return gpu_find_driver_call(GPU_MAP_MAKER, &f) ? f : NULL;
}

// Tiles of an array of up to five dimensions. step: bytes between neighbours of the dimensions
// after the first; box: values of a tile.
struct gpu_tiles {
    int dims;
    const uint64_t *size, *step;
    const uint32_t *box;
};

// Maps values at x for tiles in the 128-byte swizzle; what lies outside arrives as zeros and is not
// stored.
static inline gpu_error gpu_make_typed_map(void *maker, gpu_tile_map *map, gpu_map_type type,
                                           const void *x, const struct gpu_tiles *t) {
    const uint32_t one[5] = {1, 1, 1, 1, 1};
    if (!maker)
        return GPU_NOT_SUPPORTED;
    return gpu_driver_did(((gpu_map_maker_fn *)maker)(map, type, (uint32_t)t->dims, (void *)x,
                                                      t->size, t->step, t->box, one,
                                                      GPU_MAP_SWIZZLE))
               ? GPU_OK
               : GPU_INVALID;
}

// The same for halves.
static inline gpu_error gpu_make_map_of(void *maker, gpu_tile_map *map, const void *x, int dims,
                                        const uint64_t *size, const uint64_t *step,
                                        const uint32_t *box) {
    const struct gpu_tiles t = {dims, size, step, box};
    return gpu_make_typed_map(maker, map, GPU_MAP_HALVES, x, &t);
}

// Maps floats x [rows][stride], of which `wide` of a row are there; a tile has 32 of each of
// `rows_each` rows (128 bytes). Rows are whole multiples of 16 bytes apart.
static inline gpu_error gpu_make_float_map(void *maker, gpu_tile_map *map, const float *x,
                                           int64_t wide, int64_t stride, int64_t rows,
                                           int rows_each) {
    const uint64_t size[2] = {(uint64_t)wide, (uint64_t)rows};
    const uint64_t step[1] = {(uint64_t)stride * 4};
    const uint32_t box[2] = {32, (uint32_t)rows_each};
    const struct gpu_tiles t = {2, size, step, box};
    return gpu_make_typed_map(maker, map, GPU_MAP_FLOATS, x, &t);
}

// Maps x [rows][stride]; a tile has `rows_each` rows of k_each values (128 bytes), which arrive in
// the 128-byte swizzle; rows beyond the last arrive as zeros.
static inline gpu_error gpu_make_map(void *maker, gpu_tile_map *map, const void *x, int64_t stride,
                                     int64_t rows, int k_each, int rows_each) {
    const uint64_t size[2] = {(uint64_t)stride, (uint64_t)rows};
    const uint64_t step[1] = {(uint64_t)stride * 2};
    const uint32_t box[2] = {(uint32_t)k_each, (uint32_t)rows_each};
    return gpu_make_map_of(maker, map, x, 2, size, step, box);
}

// The same for several such tiles at once, one after the other: coordinates are the first value of
// a row's 64, row, and which 64 of the row.
static inline gpu_error gpu_make_panels_map(void *maker, gpu_tile_map *map, const void *x,
                                            int64_t stride, int64_t rows, int panels_each,
                                            int rows_each) {
    const uint64_t size[3] = {64, (uint64_t)rows, (uint64_t)stride / 64};
    const uint64_t step[2] = {(uint64_t)stride * 2, 128};
    const uint32_t box[3] = {64, (uint32_t)rows_each, (uint32_t)panels_each};
    return gpu_make_map_of(maker, map, x, 3, size, step, box);
}

#endif
