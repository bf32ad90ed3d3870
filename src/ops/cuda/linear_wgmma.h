// SPDX-License-Identifier: Apache-2.0
// The many-rows path of linear layers on sm_90a (linear_wgmma.cu). Internal to this folder.
#ifndef COPPICE_OPS_CUDA_LINEAR_WGMMA_H
#define COPPICE_OPS_CUDA_LINEAR_WGMMA_H

#include "ops/cuda/ops_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

// Whether `w` can take this path: every form but WEIGHT_RAW.
bool cuda_wgmma_fits(const struct weight *w);
// out[n][m] = in W^T (or += with add), with k cut into `parts`; queued on the exec's stream. The
// same bits as the mma.sync path.
void cuda_wgmma_linear(struct exec *x, const struct linear_job *job, int parts,
                       const struct act *in, int64_t n);

#ifdef __cplusplus
}
#endif

#endif
