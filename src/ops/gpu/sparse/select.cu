// SPDX-License-Identifier: Apache-2.0
// Masses of key blocks, and the blocks that a query block chooses for a head: a block of threads
// makes one list. Scores are products of queries and means, a tile of key blocks at a time: their
// sums are kept under the largest score of the tile, and brought under the largest of all at the
// end, so that a tile is looked at once. One kernel multiplies by mma.sync with queries and means
// in 16 bits, to which a launch before it takes the means; one in f32 is for all other devices and
// heads. No sum depends on what else is in the call.
#include <math.h>

#include "ops/gpu/sparse/tile.cuh"

enum {
    BLOCKS_MOST = 1 << 17, // of a text: one of 2^24 positions
    BLOCKS_SHARED = 8192,  // whose masses fit into shared memory
    WIDE_TILE = 64,
    SLIM_TILE = 32, // blocks of a tile, by mma.sync and without
};

// What a block of threads shares besides means; [tile] after it top[], then masses if they fit.
struct choosing {
    // Of two tiles in turn, by warps: sums of columns, and the largest score that they are under.
    float part[2][SPARSE_WARPS][WIDE_TILE], tile_top[2][SPARSE_WARPS];
    float top[SPARSE_WARPS], sum[SPARSE_WARPS];
    int32_t found[2][SPARSE_WARPS];
};

static size_t shared_bytes(const struct sparse_run *u, int tile, size_t means) {
    size_t masses = u->blocks <= BLOCKS_SHARED ? (size_t)u->blocks : 0;
    return means + ((size_t)(u->blocks + tile - 1) / (size_t)tile + masses) * sizeof(float);
}

// Where masses are while they are made.
static __device__ __forceinline__ float *masses_at(const struct sparse_run *u,
                                                   const struct sparse_item *t, float *shared) {
    return u->blocks <= BLOCKS_SHARED ? shared : u->mass + t->at * u->blocks;
}

// Over all threads, in a fixed tree; all get it. `part` is free again after the next barrier.
static __device__ __forceinline__ float block_sum(float v, float *part) {
    v = warp_sum(v);
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = v;
    __syncthreads();
    v = part[0];
    for (int i = 1; i < SPARSE_WARPS; i++)
        v += part[i];
    return v;
}
static __device__ __forceinline__ float block_max(float v, float *part) {
    v = warp_max(v);
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = v;
    __syncthreads();
    v = part[0];
    for (int i = 1; i < SPARSE_WARPS; i++)
        v = fmaxf(v, part[i]);
    return v;
}
static __device__ __forceinline__ int32_t block_count(int32_t v, int32_t *part) {
    v = warp_sum(v);
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = v;
    __syncthreads();
    v = 0;
    for (int i = 0; i < SPARSE_WARPS; i++)
        v += part[i];
    __syncthreads();
    return v;
}

// How many threads before this one have it, and in *all how many in the block have it.
static __device__ __forceinline__ int32_t rank_among(bool has, int32_t *part, int32_t *all) {
    warp_mask those = warp_vote(has);
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    if (lane == 0)
        part[warp] = mask_count(those);
    __syncthreads();
    int32_t before = mask_before(those, lane);
    *all = 0;
    for (int i = 0; i < SPARSE_WARPS; i++) {
        before += i < warp ? part[i] : 0;
        *all += part[i];
    }
    return before;
}

// The column sums of a tile under its largest score: those of the warps in their order. After a
// barrier.
static __device__ __forceinline__ void keep_tile(const struct choosing *c, int width, int32_t tile,
                                                 int32_t columns, float *tops, float *mass) {
    const float *tile_top = c->tile_top[tile % 2];
    float top = tile_top[0], sum = 0;
    int32_t block = tile * width + (int32_t)threadIdx.x;
    if ((int)threadIdx.x >= width)
        return;
    for (int w = 1; w < SPARSE_WARPS; w++)
        top = fmaxf(top, tile_top[w]);
    for (int w = 0; w < SPARSE_WARPS; w++)
        sum = fmaf(c->part[tile % 2][w][threadIdx.x], exp2_near(tile_top[w] - top), sum);
    if (block < columns)
        mass[block] = sum;
    if (threadIdx.x == 0)
        tops[tile] = top;
}

// The kth largest of masses [0, n), 1 <= k <= n: the largest value that k of them reach. Masses are
// not negative, so their bits are in the order of their values.
static __device__ float kth_largest(struct choosing *c, const float *mass, int64_t n, int64_t k) {
    unsigned bits = 0;
    for (int bit = 30; bit >= 0; bit--) {
        float least = __uint_as_float(bits | 1u << bit);
        int32_t mine = 0;
        for (int64_t i = threadIdx.x; i < n; i += SPARSE_THREADS)
            mine += mass[i] >= least;
        if (block_count(mine, c->found[0]) >= k)
            bits |= 1u << bit;
    }
    return __uint_as_float(bits);
}

// As sparse_kept of sparse.c.
static __device__ int64_t kept_of(float density, int64_t m) {
    int64_t n = (int64_t)ceil((double)density * (double)(m + 1) - 1e-6);
    return n < 1 ? 1 : n > m + 1 ? m + 1 : n;
}

// What makes blocks chosen besides the own one: a mass above `above`, or of at least `least` and
// among the first `equal` such.
struct choice {
    float above, least;
    int64_t equal;
    bool all, places; // all blocks; sinks and window count
};

static __device__ struct choice choice_of(const struct sparse_run *u, const struct sparse_item *t,
                                          struct choosing *c, const float *mass, float max) {
    struct choice y = {INFINITY, u->opt.alpha * max, INT64_MAX, false, true};
    y.all = t->m >= u->text_blocks - u->opt.last_full;
    if (!(u->opt.density > 0))
        return y;
    int64_t kept = kept_of(u->opt.density, t->m) - 1;
    y.all = y.places = false;
    y.above = y.least = INFINITY;
    y.equal = 0;
    if (kept == 0)
        return y;
    y.above = y.least = kth_largest(c, mass, t->m, kept);
    int32_t mine = 0;
    for (int64_t b = threadIdx.x; b < t->m; b += SPARSE_THREADS)
        mine += mass[b] > y.above;
    y.equal = kept - block_count(mine, c->found[0]);
    return y;
}

static __device__ void write_list(const struct sparse_run *u, const struct sparse_item *t,
                                  struct choosing *c, const float *mass, const struct choice *y) {
    int32_t *list = u->list + t->at * u->blocks, n = 0, all;
    int64_t equals = 0;
    for (int64_t from = 0; from <= t->m; from += SPARSE_THREADS) {
        int64_t b = from + threadIdx.x;
        bool in = b <= t->m, near = false;
        float own = in ? mass[b] : -1.0f;
        bool level = b < t->m && own >= y->least && !(own > y->above);
        int64_t rank = equals + rank_among(level, c->found[0], &all);
        equals += all;
        if (y->places)
            near = b < u->opt.sinks || t->m - b < u->opt.window;
        bool taken = in && (b == t->m || y->all || near || (b < t->m && own > y->above) ||
                            (level && rank < y->equal));
        int32_t at = n + rank_among(taken, c->found[1], &all);
        n += all;
        if (taken)
            list[at] = (int32_t)b;
        __syncthreads();
    }
    if (threadIdx.x == 0)
        u->count[t->at] = n;
}

// Sums of `columns` blocks by tiles of `width` become masses, and masses a list.
static __device__ void choose_blocks(const struct sparse_run *u, const struct sparse_item *t,
                                     struct choosing *c, int width, int32_t columns,
                                     const float *tops, float *mass) {
    float top = -INFINITY, sum = 0, max = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i * width < columns; i += SPARSE_THREADS)
        top = fmaxf(top, tops[i]);
    top = block_max(top, c->top);
    for (int64_t b = threadIdx.x; b <= t->m; b += SPARSE_THREADS) {
        float is = b < columns && mass[b] > 0 ? mass[b] * exp2_near(tops[b / width] - top) : 0;
        mass[b] = is;
        sum += is;
    }
    float by = 1.0f / (block_sum(sum, c->sum) + 1e-9f);
    float *out = u->mass + t->at * u->blocks;
    for (int64_t b = threadIdx.x; b <= t->m; b += SPARSE_THREADS) {
        float is = mass[b] * by;
        max = fmaxf(max, is);
        mass[b] = is;
        out[b] = is;
    }
    __syncthreads();
    max = block_max(max, c->top);
    struct choice y = choice_of(u, t, c, mass, max);
    write_list(u, t, c, mass, &y);
}

// Key blocks that have a score: those before the query block, and itself if its last row is here.
static __device__ __forceinline__ int32_t scored(const struct sparse_item *t) {
    return (int32_t)t->m + (t->end == SPARSE_BLOCK);
}

// Whether a row of the query block scores a key block.
static __device__ __forceinline__ bool scores(const struct sparse_item *t, int row, int32_t block,
                                              int32_t columns) {
    return block < columns && sparse_has(t, row) && (block < t->m || row == SPARSE_BLOCK - 1);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// Means of a tile of 64 key blocks on their way to rows of D halves; zeros after the last.
template <int D>
static __device__ __forceinline__ void bring_means(const struct sparse_run *u, const __half *halves,
                                                   int kv, int32_t tile, int32_t columns,
                                                   unsigned to) {
    constexpr int PIECES = D / 8, STEP = SPARSE_THREADS / PIECES;
    int at = threadIdx.x % PIECES;
    const __half *from = halves + kv * u->blocks * D + at * 8;
#pragma unroll
    for (int i = 0; i < WIDE_TILE / STEP; i++) {
        int row = i * STEP + threadIdx.x / PIECES;
        int32_t block = tile * WIDE_TILE + row;
        copy_or_zero(to + (unsigned)whole_rows<D>::at(row, at),
                     block < columns ? from + (int64_t)block * D : NULL);
    }
    copies_close();
}

// s = scores of the warp's 16 rows and 64 key blocks.
template <int D>
static __device__ __forceinline__ void score_tile(const unsigned (&a)[D / 16][4], unsigned means,
                                                  float (&s)[8][4]) {
    int lane = threadIdx.x % WARP;
    unsigned at[4];
    for (int k = 0; k < 4; k++)
        at[k] = (unsigned)((2 * k + lane / 8 % 2) ^ lane % 8) * 16;
    means += (unsigned)((lane / 16 * 8 + lane % 8) * D * 2);
#pragma unroll
    for (int i = 0; i < 32; i++)
        s[i / 4][i % 4] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            unsigned b[4];
            load_four(b, means + (unsigned)(i * 16 * D * 2) + at[k % 4] + k / 4 * 128);
            mma_k16(s[2 * i], a[k], b[0], b[1]);
            mma_k16(s[2 * i + 1], a[k], b[2], b[3]);
        }
}

// Adds up columns 8 i + lane % 4 * 2 + x over a warp's rows: of s[i][x] + s[i][2 + x] each lane
// gives half away three times and has the sums of i = lane / 4 at last.
static __device__ __forceinline__ float2 add_rows(const float (&s)[8][4]) {
    float c[8][2];
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < 16; i++)
        c[i / 2][i % 2] = s[i / 2][i % 2] + s[i / 2][2 + i % 2];
#pragma unroll
    for (int half = 4; half; half /= 2)
#pragma unroll
        for (int i = 0; i < half; i++)
#pragma unroll
            for (int x = 0; x < 2; x++) {
                bool high = lane & 4 * half;
                float keep = high ? c[i + half][x] : c[i][x];
                float give = high ? c[i][x] : c[i + half][x];
                c[i][x] = keep + warp_across(give, 4 * half);
            }
    return make_float2(c[0][0], c[0][1]);
}

// Scores of a tile in units of log 2; -inf where a row does not score a block. Returns the warp's
// largest. row: the lane's first.
static __device__ __forceinline__ float scale_tile(const struct sparse_item *t, int row,
                                                   int32_t from, int32_t columns,
                                                   const float (&factor)[2], float (&s)[8][4]) {
    bool all = from + WIDE_TILE <= t->m && t->begin == 0 && t->end == SPARSE_BLOCK;
    float top = -INFINITY;
#pragma unroll
    for (int i = 0; i < 32; i++)
        s[i / 4][i % 4] *= factor[i % 4 / 2];
    if (!all) {
        int32_t first = from + threadIdx.x % 4 * 2;
#pragma unroll
        for (int i = 0; i < 32; i++)
            if (!scores(t, row + i % 4 / 2 * 8, first + i / 4 * 8 + i % 2, columns))
                s[i / 4][i % 4] = -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < 32; i++)
        top = fmaxf(top, s[i / 4][i % 4]);
    return warp_max(top);
}

// Block (query block, head). The next tile arrives while one is worked on, and the sums of the one
// before are kept; so a tile takes one barrier.
template <int D>
static __global__ void __launch_bounds__(SPARSE_THREADS, 2)
    select_blocks(const __grid_constant__ struct sparse_run u, const __half *halves) {
    extern __shared__ __align__(1024) unsigned char memory[];
    constexpr int TILE = WIDE_TILE * D * 2;
    __shared__ struct choosing c;
    const struct sparse_item t = sparse_item_of(&u);
    const int32_t columns = scored(&t), tiles = (columns + WIDE_TILE - 1) / WIDE_TILE;
    float *tops = (float *)(memory + 2 * TILE);
    float *mass = masses_at(&u, &t, tops + (u.blocks + WIDE_TILE - 1) / WIDE_TILE);
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, row = warp * 16 + lane / 4;
    unsigned a[D / 16][4], at = shared_address(memory);
    float factor[2];
    gpu_await();
    gpu_let_next();
    if (tiles > 0)
        bring_means<D>(&u, halves, t.kv, 0, columns, at);
    sparse_queries<D>(&u, &t, warp * 16, a, factor);
    for (int32_t tile = 0; tile < tiles; tile++) {
        float s[8][4];
        copies_wait<0>();
        __syncthreads();
        if (tile + 1 < tiles)
            bring_means<D>(&u, halves, t.kv, tile + 1, columns, at + (tile + 1) % 2 * TILE);
        if (tile > 0)
            keep_tile(&c, WIDE_TILE, tile - 1, columns, tops, mass);
        score_tile<D>(a, at + tile % 2 * TILE, s);
        float top = scale_tile(&t, row, tile * WIDE_TILE, columns, factor, s);
        float base = top > -INFINITY ? top : 0;
#pragma unroll
        for (int i = 0; i < 32; i++)
            s[i / 4][i % 4] = exp2_near(s[i / 4][i % 4] - base);
        *(float2 *)&c.part[tile % 2][warp][lane / 4 * 8 + lane % 4 * 2] = add_rows(s);
        if (lane == 0)
            c.tile_top[tile % 2][warp] = top;
    }
    __syncthreads();
    if (tiles > 0)
        keep_tile(&c, WIDE_TILE, tiles - 1, columns, tops, mass);
    choose_blocks(&u, &t, &c, WIDE_TILE, columns, tops, mass);
}

#else

template <int D>
static __global__ void select_blocks(const __grid_constant__ struct sparse_run u,
                                     const __half *halves) {
    (void)u;
    (void)halves;
    gpu_await();
}

#endif

enum { SLICE = 32, ROWS = SPARSE_BLOCK / SPARSE_WARPS }; // values at a time; rows of a warp

struct slim_memory {
    float means[SLICE][SLIM_TILE + 1], queries[SPARSE_BLOCK][SLICE];
};

// Values at .. at + SLICE - 1 of 32 means, turned, and of the queries; zeros where there is none.
static __device__ void load_slice(const struct sparse_run *u, const struct sparse_item *t,
                                  int32_t from, int32_t columns, int at, struct slim_memory *m) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    for (int i = warp; i < SLIM_TILE; i += SPARSE_WARPS) {
        const float *mean = u->means + ((from + i) * u->n_kv + t->kv) * u->d;
        m->means[lane][i] = from + i < columns ? mean[at + lane] : 0.0f;
    }
    for (int i = warp; i < SPARSE_BLOCK; i += SPARSE_WARPS)
        m->queries[i][lane] = sparse_has(t, i) ? sparse_query(u, t, i)[at + lane] : 0.0f;
}

static __device__ __forceinline__ void add_products(const struct slim_memory *m, float (&s)[ROWS]) {
    int lane = threadIdx.x % WARP, row = threadIdx.x / WARP * ROWS;
    for (int k = 0; k < SLICE; k++)
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            s[i] = fmaf(m->queries[row + i][k], m->means[k][lane], s[i]);
}

// The same in f32: a lane has a key block, a warp 16 rows.
static __global__ void __launch_bounds__(SPARSE_THREADS)
    select_plain(const __grid_constant__ struct sparse_run u) {
    extern __shared__ float slim[];
    __shared__ struct choosing c;
    __shared__ struct slim_memory m;
    const struct sparse_item t = sparse_item_of(&u);
    const int32_t columns = scored(&t);
    float *tops = slim, *mass = masses_at(&u, &t, tops + (u.blocks + SLIM_TILE - 1) / SLIM_TILE);
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    gpu_await();
    gpu_let_next();
    for (int32_t from = 0; from < columns; from += SLIM_TILE) {
        float s[ROWS], top = -INFINITY, sum = 0;
        int32_t tile = from / SLIM_TILE;
        for (int i = 0; i < ROWS; i++)
            s[i] = 0;
        for (int at = 0; at < u.d; at += SLICE) {
            __syncthreads();
            load_slice(&u, &t, from, columns, at, &m);
            __syncthreads();
            add_products(&m, s);
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            bool seen = scores(&t, warp * ROWS + i, from + lane, columns);
            s[i] = seen ? s[i] * (u.scale * 1.44269504f) : -INFINITY;
            top = fmaxf(top, s[i]);
        }
        top = warp_max(top);
        float base = top > -INFINITY ? top : 0;
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            sum += exp2_near(s[i] - base);
        c.part[tile % 2][warp][lane] = sum;
        if (lane == 0)
            c.tile_top[tile % 2][warp] = top;
        __syncthreads();
        keep_tile(&c, SLIM_TILE, tile, columns, tops, mass);
    }
    choose_blocks(&u, &t, &c, SLIM_TILE, columns, tops, mass);
}

// Means [blocks][n_kv][d] as halves [n_kv][blocks][d], eight a thread; those of whole blocks.
static __global__ void __launch_bounds__(SPARSE_THREADS)
    halve_means(const __grid_constant__ struct sparse_run u, int32_t whole, __half *halves) {
    int32_t eights = u.d / 8, i = (int32_t)blockIdx.x * SPARSE_THREADS + (int32_t)threadIdx.x;
    int32_t block = i / eights;
    gpu_await();
    gpu_let_next();
    if (block >= whole)
        return;
    const float4 *from =
        (const float4 *)(u.means + ((int64_t)block * u.n_kv + blockIdx.y) * u.d) + i % eights * 2;
    float4 a = __ldcg(from), b = __ldcg(from + 1);
    float limit = 65504.0f, x[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    __half2 y[4];
    for (int j = 0; j < 8; j++)
        x[j] = fminf(fmaxf(x[j], -limit), limit);
    for (int j = 0; j < 4; j++)
        y[j] = __floats2half2_rn(x[2 * j], x[2 * j + 1]);
    *(uint4 *)(halves + (blockIdx.y * u.blocks + block) * u.d + i % eights * 8) = *(uint4 *)y;
}

static bool may_launch(struct gpu *g, const struct sparse_run *u, const void *kernel) {
    if (u->blocks > BLOCKS_MOST) {
        gpu_check(g, GPU_NOT_SUPPORTED, "sparse_select: a text of more than 2^24 positions");
        return false;
    }
    return gpu_allow_max_shared(g, kernel, "sparse_select");
}

template <int D> static void launch_select(struct gpu *g, const struct sparse_run *u) {
    dim3 grid((unsigned)u->rows_blocks, (unsigned)u->n_heads);
    int32_t whole = (int32_t)((u->first + u->n) / SPARSE_BLOCK);
    dim3 eights((unsigned)((whole * (D / 8) + SPARSE_THREADS - 1) / SPARSE_THREADS),
                (unsigned)u->n_kv);
    __half *halves = (__half *)gpu_scratch(g, (size_t)(u->blocks * u->n_kv * D) * sizeof(__half));
    if (!halves || !may_launch(g, u, (const void *)select_blocks<D>))
        return;
    if (whole > 0)
        gpu_launch_early(g, "sparse_select", halve_means, eights, SPARSE_THREADS, 0, *u, whole,
                         halves);
    gpu_launch_early(g, "sparse_select", select_blocks<D>, grid, SPARSE_THREADS,
                     shared_bytes(u, WIDE_TILE, (size_t)(2 * WIDE_TILE * D * 2)), *u, halves);
}

extern "C" size_t sparse_scratch(const struct exec_limits *l) {
    return (size_t)(sparse_blocks(l->context) * l->n_heads * l->head_dim) * sizeof(__half);
}

extern "C" void sparse_select_matrix(struct gpu *g, const struct sparse_run *u) {
    if (u->d == 64)
        launch_select<64>(g, u);
    else
        launch_select<128>(g, u);
}

extern "C" void sparse_select_plain(struct gpu *g, const struct sparse_run *u) {
    dim3 grid((unsigned)u->rows_blocks, (unsigned)u->n_heads);
    if (may_launch(g, u, (const void *)select_plain))
        gpu_launch_early(g, "sparse_select", select_plain, grid, SPARSE_THREADS,
                         shared_bytes(u, SLIM_TILE, 0), *u);
}
