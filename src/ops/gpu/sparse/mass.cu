// SPDX-License-Identifier: Apache-2.0
// Attention as a score (ops/args/sparse.h), in f32 and head by head, since the scratch holds one
// row of scores a query: products of all queries with 128 keys a block of threads, which also
// leaves each query's largest score and sum of these keys; then shares under the largest of all,
// which join the masses. Queries are normed once for all, and take over the weights of the keys'
// norm, so that a key costs one factor. No number depends on how many queries there are.
#include <math.h>

#include "ops/gpu/linear/form/act.cuh"
#include "ops/gpu/runtime/ops_cuda.h"

enum {
    KEYS = 128, // of a block of threads
    QUERIES = 64,
    SLICE = 32, // values of a head at a time
    THREADS = 128,
    EACH = 8,     // queries and keys of a thread
    SPAN = 4096,  // keys of a block that adds shares
    ADDERS = 256, // its threads
    MAKERS = 128,
};

struct mass_run {
    struct key_mass_args a;
    float *q;     // [n_heads][n_q][d] normed, scaled to units of log 2
    float2 *part; // [tiles][n_q] largest score, and sum of 2^(score - largest)
    int32_t head, kv, tiles;
};

// Keys that query t sees.
static __device__ __forceinline__ int64_t seen_by(const struct key_mass_args *a, int64_t t) {
    return a->n - a->n_q + t + 1;
}

static __device__ __forceinline__ float block_sum(float v, int warps) {
    __shared__ float part[32];
    v = warp_sum(v);
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = v;
    __syncthreads();
    v = part[0];
    for (int i = 1; i < warps; i++)
        v += part[i];
    return v;
}

// Block (query, head).
static __global__ void __launch_bounds__(MAKERS)
    make_queries(const __grid_constant__ struct mass_run u) {
    const struct key_mass_args *a = &u.a;
    int64_t from = ((int64_t)blockIdx.x * a->n_heads + blockIdx.y) * a->d;
    float *out = u.q + ((int64_t)blockIdx.y * a->n_q + blockIdx.x) * a->d, sum = 0;
    gpu_await();
    gpu_let_next();
    for (int i = threadIdx.x; i < a->d; i += MAKERS)
        sum = fmaf(a->q[from + i], a->q[from + i], sum);
    sum = block_sum(sum, MAKERS / WARP);
    float by = a->scale * 1.44269504f / sqrtf(sum / (float)a->d + a->eps);
    for (int i = threadIdx.x; i < a->d; i += MAKERS)
        out[i] = a->q[from + i] * by * a->q_norm[i] * a->k_norm[i];
}

struct mass_memory {
    float k[SLICE][KEYS + 4], q[SLICE][QUERIES + 4]; // turned
    float inverse[KEYS];
};

// Values at .. at + SLICE - 1 of the block's keys, a key a thread, and of the queries; zeros where
// there is none. Returns the squares of the thread's key.
static __device__ __forceinline__ float load_slice(const struct mass_run *u, int64_t first,
                                                   int64_t query, int at, struct mass_memory *m) {
    const struct key_mass_args *a = &u->a;
    int own = threadIdx.x;
    const float *k = a->k + ((first + own) * a->n_kv + u->kv) * a->d + at;
    float squares = 0;
#pragma unroll 8
    for (int i = 0; i < SLICE; i += 4) {
        float4 x = make_float4(0, 0, 0, 0);
        if (first + own < a->n && at + i < a->d)
            x = *(const float4 *)(k + i);
        squares = fmaf(x.x, x.x, squares);
        squares = fmaf(x.y, x.y, squares);
        squares = fmaf(x.z, x.z, squares);
        squares = fmaf(x.w, x.w, squares);
        m->k[i][own] = x.x;
        m->k[i + 1][own] = x.y;
        m->k[i + 2][own] = x.z;
        m->k[i + 3][own] = x.w;
    }
    int t = own % QUERIES;
    const float *q = u->q + ((int64_t)u->head * a->n_q + query + t) * a->d + at;
    for (int i = own / QUERIES; i < SLICE; i += THREADS / QUERIES)
        m->q[i][t] = query + t < a->n_q && at + i < a->d ? q[i] : 0.0f;
    return squares;
}

// Row t of a thread's scores to the scratch, with its largest and sum.
static __device__ __forceinline__ void put_row(const struct mass_run *u, int64_t t, int64_t key,
                                               float (&s)[EACH]) {
    const struct key_mass_args *a = &u->a;
    bool in = t < a->n_q;
    int64_t seen = in ? seen_by(a, t) : 0;
    float max = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        max = key + i < seen ? fmaxf(max, s[i]) : max;
    max = warp_max<16>(max);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        if (key + i >= seen)
            continue;
        sum += exp2f(s[i] - max);
        a->work[t * a->n + key + i] = s[i];
    }
    sum = warp_sum<16>(sum);
    if (in && threadIdx.x % 16 == 0)
        u->part[(int64_t)blockIdx.x * a->n_q + t] = make_float2(max, sum);
}

// s += products of a slice of the thread's queries and keys.
static __device__ __forceinline__ void add_products(const struct mass_memory *m, int at_k, int at_q,
                                                    float (&s)[EACH][EACH]) {
#pragma unroll 4
    for (int k = 0; k < SLICE; k++) {
        float x[EACH], y[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i += 4) {
            *(float4 *)(x + i) = *(const float4 *)&m->k[k][at_k + i];
            *(float4 *)(y + i) = *(const float4 *)&m->q[k][at_q + i];
        }
#pragma unroll
        for (int i = 0; i < EACH * EACH; i++)
            s[i / EACH][i % EACH] = fmaf(y[i / EACH], x[i % EACH], s[i / EACH][i % EACH]);
    }
}

// Block (128 keys, 64 queries) of one head: a thread has eight of each.
static __global__ void __launch_bounds__(THREADS)
    score_keys(const __grid_constant__ struct mass_run u) {
    __shared__ struct mass_memory m;
    const struct key_mass_args *a = &u.a;
    int64_t first = (int64_t)blockIdx.x * KEYS, query = (int64_t)blockIdx.y * QUERIES;
    int at_k = threadIdx.x % 16 * EACH, at_q = threadIdx.x / 16 * EACH;
    float s[EACH][EACH], squares = 0;
#pragma unroll
    for (int i = 0; i < EACH * EACH; i++)
        s[i / EACH][i % EACH] = 0;
    gpu_await();
    gpu_let_next();
    for (int at = 0; at < a->d; at += SLICE) {
        squares += load_slice(&u, first, query, at, &m);
        __syncthreads();
        add_products(&m, at_k, at_q, s);
        __syncthreads();
    }
    m.inverse[threadIdx.x] = 1.0f / sqrtf(squares / (float)a->d + a->eps);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < EACH; i++) {
#pragma unroll
        for (int j = 0; j < EACH; j++)
            s[i][j] *= m.inverse[at_k + j];
        put_row(&u, query + at_q + i, first + at_k, s[i]);
    }
}

// Block (4,096 keys, query) of one head.
static __global__ void __launch_bounds__(ADDERS)
    add_shares(const __grid_constant__ struct mass_run u) {
    __shared__ float part[ADDERS / WARP];
    const struct key_mass_args *a = &u.a;
    int64_t t = blockIdx.y, seen = seen_by(a, t), begin = (int64_t)blockIdx.x * SPAN;
    int tiles = (int)((seen + KEYS - 1) / KEYS);
    float max = -INFINITY, sum = 0;
    gpu_await();
    gpu_let_next();
    for (int i = threadIdx.x; i < tiles; i += ADDERS)
        max = fmaxf(max, __ldcg(&u.part[i * a->n_q + t]).x);
    max = warp_max(max);
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = max;
    __syncthreads();
    for (int i = 0; i < ADDERS / WARP; i++)
        max = fmaxf(max, part[i]);
    for (int i = threadIdx.x; i < tiles; i += ADDERS) {
        float2 p = __ldcg(&u.part[i * a->n_q + t]);
        sum = fmaf(p.y, exp2f(p.x - max), sum);
    }
    float share = 1.0f / block_sum(sum, ADDERS / WARP);
    const float *work = a->work + t * a->n;
    float *mass = a->mass + t * a->n;
    int64_t end = begin + SPAN < seen ? begin + SPAN : seen;
    for (int64_t j = begin + threadIdx.x; j < end; j += ADDERS)
        mass[j] = fmaxf(mass[j], exp2f(__ldcg(work + j) - max) * share);
}

static int64_t tiles_of(int64_t n) {
    return (n + KEYS - 1) / KEYS;
}

static size_t query_bytes(int64_t n_q, int n_heads, int d) {
    return ((size_t)(n_q * n_heads * d) * sizeof(float) + 15) / 16 * 16;
}

// For up to 64 queries, as scorers have them.
extern "C" size_t mass_scratch(const struct exec_limits *l) {
    return query_bytes(QUERIES, l->n_heads, l->head_dim) +
           (size_t)(tiles_of(l->context) * QUERIES) * sizeof(float2);
}

extern "C" void cuda_key_mass(struct exec *x, const struct key_mass_args *a) {
    struct gpu *g = gpu_of(x);
    struct mass_run u;
    if (a->n_q == 0)
        return;
    if (a->d % 4 || a->d > OPS_HEAD_MAX) {
        gpu_check(g, GPU_NOT_SUPPORTED, "key_mass: heads that are no multiple of 4");
        return;
    }
    u.a = *a;
    u.tiles = (int32_t)tiles_of(a->n);
    size_t queries = query_bytes(a->n_q, a->n_heads, a->d);
    unsigned char *scratch =
        (unsigned char *)gpu_scratch(g, queries + (size_t)(u.tiles * a->n_q) * sizeof *u.part);
    if (!scratch)
        return;
    u.q = (float *)scratch;
    u.part = (float2 *)(scratch + queries);
    u.head = u.kv = 0;
    dim3 all((unsigned)a->n_q, (unsigned)a->n_heads);
    dim3 tiles((unsigned)u.tiles, (unsigned)((a->n_q + QUERIES - 1) / QUERIES));
    dim3 spans((unsigned)((a->n + SPAN - 1) / SPAN), (unsigned)a->n_q);
    gpu_launch_early(g, "key_mass", make_queries, all, MAKERS, 0, u);
    for (u.head = 0; u.head < a->n_heads; u.head++) {
        u.kv = u.head / (a->n_heads / a->n_kv);
        gpu_launch_early(g, "key_mass", score_keys, tiles, THREADS, 0, u);
        gpu_launch_early(g, "key_mass", add_shares, spans, ADDERS, 0, u);
    }
}
