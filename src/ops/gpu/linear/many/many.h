// SPDX-License-Identifier: Apache-2.0
// Launches of many rows, by family (linear_choice.h): weights decoded on the way into wgmma
// (gemm.cu, of F32 wgmma.cu), or unpacked to memory first (unpack.cu), for wgmma (unpacked.cu) or
// mma.sync (unpacked_mma.cu). Internal to this folder.
#ifndef COPPICE_OPS_GPU_LINEAR_MANY_MANY_H
#define COPPICE_OPS_GPU_LINEAR_MANY_MANY_H

#include "ops/gpu/linear/launch.h"
#include "ops/gpu/runtime/ops_cuda.h"

// Queues the jobs of l (all of one form, not WEIGHT_FLOAT; pairs or not) for l->n
// rows: the same bits as the kernels of mma.sync make. Fills in `first` of each job.
void linear_gemm_launch(struct gpu *g, int form, struct linear_launch *l);

// Queues the jobs of l (no pairs; F32) for l->n rows: the same bits as the kernels of
// mma.sync make. Fills in `first` of each job.
void linear_wgmma_launch(struct gpu *g, struct linear_launch *l);

// Rows that a job's weights have once they are unpacked: whole tiles, those of both of a pair.
int64_t linear_unpacked_rows(const struct linear_one *o);

// Queues the unpacking of a job's weights (not WEIGHT_FLOAT), times their rows' powers of two, to
// rows of `stride` halves (the activations' stride) at `to`: in order; of a pair eights of both
// matrices in turn.
void linear_unpack(struct gpu *g, const struct linear_one *o, void *to, int64_t stride);

// Moves as much of l's jobs as `halves` of memory hold, in order, to c, which has none: whole jobs,
// or the first outputs of one, in tiles of 128. False: nothing is left, or not even 128 outputs fit
// (the fault is set).
bool linear_take(struct gpu *g, struct linear_launch *l, int64_t halves, struct linear_launch *c);

// Bytes of scratch that weights of `rows` rows of up to k values take, at most as many as the path
// unpacks at once.
static inline size_t linear_unpacked_bytes(const struct gpu *g, int64_t rows, int64_t k) {
    const int64_t max = g->path == CUDA_PATH_MMA ? UNPACKED_MMA_BYTES : UNPACKED_BYTES;
    int64_t bytes = rows * ((k + ACT_ALIGN - 1) / ACT_ALIGN * ACT_ALIGN) * 2;
    return (size_t)(bytes < max ? bytes : max);
}

// Queues the jobs of l, of any forms that it takes, pairs or not, for l->n rows: the same bits as
// the kernels of few rows make. Uses scratch memory after the first `kept` bytes, and uses up l.
void linear_unpacked_launch(struct gpu *g, struct linear_launch *l, size_t kept);

// Unpacks the jobs of l, which fit at `to`, and queues their products by mma.sync.
void linear_unpacked_mma_run(struct gpu *g, const struct linear_launch *l, __half *to);

#endif
