// SPDX-License-Identifier: Apache-2.0
// Linear layers of a prompt's very many rows on sm_90a, for which weights are unpacked to memory
// first (linear_unpacked.cu). Internal to this folder.
#ifndef COPPICE_OPS_GPU_LINEAR_MANY_LINEAR_UNPACKED_H
#define COPPICE_OPS_GPU_LINEAR_MANY_LINEAR_UNPACKED_H

#include "ops/gpu/linear/linear_launch.h"
#include "ops/gpu/runtime/ops_cuda.h"

// Bytes of scratch that weights of `rows` rows of up to k values take, at most UNPACKED_BYTES.
static inline size_t linear_unpacked_bytes(int64_t rows, int64_t k) {
    int64_t bytes = rows * ((k + ACT_ALIGN - 1) / ACT_ALIGN * ACT_ALIGN) * 2;
    return (size_t)(bytes < UNPACKED_BYTES ? bytes : (int64_t)UNPACKED_BYTES);
}

// Queues the jobs of l, of any forms that it takes, pairs or not, for l->n rows: the same bits as
// the kernels of mma.sync make. Uses scratch memory, and uses up l.
void linear_unpacked_launch(struct gpu *g, struct linear_launch *l);

#endif
