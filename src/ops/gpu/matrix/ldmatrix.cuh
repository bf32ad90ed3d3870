// SPDX-License-Identifier: Apache-2.0
// Matrices of 8 x 8 halves between shared memory and the registers of a warp, in the places that
// products (mma.cuh) take them from. A row is 16 bytes, aligned so; rows may lie anywhere: lane
// 8 m + i gives the address of row i of matrix m. Register m of lane l has the halves 2 (l % 4) and
// 2 (l % 4) + 1 of row l / 4 of matrix m; turned, of column l / 4. All lanes of the warp call
// together. What is loaded has been written before a barrier; what is stored is there for others
// after one.
#ifndef COPPICE_OPS_GPU_MATRIX_LDMATRIX_CUH
#define COPPICE_OPS_GPU_MATRIX_LDMATRIX_CUH

#include "ops/gpu/matrix/thread.cuh"
#include "ops/gpu/matrix/warp.cuh"

#ifdef GPU_PLAIN
// Half `column` of row `row` of matrix m, of which lanes gave the rows' addresses.
static __device__ inline uint16_t *plain_place(uint32_t at, int m, int row, int column) {
    return (uint16_t *)shared_pointer(warp_from(at, 8 * m + row)) + column;
}

// The two places of a lane's register m.
static __device__ inline void plain_fragment(uint16_t *(&two)[2], uint32_t at, int m, bool turned) {
    const int own = (int)threadIdx.x % WARP / 4, pair = (int)threadIdx.x % 4 * 2;
    for (int i = 0; i < 2; i++)
        two[i] = turned ? plain_place(at, m, pair + i, own) : plain_place(at, m, own, pair + i);
}
template <int N> static __device__ inline void plain_load(uint32_t *r, uint32_t at, bool turned) {
    uint16_t *two[2];
    for (int m = 0; m < N; m++) {
        plain_fragment(two, at, m, turned);
        r[m] = *two[0] | (uint32_t)*two[1] << 16;
    }
}
template <int N>
static __device__ inline void plain_store(uint32_t at, const uint32_t *r, bool turned) {
    uint16_t *two[2];
    for (int m = 0; m < N; m++) {
        plain_fragment(two, at, m, turned);
        *two[0] = (uint16_t)r[m];
        *two[1] = (uint16_t)(r[m] >> 16);
    }
}
#endif

// Four matrices; the same, turned.
static __device__ __forceinline__ void load_four(uint32_t *r, uint32_t at) {
#ifdef GPU_PLAIN
    plain_load<4>(r, at, false);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
#endif
}
static __device__ __forceinline__ void load_four_turned(uint32_t *r, uint32_t at) {
#ifdef GPU_PLAIN
    plain_load<4>(r, at, true);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
#endif
}

// Stores four matrices; two matrices, turned, of which lanes 0 to 15 give the rows. From compute
// capability 9.0 on.
static __device__ __forceinline__ void store_four(uint32_t at, const uint32_t (&r)[4]) {
#ifdef GPU_PLAIN
    plain_store<4>(at, r, false);
#else
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
#endif
}
static __device__ __forceinline__ void store_two_turned(uint32_t at, uint32_t a, uint32_t b) {
#ifdef GPU_PLAIN
    const uint32_t r[2] = {a, b};
    plain_store<2>(at, r, true);
#else
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(at), "r"(a),
                 "r"(b)
                 : "memory");
#endif
}

#endif
