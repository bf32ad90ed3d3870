// SPDX-License-Identifier: Apache-2.0
// The order of launches: how a kernel that begins early waits for the launches in front of it, and
// lets the next one begin. Devices before compute capability 9.0 do neither, and plain C++ has
// nothing for it: their launches follow each other. What a launch may do in front of its wait, it
// says (ops/launch_order.h).
#ifndef COPPICE_OPS_GPU_MATRIX_LAUNCH_CUH
#define COPPICE_OPS_GPU_MATRIX_LAUNCH_CUH

// Waits until all launches before this one have ended and their writes are visible.
static __device__ __forceinline__ void gpu_await(void) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && !defined(GPU_PLAIN)
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// From here on blocks of the next launch may take what room this one leaves. Results written by
// this launch, before or after, are still only seen after the next one's gpu_await. Stands after
// gpu_await: so the next one begins when all launches but this one have ended.
static __device__ __forceinline__ void gpu_let_next(void) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && !defined(GPU_PLAIN)
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// The same in front of gpu_await: the next one begins while those before this one still run. The
// launch says so (launch_says.ahead).
static __device__ __forceinline__ void gpu_let_ahead(void) {
    gpu_let_next();
}

#endif
