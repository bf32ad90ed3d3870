// SPDX-License-Identifier: Apache-2.0
// Values on their own: times a number and capped, biases, and gate and up joined by any activation.
#include "ops/gpu/linear/form/activation.cuh"
#include "ops/gpu/linear/form/values.h"
#include "ops/gpu/runtime/ops_cuda.h"

enum { THREADS = 256, BIASES = 4 };

static __global__ void __launch_bounds__(THREADS) scale_values(struct scale_args a) {
    gpu_await();
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.n)
        return;
    const float v = __ldcg(a.x + i) * a.scale;
    a.x[i] = a.cap > 0 ? a.cap * tanhf(v / a.cap) : v;
}

extern "C" void cuda_scale(struct exec *x, const struct scale_args *a) {
    if (a->n > 0)
        gpu_launch_early(gpu_of(x), "scale", scale_values,
                         (unsigned)((a->n + THREADS - 1) / THREADS), THREADS, 0, *a);
}

static __global__ void __launch_bounds__(THREADS) join_rows(struct values_join a) {
    gpu_await();
    const int64_t i = (int64_t)blockIdx.y * THREADS + threadIdx.x, row = blockIdx.x;
    if (i >= a.m)
        return;
    const int64_t at = (a.ids ? (int64_t)__ldcg(a.ids + row) * a.m : 0) + i;
    float g = __ldcg(a.gate + row * a.gate_stride + i), u = __ldcg(a.up + row * a.up_stride + i);
    g = a.gate_bias ? __fadd_rn(g, a.gate_bias[at]) : g;
    u = a.up_bias ? __fadd_rn(u, a.up_bias[at]) : u;
    a.out[row * a.stride + i] = activated(a.activation, g, u);
}

extern "C" void values_join(struct gpu *g, const struct values_join *a, int64_t n) {
    dim3 grid((unsigned)n, (unsigned)((a->m + THREADS - 1) / THREADS));
    if (n > 0)
        gpu_launch_early(g, "activate", join_rows, grid, THREADS, 0, *a);
}

extern "C" void cuda_activate(struct exec *x, const struct activate_args *a) {
    cuda_act_shape(a->out, a->n, a->k);
    const struct values_join run = {a->gate,       a->up,        a->gate_stride, a->up_stride,
                                    NULL,          NULL,         NULL,           a->k,
                                    a->activation, a->out->wide, a->out->stride};
    values_join(gpu_of(x), &run, a->n);
    if (a->n > 0)
        cuda_act_finish(x, a->out, a->n);
}

struct bias_run {
    struct linear_job job[BIASES];
    int64_t m[BIASES];
};

// Block (row, piece, job).
static __global__ void __launch_bounds__(THREADS)
    add_biases(const __grid_constant__ struct bias_run a) {
    gpu_await();
    const int64_t i = (int64_t)blockIdx.y * THREADS + threadIdx.x, m = a.m[blockIdx.z];
    const struct linear_job &j = a.job[blockIdx.z];
    if (i < m) {
        float *at = j.out + blockIdx.x * m + i;
        *at = __fadd_rn(__ldcg(at), j.bias[i]);
    }
}

extern "C" void values_add_biases(struct gpu *g, const struct linear_job *jobs, int n_jobs,
                                  int64_t n) {
    struct bias_run a = {};
    int64_t max = 0;
    int count = 0;
    for (int j = 0; j < n_jobs; j++) {
        if (jobs[j].bias) {
            a.job[count] = jobs[j];
            a.m[count++] = jobs[j].w->m;
            max = jobs[j].w->m > max ? jobs[j].w->m : max;
        }
        if (n > 0 && count && (count == BIASES || j + 1 == n_jobs)) {
            dim3 grid((unsigned)n, (unsigned)((max + THREADS - 1) / THREADS), (unsigned)count);
            gpu_launch_early(g, "linear (bias)", add_biases, grid, THREADS, 0, a);
            count = 0;
            max = 0;
        }
    }
}
