// SPDX-License-Identifier: Apache-2.0
// Attention by the warpgroup instruction of sm_90a: the kernel of wide.cu and
// latent.cu. A block takes up to N (row, query head) pairs of one kv head; pairs are the
// columns of both products: keys times queries make scores, of which each of two warpgroups has
// half of the pairs, and values, turned, times weights make outputs, of which each has half of the
// values. Keys and values are read from shared memory once for all pairs. Weights pass through
// shared memory; the next chunk arrives while one is worked on.
//
// Every element goes through the same operations in the same order as in matrix.cuh (the two
// instructions make the same bits: tests/gpu/test_tiles.cu), so that either may serve a row. Forms
// are as there; M: tiles of 64 values of a warpgroup, H: half of the pairs.
#ifndef COPPICE_OPS_GPU_ATTEND_WIDE_CUH
#define COPPICE_OPS_GPU_ATTEND_WIDE_CUH

#include "ops/gpu/attend/block.cuh"
#include "ops/gpu/matrix/wgmma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define ATTEND_WIDE 1
#endif

enum { WIDE_LIVE = 8 }; // folded values of a thread that stay in registers

// What a block also keeps of its pairs with ATTEND_WHOLE.
template <int N> struct wide_folded {
    float max[N]; // maximum of what is folded so far
    float2 by[N]; // factors of the present fold; y < 0: not this pair
};

#if !defined(__CUDA_ARCH__) || defined(ATTEND_WIDE)

template <class F> struct wide_sums {
    float acc[F::M][F::N / 2], sum[F::OWN][4];
};
template <class F> struct wide_whole {
    float live[WIDE_LIVE], sum[2];
    float *saved; // shared memory, [SAVED] THREADS apart
    struct wide_folded<F::N> *m;
};

static __device__ __forceinline__ int group_of(void) {
    return threadIdx.x / 128;
}

// s = scores of the chunk's keys and the group's half of the pairs.
template <class F>
static __device__ __forceinline__ void wide_score(unsigned queries, unsigned keys,
                                                  float (&s)[F::H / 2]) {
    unsigned a = wgmma_low(keys, 1024),
             b = wgmma_low(queries + (unsigned)(group_of() * F::H * 128), 1024);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < F::D / 16; k++)
        wgmma_both_if<F::H, false>(
            s, wgmma_operand(a + (unsigned)(k / 4 * ATTEND_CHUNK * 8 + k % 4 * 2)),
            wgmma_operand(b + (unsigned)(k / 4 * F::N * 8 + k % 4 * 2)), k > 0);
    wgmma_commit();
}

// Scores of hidden keys to -inf.
template <class F>
static __device__ inline void wide_hide(const struct attend_run *u, const struct attend_item *t,
                                        const struct state<F::T> *m, const struct attend_keys *keys,
                                        int chunk, float (&s)[F::H / 2]) {
    int lane = threadIdx.x % WARP, at = threadIdx.x / WARP % 4 * 16 + lane / 4;
    int32_t pos[2] = {keys->pos[at], keys->pos[at + 8]};
#pragma unroll
    for (int x = 0; x < F::H / 4; x++) {
        int pair = group_of() * F::H + x / 2 * 8 + lane % 4 * 2 + x % 2;
        bool part =
            t->kind == ATTEND_WHOLE || (chunk < m->split[pair]) == (t->kind == ATTEND_SHARED);
        if (F::CHOICE)
            part = part && attend_chosen(u, m->place[pair], chunk);
        int32_t first = m->first[pair], last = part ? m->last[pair] : -1;
#pragma unroll
        for (int y = 0; y < 2; y++)
            if (pos[y] < first || pos[y] > last)
                s[x / 2 * 4 + y * 2 + x % 2] = -INFINITY;
    }
}

// v[0 .. N) of eight lanes (those of one lane % 4), to maxima over them: each lane ends with those
// of some; returns the number of the first. Halves overlap where N is odd.
template <int N, int MASK> static __device__ __forceinline__ int lane_maxima(float *v) {
    if constexpr (MASK == 2) {
        return 0;
    } else {
        constexpr int HALF = (N + 1) / 2;
        bool high = threadIdx.x & MASK;
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            float a = v[i], b = v[N - HALF + i];
            float other = warp_across(high ? a : b, MASK);
            v[i] = fmaxf(high ? b : a, other);
        }
        return (high ? N - HALF : 0) + lane_maxima<HALF, MASK / 2>(v);
    }
}

// Maxima of the warp's 16 keys, not yet in units of log 2.
template <class F>
static __device__ __forceinline__ void wide_maxima(struct state<F::T> *m,
                                                   const float (&s)[F::H / 2]) {
    constexpr int COUNT = F::H / 4, LEFT = ((COUNT + 1) / 2 + 1) / 2;
    int lane = threadIdx.x % WARP, quarter = threadIdx.x / WARP % 4;
    float v[COUNT];
#pragma unroll
    for (int x = 0; x < COUNT; x++)
        v[x] = fmaxf(s[x / 2 * 4 + x % 2], s[x / 2 * 4 + 2 + x % 2]);
    int first = lane_maxima<COUNT, 16>(v);
    float *to = m->maxima[quarter] + lane % 4 * (F::N / 4) + group_of() * COUNT + first;
#pragma unroll
    for (int i = 0; i < (LEFT + 1) / 2; i++)
        to[i] = v[i];
}

// The new maximum of one pair a thread, to m->maxima[0] what weights are under, and whether its
// sums fade. A part that begins with this chunk has none so far.
template <class F>
static __device__ __forceinline__ bool wide_renew(struct state<F::T> *m, const struct spot &p) {
    int at = F::slot(group_of() * F::H + threadIdx.x % 128);
    if (threadIdx.x % 128 >= F::H)
        return false;
    float part =
        fmaxf(fmaxf(m->maxima[0][at], m->maxima[1][at]), fmaxf(m->maxima[2][at], m->maxima[3][at]));
    float old = !F::WHOLE && p.begins ? -INFINITY : m->max[turn_of<F>(p) % 2][at];
    float now = renewed(old, part * m->scale[at]);
    float fade = now == -INFINITY ? 1 : exp2_near(old - now);
    m->maxima[0][at] = now == -INFINITY ? 0 : now - EXTRA;
    m->max[(turn_of<F>(p) + 1) % 2][at] = now;
    m->fade[at] = fade;
    return fade != 1;
}

// Scores to weights.
template <class F>
static __device__ __forceinline__ void wide_weigh(const struct state<F::T> *m,
                                                  const float (&s)[F::H / 2], unsigned weights) {
    int lane = threadIdx.x % WARP, quarter = threadIdx.x / WARP % 4;
    int at = lane % 4 * (F::N / 4) + group_of() * (F::H / 4);
    weights += (unsigned)((group_of() * F::H + lane % 8) * 128 +
                          ((quarter * 2 + lane / 8 % 2) ^ lane % 8) * 16);
#pragma unroll
    for (int i = 0; i < F::H / 8; i++) {
        float2 scale = *(const float2 *)&m->scale[at + 2 * i];
        float2 base = *(const float2 *)&m->maxima[0][at + 2 * i];
        store_two_turned(weights + (unsigned)(i * 8 * 128),
                         pack(exp2_near(fmaf(s[4 * i], scale.x, -base.x)),
                              exp2_near(fmaf(s[4 * i + 1], scale.y, -base.y))),
                         pack(exp2_near(fmaf(s[4 * i + 2], scale.x, -base.x)),
                              exp2_near(fmaf(s[4 * i + 3], scale.y, -base.y))));
    }
}

// Sums of the warp's own tiles of pairs.
template <class F>
static __device__ __forceinline__ void wide_sum(const struct state<F::T> *m, unsigned weights,
                                                struct wide_sums<F> *z) {
    const unsigned ones[2] = {0x3C003C00u, 0x3C003C00u};
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    unsigned at[4];
    piece_offsets(lane, lane / 16, at);
    weights += (unsigned)(lane % 16 * 128);
#pragma unroll
    for (int j = 0; j < F::OWN; j++) {
        int tile = min(warp + F::WARPS * j, F::T - 1); // no branches while products are made
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float fade = m->fade[F::slot(tile * 16 + lane / 4 + 8 * i)];
            z->sum[j][2 * i] *= fade;
            z->sum[j][2 * i + 1] *= fade;
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            unsigned a[4];
            load_four(a, weights + at[k] + (unsigned)(tile * 16 * 128));
            mma_k16(z->sum[j], a, ones[0], ones[1]);
        }
    }
}

// acc = acc * fade + weights V for the group's half of the values.
template <class F>
static __device__ __forceinline__ void wide_gather(const struct state<F::T> *m, bool fades,
                                                   unsigned weights, unsigned values,
                                                   struct wide_sums<F> *z) {
    int q = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < F::N / 8 && fades; i++) {
        float2 fade = *(const float2 *)&m->fade[q * (F::N / 4) + 2 * i];
#pragma unroll
        for (int j = 0; j < F::M * 4; j++)
            z->acc[j / 4][4 * i + j % 4] *= j % 2 ? fade.y : fade.x;
    }
    unsigned a = wgmma_low(values + (unsigned)(group_of() * F::M * 8192), 1024),
             b = wgmma_low(weights, 1024);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int j = 0; j < F::M; j++)
            wgmma_both_if<F::N, true>(z->acc[j], wgmma_operand(a + (unsigned)(j * 512 + k * 128)),
                                      wgmma_operand(b + (unsigned)(k * 2)), 1);
    wgmma_commit();
    wide_sum<F>(m, weights, z);
    wgmma_wait<0>();
#pragma unroll
    for (int j = 0; j < F::M; j++)
        wgmma_made(z->acc[j]);
}

template <class F> static __device__ __forceinline__ void wide_clear(struct wide_sums<F> *z) {
#pragma unroll
    for (int i = 0; i < F::M * F::N / 2; i++)
        z->acc[i / (F::N / 2)][i % (F::N / 2)] = 0;
#pragma unroll
    for (int i = 0; i < F::OWN * 4; i++)
        z->sum[i / 4][i % 4] = 0;
}

// The value that a thread's first element of a tile is.
static __device__ __forceinline__ int value_of(int tiles) {
    return group_of() * tiles * 64 + threadIdx.x / WARP % 4 * 16 + threadIdx.x % WARP / 4;
}

// Results of the part that ends before a chunk to its slot.
template <class F>
static __device__ __forceinline__ void
wide_put(const struct attend_run *u, const struct attend_item *t, const struct state<F::T> *m,
         int chunk, const struct wide_sums<F> *z) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int32_t slot = t->kind == ATTEND_LAST ? u->slots - 1 : attend_part(chunk - 1) - u->part0;
    int64_t from = (slot * u->n_rows - u->begin) * u->n_heads;
#pragma unroll
    for (int x = 0; x < F::N / 4; x++) {
        int pair = x / 2 * 8 + lane % 4 * 2 + x % 2;
        if (pair >= t->n_pairs)
            continue;
        float *acc = u->acc + (from + m->place[pair]) * F::DV + value_of(F::M);
#pragma unroll
        for (int j = 0; j < F::M; j++) {
            acc[j * 64] = z->acc[j][x / 2 * 4 + x % 2];
            acc[j * 64 + 8] = z->acc[j][x / 2 * 4 + 2 + x % 2];
        }
    }
#pragma unroll
    for (int x = 0; x < F::OWN * 2; x++) {
        int pair = (warp + x / 2 * F::WARPS) * 16 + lane / 4 + x % 2 * 8;
        if (pair < t->n_pairs && lane % 4 == 0)
            *(float2 *)(u->ml + (from + m->place[pair]) * 2) =
                make_float2(m->max[chunk % 2][F::slot(pair)], z->sum[x / 2][x % 2 * 2]);
    }
}

// Where a thread's first value of a pair's output goes.
template <class F>
static __device__ __forceinline__ float *wide_output(const struct attend_run *u,
                                                     const struct state<F::T> *m, int pair) {
    int32_t row = m->place[pair] / u->n_heads, head = m->place[pair] - row * u->n_heads;
    return u->out + row * u->out_stride + head * F::DV + value_of(F::M);
}

// With F::OUTSIDE: folds the values of pairs that end a part into where the rows' output will be;
// by.x = 0 where nothing is there yet. What is there of some pairs is requested at once.
template <class F>
static __device__ __forceinline__ void
wide_fold_outside(const struct attend_run *u, const struct attend_item *t,
                  const struct state<F::T> *m, const float2 *by, struct wide_sums<F> *z) {
    constexpr int AT_ONCE = 4, EACH = F::M * 2; // pairs; values of a pair
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int x0 = 0; x0 < F::N / 4; x0 += AT_ONCE) {
        float was[AT_ONCE][EACH];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int x = x0 + i, pair = x / 2 * 8 + lane % 4 * 2 + x % 2;
            const float2 f = by[lane % 4 * (F::N / 4) + x];
            const bool there = pair < t->n_pairs && f.y >= 0 && f.x != 0;
            const float *from = wide_output<F>(u, m, there ? pair : 0);
#pragma unroll
            for (int j = 0; j < EACH; j++)
                was[i][j] = there ? from[j / 2 * 64 + j % 2 * 8] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int x = x0 + i, pair = x / 2 * 8 + lane % 4 * 2 + x % 2;
            const float2 f = by[lane % 4 * (F::N / 4) + x];
            if (pair >= t->n_pairs || f.y < 0)
                continue;
            float *to = wide_output<F>(u, m, pair);
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                const int e = x / 2 * 4 + j % 2 * 2 + x % 2;
                to[j / 2 * 64 + j % 2 * 8] = fmaf(z->acc[j / 2][e], f.y, was[i][j] * f.x);
                z->acc[j / 2][e] = 0;
            }
        }
    }
}

// Folds the part of those pairs that end one before this chunk (all at the end of the keys) into
// what came before. All threads.
template <class F>
static __device__ __forceinline__ void
wide_fold(const struct attend_run *u, const struct attend_item *t, struct state<F::T> *m,
          const struct spot &p, bool end, struct wide_sums<F> *z, struct wide_whole<F> *f) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, own = threadIdx.x;
    if (own < F::N) {
        int at = F::slot(own);
        float2 by = {0, -1};
        bool none = F::OUTSIDE && f->m->max[at] == -INFINITY;
        int split = m->split[own];
        bool reached = F::CHOICE ? p.before < split && p.chunk >= split : p.chunk == split;
        if (end || reached || (p.begins && p.chunk < split)) {
            by = attend_fold(&f->m->max[at], m->max[turn_of<F>(p) % 2][at]);
            m->max[turn_of<F>(p) % 2][at] = -INFINITY;
            by.x = none ? 0 : by.x;
        }
        f->m->by[at] = by;
    }
    __syncthreads();
    if constexpr (F::OUTSIDE)
        wide_fold_outside<F>(u, t, m, f->m->by, z);
#pragma unroll
    for (int x = 0; x < (F::OUTSIDE ? 0 : F::N / 4); x++) {
        float2 by = f->m->by[lane % 4 * (F::N / 4) + x];
#pragma unroll
        for (int j = 0; j < F::M * 2; j++) {
            int e = x / 2 * 4 + j % 2 * 2 + x % 2, n = j / 2 * F::N / 2 + e;
            float was = n < WIDE_LIVE ? f->live[n < WIDE_LIVE ? n : 0]
                                      : f->saved[(n - WIDE_LIVE) * F::THREADS];
            float is = by.y < 0 ? was : fmaf(z->acc[j / 2][e], by.y, was * by.x);
            if (n < WIDE_LIVE)
                f->live[n < WIDE_LIVE ? n : 0] = is;
            else
                f->saved[(n - WIDE_LIVE) * F::THREADS] = is;
            z->acc[j / 2][e] = by.y < 0 ? z->acc[j / 2][e] : 0;
        }
    }
    for (int i = 0; i < 2 && warp < F::T; i++) {
        float2 by = f->m->by[F::slot(warp * 16 + lane / 4 + 8 * i)];
        if (by.y < 0)
            continue;
        f->sum[i] = fmaf(z->sum[0][2 * i], by.y, f->sum[i] * by.x);
        z->sum[0][2 * i] = z->sum[0][2 * i + 1] = 0;
    }
}

// With ATTEND_WHOLE: the last fold and the output.
template <class F>
static __device__ __forceinline__ void
wide_end(const struct attend_run *u, const struct attend_item *t, struct state<F::T> *m,
         const struct spot &p, struct wide_sums<F> *z, struct wide_whole<F> *f) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    wide_fold<F>(u, t, m, p, true, z, f);
    if (warp < F::T && lane % 4 == 0)
        for (int i = 0; i < 2; i++) {
            const int pair = warp * 16 + lane / 4 + 8 * i;
            m->fade[pair] =
                attend_sunk(u, m->place[pair] % u->n_heads, f->m->max[F::slot(pair)], f->sum[i]);
        }
    __syncthreads();
#pragma unroll
    for (int x = 0; x < F::N / 4; x++) {
        int pair = x / 2 * 8 + lane % 4 * 2 + x % 2;
        if (pair >= t->n_pairs)
            continue;
        int32_t row = m->place[pair] / u->n_heads, head = m->place[pair] - row * u->n_heads;
        float *out = u->out + row * u->out_stride + head * F::DV;
#pragma unroll
        for (int j = 0; j < F::M * 2; j++) {
            int n = j / 2 * F::N / 2 + x / 2 * 4 + j % 2 * 2 + x % 2;
            int at = value_of(F::M) + j / 2 * 64 + j % 2 * 8;
            float v = F::OUTSIDE      ? out[at]
                      : n < WIDE_LIVE ? f->live[n < WIDE_LIVE ? n : 0]
                                      : f->saved[(n - WIDE_LIVE) * F::THREADS];
            out[at] = attend_output(u, row, head, at, v, m->fade[pair]);
        }
    }
}

template <class F>
static __device__ __forceinline__ void clear_whole(struct wide_whole<F> *f, unsigned char *memory) {
    f->saved = (float *)(memory + F::ALL) + threadIdx.x;
    f->m = (struct wide_folded<F::N> *)(memory + F::FOLDED);
#pragma unroll
    for (int i = 0; i < WIDE_LIVE; i++)
        f->live[i] = 0;
    f->sum[0] = f->sum[1] = 0;
    for (int i = 0; i < F::SAVED; i++)
        f->saved[i * F::THREADS] = 0;
    if (threadIdx.x < F::N)
        f->m->max[threadIdx.x] = -INFINITY;
}

// Whether all of a chunk is committed.
static __device__ __forceinline__ bool is_full(const struct attend_item *t,
                                               const struct attend_keys *keys, int chunk) {
    return chunk < t->end && (chunk + 1) * ATTEND_CHUNK <= t->len && keys->page[0];
}

// Finds the keys of chunks for threads FINDERS to + 63: the page of a committed chunk is requested
// one chunk before it is looked at.
enum { FINDERS = 64 };
struct finder {
    const unsigned char *page;
    bool committed;
};

static __device__ __forceinline__ struct finder find_ahead(const struct attend_run *u,
                                                           const struct attend_item *t, int chunk) {
    struct finder f;
    f.committed = chunk < t->end && (chunk + 1) * ATTEND_CHUNK <= t->len;
    const void *at = f.committed ? (const void *)&u->pages[t->pages + chunk] : u->items;
    f.page = (const unsigned char *)load_here(at); // no branch waits for it
    return f;
}

static __device__ __forceinline__ void note_found(const struct attend_run *u,
                                                  const struct attend_item *t, struct finder f,
                                                  struct attend_keys *keys, int chunk) {
    int i = (int)threadIdx.x - FINDERS;
    if (i < 0 || i >= ATTEND_CHUNK || chunk >= t->end)
        return;
    struct attend_found found = {f.page, i, chunk * ATTEND_CHUNK + i};
    if (!f.committed)
        found = attend_look(u, t, chunk, i);
    attend_note(u, found, keys, i);
}

static __device__ __forceinline__ void group_sync(void) {
    warps_meet<128>(1 + group_of());
}

// Whether all pairs of the block see all keys of a full chunk.
struct sight {
    int32_t first, last, split_least, split_max;
};
template <class F>
static __device__ __forceinline__ bool sees_all(const struct attend_item *t, const struct sight &x,
                                                int chunk) {
    if (x.first > chunk * ATTEND_CHUNK || x.last < (chunk + 1) * ATTEND_CHUNK - 1)
        return false;
    return F::WHOLE || (t->kind == ATTEND_SHARED ? chunk < x.split_least : chunk >= x.split_max);
}

// All chunks of the item that some pair sees; *p: the end.
template <class F>
static __device__ __forceinline__ void
run_wide_item(const struct attend_run *u, const struct work *b, struct state<F::T> *m,
              struct spot *end, struct wide_sums<F> *z, struct wide_whole<F> *f) {
    const struct attend_item *t = &b->t;
    const struct sight sight = {m->first_max, m->last_least, m->split_least, m->split_max};
    const uint32_t *any = (const uint32_t *)(b->memory + F::ANY);
    unsigned base = shared_address(b->memory);
    int turn = t->kind == ATTEND_LAST ? INT32_MAX : attend_part_begin(attend_part(t->chunk) + 1);
    int first = F::CHOICE ? next_seen(any, t->chunk, t->end) : t->chunk, next = 0;
    struct spot p = {first, first, 0, false};
    if (F::CHOICE)
        next = next_seen(any, first + 1, t->end);
#pragma unroll 1
    while (p.chunk < t->end) {
        unsigned stage = base + (unsigned)(turn_of<F>(p) % F::STAGES * F::TILE);
        int ahead = F::CHOICE ? next : p.chunk + 1;
        int third = F::CHOICE ? next_seen(any, next + 1, t->end) : p.chunk + 2;
        p.begins = F::CHOICE ? p.chunk >= turn : p.chunk == turn;
        float s[F::H / 2];
        // Copies that are still on their way: this chunk's values, except with one stage, where
        // only the first chunk's are requested so early, and not with codes.
        if (F::STAGES == 2 || (p.chunk == first && !F::COPIED))
            copies_wait<1>();
        else
            copies_wait<0>();
        show_shared();
        __syncthreads();
        struct finder found = find_ahead(u, t, third);
        copy_ahead<F>(u, b, m, ahead, turn_of<F>(p) + 1, false);
        if (F::STAGES == 2)
            bring_both<F>(u, b, m, ahead, turn_of<F>(p) + 1);
        else if (p.chunk > first || F::COPIED)
            bring_chunk<F>(u, b, m, p.chunk, turn_of<F>(p), true);
        if (p.begins)
            turn = attend_part_begin(attend_part(p.chunk) + 1);
        if constexpr (F::WHOLE) {
            bool splits = p.chunk >= sight.split_least &&
                          (F::CHOICE ? p.before < sight.split_max : p.chunk <= sight.split_max);
            if (p.chunk > first && (p.begins || splits))
                wide_fold<F>(u, t, m, p, false, z, f);
        } else if (p.begins) {
            wide_put<F>(u, t, m, p.chunk, z);
            wide_clear<F>(z);
        }
        wide_score<F>(base + F::Q, stage, s);
        wgmma_wait<0>();
        wgmma_made(s);
        if (F::CHOICE || !is_full(t, &m->keys[turn_of<F>(p) % 3], p.chunk) ||
            !sees_all<F>(t, sight, p.chunk))
            wide_hide<F>(u, t, m, &m->keys[turn_of<F>(p) % 3], p.chunk, s);
        wide_maxima<F>(m, s);
        const unsigned weights = base + F::weights(turn_of<F>(p));
        if (F::SAME) // weights take the place of what the other group may still multiply
            __syncthreads();
        else
            group_sync();
        bool fades = wide_renew<F>(m, p);
        group_sync();
        wide_weigh<F>(m, s, weights);
        note_found(u, t, found, &m->keys[(turn_of<F>(p) + 2) % 3], third);
        copies_wait<F::STAGES == 2 ? 2 : 0>();
        show_shared();
        fades = __syncthreads_or(fades);
        copy_ahead<F>(u, b, m, ahead, turn_of<F>(p) + 1, true);
        if (F::STAGES == 1)
            bring_chunk<F>(u, b, m, ahead, turn_of<F>(p) + 1, false);
        wide_gather<F>(m, fades, weights, stage + F::V, z);
        if constexpr (F::CHOICE) {
            p.before = p.chunk;
            p.chunk = next;
            next = third;
            p.turn++;
        } else {
            p.chunk++;
        }
    }
    *end = p;
}

// Block (item, kv head).
template <class F>
static __global__ void __launch_bounds__(F::THREADS, 1)
    attend_wide_kernel(const __grid_constant__ struct attend_run u) {
    extern __shared__ __align__(1024) unsigned char memory[];
    struct state<F::T> *m = (struct state<F::T> *)(memory + F::STATE);
    struct work b;
    if constexpr (F::CHOICE)
        b = begin_choosing<F>(
            &u, m, memory, (uint32_t *)(memory + F::ANY),
            [&](const struct work *w, int chunk) { bring_both<F>(&u, w, m, chunk, 0); });
    else
        b = begin_item(&u, m, memory, [&](const struct work *w) {
            bring_both<F>(&u, w, m, w->t.chunk, w->t.chunk);
        });
    struct spot end = {};
    struct wide_sums<F> z;
    struct wide_whole<F> f;
    load_queries<F>(&u, &b, m, F::N);
    wide_clear<F>(&z);
    if constexpr (F::WHOLE) {
        clear_whole<F>(&f, memory);
        run_wide_item<F>(&u, &b, m, &end, &z, &f);
        __syncthreads();
        wide_end<F>(&u, &b.t, m, end, &z, &f);
    } else {
        run_wide_item<F>(&u, &b, m, &end, &z, NULL);
        wide_put<F>(&u, &b.t, m, b.t.end, &z);
    }
}

#else

// Other devices take attend_matrix.
template <class F>
static __global__ void attend_wide_kernel(const __grid_constant__ struct attend_run u) {
    (void)u;
    gpu_await();
}

#endif

#endif
