// SPDX-License-Identifier: Apache-2.0
// Linear layers of a prompt's many rows on sm_90a (linear_gemm.cu). Internal to this folder.
#ifndef COPPICE_OPS_GPU_LINEAR_MANY_LINEAR_GEMM_H
#define COPPICE_OPS_GPU_LINEAR_MANY_LINEAR_GEMM_H

#include "ops/gpu/linear/linear_launch.h"
#include "ops/gpu/runtime/ops_cuda.h"

// Whether there is a kernel for weights of this form, and the device can run it.
bool linear_gemm_takes(const struct gpu *g, int form);

// Queues the jobs of l (all of one form, pairs or not) for l->n rows: the same bits as the kernels
// of mma.sync make. Fills in `first` of each job.
void linear_gemm_launch(struct gpu *g, int form, struct linear_launch *l);

#endif
