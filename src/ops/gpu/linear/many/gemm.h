// SPDX-License-Identifier: Apache-2.0
// Linear layers of a prompt's many rows on sm_90a (gemm.cu). Internal to this folder.
#ifndef COPPICE_OPS_GPU_LINEAR_MANY_GEMM_H
#define COPPICE_OPS_GPU_LINEAR_MANY_GEMM_H

#include "ops/gpu/linear/launch.h"
#include "ops/gpu/runtime/ops_cuda.h"

// Queues the jobs of l (all of one form, not WEIGHT_FLOAT; pairs or not) for l->n
// rows: the same bits as the kernels of mma.sync make. Fills in `first` of each job.
void linear_gemm_launch(struct gpu *g, int form, struct linear_launch *l);

#endif
