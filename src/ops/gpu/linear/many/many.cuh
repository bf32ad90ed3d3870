// SPDX-License-Identifier: Apache-2.0
// What the two kernels for many rows on sm_90a share (gemm.cu, unpacked.cu): the
// shape of a block, and how its registers are divided among those who bring and those who multiply.
// A block has four warps that bring and two warpgroups that multiply, 64 outputs each. Owns no
// kernel.
#ifndef COPPICE_OPS_GPU_LINEAR_MANY_MANY_CUH
#define COPPICE_OPS_GPU_LINEAR_MANY_MANY_CUH

#include "ops/gpu/linear/many/ends.cuh"
#include "ops/gpu/linear/many/shared.cuh"
#include "ops/gpu/runtime/barrier.cuh"
#include "ops/gpu/runtime/gpu_map.h"

enum {
    STEP = 64,    // k of a stage
    BRINGERS = 4, // warps
    MULTIPLIERS = 8,
    THREADS = (BRINGERS + MULTIPLIERS) * 32,
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <int N> static __device__ __forceinline__ void set_registers_down(void) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> static __device__ __forceinline__ void set_registers_up(void) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

// Which multiplying warpgroup a thread is in: the same in all lanes of a warp, so that descriptors
// are made once a warp, beside the other instructions.
static __device__ __forceinline__ int multiplying_group(void) {
    return __shfl_sync(0xFFFFFFFFu, (int)threadIdx.x / 128, 0) - BRINGERS / 4;
}

// Starts the copy of a tile of a mapped matrix: values k.. of rows row.. (zeros beyond the last).
static __device__ __forceinline__ void copy_rows(uint32_t to, const gpu_tile_map *map, int k,
                                                 int row, uint32_t bar) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(k), "r"(row)
                 : "memory");
}

// Fragments of 16 outputs x 16 of k to shared memory, a lane's row at `to`.
static __device__ __forceinline__ void store_matrices(uint32_t to, const uint32_t (&a)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
                 : "memory");
}
#endif

#endif
