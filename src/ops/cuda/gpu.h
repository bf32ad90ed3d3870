// SPDX-License-Identifier: Apache-2.0
// The one file that names the GPU runtime: the few calls that the backend makes, under neutral
// names, so that another runtime with the same shape (HIP) needs a second block here and nothing
// elsewhere. Usable from C and from .cu files.
#ifndef COPPICE_OPS_CUDA_GPU_H
#define COPPICE_OPS_CUDA_GPU_H

#include <cuda_runtime_api.h>

#ifdef __CUDACC__
#include <cuda_fp16.h>
#endif

typedef cudaStream_t gpu_stream;
typedef cudaEvent_t gpu_event;
typedef cudaError_t gpu_error;
#define gpu_properties struct cudaDeviceProp

#define GPU_OK            cudaSuccess
#define GPU_OUT_OF_MEMORY cudaErrorMemoryAllocation
#define GPU_NO_DEVICE     cudaErrorNoDevice
#define GPU_OLD_DRIVER    cudaErrorInsufficientDriver
#define GPU_NO_KERNEL     cudaErrorNoKernelImageForDevice

#define gpu_error_text cudaGetErrorString
#define gpu_last_error cudaGetLastError

#define gpu_device_count    cudaGetDeviceCount
#define gpu_use_device      cudaSetDevice
#define gpu_get_properties  cudaGetDeviceProperties
#define gpu_memory_info     cudaMemGetInfo
#define gpu_driver_version  cudaDriverGetVersion
#define gpu_runtime_version cudaRuntimeGetVersion

#define gpu_malloc                cudaMalloc
#define gpu_free                  cudaFree
#define gpu_host_malloc(p, bytes) cudaHostAlloc((p), (bytes), cudaHostAllocDefault)
#define gpu_host_free             cudaFreeHost
#define gpu_zero                  cudaMemsetAsync
#define gpu_to_device(dst, src, bytes, stream)                                                     \
    cudaMemcpyAsync((dst), (src), (bytes), cudaMemcpyHostToDevice, (stream))
#define gpu_to_host(dst, src, bytes, stream)                                                       \
    cudaMemcpyAsync((dst), (src), (bytes), cudaMemcpyDeviceToHost, (stream))
#define gpu_on_device(dst, src, bytes, stream)                                                     \
    cudaMemcpyAsync((dst), (src), (bytes), cudaMemcpyDeviceToDevice, (stream))

#define gpu_stream_create(p) cudaStreamCreateWithFlags((p), cudaStreamNonBlocking)
#define gpu_stream_destroy   cudaStreamDestroy
#define gpu_stream_wait      cudaStreamSynchronize
#define gpu_event_create     cudaEventCreate
#define gpu_event_destroy    cudaEventDestroy
#define gpu_event_record     cudaEventRecord
#define gpu_event_wait       cudaEventSynchronize
#define gpu_event_ms         cudaEventElapsedTime

// Lets a kernel use `bytes` of dynamic shared memory (above 48 KiB this must be asked for).
#define gpu_allow_shared(kernel, bytes)                                                            \
    cudaFuncSetAttribute((kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, (bytes))

#endif
