// SPDX-License-Identifier: Apache-2.0
// The choice of blocks by single rows (struct sparse_rule in ops/attention.h), in f32: means of all
// whole blocks that a sequence's rows see are made anew from stored keys, then scored by tiles of
// 64 (row, head) pairs and 64 means, once for the largest score of each pair and once for its bits.
// A score is one chain of fused multiply-adds over the head, whatever tile it lies in, so a choice
// is the same in every pass (rule E1). Rows that see everything have all bits. The attention
// kernels read the bits (block.cuh).
#include <math.h>

#include "ops/gpu/attend/attend.cuh"
#include "ops/gpu/runtime/ops_cuda.h"

enum { SHARERS = 8, TILE = 64, SLAB = 32, THREADS = 256, SIDE = TILE / 16, BLOCK = SPARSE_BLOCK };

// The rows of one sequence that choose: a chain at positions len, len + 1, ...
struct choose_run {
    const float *q; // [n][n_heads][d]
    float *means;   // [blocks][n_kv][d]
    uint32_t *chosen;
    int64_t words; // of a pair
    int32_t n_heads, n_kv, group, d, codec;
    struct kv_plane k;
    int64_t layer; // bytes from a page to the layer
    float scale, least;
    int32_t sinks, window;
    unsigned char *const *pages; // of committed positions
    const struct kv_slot *store; // of all rows of the pass
    int32_t len, begin, n;       // committed positions; the first row and how many rows choose
};

static __device__ inline struct kv_row choose_key(const struct choose_run *u, int32_t pos, int kv) {
    unsigned char *page;
    int32_t slot = pos % KV_PAGE;
    if (pos < u->len) {
        page = attend_entry(&u->pages[pos / KV_PAGE]);
    } else {
        struct kv_slot at = attend_entry(&u->store[u->begin + pos - u->len]);
        page = at.page;
        slot = at.slot;
    }
    int64_t row = (int64_t)kv * KV_PAGE + slot;
    page += u->layer;
    struct kv_row r = {page + u->k.codes + row * u->k.code_row,
                       page + u->k.scales + row * u->k.scale_row};
    return r;
}

// Block (key block, kv head), threads (eight values of a head, sharer). A sharer adds up 16 keys in
// order; their sums are added up in order.
static __global__ void __launch_bounds__(OPS_KEY_MAX / 8 * SHARERS)
    choose_means(const __grid_constant__ struct choose_run u) {
    __shared__ float part[SHARERS][OPS_KEY_MAX];
    float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0}, x[8];
    int32_t first = (int32_t)blockIdx.x * BLOCK + (int32_t)threadIdx.y * (BLOCK / SHARERS);
    gpu_await();
    gpu_let_next();
    for (int i = 0; i < BLOCK / SHARERS; i++) {
        kv_load8(u.codec, choose_key(&u, first + i, (int)blockIdx.y), (int)threadIdx.x, x);
#pragma unroll
        for (int j = 0; j < 8; j++)
            sum[j] += x[j];
    }
#pragma unroll
    for (int j = 0; j < 8; j++)
        part[threadIdx.y][threadIdx.x * 8 + j] = sum[j];
    __syncthreads();
    float *out = u.means + ((int64_t)blockIdx.x * u.n_kv + blockIdx.y) * u.d;
    for (int i = (int)(threadIdx.y * blockDim.x + threadIdx.x); i < u.d;
         i += (int)(blockDim.x * blockDim.y)) {
        float all = 0;
        for (int s = 0; s < SHARERS; s++)
            all += part[s][i];
        out[i] = all * (1.0f / BLOCK);
    }
}

// All pairs see everything.
static __global__ void __launch_bounds__(THREADS) choose_all(uint32_t *chosen, int64_t n) {
    gpu_await();
    gpu_let_next();
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * THREADS)
        chosen[i] = 0xFFFFFFFFu;
}

// 32 values of 64 pairs' queries and of 64 blocks' means, by value.
struct choose_shared {
    float q[SLAB][TILE + 4], mean[SLAB][TILE + 4];
};

// A thread's place: pairs 4 y .. 4 y + 3 of the tile, blocks 4 x .. 4 x + 3.
struct choose_place {
    int32_t kv, pair, pairs; // the tile's first pair, and how many pairs of the kv head there are
    int x, y;
};

static __device__ inline int64_t choose_pair(const struct choose_run *u,
                                             const struct choose_place &p, int32_t pair) {
    int32_t row = u->begin + pair / u->group;
    return (int64_t)row * u->n_heads + p.kv * u->group + pair % u->group;
}

static __device__ inline void choose_load(const struct choose_run *u, const struct choose_place &p,
                                          int32_t from, int32_t all, int at,
                                          struct choose_shared *m) {
    for (int i = (int)threadIdx.x; i < TILE * (SLAB / 4); i += THREADS) {
        int row = i / (SLAB / 4), four = i % (SLAB / 4);
        float4 q = make_float4(0, 0, 0, 0), k = q;
        if (p.pair + row < p.pairs)
            q = *(const float4 *)(u->q + choose_pair(u, p, p.pair + row) * u->d + at + four * 4);
        if (from + row < all)
            k = __ldcg((const float4 *)(u->means + ((int64_t)(from + row) * u->n_kv + p.kv) * u->d +
                                        at + four * 4));
        const float qs[4] = {q.x, q.y, q.z, q.w}, ks[4] = {k.x, k.y, k.z, k.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            m->q[four * 4 + j][row] = qs[j];
            m->mean[four * 4 + j][row] = ks[j];
        }
    }
}

// s[i][j]: score of the thread's pair i and block from + 4 x + j.
static __device__ inline void choose_score(const struct choose_run *u, const struct choose_place &p,
                                           int32_t from, int32_t all, struct choose_shared *m,
                                           float s[SIDE][SIDE]) {
#pragma unroll
    for (int i = 0; i < SIDE * SIDE; i++)
        s[i / SIDE][i % SIDE] = 0;
    for (int at = 0; at < u->d; at += SLAB) {
        __syncthreads();
        choose_load(u, p, from, all, at, m);
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < SLAB; k++) {
            float4 a = *(const float4 *)&m->q[k][p.y * SIDE];
            float4 b = *(const float4 *)&m->mean[k][p.x * SIDE];
            const float as[4] = {a.x, a.y, a.z, a.w}, bs[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (int i = 0; i < SIDE * SIDE; i++)
                s[i / SIDE][i % SIDE] = fmaf(as[i / SIDE], bs[i % SIDE], s[i / SIDE][i % SIDE]);
        }
    }
#pragma unroll
    for (int i = 0; i < SIDE * SIDE; i++)
        s[i / SIDE][i % SIDE] = __fmul_rn(s[i / SIDE][i % SIDE], u->scale);
}

// Whether a row of block `own` sees block b, whose score is s.
static __device__ inline bool choose_sees(const struct choose_run *u, int32_t own, int32_t b,
                                          float s, float max) {
    if (b >= own)
        return b == own;
    return __fsub_rn(s, max) >= u->least || b < u->sinks || own - b < u->window;
}

// Bits of the four blocks from b on.
static __device__ inline uint32_t choose_four(const struct choose_run *u, int32_t own, int32_t b,
                                              const float *s, float max) {
    uint32_t bits = 0;
#pragma unroll
    for (int j = 0; j < SIDE; j++)
        bits |= (uint32_t)choose_sees(u, own, b + j, s[j], max) << j;
    return bits;
}

// Block (64 pairs, kv head).
static __global__ void __launch_bounds__(THREADS)
    choose_bits(const __grid_constant__ struct choose_run u) {
    __shared__ struct choose_shared m;
    struct choose_place p = {(int32_t)blockIdx.y, (int32_t)blockIdx.x * TILE, u.n * u.group,
                             (int)threadIdx.x % 16, (int)threadIdx.x / 16};
    int32_t own[SIDE];
    float max[SIDE], s[SIDE][SIDE];
    gpu_await();
    gpu_let_next();
#pragma unroll
    for (int i = 0; i < SIDE; i++) {
        int32_t pair = min(p.pair + p.y * SIDE + i, p.pairs - 1);
        own[i] = (u.len + pair / u.group) / BLOCK;
        max[i] = -INFINITY;
    }
    // Blocks that the tile's last row scores.
    int32_t all = (u.len + (min(p.pair + TILE, p.pairs) - 1) / u.group) / BLOCK;
    for (int32_t from = 0; from < all; from += TILE) {
        choose_score(&u, p, from, all, &m, s);
#pragma unroll
        for (int i = 0; i < SIDE * SIDE; i++)
            if (from + p.x * SIDE + i % SIDE < own[i / SIDE])
                max[i / SIDE] = fmaxf(max[i / SIDE], s[i / SIDE][i % SIDE]);
    }
#pragma unroll
    for (int i = 0; i < SIDE; i++)
        max[i] = warp_max<16>(max[i]);
    for (int32_t from = 0; from < u.words * 32; from += TILE) {
        uint32_t bits[SIDE] = {}; // of blocks from + 32 (x / 8) on
        if (from <= all) {
            choose_score(&u, p, from, all, &m, s);
#pragma unroll
            for (int i = 0; i < SIDE; i++)
                bits[i] = choose_four(&u, own[i], from + p.x * SIDE, s[i], max[i])
                          << p.x % 8 * SIDE;
        }
#pragma unroll
        for (int i = 0; i < SIDE; i++) {
            int32_t pair = p.pair + p.y * SIDE + i, word = from / 32 + p.x / 8;
            for (int d = 4; d; d /= 2)
                bits[i] |= warp_across(bits[i], d);
            if (p.x % 8 == 0 && pair < p.pairs && word < u.words)
                u.chosen[choose_pair(&u, p, pair) * u.words + word] = bits[i];
        }
    }
}

// Rows of the sequence of row i that lie together: [i, end); *n of them choose.
static int64_t run_end(const struct attend_args *a, const struct rows *r, int64_t i, int64_t *n) {
    int64_t end = i;
    *n = 0;
    for (; end < r->n && r->seq[end] == r->seq[i]; end++)
        if (r->pos[end] < a->choice->end[r->seq[i]])
            *n = end + 1 - i;
    return end;
}

extern "C" bool attend_chooses(const struct attend_args *a, const struct rows *r) {
    for (int64_t i = 0, n; a->choice && i < r->n;) {
        i = run_end(a, r, i, &n);
        if (n)
            return true;
    }
    return false;
}

// One sequence's rows.
static void choose_rows(struct gpu *g, struct choose_run *u, const struct kv_view *view) {
    int32_t blocks = (u->len + u->n - 1) / BLOCK;
    int64_t pages = (u->len + KV_PAGE - 1) / KV_PAGE;
    u->pages = NULL;
    if (pages)
        u->pages =
            (unsigned char *const *)gpu_stage(g, view->pages, (size_t)pages * sizeof *view->pages);
    if (pages && !u->pages)
        return;
    if (blocks)
        gpu_launch_early(g, "attend", choose_means, dim3((unsigned)blocks, (unsigned)u->n_kv),
                         dim3((unsigned)u->d / 8, SHARERS), 0, *u);
    gpu_launch_early(g, "attend", choose_bits,
                     dim3((unsigned)((u->n * u->group + TILE - 1) / TILE), (unsigned)u->n_kv),
                     THREADS, 0, *u);
}

extern "C" bool attend_choose(struct gpu *g, const struct attend_args *a, const struct rows *r) {
    const struct attend_choice *c = a->choice;
    const struct kv_layout *l = a->layout;
    struct choose_run u = {};
    int64_t choosing = 0, n;
    u.q = a->q;
    u.means = c->means;
    u.chosen = c->chosen;
    u.words = c->blocks / 32;
    u.n_heads = a->shape.n_heads;
    u.n_kv = a->shape.n_kv;
    u.group = a->shape.n_heads / a->shape.n_kv;
    u.d = a->shape.dk;
    u.codec = l->s.codec_k;
    u.k = l->k;
    u.layer = a->layer * l->layer_bytes;
    u.scale = a->shape.scale;
    u.least = c->rule.alpha > 0 ? logf(c->rule.alpha) : -INFINITY;
    u.sinks = c->rule.sinks;
    u.window = c->rule.window;
    u.store = (const struct kv_slot *)gpu_stage(g, a->store, (size_t)r->n * sizeof *a->store);
    if (!u.store)
        return false;
    for (int64_t i = 0; i < r->n; i = run_end(a, r, i, &n), choosing += n)
        ;
    if (choosing < r->n) {
        int64_t words = r->n * u.n_heads * u.words, blocks = (words + THREADS - 1) / THREADS;
        gpu_launch_early(g, "attend", choose_all, dim3((unsigned)(blocks < 4096 ? blocks : 4096)),
                         THREADS, 0, u.chosen, words);
    }
    for (int64_t i = 0, end; i < r->n; i = end) {
        end = run_end(a, r, i, &n);
        u.len = (int32_t)r->pos[i];
        u.begin = (int32_t)i;
        u.n = (int32_t)n;
        if (n)
            choose_rows(g, &u, &a->seqs[r->seq[i]]);
    }
    return g->fault == GPU_OK;
}
