// SPDX-License-Identifier: Apache-2.0
// The op linear_heads on CUDA (ops.h). Internal to this folder and to the op table.
#ifndef COPPICE_OPS_GPU_MOE_HEADS_H
#define COPPICE_OPS_GPU_MOE_HEADS_H

#include "ops/gpu/runtime/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

void cuda_linear_heads(struct exec *x, const struct heads_args *a);

#ifdef __cplusplus
}
#endif

#endif
