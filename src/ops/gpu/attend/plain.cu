// SPDX-License-Identifier: Apache-2.0
// Attention in f32, for what the matrix kernel does not take: F32 keys or values, other head
// sizes, and devices before sm_80. A block takes 16 (row, query head) pairs, a warp four of them;
// keys and values pass through shared memory in slabs of 128 values of 64 keys. A lane makes the
// scores of two keys, and sums the values of every 32nd element.
#include "ops/gpu/attend/attend.cuh"

enum { WARPS = 4, PAIRS = ATTEND_TILE / WARPS, SLAB = 128, STRIDE = SLAB + 4 };

struct shared {
    struct attend_keys keys;
    float slab[ATTEND_CHUNK][STRIDE], q[ATTEND_TILE][SLAB], weight[ATTEND_TILE][ATTEND_CHUNK];
};

// One of the warp's pairs; every lane holds the same.
struct pair {
    int32_t row, head; // row -1: none
    struct attend_row sees;
    float max, sum, all_max, all_sum;
};

// Values of a slab of rows of `dim`.
static __device__ inline int width_of(int dim, int slab) {
    int left = dim - slab * SLAB;
    return left < SLAB ? left : SLAB;
}

static __device__ void load_slab(const struct attend_run *u, struct shared *m, bool value, int kv,
                                 int slab) {
    int pieces = width_of(value ? u->dv : u->dk, slab) / 8;
    for (int i = threadIdx.x; i < ATTEND_CHUNK * pieces; i += WARPS * WARP) {
        int slot = i / pieces, at = i % pieces;
        struct kv_row from = attend_key(u, &m->keys, slot, value, kv);
        float x[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        if (from.codes)
            kv_load8(value ? u->codec_v : u->codec_k, from, slab * SLAB / 8 + at, x);
        float4 *to = (float4 *)&m->slab[slot][at * 8];
        to[0] = make_float4(x[0], x[1], x[2], x[3]);
        to[1] = make_float4(x[4], x[5], x[6], x[7]);
    }
}

static __device__ void load_queries(const struct attend_run *u, const struct pair *p,
                                    struct shared *m, int slab) {
    int width = width_of(u->dk, slab), warp = threadIdx.x / WARP;
    for (int i = 0; i < PAIRS; i++) {
        const float *q = u->q + ((int64_t)p[i].row * u->n_heads + p[i].head) * u->dk;
        for (int at = threadIdx.x % WARP; at < width; at += WARP)
            m->q[warp * PAIRS + i][at] = p[i].row < 0 ? 0 : q[slab * SLAB + at];
    }
}

// Adds a slab's products to the scores of keys lane and lane + 32.
static __device__ void score_slab(const struct attend_run *u, const struct shared *m, int slab,
                                  float s[PAIRS][2]) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, width = width_of(u->dk, slab);
    for (int at = 0; at < width; at += 4) {
        float4 k[2] = {*(const float4 *)&m->slab[lane][at],
                       *(const float4 *)&m->slab[lane + WARP][at]};
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            float4 q = *(const float4 *)&m->q[warp * PAIRS + i][at];
#pragma unroll
            for (int j = 0; j < 2; j++) {
                s[i][j] = fmaf(q.x, k[j].x, s[i][j]);
                s[i][j] = fmaf(q.y, k[j].y, s[i][j]);
                s[i][j] = fmaf(q.z, k[j].z, s[i][j]);
                s[i][j] = fmaf(q.w, k[j].w, s[i][j]);
            }
        }
    }
}

static __device__ bool takes_part(const struct attend_run *u, const struct attend_item *t,
                                  const struct pair *p, int chunk) {
    if (p->row < 0 ||
        (u->chosen && !attend_chosen(u, (int64_t)p->row * u->n_heads + p->head, chunk)))
        return false;
    return t->kind == ATTEND_WHOLE ||
           (chunk * ATTEND_CHUNK < p->sees.split) == (t->kind == ATTEND_SHARED);
}

// Whether some pair of the block sees something of a chunk. All threads.
static __device__ bool anyone_sees(const struct attend_run *u, const struct attend_item *t,
                                   const struct pair *p, int chunk) {
    bool any = false;
    for (int i = 0; i < PAIRS; i++)
        any = any || takes_part(u, t, &p[i], chunk);
    return __syncthreads_or(any);
}

// Scores to weights under the new maximum, into shared memory; returns what the sums before fade
// by.
static __device__ float weigh_keys(const struct attend_run *u, const struct attend_item *t,
                                   struct pair *p, struct shared *m, int chunk, const float *s,
                                   float *weight) {
    int lane = threadIdx.x % WARP;
    bool part = takes_part(u, t, p, chunk);
    float x[2], max;
    for (int j = 0; j < 2; j++) {
        int32_t pos = m->keys.pos[lane + WARP * j];
        bool seen = part && pos >= p->sees.first && pos <= p->sees.last && pos >= 0;
        x[j] = seen ? s[j] * (u->scale * 1.44269504f) : -INFINITY;
    }
    max = fmaxf(x[0], x[1]);
    max = warp_max(max);
    max = fmaxf(max, p->max);
    float base = max == -INFINITY ? 0 : max;
    float w[2] = {exp2_near(x[0] - base), exp2_near(x[1] - base)}, sum = w[0] + w[1];
    sum = warp_sum(sum);
    weight[lane] = w[0];
    weight[lane + WARP] = w[1];
    float fade = max == -INFINITY ? 1 : exp2_near(p->max - max);
    p->sum = fmaf(p->sum, fade, sum);
    p->max = max;
    return fade;
}

// Adds a slab's weighted values: acc[i][j] is element slab * 128 + j * WARP + lane.
static __device__ inline void gather_slab(const struct shared *m, int width, float acc[PAIRS][4]) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    for (int key = 0; key < ATTEND_CHUNK; key++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (j * WARP >= width)
                break;
            float v = m->slab[key][j * WARP + lane];
#pragma unroll
            for (int i = 0; i < PAIRS; i++)
                acc[i][j] = fmaf(m->weight[warp * PAIRS + i][key], v, acc[i][j]);
        }
}

template <int SLABS>
static __device__ inline void fold(struct pair *p, float acc[SLABS][PAIRS][4],
                                   float all[SLABS][PAIRS][4], const bool *due) {
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        if (!due[i])
            continue;
        float2 f = attend_fold(&p[i].all_max, p[i].max);
        p[i].all_sum = fmaf(p[i].sum, f.y, p[i].all_sum * f.x);
        p[i].max = -INFINITY;
        p[i].sum = 0;
#pragma unroll
        for (int j = 0; j < SLABS * 4; j++) {
            float *a = &acc[j / 4][i][j % 4], *b = &all[j / 4][i][j % 4];
            *b = fmaf(*a, f.y, *b * f.x);
            *a = 0;
        }
    }
}

template <int SLABS>
static __device__ inline void put_output(const struct attend_run *u, const struct attend_item *t,
                                         const struct pair *p, int chunk,
                                         float acc[SLABS][PAIRS][4], float all[SLABS][PAIRS][4]) {
    int lane = threadIdx.x % WARP;
    int32_t slot = t->kind == ATTEND_LAST ? u->slots - 1 : attend_part(chunk) - u->part0;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        if (p[i].row < 0)
            continue;
        int64_t to = attend_slot(u, slot, p[i].row, p[i].head);
        float *out = u->out + p[i].row * u->out_stride + (int64_t)p[i].head * u->dv;
        const float sum = attend_sunk(u, p[i].head, p[i].all_max, p[i].all_sum);
#pragma unroll
        for (int j = 0; j < SLABS * 4; j++) {
            int at = j * WARP + lane;
            if (j * WARP >= u->dv)
                break;
            if (t->kind == ATTEND_WHOLE)
                out[at] = attend_output(u, p[i].row, p[i].head, at, all[j / 4][i][j % 4], sum);
            else
                u->acc[to * u->dv + at] = acc[j / 4][i][j % 4];
        }
        if (t->kind != ATTEND_WHOLE && lane == 0) {
            u->ml[to * 2] = p[i].max;
            u->ml[to * 2 + 1] = p[i].sum;
        }
    }
}

static __device__ inline void find_pairs(const struct attend_run *u, const struct attend_item *t,
                                         int kv, struct pair *p) {
    for (int i = 0; i < PAIRS; i++) {
        int x = threadIdx.x / WARP * PAIRS + i;
        p[i] = (struct pair){-1, 0, {0, 0, -1, 0}, -INFINITY, 0, -INFINITY, 0};
        if (x >= t->n_pairs)
            continue;
        p[i].row = u->list[t->list + (t->pair + x) / u->group];
        p[i].head = kv * u->group + (t->pair + x) % u->group;
        p[i].sees = u->rows[p[i].row];
    }
}

// Begins a part.
template <int SLABS>
static __device__ inline void begin_part(struct pair *p, float acc[SLABS][PAIRS][4]) {
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        p[i].max = -INFINITY;
        p[i].sum = 0;
#pragma unroll
        for (int j = 0; j < SLABS * 4; j++)
            acc[j / 4][i][j % 4] = 0;
    }
}

// One chunk for the warp's pairs.
template <int SLABS>
static __device__ inline void take_chunk(const struct attend_run *u, const struct attend_item *t,
                                         struct pair *p, struct shared *m, int chunk, int kv,
                                         float acc[SLABS][PAIRS][4]) {
    float s[PAIRS][2] = {};
    int warp = threadIdx.x / WARP;
    __syncthreads();
    if (threadIdx.x < ATTEND_CHUNK)
        attend_note(u, attend_look(u, t, chunk, threadIdx.x), &m->keys, threadIdx.x);
    __syncthreads();
#pragma unroll 1
    for (int slab = 0; slab * SLAB < u->dk; slab++) {
        load_slab(u, m, false, kv, slab);
        load_queries(u, p, m, slab);
        __syncthreads();
        score_slab(u, m, slab, s);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        float fade = weigh_keys(u, t, &p[i], m, chunk, s[i], m->weight[warp * PAIRS + i]);
#pragma unroll
        for (int j = 0; j < SLABS * 4; j++)
            acc[j / 4][i][j % 4] *= fade;
    }
#pragma unroll
    for (int slab = 0; slab < SLABS; slab++) {
        if (slab * SLAB >= u->dv)
            break;
        load_slab(u, m, true, kv, slab);
        __syncthreads();
        gather_slab(m, width_of(u->dv, slab), acc[slab]);
        __syncthreads();
    }
}

// Block (item, kv head).
template <int SLABS>
static __global__ void __launch_bounds__(WARPS *WARP)
    attend_kernel(const __grid_constant__ struct attend_run u) {
    __shared__ struct shared m;
    gpu_await();
    gpu_let_next();
    struct attend_item t = u.items[blockIdx.x];
    int kv = blockIdx.y;
    float acc[SLABS][PAIRS][4] = {}, all[SLABS][PAIRS][4] = {};
    struct pair p[PAIRS];
    find_pairs(&u, &t, kv, p);
    for (int chunk = t.chunk; chunk < t.end; chunk++) {
        bool due[PAIRS];
        for (int i = 0; i < PAIRS; i++)
            due[i] =
                t.kind == ATTEND_WHOLE && chunk > t.chunk && attend_folds(chunk, p[i].sees.split);
        fold<SLABS>(p, acc, all, due);
        if (attend_turns(&t, chunk)) {
            put_output<SLABS>(&u, &t, p, chunk - 1, acc, all);
            begin_part<SLABS>(p, acc);
        }
        if (!u.chosen || anyone_sees(&u, &t, p, chunk))
            take_chunk<SLABS>(&u, &t, p, &m, chunk, kv, acc);
    }
    const bool each[PAIRS] = {true, true, true, true};
    if (t.kind == ATTEND_WHOLE)
        fold<SLABS>(p, acc, all, each);
    put_output<SLABS>(&u, &t, p, t.end - 1, acc, all);
}

extern "C" void attend_plain(struct gpu *g, const struct attend_run *u,
                             const struct attend_plan *p) {
    dim3 grid((unsigned)p->n_items, (unsigned)u->n_kv);
    if (u->dv <= SLAB)
        gpu_launch_saying({g, "attend", attend_says(u)}, attend_kernel<1>, grid, WARPS * WARP, 0,
                          *u);
    else if (u->dv <= 2 * SLAB)
        gpu_launch_saying({g, "attend", attend_says(u)}, attend_kernel<2>, grid, WARPS * WARP, 0,
                          *u);
    else
        gpu_launch_saying({g, "attend", attend_says(u)}, attend_kernel<4>, grid, WARPS * WARP, 0,
                          *u);
}
