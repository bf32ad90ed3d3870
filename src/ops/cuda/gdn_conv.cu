// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet, first half: gates, the causal convolution along a row's ancestors, SiLU and the
// norms of queries and keys. One warp makes one head of one row, always in the same order, so a
// row's bits depend on its own inputs and its three predecessors only. Owns no state.
#include "ops/cuda/gdn.h"
#include "ops/rowmath.h"

enum { WARPS = 8 };

struct conv_job {
    struct gdn_shape shape;
    struct gdn_conv_args a;
    const struct gdn_state *states; // [GDN_STATES] of sequences first_seq, ...
    const int32_t *parent, *seq;    // [n]
    int first_seq;
};

static __device__ void gates(const struct conv_job &j, int64_t row, int lane) {
    int nv = j.shape.n_v;
    for (int h = lane; h < nv; h += 32) {
        float y = j.a.a[row * nv + h] + j.a.dt_bias[h];
        float softplus = y > 20 ? y : log1pf(expf(y));
        j.a.rows.g[row * nv + h] = j.a.ssm_a[h] * softplus;
        j.a.rows.beta[row * nv + h] = row_sigmoid(j.a.b[row * nv + h]);
    }
}

// The inputs of a row and its three predecessors, oldest first.
static __device__ void taps(const struct conv_job &j, int64_t row, const float *in[GDN_CONV]) {
    const float *old = j.states[j.seq[row] - j.first_seq].conv;
    int64_t channels = j.shape.channels;
    int state = GDN_CONV - 2; // newest committed input
#pragma unroll
    for (int t = GDN_CONV - 1; t >= 0; t--) {
        in[t] = row >= 0 ? j.a.rows.u + row * channels : old + state-- * channels;
        row = row >= 0 ? j.parent[row] : row;
    }
}

static __global__ void __launch_bounds__(WARPS * 32) conv_heads(struct conv_job j) {
    gpu_await();
    const struct gdn_shape &s = j.shape;
    int head = (int)blockIdx.x * WARPS + (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int64_t row = blockIdx.y;
    int seq = j.seq[row] - j.first_seq;
    if (head > 2 * s.n_k + s.n_v || seq < 0 || seq >= GDN_STATES)
        return;
    if (head == 2 * s.n_k + s.n_v) {
        gates(j, row, lane);
        return;
    }
    int part = head < s.n_k ? 0 : head < 2 * s.n_k ? 1 : 2; // q, k, v
    int h = head - part * s.n_k, n = part == 2 ? s.n_v : s.n_k, dim = part == 2 ? s.dv : s.dk;
    int64_t c = (int64_t)part * s.n_k * s.dk + (int64_t)h * dim;
    const struct gdn_rows &r = j.a.rows;
    float *out = (part == 0 ? r.q : part == 1 ? r.k : r.v) + (row * n + h) * dim, sum = 0;
    const float *in[GDN_CONV], *w = j.a.conv_w + c * GDN_CONV;
    taps(j, row, in);
    for (int i = lane; i < dim; i += 32) {
        float x = 0;
#pragma unroll
        for (int t = 0; t < GDN_CONV; t++)
            x = fmaf(w[i * GDN_CONV + t], in[t][c + i], x);
        float y = row_silu(x);
        out[i] = y;
        sum = fmaf(y, y, sum);
    }
    if (part == 2)
        return;
    for (int d = 16; d; d /= 2)
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, d);
    float unit = part == 0 ? 1.0f / sqrtf((float)dim) : 1.0f, scale = unit / sqrtf(sum + 1e-6f);
    for (int i = lane; i < dim; i += 32)
        out[i] *= scale;
}

extern "C" void cuda_gdn_gates_conv(struct exec *x, const struct gdn_conv_args *a,
                                    const struct rows *r) {
    struct gpu *g = gpu_of(x);
    if (!r->n)
        return;
    size_t ids = (size_t)r->n * sizeof(int32_t);
    struct conv_job j = {};
    j.shape = a->shape;
    j.a = *a;
    j.parent = (const int32_t *)gpu_stage(g, r->parent, ids);
    j.seq = (const int32_t *)gpu_stage(g, r->seq, ids);
    int warps = 2 * a->shape.n_k + a->shape.n_v + 1;
    dim3 grid((unsigned)((warps + WARPS - 1) / WARPS), (unsigned)r->n);
    struct gdn_range range = gdn_sequences(r->seq, r->n);
    for (j.first_seq = range.first; j.first_seq < range.stop; j.first_seq += GDN_STATES) {
        j.states = gdn_stage_states(g, a->seqs, j.first_seq, range.stop);
        if (!j.parent || !j.seq || !j.states)
            return;
        gpu_launch_early(g, "gdn_gates_conv", conv_heads, grid, WARPS * 32, 0, j);
    }
}
