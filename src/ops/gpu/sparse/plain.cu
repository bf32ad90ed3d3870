// SPDX-License-Identifier: Apache-2.0
// Attention to chosen blocks of keys without matrix instructions, for any head, codec and device. A
// block of threads has 16 rows of a query block and a head: sixteen threads a row. Keys and values
// pass through shared memory 32 values at a time.
#include "ops/gpu/sparse/sparse.cuh"

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
            kv_load8(p->codec, sparse_row(p, block * SPARSE_BLOCK + row, kv), at / 8 + piece, x);
#pragma unroll
        for (int j = 0; j < 8; j++)
            m->slice[row][piece * 8 + j] = x[j];
    }
}

// s = scores of the thread's row and keys share, share + SHARERS, ...
static __device__ void score(const struct sparse_run *u, const struct sparse_item *t, int row,
                             int64_t block, int end, struct plain_memory *m, float (&s)[EACH]) {
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
static __device__ __forceinline__ void gather(const struct sparse_run *u,
                                              const struct sparse_item *t, int64_t block, int end,
                                              struct plain_memory *m, float fade,
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
    float acc[SLICES][OWN], most = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < SLICES * OWN; i++)
        acc[i / OWN][i % OWN] = 0;
    gpu_await();
    gpu_let_next();
    const int32_t *list = u.list + t.at * u.blocks, count = u.count[t.at];
    for (int j = 0; j < count; j++) {
        int64_t block = list[j];
        int end = block == t.m ? t.end : SPARSE_BLOCK;
        float s[EACH], before = most;
        score(&u, &t, row, block, end, &m, s);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            bool seen = block < t.m || share + i * SHARERS <= row;
            s[i] = seen ? s[i] * (u.scale * 1.44269504f) : -INFINITY;
            most = fmaxf(most, s[i]);
        }
        most = row_max(most);
        float fade = exp2_near(before - most);
        sum *= fade;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            s[i] = exp2_near(s[i] - most);
            sum += s[i];
            m.weight[own][share + i * SHARERS] = s[i];
        }
        gather(&u, &t, block, end, &m, fade, acc);
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
