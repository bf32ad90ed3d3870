// SPDX-License-Identifier: Apache-2.0
// What the attention kernels get, and device code that all use: where the keys of a chunk are, and
// the fold of a part into what came before it. For .cu files only.
#ifndef COPPICE_OPS_GPU_ATTEND_ATTEND_CUH
#define COPPICE_OPS_GPU_ATTEND_ATTEND_CUH

#include <math.h>

#include "ops/attend_plan.h"
#include "ops/gpu/kv/stored.cuh"
#include "ops/gpu/matrix/thread.cuh"
#include "ops/gpu/runtime/cuda.h"

enum { ATTEND_EXTRA = 10 }; // of the kernels with matrix instructions (EXTRA, block.cuh)

// Arguments of the kernels. Pointers are device memory.
struct attend_run {
    const struct attend_row *rows;
    const struct attend_item *items;
    const int32_t *list, *path;
    unsigned char *const *pages;
    const unsigned char *some_page; // around which the others lie
    const struct kv_slot *store;
    const struct attend_text *texts; // of a whole plan
    const float *q, *gate;
    int64_t gate_stride;
    bool gate_softplus, gate_single;
    float *out; // [n][out_stride]
    int64_t out_stride;
    float *acc; // [slots][rows][n_heads][dv] results of parts, not divided
    float *ml;  // [slots][rows][n_heads][2] their maximum and sum
    int64_t begin, n_rows;
    int32_t slots, part0;
    int32_t n_heads, n_kv, group;
    int32_t dk, dv;           // values of a key, of a value
    int32_t codec_k, codec_v; // enum kv_codec_id
    struct kv_plane k, v;
    int64_t layer; // bytes from a page to the layer
    float scale;
    const float *sinks; // [n_heads], or NULL
    float extra;        // sums of the kernel are 2^extra times those under their maximum
    bool ahead;         // committed K and V are read early
    const void *places; // of rows that may still be on their way then
    // NULL, or the blocks that pairs see (struct attend_choice): words of pair row * n_heads +
    // head.
    const uint32_t *chosen;
    int64_t words;
    int32_t rotate_v; // values of a group of V that is stored rotated, or 0
};

// What launches of these kernels say: they leave parts, or rows of an activation. The fold after
// them reads gates early.
static inline struct launch_says attend_says(const struct attend_run *u) {
    struct launch_says s = {MEMORY_WEIGHTS, MEMORY_SUMS | MEMORY_ACTS, false, u->places, false};
    s.early |= u->ahead ? (unsigned)MEMORY_PAGES : 0u;
    return s;
}
// Queues a kernel of matrix instructions, F its form, over all items and kv heads.
template <class F>
static inline void attend_launch(struct gpu *g, void (*kernel)(const struct attend_run),
                                 const struct attend_run *u, const struct attend_plan *p) {
    const dim3 grid((unsigned)p->n_items, (unsigned)u->n_kv);
    if (gpu_allow_shared(g, (const void *)kernel, F::BYTES, "attend"))
        gpu_launch_saying({g, "attend", attend_says(u)}, kernel, grid, F::THREADS, F::BYTES, *u);
}
static const struct launch_says ATTEND_FOLDS = {MEMORY_WEIGHTS | MEMORY_ROWS,
                                                MEMORY_SUMS | MEMORY_ACTS, false, NULL, false};

// Whether K or V has a codec that is stored rotated, for which kernels have instances of their own.
static inline bool attend_rotated(const struct attend_run *u) {
#define KV_IS(id) || u->codec_k == id || u->codec_v == id
    return false CUDA_KV_ROTATED(KV_IS);
#undef KV_IS
}

// Whether a pair sees a chunk's block.
static __device__ inline bool attend_chosen(const struct attend_run *u, int64_t pair, int chunk) {
    int block = chunk * ATTEND_CHUNK / SPARSE_BLOCK;
    return u->chosen[pair * u->words + block / 32] >> block % 32 & 1;
}

// An entry of a staged table, past the first-level cache: also in front of gpu_await.
template <typename T> static __device__ inline T attend_entry(const T *p) {
    static_assert(sizeof(T) % 4 == 0, "tables are made of words");
    T t;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(T) / 4); i++)
        ((int *)&t)[i] = __ldcg((const int *)p + i);
    return t;
}

// Queue the kernel over n_items x n_kv blocks. head_dim of the matrix one: 64, 128 or 256. Those
// named rotated are what the others take where attend_rotated says so.
extern "C" void attend_matrix(struct gpu *g, const struct attend_run *u,
                              const struct attend_plan *p);
extern "C" void attend_matrix_rotated(struct gpu *g, const struct attend_run *u,
                                      const struct attend_plan *p);
// Whether that has an instance for a single tile that copies codes of K and V ahead.
extern "C" bool attend_matrix_copies(const struct gpu *g, const struct attend_run *u,
                                     const struct attend_plan *p);
// Shared memory of its blocks for that many tiles of pairs at most.
extern "C" int attend_matrix_bytes(int head_dim, int tiles, bool whole);
// The same by wgmma, for heads of 128 and 256: same bits, up to 9 tiles in an item, ATTEND_WHOLE up
// to 6.
extern "C" void attend_wide(struct gpu *g, const struct attend_run *u, const struct attend_plan *p);
extern "C" void attend_wide_rotated(struct gpu *g, const struct attend_run *u,
                                    const struct attend_plan *p);
extern "C" int attend_wide_bytes(int head_dim); // max shared memory of its blocks
// The same for keys of 576 values whose first 512 are the values, on one kv head. Tiles of pairs
// that items may have with so much shared memory; 0: none, 1: no ATTEND_WHOLE.
extern "C" void attend_latent(struct gpu *g, const struct attend_run *u,
                              const struct attend_plan *p);
extern "C" int attend_latent_tiles(int shared);
// The same by wgmma with ATTEND_WHOLE, and without where no blocks are chosen: same bits.
extern "C" void attend_latent_wide(struct gpu *g, const struct attend_run *u,
                                   const struct attend_plan *p);
extern "C" void attend_plain(struct gpu *g, const struct attend_run *u,
                             const struct attend_plan *p);
// Where keys or values have a codec with scales: queues making halves of all that the items of a
// whole plan see, in scratch memory, and makes u read these like stored F16 (dequantize.cu), which
// gives the same bits. Heads of 64, 128 or 256. Nothing where that takes more scratch memory than
// there is.
extern "C" void attend_dequantize(struct gpu *g, struct attend_run *u, const struct attend_plan *p);
// Bytes of scratch memory for it within the limits.
extern "C" size_t attend_dequantize_bytes(const struct exec_limits *l);
// Whether rows of a call choose blocks, and the choice (choose.cu); false: a fault.
extern "C" bool attend_chooses(const struct attend_args *a, const struct rows *r);
extern "C" bool attend_choose(struct gpu *g, const struct attend_args *a, const struct rows *r);

// The keys of one chunk, in shared memory. pos is -1 where there is no key.
struct attend_keys {
    const unsigned char *page[ATTEND_CHUNK]; // the layer in the key's page
    int32_t pos[ATTEND_CHUNK];
    unsigned char slot[ATTEND_CHUNK];
};

// One of them, on its way there.
struct attend_found {
    const unsigned char *page;
    int32_t slot, pos;
};

// Key number 64 * chunk + i of the item's sequence.
static __device__ inline struct attend_found
attend_look(const struct attend_run *u, const struct attend_item *t, int chunk, int i) {
    int at = chunk * ATTEND_CHUNK + i;
    struct attend_found f = {NULL, i, at};
    if (at < t->len) {
        f.page = attend_entry(&u->pages[t->pages + chunk]);
    } else if (at - t->len < t->n_path) {
        int32_t row = attend_entry(&u->path[t->path + at - t->len]);
        struct kv_slot slot = attend_entry(&u->store[row]);
        f.page = slot.page;
        f.slot = slot.slot;
        f.pos = attend_entry(&u->rows[row].pos);
    }
    return f;
}

static __device__ inline void attend_note(const struct attend_run *u, struct attend_found f,
                                          struct attend_keys *keys, int i) {
    keys->page[i] = f.page ? f.page + u->layer : NULL;
    keys->slot[i] = (unsigned char)f.slot;
    keys->pos[i] = f.page ? f.pos : -1;
}

// Where a key or value is stored; codes is NULL where there is none.
static __device__ inline struct kv_row attend_key(const struct attend_run *u,
                                                  const struct attend_keys *keys, int slot,
                                                  bool value, int kv) {
    const struct kv_plane *p = value ? &u->v : &u->k;
    const unsigned char *page = keys->page[slot];
    int64_t row = kv * ATTEND_CHUNK + keys->slot[slot];
    struct kv_row r = {NULL, NULL};
    if (!page)
        return r;
    r.codes = (unsigned char *)page + p->codes + row * p->code_row;
    r.scales = (unsigned char *)page + p->scales + row * p->scale_row;
    return r;
}

// Factors of what is folded so far (maximum *max, in units of log 2) and of a part with maximum
// `part`; renews *max. A part without a key leaves things as they are: factors 1 and 0.
static __device__ inline float2 attend_fold(float *max, float part) {
    float now = fmaxf(*max, part);
    if (part == -INFINITY)
        return make_float2(1, 0);
    float2 f = make_float2(exp2_near(*max - now), exp2_near(part - now));
    *max = now;
    return f;
}

// Whether a block stops before a chunk to put away the part so far: where another part of its run
// begins.
static __device__ inline bool attend_turns(const struct attend_item *t, int chunk) {
    return t->kind == ATTEND_SHARED && chunk > t->chunk &&
           attend_part_begin(attend_part(chunk)) == chunk;
}

// Where the result of a part goes: for acc times dv, for ml times 2.
static __device__ inline int64_t attend_slot(const struct attend_run *u, int32_t slot, int32_t row,
                                             int32_t head) {
    return (slot * u->n_rows + row - u->begin) * u->n_heads + head;
}

// A head's sum with its sink, which is one more score; max: what the sum is under, in units of
// log 2.
static __device__ inline float attend_sunk(const struct attend_run *u, int32_t head, float max,
                                           float sum) {
    if (!u->sinks)
        return sum;
    const float score = __fmul_rn(u->sinks[head], 1.44269504f);
    return __fadd_rn(sum, exp2_near(__fadd_rn(__fadd_rn(score, -max), u->extra)));
}

// Output value: divided, and never -0 (a skipped chunk must not show); then times its gate.
static __device__ inline float attend_divided(float x, float sum) {
    return x * (1.0f / sum) + 0.0f;
}

// The gate of value `at` of a head, and what it multiplies that value by.
static __device__ inline float attend_gate_of(const struct attend_run *u, int32_t row, int32_t head,
                                              int at) {
    return __ldcg(u->gate + ((int64_t)row * u->n_heads + head) * u->gate_stride +
                  (u->gate_single ? 0 : at));
}
static __device__ inline float attend_gate_factor(bool softplus, float g) {
    if (!softplus)
        return 1.0f / (1.0f + expf(-g));
    return g > 20 ? g : log1pf(expf(g));
}
static __device__ inline float attend_gate(const struct attend_run *u, int32_t row, int32_t head,
                                           int at) {
    return attend_gate_factor(u->gate_softplus, attend_gate_of(u, row, head, at));
}

static __device__ inline float attend_output(const struct attend_run *u, int32_t row, int32_t head,
                                             int at, float x, float sum) {
    x = attend_divided(x, sum);
    if (!u->gate)
        return x;
    return x * attend_gate(u, row, head, at);
}

// The attention kernel for many rows (long.cu), between attend.cu that chooses and itself.
enum { LONG_PAIRS = 128, LONG_TILES = LONG_PAIRS / ATTEND_TILE }; // of an item, at most

// Bytes of scratch memory besides what else a call needs, on any device: folded values of heads of
// 256, which do not fit into a block.
extern "C" size_t attend_long_bytes(int head_dim);
// Queues ATTEND_WHOLE items of up to LONG_TILES tiles over keys and values that are F16 or have a
// codec with scales, heads of 128 or 256, with the bits of attend_matrix.
extern "C" void attend_long(struct gpu *g, const struct attend_run *u, const struct attend_plan *p);

#endif
