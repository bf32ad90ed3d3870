// SPDX-License-Identifier: Apache-2.0
// Copies by the device's copy engine, of whole pieces or tiles, which one thread starts. Those to
// shared memory arrive with their bytes at a barrier (barrier_expect) that others wait for. Tiles
// are found by a map of a matrix, a kernel's parameter (ops/gpu/runtime/gpu_map.h); they begin at
// values x, y, .. of its dimensions, the densest first; what lies outside the matrix arrives as
// zeros and is not stored. Rows of a tile are 128 bytes and lie one after the other from an address
// that is a multiple of 1024 on, in the 128-byte swizzle: 16-byte piece c of row r at piece
// c ^ (r % 8). From compute capability 9.0 on.
#ifndef COPPICE_OPS_GPU_MATRIX_BULK_COPY_CUH
#define COPPICE_OPS_GPU_MATRIX_BULK_COPY_CUH

#include "ops/gpu/matrix/barrier.cuh"
#include "ops/gpu/runtime/gpu_map.h"

#ifdef GPU_PLAIN
// A map as plain code reads it, in the place of the driver's.
struct plain_map {
    unsigned char *base;
    uint64_t step[5]; // bytes; step[0]: of a value
    uint32_t size[5]; // values
    uint16_t box[5];  // values of a tile, 1 beyond the map's dimensions
};
static_assert(sizeof(struct plain_map) <= sizeof(gpu_tile_map), "it lies in a map's place");

// A tile between memory and shared memory, two bytes at a time. Returns its bytes.
static __device__ inline uint32_t plain_tile(uint32_t shared, const gpu_tile_map *map,
                                             const int (&first)[5], bool store) {
    const struct plain_map *m = (const struct plain_map *)map;
    const uint32_t twos = (uint32_t)m->step[0] / 2;
    uint32_t all = twos;
    for (int d = 0; d < 5; d++)
        all *= m->box[d];
    for (uint32_t i = 0; i < all; i++) {
        unsigned char *from = m->base + i % twos * 2;
        uint32_t rest = i / twos, to = shared + i * 2;
        bool inside = true;
        for (int d = 0; d < 5; d++) {
            const int64_t at = first[d] + (int64_t)(rest % m->box[d]);
            rest /= m->box[d];
            inside = inside && at >= 0 && at < m->size[d];
            from += at * (int64_t)m->step[d];
        }
        uint16_t *place = (uint16_t *)shared_pointer(to ^ (to >> 7 & 7) << 4);
        if (!store)
            *place = inside ? *(const uint16_t *)from : 0;
        else if (inside)
            *(uint16_t *)from = *place;
    }
    return all * 2;
}
#endif

// `bytes` from global memory, which like both places are a multiple of 16.
static __device__ __forceinline__ void copy_bulk(uint32_t to, const void *from, uint32_t bytes,
                                                 uint32_t bar) {
#ifdef GPU_PLAIN
    for (uint32_t i = 0; i < bytes; i += 4)
        *(uint32_t *)shared_pointer(to + i) = *(const uint32_t *)((const char *)from + i);
    plain_arrive(bar, 0, 0u - bytes);
#else
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar)
                 : "memory");
#endif
}

// Has `bytes` (a multiple of 16) come to the second-level cache.
static __device__ __forceinline__ void prefetch_bulk(const void *from, uint32_t bytes) {
#ifdef GPU_PLAIN
    (void)from, (void)bytes;
#else
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

// A tile of a map of two, three or five dimensions.
static __device__ __forceinline__ void tile_copy(uint32_t to, const gpu_tile_map *map, int x, int y,
                                                 uint32_t bar) {
#ifdef GPU_PLAIN
    plain_arrive(bar, 0, 0u - plain_tile(to, map, {x, y, 0, 0, 0}, false));
#else
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(x), "r"(y)
                 : "memory");
#endif
}
static __device__ __forceinline__ void tile_copy(uint32_t to, const gpu_tile_map *map, int x, int y,
                                                 int z, uint32_t bar) {
#ifdef GPU_PLAIN
    plain_arrive(bar, 0, 0u - plain_tile(to, map, {x, y, z, 0, 0}, false));
#else
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(x), "r"(y), "r"(z)
                 : "memory");
#endif
}
static __device__ __forceinline__ void tile_copy(uint32_t to, const gpu_tile_map *map,
                                                 const int (&at)[5], uint32_t bar) {
#ifdef GPU_PLAIN
    plain_arrive(bar, 0, 0u - plain_tile(to, map, at, false));
#else
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4])
                 : "memory");
#endif
}

// Has a map come to where the copy engine reads it.
static __device__ __forceinline__ void prefetch_map(const gpu_tile_map *map) {
#ifdef GPU_PLAIN
    (void)map;
#else
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
#endif
}

// Stores a tile, of which the thread closes groups and waits for them: until their places in shared
// memory may be written again, or until all is stored. What is stored was shown (show_shared)
// first.
static __device__ __forceinline__ void tile_store(const gpu_tile_map *map, int x, int y,
                                                  uint32_t from) {
#ifdef GPU_PLAIN
    plain_tile(from, map, {x, y, 0, 0, 0}, true);
#else
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
        "r"(x), "r"(y), "r"(from)
        : "memory");
#endif
}
static __device__ __forceinline__ void stores_close(void) {
#ifndef GPU_PLAIN
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}
static __device__ __forceinline__ void stores_read(void) {
#ifndef GPU_PLAIN
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
}
static __device__ __forceinline__ void stores_done(void) {
#ifndef GPU_PLAIN
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}

#endif
