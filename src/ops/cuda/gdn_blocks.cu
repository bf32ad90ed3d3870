// SPDX-License-Identifier: Apache-2.0
// The delta rule over whole blocks of 32 positions, one after another, of one sequence's prompt:
// what `gdn` and `gdn_commit` make of them one by one, in three launches and with the same bits
// (the same sums in the same order; gdn_matrix.cu and gdn_commit.cu say which).
//
// block_products: keys and queries split, all their products, running sums of log decays and the
// decays to the end of a block, for all blocks at once. run_blocks: a block of threads has 16
// columns of the value heads that share a key head and goes through the positions, with the newest
// base in registers and the one before, split, in shared memory; a warp has four columns, a lane is
// a row. What the next block of positions needs arrives meanwhile. keep_last: the log's keys and
// decays, and the conv inputs. Heads of 128 only, where gdn_matrix.cu serves single rows.
#include "ops/cuda/gdn.h"
#include "ops/cuda/gdn_split.cuh"
#include "ops/rowmath.h"

enum {
    B = GDN_BLOCK,
    D = SPLIT_K,    // of keys, queries and values
    COLUMNS = 16,   // of a value head in a block of threads
    WARPS = 4,      // of a value head
    KEYS = 2 * B,   // those of the block before, then its own
    META = 128,     // floats of a head and block: sums from the base before it of the 32 positions
                    // before and of its own, decays to its end, the decay of all
    TO_END = 2 * B, // where those lie
    WHOLE = 3 * B,
    PRODUCT_THREADS = 256,
};

struct blocks_job {
    struct gdn_args a;
    struct gdn_state state;
    int64_t len; // committed positions, a multiple of B
    int blocks;
    float2 *products; // [n_k][blocks][KEYS][B] with a row's key and query
    uint4 *rows;      // [n_k][blocks][keys, queries][B][PIECES] split
    float *meta;      // [n_v][blocks][META]
};

// Before sm_80 the copy is done at once.
static __device__ __forceinline__ void load16_async(void *to, const void *from) {
#if __CUDA_ARCH__ >= 800
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
#else
    *(float4 *)to = __ldcg((const float4 *)from);
#endif
}

static __device__ __forceinline__ void wait_async(void) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Row `row` of this call's keys or queries.
static __device__ __forceinline__ const float *row_of(const struct blocks_job &j, const float *x,
                                                      int64_t row, int k_head) {
    return x + ((j.a.first + row) * j.a.shape.n_k + k_head) * D;
}

// One warp: the meta of a value head and block.
static __device__ void sum_decays(const struct blocks_job &j, int block, int head) {
    const int n_v = j.a.shape.n_v, lane = (int)threadIdx.x % 32;
    const float *g = j.a.rows.g + j.a.first * n_v + head;
    int64_t row = (int64_t)block * B + lane;
    float now = g[row * n_v], before = 0, sum = 0, known = 0, own = 0;
    bool any = block > 0 || j.len > 0;
    if (block > 0)
        before = g[(row - B) * n_v];
    else if (any)
        before = j.state.log_g[(j.len - B + lane) % GDN_RING * n_v + head];
#pragma unroll
    for (int t = 0; t < B; t++) {
        sum += __shfl_sync(0xFFFFFFFFu, before, t);
        known = t == lane ? sum : known;
    }
    sum = any ? sum : 0;
#pragma unroll
    for (int t = 0; t < B; t++) {
        sum += __shfl_sync(0xFFFFFFFFu, now, t);
        own = t == lane ? sum : own;
    }
    float scan = gdn_scan(now, lane), all = __shfl_sync(0xFFFFFFFFu, scan, 31);
    float *to = j.meta + ((int64_t)head * j.blocks + block) * META;
    to[lane] = known;
    to[B + lane] = own;
    to[TO_END + lane] = row_exp(all - scan);
    to[WHOLE + lane] = row_exp(all);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

struct product_room {
    uint4 key[KEYS][PIECES], query[B][PIECES];
};

// Block: (block of positions, key head). Its keys and those before, and its queries, split.
static __device__ __forceinline__ void split_rows(const struct blocks_job &j,
                                                  struct product_room &m) {
    enum { EACH = (KEYS + B) / (PRODUCT_THREADS / 32) };
    int block = (int)blockIdx.x, head = (int)blockIdx.y, n_k = j.a.shape.n_k;
    int lane = (int)threadIdx.x % 32, w = (int)threadIdx.x / 32;
    uint4 *to = j.rows + ((int64_t)head * j.blocks + block) * 2 * B * PIECES;
    float4 v[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int t = w + i * (PRODUCT_THREADS / 32);
        int64_t row = (int64_t)block * B + t - B;
        const float *from =
            t < KEYS ? row_of(j, j.a.rows.k, row, head) : row_of(j, j.a.rows.q, row - B, head);
        if (row < 0)
            from = j.state.log_k + ((j.len + row + GDN_RING) % GDN_RING * n_k + head) * D;
        v[i] = __ldcg((const float4 *)(from + 4 * lane));
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int t = w + i * (PRODUCT_THREADS / 32);
        uint4 s = split(v[i], power_of_two(UP));
        *piece(m.key[0], t, lane) = s;
        if (t >= B)
            *piece(to, t - B, lane) = s;
    }
}

static __global__ void __launch_bounds__(PRODUCT_THREADS)
    block_products(const __grid_constant__ struct blocks_job j) {
    extern __shared__ __align__(16) unsigned char memory[];
    struct product_room &m = *(struct product_room *)memory;
    const float down = 1.0f / (1 << 2 * UP);
    int block = (int)blockIdx.x, head = (int)blockIdx.y, n_k = j.a.shape.n_k;
    int lane = (int)threadIdx.x % 32, w = (int)threadIdx.x / 32, at = w % 4 * 8 + lane / 4;
    gpu_await();
    split_rows(j, m);
    for (int v = w; v < j.a.shape.n_v / n_k; v += PRODUCT_THREADS / 32)
        sum_decays(j, block, head + v * n_k);
    __syncthreads();
    struct left a;
    load_left(&a, m.key[B], m.query[0], at);
    float2 *to = j.products + ((int64_t)head * j.blocks + block) * KEYS * B + at;
    for (int i = w / 4; i < KEYS / 16; i += PRODUCT_THREADS / 128) {
        float c[2][4];
        multiply_rows(a, m.key[0], i * 16, c);
#pragma unroll
        for (int n = 0; n < 4; n++)
            to[(i * 16 + n / 2 * 8 + lane % 4 * 2 + n % 2) * B] =
                make_float2(c[n / 2][n % 2] * down, c[n / 2][n % 2 + 2] * down);
    }
}

// What the warps of a block of threads share.
template <int HEADS> struct blocks_room {
    uint4 rows[2][2][B][PIECES]; // [turn][keys, queries] split
    float key[2][B][D];          // [turn]
    float2 products[2][KEYS][B];
    float meta[2][HEADS][META];
    float2 coef[HEADS][KEYS][B];
    uint4 base[HEADS][COLUMNS][PIECES];  // of the block before, split
    float4 sums[2][HEADS * WARPS][B];    // what it gives to keys, queries
    float unscale[HEADS * WARPS];
    float4 delta[HEADS * WARPS][B];
};

// Where a thread works.
struct blocks_place {
    int k_head, head, first_head; // value heads: of the warp, of the block of threads
    int column, v;                // first of four; number of the head in the block of threads
};

template <int HEADS>
static __device__ __forceinline__ void fetch_block(const struct blocks_job &j,
                                                   struct blocks_room<HEADS> &m,
                                                   const struct blocks_place &p, int block) {
    int turn = block % 2;
    const float2 *products = j.products + ((int64_t)p.k_head * j.blocks + block) * KEYS * B;
    const uint4 *rows = j.rows + ((int64_t)p.k_head * j.blocks + block) * 2 * B * PIECES;
    for (int i = (int)threadIdx.x; i < 2 * B * PIECES; i += HEADS * WARPS * 32)
        load16_async(m.rows[turn][0][0] + i, rows + i);
    for (int i = (int)threadIdx.x; i < B * (D / 4); i += HEADS * WARPS * 32) {
        int c = i % (D / 4) * 4, r = i / (D / 4);
        load16_async(&m.key[turn][r][c],
                     row_of(j, j.a.rows.k, (int64_t)block * B + r, p.k_head) + c);
    }
    for (int i = (int)threadIdx.x; i < KEYS * B / 2; i += HEADS * WARPS * 32)
        load16_async((float4 *)m.products[turn] + i, products + 2 * i);
    for (int i = (int)threadIdx.x; i < HEADS * (META / 4); i += HEADS * WARPS * 32) {
        int head = p.first_head + i / (META / 4) * j.a.shape.n_k;
        load16_async(&m.meta[turn][i / (META / 4)][i % (META / 4) * 4],
                     j.meta + ((int64_t)head * j.blocks + block) * META + i % (META / 4) * 4);
    }
}

// Coefficients of all sums of a block: warps take positions, a lane is a row.
template <int HEADS>
static __device__ __forceinline__ void weigh_block(struct blocks_room<HEADS> &m, int turn) {
    int lane = (int)threadIdx.x % 32;
    float at[HEADS];
#pragma unroll
    for (int v = 0; v < HEADS; v++)
        at[v] = m.meta[turn][v][B + lane];
#pragma unroll 2
    for (int t = (int)threadIdx.x / 32; t < KEYS; t += HEADS * WARPS) {
        float2 x = m.products[turn][t][lane];
#pragma unroll
        for (int v = 0; v < HEADS; v++) {
            float f = fade(at[v] - m.meta[turn][v][t]);
            m.coef[v][t][lane] = make_float2(x.x * f, x.y * f);
        }
    }
}

// What the base before gives to all rows: a warp has eight rows and the columns of a value head.
template <int HEADS>
static __device__ __forceinline__ void read_base(struct blocks_room<HEADS> &m, int turn) {
    int lane = (int)threadIdx.x % 32, v = (int)threadIdx.x / 32 / WARPS;
    int at = (int)threadIdx.x / 32 % WARPS * 8 + lane / 4;
    struct left a;
    float c[2][4];
    load_left(&a, m.rows[turn][0][0], m.rows[turn][1][0], at);
    multiply_rows(a, m.base[v][0], 0, c);
#pragma unroll
    for (int n = 0; n < 2; n++) {
        int w = v * WARPS + 2 * n + lane % 4 / 2;
        float by = m.unscale[w];
#pragma unroll
        for (int q = 0; q < 2; q++)
            ((float2 *)&m.sums[q][w][at])[lane % 2] =
                make_float2(c[n][2 * q] * by, c[n][2 * q + 1] * by);
    }
}

// The lane's row takes the positions of the block before.
static __device__ __forceinline__ void add_before(const float2 *coef, const float4 *delta,
                                                  float4 *a, float4 *b) {
#pragma unroll 8
    for (int t = 0; t < B; t++) {
        float2 c = coef[t * B];
        float4 d = delta[t];
        gdn_fma4(a, c.x, d);
        gdn_fma4(b, c.y, d);
    }
}

static __device__ __forceinline__ float4 delta_of(float beta, float4 v, float4 a) {
    return make_float4(beta * (v.x - a.x), beta * (v.y - a.y), beta * (v.z - a.z),
                       beta * (v.w - a.w));
}

// Rows in order: each is finished, and those behind it take what it adds. The lane's delta.
static __device__ __forceinline__ float4 add_own(const float2 *coef, float beta, float4 v,
                                                 float4 *a, float4 *b) {
    int lane = (int)threadIdx.x % 32;
#pragma unroll 8
    for (int i = 0; i < B; i++) {
        float2 c = coef[i * B];
        float4 d = delta_of(beta, v, *a);
        d.x = __shfl_sync(0xFFFFFFFFu, d.x, i);
        d.y = __shfl_sync(0xFFFFFFFFu, d.y, i);
        d.z = __shfl_sync(0xFFFFFFFFu, d.z, i);
        d.w = __shfl_sync(0xFFFFFFFFu, d.w, i);
        if (lane > i)
            gdn_fma4(a, c.x, d);
        if (lane >= i)
            gdn_fma4(b, c.y, d);
    }
    return delta_of(beta, v, *a);
}

// The next base: the newest one decayed, and the block's deltas. Thread: rows 4 lane .. + 3 of it.
template <int HEADS>
static __device__ __forceinline__ void fold_block(const struct blocks_room<HEADS> &m, int turn,
                                                  int v, float4 *newest) {
    int lane = (int)threadIdx.x % 32;
    const float *meta = m.meta[turn][v];
    const float4 *delta = m.delta[threadIdx.x / 32];
#pragma unroll
    for (int e = 0; e < 4; e++)
        newest[e] = gdn_scale4(newest[e], meta[WHOLE]);
#pragma unroll 4
    for (int t = 0; t < B; t++) {
        float4 k = *(const float4 *)&m.key[turn][t][4 * lane], d = delta[t];
        float c = meta[TO_END + t];
        gdn_fma4(&newest[0], c * k.x, d);
        gdn_fma4(&newest[1], c * k.y, d);
        gdn_fma4(&newest[2], c * k.z, d);
        gdn_fma4(&newest[3], c * k.w, d);
    }
}

static __device__ __forceinline__ blocks_place place_of(const struct blocks_job &j, int heads) {
    struct blocks_place p;
    int n_k = j.a.shape.n_k, y = (int)blockIdx.y, w = (int)threadIdx.x / 32;
    p.k_head = y % n_k;
    p.first_head = y / n_k * heads * n_k + p.k_head;
    p.v = w / WARPS;
    p.head = p.first_head + p.v * n_k;
    p.column = (int)blockIdx.x * COLUMNS + w % WARPS * 4;
    return p;
}

// Where position `t` of the thread's columns lies in the bases.
static __device__ __forceinline__ int64_t base_at(const struct blocks_place &p, int e) {
    return ((int64_t)p.head * D + (int)threadIdx.x % 32 * 4 + e) * D + p.column;
}

// The warp's columns of the base that the next block of positions reads.
template <int HEADS>
static __device__ __forceinline__ void keep_base(struct blocks_room<HEADS> &m,
                                                 const struct blocks_place &p, const float4 *x) {
    int w = (int)threadIdx.x / 32;
    float down = split_columns(m.base[p.v][0], w % WARPS * 4, x);
    if (threadIdx.x % 32 == 0)
        m.unscale[w] = down;
}

static __device__ __forceinline__ void put_base(const struct blocks_place &p, float *to,
                                                const float4 *x) {
    for (int e = 0; e < 4; e++)
        *(float4 *)(to + base_at(p, e)) = x[e];
}

// A lane's row: what it has of its own, and the sums for its key and its query.
struct blocks_line {
    float4 v, a, b;
    float beta;
};

// A block of 32 positions by one warp, from the coefficients on.
template <int HEADS>
static __device__ __forceinline__ void
run_block(const struct blocks_job &j, struct blocks_room<HEADS> &m, const struct blocks_place &p,
          int block, struct blocks_line l, float4 *newest) {
    int turn = block % 2, lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int n_v = j.a.shape.n_v;
    float gain = fade(m.meta[turn][p.v][B + lane]);
    int64_t row = j.a.first + (int64_t)block * B + lane;
    l.a = gdn_scale4(m.sums[0][warp][lane], gain);
    l.b = gdn_scale4(m.sums[1][warp][lane], gain);
    if (block > 0 || j.len > 0)
        add_before(&m.coef[p.v][0][lane], m.delta[warp], &l.a, &l.b);
    float4 own = add_own(&m.coef[p.v][B][lane], l.beta, l.v, &l.a, &l.b);
    *(float4 *)(j.a.out + (row * n_v + p.head) * D + p.column) = l.b;
    if (block >= j.blocks - 2) {
        int64_t slot = (j.len + (int64_t)block * B + lane) % GDN_RING;
        *(float4 *)(j.state.log_d + (slot * n_v + p.head) * D + p.column) = own;
    }
    __syncwarp();
    m.delta[warp][lane] = own;
    keep_base<HEADS>(m, p, newest);
    if (block == j.blocks - 1)
        put_base(p, j.state.s_lo, newest);
    __syncwarp();
    fold_block<HEADS>(m, turn, p.v, newest);
}

template <int HEADS>
static __global__ void __launch_bounds__(HEADS *WARPS * 32, 1)
    run_blocks(const __grid_constant__ struct blocks_job j) {
    extern __shared__ __align__(16) unsigned char memory[];
    struct blocks_room<HEADS> &m = *(struct blocks_room<HEADS> *)memory;
    struct blocks_place p = place_of(j, HEADS);
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, n_v = j.a.shape.n_v;
    const float *value = j.a.rows.v + ((j.a.first + lane) * n_v + p.head) * D + p.column;
    const float *gate = j.a.rows.beta + (j.a.first + lane) * n_v + p.head;
    float4 newest[4], v;
    float beta;
    gpu_await();
    fetch_block<HEADS>(j, m, p, 0);
    v = *(const float4 *)value;
    beta = *gate;
    for (int e = 0; e < 4; e++)
        newest[e] = *(const float4 *)(j.state.s_lo + base_at(p, e));
    keep_base<HEADS>(m, p, newest);
    for (int e = 0; e < 4; e++)
        newest[e] = *(const float4 *)(j.state.s_hi + base_at(p, e));
    if (j.len > 0) {
        int64_t slot = (j.len - B + lane) % GDN_RING;
        m.delta[warp][lane] =
            *(const float4 *)(j.state.log_d + (slot * n_v + p.head) * D + p.column);
    }
    for (int block = 0; block < j.blocks; block++) {
        struct blocks_line l = {v, {}, {}, beta};
        wait_async();
        __syncthreads();
        if (block + 1 < j.blocks) {
            fetch_block<HEADS>(j, m, p, block + 1);
            v = *(const float4 *)(value + (int64_t)(block + 1) * B * n_v * D);
            beta = gate[(int64_t)(block + 1) * B * n_v];
        }
        weigh_block<HEADS>(m, block % 2);
        read_base<HEADS>(m, block % 2);
        __syncthreads();
        run_block<HEADS>(j, m, p, block, l, newest);
    }
    put_base(p, j.state.s_hi, newest);
}

#else

// Older devices do not take whole blocks.
static __global__ void block_products(struct blocks_job j) {
    (void)j;
    gpu_await();
}

template <int HEADS> static __global__ void run_blocks(struct blocks_job j) {
    (void)j;
    gpu_await();
}

#endif

// The end of the log's keys and decays, and the conv inputs behind the last row.
static __global__ void __launch_bounds__(256)
    keep_last(const __grid_constant__ struct blocks_job j) {
    const struct gdn_shape &s = j.a.shape;
    int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x, step = (int64_t)gridDim.x * 256;
    int64_t count = j.a.count, kept = count < GDN_RING ? count : GDN_RING, keys = s.n_k * D;
    gpu_await();
    for (int64_t i = at; i < kept * keys; i += step) {
        int64_t row = count - kept + i / keys, slot = (j.len + row) % GDN_RING;
        j.state.log_k[slot * keys + i % keys] = j.a.rows.k[(j.a.first + row) * keys + i % keys];
    }
    for (int64_t i = at; i < kept * s.n_v; i += step) {
        int64_t row = count - kept + i / s.n_v, slot = (j.len + row) % GDN_RING;
        j.state.log_g[slot * s.n_v + i % s.n_v] = j.a.rows.g[(j.a.first + row) * s.n_v + i % s.n_v];
    }
    for (int64_t i = at; i < (GDN_CONV - 1) * (int64_t)s.channels; i += step) {
        int64_t row = count - (GDN_CONV - 1) + i / s.channels;
        float u = j.a.rows.u[(j.a.first + row) * s.channels + i % s.channels];
        j.state.conv[i] = u;
        j.state.conv_hi[i] = u;
    }
}

template <int HEADS> static void launch(struct gpu *g, const struct blocks_job *j) {
    const int bytes = (int)sizeof(struct blocks_room<HEADS>);
    dim3 grid(D / COLUMNS, (unsigned)(j->a.shape.n_v / HEADS));
    gpu_check(g, gpu_allow_shared(run_blocks<HEADS>, bytes), "gdn_blocks");
    gpu_launch_early(g, "gdn_blocks", run_blocks<HEADS>, grid, HEADS * WARPS * 32, (size_t)bytes,
                     *j);
}

extern "C" bool cuda_gdn_blocks(struct exec *x, const struct gdn_args *a,
                                const struct gdn_state *state, int64_t len) {
    struct gpu *g = gpu_of(x);
    const struct gdn_shape *s = &a->shape;
    int ratio = s->n_v / s->n_k, heads = ratio % 3 == 0 ? 3 : ratio % 2 == 0 ? 2 : 1;
    const size_t room = sizeof(struct product_room);
    // Where gdn_plain.cu makes single rows these sums would not have their bits.
    if (s->dk != D || s->dv != D || a->count % B || len % B || !gdn_takes_matrix(g, s) ||
        (size_t)g->shared < sizeof(struct blocks_room<3>))
        return false;
    if (!a->count)
        return true;
    struct blocks_job j = {*a, *state, len, (int)(a->count / B), NULL, NULL, NULL};
    size_t products = (size_t)s->n_k * (size_t)j.blocks * KEYS * B * sizeof(float2);
    size_t rows = (size_t)s->n_k * (size_t)j.blocks * 2 * B * PIECES * sizeof(uint4);
    size_t meta = (size_t)s->n_v * (size_t)j.blocks * META * sizeof(float);
    unsigned char *scratch = (unsigned char *)gpu_scratch(g, products + rows + meta);
    if (!scratch)
        return true;
    j.products = (float2 *)scratch;
    j.rows = (uint4 *)(scratch + products);
    j.meta = (float *)(scratch + products + rows);
    gpu_check(g, gpu_allow_shared(block_products, (int)room), "gdn_blocks");
    gpu_launch_early(g, "gdn_blocks products", block_products,
                     dim3((unsigned)j.blocks, (unsigned)s->n_k), PRODUCT_THREADS, room, j);
    if (heads == 3)
        launch<3>(g, &j);
    else if (heads == 2)
        launch<2>(g, &j);
    else
        launch<1>(g, &j);
    gpu_launch_early(g, "gdn_blocks", keep_last, 64, 256, 0, j);
    g->last = LAST_COMMIT;
    return true;
}
