// SPDX-License-Identifier: Apache-2.0
// Barriers within a block: in shared memory, which threads and copies arrive at and any thread may
// wait for (mbarrier, 8 bytes aligned to 8; sm_80 and newer); numbered ones of some warps of a
// block (1 to 15; __syncthreads is 0), and the registers that such warps give each other. Who waits
// for what is the caller's.
#ifndef COPPICE_OPS_GPU_MATRIX_BARRIER_CUH
#define COPPICE_OPS_GPU_MATRIX_BARRIER_CUH

#include "ops/gpu/matrix/thread.cuh"
#include "ops/gpu/matrix/warp.cuh"

#ifdef GPU_PLAIN
// A barrier as a word: arrivals of a phase (16 bits), those that are missing (16 bits), bytes that
// are missing (31 bits), the phase's parity.
typedef unsigned long long plain_bar;

static __device__ inline void plain_arrive(uint32_t bar, uint32_t arrivals, uint32_t bytes) {
    plain_bar *at = (plain_bar *)shared_pointer(bar), now = *(volatile plain_bar *)at, seen;
    __threadfence_block();
    do {
        seen = now;
        const uint32_t all = (uint32_t)seen & 0xFFFF;
        uint32_t missing = ((uint32_t)seen >> 16) - arrivals;
        const uint32_t left = ((uint32_t)(seen >> 32) + bytes) & 0x7FFFFFFF;
        plain_bar parity = seen >> 63;
        if (missing == 0 && left == 0) {
            parity ^= 1;
            missing = all;
        }
        now = atomicCAS(at, seen, parity << 63 | (plain_bar)left << 32 | missing << 16 | all);
    } while (now != seen);
}

// Numbered barriers: those who have come, and a count of the times that all had; of each block.
enum { PLAIN_BLOCKS = 16384, PLAIN_BARRIERS = 16 };
static __device__ uint32_t plain_meetings[PLAIN_BLOCKS][PLAIN_BARRIERS][2];

static __device__ inline void plain_meet(int id, uint32_t threads, bool wait) {
    const uint32_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    volatile uint32_t *m = plain_meetings[block % PLAIN_BLOCKS][id];
    __syncwarp();
    if (threadIdx.x % WARP == 0) {
        const uint32_t turn = m[1];
        __threadfence();
        if (atomicAdd((uint32_t *)m, WARP) + WARP == threads) {
            m[0] = 0;
            __threadfence();
            m[1] = turn + 1;
        } else if (wait) {
            while (m[1] == turn)
                ;
        }
        __threadfence();
    }
    __syncwarp();
}
#endif

// By one thread, before others use it: a phase ends when `count` have arrived.
static __device__ __forceinline__ void barrier_init(uint32_t bar, uint32_t count) {
#ifdef GPU_PLAIN
    *(volatile plain_bar *)shared_pointer(bar) = count << 16 | count;
#else
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
#endif
}

// What was initialised is known to copies and to the blocks of a cluster; the same thread, before a
// barrier of all. From compute capability 9.0 on.
static __device__ __forceinline__ void barriers_ready(void) {
#ifndef GPU_PLAIN
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

// What the thread wrote before is visible to who waits.
static __device__ __forceinline__ void barrier_arrive(uint32_t bar) {
#ifdef GPU_PLAIN
    plain_arrive(bar, 1, 0);
#else
    asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" ::"r"(bar) : "memory");
#endif
}

// This thread's arrival, and that of `bytes` that are on their way (bulk_copy.cuh). From compute
// capability 9.0 on.
static __device__ __forceinline__ void barrier_expect(uint32_t bar, uint32_t bytes) {
#ifdef GPU_PLAIN
    plain_arrive(bar, 1, bytes);
#else
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
#endif
}

// Copies that this thread has started (async_copy.cuh) arrive at the barrier in its place.
static __device__ __forceinline__ void barrier_follow(uint32_t bar) {
#ifdef GPU_PLAIN
    plain_arrive(bar, 1, 0);
#else
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory");
#endif
}

// Until the phase of that parity has ended; the first has parity 0, and before it counts as ended.
static __device__ __forceinline__ void barrier_wait(uint32_t bar, uint32_t parity) {
#ifdef GPU_PLAIN
    while (*(volatile plain_bar *)shared_pointer(bar) >> 63 == parity)
        ;
    __threadfence_block();
#else
    uint32_t done;
    do {
#if __CUDA_ARCH__ >= 900
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; "
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(bar), "r"(parity)
                     : "memory");
#else
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; "
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(bar), "r"(parity)
                     : "memory");
#endif
    } while (!done);
#endif
}

// All THREADS (whole warps) that use numbered barrier `id` meet: what each wrote before is visible
// to the others. The lanes of a warp call together.
template <int THREADS> static __device__ __forceinline__ void warps_meet(int id) {
#ifdef GPU_PLAIN
    plain_meet(id, THREADS, true);
#else
    asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(THREADS) : "memory");
#endif
}

// Comes to such a meeting without waiting for the others.
template <int THREADS> static __device__ __forceinline__ void warps_come(int id) {
#ifdef GPU_PLAIN
    plain_meet(id, THREADS, false);
#else
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(THREADS) : "memory");
#endif
}

// warps_meet where the lanes of a warp may come one by one.
template <int THREADS> static __device__ __forceinline__ void lanes_meet(int id) {
#ifdef GPU_PLAIN
    plain_meet(id, THREADS, true);
#else
    asm volatile("barrier.sync %0, %1;" ::"r"(id), "n"(THREADS) : "memory");
#endif
}

// lanes_meet that says whether v holds in all of them.
template <int ID, int THREADS> static __device__ __forceinline__ bool lanes_all(bool v) {
#ifdef GPU_PLAIN
    static __shared__ int missed;
    plain_meet(ID, THREADS, true);
    missed = 0;
    plain_meet(ID, THREADS, true);
    if (!v)
        missed = 1;
    plain_meet(ID, THREADS, true);
    return !*(volatile int *)&missed;
#else
    int all;
    asm volatile("{ .reg .pred p, q; setp.ne.s32 p, %1, 0; barrier.red.and.pred q, %2, %3, p; "
                 "selp.s32 %0, 1, 0, q; }"
                 : "=r"(all)
                 : "r"((int)v), "n"(ID), "n"(THREADS)
                 : "memory");
    return all;
#endif
}

// What this thread wrote to shared memory is visible after a barrier to products of a warpgroup
// (wgmma.cuh) and to the copy engine (bulk_copy.cuh), of whichever thread. From sm_90a on.
static __device__ __forceinline__ void show_shared(void) {
#ifndef GPU_PLAIN
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// The same for all that this thread wrote.
static __device__ __forceinline__ void show_all(void) {
#ifndef GPU_PLAIN
    asm volatile("fence.proxy.async;" ::: "memory");
#endif
}

// Of a warpgroup (four warps, from sm_90a on): its threads give back all registers beyond N, or get
// that many, for which it waits. N: a multiple of 8.
template <int N> static __device__ __forceinline__ void registers_down(void) {
#ifndef GPU_PLAIN
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
#endif
}
template <int N> static __device__ __forceinline__ void registers_up(void) {
#ifndef GPU_PLAIN
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

#endif
