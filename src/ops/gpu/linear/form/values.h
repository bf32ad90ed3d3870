// SPDX-License-Identifier: Apache-2.0
// Kernels after linear layers that have a form of their own: biases, and gate and up by any
// activation. Internal to src/ops/gpu.
#ifndef COPPICE_OPS_GPU_LINEAR_FORM_VALUES_H
#define COPPICE_OPS_GPU_LINEAR_FORM_VALUES_H

#include "ops/args/mlp.h"
#include "ops/gpu/runtime/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

// Rows of gate and up to join: out = activation(gate + bias, up + bias).
struct values_join {
    const float *gate, *up; // row i at gate + i * gate_stride, up + i * up_stride
    int64_t gate_stride, up_stride;
    const float *gate_bias, *up_bias; // [m], or of each expert; NULL: none
    const int32_t *ids; // experts of the rows, whose biases they get; NULL: one for all
    int64_t m;
    int activation; // enum activation
    float *out;     // [n][stride]
    int64_t stride;
};
void values_join(struct gpu *g, const struct values_join *a, int64_t n);
// The biases of the jobs that have one.
void values_add_biases(struct gpu *g, const struct linear_job *jobs, int n_jobs, int64_t n);

#ifdef __cplusplus
}
#endif

#endif
