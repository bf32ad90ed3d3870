// SPDX-License-Identifier: Apache-2.0
// Attention by matrix instructions (mma.sync m16n8k16, f32 sums): the kernel of matrix.cu
// and latent.cu. A block takes up to 16 T (row, query head) pairs of one kv head, so that
// keys and values pass through shared memory once for all of them. Of a chunk's scores a warp makes
// those of 16 keys and its group's tiles of pairs; of the outputs it makes some of the values for
// all pairs. Maxima and weights go from one to the other through shared memory. The next chunk
// arrives while one is worked on.
//
// A form F has the constants of an instance and its places in shared memory: D values of a key, DV
// of a value, T tiles of pairs, WARPS (THREADS), GROUPS of four warps, N eights of values that a
// warp makes, WHOLE (items are), CHOICE (pairs choose blocks), ROTATED (K or V has a codec that is
// stored rotated), SMALL (tiles of short work, or 0), BLOCKS of a multiprocessor, STAGES of keys
// and values of TILE bytes each, V and Q (where values and queries begin), weights(turn), ALL
// (folded values, SAVED a thread, unless they are OUTSIDE), STATE, ANY, BYTES; SAME: values are a
// part of keys, which F::load_keys brings.
#ifndef COPPICE_OPS_GPU_ATTEND_MATRIX_CUH
#define COPPICE_OPS_GPU_ATTEND_MATRIX_CUH

#include "ops/gpu/attend/block.cuh"

enum { LIVE = 2 }; // with ATTEND_WHOLE: tiles whose folded parts stay in registers

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// Accumulators of a thread for C tiles: the warp's values of each, and sums of the warp's own
// tiles: number warp, warp + WARPS, ...
template <class F, int C> struct sums {
    static constexpr int OWN = (C + F::WARPS - 1) / F::WARPS;
    float acc[C][F::N][4], sum[OWN][4];
};
// With F::OUTSIDE folded values are where the row's output will be, which is a thread's own.
template <class F> struct folded {
    float live[F::OUTSIDE ? 1 : LIVE][F::N][4], sum[2], max[2 * F::T];
    float *saved; // shared memory, [SAVED] THREADS apart
    const struct attend_run *u;
    const struct attend_item *t;
};

// Tiles that a group of four warps makes the scores of: group, group + GROUPS, ...
template <class F, int C> struct share {
    static constexpr int MOST = (C + F::GROUPS - 1) / F::GROUPS;
    static constexpr int FEWER = MOST > 1 ? MOST - 1 : 1;
};

template <class F> static __device__ inline int tile_of(int j) {
    return threadIdx.x / 128 + F::GROUPS * j;
}

// Whether a group's tile j is there; only of the last one this is a question.
template <class F, int C> static __device__ inline bool has_tile(int j) {
    return (j + 1) * F::GROUPS <= C || tile_of<F>(j) < C;
}

// The pair of fragment rows lane / 4 + 8 i of a tile.
static __device__ inline int pair_of(int tile, int i) {
    return tile * 16 + threadIdx.x % WARP / 4 + 8 * i;
}

// s[j] = scores of tile_of(j), j < COUNT, and the warp's 16 keys.
template <class F, int COUNT>
static __device__ inline void score_chunk(unsigned queries, unsigned keys, float s[][2][4]) {
    constexpr int ROW = F::keys::PITCH;
    int lane = threadIdx.x % WARP, quarter = threadIdx.x / WARP % 4;
    unsigned q_at[4], k_at[4];
    piece_offsets(lane, lane / 16, q_at);
    piece_offsets(lane, lane / 8 % 2, k_at);
    keys += (unsigned)((quarter * 16 + lane / 16 * 8 + lane % 8) * ROW);
    queries += (unsigned)((tile_of<F>(0) * 16 + lane % 16) * ROW);
#pragma unroll
    for (int i = 0; i < COUNT * 8; i++)
        s[i / 8][i / 4 % 2][i % 4] = 0;
#pragma unroll
    for (int k = 0; k < F::D / 16; k++) {
        unsigned a[COUNT][4], b[4];
        load_four(b, keys + k_at[k % 4] + (unsigned)(k / 4 * F::keys::COLUMN));
#pragma unroll
        for (int j = 0; j < COUNT; j++)
            load_four(a[j], queries + (unsigned)(F::GROUPS * j * 16 * ROW) + q_at[k % 4] +
                                (unsigned)(k / 4 * F::queries::COLUMN));
#pragma unroll
        for (int j = 0; j < COUNT; j++) {
            mma_k16(s[j][0], a[j], b[0], b[1]);
            mma_k16(s[j][1], a[j], b[2], b[3]);
        }
    }
}

// Scores of hidden keys to -inf.
template <class F, int C>
static __device__ inline void hide(const struct attend_run *u, const struct attend_item *t,
                                   const struct state<F::T> *m, const struct attend_keys *keys,
                                   int chunk, float s[share<F, C>::MOST][2][4]) {
    int at = threadIdx.x / WARP % 4 * 16 + threadIdx.x % 4 * 2;
#pragma unroll
    for (int x = 0; x < share<F, C>::MOST * 2; x++) {
        int pair = pair_of(tile_of<F>(x / 2), x % 2);
        if (!has_tile<F, C>(x / 2))
            continue;
        bool part =
            t->kind == ATTEND_WHOLE || (chunk < m->split[pair]) == (t->kind == ATTEND_SHARED);
        if (F::CHOICE)
            part = part && attend_chosen(u, m->place[pair], chunk);
        int32_t first = m->first[pair], last = part ? m->last[pair] : -1;
#pragma unroll
        for (int y = 0; y < 4; y++) {
            int32_t pos = keys->pos[at + y / 2 * 8 + y % 2];
            if (pos < first || pos > last)
                s[x / 2][y / 2][2 * (x % 2) + y % 2] = -INFINITY;
        }
    }
}

// Maxima of scores that are not yet in units of log 2.
template <class F, int C>
static __device__ inline void find_maxima(struct state<F::T> *m,
                                          const float s[share<F, C>::MOST][2][4]) {
    int quarter = threadIdx.x / WARP % 4;
#pragma unroll
    for (int x = 0; x < share<F, C>::MOST * 2; x++) {
        int j = x / 2, i = 2 * (x % 2), pair = pair_of(tile_of<F>(j), x % 2);
        if (!has_tile<F, C>(j))
            continue;
        float max = fmaxf(fmaxf(s[j][0][i], s[j][0][i + 1]), fmaxf(s[j][1][i], s[j][1][i + 1]));
        max = fmaxf(max, warp_across(max, 1));
        max = fmaxf(max, warp_across(max, 2));
        if (threadIdx.x % 4 == 0)
            m->maxima[quarter][pair] = max;
    }
}

// Whether a pair's part ends before a chunk.
template <class F>
static __device__ inline bool ends(const struct state<F::T> *m, int pair, const struct spot &p) {
    if (!F::WHOLE)
        return p.begins;
    int split = m->split[pair];
    bool reached = F::CHOICE ? p.before < split && p.chunk >= split : p.chunk == split;
    return reached || (p.begins && p.chunk < split);
}

// Scores to weights under the new maximum. A part that begins with this chunk has none so far.
template <class F, int C>
static __device__ inline void weigh_scores(struct state<F::T> *m, const struct spot &p,
                                           const float s[share<F, C>::MOST][2][4],
                                           unsigned char *weights) {
    int lane = threadIdx.x % WARP, quarter = threadIdx.x / WARP % 4;
#pragma unroll
    for (int x = 0; x < share<F, C>::MOST * 2; x++) {
        int j = x / 2, i = 2 * (x % 2), pair = pair_of(tile_of<F>(j), x % 2);
        if (!has_tile<F, C>(j))
            continue;
        float old = m->max[turn_of<F>(p) % 2][pair], now;
        if (ends<F>(m, pair, p))
            old = -INFINITY;
        now = fmaxf(fmaxf(m->maxima[0][pair], m->maxima[1][pair]),
                    fmaxf(m->maxima[2][pair], m->maxima[3][pair]));
        float scale = m->scale[pair];
        now = renewed(old, now * scale);
        float base = now == -INFINITY ? 0 : now - EXTRA;
#pragma unroll
        for (int n = 0; n < 2; n++)
            *(unsigned *)(weights + pair * ATTEND_CHUNK * 2 + ((quarter * 2 + n) ^ pair % 8) * 16 +
                          lane % 4 * 4) = pack(exp2_near(fmaf(s[j][n][i], scale, -base)),
                                               exp2_near(fmaf(s[j][n][i + 1], scale, -base)));
        if (quarter == 0 && lane % 4 == 0) {
            m->max[(turn_of<F>(p) + 1) % 2][pair] = now;
            m->fade[pair] = now == -INFINITY ? 1 : exp2_near(old - now);
        }
    }
}

template <int T>
static __device__ inline void fade_sums(const struct state<T> *m, int tile, float *acc) {
    float f0 = m->fade[pair_of(tile, 0)], f1 = m->fade[pair_of(tile, 1)];
    acc[0] *= f0;
    acc[1] *= f0;
    acc[2] *= f1;
    acc[3] *= f1;
}

// The values of 16 keys, in fragments for each eight of the warp's columns.
template <class F>
static __device__ inline void load_values(unsigned values, int k, unsigned b[F::N][2]) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    if constexpr (F::N == 1) {
        unsigned two[4]; // both of two steps
        load_four_turned(two, values + (unsigned)F::keys::at(k / 2 * 32 + lane, warp));
        b[0][0] = two[k % 2 * 2];
        b[0][1] = two[k % 2 * 2 + 1];
    } else {
#pragma unroll
        for (int n = 0; n < F::N; n += 2)
            load_four_turned(b[n], values + (unsigned)F::keys::at(k * 16 + lane % 16,
                                                                  warp * F::N + n + lane / 16));
    }
}

// acc = acc * fade + weights V for the warp's share of the values.
template <class F, int C>
static __device__ inline void gather_values(const struct state<F::T> *m, unsigned weights,
                                            unsigned values, struct sums<F, C> *z) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const unsigned ones[2] = {0x3C003C00u, 0x3C003C00u};
    unsigned at[4];
    piece_offsets(lane, lane / 16, at);
    weights += (unsigned)(lane % 16 * ATTEND_CHUNK * 2);
#pragma unroll
    for (int j = 0; j < C; j++)
#pragma unroll
        for (int n = 0; n < F::N; n++)
            fade_sums(m, j, z->acc[j][n]);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        unsigned a[4], b[F::N][2];
        load_values<F>(values, k, b);
#pragma unroll
        for (int j = 0; j < C; j++) {
            load_four(a, weights + at[k] + (unsigned)(j * 16 * ATTEND_CHUNK * 2));
#pragma unroll
            for (int n = 0; n < F::N; n++)
                mma_k16(z->acc[j][n], a, b[n][0], b[n][1]);
        }
    }
#pragma unroll
    for (int j = 0; j < sums<F, C>::OWN; j++) {
        int tile = warp + F::WARPS * j;
        if (tile >= C)
            break;
        fade_sums(m, tile, z->sum[j]);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            unsigned a[4];
            load_four(a, weights + at[k] + (unsigned)(tile * 16 * ATTEND_CHUNK * 2));
            mma_k16(z->sum[j], a, ones[0], ones[1]);
        }
    }
}

template <class F, int C> static __device__ inline void clear(struct sums<F, C> *z) {
#pragma unroll
    for (int i = 0; i < C * F::N * 4; i++)
        z->acc[i / 4 / F::N][i / 4 % F::N][i % 4] = 0;
#pragma unroll
    for (int i = 0; i < sums<F, C>::OWN * 4; i++)
        z->sum[i / 4][i % 4] = 0;
}

enum { EMPTY = -1 }; // the turn of a part of which pairs have seen nothing

// Results of the part that ends before a chunk to its slot, with the maxima of a turn.
template <class F, int C>
static __device__ inline void put_outputs(const struct attend_run *u, const struct attend_item *t,
                                          const struct state<F::T> *m, int chunk, int turn,
                                          const struct sums<F, C> *z) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int32_t slot = t->kind == ATTEND_LAST ? u->slots - 1 : attend_part(chunk - 1) - u->part0;
    int64_t from = (slot * u->n_rows - u->begin) * u->n_heads;
#pragma unroll
    for (int x = 0; x < 2 * C; x++) {
        int j = x / 2, i = x % 2, pair = pair_of(j, i);
        if (pair >= t->n_pairs)
            continue;
        int64_t to = from + m->place[pair];
        float *acc = u->acc + to * F::DV + warp * F::N * 8 + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < F::N; n++)
            *(float2 *)(acc + n * 8) = make_float2(z->acc[j][n][2 * i], z->acc[j][n][2 * i + 1]);
        if (j % F::WARPS == warp && lane % 4 == 0)
            *(float2 *)(u->ml + to * 2) =
                make_float2(F::CHOICE && turn == EMPTY ? -INFINITY : m->max[turn % 2][pair],
                            z->sum[j / F::WARPS][2 * i]);
    }
}

// Where the warp's first value of a pair's output goes.
template <class F>
static __device__ inline float *output_of(const struct attend_run *u, const struct state<F::T> *m,
                                          int pair) {
    int32_t row = m->place[pair] / u->n_heads, head = m->place[pair] - row * u->n_heads;
    return u->out + row * u->out_stride + head * F::DV + threadIdx.x / WARP * F::N * 8 +
           threadIdx.x % 4 * 2;
}

// Folds a pair's values into those at `to`; first: nothing is there yet.
template <class F>
static __device__ inline void fold_outside(float *to, bool first, float2 by, int i,
                                           float (&acc)[F::N][4]) {
    float2 was[F::N];
#pragma unroll
    for (int n = 0; n < F::N; n++)
        was[n] = first ? make_float2(0, 0) : *(const float2 *)(to + n * 8);
#pragma unroll
    for (int n = 0; n < F::N; n++) {
        *(float2 *)(to + n * 8) = make_float2(fmaf(acc[n][2 * i], by.y, was[n].x * by.x),
                                              fmaf(acc[n][2 * i + 1], by.y, was[n].y * by.x));
        acc[n][2 * i] = acc[n][2 * i + 1] = 0;
    }
}

// Folds them into registers and shared memory.
template <class F>
static __device__ __forceinline__ void fold_inside(struct folded<F> *f, int j, int i, float2 by,
                                                   float (&acc)[F::N][4]) {
#pragma unroll
    for (int y = 0; y < 2 * F::N; y++) {
        int n = y / 2, v = 2 * i + y % 2;
        if (j < LIVE) {
            f->live[j < LIVE ? j : 0][n][v] =
                fmaf(acc[n][v], by.y, f->live[j < LIVE ? j : 0][n][v] * by.x);
        } else {
            float *to = f->saved + (((j - LIVE) * F::N + n) * 4 + v) * F::THREADS;
            *to = fmaf(acc[n][v], by.y, *to * by.x);
        }
        acc[n][v] = 0;
    }
}

// A folded value of a thread's, where OUTSIDE at `out`.
template <class F>
static __device__ __forceinline__ float folded_value(const struct folded<F> *f, const float *out,
                                                     int j, int n, int v) {
    if constexpr (F::OUTSIDE)
        return *out;
    else
        return j < LIVE ? f->live[j < LIVE ? j : 0][n][v]
                        : f->saved[(((j - LIVE) * F::N + n) * 4 + v) * F::THREADS];
}

// Folds the part of those pairs that end one before this chunk (all at the end of the keys) into
// what came before. Values are a thread's own; `saved` holds those that registers have no room for.
template <class F>
static __device__ inline void fold(const struct state<F::T> *m, const struct spot &p, bool end,
                                   struct sums<F, F::T> *z, struct folded<F> *f) {
    int warp = threadIdx.x / WARP;
#pragma unroll
    for (int x = 0; x < 2 * F::T; x++) {
        int j = x / 2, i = x % 2, pair = pair_of(j, i);
        if (!end && !ends<F>(m, pair, p))
            continue;
        bool first = f->max[x] == -INFINITY;
        float2 by = attend_fold(&f->max[x], m->max[turn_of<F>(p) % 2][pair]);
        if constexpr (F::OUTSIDE) {
            if (pair < f->t->n_pairs)
                fold_outside<F>(output_of<F>(f->u, m, pair), first, by, i, z->acc[j]);
        } else {
            fold_inside<F>(f, j, i, by, z->acc[j]);
        }
        if (j == warp) {
            f->sum[i] = fmaf(z->sum[0][2 * i], by.y, f->sum[i] * by.x);
            z->sum[0][2 * i] = z->sum[0][2 * i + 1] = 0;
        }
    }
}

// The output of all pairs, whose sums are in m->fade.
template <class F>
static __device__ inline void finish_item(const struct attend_run *u, const struct attend_item *t,
                                          const struct state<F::T> *m, const struct folded<F> *f) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
#pragma unroll
    for (int x = 0; x < 2 * F::T; x++) {
        int j = x / 2, i = x % 2, pair = pair_of(j, i);
        if (pair >= t->n_pairs)
            continue;
        int32_t row = m->place[pair] / u->n_heads, head = m->place[pair] - row * u->n_heads;
        float *out = u->out + row * u->out_stride + head * F::DV;
#pragma unroll
        for (int n = 0; n < F::N; n++) {
            float v[2];
            int at = warp * F::N * 8 + n * 8 + lane % 4 * 2;
            for (int y = 0; y < 2; y++) {
                v[y] = folded_value<F>(f, out + at + y, j, n, 2 * i + y);
                v[y] = attend_output(u, row, head, at + y, v[y], m->fade[pair]);
            }
            *(float2 *)(out + at) = make_float2(v[0], v[1]);
        }
    }
}

template <class F> static __device__ inline void clear_folded(struct folded<F> *f) {
#pragma unroll
    for (int i = 0; i < (F::OUTSIDE ? 1 : LIVE) * F::N * 4; i++)
        f->live[i / 4 / F::N][i / 4 % F::N][i % 4] = 0;
    f->sum[0] = f->sum[1] = 0;
#pragma unroll
    for (int i = 0; i < 2 * F::T; i++)
        f->max[i] = -INFINITY;
    for (int i = 0; i < F::SAVED; i++)
        f->saved[i * F::THREADS] = 0;
}

// With ATTEND_WHOLE: the last fold and the output.
template <class F>
static __device__ inline void end_whole(const struct attend_run *u, const struct attend_item *t,
                                        struct state<F::T> *m, const struct spot &p,
                                        struct sums<F, F::T> *z, struct folded<F> *f) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    fold<F>(m, p, true, z, f);
    __syncthreads();
#pragma unroll
    for (int x = 0; x < 2 * F::T; x++) {
        const int i = x % 2, pair = pair_of(x / 2, i);
        if (warp == x / 2 && lane % 4 == 0)
            m->fade[pair] = attend_sunk(u, m->place[pair] % u->n_heads, f->max[x], f->sum[i]);
    }
    __syncthreads();
    finish_item<F>(u, t, m, f);
}

// With CHOICE and without ATTEND_WHOLE: puts away the parts that end before a chunk, the first of
// them with what was summed. *next: where the next part begins. Returns the turn of what
// is left.
template <class F, int C>
static __device__ inline int put_parts(const struct attend_run *u, const struct attend_item *t,
                                       const struct state<F::T> *m, const struct spot &p, int *next,
                                       struct sums<F, C> *z) {
    int turn = p.turn;
    for (; *next <= p.chunk && *next < t->end; *next = attend_part_begin(attend_part(*next) + 1)) {
        put_outputs<F, C>(u, t, m, *next, turn, z);
        clear<F, C>(z);
        turn = EMPTY;
    }
    return turn;
}

// All chunks of the item that some pair sees, for at most C tiles.
template <class F, int C>
static __device__ inline void run_matrix_item(const struct attend_run *u, const struct work *b,
                                              struct state<F::T> *m) {
    const struct attend_item *t = &b->t;
    const uint32_t *any = (const uint32_t *)(b->memory + F::ANY);
    unsigned base = shared_address(b->memory);
    bool finds = threadIdx.x < ATTEND_CHUNK;
    struct sums<F, C> z;
    struct folded<F> folded;
    folded.saved = (float *)(b->memory + F::ALL) + threadIdx.x;
    folded.u = u;
    folded.t = t;
    load_queries<F>(u, b, m, C * 16);
    clear<F, C>(&z);
    if (F::WHOLE)
        clear_folded<F>(&folded);
    int first = F::CHOICE ? next_seen(any, t->chunk, t->end) : t->chunk, next = 0;
    struct spot p = {first, first, 0, false};
    int part = t->kind == ATTEND_LAST ? INT32_MAX : attend_part_begin(attend_part(t->chunk) + 1);
    if (F::CHOICE)
        next = next_seen(any, first + 1, t->end);
    while (p.chunk < t->end) {
        const struct attend_keys *keys = &m->keys[turn_of<F>(p) % 3];
        unsigned stage = base + (unsigned)(turn_of<F>(p) % F::STAGES * F::TILE);
        bool later = p.chunk > first;
        int ahead = F::CHOICE ? next : p.chunk + 1;
        int third = F::CHOICE ? next_seen(any, next + 1, t->end) : p.chunk + 2;
        if (F::CHOICE)
            p.begins = p.chunk >= part;
        else
            p.begins = later && t->kind != ATTEND_LAST &&
                       attend_part_begin(attend_part(p.chunk)) == p.chunk;
        float s[share<F, C>::MOST][2][4];
        struct attend_found found = {NULL, 0, 0};
        // Copies that are still on their way: this chunk's values, except with one stage, where
        // only the first chunk's are requested so early, and not with codes.
        if (F::STAGES == 2 || (!later && !F::COPIED))
            copies_wait<1>();
        else
            copies_wait<0>();
        __syncthreads();
        if (!later)
            copy_ahead<F>(u, b, m, ahead, turn_of<F>(p) + 1, false);
        if (finds && third < t->end)
            found = attend_look(u, t, third, threadIdx.x);
        if (F::STAGES == 2) {
            bring_both<F>(u, b, m, ahead, turn_of<F>(p) + 1);
        } else if (F::COPIED ? !has_codes(u, true) : later) {
            bring_chunk<F>(u, b, m, p.chunk, turn_of<F>(p), true);
        }
        if constexpr (F::WHOLE) {
            bool splits = p.chunk >= m->split_least &&
                          (F::CHOICE ? p.before < m->split_max : p.chunk <= m->split_max);
            if (later && (p.begins || splits))
                fold<F>(m, p, false, &z, &folded);
        } else if constexpr (F::CHOICE) {
            put_parts<F, C>(u, t, m, p, &part, &z);
        } else if (p.begins) {
            put_outputs<F, C>(u, t, m, p.chunk, p.chunk, &z);
            clear<F, C>(&z);
        }
        if (F::CHOICE && F::WHOLE && p.begins)
            part = attend_part_begin(attend_part(p.chunk) + 1);
        if (has_tile<F, C>(share<F, C>::MOST - 1))
            score_chunk<F, share<F, C>::MOST>(base + F::Q, stage, s);
        else if (share<F, C>::MOST > 1)
            score_chunk<F, share<F, C>::FEWER>(base + F::Q, stage, s);
        if (F::CHOICE || !all_seen(t, m, keys, p.chunk))
            hide<F, C>(u, t, m, keys, p.chunk, s);
        find_maxima<F, C>(m, s);
        if (F::COPIED)
            copies_wait<0>();
        __syncthreads();
        if (F::STAGES == 1 && !F::SAME)
            bring_chunk<F>(u, b, m, ahead, turn_of<F>(p) + 1, false);
        const unsigned weights = F::weights(turn_of<F>(p));
        weigh_scores<F, C>(m, p, s, b->memory + weights);
        if (F::COPIED && has_codes(u, true)) // as late as may be: they have a turn to arrive
            bring_chunk<F>(u, b, m, p.chunk, turn_of<F>(p), true);
        copies_wait<F::COPIED ? 2 : F::STAGES>();
        if (finds)
            attend_note(u, found, &m->keys[(turn_of<F>(p) + 2) % 3], threadIdx.x);
        __syncthreads();
        copy_ahead<F>(u, b, m, third, turn_of<F>(p) + 2, false);
        copy_ahead<F>(u, b, m, ahead, turn_of<F>(p) + 1, true);
        gather_values<F, C>(m, base + weights, stage + F::V, &z);
        if (F::STAGES == 1 && F::SAME) {
            __syncthreads();
            bring_chunk<F>(u, b, m, ahead, turn_of<F>(p) + 1, false);
        }
        if constexpr (F::CHOICE) {
            p.before = p.chunk;
            p.chunk = next;
            next = third;
            p.turn++;
        } else {
            p.chunk++;
        }
    }
    if constexpr (F::WHOLE) {
        end_whole<F>(u, t, m, p, &z, &folded);
    } else if constexpr (F::CHOICE) {
        p.chunk = t->end;
        int turn = put_parts<F, C>(u, t, m, p, &part, &z);
        put_outputs<F, C>(u, t, m, t->end, turn, &z);
    } else {
        put_outputs<F, C>(u, t, m, t->end, t->end, &z);
    }
}

// Block (item, kv head).
template <class F>
static __global__ void __launch_bounds__(F::THREADS, F::BLOCKS)
    attend_kernel(const __grid_constant__ struct attend_run u) {
    extern __shared__ __align__(1024) unsigned char memory[];
    struct state<F::T> *m = (struct state<F::T> *)(memory + F::STATE);
    if constexpr (F::CHOICE) {
        struct work b = begin_choosing<F>(
            &u, m, memory, (uint32_t *)(memory + F::ANY),
            [&](const struct work *w, int chunk) { bring_both<F>(&u, w, m, chunk, 0); });
        run_matrix_item<F, F::T>(&u, &b, m);
        return;
    }
    struct work b = begin_item(&u, m, memory, [&](const struct work *w) {
        bring_both<F>(&u, w, m, w->t.chunk, w->t.chunk);
    });
    if constexpr (F::SMALL > 0) {
        if (b.t.n_pairs <= F::SMALL * 16) {
            run_matrix_item<F, F::SMALL>(&u, &b, m);
            return;
        }
    }
    run_matrix_item<F, F::T>(&u, &b, m);
}

#else

// Older devices take attend_plain.
template <class F>
static __global__ void attend_kernel(const __grid_constant__ struct attend_run u) {
    (void)u;
    gpu_await();
}

#endif

#endif
