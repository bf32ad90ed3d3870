// SPDX-License-Identifier: Apache-2.0
// Weights as plain rows of fp16 in memory, for products of very many rows (unpack.cu), and
// how the jobs of a call are cut to what fits. Internal to this folder.
#ifndef COPPICE_OPS_GPU_LINEAR_MANY_UNPACK_H
#define COPPICE_OPS_GPU_LINEAR_MANY_UNPACK_H

#include "ops/gpu/linear/launch.h"
#include "ops/gpu/runtime/ops_cuda.h"

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

#endif
