// SPDX-License-Identifier: Apache-2.0
// What both attention kernels with matrix instructions share: a block's pairs and what they may
// see, queries as halves, and keys and values of a chunk on their way to shared memory. F is the
// form of a kernel: its constants and places in shared memory. For .cu files only.
#ifndef COPPICE_OPS_GPU_ATTEND_BLOCK_CUH
#define COPPICE_OPS_GPU_ATTEND_BLOCK_CUH

#include "ops/gpu/attend/tile.cuh"
#include "ops/gpu/linear/form/act.cuh"

// 2^EXTRA: the weight of a key as large as the maximum that weights are under
enum { EXTRA = ATTEND_EXTRA };
enum { SLACK = 4 }; // which a score must pass by so much to take its place: few chunks change it

// What a block keeps of its pairs, and the keys of the chunks in work.
template <int T> struct state {
    struct attend_keys keys[3];
    float scale[T * 16];     // takes scores to units of log 2
    float max[2][T * 16];    // maximum of the present part; turns with the chunks
    float fade[T * 16];      // what the part's sums fade by
    float maxima[4][T * 16]; // of a chunk's scores, by quarters of the keys
    int32_t place[T * 16];   // row * heads + head
    int32_t first[T * 16], last[T * 16];
    uint16_t split[T * 16]; // in chunks
    int32_t first_max, last_least, split_least, split_max;
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// How a form places rows of queries and of keys, and the values it keeps of each pair.
template <int D> struct plain_places {
    typedef whole_rows<D> queries, keys;
    static __device__ inline int slot(int pair) {
        return pair;
    }
};

// The maximum that a chunk's weights are under: `old` before it, `part` in it.
static __device__ __forceinline__ float renewed(float old, float part) {
    return part > old + SLACK ? part : old;
}

// Where a block is: at a chunk, after the chunk `before`, with maxima in m->max[turn % 2];
// begins: whether a part below the splits begins at the chunk, or with CHOICE since `before`.
struct spot {
    int chunk, before, turn;
    bool begins;
};

// Turns are chunks where none is passed over.
template <class F> static __device__ __forceinline__ int turn_of(const struct spot &p) {
    return F::CHOICE ? p.turn : p.chunk;
}

// The block's work.
struct work {
    struct attend_item t;
    int kv;
    unsigned char *memory;
};

// Where a form with F::COPIED has codes: of keys, then of values.
template <class F>
static __device__ __forceinline__ unsigned char *copied_codes(const struct work *b, bool value) {
    if constexpr (F::COPIED)
        return b->memory + F::CODES + (value ? CODE_BYTES<F::D> : 0);
    return NULL;
}

// Keys or values of the chunk of a turn on their way; the group is closed also where there is no
// such chunk, and where values have come as a part of keys (F::SAME).
template <class F>
static __device__ inline void bring_chunk(const struct attend_run *u, const struct work *b,
                                          const struct state<F::T> *m, int chunk, int turn,
                                          bool value) {
    if constexpr (F::SAME) {
        if (chunk < b->t.end && !value)
            F::load_keys(u, &b->t, &m->keys[turn % 3], chunk,
                         b->memory + turn % F::STAGES * F::TILE);
    } else if (chunk < b->t.end) {
        const struct chunk_place to = {b->memory + (value ? F::V : 0) + turn % F::STAGES * F::TILE,
                                       copied_codes<F>(b, value)};
        load_chunk<F::ROTATED, F::COPIED, typename F::keys, F::D, F::THREADS>(
            u, &b->t, &m->keys[turn % 3], chunk, value, b->kv, to);
    }
    copies_close();
}

// With F::COPIED: the codes of keys or values of the chunk of a turn on their way, which
// bring_chunk makes halves of once they are there, if their codec has scales. They are in the
// place of those before, of which all threads have made halves.
template <class F>
static __device__ inline void copy_ahead(const struct attend_run *u, const struct work *b,
                                         const struct state<F::T> *m, int chunk, int turn,
                                         bool value) {
    if (F::COPIED && chunk < b->t.end && has_codes(u, value)) {
        copy_codes<F::D, F::THREADS>(u, &b->t, &m->keys[turn % 3], chunk, value, b->kv,
                                     copied_codes<F>(b, value));
        copies_close();
    }
}

// Keys, then values; with ROTATED by the same code, of which there is much.
template <class F>
static __device__ inline void bring_both(const struct attend_run *u, const struct work *b,
                                         const struct state<F::T> *m, int chunk, int turn) {
    if constexpr (F::COPIED) { // values are brought after their chunk's begin
        copy_ahead<F>(u, b, m, chunk, turn, false);
        copies_wait<0>();
        __syncthreads();
        bring_chunk<F>(u, b, m, chunk, turn, false);
        copy_ahead<F>(u, b, m, chunk, turn, true);
    } else if constexpr (F::ROTATED) {
#pragma unroll 1
        for (int value = 0; value < 2; value++)
            bring_chunk<F>(u, b, m, chunk, turn, value);
    } else {
        bring_chunk<F>(u, b, m, chunk, turn, false);
        bring_chunk<F>(u, b, m, chunk, turn, true);
    }
}

// Which keys the block's pairs may see, and where the pairs are. Threads 0 .. 16 T - 1.
template <int T>
static __device__ inline void find_pairs(const struct attend_run *u, const struct work *b,
                                         struct state<T> *m) {
    const struct attend_item *t = &b->t;
    int i = threadIdx.x;
    if (i >= T * 16)
        return;
    struct attend_row r = {0, INT32_MAX, -1, 0};
    m->place[i] = 0;
    if (i < t->n_pairs) {
        int pair = t->pair + i, at = pair / u->group;
        int32_t row = attend_entry(&u->list[t->list + at]);
        m->place[i] = row * u->n_heads + b->kv * u->group + pair - at * u->group;
        r = attend_entry(&u->rows[row]);
        atomicMax(&m->first_max, r.first);
        atomicMin(&m->last_least, r.last);
        atomicMin(&m->split_least, r.split / ATTEND_CHUNK);
        atomicMax(&m->split_max, r.split / ATTEND_CHUNK);
    }
    m->first[i] = r.first;
    m->last[i] = r.last;
    m->split[i] = (uint16_t)(r.split / ATTEND_CHUNK);
    m->max[0][i] = m->max[1][i] = -INFINITY;
}

// Queries of pairs first, first + STEP, ... as halves, AT_ONCE of them that are below `rows`; zeros
// where there is none. A warp's; STATE has their places and gets what takes scores to units of log
// 2.
template <class F, int AT_ONCE, int STEP, class STATE>
static __device__ inline void some_queries(const struct attend_run *u, const struct work *b,
                                           STATE *m, int first, int rows) {
    constexpr int D = F::D, V = D / 64; // twos of values a lane
    unsigned char *tile = b->memory + F::Q;
    const int lane = threadIdx.x % WARP;
    float2 x[AT_ONCE][V] = {};
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
        int pair = first + j * STEP;
        if (pair >= b->t.n_pairs)
            continue;
        const float2 *q = (const float2 *)(u->q + (int64_t)m->place[pair] * D);
#pragma unroll
        for (int v = 0; v < V; v++)
            x[j][v] = q[v * WARP + lane];
    }
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
        int pair = first + j * STEP;
        float max = 0;
#pragma unroll
        for (int v = 0; v < V; v++)
            max = fmaxf(max, fmaxf(fabsf(x[j][v].x), fabsf(x[j][v].y)));
        int e = act_exponent(warp_max(max), 100);
        float scale = power_of_two(e);
        if (pair >= rows)
            continue;
#pragma unroll
        for (int v = 0; v < V; v++) {
            int at = v * 64 + lane * 2;
            *(unsigned *)(tile + F::queries::at(pair, at / 8) + at % 8 * 2) =
                pack(x[j][v].x * scale, x[j][v].y * scale);
        }
        if (lane == 0)
            m->scale[F::slot(pair)] = u->scale * 1.44269504f * power_of_two(-e);
    }
}

// Queries of `rows` pairs. Pairs go round the warps.
template <class F>
static __device__ inline void load_queries(const struct attend_run *u, const struct work *b,
                                           struct state<F::T> *m, int rows) {
    constexpr int EACH = F::T * 16 / F::WARPS, AT_ONCE = EACH > 9 ? EACH / 2 : EACH; // rows
    for (int i = threadIdx.x / WARP; i < rows; i += F::WARPS * AT_ONCE)
        some_queries<F, AT_ONCE, F::WARPS>(u, b, m, i, rows);
}

// Offsets of pieces 2 k + odd of a row in rows of 8 pieces or more, for k % 4 = 0 .. 3.
static __device__ inline void piece_offsets(int row, int odd, unsigned o[4]) {
#pragma unroll
    for (int k = 0; k < 4; k++)
        o[k] = (unsigned)((2 * k + odd) ^ row % 8) * 16;
}

// Whether all pairs of the block see all keys of a chunk.
template <int T>
static __device__ inline bool all_seen(const struct attend_item *t, const struct state<T> *m,
                                       const struct attend_keys *keys, int chunk) {
    int begin = chunk * ATTEND_CHUNK, end = begin + ATTEND_CHUNK;
    if (end > t->len || keys->pos[0] < 0 || m->first_max > begin || m->last_least < end - 1)
        return false;
    if (t->kind == ATTEND_WHOLE)
        return true;
    return t->kind == ATTEND_SHARED ? chunk < m->split_least : chunk >= m->split_max;
}

// The item of a block, its pairs, and its first keys and values, which load(b) brings on their way.
template <int T, class LOAD>
static __device__ inline struct work begin_item(const struct attend_run *u, struct state<T> *m,
                                                unsigned char *memory, LOAD load) {
    struct work b = {attend_entry(&u->items[blockIdx.x]), (int)blockIdx.y, memory};
    for (int i = 0; i < 2 && threadIdx.x < ATTEND_CHUNK; i++) {
        struct attend_found found = {NULL, 0, 0};
        if (b.t.chunk + i < b.t.end)
            found = attend_look(u, &b.t, b.t.chunk + i, threadIdx.x);
        attend_note(u, found, &m->keys[(b.t.chunk + i) % 3], threadIdx.x);
    }
    if (threadIdx.x == 0) {
        m->first_max = m->split_max = 0;
        m->last_least = m->split_least = INT32_MAX;
    }
    __syncthreads();
    // A first chunk of committed positions only is there since before the launch in front.
    if (!u->ahead || u->codec_k != KV_F16 || u->codec_v != KV_F16 ||
        (b.t.chunk + 1) * ATTEND_CHUNK > b.t.len)
        gpu_await();
    load(&b);
    find_pairs<T>(u, &b, m);
    gpu_await();
    gpu_let_next();
    __syncthreads();
    return b;
}

#endif

// Blocks of threads whose pairs choose blocks of keys (choose.cu): which chunks any of them sees.
// The others are passed over, which changes no bit: to a pair, a chunk of hidden keys adds zeros
// under the maximum that it had. For the kernels with matrix instructions (F::CHOICE).

enum {
    CHOICE_WORDS = 96, // of 32 blocks: 393,216 positions; beyond them every chunk is taken
    CHOICE_BYTES = CHOICE_WORDS * 4,
    BLOCK_CHUNKS = SPARSE_BLOCK / ATTEND_CHUNK,
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// The first chunk from `chunk` on that some pair sees, or `end`.
static __device__ __forceinline__ int next_seen(const uint32_t *any, int chunk, int end) {
    while (chunk < end) {
        int block = chunk / BLOCK_CHUNKS;
        if (block >= CHOICE_WORDS * 32)
            return chunk;
        uint32_t left = any[block / 32] >> block % 32;
        if (left & 1)
            return chunk;
        if (left)
            return min(end, (block + __ffs((int)left) - 1) * BLOCK_CHUNKS);
        chunk = (block / 32 + 1) * 32 * BLOCK_CHUNKS;
    }
    return end;
}

// any[] = the bits of all pairs of the block together. All threads, after gpu_await.
template <class F>
static __device__ inline void find_seen(const struct attend_run *u, const struct attend_item *t,
                                        const struct state<F::T> *m, uint32_t *any) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int last = min(CHOICE_WORDS - 1, (t->end - 1) / BLOCK_CHUNKS / 32);
    for (int i = threadIdx.x; i < CHOICE_WORDS; i += F::THREADS)
        any[i] = 0;
    __syncthreads();
    for (int word = t->chunk / BLOCK_CHUNKS / 32 + lane; word <= last; word += WARP) {
        uint32_t bits = 0;
        for (int pair = warp; pair < t->n_pairs; pair += F::WARPS)
            bits |= u->chosen[(int64_t)m->place[pair] * u->words + word];
        if (bits)
            atomicOr(&any[word], bits);
    }
    __syncthreads();
}

// As begin_item() of block.cuh: the keys of the first two chunks that are seen become keys 0 and
// 1, and load(b, chunk) brings the first.
template <class F, class LOAD>
static __device__ inline struct work begin_choosing(const struct attend_run *u,
                                                    struct state<F::T> *m, unsigned char *memory,
                                                    uint32_t *any, LOAD load) {
    struct work b = {attend_entry(&u->items[blockIdx.x]), (int)blockIdx.y, memory};
    if (threadIdx.x == 0) {
        m->first_max = m->split_max = 0;
        m->last_least = m->split_least = INT32_MAX;
    }
    __syncthreads();
    find_pairs<F::T>(u, &b, m);
    gpu_await();
    gpu_let_next();
    __syncthreads();
    find_seen<F>(u, &b.t, m, any);
    int chunk[2] = {next_seen(any, b.t.chunk, b.t.end), b.t.end};
    chunk[1] = next_seen(any, chunk[0] + 1, b.t.end);
    for (int i = 0; i < 2 && threadIdx.x < ATTEND_CHUNK; i++) {
        struct attend_found found = {NULL, 0, 0};
        if (chunk[i] < b.t.end)
            found = attend_look(u, &b.t, chunk[i], threadIdx.x);
        attend_note(u, found, &m->keys[i], threadIdx.x);
    }
    __syncthreads();
    load(&b, chunk[0]);
    return b;
}

#endif

#endif
