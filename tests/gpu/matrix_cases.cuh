// SPDX-License-Identifier: Apache-2.0
// Every function of src/ops/gpu/matrix, called by one block whose results go to `out`. Compiled
// twice: as instructions (test_matrix.cu) and as plain C++ (matrix_plain.cu, with GPU_PLAIN), which
// must give the same words. Products are of small whole numbers, whose sums are exact in any order.
#ifndef COPPICE_TESTS_GPU_MATRIX_CASES_CUH
#define COPPICE_TESTS_GPU_MATRIX_CASES_CUH

#include "gpu/matrix_cases.h"
#include "ops/gpu/matrix/async_copy.cuh"
#include "ops/gpu/matrix/cluster.cuh"
#include "ops/gpu/matrix/ldmatrix.cuh"
#include "ops/gpu/matrix/wgmma.cuh"

// What a block has; all places are multiples of 1024.
struct case_memory {
    uint4 halves[1024]; // 16 KB of small whole numbers, in rows of 128 bytes
    uint4 arrived[1024];
    uint64_t bars[8];
    uint32_t words[256];
};

// The next `n` words of each thread's results.
struct case_out {
    uint32_t *at;

    __device__ void put(uint32_t v) {
        at[threadIdx.x] = v;
        at += CASE_THREADS;
    }
    __device__ void put(float v) {
        put(__float_as_uint(v));
    }
    template <int N> __device__ void put_all(const float (&v)[N]) {
        for (int i = 0; i < N; i++)
            put(v[i]);
    }
};

static __device__ void try_warps(case_out &o, uint32_t word) {
    const int lane = (int)threadIdx.x % WARP;
    const warp_mask odd = warp_vote(word & 1);
    o.put(odd);
    o.put((uint32_t)warp_any(word % 7 == 0) << 1 | warp_all(word % 7 < 6));
    o.put((uint32_t)mask_count(odd) << 16 | (uint32_t)mask_before(odd, lane) << 8 |
          (uint32_t)(mask_first(odd) + 1));
    o.put(warp_from(word, lane * 5 % WARP));
    o.put(warp_across(word, 9));
    o.put(warp_below(word, 3));
    o.put(warp_sum((float)(word % 100)));
    o.put(warp_max<8>((float)(word % 100)));
    o.put(warp_largest(word));
    o.put((uint32_t)warp_largest((int)word));
}

static __device__ void try_threads(case_out &o, uint32_t word, uint32_t *global, case_memory &m) {
    o.put(pick_bytes(word, word * 3, word >> 3));
    o.put(and_or(word, 0x0F0F0F0F, 0x40404040));
    o.put(xor_and(word, word * 5, 0x00FF00FF));
    o.put((uint32_t)made_again((int)word));
    const uint4 v = load_shared16(shared_address(&m.halves[threadIdx.x]));
    o.put(v.x ^ v.y * 3 ^ v.z * 5 ^ v.w * 7);
    prefetch_line(global);
    store_relaxed(global + 2 * threadIdx.x, (uint64_t)word << 32 | threadIdx.x);
    o.put((uint32_t)(load_relaxed(global + 2 * threadIdx.x) >> 32));
    o.put((uint32_t)load_here(global + 2 * threadIdx.x));
}

// Fragments of a and b from shared memory, and their products.
static __device__ void try_products(case_out &o, case_memory &m) {
    const int lane = (int)threadIdx.x % WARP;
    const uint32_t base = shared_address(m.halves) + threadIdx.x / WARP * 2048;
    uint32_t a[4], b[4];
    load_four(a, base + (uint32_t)(lane % 16 * 128 + lane / 16 * 16));
    load_four_turned(b, base + (uint32_t)(lane % 16 * 128 + 32 + lane / 16 * 16));
    for (int i = 0; i < 4; i++) {
        o.put(a[i]);
        o.put(b[i]);
    }
    float c[4] = {1, 2, 3, 4};
    mma_k8(c, a, b[0]);
    o.put_all(c);
#if __CUDA_ARCH__ >= 800
    mma_k16(c, a, b[0], b[1]);
    o.put_all(c);
#endif
#if __CUDA_ARCH__ >= 900
    const uint32_t to = shared_address(m.arrived) + threadIdx.x / WARP * 2048;
    store_four(to + (uint32_t)(lane % 16 * 128 + lane / 16 * 16), a);
    store_two_turned(to + (uint32_t)(lane % 16 * 128 + 32), b[0], b[1]);
    __syncthreads();
    for (int i = 0; i < 4; i++)
        o.put(*(const uint32_t *)shared_pointer(to +
                                                (uint32_t)(lane / 2 * 128 + lane % 2 * 4 + i * 8)));
    o.put(*(const uint32_t *)shared_pointer(to + (uint32_t)(lane / 2 * 128 + lane % 2 * 4 + 32)));
#endif
    __syncthreads();
}

// A word of each thread's 16 bytes of what has arrived.
static __device__ void put_arrived(case_out &o, const case_memory &m) {
    const uint4 v = m.arrived[threadIdx.x];
    o.put(v.x ^ v.y * 3 ^ v.z * 5 ^ v.w * 7);
    __syncthreads();
}

static __device__ void try_copies(case_out &o, const uint32_t *in, case_memory &m) {
#if __CUDA_ARCH__ >= 800
    const uint32_t to = shared_address(&m.arrived[threadIdx.x]);
    const uint32_t *from = in + threadIdx.x * 4;
    copy_piece(to, from);
    copies_close();
    copies_wait<0>();
    put_arrived(o, m);
    copy_once(to, from + 512);
    copies_close();
    copies_wait<0>();
    put_arrived(o, m);
    copy_piece_if(to, from, threadIdx.x % 3 != 0);
    copies_close();
    copies_wait<0>();
    put_arrived(o, m);
    copy_floats<true>(&((float4 *)m.arrived)[threadIdx.x], (const float *)from,
                      (int)threadIdx.x % 2 * 4);
    copies_wait_all();
    put_arrived(o, m);
    copy_floats<false>(&((float4 *)m.arrived)[threadIdx.x], (const float *)from + 1,
                       (int)threadIdx.x % 6);
    copies_wait_all();
    put_arrived(o, m);
#endif
}

// Barriers in shared memory: two phases of threads, then of copies; numbered ones.
static __device__ void try_barriers(case_out &o, const uint32_t *in, case_memory &m) {
#if __CUDA_ARCH__ >= 800
    const uint32_t bar = shared_address(m.bars), other = bar + 8;
    const int t = (int)threadIdx.x, warp = t / WARP;
    if (t == 0) {
        barrier_init(bar, CASE_THREADS);
        barrier_init(other, CASE_THREADS);
    }
    __syncthreads();
    for (uint32_t phase = 0; phase < 2; phase++) {
        m.words[t] = (uint32_t)t * 3 + phase;
        barrier_arrive(bar);
        barrier_wait(bar, phase);
        o.put(m.words[CASE_THREADS - 1 - t]);
        __syncthreads();
    }
    copy_piece(shared_address(&m.arrived[t]), in + t * 4);
    barrier_follow(other);
    barrier_wait(other, 0);
    put_arrived(o, m);
    if (warp < 2) { // one says, the other waits
        if (warp == 0) {
            m.words[t] = (uint32_t)t + 77;
            __threadfence_block();
            warps_come<2 * WARP>(1);
        } else {
            warps_meet<2 * WARP>(1);
        }
        warps_meet<2 * WARP>(2);
        o.put(m.words[t % WARP]);
    } else {
        lanes_meet<2 * WARP>(3);
        const bool missed = lanes_all<4, 2 * WARP>(t != 70);
        o.put((uint32_t)missed << 1 | lanes_all<4, 2 * WARP>(t != 7));
    }
    __syncthreads();
#endif
}

static __device__ void try_bulk(case_out &o, const uint32_t *in, const case_maps &maps,
                                case_memory &m) {
#if __CUDA_ARCH__ >= 900
    const uint32_t bar = shared_address(m.bars + 2), to = shared_address(m.arrived);
    if (threadIdx.x == 0) {
        barrier_init(bar, 1);
        barriers_ready();
        show_shared();
        prefetch_bulk(in, 1024);
        prefetch_map(&maps.two);
    }
    __syncthreads();
    for (uint32_t i = 0; i < 5; i++) {
        if (threadIdx.x == 0) {
            barrier_expect(bar, 2048);
            if (i == 0)
                copy_bulk(to, in, 2048, bar);
            else if (i == 1)
                tile_copy(to, &maps.two, 64, 5, bar);
            else if (i == 2)
                tile_copy(to, &maps.three, 0, 58, 1, bar); // past the last row
            else if (i == 3)
                tile_copy(to, &maps.five, {0, 8, 1, 0, 0}, bar);
            else
                cluster_tile_copy<1>(to, &maps.two, 0, 11, bar);
        }
        barrier_wait(bar, i % 2);
        put_arrived(o, m);
    }
    m.arrived[threadIdx.x] = make_uint4(threadIdx.x, threadIdx.x * 3, 5, 7);
    show_shared();
    __syncthreads();
    if (threadIdx.x == 0) {
        tile_store(&maps.to, 64, 54, to); // ten rows are there
        stores_close();
        stores_read();
        stores_done();
    }
    __syncthreads();
    // A cluster of one block.
    cluster_arrive();
    cluster_wait();
    cluster_meet();
    o.put(cluster_rank() + 10 * cluster_size());
    cluster_store((float *)&m.words[threadIdx.x], cluster_rank(), (float)threadIdx.x);
    if (threadIdx.x == 0)
        cluster_arrive_at(bar, cluster_rank());
    barrier_wait(bar, 1);
    cluster_meet();
    o.put(m.words[threadIdx.x ^ 1]);
    cluster_store((float2 *)&m.arrived[threadIdx.x], cluster_rank(),
                  make_float2((float)threadIdx.x, 3.0f));
    cluster_meet();
    put_arrived(o, m);
#endif
}

static __device__ void try_wgmma(case_out &o, case_memory &m) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    const int lane = (int)threadIdx.x % WARP;
    const uint32_t base = shared_address(m.halves);
    uint32_t a[4];
    load_four(a, base + threadIdx.x / WARP * 2048 + (uint32_t)(lane % 16 * 128 + lane / 16 * 16));
    show_shared();
    __syncthreads();
    const uint64_t rows = wgmma_operand(wgmma_low(base) + 2),
                   turned = wgmma_operand(wgmma_low(base + 2048, 8192));
    float d[64], e[64], f[64], g[48];
    for (int i = 0; i < 64; i++)
        d[i] = e[i] = f[i] = (float)i;
    for (int i = 0; i < 48; i++)
        g[i] = (float)i;
    wgmma_keep(a);
    wgmma_fence();
    wgmma_step<128>(d, a, rows);
    wgmma_step<128, true>(e, a, turned);
    wgmma_both<128>(f, wgmma_rows((const char *)m.halves + 32), rows);
    wgmma_both_if<96, true>(g, turned, rows, 0);
    wgmma_both_if<96, true>(g, turned, rows, 1);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_made(d);
    wgmma_made(e);
    wgmma_made(f);
    wgmma_made(g);
    o.put_all(d);
    o.put_all(e);
    o.put_all(f);
    o.put_all(g);
#else
    (void)o, (void)m;
#endif
}

static __global__ void try_all(const uint32_t *in, const __grid_constant__ case_maps maps,
                               uint32_t *global, uint32_t *out) {
    extern __shared__ __align__(1024) unsigned char memory[];
    case_memory &m = *(case_memory *)memory;
    case_out o = {out};
    gpu_await();
    gpu_let_next();
    gpu_let_ahead();
    for (int i = (int)threadIdx.x; i < 1024; i += CASE_THREADS)
        m.halves[i] = ((const uint4 *)in)[i];
    __syncthreads();
    const uint32_t word = in[threadIdx.x * 11] * 2654435761u + threadIdx.x;
    try_warps(o, word);
    try_threads(o, word, global, m);
    try_products(o, m);
    try_copies(o, in, m);
    try_barriers(o, in, m);
    try_bulk(o, in, maps, m);
    try_wgmma(o, m);
}

// What is near: 2^-x and 1 / (1 + x) of x = i / 1024.
static __global__ void try_near(float *out, int n) {
    for (int i = (int)threadIdx.x; i < n; i += CASE_THREADS) {
        out[2 * i] = exp2_near((float)-i / 1024.0f);
        out[2 * i + 1] = inverse_near(1.0f + (float)i / 1024.0f);
    }
}

static void start_cases(const case_arrays &a, const case_maps &maps) {
    gpu_set_shared(try_all, sizeof(case_memory));
    try_all<<<1, CASE_THREADS, sizeof(case_memory)>>>(a.in, maps, a.global, a.out);
    try_near<<<1, CASE_THREADS>>>(a.near, CASE_NEAR);
}

#endif
