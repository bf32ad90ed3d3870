// SPDX-License-Identifier: Apache-2.0
// Copies from global to shared memory that a thread starts and waits for later. Both places are
// aligned to the bytes of a copy. What a thread has started is there for itself after it waited,
// for others after a barrier that follows. A thread's copies form groups in the order in which it
// closes them; a group may be empty. From compute capability 8.0 on; the plain version copies at
// once.
#ifndef COPPICE_OPS_GPU_MATRIX_ASYNC_COPY_CUH
#define COPPICE_OPS_GPU_MATRIX_ASYNC_COPY_CUH

#include "ops/gpu/matrix/thread.cuh"

// 16 bytes.
static __device__ __forceinline__ void copy_piece(uint32_t to, const void *from) {
#ifdef GPU_PLAIN
    *(uint4 *)shared_pointer(to) = *(const uint4 *)from;
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
#endif
}

// 16 bytes, or zeros unless they are there; `from` is an address that may be read either way.
static __device__ __forceinline__ void copy_piece_if(uint32_t to, const void *from, bool there) {
#ifdef GPU_PLAIN
    *(uint4 *)shared_pointer(to) = there ? *(const uint4 *)from : make_uint4(0, 0, 0, 0);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
#endif
}

// The same of 8 bytes.
static __device__ __forceinline__ void copy_eight_if(uint32_t to, const void *from, bool there) {
#ifdef GPU_PLAIN
    *(uint2 *)shared_pointer(to) = there ? *(const uint2 *)from : make_uint2(0, 0);
#else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from),
                 "r"(there ? 8 : 0)
                 : "memory");
#endif
}

// A float, or zero unless it is there; on any device, at once where there are no such copies.
static __device__ __forceinline__ void copy_float(float *to, const float *from, bool there) {
#if __CUDA_ARCH__ >= 800 && !defined(GPU_PLAIN)
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(there ? 4 : 0));
#else
    *to = there ? *from : 0;
#endif
}

// Four neighbouring floats, zeros beyond the `left` that exist; VEC: they are 16-byte aligned and
// left is 0 or at least 4. On any device.
template <bool VEC>
static __device__ __forceinline__ void copy_floats(float4 *to, const float *from, int left) {
    if (!VEC) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            copy_float((float *)to + i, from + (left > i ? i : 0), left > i);
        return;
    }
#if __CUDA_ARCH__ >= 800 && !defined(GPU_PLAIN)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(left > 0 ? 16 : 0));
#else
    *to = left > 0 ? *(const float4 *)from : make_float4(0, 0, 0, 0);
#endif
}

// copy_piece for what a pass reads once, and no other reader before it is read again: weights of
// few rows. They are the first to leave the second-level cache, so that what is read more often
// stays there: instructions and parameters of kernels, activations, keys and values. The policy is
// a constant where it is known, what createpolicy makes: as a value it takes registers and, at each
// copy, two instructions that bring it to those of a descriptor.
static __device__ __forceinline__ void copy_once(uint32_t to, const void *from) {
#if defined(GPU_PLAIN)
    copy_piece(to, from);
#elif __CUDA_ARCH__ >= 900
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

// What this thread has started since it last closed a group is a group.
static __device__ __forceinline__ void copies_close(void) {
#ifndef GPU_PLAIN
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for all groups but the newest LEFT of this thread.
template <int LEFT> static __device__ __forceinline__ void copies_wait(void) {
#ifndef GPU_PLAIN
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}

// Waits for all that this thread has started, closed or not; on any device.
static __device__ __forceinline__ void copies_wait_all(void) {
#if __CUDA_ARCH__ >= 800 && !defined(GPU_PLAIN)
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

#endif
