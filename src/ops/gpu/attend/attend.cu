// SPDX-License-Identifier: Apache-2.0
// The attention op: plans the work (attend_plan.c), queues one of the three kernels, and folds the
// parts of each row from left to right where blocks have made them apart. Rows are taken in
// batches that keep the parts' memory small; a row's bits do not depend on it. Where V is stored
// rotated all that makes outputs without gates, which are rotated back, once, before these.
#include "base/num.h"
#include "ops/gpu/attend/attend.cuh"
#include "ops/gpu/attend/cache.h"
#include "ops/gpu/kv/rotate.cuh"
#include "ops/gpu/linear/form/act.cuh"
#include "ops/gpu/runtime/ops_cuda.h"

enum { THREADS = 256, AT_ONCE = 14, TOGETHER = 8 };
enum { BACK_THREADS = 512, BACK_WARPS = BACK_THREADS / WARP };
static const size_t PARTS_BYTES = (size_t)128 << 20; // bytes of parts at once

// Where fold_parts puts a finished row, and what its blocks share.
struct finish {
    __half *x; // [rows][stride]
    float *unscale;
    int64_t stride;
    unsigned
        *state; // [rows][2] largest magnitude and blocks that have come; zeros before and after
};

// What thread v of a row's blocks folds: four values from `at` of a head on.
struct fold_work {
    int32_t row, head, at;
    int32_t first, end; // parts; the last part comes after them
    float gate[4];
};

// From tables and gates, which are older than the launch in front.
static __device__ __forceinline__ struct fold_work fold_work_of(const struct attend_run *u,
                                                                int32_t row, int v) {
    struct attend_row r = attend_entry(&u->rows[row]);
    struct fold_work w = {row, v * 4 / u->dv, v * 4 % u->dv, 0, 0, {1, 1, 1, 1}};
    w.first = r.first < r.split ? attend_part(r.first / ATTEND_CHUNK) : 0;
    w.end = r.first < r.split ? attend_parts(r.split) : 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        w.gate[i] = u->gate ? attend_gate(u, row, w.head, w.at + i) : 1.0f;
    return w;
}

static __device__ __forceinline__ float4 fold_row(const struct attend_run *u,
                                                  const struct fold_work &w) {
    float max = -INFINITY, sum = 0;
    float4 x = {0, 0, 0, 0};
    for (int32_t part = w.first; part <= w.end; part += AT_ONCE) {
        float4 acc[AT_ONCE];
        float2 ml[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (part + i > w.end)
                break;
            int32_t slot = part + i < w.end ? part + i - u->part0 : u->slots - 1;
            int64_t from = attend_slot(u, slot, w.row, w.head);
            ml[i] = __ldcg((const float2 *)(u->ml + from * 2));
            acc[i] = __ldcg((const float4 *)(u->acc + from * u->dv + w.at));
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (part + i > w.end)
                break;
            float2 f = attend_fold(&max, ml[i].x);
            sum = fmaf(ml[i].y, f.y, sum * f.x);
            x.x = fmaf(acc[i].x, f.y, x.x * f.x);
            x.y = fmaf(acc[i].y, f.y, x.y * f.x);
            x.z = fmaf(acc[i].z, f.y, x.z * f.x);
            x.w = fmaf(acc[i].w, f.y, x.w * f.x);
        }
    }
    sum = attend_sunk(u, w.head, max, sum);
    return make_float4(attend_divided(x.x, sum) * w.gate[0], attend_divided(x.y, sum) * w.gate[1],
                       attend_divided(x.z, sum) * w.gate[2], attend_divided(x.w, sum) * w.gate[3]);
}

// Block (piece, row), the pieces of a row in one cluster.
static __global__ void __launch_bounds__(THREADS, 2)
    fold_together(const __grid_constant__ struct attend_run u,
                  const __grid_constant__ struct finish f) {
    cluster_arrive();
    int v = blockIdx.x * THREADS + threadIdx.x, values = u.n_heads * u.dv / 4;
    int32_t row = (int32_t)(u.begin + blockIdx.y);
    struct fold_work w = fold_work_of(&u, row, v < values ? v : 0);
    gpu_await();
    gpu_let_next();
    float4 x = v < values ? fold_row(&u, w) : make_float4(0, 0, 0, 0);
    if (v < values)
        ((float4 *)(u.out + row * u.out_stride))[v] = x;
    int e = act_exponent(cluster_max<THREADS>(largest(x)), 126);
    if (v < f.stride / 4)
        ((uint2 *)(f.x + row * f.stride))[v] = act_pack(x, power_of_two(e));
    if (v == 0)
        f.unscale[row] = power_of_two(-e);
}

// Block (piece, row): values alone.
static __global__ void __launch_bounds__(THREADS, 2)
    fold_values(const __grid_constant__ struct attend_run u) {
    int v = blockIdx.x * THREADS + threadIdx.x, values = u.n_heads * u.dv / 4;
    int32_t row = (int32_t)(u.begin + blockIdx.y);
    struct fold_work w = fold_work_of(&u, row, v < values ? v : 0);
    gpu_await();
    gpu_let_next();
    if (v < values)
        ((float4 *)(u.out + row * u.out_stride))[v] = fold_row(&u, w);
}

// Block (piece, row). The last block of a row turns it to fp16.
static __global__ void __launch_bounds__(THREADS, 2)
    fold_parts(const __grid_constant__ struct attend_run u,
               const __grid_constant__ struct finish f) {
    __shared__ float part[THREADS / WARP];
    __shared__ bool last;
    int v = blockIdx.x * THREADS + threadIdx.x, values = u.n_heads * u.dv / 4;
    int32_t row = (int32_t)(u.begin + blockIdx.y);
    float4 *wide = (float4 *)(u.out + row * u.out_stride);
    unsigned *state = f.state + 2 * blockIdx.y;
    float max = 0;
    struct fold_work w = fold_work_of(&u, row, v < values ? v : 0);
    gpu_await();
    gpu_let_next();
    if (v < values) {
        float4 x = fold_row(&u, w);
        wide[v] = x;
        max = largest(x);
    }
    max = warp_max(max);
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = max;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < THREADS / WARP; i++)
            max = fmaxf(max, part[i]);
        atomicMax(&state[0], __float_as_uint(max));
        __threadfence();
        last = atomicAdd(&state[1], 1u) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!last)
        return;
    max = __uint_as_float(__ldcg(&state[0]));
    __syncthreads();
    int e = act_exponent(max, 126);
    uint2 *x = (uint2 *)(f.x + row * f.stride);
    for (int i = threadIdx.x; i < f.stride / 4; i += THREADS)
        x[i] = i < values ? act_pack(__ldcg(&wide[i]), power_of_two(e)) : make_uint2(0, 0);
    if (threadIdx.x == 0) {
        f.unscale[row] = power_of_two(-e);
        state[0] = state[1] = 0;
    }
}

// The largest v of a block of BACK_THREADS.
static __device__ __forceinline__ float back_max(float v) {
    __shared__ float part[BACK_WARPS];
    v = warp_max(v);
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = v;
    __syncthreads();
    for (int i = 0; i < BACK_WARPS; i++)
        v = fmaxf(v, part[i]);
    return v;
}

// Block (row): rotates the outputs of its heads back, which go round the warps, applies their gates
// and turns the row to fp16 (f.x NULL: it stays f32).
static __global__ void __launch_bounds__(BACK_THREADS)
    rotate_back(const __grid_constant__ struct attend_run u,
                const __grid_constant__ struct finish f) {
    const int32_t row = (int32_t)(u.begin + blockIdx.x);
    const int lane = threadIdx.x % WARP, values = u.n_heads * u.dv / 4;
    float *const wide = u.out + row * u.out_stride;
    float max = 0;
    gpu_await();
    gpu_let_next();
    for (int head = threadIdx.x / WARP; head < u.n_heads; head += BACK_WARPS) {
        float *const at = wide + head * u.dv + lane;
        float x[OPS_HEAD_MAX / WARP];
#pragma unroll
        for (int i = 0; i < OPS_HEAD_MAX / WARP; i++)
            x[i] = i * WARP < u.dv ? __ldcg(at + i * WARP) : 0.0f;
        rotate_head<true>(x, u.dv, u.rotate_v, lane);
#pragma unroll
        for (int i = 0; i < OPS_HEAD_MAX / WARP; i++) {
            if (i * WARP >= u.dv)
                break;
            x[i] *= u.gate ? attend_gate(&u, row, head, i * WARP + lane) : 1.0f;
            at[i * WARP] = x[i];
            max = fmaxf(max, fabsf(x[i]));
        }
    }
    if (!f.x)
        return;
    const int e = act_exponent(back_max(max), 126);
    for (int i = threadIdx.x; i < f.stride / 4; i += BACK_THREADS)
        ((uint2 *)(f.x + row * f.stride))[i] =
            i < values ? act_pack(((const float4 *)wide)[i], power_of_two(e)) : make_uint2(0, 0);
    if (threadIdx.x == 0)
        f.unscale[row] = power_of_two(-e);
}

// What is the same for all batches.
static struct attend_run run_of(const struct attend_args *a) {
    const struct kv_layout *l = a->layout;
    struct attend_run u = {};
    // Kernels count rows from the first of the pass.
    u.q = a->q - a->first * a->shape.n_heads * a->shape.dk;
    u.gate = a->gate ? a->gate - a->first * a->shape.n_heads * a->gate_stride : NULL;
    u.gate_stride = a->gate_stride;
    u.gate_softplus = a->gate_softplus;
    u.gate_single = a->gate_single;
    u.out = a->out->wide - a->first * a->out->stride;
    u.out_stride = a->out->stride;
    u.n_heads = a->shape.n_heads;
    u.n_kv = a->shape.n_kv;
    u.group = a->shape.n_heads / a->shape.n_kv;
    u.dk = a->shape.dk;
    u.dv = a->shape.dv;
    u.codec_k = l->s.codec_k;
    u.codec_v = l->s.codec_v;
    u.k = l->k;
    u.v = l->v;
    u.layer = a->layer * l->layer_bytes;
    u.scale = a->shape.scale;
    u.sinks = a->shape.sinks;
    u.chosen = a->choice ? a->choice->chosen : NULL;
    u.words = a->choice ? a->choice->blocks / 32 : 0;
    u.rotate_v = l->rotate_v;
    return u;
}

// Where rows of the output become fp16.
static struct finish finish_of(const struct act *out, int64_t first, unsigned *state) {
    struct finish f = {(__half *)out->x - first * out->stride, out->unscale - first, out->stride,
                       state};
    return f;
}

// Kernels. WIDE is taken for whole rows and for items of more than FEW tiles of pairs, below which
// MATRIX, which makes the same bits, is as fast or faster; attend_long for whole rows of more than
// WHOLE tiles.
enum kernel { PLAIN, MATRIX, WIDE, LATENT };
enum { FEW = 3, WHOLE = 6 };

// Whether values are a part of keys as LATENT has them.
static bool is_latent(const struct attend_args *a) {
    return a->layout->s.v_in_k && a->shape.dk == 576 && a->shape.dv == 512 && a->shape.n_kv == 1;
}

static enum kernel kernel_for(const struct gpu *g, const struct attend_args *a) {
    if (is_latent(a) && g->sm >= 80 && g->path != CUDA_PATH_SMALL &&
        a->layout->s.codec_k != KV_F32 && attend_latent_tiles(g->shared))
        return LATENT;
    int d = a->shape.dk;
    if (d != a->shape.dv || a->layout->s.v_in_k || (d != 64 && d != 128 && d != 256) ||
        g->sm < 80 || g->path == CUDA_PATH_SMALL || attend_matrix_bytes(d, 3, false) > g->shared ||
        a->layout->s.codec_k == KV_F32 || a->layout->s.codec_v == KV_F32)
        return PLAIN;
    return g->path == CUDA_PATH_WGMMA && d >= 128 && attend_wide_bytes(d) <= g->shared ? WIDE
                                                                                       : MATRIX;
}

// Bytes of the parts of a row that has that many besides the last two.
static size_t row_bytes(int64_t parts, int n_heads, int head_dim) {
    return (size_t)(parts + 2) * (size_t)n_heads * (size_t)(head_dim + 2) * sizeof(float);
}

static int64_t fitting(size_t row) {
    return row < PARTS_BYTES ? (int64_t)(PARTS_BYTES / row) : 1;
}

// Rows whose parts fit into PARTS_BYTES, at least one.
static int64_t batch_rows(const struct attend_args *a, const struct rows *r) {
    int64_t first = INT64_MAX, last = 0;
    for (int64_t i = 0; i < r->n; i++) {
        int64_t from =
            a->shape.window > 0 && r->pos[i] > a->shape.window ? r->pos[i] - a->shape.window : 0;
        first = from < first ? from : first;
        last = r->pos[i] > last ? r->pos[i] : last;
    }
    int32_t parts = attend_parts((int32_t)last) - attend_part((int32_t)(first / ATTEND_CHUNK));
    return fitting(row_bytes(parts, a->shape.n_heads, a->shape.dv));
}

extern "C" size_t attend_scratch(const struct exec_limits *l) {
    if (!l->n_heads)
        return 0;
    size_t row = row_bytes(attend_parts((int32_t)l->context), l->n_heads, l->head_dim);
    int64_t rows = fitting(row);
    size_t parts = row * (size_t)(l->rows < rows ? l->rows : rows);
    return max_size(parts, attend_long_bytes(l->head_dim) + attend_dequantize_bytes(l));
}

static void set_tables(struct attend_run *u, const struct attend_plan *p, const void *device) {
    const unsigned char *b = (const unsigned char *)device;
    u->rows = (const struct attend_row *)(b + p->rows);
    u->list = (const int32_t *)(b + p->list);
    u->path = (const int32_t *)(b + p->path);
    u->items = (const struct attend_item *)(b + p->items);
    u->pages = (unsigned char *const *)(b + p->pages);
    u->store = (const struct kv_slot *)(b + p->store);
    u->some_page = ((const struct kv_slot *)(p->blob + p->store))[0].page;
    u->texts = (const struct attend_text *)(b + p->texts);
    u->begin = p->begin;
    u->n_rows = p->end - p->begin;
    u->slots = p->slots;
    u->part0 = p->part0;
}

// Zeros for the rows of a batch.
static unsigned *row_state(struct gpu *g, int64_t rows) {
    if (rows > g->row_state_rows) {
        gpu_release(g, g->row_state);
        g->row_state = (unsigned *)gpu_alloc(g, (size_t)rows * 2 * sizeof *g->row_state);
        g->row_state_rows = g->row_state ? rows : 0;
        if (!g->row_state)
            gpu_check(g, GPU_OUT_OF_MEMORY, "attention's rows");
    }
    return g->row_state;
}

extern "C" size_t attend_kept(const struct exec_limits *l) {
    return (size_t)l->rows * 2 * sizeof(unsigned);
}

extern "C" bool attend_reserve(struct gpu *g, const struct exec_limits *l) {
    return !l->n_heads || row_state(g, l->rows);
}

static void run_kernel(struct gpu *g, const struct attend_run *u, const struct attend_plan *p,
                       enum kernel kernel) {
    if (p->whole && p->tiles > WHOLE)
        attend_long(g, u, p);
    else if (kernel == WIDE && (p->whole || p->tiles > FEW))
        attend_wide(g, u, p);
    else if (kernel == LATENT && g->path == CUDA_PATH_WGMMA &&
             (p->whole || (p->tiles > 2 && !u->chosen)))
        attend_latent_wide(g, u, p);
    else if (kernel == LATENT)
        attend_latent(g, u, p);
    else if (kernel != PLAIN)
        attend_matrix(g, u, p);
    else
        attend_plain(g, u, p);
}

// One batch of rows, whose tables are at `device`.
static void run_batch(struct gpu *g, struct attend_run *u, const struct attend_plan *p,
                      const void *device, struct act *out, int64_t first, enum kernel kernel) {
    set_tables(u, p, device);
    if (p->whole) {
        struct attend_run whole = *u;
        if (kernel == MATRIX || kernel == WIDE)
            attend_dequantize(g, &whole, p);
        run_kernel(g, &whole, p, kernel);
        return;
    }
    int64_t fours = (int64_t)u->n_heads * u->dv / 4;
    dim3 grid((unsigned)((fours + THREADS - 1) / THREADS), (unsigned)u->n_rows);
    size_t values = (size_t)(u->slots * u->n_rows * u->n_heads);
    float *parts = (float *)gpu_scratch(g, values * (size_t)(u->dv + 2) * sizeof(float));
    struct finish f = finish_of(out, first, row_state(g, u->n_rows));
    if (!parts || !f.state)
        return;
    u->acc = parts;
    u->ml = parts + values * (size_t)u->dv;
    run_kernel(g, u, p, kernel);
    if (kernel == LATENT || u->rotate_v) {
        gpu_launch_saying({g, "attend", ATTEND_FOLDS}, fold_values, grid, THREADS, 0, *u);
        return;
    }
    if (g->clusters && out->stride / 4 <= TOGETHER * THREADS) {
        grid.x = TOGETHER;
        gpu_launch_cluster({g, "attend", ATTEND_FOLDS}, fold_together, TOGETHER, grid, THREADS, *u,
                           f);
        return;
    }
    gpu_launch_saying({g, "attend", ATTEND_FOLDS}, fold_parts, grid, THREADS, 0, *u, f);
}

// Of LATENT: no more tiles than leave each multiprocessor a block where there are few parts.
static struct attend_limits latent_limits(const struct gpu *g, const struct attend_args *a,
                                          const struct rows *r, int64_t max) {
    const int tiles = attend_latent_tiles(g->shared);
    struct attend_limits m = {tiles, tiles, g->processors};
    const int64_t all = ((r->n - a->first) * a->shape.n_heads + ATTEND_TILE - 1) / ATTEND_TILE;
    const int64_t parts = attend_parts((int32_t)max) + 1;
    if (all * parts <= 2 * g->processors)
        m.tiles_split = 1;
    else if (tiles > 1 && (all + 1) / 2 * parts <= g->processors)
        m.tiles_split = 2;
    if (m.tiles_split == 1)
        m.blocks = 2 * g->processors;
    return m;
}

// Tiles of a block where parts are apart: few while there are few keys, so that many blocks share
// them out; with many keys all rows, so that those pass through each block once.
static struct attend_limits limits_of(const struct gpu *g, const struct attend_args *a,
                                      const struct rows *r, enum kernel kernel) {
    struct attend_limits m = {1, 1, 4 * g->processors};
    int64_t max = 0, group = a->shape.n_heads / a->shape.n_kv, n = r->n - a->first;
    if (kernel == PLAIN)
        return m;
    for (int64_t i = 0; i < r->n; i++)
        max = r->pos[i] > max ? r->pos[i] : max;
    max = a->shape.window > 0 && max > a->shape.window ? a->shape.window : max;
    if (kernel == LATENT)
        return latent_limits(g, a, r, max);
    m.tiles_whole = WHOLE;
    m.tiles_split = 3;
    m.blocks = 2 * g->processors;
    if (a->choice) // kernels for those are fewer
        return m;
    if (kernel == WIDE && (a->layout->s.codec_k == KV_F16 || a->layout->k.scale_row) &&
        (a->layout->s.codec_v == KV_F16 || a->layout->v.scale_row) &&
        2 * ((n * group + LONG_PAIRS - 1) / LONG_PAIRS) * a->shape.n_kv >= g->processors)
        m.tiles_whole = LONG_TILES;
    int many = kernel == WIDE || a->shape.dk == 256 ? 9 : 6;
    if (n * group > 3 * ATTEND_TILE && attend_matrix_bytes(a->shape.dk, many, false) <= g->shared &&
        max / ATTEND_CHUNK * a->shape.n_kv >= 12 * g->processors) {
        m.tiles_split = many;
        m.blocks = g->processors;
    }
    return m;
}

// Plans the call unless an earlier layer has done so; NULL: no memory.
static const struct attend_plans *plans_of(struct gpu *g, const struct attend_args *a,
                                           const struct rows *r, enum kernel kernel) {
    const struct attend_plans *kept = attend_find(g, a, r);
    if (kept)
        return kept;
    struct attend_cut cut = {false, r->n - a->first, limits_of(g, a, r, kernel)};
    cut.whole = attend_plan_whole(a, r, &cut.limits, g->processors) &&
                (kernel == PLAIN ||
                 (kernel == LATENT ? cut.limits.tiles_whole > 1
                                   : attend_matrix_bytes(a->shape.dk, cut.limits.tiles_whole,
                                                         true) <= g->shared));
    if (!cut.whole)
        cut.step = batch_rows(a, r);
    return attend_make(g, a, r, &cut);
}

// What follows where V is stored rotated: rows a->first to n - 1, with gates of `gate`. Latents
// stay f32.
static void run_back(struct gpu *g, struct attend_run *u, const struct attend_args *a, int64_t n,
                     const float *gate, bool latent) {
    struct finish f = finish_of(a->out, a->first, NULL);
    f.x = latent ? NULL : f.x;
    u->begin = a->first;
    u->gate = gate;
    gpu_launch_saying({g, "attend", ATTEND_FOLDS}, rotate_back, (unsigned)(n - a->first),
                      BACK_THREADS, 0, *u, f);
}

// Whether committed keys and values can be read early. The stage keeps one copy of the same bytes,
// so places tell whether just these rows may still be on their way.
static bool reads_early(const struct gpu *g, const struct attend_run *u) {
    const struct launch_says s = {MEMORY_PAGES, 0, false, u->places, false};
    return launch_order_may(&g->order, &s);
}

extern "C" void cuda_attend(struct exec *x, const struct attend_args *call, const struct rows *r) {
    struct gpu *g = gpu_of(x);
    struct attend_args all = *call;
    const struct attend_args *a = &all;
    const int64_t n = r->n - a->first;
    if (n == 0)
        return;
    if (cuda_attend_lacks(a)) {
        gpu_check(g, GPU_NOT_SUPPORTED, "attend: a form without a kernel");
        return;
    }
    if (!attend_chooses(a, r))
        all.choice = NULL;
    else if (!attend_choose(g, a, r))
        return;
    cuda_act_shape(a->out, n, (int64_t)a->shape.n_heads * a->shape.dv);
    struct attend_run u = run_of(a);
    u.places = gpu_stage(g, a->store, (size_t)r->n * sizeof *a->store);
    u.ahead = reads_early(g, &u);
    enum kernel kernel = kernel_for(g, a);
    u.extra = kernel == PLAIN ? 0 : ATTEND_EXTRA;
    const float *const gate = u.gate;
    u.gate = u.rotate_v ? NULL : gate;
    const struct attend_plans *p = plans_of(g, a, r, kernel);
    if (!p)
        gpu_check(g, GPU_OUT_OF_MEMORY, "attend: no host memory");
    for (int64_t i = 0; p && i < p->n; i++) {
        gpu_stage_reserve(g, STAGE_OP); // of the batch before, all launches are queued
        const void *device = attend_tables(g, p, i);
        if (!device)
            return;
        run_batch(g, &u, &p->plan[i], device, a->out, a->first, kernel);
    }
    if (p && u.rotate_v)
        run_back(g, &u, a, r->n, gate, kernel == LATENT);
    if (p && kernel == LATENT) // matrices of heads come next
        act_defer_plain(g, a->out, n);
    else if (p && p->plan[0].whole && !u.rotate_v)
        cuda_act_finish(x, a->out, n);
}

// The forms of attention that the CUDA kernels take, and a word for each that they do not: what a
// model checks when it is loaded, and an op before it is queued.
extern "C" const char *cuda_qk_lacks(const struct qk_args *a) {
    return a->dk % 32 || a->dv % 32 ? "heads that are no multiple of 32" : NULL;
}

extern "C" const char *cuda_attend_lacks(const struct attend_args *a) {
    const struct attend_shape *s = &a->shape;
    if (s->soft_cap > 0)
        return "a soft cap of scores";
    return s->dk % 32 || s->dv % 32 ? "heads that are no multiple of 32" : NULL;
}
