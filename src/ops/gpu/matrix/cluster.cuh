// SPDX-License-Identifier: Apache-2.0
// Clusters: neighbouring blocks of a launch that can write each other's shared memory, from compute
// capability 9.0 on; elsewhere, and in the plain version, a block is its own cluster.
#ifndef COPPICE_OPS_GPU_MATRIX_CLUSTER_CUH
#define COPPICE_OPS_GPU_MATRIX_CLUSTER_CUH

#include "ops/gpu/matrix/barrier.cuh"
#include "ops/gpu/matrix/bulk_copy.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && !defined(GPU_PLAIN)
#define GPU_CLUSTERS 1
#endif

// Number of this block in its cluster, and how many there are.
static __device__ __forceinline__ uint32_t cluster_rank(void) {
    uint32_t rank = 0;
#ifdef GPU_CLUSTERS
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    return rank;
}
static __device__ __forceinline__ uint32_t cluster_size(void) {
    uint32_t size = 1;
#ifdef GPU_CLUSTERS
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size));
#endif
    return size;
}

// The two halves of a meeting of all threads of a cluster, which the lanes of a warp call together:
// says that this one is there, then waits for all. What was written before the first is visible
// after the second.
static __device__ __forceinline__ void cluster_arrive(void) {
#ifdef GPU_CLUSTERS
    asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
#endif
}
static __device__ __forceinline__ void cluster_wait(void) {
#if defined(GPU_CLUSTERS)
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#elif defined(GPU_PLAIN)
    __syncthreads();
#endif
}

// Both, where lanes of a warp may come one by one.
static __device__ __forceinline__ void cluster_meet(void) {
#if defined(GPU_CLUSTERS)
    asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
#else
    __syncthreads();
#endif
}

// Stores v at the same place in the shared memory of block `rank` of the cluster.
static __device__ __forceinline__ uint32_t cluster_address(const void *place, uint32_t rank) {
    uint32_t at = shared_address(place), to = at;
#ifdef GPU_CLUSTERS
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(at), "r"(rank));
#endif
    return to;
}
static __device__ __forceinline__ void cluster_store(float *place, uint32_t rank, float v) {
    uint32_t to = cluster_address(place, rank);
#ifdef GPU_CLUSTERS
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(to), "f"(v) : "memory");
#else
    *(float *)shared_pointer(to) = v;
#endif
}
static __device__ __forceinline__ void cluster_store(float2 *place, uint32_t rank, float2 v) {
    uint32_t to = cluster_address(place, rank);
#ifdef GPU_CLUSTERS
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(v.x), "f"(v.y)
                 : "memory");
#else
    *(float2 *)shared_pointer(to) = v;
#endif
}

// Arrives at the same barrier of a block of the cluster. Nothing was written that others could
// read, so it is relaxed: a release at this scope would wait for all memory of the device every
// time.
static __device__ __forceinline__ void cluster_arrive_at(uint32_t bar, uint32_t rank) {
#ifdef GPU_CLUSTERS
    asm volatile("{ .reg .b32 to; mapa.shared::cluster.u32 to, %0, %1; "
                 "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [to]; }" ::"r"(bar),
                 "r"(rank)
                 : "memory");
#else
    (void)rank;
    barrier_arrive(bar);
#endif
}

// tile_copy to the same place of all BLOCKS blocks of the cluster, arriving at the barrier of each.
template <int BLOCKS>
static __device__ __forceinline__ void cluster_tile_copy(uint32_t to, const gpu_tile_map *map,
                                                         int x, int y, uint32_t bar) {
#ifdef GPU_CLUSTERS
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
                 "l"(map), "r"(bar), "r"(x), "r"(y), "h"((unsigned short)((1 << BLOCKS) - 1))
                 : "memory");
#else
    tile_copy(to, map, x, y, bar);
#endif
}

#endif
