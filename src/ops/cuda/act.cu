// SPDX-License-Identifier: Apache-2.0
// Activations: rows of f32 become fp16 times a power of two of their own, chosen so that the
// largest magnitude lies in [2^14, 2^15). Scaling by a power of two is exact, so fp16's 11 bits are
// the only rounding; linear layers take the power back. One block makes one row, in a fixed order.
#include "ops/cuda/gpu.h"
#include "ops/cuda/ops_cuda.h"

enum { THREADS = 256 };

// Sum or maximum over the block in a fixed tree; every thread gets it.
template <bool MAX> static __device__ float block_reduce(float v) {
    __shared__ float part[THREADS / 32];
    for (int d = 16; d; d /= 2) {
        float o = __shfl_xor_sync(0xFFFFFFFFu, v, d);
        v = MAX ? fmaxf(v, o) : v + o;
    }
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = v;
    __syncthreads();
    v = part[0];
    for (int i = 1; i < THREADS / 32; i++)
        v = MAX ? fmaxf(v, part[i]) : v + part[i];
    __syncthreads();
    return v;
}

// Writes one row: most is its largest magnitude.
template <typename F>
static __device__ void write_row(F value, float most, int64_t k, int64_t stride, __half *x,
                                 float *unscale) {
    int e = most > 0 && most < INFINITY ? 14 - ilogbf(most) : 0;
    e = e > 126 ? 126 : e;
    float scale = ldexpf(1, e);
    for (int64_t i = threadIdx.x; i < stride; i += THREADS)
        x[i] = __float2half_rn(i < k ? value(i) * scale : 0.0f);
    if (threadIdx.x == 0)
        *unscale = ldexpf(1, -e);
}

static __global__ void finish_rows(const float *wide, int64_t step, int64_t k, int64_t stride,
                                   __half *x, float *unscale) {
    gpu_await();
    const float *in = wide + blockIdx.x * step;
    float most = 0;
    for (int64_t i = threadIdx.x; i < k; i += THREADS)
        most = fmaxf(most, fabsf(in[i]));
    most = block_reduce<true>(most);
    write_row([=](int64_t i) { return in[i]; }, most, k, stride, x + blockIdx.x * stride,
              unscale + blockIdx.x);
}

static __global__ void norm_rows(const float *in, const float *w, float eps, int64_t k,
                                 int64_t stride, __half *x, float *unscale) {
    gpu_await();
    in += blockIdx.x * k;
    float sum = 0, most = 0;
    for (int64_t i = threadIdx.x; i < k; i += THREADS) {
        sum = fmaf(in[i], in[i], sum);
        most = fmaxf(most, fabsf(in[i] * w[i]));
    }
    sum = block_reduce<false>(sum);
    most = block_reduce<true>(most);
    float factor = 1.0f / sqrtf(sum / (float)k + eps);
    write_row([=](int64_t i) { return in[i] * factor * w[i]; }, most * factor, k, stride,
              x + blockIdx.x * stride, unscale + blockIdx.x);
}

// One warp a head; rows go to the wide form at `wide`.
static __global__ void gated_norm(struct gated_norm_args a, float *wide, int64_t stride) {
    gpu_await();
    int64_t h = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (h >= a.n * a.heads)
        return;
    int lane = threadIdx.x % 32;
    const float *in = a.in + h * a.dv, *z = a.z + h * a.dv;
    float sum = 0;
    for (int i = lane; i < a.dv; i += 32)
        sum = fmaf(in[i], in[i], sum);
    for (int d = 16; d; d /= 2)
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, d);
    float factor = 1.0f / sqrtf(sum / (float)a.dv + a.eps);
    float *out = wide + h / a.heads * stride + h % a.heads * a.dv;
    for (int i = lane; i < a.dv; i += 32)
        out[i] = in[i] * factor * a.w[i] * (z[i] / (1.0f + expf(-z[i])));
}

extern "C" void cuda_act_shape(struct act *a, int64_t n, int64_t k) {
    (void)n;
    a->k = k;
    a->stride = (k + ACT_ALIGN - 1) / ACT_ALIGN * ACT_ALIGN;
}

extern "C" void cuda_act_finish(struct exec *x, struct act *a, int64_t n) {
    struct gpu *g = gpu_of(x);
    if (n)
        gpu_launch_early(g, "act_finish", finish_rows, (unsigned)n, THREADS, 0, a->wide, a->stride,
                         a->k, a->stride, (__half *)a->x, a->unscale);
}

extern "C" void cuda_to_act(struct exec *x, const float *in, int64_t n, int64_t k,
                            struct act *out) {
    struct gpu *g = gpu_of(x);
    cuda_act_shape(out, n, k);
    if (n)
        gpu_launch_early(g, "to_act", finish_rows, (unsigned)n, THREADS, 0, in, k, k, out->stride,
                         (__half *)out->x, out->unscale);
}

extern "C" void cuda_norm_to_act(struct exec *x, const float *in, const float *w, float eps,
                                 int64_t n, int64_t k, struct act *out) {
    struct gpu *g = gpu_of(x);
    cuda_act_shape(out, n, k);
    if (n)
        gpu_launch_early(g, "norm_to_act", norm_rows, (unsigned)n, THREADS, 0, in, w, eps, k,
                         out->stride, (__half *)out->x, out->unscale);
}

extern "C" void cuda_gated_norm_to_act(struct exec *x, const struct gated_norm_args *a) {
    struct gpu *g = gpu_of(x);
    int64_t heads = a->n * a->heads;
    cuda_act_shape(a->out, a->n, (int64_t)a->heads * a->dv);
    unsigned blocks = (unsigned)((heads + THREADS / 32 - 1) / (THREADS / 32));
    if (heads)
        gpu_launch_early(g, "gated_norm_to_act", gated_norm, blocks, THREADS, 0, *a, a->out->wide,
                         a->out->stride);
    cuda_act_finish(x, a->out, a->n);
}
