// SPDX-License-Identifier: Apache-2.0
// The attention kernel for many rows (long.cu), between attend.cu that chooses and itself.
#ifndef COPPICE_OPS_GPU_ATTEND_LONG_H
#define COPPICE_OPS_GPU_ATTEND_LONG_H

#include "ops/attend_plan.h"
#include "ops/gpu/runtime/cuda.h"

struct attend_run;

enum { LONG_PAIRS = 128, LONG_TILES = LONG_PAIRS / ATTEND_TILE }; // of an item, at most

#ifdef __cplusplus
extern "C" {
#endif
// Bytes of scratch memory beside what else a call needs, on any device: folded values of heads of
// 256, which do not fit into a block.
size_t attend_long_bytes(int head_dim);
// Queues ATTEND_WHOLE items of up to LONG_TILES tiles over F16 keys and values, heads of 128 or
// 256, with the bits of attend_matrix.
void attend_long(struct gpu *g, const struct attend_run *u, const struct attend_plan *p);
#ifdef __cplusplus
}
#endif

#endif
