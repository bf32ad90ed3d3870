// SPDX-License-Identifier: Apache-2.0
// The smallest kernel: run once when a GPU is opened, because only running one shows whether the
// driver accepts what this program was built for.
#include "ops/gpu/runtime/cuda.h"

// Writes the architecture that it was compiled for.
static __global__ void probe(int *out) {
#ifdef __CUDA_ARCH__
    *out = __CUDA_ARCH__ + (int)(blockIdx.x + threadIdx.x);
#else
    (void)out;
#endif
}

extern "C" gpu_error gpu_probe(struct gpu *g, int *code) {
    int *device = NULL, host = 0;
    gpu_error rc = gpu_malloc((void **)&device, sizeof *device);
    if (rc != GPU_OK)
        return rc;
    probe<<<1, 1, 0, g->stream>>>(device);
    rc = gpu_last_error();
    if (rc == GPU_OK)
        rc = gpu_to_host(&host, device, sizeof host, g->stream);
    if (rc == GPU_OK)
        rc = gpu_stream_wait(g->stream);
    gpu_free(device);
    *code = host;
    return rc == GPU_OK && host <= 0 ? GPU_NO_KERNEL : rc;
}
