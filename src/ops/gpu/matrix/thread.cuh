// SPDX-License-Identifier: Apache-2.0
// Instructions of a single thread that C++ has no word for: approximate functions, operations on
// bits, addresses of shared memory, and reads and writes of global memory with an order or a place
// in the caches.
#ifndef COPPICE_OPS_GPU_MATRIX_THREAD_CUH
#define COPPICE_OPS_GPU_MATRIX_THREAD_CUH

#include <stdint.h>

// Shared memory is addressed by 32-bit numbers, which all headers of this folder take.
static __device__ __forceinline__ uint32_t shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}
static __device__ __forceinline__ void *shared_pointer(uint32_t address) {
    return __cvta_shared_to_generic(address);
}

// 2^x, two ulp; exactly 1 at 0 and 0 at -inf; results below 2^-126 are 0.
static __device__ __forceinline__ float exp2_near(float x) {
#ifdef GPU_PLAIN
    float y = exp2f(x);
    return y < 1.17549435e-38f ? 0 : y;
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

// 1 / d, one ulp, for 1 <= d < 2^126.
static __device__ __forceinline__ float inverse_near(float d) {
#ifdef GPU_PLAIN
    return 1.0f / d;
#else
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
    return r;
#endif
}

// Four bytes of b:a, each named by a nibble of `which`: 0 to 7 the byte, 8 to 15 eight copies of
// the highest bit of byte nibble - 8. Also for the host.
static __host__ __device__ __forceinline__ uint32_t pick_bytes(uint32_t a, uint32_t b,
                                                               uint32_t which) {
#if defined(__CUDA_ARCH__) && !defined(GPU_PLAIN)
    uint32_t r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(which));
    return r;
#else
    const uint64_t both = (uint64_t)b << 32 | a;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t byte = (uint32_t)(both >> (which >> 4 * i & 7) * 8 & 255);
        r |= (which >> (4 * i + 3) & 1 ? (byte >> 7) * 255 : byte) << 8 * i;
    }
    return r;
#endif
}

// (v & mask) | more, one instruction even where both are constants; (a ^ b) & mask, likewise. Also
// for the host.
static __host__ __device__ __forceinline__ uint32_t and_or(uint32_t v, uint32_t mask,
                                                           uint32_t more) {
#if defined(__CUDA_ARCH__) && !defined(GPU_PLAIN)
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(r) : "r"(v), "r"(mask), "r"(more));
    return r;
#else
    return (v & mask) | more;
#endif
}
static __host__ __device__ __forceinline__ uint32_t xor_and(uint32_t a, uint32_t b, uint32_t mask) {
#if defined(__CUDA_ARCH__) && !defined(GPU_PLAIN)
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0x28;" : "=r"(r) : "r"(a), "r"(b), "r"(mask));
    return r;
#else
    return (a ^ b) & mask;
#endif
}

// Hides from the compiler where a value comes from, so that what follows from it is made again and
// not kept.
static __device__ __forceinline__ int made_again(int v) {
#ifndef GPU_PLAIN
    asm volatile("" : "+r"(v));
#endif
    return v;
}

// 16 bytes of shared memory.
static __device__ __forceinline__ uint4 load_shared16(uint32_t at) {
#ifdef GPU_PLAIN
    return *(const uint4 *)shared_pointer(at);
#else
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at));
    return v;
#endif
}

// A word of global memory past the first-level cache, where the code stands: it is neither moved
// nor left out.
static __device__ __forceinline__ uint64_t load_here(const void *from) {
#ifdef GPU_PLAIN
    return *(const volatile uint64_t *)from;
#else
    uint64_t v;
    asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(v) : "l"(from));
    return v;
#endif
}

// Words by which blocks of a launch signal each other: whole, seen by all blocks in time, without
// an order among others.
static __device__ __forceinline__ void store_relaxed(void *to, uint64_t v) {
#ifdef GPU_PLAIN
    *(volatile uint64_t *)to = v;
#else
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(v) : "memory");
#endif
}
static __device__ __forceinline__ uint64_t load_relaxed(const void *from) {
#ifdef GPU_PLAIN
    return *(const volatile uint64_t *)from;
#else
    uint64_t v;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(from) : "memory");
    return v;
#endif
}

// Has the line of 128 bytes around p come to the second-level cache.
static __device__ __forceinline__ void prefetch_line(const void *p) {
#ifdef GPU_PLAIN
    (void)p;
#else
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#endif
}

#endif
