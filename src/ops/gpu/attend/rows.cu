// SPDX-License-Identifier: Apache-2.0
// Ops that move rows of state: head norm, rotary embedding and the K/V store, row copies, and
// copies of K/V positions. One warp makes one head of one row, in a fixed order, so a row's bits
// depend on that row alone. Stored K and V are rounded exactly as the scalar codecs round them.
#include <math.h>

#include "ops/gpu/linear/form/act.cuh"
#include "ops/gpu/runtime/ops_cuda.h"

#include "formats/quant.h"

enum { THREADS = 256, WARPS = THREADS / 32, WARP_VALUES = OPS_HEAD_MAX / 32 };

struct qk_run {
    struct qk_args a;
    struct kv_layout layout;
    const int64_t *pos;
    const struct kv_slot *store;
    const double *freq; // [rope_dims / 2] radians a position
};

static __device__ unsigned short bf16_bits(float x) {
    unsigned bits = __float_as_uint(x);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
        return (unsigned short)(bits >> 16 | 0x40);
    return (unsigned short)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// 32 values, one a lane, as a block of an absolute maximum's scale and codes.
static __device__ void store_q8_0(float x, unsigned char *block, int lane) {
    float d = warp_max(fabsf(x)) / 127.0f;
    float inv = d > 3e-39f ? 1.0f / d : 0.0f;
    if (lane == 0)
        *(__half *)block = __float2half_rn(d);
    block[2 + lane] = (unsigned char)(signed char)roundf(x * inv);
}

// Element i * 32 + lane of a head is x[i].
static __device__ void store_head(const float *x, int dim, uint32_t type, unsigned char *to,
                                  int lane) {
#pragma unroll
    for (int i = 0; i < WARP_VALUES; i++) {
        int at = i * 32 + lane;
        if (i * 32 >= dim)
            break;
        if (type == TYPE_F32)
            ((float *)to)[at] = x[i];
        else if (type == TYPE_F16)
            ((__half *)to)[at] = __float2half_rn(x[i]);
        else if (type == TYPE_BF16)
            ((unsigned short *)to)[at] = bf16_bits(x[i]);
        else
            store_q8_0(x[i], to + i * 34, lane);
    }
}

// RMSNorm and rotation of one head: x[i] = element i * 32 + lane, through the warp's shared row.
static __device__ void norm_rope(const struct qk_args *a, const float *w, const float *cs,
                                 float *row, float *x, int lane) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < WARP_VALUES; i++) {
        if (i * 32 >= a->head_dim)
            break;
        sum = fmaf(x[i], x[i], sum);
    }
    float factor = 1.0f / sqrtf(warp_sum(sum) / (float)a->head_dim + a->eps);
#pragma unroll
    for (int i = 0; i < WARP_VALUES; i++) {
        if (i * 32 >= a->head_dim)
            break;
        x[i] = x[i] * factor * w[i * 32 + lane];
        row[i * 32 + lane] = x[i];
    }
    __syncwarp();
    int pairs = a->rope_dims / 2;
#pragma unroll
    for (int i = 0; i < WARP_VALUES; i++) {
        int at = i * 32 + lane;
        if (i * 32 >= a->rope_dims)
            break;
        if (at < pairs)
            x[i] = x[i] * cs[at] - row[at + pairs] * cs[pairs + at];
        else if (at < 2 * pairs)
            x[i] = x[i] * cs[at - pairs] + row[at - pairs] * cs[at];
    }
}

static __device__ unsigned char *head_at(const struct qk_run *u, int64_t row, bool value,
                                         int head) {
    const struct kv_layout *l = &u->layout;
    const struct kv_slot *s = &u->store[row];
    unsigned char *p = s->page + u->a.layer * l->layer_bytes;
    int64_t at = (int64_t)head * KV_PAGE + s->slot;
    return value ? p + (int64_t)l->n_heads * KV_PAGE * l->k_bytes + at * l->v_bytes
                 : p + at * l->k_bytes;
}

// Where head number h of a row is read: query heads, then key heads, then value heads.
static __device__ const float *head_from(const struct qk_args *a, int queries, int64_t row, int h) {
    if (h < queries)
        return a->q + (row * a->n_heads + h) * a->q_stride;
    h -= queries;
    if (h < a->n_kv)
        return a->k + (row * a->n_kv + h) * a->head_dim;
    return h < 2 * a->n_kv ? a->v + (row * a->n_kv + h - a->n_kv) * a->head_dim : NULL;
}

// Block (row, some heads), one head a warp. Angles come from tables alone, in front of gpu_await.
static __global__ void __launch_bounds__(THREADS) qk_rows(struct qk_run u) {
    __shared__ float cs[OPS_HEAD_MAX], rows[WARPS][OPS_HEAD_MAX];
    const struct qk_args *a = &u.a;
    int64_t i = blockIdx.x;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, pairs = a->rope_dims / 2;
    int queries = a->q ? a->n_heads : 0, h = blockIdx.y * WARPS + warp;
    const float *from = head_from(a, queries, i, h);
    double pos = (double)__ldcg((const long long *)&u.pos[i]);
    for (int t = threadIdx.x; t < pairs; t += THREADS) {
        double s, c;
        sincos(pos * __ldcg(&u.freq[t]), &s, &c);
        cs[t] = (float)c;
        cs[pairs + t] = (float)s;
    }
    gpu_await();
    gpu_let_next();
    float x[WARP_VALUES];
#pragma unroll
    for (int j = 0; j < WARP_VALUES; j++)
        x[j] = from && j * 32 < a->head_dim ? from[j * 32 + lane] : 0.0f;
    __syncthreads();
    if (!from)
        return;
    if (h < queries) {
        norm_rope(a, a->q_norm, cs, rows[warp], x, lane);
        store_head(x, a->head_dim, TYPE_F32,
                   (unsigned char *)(a->q_out + (i * a->n_heads + h) * a->head_dim), lane);
        return;
    }
    h -= queries;
    if (h < a->n_kv) {
        norm_rope(a, a->k_norm, cs, rows[warp], x, lane);
        store_head(x, a->head_dim, u.layout.type_k, head_at(&u, i, false, h), lane);
        return;
    }
    store_head(x, a->head_dim, u.layout.type_v, head_at(&u, i, true, h - a->n_kv), lane);
}

// Angles are products in double precision, as the scalar op takes them, so their sine and cosine
// are the scalar op's up to a last bit, at any position.
extern "C" void cuda_qk_norm_rope_store(struct exec *x, const struct qk_args *a,
                                        const struct rows *r) {
    struct gpu *g = gpu_of(x);
    if (r->n == 0)
        return;
    double freq[OPS_HEAD_MAX / 2];
    int pairs = a->rope_dims / 2;
    for (int i = 0; i < pairs; i++)
        freq[i] = pow((double)a->rope_base, -2.0 * i / a->rope_dims);
    struct qk_run u;
    u.a = *a;
    u.layout = *a->layout;
    u.pos = (const int64_t *)gpu_stage(g, r->pos, (size_t)r->n * sizeof *r->pos);
    u.store = (const struct kv_slot *)gpu_stage(g, a->store, (size_t)r->n * sizeof *a->store);
    u.freq = (const double *)gpu_stage(g, freq, (size_t)pairs * sizeof *freq);
    if (!u.pos || !u.store || !u.freq)
        return;
    int heads = (a->q ? a->n_heads : 0) + 2 * a->n_kv;
    dim3 grid((unsigned)r->n, (unsigned)((heads + WARPS - 1) / WARPS));
    gpu_launch_early(g, "qk_norm_rope_store", qk_rows, grid, THREADS, 0, u);
    g->last = LAST_STORE;
    g->last_store = u.store;
}

// Rows in units of T; block (row, part of the row).
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    copy_units(unsigned char *dst, size_t stride, const unsigned char *src, const int32_t *index,
               size_t units) {
    gpu_await();
    gpu_let_next();
    T *to = (T *)(dst + blockIdx.x * stride);
    const T *from = (const T *)src + (size_t)index[blockIdx.x] * units;
    for (size_t i = (size_t)blockIdx.y * THREADS + threadIdx.x; i < units;
         i += (size_t)gridDim.y * THREADS)
        to[i] = from[i];
}

template <typename T>
static void launch_copy(struct gpu *g, void *dst, size_t stride, const void *src,
                        const int32_t *index, int64_t n, size_t row_bytes) {
    size_t units = row_bytes / sizeof(T), blocks = (units + THREADS - 1) / THREADS;
    dim3 grid((unsigned)n, (unsigned)(blocks < 64 ? blocks : 64));
    gpu_launch_early(g, "copy_rows", copy_units<T>, grid, THREADS, 0, (unsigned char *)dst, stride,
                     (const unsigned char *)src, index, units);
}

extern "C" void cuda_copy_rows(struct exec *x, void *dst, size_t dst_stride, const void *src,
                               const int32_t *index, int64_t n, size_t row_bytes) {
    struct gpu *g = gpu_of(x);
    if (n == 0 || row_bytes == 0)
        return;
    const int32_t *at = (const int32_t *)gpu_stage(g, index, (size_t)n * sizeof *index);
    if (!at)
        return;
    size_t all = (size_t)dst | dst_stride | (size_t)src | row_bytes;
    if (all % 16 == 0)
        launch_copy<uint4>(g, dst, dst_stride, src, at, n, row_bytes);
    else if (all % 4 == 0)
        launch_copy<unsigned>(g, dst, dst_stride, src, at, n, row_bytes);
    else
        launch_copy<unsigned char>(g, dst, dst_stride, src, at, n, row_bytes);
    gpu_check(g, gpu_last_error(), "copy_rows");
}

// Block (position, layer): the K and V rows of all heads, in units of 2 bytes.
static __global__ void __launch_bounds__(THREADS)
    copy_positions(struct kv_layout l, const struct kv_slot *dst, const struct kv_slot *src) {
    gpu_await();
    gpu_let_next();
    struct kv_slot to = dst[blockIdx.x], from = src[blockIdx.x];
    int64_t values = (int64_t)l.n_heads * KV_PAGE * l.k_bytes; // where V begins
    int64_t k = l.k_bytes / 2, v = l.v_bytes / 2;
    unsigned char *t = to.page + blockIdx.y * l.layer_bytes;
    const unsigned char *f = from.page + blockIdx.y * l.layer_bytes;
    for (int64_t i = threadIdx.x; i < l.n_heads * (k + v); i += THREADS) {
        bool value = i >= l.n_heads * k;
        int64_t j = value ? i - l.n_heads * k : i, units = value ? v : k;
        int64_t row = j / units * KV_PAGE, bytes = 2 * units, at = value ? values : 0;
        int64_t in = j % units * 2;
        *(unsigned short *)(t + at + (row + to.slot) * bytes + in) =
            *(const unsigned short *)(f + at + (row + from.slot) * bytes + in);
    }
}

extern "C" void cuda_kv_copy(struct exec *x, const struct kv_layout *l, const struct kv_slot *dst,
                             const struct kv_slot *src, int64_t n) {
    struct gpu *g = gpu_of(x);
    if (n == 0)
        return;
    const struct kv_slot *to = (const struct kv_slot *)gpu_stage(g, dst, (size_t)n * sizeof *dst);
    const struct kv_slot *from = (const struct kv_slot *)gpu_stage(g, src, (size_t)n * sizeof *src);
    if (!to || !from)
        return;
    dim3 grid((unsigned)n, (unsigned)l->n_layers);
    gpu_launch_early(g, "kv_copy", copy_positions, grid, THREADS, 0, *l, to, from);
}
