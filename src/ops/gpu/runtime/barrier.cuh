// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory (mbarrier), and copies from global memory that arrive at them; rings of
// stages that are filled and used in turn (sm_80 and newer; bulk copies from sm_90). Thin wrappers
// only: who waits for what is the caller's.
#ifndef COPPICE_OPS_GPU_RUNTIME_BARRIER_CUH
#define COPPICE_OPS_GPU_RUNTIME_BARRIER_CUH

#include <stdint.h>

static __device__ __forceinline__ void barrier_init(uint32_t bar, uint32_t count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint32_t bar) {
    asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" ::"r"(bar) : "memory");
}

// Until the phase of that parity has ended.
static __device__ __forceinline__ void barrier_wait(uint32_t bar, uint32_t parity) {
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
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// This thread's arrival, and that of `bytes` that are on their way.
static __device__ __forceinline__ void barrier_expect(uint32_t bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void copy_bulk(uint32_t to, const void *from, uint32_t bytes,
                                                 uint32_t bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar)
                 : "memory");
}
#endif

static __device__ __forceinline__ void copy_piece(uint32_t to, const unsigned char *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// The same for what a pass reads once, and others do not before it is read again: weights of few
// rows. They make room for each other in the second-level cache, so that what small kernels need
// stays there: their instructions, activations, states, keys and values.
static __device__ __forceinline__ void copy_once(uint32_t to, const unsigned char *from) {
    uint64_t first_to_go; // a constant to the assembler
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first_to_go));
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to),
                 "l"(from), "l"(first_to_go)
                 : "memory");
}

// Copies that this thread has started arrive at the barrier in its place.
static __device__ __forceinline__ void barrier_follow(uint32_t bar) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory");
}

// A ring of `n` stages in shared memory; full barriers, and for the shared ring empty ones.
struct stream_ring {
    uint32_t at, bar; // of stage 0; barriers are 8 bytes apart
    int n, slot;
    uint32_t phase;

    __device__ __forceinline__ void step(void) {
        if (++slot == n) {
            slot = 0;
            phase ^= 1;
        }
    }
};

#endif
