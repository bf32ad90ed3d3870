// SPDX-License-Identifier: Apache-2.0
// Attention by matrix instructions (mma.sync m16n8k16, f32 sums), for heads of 64, 128 and 256
// values and K and V of at most 16 bits a value. A block takes up to 16 T (row, query head) pairs
// of one kv head, so that keys and values pass through shared memory once for all of them. Of a
// chunk's scores a warp makes those of 16 keys and every second tile of pairs; of the outputs it
// makes an eighth of the values for all pairs. Maxima and weights go from one to the other through
// shared memory. The next chunk arrives while one is worked on.
//
// Queries become fp16 times a power of two of their own; BF16 and Q8_0 keys become the nearest
// fp16 (BF16 exactly, but for the least magnitudes; beyond 65504 they end there). Weights of a
// chunk are fp16, up to 1024; they are summed by a matrix instruction too, over a column of ones. A
// pair's operations do not depend on where it lies, and a hidden key adds zeros, so rule E2 holds
// as attend_plan.h says.
#include "ops/cuda/act.cuh"
#include "ops/cuda/attend_tile.cuh"

enum { WARPS = 8, THREADS = WARPS * 32, EXTRA = 10 }; // 2^EXTRA: the largest weight
enum { LIVE = 2 }; // with ATTEND_WHOLE: tiles whose folded parts stay in registers

// What a block keeps of its pairs, and the keys of the chunks in work.
template <int T> struct state {
    struct attend_keys keys[3];
    float scale[T * 16];     // takes scores to units of log 2
    float most[2][T * 16];   // maximum of the present part; turns with the chunks
    float fade[T * 16];      // what the part's sums fade by
    float maxima[4][T * 16]; // of a chunk's scores, by quarters of the keys
    int32_t row[T * 16], first[T * 16], last[T * 16];
    uint16_t split[T * 16]; // in chunks
    int32_t first_most, last_least, split_least, split_most;
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// The parameters of an instance and its places in shared memory.
template <int D, int T_, bool WHOLE_> struct form {
    static constexpr int T = T_, HALF = (T + 1) / 2, N = D / 64, SUMS = (T + 7) / 8;
    static constexpr bool WHOLE = WHOLE_;
    static constexpr int UNROLL = N * T > 24 || WHOLE ? 1 : 4; // steps of products at once
    static constexpr int BLOCKS = !WHOLE && T * D <= 768 ? 2 : 1; // of a multiprocessor
    static constexpr int STAGES = WHOLE || T <= 3 ? 1 : 2;
    static constexpr int SAVED = WHOLE ? (T - LIVE) * N * 4 : 0; // folded values of a thread
    static constexpr size_t TILE = ATTEND_CHUNK * D * 2;
    static constexpr size_t V = STAGES * TILE, Q = 2 * V, W = Q + (size_t)T * 16 * D * 2;
    static constexpr size_t ALL = W + (size_t)T * 16 * ATTEND_CHUNK * 2;
    static constexpr size_t STATE = ALL + (size_t)SAVED * THREADS * sizeof(float);
    static constexpr size_t BYTES = STATE + sizeof(struct state<T>);
};

// Accumulators of a thread: values of its warp's eighth, and sums of the warp's own tiles.
template <class F> struct sums {
    float acc[F::T][F::N][4], sum[F::SUMS][4];
};
template <class F> struct folded {
    float live[LIVE][F::N][4], sum[F::SUMS][2], most[2 * F::T];
};

// Which keys the block's pairs may see. Threads 0 .. 16 T - 1.
template <int T>
static __device__ inline void find_pairs(const struct attend_run *u, const struct attend_item *t,
                                         struct state<T> *m) {
    int i = threadIdx.x;
    if (i >= T * 16)
        return;
    struct attend_row r = {0, INT32_MAX, -1, 0};
    m->row[i] = 0;
    if (i < t->n_pairs) {
        m->row[i] = u->list[t->list + (t->pair + i) / u->group];
        r = u->rows[m->row[i]];
        atomicMax(&m->first_most, r.first);
        atomicMin(&m->last_least, r.last);
        atomicMin(&m->split_least, r.split / ATTEND_CHUNK);
        atomicMax(&m->split_most, r.split / ATTEND_CHUNK);
    }
    m->first[i] = r.first;
    m->last[i] = r.last;
    m->split[i] = (uint16_t)(r.split / ATTEND_CHUNK);
    m->most[0][i] = m->most[1][i] = -INFINITY;
}

// Queries of all tiles, zeros where there is no pair. A warp takes every eighth pair.
template <int D, int T>
static __device__ inline void load_queries(const struct attend_run *u, const struct attend_item *t,
                                           int kv, struct state<T> *m, unsigned char *tile) {
    constexpr int V = D / 64, AT_ONCE = 4; // pairs of values a lane
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int i = warp; i < T * 16; i += WARPS * AT_ONCE) {
        float2 x[AT_ONCE][V] = {};
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            int pair = i + j * WARPS;
            if (pair >= t->n_pairs)
                continue;
            int64_t head = kv * u->group + (t->pair + pair) % u->group;
            const float2 *q = (const float2 *)(u->q + (m->row[pair] * u->n_heads + head) * D);
#pragma unroll
            for (int v = 0; v < V; v++)
                x[j][v] = q[v * 32 + lane];
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            int pair = i + j * WARPS;
            if (pair >= T * 16)
                break;
            float most = 0;
#pragma unroll
            for (int v = 0; v < V; v++)
                most = fmaxf(most, fmaxf(fabsf(x[j][v].x), fabsf(x[j][v].y)));
            most = warp_max(most);
            int e = act_exponent(most, 100);
            float scale = power_of_two(e);
#pragma unroll
            for (int v = 0; v < V; v++) {
                int at = v * 64 + lane * 2;
                *(unsigned *)(tile + pair * D * 2 + (at / 8 ^ pair % 8) * 16 + at % 8 * 2) =
                    pack(x[j][v].x * scale, x[j][v].y * scale);
            }
            if (lane == 0)
                m->scale[pair] = u->scale * 1.44269504f * power_of_two(-e);
        }
    }
}

// s[j] = scores of tile half + 2 j and the warp's 16 keys.
template <int D, class F>
static __device__ inline void score(unsigned queries, unsigned tile, int tiles,
                                    float s[F::HALF][2][4]) {
    int lane = threadIdx.x % 32, quarter = threadIdx.x / 32 % 4, half = threadIdx.x / 128;
#pragma unroll
    for (int j = 0; j < F::HALF; j++)
#pragma unroll
        for (int n = 0; n < 2; n++)
            s[j][n][0] = s[j][n][1] = s[j][n][2] = s[j][n][3] = 0;
#pragma unroll F::UNROLL
    for (int k = 0; k < D / 16; k++) {
        unsigned a[4], b[4];
        load_four(b, piece_at<D>(tile, quarter * 16 + lane / 16 * 8 + lane % 8,
                                 2 * k + lane / 8 % 2));
#pragma unroll
        for (int j = 0; j < F::HALF; j++) {
            if (half + 2 * j >= tiles)
                continue;
            load_four(a, piece_at<D>(queries, (half + 2 * j) * 16 + lane % 16, 2 * k + lane / 16));
            multiply(s[j][0], a, b);
            multiply(s[j][1], a, b + 2);
        }
    }
}

// Whether all pairs of the block see all keys of a chunk.
template <int T>
static __device__ inline bool all_seen(const struct attend_item *t, const struct state<T> *m,
                                       const struct attend_keys *keys, int chunk) {
    int begin = chunk * ATTEND_CHUNK, end = begin + ATTEND_CHUNK;
    if (end > t->len || keys->pos[0] < 0 || m->first_most > begin || m->last_least < end - 1)
        return false;
    if (t->kind == ATTEND_WHOLE)
        return true;
    return t->kind == ATTEND_SHARED ? chunk < m->split_least : chunk >= m->split_most;
}

// Whether a pair takes part in a chunk.
template <int T>
static __device__ inline bool takes_part(const struct attend_item *t, const struct state<T> *m,
                                         int pair, int chunk) {
    return t->kind == ATTEND_WHOLE || (chunk < m->split[pair]) == (t->kind == ATTEND_SHARED);
}

// Scores to units of log 2, those of hidden keys to -inf, and their maxima.
template <class F>
static __device__ inline void hide(const struct attend_item *t, struct state<F::T> *m,
                                   const struct attend_keys *keys, int chunk, int tiles,
                                   float s[F::HALF][2][4]) {
    int lane = threadIdx.x % 32, quarter = threadIdx.x / 32 % 4, half = threadIdx.x / 128;
    bool all = all_seen(t, m, keys, chunk);
#pragma unroll
    for (int x = 0; x < 2 * F::HALF; x++) {
        int j = x / 2, i = x % 2, pair = (half + 2 * j) * 16 + lane / 4 + 8 * i;
        if (half + 2 * j >= tiles)
            continue;
        float scale = m->scale[pair], most = -INFINITY;
        bool part = all || takes_part(t, m, pair, chunk);
        int32_t first = m->first[pair], last = m->last[pair];
#pragma unroll
        for (int y = 0; y < 4; y++) {
            float *v = &s[j][y / 2][2 * i + y % 2];
            int32_t pos = all ? first : keys->pos[quarter * 16 + y / 2 * 8 + lane % 4 * 2 + y % 2];
            *v = part && pos >= first && pos <= last ? *v * scale : -INFINITY;
            most = fmaxf(most, *v);
        }
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, 2));
        if (lane % 4 == 0)
            m->maxima[quarter][pair] = most;
    }
}

// Scores to weights under the new maximum. A part that begins with this chunk has none so far.
template <class F>
static __device__ inline void weigh(const struct attend_item *t, struct state<F::T> *m, int chunk,
                                    int tiles, const float s[F::HALF][2][4],
                                    unsigned char *weights) {
    int lane = threadIdx.x % 32, quarter = threadIdx.x / 32 % 4, half = threadIdx.x / 128;
    bool turns = attend_turns(t, chunk);
#pragma unroll
    for (int x = 0; x < 2 * F::HALF; x++) {
        int j = x / 2, i = x % 2, pair = (half + 2 * j) * 16 + lane / 4 + 8 * i;
        if (half + 2 * j >= tiles)
            continue;
        float old = m->most[chunk % 2][pair], now;
        if (turns || (F::WHOLE && attend_folds(chunk, m->split[pair] * ATTEND_CHUNK)))
            old = -INFINITY;
        now = fmaxf(fmaxf(m->maxima[0][pair], m->maxima[1][pair]),
                    fmaxf(m->maxima[2][pair], m->maxima[3][pair]));
        now = fmaxf(now, old);
        float base = now == -INFINITY ? 0 : now - EXTRA;
#pragma unroll
        for (int n = 0; n < 2; n++)
            *(unsigned *)(weights + pair * ATTEND_CHUNK * 2 +
                          ((quarter * 2 + n) ^ pair % 8) * 16 + lane % 4 * 4) =
                pack(attend_exp2(s[j][n][2 * i] - base), attend_exp2(s[j][n][2 * i + 1] - base));
        if (quarter == 0 && lane % 4 == 0) {
            m->most[(chunk + 1) % 2][pair] = now;
            m->fade[pair] = now == -INFINITY ? 1 : attend_exp2(old - now);
        }
    }
}

// acc = acc * fade + weights V for the warp's eighth of the values.
template <int D, class F>
static __device__ inline void gather(const struct state<F::T> *m, unsigned weights, unsigned tile,
                                     int tiles, struct sums<F> *z) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned ones[2] = {0x3C003C00u, 0x3C003C00u};
#pragma unroll
    for (int j = 0; j < F::T; j++) {
        if (j >= tiles)
            continue;
        float f0 = m->fade[j * 16 + lane / 4], f1 = m->fade[j * 16 + lane / 4 + 8];
#pragma unroll
        for (int n = 0; n < F::N; n++) {
            z->acc[j][n][0] *= f0;
            z->acc[j][n][1] *= f0;
            z->acc[j][n][2] *= f1;
            z->acc[j][n][3] *= f1;
        }
    }
#pragma unroll(F::N == 1 ? 4 : F::UNROLL)
    for (int k = 0; k < 4; k++) {
        unsigned a[4], b[F::N][2];
#pragma unroll
        for (int n = 0; n < F::N; n += 2) {
            if (F::N == 1) {
                unsigned two[4]; // both steps of k
                load_four_turned(two, piece_at<D>(tile, k / 2 * 32 + lane, warp));
                b[0][0] = two[k % 2 * 2];
                b[0][1] = two[k % 2 * 2 + 1];
            } else {
                load_four_turned(
                    b[n], piece_at<D>(tile, k * 16 + lane % 16, warp * F::N + n + lane / 16));
            }
        }
#pragma unroll
        for (int j = 0; j < F::T; j++) {
            if (j >= tiles)
                continue;
            load_four(a, piece_at<ATTEND_CHUNK>(weights, j * 16 + lane % 16, 2 * k + lane / 16));
#pragma unroll
            for (int n = 0; n < F::N; n++)
                multiply(z->acc[j][n], a, b[n]);
        }
    }
#pragma unroll
    for (int j = 0; j < F::SUMS; j++) {
        int tile_of = warp + 8 * j;
        if (tile_of >= tiles)
            continue;
        float f0 = m->fade[tile_of * 16 + lane / 4], f1 = m->fade[tile_of * 16 + lane / 4 + 8];
        z->sum[j][0] *= f0;
        z->sum[j][1] *= f0;
        z->sum[j][2] *= f1;
        z->sum[j][3] *= f1;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            unsigned a[4];
            load_four(a,
                      piece_at<ATTEND_CHUNK>(weights, tile_of * 16 + lane % 16, 2 * k + lane / 16));
            multiply(z->sum[j], a, ones);
        }
    }
}

template <class F> static __device__ inline void clear(struct sums<F> *z) {
#pragma unroll
    for (int i = 0; i < F::T * F::N * 4; i++)
        z->acc[i / 4 / F::N][i / 4 % F::N][i % 4] = 0;
#pragma unroll
    for (int i = 0; i < F::SUMS * 4; i++)
        z->sum[i / 4][i % 4] = 0;
}

// Results of the part that ends before a chunk to its slot.
template <int D, class F>
static __device__ inline void put(const struct attend_run *u, const struct attend_item *t,
                                  const struct state<F::T> *m, int kv, int chunk,
                                  const struct sums<F> *z) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int32_t slot = t->kind == ATTEND_LAST ? u->slots - 1 : attend_part(chunk - 1) - u->part0;
#pragma unroll
    for (int x = 0; x < 2 * F::T; x++) {
        int j = x / 2, i = x % 2, pair = j * 16 + lane / 4 + 8 * i;
        if (pair >= t->n_pairs)
            continue;
        int64_t to =
            attend_slot(u, slot, m->row[pair], kv * u->group + (t->pair + pair) % u->group);
        float *acc = u->acc + to * D + warp * F::N * 8 + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < F::N; n++)
            *(float2 *)(acc + n * 8) = make_float2(z->acc[j][n][2 * i], z->acc[j][n][2 * i + 1]);
        if (j % WARPS == warp && lane % 4 == 0)
            *(float2 *)(u->ml + to * 2) =
                make_float2(m->most[chunk % 2][pair], z->sum[j / WARPS][2 * i]);
    }
}

// Folds the part of those pairs that end one before this chunk (all at the end of the keys) into
// what came before. Values are a thread's own; `saved` holds those that registers have no room for.
template <class F>
static __device__ inline void fold(const struct state<F::T> *m, int chunk, bool end,
                                   struct sums<F> *z, struct folded<F> *f, float *saved) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int x = 0; x < 2 * F::T; x++) {
        int j = x / 2, i = x % 2, pair = j * 16 + lane / 4 + 8 * i;
        if (!end && !attend_folds(chunk, m->split[pair] * ATTEND_CHUNK))
            continue;
        float2 by = attend_fold(&f->most[x], m->most[chunk % 2][pair]);
#pragma unroll
        for (int y = 0; y < 2 * F::N; y++) {
            int n = y / 2, v = 2 * i + y % 2;
            if (j < LIVE) {
                f->live[j][n][v] = fmaf(z->acc[j][n][v], by.y, f->live[j][n][v] * by.x);
            } else {
                float *to = saved + (((j - LIVE) * F::N + n) * 4 + v) * THREADS;
                *to = fmaf(z->acc[j][n][v], by.y, *to * by.x);
            }
            z->acc[j][n][v] = 0;
        }
        if (j % WARPS == warp) {
            f->sum[j / WARPS][i] =
                fmaf(z->sum[j / WARPS][2 * i], by.y, f->sum[j / WARPS][i] * by.x);
            z->sum[j / WARPS][2 * i] = z->sum[j / WARPS][2 * i + 1] = 0;
        }
    }
}

// The output of all pairs, whose sums are in m->fade.
template <int D, class F>
static __device__ inline void finish(const struct attend_run *u, const struct attend_item *t,
                                     const struct state<F::T> *m, int kv, const struct folded<F> *f,
                                     const float *saved) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int x = 0; x < 2 * F::T; x++) {
        int j = x / 2, i = x % 2, pair = j * 16 + lane / 4 + 8 * i;
        if (pair >= t->n_pairs)
            continue;
        int32_t row = m->row[pair], head = kv * u->group + (t->pair + pair) % u->group;
        float *out = u->out + row * u->out_stride + head * D;
#pragma unroll
        for (int n = 0; n < F::N; n++) {
            float v[2];
            int at = warp * F::N * 8 + n * 8 + lane % 4 * 2;
            for (int y = 0; y < 2; y++) {
                v[y] = j < LIVE ? f->live[j < LIVE ? j : 0][n][2 * i + y]
                                : saved[(((j - LIVE) * F::N + n) * 4 + 2 * i + y) * THREADS];
                v[y] = attend_output(u, row, head, at + y, v[y], m->fade[pair]);
            }
            *(float2 *)(out + at) = make_float2(v[0], v[1]);
        }
    }
}

template <class F>
static __device__ inline void clear_folded(struct folded<F> *f, float *saved) {
#pragma unroll
    for (int i = 0; i < LIVE * F::N * 4; i++)
        f->live[i / 4 / F::N][i / 4 % F::N][i % 4] = 0;
#pragma unroll
    for (int i = 0; i < 2 * F::SUMS; i++)
        f->sum[i / 2][i % 2] = 0;
#pragma unroll
    for (int i = 0; i < 2 * F::T; i++)
        f->most[i] = -INFINITY;
    for (int i = 0; i < F::SAVED; i++)
        saved[i * THREADS] = 0;
}

// With ATTEND_WHOLE: the last fold and the output.
template <int D, class F>
static __device__ inline void end_whole(const struct attend_run *u, const struct attend_item *t,
                                        struct state<F::T> *m, int kv, struct sums<F> *z,
                                        struct folded<F> *f, float *saved) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    fold<F>(m, t->end, true, z, f, saved);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < F::SUMS; j++)
        for (int i = 0; i < 2; i++)
            if (warp + 8 * j < F::T && lane % 4 == 0)
                m->fade[(warp + 8 * j) * 16 + lane / 4 + 8 * i] = f->sum[j][i];
    __syncthreads();
    finish<D, F>(u, t, m, kv, f, saved);
}

// Block (item, kv head).
template <int D, class F>
static __global__ void __launch_bounds__(THREADS, F::BLOCKS)
    attend_kernel(const __grid_constant__ struct attend_run u) {
    extern __shared__ __align__(1024) unsigned char memory[];
    struct state<F::T> *m = (struct state<F::T> *)(memory + F::STATE);
    unsigned char *weights = memory + F::W;
    float *saved = (float *)(memory + F::ALL) + threadIdx.x;
    struct attend_item t = u.items[blockIdx.x];
    int kv = blockIdx.y, tiles = (t.n_pairs + 15) / 16;
    bool finds = threadIdx.x < ATTEND_CHUNK;
    struct sums<F> z;
    struct folded<F> folded;
    for (int i = 0; i < 2 && finds; i++) {
        struct attend_found found = {NULL, 0, 0};
        if (t.chunk + i < t.end)
            found = attend_look(&u, &t, t.chunk + i, threadIdx.x);
        attend_note(&u, found, &m->keys[(t.chunk + i) % 3], threadIdx.x);
    }
    if (threadIdx.x == 0) {
        m->first_most = m->split_most = 0;
        m->last_least = m->split_least = INT32_MAX;
    }
    __syncthreads();
    auto load = [&](int chunk, bool value) {
        if (chunk < t.end)
            load_chunk<D, THREADS>(&u, &t, &m->keys[chunk % 3], chunk, value, kv,
                                   memory + (value ? F::V : 0) + chunk % F::STAGES * F::TILE);
        close_copies();
    };
    load(t.chunk, false);
    load(t.chunk, true);
    find_pairs<F::T>(&u, &t, m);
    clear<F>(&z);
    if (F::WHOLE)
        clear_folded<F>(&folded, saved);
    __syncthreads();
    load_queries<D, F::T>(&u, &t, kv, m, memory + F::Q);
    for (int chunk = t.chunk; chunk < t.end; chunk++) {
        const struct attend_keys *keys = &m->keys[chunk % 3];
        unsigned stage = (unsigned)(chunk % F::STAGES * F::TILE);
        float s[F::HALF][2][4];
        struct attend_found found = {NULL, 0, 0};
        // Copies that are still on their way: this chunk's values, except with one stage, where
        // only the first chunk's are asked for so early.
        if (F::STAGES == 2 || chunk == t.chunk)
            await_copies<1>();
        else
            await_copies<0>();
        __syncthreads();
        if (finds && chunk + 2 < t.end)
            found = attend_look(&u, &t, chunk + 2, threadIdx.x);
        if (F::STAGES == 2) {
            load(chunk + 1, false);
            load(chunk + 1, true);
        } else if (chunk > t.chunk) {
            load(chunk, true);
        }
        if (attend_turns(&t, chunk)) {
            put<D, F>(&u, &t, m, kv, chunk, &z);
            clear<F>(&z);
        }
        if (F::WHOLE && chunk > t.chunk)
            fold<F>(m, chunk, false, &z, &folded, saved);
        score<D, F>(shared_address(memory + F::Q), shared_address(memory) + stage, tiles, s);
        hide<F>(&t, m, keys, chunk, tiles, s);
        __syncthreads();
        if (F::STAGES == 1)
            load(chunk + 1, false);
        weigh<F>(&t, m, chunk, tiles, s, weights);
        if (F::STAGES == 2)
            await_copies<2>();
        else
            await_copies<1>();
        if (finds)
            attend_note(&u, found, &m->keys[(chunk + 2) % 3], threadIdx.x);
        __syncthreads();
        gather<D, F>(m, shared_address(weights), shared_address(memory + F::V) + stage, tiles, &z);
    }
    if (F::WHOLE)
        end_whole<D, F>(&u, &t, m, kv, &z, &folded, saved);
    else
        put<D, F>(&u, &t, m, kv, t.end, &z);
}

#else

template <int D, int T_, bool WHOLE_> struct form {
    static constexpr int T = T_, BLOCKS = 1;
    static constexpr size_t BYTES = 0;
};

// Older devices take attend_plain.
template <int D, class F>
static __global__ void attend_kernel(const __grid_constant__ struct attend_run u) {
    (void)u;
}

#endif

template <int D, class F>
static void launch_form(struct gpu *g, const struct attend_run *u, const struct attend_plan *p) {
    gpu_check(g, gpu_allow_shared((attend_kernel<D, F>), (int)F::BYTES), "attend");
    dim3 grid((unsigned)p->n_items, (unsigned)u->n_kv);
    attend_kernel<D, F><<<grid, THREADS, F::BYTES, g->stream>>>(*u);
    gpu_check(g, gpu_last_error(), "attend");
}

template <int D>
static void launch(struct gpu *g, const struct attend_run *u, const struct attend_plan *p) {
    if (p->whole)
        launch_form<D, struct form<D, 6, true>>(g, u, p);
    else if (p->tiles <= 1)
        launch_form<D, struct form<D, 1, false>>(g, u, p);
    else if (p->tiles <= 3)
        launch_form<D, struct form<D, 3, false>>(g, u, p);
    else if (p->tiles <= 6)
        launch_form<D, struct form<D, 6, false>>(g, u, p);
    else
        launch_form<D, struct form<D, 9, false>>(g, u, p);
}

extern "C" void attend_matrix(struct gpu *g, const struct attend_run *u,
                              const struct attend_plan *p) {
    if (u->head_dim == 64)
        launch<64>(g, u, p);
    else if (u->head_dim == 128)
        launch<128>(g, u, p);
    else
        launch<256>(g, u, p);
}
