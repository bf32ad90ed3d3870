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
#include "ops/gpu/gdn/gdn.h"
#include "ops/gpu/gdn/gdn_split.cuh"
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
    int64_t first, count;
    struct gdn_state state;
    int64_t len; // committed positions, a multiple of B
    int blocks;
    float2 *products; // [n_k][blocks][KEYS][B] with a row's key and query
    uint4 *rows;      // [n_k][blocks][high, low][B][PIECES] as left operands
    float *meta;      // [n_v][blocks][META]
};

struct product_shared {
    uint4 key[KEYS][PIECES], high[B][PIECES], low[B][PIECES];
};

// What the warps of a block of threads share. Turns: of blocks of positions, modulo two or four.
template <int HEADS> struct blocks_shared {
    uint4 rows[2][B][PIECES]; // [high, low] of a block
    float key[B][D];
    float2 products[KEYS][B];
    float meta[4][HEADS][META];
    float value[2][HEADS][B][COLUMNS];
    float beta[2][HEADS][B];
    float2 before[HEADS][B][B];         // coefficients for the positions before: [position][row]
    float own[2][HEADS][2][B][B];       // of keys, of queries, for the block's own
    uint4 base[HEADS][COLUMNS][PIECES]; // the newest, split
    float unscale[HEADS * WARPS];
    float sums[2][HEADS][2][B][COLUMNS]; // of keys, of queries: from the base, then with `before`
    float delta[2][HEADS][B][COLUMNS];
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// Row `row` of this call's keys or queries.
static __device__ __forceinline__ const float *row_of(const struct blocks_job &j, const float *x,
                                                      int64_t row, int k_head) {
    return x + ((j.first + row) * j.a.shape.n_k + k_head) * D;
}

// One warp: the meta of a value head and block.
static __device__ void sum_decays(const struct blocks_job &j, int block, int head) {
    const int n_v = j.a.shape.n_v, lane = (int)threadIdx.x % 32;
    const float *g = j.a.rows.g + j.first * n_v + head;
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

// Block: (block of positions, key head). Its keys and those before, and its queries, split.
static __device__ __forceinline__ void split_rows(const struct blocks_job &j,
                                                  struct product_shared &m) {
    enum { WARPS_HERE = PRODUCT_THREADS / 32, EACH = B / WARPS_HERE };
    int block = (int)blockIdx.x, head = (int)blockIdx.y, n_k = j.a.shape.n_k;
    int lane = (int)threadIdx.x % 32, w = (int)threadIdx.x / 32;
    uint4 *to = j.rows + ((int64_t)head * j.blocks + block) * 2 * B * PIECES;
    float4 before[EACH], key[EACH], query[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int64_t row = (int64_t)block * B + w + i * WARPS_HERE, slot = (j.len + row - B) % GDN_RING;
        const float *from = block > 0
                                ? row_of(j, j.a.rows.k, row - B, head)
                                : j.state.log_k + ((slot + GDN_RING) % GDN_RING * n_k + head) * D;
        before[i] = __ldcg((const float4 *)(from + 4 * lane));
        key[i] = __ldcg((const float4 *)(row_of(j, j.a.rows.k, row, head) + 4 * lane));
        query[i] = __ldcg((const float4 *)(row_of(j, j.a.rows.q, row, head) + 4 * lane));
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int t = w + i * WARPS_HERE;
        *piece(m.key[0], t, lane) = split(before[i], power_of_two(UP));
        *piece(m.key[0], t + B, lane) = put_left(m.high[0], m.low[0], t, lane, key[i], query[i]);
        *piece(to, t, lane) = *piece(m.high[0], t, lane);
        *piece(to, t + B, lane) = *piece(m.low[0], t, lane);
    }
}

static __global__ void __launch_bounds__(PRODUCT_THREADS)
    block_products(const __grid_constant__ struct blocks_job j) {
    extern __shared__ __align__(16) unsigned char memory[];
    struct product_shared &m = *(struct product_shared *)memory;
    const float down = 1.0f / (1 << 2 * UP);
    int block = (int)blockIdx.x, head = (int)blockIdx.y, n_k = j.a.shape.n_k;
    int lane = (int)threadIdx.x % 32, w = (int)threadIdx.x / 32, at = w % 4 * 8 + lane / 4;
    gpu_await();
    split_rows(j, m);
    for (int v = w; v < j.a.shape.n_v / n_k; v += PRODUCT_THREADS / 32)
        sum_decays(j, block, head + v * n_k);
    __syncthreads();
    struct left a;
    load_left(&a, m.high[0], m.low[0], at);
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

static __device__ __forceinline__ void load16_async(void *to, const void *from) {
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}

static __device__ __forceinline__ void load4_async(float *to, const float *from) {
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from) : "memory");
}

static __device__ __forceinline__ void wait_async(void) {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

// Where a thread works. Workers: WARPS warps of a value head, four columns and eight rows each.
// Behind them a warp of each head that solves for its deltas.
struct blocks_place {
    int k_head, head, first_head; // value heads: of the warp, of the block of threads
    int v, w;                     // number of the head in the block of threads, of the warp in it
    int column;                   // first of the block of threads
};

// Waits for the workers.
template <int HEADS> static __device__ __forceinline__ void await_workers(void) {
    asm volatile("bar.sync 1, %0;" ::"n"(HEADS * WARPS * 32) : "memory");
}

// Workers: asks for all that a block of positions needs before its end.
template <int HEADS>
static __device__ __forceinline__ void fetch_block(const struct blocks_job &j,
                                                   struct blocks_shared<HEADS> &m,
                                                   const struct blocks_place &p, int block) {
    enum { STEP = HEADS * WARPS * 32 };
    const int n_k = j.a.shape.n_k, n_v = j.a.shape.n_v, t = (int)threadIdx.x;
    const int64_t at = (int64_t)p.k_head * j.blocks + block, row = j.first + (int64_t)block * B;
    const float2 *products = j.products + at * KEYS * B;
    const uint4 *rows = j.rows + at * 2 * B * PIECES;
    for (int i = t; i < 2 * B * PIECES; i += STEP)
        load16_async(m.rows[0][0] + i, rows + i);
    for (int i = t; i < KEYS * B / 2; i += STEP)
        load16_async((float4 *)m.products + i, products + 2 * i);
    for (int i = t; i < HEADS * (META / 4); i += STEP) {
        int head = p.first_head + i / (META / 4) * n_k;
        load16_async(&m.meta[block % 4][i / (META / 4)][i % (META / 4) * 4],
                     j.meta + ((int64_t)head * j.blocks + block) * META + i % (META / 4) * 4);
    }
    for (int i = t; i < HEADS * B * (COLUMNS / 4); i += STEP) {
        int c = i % (COLUMNS / 4) * 4, r = i / (COLUMNS / 4) % B, v = i / (COLUMNS / 4) / B;
        int64_t cell = (row + r) * n_v + p.first_head + v * n_k;
        load16_async(&m.value[block % 2][v][r][c], j.a.rows.v + cell * D + p.column + c);
    }
    for (int i = t; i < HEADS * B; i += STEP)
        load4_async(&m.beta[block % 2][i / B][i % B],
                    j.a.rows.beta + (row + i % B) * n_v + p.first_head + i / B * n_k);
}

// Workers: the keys that a block's deltas are folded with.
template <int HEADS>
static __device__ __forceinline__ void fetch_keys(const struct blocks_job &j,
                                                  struct blocks_shared<HEADS> &m,
                                                  const struct blocks_place &p, int block) {
    for (int i = (int)threadIdx.x; i < B * (D / 4); i += HEADS * WARPS * 32) {
        int c = i % (D / 4) * 4, r = i / (D / 4);
        load16_async(&m.key[r][c], row_of(j, j.a.rows.k, (int64_t)block * B + r, p.k_head) + c);
    }
}

// Workers: coefficients of all sums of a block; warps take positions, a lane is a row.
template <int HEADS>
static __device__ __forceinline__ void weigh_block(struct blocks_shared<HEADS> &m, int block) {
    int lane = (int)threadIdx.x % 32;
    float at[HEADS];
#pragma unroll
    for (int v = 0; v < HEADS; v++)
        at[v] = m.meta[block % 4][v][B + lane];
#pragma unroll 2
    for (int t = (int)threadIdx.x / 32; t < KEYS; t += HEADS * WARPS) {
        float2 x = m.products[t][lane];
#pragma unroll
        for (int v = 0; v < HEADS; v++) {
            float f = fade(at[v] - m.meta[block % 4][v][t]);
            if (t < B) {
                m.before[v][t][lane] = make_float2(x.x * f, x.y * f);
            } else {
                m.own[block % 2][v][0][t - B][lane] = x.x * f;
                m.own[block % 2][v][1][t - B][lane] = x.y * f;
            }
        }
    }
}

// Worker: the warp's columns of the newest base, split.
template <int HEADS>
static __device__ __forceinline__ void keep_base(struct blocks_shared<HEADS> &m,
                                                 const struct blocks_place &p, const float4 *x) {
    float down = split_columns(m.base[p.v][0], p.w * 4, x);
    if (threadIdx.x % 32 == 0)
        m.unscale[p.v * WARPS + p.w] = down;
}

// Worker: what the kept base gives to a block's rows, with its decay; eight rows and the columns of
// a value head.
template <int HEADS>
static __device__ __forceinline__ void read_base(struct blocks_shared<HEADS> &m,
                                                 const struct blocks_place &p, int block) {
    int lane = (int)threadIdx.x % 32, at = p.w * 8 + lane / 4, c = lane % 4 * 2;
    struct left a;
    float x[2][4];
    load_left(&a, m.rows[0][0], m.rows[1][0], at);
    multiply_rows(a, m.base[p.v][0], 0, x);
    float gain = fade(m.meta[block % 4][p.v][B + at]);
#pragma unroll
    for (int n = 0; n < 2; n++) {
        float by = m.unscale[p.v * WARPS + 2 * n + lane % 4 / 2];
#pragma unroll
        for (int q = 0; q < 2; q++)
            *(float2 *)&m.sums[block % 2][p.v][q][at][8 * n + c] =
                make_float2(x[n][2 * q] * by * gain, x[n][2 * q + 1] * by * gain);
    }
}

// Worker: eight rows and all columns take the positions of the block before.
template <int HEADS>
static __device__ __forceinline__ void add_before(struct blocks_shared<HEADS> &m,
                                                  const struct blocks_place &p, int block) {
    int lane = (int)threadIdx.x % 32, row = p.w * 8 + lane / 4, c = lane % 4 * 4;
    float4 *sums[2] = {(float4 *)&m.sums[block % 2][p.v][0][row][c],
                       (float4 *)&m.sums[block % 2][p.v][1][row][c]};
    const float2 *coef = &m.before[p.v][0][row];
    const float *delta = &m.delta[(block + 1) % 2][p.v][0][c];
    float4 a = *sums[0], b = *sums[1];
#pragma unroll 8
    for (int t = 0; t < B; t++) {
        float2 f = coef[t * B];
        float4 d = *(const float4 *)(delta + t * COLUMNS);
        gdn_fma4(&a, f.x, d);
        gdn_fma4(&b, f.y, d);
    }
    *sums[0] = a;
    *sums[1] = b;
}

// Worker: the next base: the newest one decayed, and a block's deltas. Thread: rows 4 lane .. + 3
// of it.
template <int HEADS>
static __device__ __forceinline__ void fold_block(const struct blocks_shared<HEADS> &m,
                                                  const struct blocks_place &p, int block,
                                                  float4 *newest) {
    int lane = (int)threadIdx.x % 32;
    const float *meta = m.meta[block % 4][p.v];
    const float *delta = &m.delta[block % 2][p.v][0][p.w * 4];
#pragma unroll
    for (int e = 0; e < 4; e++)
        newest[e] = gdn_scale4(newest[e], meta[WHOLE]);
#pragma unroll 8
    for (int t = 0; t < B; t++) {
        float4 k = *(const float4 *)&m.key[t][4 * lane];
        float4 d = *(const float4 *)(delta + t * COLUMNS);
        float c = meta[TO_END + t];
        gdn_fma4(&newest[0], c * k.x, d);
        gdn_fma4(&newest[1], c * k.y, d);
        gdn_fma4(&newest[2], c * k.z, d);
        gdn_fma4(&newest[3], c * k.w, d);
    }
}

// Solver: rows in order; each is finished, and those behind it take what it adds. A lane has a
// column of the sums for keys, and another, 16 further on, the same one for queries.
template <int HEADS>
static __device__ __forceinline__ void solve_block(const struct blocks_job &j,
                                                   struct blocks_shared<HEADS> &m,
                                                   const struct blocks_place &p, int block) {
    int lane = (int)threadIdx.x % 32, query = lane / COLUMNS, c = lane % COLUMNS;
    const int turn = block % 2, n_v = j.a.shape.n_v;
    const float *sums = &m.sums[turn][p.v][query][0][c], *value = &m.value[turn][p.v][0][c];
    const float *beta = m.beta[turn][p.v], *coef = m.own[turn][p.v][query][0];
    float *delta = &m.delta[turn][p.v][0][c];
    int64_t row = j.first + (int64_t)block * B, slot = (j.len + (int64_t)block * B) % GDN_RING;
    float *out = j.a.out + (row * n_v + p.head) * D + p.column + c;
    float *log = j.state.log_d + (slot * n_v + p.head) * D + p.column + c;
    float x[B];
#pragma unroll
    for (int i = 0; i < B; i++)
        x[i] = sums[i * COLUMNS];
#pragma unroll
    for (int t = 0; t < B; t++) { // nothing is stored in here, so that loads may run ahead
        float d = __shfl_sync(0xFFFFFFFFu, beta[t] * (value[t * COLUMNS] - x[t]), c);
#pragma unroll
        for (int i = t / 4 * 4; i < B; i += 4) {
            float4 f = *(const float4 *)(coef + t * B + i);
            x[i] = i < t ? x[i] : fmaf(f.x, d, x[i]);
            x[i + 1] = i + 1 < t ? x[i + 1] : fmaf(f.y, d, x[i + 1]);
            x[i + 2] = i + 2 < t ? x[i + 2] : fmaf(f.z, d, x[i + 2]);
            x[i + 3] = fmaf(f.w, d, x[i + 3]);
        }
        x[t] = query ? x[t] : d;
    }
    float *to = query ? out : log;
    bool kept = query || block >= j.blocks - 2;
#pragma unroll
    for (int t = 0; t < B; t++, to += (int64_t)n_v * D) {
        if (!query)
            delta[t * COLUMNS] = x[t];
        if (kept)
            *to = x[t];
    }
}

template <int HEADS>
static __device__ __forceinline__ struct blocks_place place_of(const struct blocks_job &j) {
    struct blocks_place p;
    int n_k = j.a.shape.n_k, y = (int)blockIdx.y, w = (int)threadIdx.x / 32;
    p.k_head = y % n_k;
    p.first_head = y / n_k * HEADS * n_k + p.k_head;
    p.v = w < HEADS * WARPS ? w / WARPS : w - HEADS * WARPS;
    p.w = w % WARPS;
    p.head = p.first_head + p.v * n_k;
    p.column = (int)blockIdx.x * COLUMNS;
    return p;
}

// Where row 4 lane + e of the worker's columns lies in the bases.
static __device__ __forceinline__ int64_t base_at(const struct blocks_place &p, int e) {
    int64_t row = (int64_t)p.head * D + (int)threadIdx.x % 32 * 4 + e;
    return row * D + p.column + p.w * 4;
}

static __device__ __forceinline__ void put_base(const struct blocks_place &p, float *to,
                                                const float4 *x) {
    for (int e = 0; e < 4; e++)
        *(float4 *)(to + base_at(p, e)) = x[e];
}

// Workers, before the first block is solved: its sums, and the newest base.
template <int HEADS>
static __device__ __forceinline__ void begin_blocks(const struct blocks_job &j,
                                                    struct blocks_shared<HEADS> &m,
                                                    const struct blocks_place &p, float4 *newest) {
    bool any = j.len > 0;
    fetch_block<HEADS>(j, m, p, 0);
    for (int i = (int)threadIdx.x; any && i < HEADS * B * COLUMNS / 4; i += HEADS * WARPS * 32) {
        int c = i % (COLUMNS / 4) * 4, t = i / (COLUMNS / 4) % B, v = i / (COLUMNS / 4) / B;
        int64_t slot = (j.len - B + t) % GDN_RING;
        int64_t cell = slot * j.a.shape.n_v + p.first_head + v * j.a.shape.n_k;
        load16_async(&m.delta[1][v][t][c], j.state.log_d + cell * D + p.column + c);
    }
    for (int e = 0; e < 4; e++)
        newest[e] = *(const float4 *)(j.state.s_lo + base_at(p, e));
    keep_base<HEADS>(m, p, newest);
    for (int e = 0; e < 4; e++)
        newest[e] = *(const float4 *)(j.state.s_hi + base_at(p, e));
    wait_async();
    await_workers<HEADS>();
    read_base<HEADS>(m, p, 0);
    weigh_block<HEADS>(m, 0);
    await_workers<HEADS>();
    if (j.blocks > 1)
        fetch_block<HEADS>(j, m, p, 1);
    if (any)
        add_before<HEADS>(m, p, 0);
}

// Workers, while block `block` is solved: its base, and what that gives to the next block.
template <int HEADS>
static __device__ __forceinline__ void
prepare_block(const struct blocks_job &j, struct blocks_shared<HEADS> &m,
              const struct blocks_place &p, int block, float4 *newest) {
    wait_async();
    await_workers<HEADS>();
    if (block > 0)
        fold_block<HEADS>(m, p, block - 1, newest);
    if (block + 1 == j.blocks) {
        put_base(p, j.state.s_lo, newest);
        return;
    }
    keep_base<HEADS>(m, p, newest);
    weigh_block<HEADS>(m, block + 1);
    await_workers<HEADS>();
    read_base<HEADS>(m, p, block + 1);
}

template <int HEADS>
static __global__ void __launch_bounds__(HEADS *(WARPS + 1) * 32, 1)
    run_blocks(const __grid_constant__ struct blocks_job j) {
    extern __shared__ __align__(16) unsigned char memory[];
    struct blocks_shared<HEADS> &m = *(struct blocks_shared<HEADS> *)memory;
    const struct blocks_place p = place_of<HEADS>(j);
    bool worker = (int)threadIdx.x < HEADS * WARPS * 32;
    float4 newest[4];
    gpu_await();
    if (worker)
        begin_blocks<HEADS>(j, m, p, newest);
    __syncthreads();
    for (int block = 0; block < j.blocks; block++) {
        if (worker)
            prepare_block<HEADS>(j, m, p, block, newest);
        else
            solve_block<HEADS>(j, m, p, block);
        __syncthreads();
        if (worker) {
            fetch_keys<HEADS>(j, m, p, block);
            if (block + 2 < j.blocks)
                fetch_block<HEADS>(j, m, p, block + 2);
            if (block + 1 < j.blocks)
                add_before<HEADS>(m, p, block + 1);
        }
        __syncthreads();
    }
    if (!worker)
        return;
    wait_async();
    await_workers<HEADS>();
    fold_block<HEADS>(m, p, j.blocks - 1, newest);
    put_base(p, j.state.s_hi, newest);
}

#else

// Older devices do not take whole blocks.
static __global__ void block_products(const __grid_constant__ struct blocks_job j) {
    (void)j;
    gpu_await();
}

template <int HEADS>
static __global__ void run_blocks(const __grid_constant__ struct blocks_job j) {
    (void)j;
    gpu_await();
}

#endif

// The end of the log's keys and decays, and the conv inputs behind the last row.
static __global__ void __launch_bounds__(256)
    keep_last(const __grid_constant__ struct blocks_job j) {
    const struct gdn_shape &s = j.a.shape;
    int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x, step = (int64_t)gridDim.x * 256;
    int64_t count = j.count, kept = count < GDN_RING ? count : GDN_RING, keys = s.n_k * D;
    gpu_await();
    for (int64_t i = at; i < kept * keys; i += step) {
        int64_t row = count - kept + i / keys, slot = (j.len + row) % GDN_RING;
        j.state.log_k[slot * keys + i % keys] = j.a.rows.k[(j.first + row) * keys + i % keys];
    }
    for (int64_t i = at; i < kept * s.n_v; i += step) {
        int64_t row = count - kept + i / s.n_v, slot = (j.len + row) % GDN_RING;
        j.state.log_g[slot * s.n_v + i % s.n_v] = j.a.rows.g[(j.first + row) * s.n_v + i % s.n_v];
    }
    for (int64_t i = at; i < (GDN_CONV - 1) * (int64_t)s.channels; i += step) {
        int64_t row = count - (GDN_CONV - 1) + i / s.channels;
        float u = j.a.rows.u[(j.first + row) * s.channels + i % s.channels];
        j.state.conv[i] = u;
        j.state.conv_hi[i] = u;
    }
}

template <int HEADS> static void launch(struct gpu *g, const struct blocks_job *j) {
    const int bytes = (int)sizeof(struct blocks_shared<HEADS>);
    dim3 grid(D / COLUMNS, (unsigned)(j->a.shape.n_v / HEADS));
    gpu_check(g, gpu_allow_shared(run_blocks<HEADS>, bytes), "gdn_blocks");
    gpu_launch_early(g, "gdn_blocks", run_blocks<HEADS>, grid, HEADS * (WARPS + 1) * 32,
                     (size_t)bytes, *j);
}

size_t gdn_blocks_bytes(const struct gdn_shape *s, int64_t blocks) {
    size_t products = (size_t)(s->n_k * blocks) * KEYS * B * sizeof(float2);
    size_t rows = (size_t)(s->n_k * blocks) * 2 * B * PIECES * sizeof(uint4);
    return products + rows + (size_t)(s->n_v * blocks) * META * sizeof(float);
}

extern "C" bool cuda_gdn_blocks(struct exec *x, const struct gdn_args *a,
                                const struct gdn_state *state, int64_t len) {
    struct gpu *g = gpu_of(x);
    const struct gdn_shape *s = &a->shape;
    int ratio = s->n_v / s->n_k, heads = ratio % 3 == 0 ? 3 : ratio % 2 == 0 ? 2 : 1;
    const size_t shared = sizeof(struct product_shared);
    // Where gdn_plain.cu makes single rows these sums would not have their bits.
    int64_t count = a->runs[0].count;
    if (s->dk != D || s->dv != D || count % B || len % B || !gdn_takes_matrix(g, s) ||
        (size_t)g->shared < sizeof(struct blocks_shared<3>))
        return false;
    if (!count)
        return true;
    struct blocks_job j = {*a,  a->runs[0].first, count, *state, len, (int)(count / B), NULL, NULL,
                           NULL};
    size_t products = (size_t)s->n_k * (size_t)j.blocks * KEYS * B * sizeof(float2);
    size_t rows = (size_t)s->n_k * (size_t)j.blocks * 2 * B * PIECES * sizeof(uint4);
    unsigned char *scratch = (unsigned char *)gpu_scratch(g, gdn_blocks_bytes(s, j.blocks));
    if (!scratch)
        return true;
    j.products = (float2 *)scratch;
    j.rows = (uint4 *)(scratch + products);
    j.meta = (float *)(scratch + products + rows);
    gpu_check(g, gpu_allow_shared(block_products, (int)shared), "gdn_blocks");
    gpu_launch_early(g, "gdn_blocks products", block_products,
                     dim3((unsigned)j.blocks, (unsigned)s->n_k), PRODUCT_THREADS, shared, j);
    if (heads == 3)
        launch<3>(g, &j);
    else if (heads == 2)
        launch<2>(g, &j);
    else
        launch<1>(g, &j);
    gpu_launch_early(g, "gdn_blocks", keep_last, 64, 256, 0, j);
    return true;
}
