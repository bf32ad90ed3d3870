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

// The same for what a pass reads once, and nobody else before it is read again: weights of few
// rows. They are the first to leave the second-level cache, so that what is read more often stays
// there: instructions and parameters of kernels, activations, keys and values. The policy is a
// constant where it is known, what createpolicy makes: as a value it takes registers and, at each
// copy, two instructions that bring it to those of a descriptor.
static __device__ __forceinline__ void copy_once(uint32_t to, const unsigned char *from) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, 0x12F0000000000000;" ::"r"(to),
        "l"(from)
        : "memory");
#else
    asm volatile("{ .reg .b64 p; createpolicy.fractional.L2::evict_first.b64 p, 1.0; "
                 "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, p; }" ::"r"(to),
                 "l"(from)
                 : "memory");
#endif
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
