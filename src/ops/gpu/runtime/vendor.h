// SPDX-License-Identifier: Apache-2.0
// The GPU runtime under neutral names: the few calls that the backend makes. The only file that
// names CUDA: another runtime with the same shape (HIP) needs a second one. Usable from C and from
// .cu files. What is asked of the driver by name is not linked.
#ifndef COPPICE_OPS_GPU_RUNTIME_VENDOR_H
#define COPPICE_OPS_GPU_RUNTIME_VENDOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cuda.h>
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
#define GPU_NOT_SUPPORTED cudaErrorNotSupported
#define GPU_NOT_READY     cudaErrorNotReady
#define GPU_INVALID       cudaErrorInvalidValue
#define GPU_UNKNOWN       cudaErrorUnknown

#define gpu_error_text cudaGetErrorString
#define gpu_last_error cudaGetLastError

#define gpu_device_count    cudaGetDeviceCount
#define gpu_use_device      cudaSetDevice
#define gpu_current_device  cudaGetDevice
#define gpu_get_properties  cudaGetDeviceProperties
#define gpu_memory_info     cudaMemGetInfo
#define gpu_driver_version  cudaDriverGetVersion
#define gpu_runtime_version cudaRuntimeGetVersion

#define gpu_malloc                cudaMalloc
#define gpu_free                  cudaFree
#define gpu_host_malloc(p, bytes) cudaHostAlloc((p), (bytes), cudaHostAllocDefault)
#define gpu_host_free             cudaFreeHost
#define gpu_host_pin(p, bytes)    cudaHostRegister((p), (bytes), cudaHostRegisterDefault)
#define gpu_host_unpin            cudaHostUnregister
#define gpu_fill                  cudaMemsetAsync
#define gpu_to_device(dst, src, bytes, stream)                                                     \
    cudaMemcpyAsync((dst), (src), (bytes), cudaMemcpyHostToDevice, (stream))
// A page that is only in host memory is read from there (state/host/kv_host.h).
#define gpu_to_host(dst, src, bytes, stream)                                                       \
    cudaMemcpyAsync((dst), (src), (bytes), cudaMemcpyDefault, (stream))
#define gpu_on_device(dst, src, bytes, stream)                                                     \
    cudaMemcpyAsync((dst), (src), (bytes), cudaMemcpyDeviceToDevice, (stream))
// n rows of `width` bytes, which lie `from` bytes apart, to places `to` bytes apart.
#define gpu_rows_to_host(dst, to, src, from, width, n, stream)                                     \
    cudaMemcpy2DAsync((dst), (to), (src), (from), (width), (n), cudaMemcpyDeviceToHost, (stream))
#define gpu_rows_to_device(dst, to, src, from, width, n, stream)                                   \
    cudaMemcpy2DAsync((dst), (to), (src), (from), (width), (n), cudaMemcpyHostToDevice, (stream))
// Where the device sees pinned memory.
#define gpu_host_on_device(out, p) cudaHostGetDevicePointer((out), (p), 0)

#define gpu_stream_create(p) cudaStreamCreateWithFlags((p), cudaStreamNonBlocking)
#define gpu_stream_destroy   cudaStreamDestroy
#define gpu_stream_wait      cudaStreamSynchronize
#define gpu_event_create     cudaEventCreate
#define gpu_event_destroy    cudaEventDestroy
#define gpu_event_record     cudaEventRecord
#define gpu_event_wait       cudaEventSynchronize
#define gpu_event_ms         cudaEventElapsedTime
// Events that order streams and are not for times.
#define gpu_order_event_create(p)       cudaEventCreateWithFlags((p), cudaEventDisableTiming)
#define gpu_event_query                 cudaEventQuery
#define gpu_stream_after(stream, event) cudaStreamWaitEvent((stream), (event), 0)
#define gpu_kernel_properties           struct cudaFuncAttributes
#define gpu_get_kernel_properties       cudaFuncGetAttributes
#define gpu_set_shared(kernel, bytes)                                                              \
    cudaFuncSetAttribute((kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, (bytes))

// How a kernel is launched: gridDim, blockDim, dynamicSmemBytes, stream, attrs[numAttrs].
#define gpu_launch_config    cudaLaunchConfig_t
#define gpu_launch_attribute cudaLaunchAttribute
#define gpu_launch_kernel    cudaLaunchKernelExC

// The kernel may begin before the one in front of it has ended.
static inline void gpu_let_begin_early(gpu_launch_attribute *a) {
    a->id = cudaLaunchAttributeProgrammaticStreamSerialization;
    a->val.programmaticStreamSerializationAllowed = 1;
}

// So many neighbouring blocks share memory.
static inline void gpu_put_in_clusters(gpu_launch_attribute *a, int blocks) {
    a->id = cudaLaunchAttributeClusterDimension;
    a->val.clusterDim.x = (unsigned)blocks;
    a->val.clusterDim.y = a->val.clusterDim.z = 1;
}

// Puts the driver's function of that name into *to, a pointer to it; false where it has none.
static inline bool gpu_find_driver_call(const char *name, void *to) {
    enum cudaDriverEntryPointQueryResult found;
    void *f = NULL;
    if (cudaGetDriverEntryPointByVersion(name, &f, 12000, cudaEnableDefault, &found) !=
            cudaSuccess ||
        found != cudaDriverEntryPointSuccess)
        return false;
    memcpy(to, &f, sizeof f);
    return true;
}
#define gpu_driver_did(call) ((call) == CUDA_SUCCESS)

// How the copy engine of sm_90 finds tiles of an array (a kernel's parameter), and what makes it.
typedef CUtensorMap gpu_tile_map;
typedef CUresult gpu_map_maker_fn(gpu_tile_map *, CUtensorMapDataType, cuuint32_t, void *,
                                  const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                  const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                  CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
#define GPU_MAP_MAKER  "cuTensorMapEncodeTiled"
#define GPU_MAP_HALVES CU_TENSOR_MAP_DATA_TYPE_FLOAT16
#define GPU_MAP_FLOATS CU_TENSOR_MAP_DATA_TYPE_FLOAT32
#define GPU_MAP_SWIZZLE                                                                            \
    CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, \
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
#define gpu_map_type CUtensorMapDataType

// Virtual memory: addresses, the memory that is mapped to them, what kind it is, who may use it.
typedef CUdeviceptr gpu_address;
typedef CUmemGenericAllocationHandle gpu_piece;
typedef CUmemAllocationProp gpu_piece_kind;
typedef CUmemAccessDesc gpu_piece_access;
struct gpu_virtual_calls {
    CUresult (*grain)(size_t *, const gpu_piece_kind *, CUmemAllocationGranularity_flags);
    CUresult (*reserve)(gpu_address *, size_t, size_t, gpu_address, unsigned long long);
    CUresult (*unreserve)(gpu_address, size_t);
    CUresult (*create)(gpu_piece *, size_t, const gpu_piece_kind *, unsigned long long);
    CUresult (*drop)(gpu_piece);
    CUresult (*map)(gpu_address, size_t, size_t, gpu_piece, unsigned long long);
    CUresult (*unmap)(gpu_address, size_t);
    CUresult (*access)(gpu_address, size_t, const gpu_piece_access *, size_t);
};
#define GPU_LEAST_GRAIN CU_MEM_ALLOC_GRANULARITY_MINIMUM

static inline bool gpu_find_virtual_calls(struct gpu_virtual_calls *c) {
    return gpu_find_driver_call("cuMemGetAllocationGranularity", &c->grain) &&
           gpu_find_driver_call("cuMemAddressReserve", &c->reserve) &&
           gpu_find_driver_call("cuMemAddressFree", &c->unreserve) &&
           gpu_find_driver_call("cuMemCreate", &c->create) &&
           gpu_find_driver_call("cuMemRelease", &c->drop) &&
           gpu_find_driver_call("cuMemMap", &c->map) &&
           gpu_find_driver_call("cuMemUnmap", &c->unmap) &&
           gpu_find_driver_call("cuMemSetAccess", &c->access);
}

// Memory of that device.
static inline gpu_piece_kind gpu_piece_kind_of(int device) {
    gpu_piece_kind p;
    memset(&p, 0, sizeof p);
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = device;
    return p;
}

// To be read and written by the device whose it is.
static inline gpu_piece_access gpu_piece_access_of(const gpu_piece_kind *kind) {
    gpu_piece_access a;
    a.location = kind->location;
    a.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return a;
}

#endif
