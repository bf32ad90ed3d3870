// SPDX-License-Identifier: Apache-2.0
// The smallest kernel: run once when a GPU is opened, because only running one shows whether the
// driver accepts what this program was built for.
#include "ops/cuda/cuda.h"

static __global__ void probe(int *out) {
    *out = (int)(blockIdx.x + threadIdx.x) + 1;
}

extern "C" gpu_error gpu_probe(struct gpu *g) {
    int *device = NULL, host = 0;
    gpu_error code = gpu_malloc((void **)&device, sizeof *device);
    if (code != GPU_OK)
        return code;
    probe<<<1, 1, 0, g->stream>>>(device);
    code = gpu_last_error();
    if (code == GPU_OK)
        code = gpu_to_host(&host, device, sizeof host, g->stream);
    if (code == GPU_OK)
        code = gpu_stream_wait(g->stream);
    gpu_free(device);
    return code == GPU_OK && host != 1 ? GPU_NO_KERNEL : code;
}
