// SPDX-License-Identifier: Apache-2.0
// More names of the runtime (gpu.h): for records in pinned host memory.
#ifndef COPPICE_OPS_GPU_RUNTIME_GPU_HOST_H
#define COPPICE_OPS_GPU_RUNTIME_GPU_HOST_H

#include "ops/gpu/runtime/gpu.h"

// n rows of `width` bytes, which lie `from` bytes apart, to places `to` bytes apart.
#define gpu_rows_to_host(dst, to, src, from, width, n, stream)                                     \
    cudaMemcpy2DAsync((dst), (to), (src), (from), (width), (n), cudaMemcpyDeviceToHost, (stream))
// Where the device sees pinned memory.
#define gpu_host_on_device(out, p) cudaHostGetDevicePointer((out), (p), 0)
// Sets bytes of device memory to a value.
#define gpu_fill(p, value, bytes, stream) cudaMemsetAsync((p), (value), (bytes), (stream))

#endif
