// SPDX-License-Identifier: Apache-2.0
// Linear layers of heads (linear_heads), each with a matrix of its own, as entries of experts that
// need no router: entry row * heads + head has expert head, and an order by head is written down
// without sorting. Rows of heads become rows of entries in fp16 first; what lies after them is
// copied on the way. Many rows are taken in slices, which changes no bits and keeps scratch memory
// within what attention reserves for the same heads (attend_scratch).
#include "base/num.h"
#include "ops/gpu/linear/form/act.cuh"
#include "ops/gpu/moe/moe.h"
#include "ops/gpu/runtime/ops_cuda.h"

enum {
    THREADS = 256,
    WARPS = THREADS / WARP,
    SLICE = 32768, // entries at once
    FEW_ROWS = 8,  // that meet their heads without an order
};

// Entries, and what is made of them.
struct heads_rows {
    const float *in; // of the slice; or NULL, and
    const __half *act;
    const float *act_unscale; // [rows]
    int64_t in_stride, act_stride, k, stride, entries;
    int heads, tail;
    __half *x;      // [entries][stride]; NULL: they lie in act as they are needed
    float *unscale; // [entries]
    float *tail_to; // of the first entry
    int64_t out_stride;
    // The order by head, where there is one: entries of a head, cut into tiles of some.
    struct moe_order order;
    int rows; // of the slice
};

static __device__ void convert(const heads_rows &u, int64_t entry, int lane) {
    const float *from = u.in + entry * u.in_stride;
    __half *to = u.x + entry * u.stride;
    float max = 0;
    for (int64_t i = lane; i < u.k; i += WARP)
        max = fmaxf(max, fabsf(from[i]));
    const int e = act_exponent(warp_max(max), 126);
    const float scale = power_of_two(e);
    for (int64_t i = lane; i < u.stride; i += WARP)
        to[i] = __float2half_rn(i < u.k ? from[i] * scale : 0.0f);
    if (lane == 0)
        u.unscale[entry] = power_of_two(-e);
    for (int i = lane; i < u.tail; i += WARP)
        u.tail_to[entry * u.out_stride + i] = from[u.k + i];
}

static __device__ void split_entry(const heads_rows &u, int64_t entry, int lane) {
    const int64_t row = entry / u.heads, head = entry - row * u.heads;
    const __half *from = u.act + row * u.act_stride + head * u.k;
    if (lane == 0)
        u.unscale[entry] = u.act_unscale[row];
    for (int64_t i = lane; u.x && i < u.stride; i += WARP)
        u.x[entry * u.stride + i] = i < u.k ? from[i] : __float2half_rn(0.0f);
}

// A warp an entry.
static __global__ void __launch_bounds__(THREADS)
    heads_entries(const __grid_constant__ struct heads_rows u) {
    const int lane = threadIdx.x % WARP;
    const int64_t entry = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    gpu_await();
    gpu_let_next();
    if (entry >= u.entries)
        return;
    if (u.in)
        convert(u, entry, lane);
    else
        split_entry(u, entry, lane);
    const int head = (int)(entry % u.heads), row = (int)(entry / u.heads), each = u.order.rows;
    if (lane || !each)
        return;
    const int tiles = (u.rows + each - 1) / each;
    u.order.entry[(int64_t)head * u.rows + row] = (int32_t)entry;
    if (row % each == 0)
        u.order.tile[head * tiles + row / each] = {head, head * u.rows + row,
                                                   min(u.rows - row, each), 0};
    if (entry == 0)
        *u.order.tiles = u.heads * tiles;
}

// Places in scratch memory, one after the other; at: bytes so far.
static unsigned char *place_array(unsigned char *memory, size_t bytes, size_t *at) {
    unsigned char *p = memory ? memory + *at : NULL;
    *at += (bytes + 255) / 256 * 256;
    return p;
}

// Lays out memory (NULL: counts it alone) for u's entries, heads, rows and stride; each: entries of
// a tile of the order, 0: none. Returns its bytes. gemm: *gathered, rows of the order.
static size_t lay_out(unsigned char *memory, int each, bool gemm, struct heads_rows *u,
                      unsigned char **gathered) {
    const int64_t entries = u->entries;
    size_t at = 0;
    u->x = (__half *)place_array(memory, (size_t)(entries * u->stride) * sizeof(__half), &at);
    u->unscale = (float *)place_array(memory, (size_t)entries * sizeof(float), &at);
    u->order = {};
    if (!each)
        return at;
    u->order.rows = each;
    u->order.max = (int64_t)u->heads * ((u->rows + each - 1) / each);
    u->order.tiles = (int32_t *)place_array(memory, sizeof(int32_t), &at);
    u->order.entry = (int32_t *)place_array(memory, (size_t)entries * sizeof(int32_t), &at);
    u->order.tile =
        (struct moe_tile *)place_array(memory, (size_t)u->order.max * sizeof(struct moe_tile), &at);
    *gathered = gemm ? place_array(memory, moe_gemm_bytes(entries, u->stride), &at) : NULL;
    return at;
}

// The list of few entries. It is the same in all layers and passes and staged once, so that it is
// older than the launch in front and weights may be requested early. NULL: a fault.
static const int32_t *few_heads(struct gpu *g, int64_t entries, int heads) {
    int32_t ids[MOE_FEW];
    for (int i = 0; i < entries; i++)
        ids[i] = i % heads;
    return (const int32_t *)gpu_stage(g, ids, (size_t)entries * sizeof *ids);
}

// Rows [first, first + n). wide: NULL, or the activation, of which there are f32 values yet.
static void run_slice(struct gpu *g, const struct heads_args *a, const struct act *wide,
                      int64_t first, int64_t n) {
    const struct weight *w = a->w;
    const int64_t entries = n * a->heads, stride = round_up(w->k, ACT_ALIGN);
    const bool few = entries <= MOE_FEW && n <= FEW_ROWS, gemm = !few && moe_gemm_takes(g, w->form);
    const int each = few    ? 0
                     : gemm ? (int)MOE_GEMM_ROWS
                            : moe_tile_rows(w->form, g->path == CUDA_PATH_SMALL, g->shared);
    struct heads_rows u = {};
    unsigned char *gathered = NULL;
    u.entries = entries;
    u.heads = a->heads;
    u.rows = (int)n;
    u.k = w->k;
    u.stride = stride;
    const size_t bytes = lay_out(NULL, each, gemm, &u, &gathered);
    unsigned char *memory = (unsigned char *)gpu_scratch(g, bytes);
    if (!memory)
        return;
    lay_out(memory, each, gemm, &u, &gathered);
    u.out_stride = a->out_stride;
    float *out = a->out + first * a->heads * a->out_stride;
    const struct moe_peaks none = {};
    struct moe_call_args c = {};
    c.x = u.x;
    c.ids = few ? few_heads(g, entries, a->heads) : NULL;
    if (few && !c.ids)
        return;
    if (wide) {
        u.in = wide->wide + first * wide->stride;
        u.in_stride = w->k;
    } else if (a->act) {
        u.act = (const __half *)a->act->x + first * a->act->stride;
        u.act_unscale = a->act->unscale + first;
        u.act_stride = a->act->stride;
        if (stride == w->k && u.act_stride == a->heads * w->k) {
            c.x = u.act;
            u.x = NULL;
        }
    } else {
        u.in = a->in + first * a->heads * a->in_stride;
        u.in_stride = a->in_stride;
        u.tail = a->tail;
        u.tail_to = out + w->m;
    }
    gpu_launch_early(g, "linear_heads", heads_entries, (unsigned)((entries + WARPS - 1) / WARPS),
                     THREADS, 0, u);
    c.matrix[0].w = w->view;
    c.matrix[0].step = w->step;
    c.form = w->form;
    c.parts = linear_parts(w->k, w->m);
    c.experts = a->heads;
    c.entries = c.listed = entries;
    c.sharers = 1;
    c.distinct = n == 1;
    c.stride = stride;
    c.unscale = u.unscale;
    c.out = out;
    c.out_stride = a->out_stride;
    if (few)
        moe_few_launch(g, &c, &none, &none, true);
    else if (gemm)
        moe_gemm_launch(g, &c, &u.order, gathered);
    else
        moe_tiles_launch(g, &c, &u.order);
}

// Rows of a slice.
static int64_t slice_rows(int heads) {
    return heads < SLICE ? SLICE / heads : 1;
}

extern "C" void cuda_linear_heads(struct exec *x, const struct heads_args *a) {
    struct gpu *g = gpu_of(x);
    const int64_t max = slice_rows(a->heads);
    struct act rows;
    const struct act *wide = NULL;
    if (a->act && a->act->stride == a->heads * a->w->k && act_take_plain(g, a->act->x, a->n, &rows))
        wide = &rows;
    for (int64_t at = 0; at < a->n; at += max)
        run_slice(g, a, wide, at, min_i64(a->n - at, max));
}
