// SPDX-License-Identifier: Apache-2.0
// Linear layers of a prompt's very many rows, for which weights are unpacked to memory first: by
// wgmma (unpacked.cu) and by mma.sync (unpacked_mma.cu). Internal to this folder.
#ifndef COPPICE_OPS_GPU_LINEAR_MANY_UNPACKED_H
#define COPPICE_OPS_GPU_LINEAR_MANY_UNPACKED_H

#include "ops/gpu/linear/launch.h"
#include "ops/gpu/runtime/ops_cuda.h"

// Bytes of scratch that weights of `rows` rows of up to k values take, at most as many as the path
// unpacks at once.
static inline size_t linear_unpacked_bytes(const struct gpu *g, int64_t rows, int64_t k) {
    const int64_t most = g->path == CUDA_PATH_MMA ? UNPACKED_MMA_BYTES : UNPACKED_BYTES;
    int64_t bytes = rows * ((k + ACT_ALIGN - 1) / ACT_ALIGN * ACT_ALIGN) * 2;
    return (size_t)(bytes < most ? bytes : most);
}

// Queues the jobs of l, of any forms that it takes, pairs or not, for l->n rows: the same bits as
// the kernels of few rows make. Uses scratch memory behind the first `kept` bytes, and uses up l.
void linear_unpacked_launch(struct gpu *g, struct linear_launch *l, size_t kept);

// Unpacks the jobs of l, which fit at `to`, and queues their products by mma.sync.
void linear_unpacked_mma_run(struct gpu *g, const struct linear_launch *l, __half *to);

#endif
