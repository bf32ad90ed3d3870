// SPDX-License-Identifier: Apache-2.0
// The delta rule over whole blocks of 32 positions, one after another, of one sequence's prompt:
// what `gdn` and `gdn_commit` make of them one by one, in three launches and with the same bits
// (the same sums in the same order; matrix.cu and commit.cu say which).
//
// block_products: keys and queries split, all their products, sums of log decays, and with them the
// coefficients of all sums and the decays to the end of a block, for all blocks at once.
// run_blocks: a block of threads has 16 columns of the value heads that share a key head and goes
// through the positions, with the newest base in registers and the one before, split, in shared
// memory. Four workers (warps) of each head fold, split and multiply for the next block of
// positions while its solver makes the rows of this one; heads do not wait for each other. One warp
// has the copy engine bring what comes next. keep_last: the log's keys and decays, and the conv
// inputs. Heads of 128 only, where matrix.cu serves single rows.
#include "base/num.h"
#include "ops/gpu/gdn/gdn.h"
#include "ops/gpu/gdn/split.cuh"
#include "ops/gpu/matrix/bulk_copy.cuh"
#include "ops/rowmath.h"

enum {
    B = GDN_BLOCK,
    D = SPLIT_K,    // of keys, queries and values
    COLUMNS = 16,   // of a value head in a block of threads
    WARPS = 4,      // of a value head
    KEYS = 2 * B,   // those of the block before, then its own
    META = 160,     // floats of a head and block: sums from the base before it of the 32 positions
                    // before and of its own, decays to its end, the decay of all, betas
    TO_END = 2 * B, // where those lie
    WHOLE = 3 * B,
    BETA = 4 * B,
    PRODUCT_THREADS = 256,
    BLOCKS_MOST = 128, // of a launch
    RATIO_MOST = 16,   // value heads of a key head
};

// Coefficients of a value head and block: of the positions before, with a row's key and query, and
// of its own positions with keys, with queries.
struct block_coefs {
    float2 before[B][B]; // [position][row]
    float own[2][B][B];
};

struct blocks_job {
    struct gdn_args a;
    int64_t first, count;
    struct gdn_state state;
    int64_t len; // committed positions, a multiple of B
    int blocks;
    struct block_coefs *coefs; // [n_v][blocks]
    uint4 *rows;               // [n_k][blocks][high, low][B][PIECES] as left operands
    float *meta;               // [n_v][blocks][META]
};

struct product_shared {
    uint4 key[KEYS][PIECES], high[B][PIECES], low[B][PIECES];
    float sums[RATIO_MOST][KEYS]; // of log decays, as in meta
};

// What the warps of a block of threads share. Turns: of blocks of positions, modulo two or four.
template <int HEADS> struct blocks_shared {
    uint4 rows[2][B][PIECES]; // [high, low] of a block
    float key[2][B][D];
    float meta[4][HEADS][META];
    float value[2][HEADS][B][COLUMNS];
    float2 before[HEADS][B][B];         // coefficients for the positions before: [position][row]
    float own[2][HEADS][2][B][B];       // of keys, of queries, for the block's own
    uint4 base[HEADS][COLUMNS][PIECES]; // the newest, split
    float unscale[HEADS * WARPS];
    float sums[2][HEADS][2][B][COLUMNS]; // of keys, of queries: from the base, then with `before`
    float delta[2][HEADS][B][COLUMNS];
    unsigned long long bars[12]; // blocks_bars
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Row `row` of this call's keys or queries.
static __device__ __forceinline__ const float *row_of(const struct blocks_job &j, const float *x,
                                                      int64_t row, int k_head) {
    return x + ((j.first + row) * j.a.shape.n_k + k_head) * D;
}

// One warp: the meta of a value head and block; its sums to `sums` too.
static __device__ void sum_decays(const struct blocks_job &j, int block, int head, float *sums) {
    const int n_v = j.a.shape.n_v, lane = (int)threadIdx.x % WARP;
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
        sum += warp_from(before, t);
        known = t == lane ? sum : known;
    }
    sum = any ? sum : 0;
#pragma unroll
    for (int t = 0; t < B; t++) {
        sum += warp_from(now, t);
        own = t == lane ? sum : own;
    }
    float scan = gdn_scan(now, lane), all = warp_from(scan, WARP - 1);
    float *to = j.meta + ((int64_t)head * j.blocks + block) * META;
    to[lane] = sums[lane] = known;
    to[B + lane] = sums[B + lane] = own;
    to[TO_END + lane] = row_exp(all - scan);
    to[WHOLE + lane] = row_exp(all);
    to[BETA + lane] = j.a.rows.beta[(j.first + row) * n_v + head];
}

// Block: (block of positions, key head). Its keys and those before, and its queries, split.
static __device__ __forceinline__ void split_rows(const struct blocks_job &j,
                                                  struct product_shared &m) {
    enum { WARPS_HERE = PRODUCT_THREADS / WARP, EACH = B / WARPS_HERE };
    int block = (int)blockIdx.x, head = (int)blockIdx.y, n_k = j.a.shape.n_k;
    int lane = (int)threadIdx.x % WARP, w = (int)threadIdx.x / WARP;
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
        *piece(m.key[0], t, lane) = split_values(before[i], power_of_two(UP));
        *piece(m.key[0], t + B, lane) = put_left(m.high[0], m.low[0], t, lane, key[i], query[i]);
        *piece(to, t, lane) = *piece(m.high[0], t, lane);
        *piece(to, t + B, lane) = *piece(m.low[0], t, lane);
    }
}

// The products c of a key of position t and of a row's key and query, to the coefficients of all
// value heads.
static __device__ __forceinline__ void put_coefs(const struct blocks_job &j,
                                                 const struct product_shared &m, int t, int row,
                                                 float key, float query) {
    int block = (int)blockIdx.x, head = (int)blockIdx.y, n_k = j.a.shape.n_k;
    for (int v = 0; v < j.a.shape.n_v / n_k; v++) {
        struct block_coefs *to = j.coefs + (int64_t)(head + v * n_k) * j.blocks + block;
        float f = decay_of(m.sums[v][B + row] - m.sums[v][t]);
        if (t < B) {
            to->before[t][row] = make_float2(key * f, query * f);
        } else {
            to->own[0][t - B][row] = key * f;
            to->own[1][t - B][row] = query * f;
        }
    }
}

static __global__ void __launch_bounds__(PRODUCT_THREADS)
    block_products(const __grid_constant__ struct blocks_job j) {
    extern __shared__ __align__(128) unsigned char memory[];
    struct product_shared &m = *(struct product_shared *)memory;
    const float down = 1.0f / (1 << 2 * UP);
    int block = (int)blockIdx.x, head = (int)blockIdx.y, n_k = j.a.shape.n_k;
    int lane = (int)threadIdx.x % WARP, w = (int)threadIdx.x / WARP, at = w % 4 * 8 + lane / 4;
    gpu_await();
    split_rows(j, m);
    for (int v = w; v < j.a.shape.n_v / n_k; v += PRODUCT_THREADS / WARP)
        sum_decays(j, block, head + v * n_k, m.sums[v]);
    __syncthreads();
    struct left a;
    load_left(&a, m.high[0], m.low[0], at);
    for (int i = w / 4; i < KEYS / 16; i += PRODUCT_THREADS / 128) {
        float c[2][4];
        multiply_rows(a, m.key[0], i * 16, c);
#pragma unroll
        for (int n = 0; n < 4; n++)
            put_coefs(j, m, i * 16 + n / 2 * 8 + lane % 4 * 2 + n % 2, at, c[n / 2][n % 2] * down,
                      c[n / 2][n % 2 + 2] * down);
    }
}

// Barriers of what the last warp brings: full when it is there, empty when all have left it. Long
// pieces come by the copy engine, which one lane at a time starts; values and keys by all lanes.
struct blocks_bars {
    uint32_t at;

    __device__ __forceinline__ uint32_t rows(bool empty) const {
        return at + (empty ? 8 : 0);
    }
    __device__ __forceinline__ uint32_t before(bool empty) const {
        return at + 16 + (empty ? 8 : 0);
    }
    __device__ __forceinline__ uint32_t key(int block, bool empty) const {
        return at + 32 + (empty ? 16 : 0) + (uint32_t)block % 2 * 8;
    }
    __device__ __forceinline__ uint32_t own(int block, bool empty) const {
        return at + 64 + (empty ? 16 : 0) + (uint32_t)block % 2 * 8;
    }
};

// Where a thread works. Workers: WARPS warps of a value head, four columns and eight rows each.
// After them a warp of each head that solves for its deltas, and one that brings.
struct blocks_place {
    int k_head, head, first_head; // value heads: of the warp, of the block of threads
    int v, w;                     // number of the head in the block of threads, of the warp in it
    int column;                   // first of the block of threads
    struct blocks_bars bars;
};

// A warp has read what a barrier guards.
static __device__ __forceinline__ void leave_stage(uint32_t empty) {
    __syncwarp();
    if (threadIdx.x % WARP == 0)
        barrier_arrive(empty);
}

// Among the warps of a head: what one side says, the other waits for.
enum head_event { BASE_SPLIT = 1, SUMS_READY = 4, DELTAS_READY = 7 };
template <int EVENT> static __device__ __forceinline__ void head_say(int v) {
    warps_come<(WARPS + 1) * WARP>(EVENT + v);
}
template <int EVENT> static __device__ __forceinline__ void head_hear(int v) {
    warps_meet<(WARPS + 1) * WARP>(EVENT + v);
}
static __device__ __forceinline__ void workers_meet(int v) {
    warps_meet<WARPS * WARP>(BASE_SPLIT + v);
}

// The warp that brings: a block's rows as left operands, and its meta.
template <int HEADS>
static __device__ __forceinline__ void bring_rows(const struct blocks_job &j,
                                                  struct blocks_shared<HEADS> &m,
                                                  const struct blocks_place &p, int block) {
    const int lane = (int)threadIdx.x % WARP, n_k = j.a.shape.n_k;
    const uint32_t bar = p.bars.rows(false);
    barrier_wait(p.bars.rows(true), (unsigned)block % 2 ^ 1);
    if (lane == 0) {
        barrier_expect(bar, sizeof m.rows + HEADS * META * 4);
        copy_bulk(shared_address(m.rows),
                  j.rows + ((int64_t)p.k_head * j.blocks + block) * 2 * B * PIECES, sizeof m.rows,
                  bar);
    }
    __syncwarp();
    if (lane < HEADS)
        copy_bulk(shared_address(m.meta[block % 4][lane]),
                  j.meta + ((int64_t)(p.first_head + lane * n_k) * j.blocks + block) * META,
                  META * 4, bar);
}

// What its solvers need: coefficients among its own positions, and values.
template <int HEADS>
static __device__ __forceinline__ void bring_own(const struct blocks_job &j,
                                                 struct blocks_shared<HEADS> &m,
                                                 const struct blocks_place &p, int block) {
    const int lane = (int)threadIdx.x % WARP, n_k = j.a.shape.n_k, n_v = j.a.shape.n_v;
    const uint32_t bar = p.bars.own(block, false);
    const int64_t row = j.first + (int64_t)block * B;
    barrier_wait(p.bars.own(block, true), (unsigned)block / 2 % 2 ^ 1);
    if (lane == 0)
        barrier_expect(bar, sizeof m.own[0]);
    __syncwarp();
    if (lane < HEADS)
        copy_bulk(shared_address(m.own[block % 2][lane]),
                  j.coefs[(int64_t)(p.first_head + lane * n_k) * j.blocks + block].own,
                  sizeof m.own[0][0], bar);
#pragma unroll
    for (int i = 0; i < HEADS * B / 8; i++) { // eight rows of a head, 64 bytes of each
        const int v = i / (B / 8), r = i % (B / 8) * 8 + lane / 4, at = lane % 4 * 4;
        copy_piece(shared_address(&m.value[block % 2][v][r][at]),
                   (const unsigned char *)(j.a.rows.v +
                                           ((row + r) * n_v + p.first_head + v * n_k) * D +
                                           p.column + at));
    }
    barrier_follow(bar);
}

// Its coefficients for the positions before.
template <int HEADS>
static __device__ __forceinline__ void bring_before(const struct blocks_job &j,
                                                    struct blocks_shared<HEADS> &m,
                                                    const struct blocks_place &p, int block) {
    const int lane = (int)threadIdx.x % WARP, n_k = j.a.shape.n_k;
    const uint32_t bar = p.bars.before(false);
    barrier_wait(p.bars.before(true), (unsigned)block % 2 ^ 1);
    if (lane == 0)
        barrier_expect(bar, sizeof m.before);
    __syncwarp();
    if (lane < HEADS)
        copy_bulk(shared_address(m.before[lane]),
                  j.coefs[(int64_t)(p.first_head + lane * n_k) * j.blocks + block].before,
                  sizeof m.before[0], bar);
}

// The keys that its deltas are folded with.
template <int HEADS>
static __device__ __forceinline__ void bring_keys(const struct blocks_job &j,
                                                  struct blocks_shared<HEADS> &m,
                                                  const struct blocks_place &p, int block) {
    const int lane = (int)threadIdx.x % WARP;
    const uint32_t bar = p.bars.key(block, false);
    barrier_wait(p.bars.key(block, true), (unsigned)block / 2 % 2 ^ 1);
#pragma unroll 8
    for (int r = 0; r < B; r++)
        copy_piece(shared_address(&m.key[block % 2][r][lane * 4]),
                   (const unsigned char *)(row_of(j, j.a.rows.k, (int64_t)block * B + r, p.k_head) +
                                           lane * 4));
    barrier_follow(bar);
}

// Brings all blocks, in the order in which they are needed and places become free.
template <int HEADS>
static __device__ __forceinline__ void bring_blocks(const struct blocks_job &j,
                                                    struct blocks_shared<HEADS> &m,
                                                    const struct blocks_place &p) {
    for (int block = 0; block < j.blocks; block++) {
        bring_rows<HEADS>(j, m, p, block);
        bring_own<HEADS>(j, m, p, block);
        bring_before<HEADS>(j, m, p, block);
        bring_keys<HEADS>(j, m, p, block);
    }
}

// Worker: the warp's columns of the newest base, split.
template <int HEADS>
static __device__ __forceinline__ void keep_base(struct blocks_shared<HEADS> &m,
                                                 const struct blocks_place &p, const float4 *x) {
    float down = split_columns(m.base[p.v][0], p.w * 4, x);
    if (threadIdx.x % WARP == 0)
        m.unscale[p.v * WARPS + p.w] = down;
}

// A worker's sums for one of eight rows: of its key, of its query, two of the first eight columns
// and two of the others, which half of a warp takes in the other order than the other half, so that
// both read different banks.
struct row_sums {
    float2 z[2][2];
};
static __device__ __forceinline__ int sums_column(int n) {
    const int lane = (int)threadIdx.x % WARP;
    return lane % 4 * 2 + (n ^ lane / 16) * 8;
}

// Worker: what the kept base gives to a block's rows, with its decay; eight rows and the columns of
// a value head.
template <int HEADS>
static __device__ __forceinline__ struct row_sums
read_base(struct blocks_shared<HEADS> &m, const struct blocks_place &p, int block) {
    int lane = (int)threadIdx.x % WARP, at = p.w * 8 + lane / 4;
    struct left a;
    struct row_sums s;
    float x[2][4];
    barrier_wait(p.bars.rows(false), (unsigned)block % 2);
    load_left(&a, m.rows[0][0], m.rows[1][0], at);
    float gain = decay_of(m.meta[block % 4][p.v][B + at]);
    multiply_rows(a, m.base[p.v][0], 0, x);
    leave_stage(p.bars.rows(true));
    const bool other = lane >= 16;
    float by[2];
#pragma unroll
    for (int n = 0; n < 2; n++)
        by[n] = m.unscale[p.v * WARPS + 2 * n + lane % 4 / 2];
#pragma unroll
    for (int q = 0; q < 2; q++) {
        float2 z[2];
#pragma unroll
        for (int n = 0; n < 2; n++)
            z[n] = make_float2(x[n][2 * q] * by[n] * gain, x[n][2 * q + 1] * by[n] * gain);
        s.z[q][0] = make_float2(other ? z[1].x : z[0].x, other ? z[1].y : z[0].y);
        s.z[q][1] = make_float2(other ? z[0].x : z[1].x, other ? z[0].y : z[1].y);
    }
    return s;
}

static __device__ __forceinline__ void fma2(float2 *acc, float f, float2 v) {
    acc->x = fmaf(f, v.x, acc->x);
    acc->y = fmaf(f, v.y, acc->y);
}

// Worker: eight rows and all columns take the positions of the block before, if there are any; then
// they are the solver's.
template <int HEADS>
static __device__ __forceinline__ void add_before(struct blocks_shared<HEADS> &m,
                                                  const struct blocks_place &p, int block, bool any,
                                                  struct row_sums s) {
    int lane = (int)threadIdx.x % WARP, row = p.w * 8 + lane / 4;
    const float2 *coef = &m.before[p.v][0][row];
    const float *delta = &m.delta[(block + 1) % 2][p.v][0][0];
    const float *from[2] = {delta + sums_column(0), delta + sums_column(1)};
    barrier_wait(p.bars.before(false), (unsigned)block % 2);
    if (any) {
#pragma unroll 8
        for (int t = 0; t < B; t++) {
            float2 f = coef[t * B];
            float2 d[2] = {*(const float2 *)(from[0] + t * COLUMNS),
                           *(const float2 *)(from[1] + t * COLUMNS)};
#pragma unroll
            for (int n = 0; n < 2; n++) {
                fma2(&s.z[0][n], f.x, d[n]);
                fma2(&s.z[1][n], f.y, d[n]);
            }
        }
    }
    leave_stage(p.bars.before(true));
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int q = 0; q < 2; q++)
            *(float2 *)&m.sums[block % 2][p.v][q][row][sums_column(n)] = s.z[q][n];
}

// Worker: the next base: the newest one decayed, and a block's deltas. Thread: rows 4 lane .. + 3
// of it.
template <int HEADS>
static __device__ __forceinline__ void fold_block(const struct blocks_shared<HEADS> &m,
                                                  const struct blocks_place &p, int block,
                                                  float4 *newest) {
    int lane = (int)threadIdx.x % WARP;
    const float *meta = m.meta[block % 4][p.v];
    const float *delta = &m.delta[block % 2][p.v][0][p.w * 4];
    const float *key = &m.key[block % 2][0][4 * lane];
#pragma unroll
    for (int e = 0; e < 4; e++)
        newest[e] = gdn_scale4(newest[e], meta[WHOLE]);
    barrier_wait(p.bars.key(block, false), (unsigned)block / 2 % 2);
#pragma unroll 2
    for (int t0 = 0; t0 < B; t0 += 4) {
        const float4 decay = *(const float4 *)&meta[TO_END + t0];
        const float by[4] = {decay.x, decay.y, decay.z, decay.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float4 k = *(const float4 *)(key + (t0 + i) * D);
            float4 d = *(const float4 *)(delta + (t0 + i) * COLUMNS);
            gdn_fma4(&newest[0], by[i] * k.x, d);
            gdn_fma4(&newest[1], by[i] * k.y, d);
            gdn_fma4(&newest[2], by[i] * k.z, d);
            gdn_fma4(&newest[3], by[i] * k.w, d);
        }
    }
    leave_stage(p.bars.key(block, true));
}

// Solver: rows in order; each is finished, and those after it take what it adds. A lane has a
// column of the sums for keys, and another, 16 further on, the same one for queries.
template <int HEADS>
static __device__ __forceinline__ void solve_block(const struct blocks_job &j,
                                                   struct blocks_shared<HEADS> &m,
                                                   const struct blocks_place &p, int block) {
    int lane = (int)threadIdx.x % WARP, query = lane / COLUMNS, c = lane % COLUMNS;
    const int turn = block % 2, n_v = j.a.shape.n_v;
    const float *sums = &m.sums[turn][p.v][query][0][c], *value = &m.value[turn][p.v][0][c];
    const float *beta = &m.meta[block % 4][p.v][BETA], *coef = m.own[turn][p.v][query][0];
    float *delta = &m.delta[turn][p.v][0][c];
    int64_t row = j.first + (int64_t)block * B, slot = (j.len + (int64_t)block * B) % GDN_RING;
    float *out = j.a.out + (row * n_v + p.head) * D + p.column + c;
    float *log = j.state.log_d + (slot * n_v + p.head) * D + p.column + c;
    float x[B];
    barrier_wait(p.bars.own(block, false), (unsigned)block / 2 % 2);
    head_hear<SUMS_READY>(p.v);
#pragma unroll
    for (int i = 0; i < B; i++)
        x[i] = sums[i * COLUMNS];
#pragma unroll
    for (int t = 0; t < B; t++) { // nothing is stored in here, so that loads may run ahead
        float d = warp_from(beta[t] * (value[t * COLUMNS] - x[t]), c);
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
#pragma unroll
    for (int t = 0; t < B; t++)
        if (!query)
            delta[t * COLUMNS] = x[t];
    head_say<DELTAS_READY>(p.v);
    leave_stage(p.bars.own(block, true));
    float *to = query ? out : log;
    bool kept = query || block >= j.blocks - 2;
#pragma unroll
    for (int t = 0; t < B; t++, to += (int64_t)n_v * D)
        if (kept)
            *to = x[t];
}

template <int HEADS>
static __device__ __forceinline__ struct blocks_place place_of(const struct blocks_job &j) {
    struct blocks_place p;
    int n_k = j.a.shape.n_k, y = (int)blockIdx.y, w = (int)threadIdx.x / WARP;
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
    int64_t row = (int64_t)p.head * D + (int)threadIdx.x % WARP * 4 + e;
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
    const bool any = j.len > 0;
    for (int i = (int)threadIdx.x; any && i < HEADS * B * COLUMNS / 4; i += HEADS * WARPS * WARP) {
        int c = i % (COLUMNS / 4) * 4, t = i / (COLUMNS / 4) % B, v = i / (COLUMNS / 4) / B;
        int64_t slot = (j.len - B + t) % GDN_RING;
        int64_t cell = slot * j.a.shape.n_v + p.first_head + v * j.a.shape.n_k;
        copy_piece(shared_address(&m.delta[1][v][t][c]), j.state.log_d + cell * D + p.column + c);
    }
    for (int e = 0; e < 4; e++)
        newest[e] = *(const float4 *)(j.state.s_lo + base_at(p, e));
    keep_base<HEADS>(m, p, newest);
    for (int e = 0; e < 4; e++)
        newest[e] = *(const float4 *)(j.state.s_hi + base_at(p, e));
    copies_wait_all();
    workers_meet(p.v); // a head's share of the log was requested by its own warps
    const struct row_sums s = read_base<HEADS>(m, p, 0);
    workers_meet(p.v); // before another base is split
    add_before<HEADS>(m, p, 0, any, s);
    head_say<SUMS_READY>(p.v);
}

// Workers, while block `block` is solved: its base, and what that and then its deltas give to the
// next block.
template <int HEADS>
static __device__ __forceinline__ void
prepare_block(const struct blocks_job &j, struct blocks_shared<HEADS> &m,
              const struct blocks_place &p, int block, float4 *newest) {
    if (block > 0)
        fold_block<HEADS>(m, p, block - 1, newest);
    if (block + 1 == j.blocks) {
        put_base(p, j.state.s_lo, newest);
        head_hear<DELTAS_READY>(p.v);
        return;
    }
    keep_base<HEADS>(m, p, newest);
    workers_meet(p.v);
    const struct row_sums s = read_base<HEADS>(m, p, block + 1);
    head_hear<DELTAS_READY>(p.v);
    add_before<HEADS>(m, p, block + 1, true, s);
    head_say<SUMS_READY>(p.v);
}

template <int HEADS>
static __device__ __forceinline__ void init_bars(const struct blocks_bars &bars) {
    for (int i = 0; i < 2; i++) {
        barrier_init(bars.key(i, false), WARP);
        barrier_init(bars.own(i, false), 1 + WARP);
        barrier_init(bars.key(i, true), HEADS * WARPS);
        barrier_init(bars.own(i, true), HEADS);
    }
    barrier_init(bars.rows(false), 1);
    barrier_init(bars.rows(true), HEADS * WARPS);
    barrier_init(bars.before(false), 1);
    barrier_init(bars.before(true), HEADS * WARPS);
    show_shared();
}

template <int HEADS>
static __global__ void __launch_bounds__((HEADS * (WARPS + 1) + 1) * WARP, 1)
    run_blocks(const __grid_constant__ struct blocks_job j) {
    extern __shared__ __align__(128) unsigned char memory[];
    struct blocks_shared<HEADS> &m = *(struct blocks_shared<HEADS> *)memory;
    struct blocks_place p = place_of<HEADS>(j);
    const int warp = (int)threadIdx.x / WARP;
    p.bars.at = shared_address(m.bars);
    if (threadIdx.x == 0)
        init_bars<HEADS>(p.bars);
    __syncthreads();
    gpu_await();
    if (warp == HEADS * (WARPS + 1)) {
        bring_blocks<HEADS>(j, m, p);
    } else if (warp >= HEADS * WARPS) {
        for (int block = 0; block < j.blocks; block++)
            solve_block<HEADS>(j, m, p, block);
    } else {
        float4 newest[4];
        begin_blocks<HEADS>(j, m, p, newest);
        for (int block = 0; block < j.blocks; block++)
            prepare_block<HEADS>(j, m, p, block, newest);
        fold_block<HEADS>(m, p, j.blocks - 1, newest);
        put_base(p, j.state.s_hi, newest);
    }
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

// The end of the log's keys and decays, and the conv inputs after the last row.
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

template <int HEADS> static void launch_blocks(struct gpu *g, const struct blocks_job *j) {
    const int bytes = (int)sizeof(struct blocks_shared<HEADS>);
    dim3 grid(D / COLUMNS, (unsigned)(j->a.shape.n_v / HEADS));
    gpu_allow_shared(g, (const void *)run_blocks<HEADS>, bytes, "gdn_blocks");
    gpu_launch_early(g, "gdn_blocks", run_blocks<HEADS>, grid, (HEADS * (WARPS + 1) + 1) * WARP,
                     (size_t)bytes, *j);
}

size_t gdn_blocks_bytes(const struct gdn_shape *s, int64_t blocks) {
    blocks = min_i64(blocks, BLOCKS_MOST);
    size_t coefs = (size_t)(s->n_v * blocks) * sizeof(struct block_coefs);
    size_t rows = (size_t)(s->n_k * blocks) * 2 * B * PIECES * sizeof(uint4);
    return coefs + rows + (size_t)(s->n_v * blocks) * META * sizeof(float);
}

// Queues j's blocks, at most BLOCKS_MOST.
static void run_all_blocks(struct gpu *g, struct blocks_job *j, unsigned char *scratch) {
    const struct gdn_shape *s = &j->a.shape;
    const int ratio = s->n_v / s->n_k;
    const size_t shared = sizeof(struct product_shared);
    size_t coefs = (size_t)s->n_v * (size_t)j->blocks * sizeof(struct block_coefs);
    size_t rows = (size_t)s->n_k * (size_t)j->blocks * 2 * B * PIECES * sizeof(uint4);
    j->coefs = (struct block_coefs *)scratch;
    j->rows = (uint4 *)(scratch + coefs);
    j->meta = (float *)(scratch + coefs + rows);
    gpu_allow_shared(g, (const void *)block_products, (int)shared, "gdn_blocks");
    gpu_launch_early(g, "gdn_blocks products", block_products,
                     dim3((unsigned)j->blocks, (unsigned)s->n_k), PRODUCT_THREADS, shared, *j);
    if (ratio % 3 == 0)
        launch_blocks<3>(g, j);
    else if (ratio % 2 == 0)
        launch_blocks<2>(g, j);
    else
        launch_blocks<1>(g, j);
    gpu_launch_early(g, "gdn_blocks", keep_last, 64, 256, 0, *j);
}

extern "C" bool cuda_gdn_blocks(struct exec *x, const struct gdn_args *a,
                                const struct gdn_state *state, int64_t len) {
    struct gpu *g = gpu_of(x);
    const struct gdn_shape *s = &a->shape;
    // Where plain.cu makes single rows these sums would not have their bits.
    const int64_t count = a->runs[0].count;
    if (s->dk != D || s->dv != D || count % B || len % B || !gdn_takes_matrix(g, s) ||
        s->n_v / s->n_k > RATIO_MOST || (size_t)g->shared < sizeof(struct blocks_shared<3>))
        return false;
    if (!count)
        return true;
    unsigned char *scratch = (unsigned char *)gpu_scratch(g, gdn_blocks_bytes(s, count / B));
    if (!scratch)
        return true;
    for (int64_t at = 0; at < count; at += BLOCKS_MOST * B) {
        const int64_t n = min_i64(count - at, BLOCKS_MOST * B);
        struct blocks_job j = {
            *a, a->runs[0].first + at, n, *state, len + at, (int)(n / B), NULL, NULL, NULL};
        run_all_blocks(g, &j, scratch);
    }
    return true;
}
