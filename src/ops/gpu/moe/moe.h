// SPDX-License-Identifier: Apache-2.0
// What the host part of layers of experts (moe.cu) hands to its kernels: one matrix of each expert,
// or two as a pair, entries with a row and an expert each, and, for many of them, their order by
// expert, which the device makes. A sum is that of linear layers (ops/gpu/linear/operands.h): k in
// the same parts, each from zero in k order, the parts added in order. Internal to this folder.
#ifndef COPPICE_OPS_GPU_MOE_MOE_H
#define COPPICE_OPS_GPU_MOE_MOE_H

#include "ops/args/mlp.h"
#include "ops/gpu/linear/launch.h"
#include "ops/gpu/moe/sum.h"
#include "ops/gpu/runtime/ops_cuda.h"

// Matrices of the experts of a layer.
struct moe_matrix {
    struct matrix_view w; // of the first
    int64_t step;         // bytes from one to the next
    // Where experts come and go (store.h): where each one's record lies, [experts], and this
    // matrix's place in it. NULL: w and step say where they lie.
    const unsigned char *const *place;
    int64_t at;
    const float *bias; // [experts][m], or NULL
};

struct moe_call_args {
    struct moe_matrix matrix[2]; // the second only in a pair
    bool pair;
    int activation; // of a pair
    int form, parts, experts;
    const int32_t *ids; // [listed]
    int64_t entries, listed;
    // Entries from `listed` on, of few ones only, have the shared expert: entry listed + i its row
    // shared_row + i of x and row i of shared_out.
    struct moe_matrix shared[2];
    int64_t shared_row;
    float *shared_out;
    int sharers;     // entries that follow each other and have one row
    bool distinct;   // all entries have different experts
    const __half *x; // [rows][stride]
    int64_t stride;
    const float *unscale; // [rows]
    float *out;           // [entries][out_stride]
    int64_t out_stride;
};

// Rows that are still f32 (act_defer), or rows whose peaks a launch raises (act.cuh).
struct moe_peaks {
    const float *wide; // [entries][stride]; NULL: none
    int wide_k;
    unsigned long long *peaks; // [entries]
    uint32_t epoch;
};

// Entries by expert, in tiles of up to `rows` of one expert.
struct moe_tile {
    int32_t expert, first, n, none; // entry[first] .. are its entries
};
struct moe_order {
    int32_t *entry;        // [entries]
    struct moe_tile *tile; // [max]
    int32_t *tiles;        // how many there are
    int64_t max;           // tiles that there may be
    int rows;
};

enum { MOE_FEW = PEAKS }; // entries that few.cu takes

// Queues up to MOE_FEW entries. from: where rows are f32 still, else zero; raises: a pair's outputs
// raise peaks, else zero. ahead: the list is read early. False: rows that are
// f32 do not fit into a block's shared memory, nothing is queued.
bool moe_few_fits(const struct gpu *g, const struct moe_call_args *c); // as f32
bool moe_peaks_reserve(struct gpu *g);
bool moe_few_launch(struct gpu *g, const struct moe_call_args *c, const struct moe_peaks *from,
                    const struct moe_peaks *raises, bool ahead);

// What these launches say.
static inline struct launch_says moe_says(bool ahead) {
    struct launch_says s = {MEMORY_WEIGHTS, MEMORY_ACTS | MEMORY_ROWS, false, NULL, false};
    s.early |= ahead ? (unsigned)MEMORY_LISTS : 0u;
    return s;
}

// The same by an order in groups of MOE_UNION_ROWS, or, of one row's entries, without (an order of
// zeros), for forms and sizes that it takes.
enum { MOE_UNION_ROWS = 8 };
bool moe_union_takes(const struct gpu *g, const struct moe_call_args *c);
void moe_union_launch(struct gpu *g, const struct moe_call_args *c, const struct moe_order *o,
                      const struct moe_peaks *from, const struct moe_peaks *raises, bool ahead);

// Max tiles and bytes of an order of the list, and its making in such memory.
int64_t moe_order_max_tiles(int64_t entries, int experts, int rows);
size_t moe_order_bytes(int64_t entries, int experts, int rows);
struct moe_order moe_order_make(struct gpu *g, const struct moe_call_args *c, int rows,
                                unsigned char *memory);

// Queues ordered entries, moe_tile_rows in a tile: at most MOE_TILE_ROWS, fewer of forms for which
// a block has too little shared memory (99 KB of GPUs of 8.6, 8.9 and 12.0).
enum { MOE_TILE_ROWS = 64 };
int moe_tile_rows(int form, bool small, int shared);
int moe_tile_bytes(int form, bool small, int rows); // of shared memory
void moe_tiles_launch(struct gpu *g, const struct moe_call_args *c, const struct moe_order *o);

// The same on sm_90a, MOE_GEMM_ROWS in a tile, for forms that it takes; rows: room for the rows of
// all entries.
enum { MOE_GEMM_ROWS = 128 };
bool moe_gemm_takes(const struct gpu *g, int form);
size_t moe_gemm_bytes(int64_t entries, int64_t stride);
void moe_gemm_launch(struct gpu *g, const struct moe_call_args *c, const struct moe_order *o,
                     void *rows);

#ifdef __cplusplus
using moe_shared_args = moe_layer_args::moe_shared_args; // as it is called in C

// Queues the router's product, its choice and, with n_in 2, those of the shared expert's gate.
// False for forms and sizes that it does not take: nothing is queued.
bool moe_router_launch(struct gpu *g, const struct moe_layer_args *l);
#endif

#ifdef __CUDACC__
// An expert's tiles.
static __device__ __forceinline__ const unsigned char *moe_data(const moe_matrix &m, int expert) {
    if (m.place)
        return (const unsigned char *)__ldcg((const unsigned long long *)m.place + expert) + m.at;
    return m.w.data + expert * m.step;
}

// An expert's matrix.
static __device__ __forceinline__ matrix_view moe_expert(const moe_matrix &m, int expert) {
    matrix_view v = m.w;
    v.data = moe_data(m, expert);
    v.exponent += expert * v.tiles * TILE_ROWS;
    return v;
}
#endif

#endif
