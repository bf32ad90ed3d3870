// SPDX-License-Identifier: Apache-2.0
// Kernels behind linear layers that have a form of their own: biases, and gate and up by any
// activation. Internal to src/ops/gpu.
#ifndef COPPICE_OPS_GPU_LINEAR_FORM_VALUES_H
#define COPPICE_OPS_GPU_LINEAR_FORM_VALUES_H

#include "ops/args_mlp.h"
#include "ops/gpu/runtime/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

// out[n][stride] = activation(gate + bias, up + bias) of [n][m]; w: biases and activation alone.
// ids: experts of the rows, whose biases they are; NULL: biases of one matrix.
void values_join(struct gpu *g, const struct gate_up *w, const int32_t *ids, const float *gate,
                 const float *up, int64_t n, int64_t m, float *out, int64_t stride);
// The biases of the jobs that have one.
void values_add_biases(struct gpu *g, const struct linear_job *jobs, int n_jobs, int64_t n);

#ifdef __cplusplus
}
#endif

#endif
