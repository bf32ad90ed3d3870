// SPDX-License-Identifier: Apache-2.0
// The ops of block-sparse attention: means of key blocks, and the choice of kernels for the other
// two stages. All stages of a call are launches after each other; nothing comes back to the host.
#include "ops/gpu/sparse/sparse.cuh"

// Rows of 8 values for load8; heads end with whole such pieces and whole blocks of codecs.
extern "C" const char *cuda_sparse_lacks(const struct sparse_args *a) {
    return a->d % 32 ? "block-sparse attention with heads that are no multiple of 32" : NULL;
}

// Pieces that lie at equal distances need no table.
static bool spaced(struct sparse_places *p, unsigned char *const *pages, int64_t n) {
    int64_t step = n > 1 ? pages[1] - pages[0] : 0;
    for (int64_t i = 1; i < n; i++)
        if (pages[i] - pages[i - 1] != step)
            return false;
    p->data = pages[0];
    p->piece = step;
    return step >= 0;
}

static bool places_of(struct gpu *g, struct sparse_places *p, const struct sparse_rows *s,
                      int64_t positions) {
    int64_t pieces = (positions + KV_PAGE - 1) / KV_PAGE;
    *p = (struct sparse_places){
        s->data,      NULL,         s->piece,      s->codes,      s->scales,
        s->code_slot, s->code_head, s->scale_slot, s->scale_head, (int32_t)s->codec};
    if (!s->pages || spaced(p, s->pages, pieces))
        return true;
    p->pages = (unsigned char *const *)gpu_stage(g, s->pages, (size_t)pieces * sizeof *s->pages);
    return p->pages != NULL;
}

// False: nothing to do, or a fault.
static bool run_of(struct gpu *g, struct sparse_run *u, const struct sparse_args *a) {
    *u = (struct sparse_run){};
    u->n_heads = a->n_heads;
    u->n_kv = a->n_kv;
    u->group = a->n_heads / a->n_kv;
    u->d = a->d;
    u->scale = a->scale;
    u->opt = a->opt;
    u->first = a->first;
    u->n = a->n;
    u->blocks = sparse_blocks(a->first + a->n);
    u->text_blocks = sparse_blocks(a->total);
    u->block = a->first / SPARSE_BLOCK;
    u->rows_blocks = sparse_query_blocks(a->first, a->n);
    u->q = a->q;
    u->means = a->means;
    u->mass = a->mass;
    u->count = a->count;
    u->list = a->list;
    if (cuda_sparse_lacks(a)) {
        gpu_check(g, GPU_NOT_SUPPORTED, "sparse: a form without a kernel");
        return false;
    }
    return a->n > 0 && places_of(g, &u->k, &a->k, a->first + a->n) &&
           places_of(g, &u->v, &a->v, a->first + a->n);
}

// Block (key block, kv head). A thread adds up 8 values of some of the keys; then a thread a value
// adds those sums in order.
static __global__ void __launch_bounds__(SPARSE_THREADS)
    mean_blocks(const __grid_constant__ struct sparse_run u) {
    __shared__ float part[SPARSE_THREADS * 8];
    const int eights = u.d / 8, sharers = SPARSE_THREADS / eights, own = threadIdx.x / eights;
    const int at = threadIdx.x % eights;
    const int64_t block = u.block + blockIdx.x;
    float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0}, x[8];
    gpu_await();
    gpu_let_next();
    if (own < sharers) {
        for (int i = own; i < SPARSE_BLOCK; i += sharers) {
            kv_load8_as_is(u.k.codec, sparse_row(&u.k, block * SPARSE_BLOCK + i, blockIdx.y), at,
                           x);
#pragma unroll
            for (int j = 0; j < 8; j++)
                sum[j] += x[j];
        }
#pragma unroll
        for (int j = 0; j < 8; j++)
            part[own * u.d + at * 8 + j] = sum[j];
    }
    __syncthreads();
    float *out = u.means + (block * u.n_kv + blockIdx.y) * u.d;
    for (int i = threadIdx.x; i < u.d; i += SPARSE_THREADS) {
        float all = 0;
        for (int s = 0; s < sharers; s++)
            all += part[s * u.d + i];
        out[i] = all * (1.0f / SPARSE_BLOCK);
    }
}

extern "C" void cuda_sparse_means(struct exec *x, const struct sparse_args *a) {
    struct gpu *g = gpu_of(x);
    struct sparse_run u;
    if (!run_of(g, &u, a))
        return;
    int64_t whole = (a->first + a->n) / SPARSE_BLOCK - u.block;
    if (whole > 0)
        gpu_launch_early(g, "sparse_means", mean_blocks, dim3((unsigned)whole, (unsigned)u.n_kv),
                         SPARSE_THREADS, 0, u);
}

static bool by_matrix(const struct gpu *g, int d) {
    return (d == 64 || d == 128) && g->sm >= 80 && g->path != CUDA_PATH_SMALL &&
           sparse_attend_matrix_bytes(d) <= g->shared;
}

extern "C" void cuda_sparse_select(struct exec *x, const struct sparse_args *a) {
    struct gpu *g = gpu_of(x);
    struct sparse_run u;
    if (!run_of(g, &u, a))
        return;
    if (by_matrix(g, u.d))
        sparse_select_matrix(g, &u);
    else
        sparse_select_plain(g, &u);
}

extern "C" void cuda_sparse_attend(struct exec *x, const struct sparse_args *a) {
    struct gpu *g = gpu_of(x);
    struct sparse_run u;
    if (!run_of(g, &u, a))
        return;
    cuda_act_shape(a->out, a->n, (int64_t)a->n_heads * a->d);
    u.out = a->out->wide;
    u.out_stride = a->out->stride;
    if (!by_matrix(g, u.d) || u.k.codec == KV_F32 || u.v.codec == KV_F32)
        sparse_attend_plain(g, &u);
    else if (g->path == CUDA_PATH_WGMMA && sparse_wide_takes(g, &u))
        sparse_attend_wide(g, &u);
    else
        sparse_attend_matrix(g, &u);
    cuda_act_finish(x, a->out, a->n);
}

// Attention to chosen blocks of keys without matrix instructions, for any head, codec and device. A
// block of threads has 16 rows of a query block and a head: sixteen threads a row. Keys and values
// pass through shared memory 32 values at a time.

enum {
    ROWS = 16,
    SHARERS = SPARSE_THREADS / ROWS, // threads of a row
    EACH = SPARSE_BLOCK / SHARERS,   // keys of a thread
    SLICE = 32,
    SLICES = OPS_HEAD_MAX / SLICE,
    OWN = SLICE / SHARERS, // values of a thread in a slice
};

struct plain_memory {
    float slice[SPARSE_BLOCK][SLICE + 1]; // of keys or values
    float q[ROWS][SLICE + 1];
    float weight[ROWS][SPARSE_BLOCK + 1];
};

// Values at .. at + SLICE - 1 of a block's keys or values; zeros from `end` on.
static __device__ void load_slice(const struct sparse_places *p, int64_t block, int kv, int end,
                                  int at, struct plain_memory *m) {
    for (int i = threadIdx.x; i < SPARSE_BLOCK * SLICE / 8; i += SPARSE_THREADS) {
        int row = i / (SLICE / 8), piece = i % (SLICE / 8);
        float x[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        if (row < end)
            kv_load8_as_is(p->codec, sparse_row(p, block * SPARSE_BLOCK + row, kv), at / 8 + piece,
                           x);
#pragma unroll
        for (int j = 0; j < 8; j++)
            m->slice[row][piece * 8 + j] = x[j];
    }
}

// s = scores of the thread's row and keys share, share + SHARERS, ...
static __device__ void score_slice(const struct sparse_run *u, const struct sparse_item *t, int row,
                                   int64_t block, int end, struct plain_memory *m,
                                   float (&s)[EACH]) {
    int own = threadIdx.x / SHARERS, share = threadIdx.x % SHARERS;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        s[i] = 0;
    for (int at = 0; at < u->d; at += SLICE) {
        __syncthreads();
        load_slice(&u->k, block, t->kv, end, at, m);
        for (int i = share; i < SLICE; i += SHARERS)
            m->q[own][i] = sparse_has(t, row) ? sparse_query(u, t, row)[at + i] : 0.0f;
        __syncthreads();
        for (int k = 0; k < SLICE; k++)
#pragma unroll
            for (int i = 0; i < EACH; i++)
                s[i] = fmaf(m->q[own][k], m->slice[share + i * SHARERS][k], s[i]);
    }
}

static __device__ __forceinline__ float row_max(float v) {
    return warp_max<SHARERS>(v);
}
static __device__ __forceinline__ float row_sum(float v) {
    return warp_sum<SHARERS>(v);
}

// acc = acc * fade + weights times values: value share + i * SHARERS of slice c is acc[c][i].
static __device__ __forceinline__ void gather_slices(const struct sparse_run *u,
                                                     const struct sparse_item *t, int64_t block,
                                                     int end, struct plain_memory *m, float fade,
                                                     float (&acc)[SLICES][OWN]) {
    int own = threadIdx.x / SHARERS, share = threadIdx.x % SHARERS;
#pragma unroll
    for (int c = 0; c < SLICES; c++) {
        if (c * SLICE >= u->d)
            break;
        __syncthreads();
        load_slice(&u->v, block, t->kv, end, c * SLICE, m);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            float v = acc[c][i] * fade;
            for (int k = 0; k < SPARSE_BLOCK; k++)
                v = fmaf(m->weight[own][k], m->slice[k][share + i * SHARERS], v);
            acc[c][i] = v;
        }
    }
}

// Block (query block, head, sixteen rows).
static __global__ void __launch_bounds__(SPARSE_THREADS)
    attend_rows(const __grid_constant__ struct sparse_run u) {
    __shared__ struct plain_memory m;
    const struct sparse_item t = sparse_item_of(&u);
    int own = threadIdx.x / SHARERS, share = threadIdx.x % SHARERS;
    int row = (int)blockIdx.z * ROWS + own;
    float acc[SLICES][OWN], max = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < SLICES * OWN; i++)
        acc[i / OWN][i % OWN] = 0;
    gpu_await();
    gpu_let_next();
    const int32_t *list = u.list + t.at * u.blocks, count = u.count[t.at];
    for (int j = 0; j < count; j++) {
        int64_t block = list[j];
        int end = block == t.m ? t.end : SPARSE_BLOCK;
        float s[EACH], before = max;
        score_slice(&u, &t, row, block, end, &m, s);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            bool seen = block < t.m || share + i * SHARERS <= row;
            s[i] = seen ? s[i] * (u.scale * 1.44269504f) : -INFINITY;
            max = fmaxf(max, s[i]);
        }
        max = row_max(max);
        float fade = exp2_near(before - max);
        sum *= fade;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            s[i] = exp2_near(s[i] - max);
            sum += s[i];
            m.weight[own][share + i * SHARERS] = s[i];
        }
        gather_slices(&u, &t, block, end, &m, fade, acc);
    }
    sum = row_sum(sum);
    if (!sparse_has(&t, row))
        return;
#pragma unroll
    for (int c = 0; c < SLICES; c++)
#pragma unroll
        for (int i = 0; i < OWN; i++)
            if (c * SLICE < u.d)
                sparse_out(&u, &t, row)[c * SLICE + share + i * SHARERS] = acc[c][i] / sum;
}

extern "C" void sparse_attend_plain(struct gpu *g, const struct sparse_run *u) {
    dim3 grid((unsigned)u->rows_blocks, (unsigned)u->n_heads, SPARSE_BLOCK / ROWS);
    gpu_launch_early(g, "sparse_attend", attend_rows, grid, SPARSE_THREADS, 0, *u);
}
