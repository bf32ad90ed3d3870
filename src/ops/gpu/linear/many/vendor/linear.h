// SPDX-License-Identifier: Apache-2.0
// Products of a prompt's many rows by the vendor's library, where the user asked for it (vendor.c,
// linear.cu). Its order of sums is its own and may depend on the number of rows, so rule E
// does not hold for what it makes. Internal to this folder.
#ifndef COPPICE_OPS_GPU_LINEAR_MANY_VENDOR_LINEAR_H
#define COPPICE_OPS_GPU_LINEAR_MANY_VENDOR_LINEAR_H

#include "ops/gpu/linear/launch.h"
#include "ops/gpu/runtime/ops_cuda.h"

// For l's one job, a pair, whose outputs become rows of *out, its shape being set: true.
// False where that cannot be done at once, nothing queued, or without memory (the fault is set).
bool linear_vendor_gate_up(struct gpu *g, struct linear_launch *l, const struct act *out);

// Queues the jobs of l, of any forms that it takes, pairs or not, for l->n rows. Uses scratch
// memory, and uses up l.
void linear_vendor_launch(struct gpu *g, struct linear_launch *l);

#endif
