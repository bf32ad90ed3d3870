// SPDX-License-Identifier: Apache-2.0
// What the kernels of block-sparse attention get (ops/args/sparse.h says what they make of it),
// where a key or value lies, and the kernels that sparse.cu chooses from. For .cu files only.
#ifndef COPPICE_OPS_GPU_SPARSE_SPARSE_CUH
#define COPPICE_OPS_GPU_SPARSE_SPARSE_CUH

#include "ops/gpu/attend/tile.cuh"
#include "ops/gpu/linear/form/act.cuh"
#include "ops/gpu/runtime/ops_cuda.h"

// struct sparse_rows on the device.
struct sparse_places {
    const unsigned char *data;
    unsigned char *const *pages; // NULL: piece i is at data + i * piece
    int64_t piece, codes, scales, code_slot, code_head, scale_slot, scale_head;
    int32_t codec;
};

struct sparse_run {
    int32_t n_heads, n_kv, group, d;
    float scale;
    struct sparse_options opt;
    int64_t first, n;
    int64_t blocks, text_blocks; // that positions of this call and of the text touch
    int64_t block, rows_blocks;  // first query block, and how many there are
    const float *q;
    struct sparse_places k, v;
    float *means, *mass;
    int32_t *count, *list;
    float *out; // [n][out_stride]
    int64_t out_stride;
};

// What a block of threads works on: a query block and a head. Query blocks with the most keys come
// first, the heads of a kv head one after the other.
struct sparse_item {
    int64_t m; // the query block
    int32_t head, kv;
    int64_t at;         // place among counts, and of lists and masses by u->blocks
    int32_t begin, end; // its rows here, as places in the block
};

static __device__ __forceinline__ struct sparse_item sparse_item_of(const struct sparse_run *u) {
    struct sparse_item t;
    int64_t of = u->rows_blocks - 1 - blockIdx.x;
    t.m = u->block + of;
    t.head = (int32_t)blockIdx.y;
    t.kv = t.head / u->group;
    t.at = of * u->n_heads + t.head;
    int64_t begin = u->first - t.m * SPARSE_BLOCK, end = u->first + u->n - t.m * SPARSE_BLOCK;
    t.begin = begin > 0 ? (int32_t)begin : 0;
    t.end = end < SPARSE_BLOCK ? (int32_t)end : SPARSE_BLOCK;
    return t;
}

static __device__ __forceinline__ bool sparse_has(const struct sparse_item *t, int row) {
    return row >= t->begin && row < t->end;
}

// The query of a row of the item.
static __device__ __forceinline__ const float *sparse_query(const struct sparse_run *u,
                                                            const struct sparse_item *t, int row) {
    return u->q + ((t->m * SPARSE_BLOCK + row - u->first) * u->n_heads + t->head) * u->d;
}

static __device__ __forceinline__ float *sparse_out(const struct sparse_run *u,
                                                    const struct sparse_item *t, int row) {
    return u->out + (t->m * SPARSE_BLOCK + row - u->first) * u->out_stride + t->head * u->d;
}

static __device__ __forceinline__ struct kv_row sparse_row(const struct sparse_places *p,
                                                           int64_t pos, int head) {
    int64_t slot = pos % KV_PAGE;
    const unsigned char *piece =
        p->pages ? p->pages[pos / KV_PAGE] : p->data + pos / KV_PAGE * p->piece;
    struct kv_row r;
    r.codes = (unsigned char *)piece + p->codes + slot * p->code_slot + head * p->code_head;
    r.scales = (unsigned char *)piece + p->scales + slot * p->scale_slot + head * p->scale_head;
    return r;
}

enum { SPARSE_THREADS = 256, SPARSE_WARPS = SPARSE_THREADS / WARP };

// Masses and lists, by matrix instructions for heads of 64 and 128, or without them.
extern "C" void sparse_select_matrix(struct gpu *g, const struct sparse_run *u);
extern "C" void sparse_select_plain(struct gpu *g, const struct sparse_run *u);
// Attention to the chosen blocks: any head and codec; heads of 64 and 128 and codecs of at most 16
// bits a value; by wgmma, with F16 in pieces at equal distances and heads of 128. The last two give
// the same bits.
extern "C" void sparse_attend_plain(struct gpu *g, const struct sparse_run *u);
extern "C" void sparse_attend_matrix(struct gpu *g, const struct sparse_run *u);
extern "C" int sparse_attend_matrix_bytes(int d); // shared memory of a block
extern "C" bool sparse_wide_takes(const struct gpu *g, const struct sparse_run *u);
extern "C" void sparse_attend_wide(struct gpu *g, const struct sparse_run *u);

#endif
