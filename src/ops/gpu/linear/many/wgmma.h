// SPDX-License-Identifier: Apache-2.0
// The many-rows path of linear layers on sm_90a (wgmma.cu). Internal to this folder.
#ifndef COPPICE_OPS_GPU_LINEAR_MANY_WGMMA_H
#define COPPICE_OPS_GPU_LINEAR_MANY_WGMMA_H

#include "ops/gpu/linear/launch.h"
#include "ops/gpu/runtime/ops_cuda.h"

// Queues the jobs of l (no pairs; F32) for l->n rows: the same bits as the kernels of
// mma.sync make. Fills in `first` of each job.
void linear_wgmma_launch(struct gpu *g, struct linear_launch *l);

#endif
