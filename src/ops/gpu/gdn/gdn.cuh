// SPDX-License-Identifier: Apache-2.0
// What the blocks of the delta rule compute about a sequence's rows before any arithmetic on them:
// who they are, their ancestors in flight, and how far everything has decayed. Rows get places:
// those that read base lo in forest order, then, from a multiple of four on, those that read base
// hi, so that four neighbouring places read one base. Parents keep standing before children.
// Nothing here is written to global memory.
#ifndef COPPICE_OPS_GPU_GDN_GDN_CUH
#define COPPICE_OPS_GPU_GDN_GDN_CUH

#include "base/num.h"
#include "ops/gpu/gdn/gdn.h"
#include "ops/gpu/matrix/async_copy.cuh"

enum {
    COLUMNS = 16,       // of a value head, in one block
    WARPS = 4,          // of a value head in a block; each has four columns
    TILE = 32,          // places at once
    CHUNK = 128,        // of the key dimension
    STRIDE = CHUNK + 4, // of keys and queries in shared memory
    HEADS_MOST = 3,     // value heads of a block
};

// A run, for a block of its own sequence.
struct gdn_place {
    int64_t first, count, len; // rows; committed positions of the sequence
    int64_t exchanged;         // of its state (gdn_exchanged)
};

// Rows are local: 0 .. count - 1 of a run, row i being first + i of the pass.
struct gdn_job {
    struct gdn_args a;
    const struct gdn_place *runs;   // [runs of this launch]
    const struct gdn_state *states; // [runs of this launch] bases by address
    const int32_t *parent;          // [rows of the pass]
    const int64_t *pos;             // [rows of the pass]
    int64_t count;                  // rows of the longest run
    int heads;        // value heads of a block; they share a key head. 0: products only
    int max;          // places that the largest sequence can need
    int keys;         // keys in shared memory at once
    int parts;        // blocks that share the products of a key head
    bool newer;       // some row reads base hi
    float2 *products; // with a row's key and query: [sequence][n_k][tile][key][TILE]
};

// Instead of runs, states, parent and pos, if few.n; places as in gdn_shared.
struct gdn_tables {
    struct gdn_few few;
    int64_t first, len;
    int8_t n, hi; // as in gdn_sequence
    int8_t list[GDN_FEW + 4], up[GDN_FEW + 4], depth[GDN_FEW + 4];
};

// A block's shared memory. Value head v of the block, warp w = v * WARPS + ...
struct gdn_shared {
    float *kq;      // [2][TILE][STRIDE] keys and queries of the tile
    float2 *coef;   // [v][GDN_RING][TILE], in the same place, later
    float4 *s;      // [w][CHUNK / 4][lo, hi][4]: element i of the key dimension is in place
                    // (i / 16 * 4 + i % 4, i / 4 % 4)
    float4 *ring;   // [w][GDN_RING] deltas of committed positions
    float4 *delta;  // [w][TILE]
    float *keys;    // [keys][STRIDE]
    float *gone;    // [lo, hi][v][GDN_RING] sums of the log decays of committed positions
    float *g, *sum; // [v][max]; [lo, hi][v][max] log decays of places, and their sums
    int32_t *list;  // [max] row of a place, or -1
    int32_t *up;    // [max] place of the parent, or -1
    int32_t *depth; // [max] positions that a place is after len; -1: no row
    int32_t *where; // [count] place of a row; before that its kind: 1 it reads base lo, 2 base hi
    int32_t *over;  // [count] local row of the parent, < 0: none
    int32_t *late;  // [count] positions that a row is after len
    int32_t *above; // [GDN_BLOCK][TILE] places of the tile's ancestors in flight, highest first
};

// What all threads of a block have computed about their sequence.
struct gdn_sequence {
    int64_t row0, len; // first row; committed positions
    int rows;
    int base[2];   // positions from base lo, hi to len
    int n;         // places
    int hi;        // first place that reads base hi
    int64_t slot0; // of base lo in the ring
};

static inline size_t gdn_room_bytes(const struct gdn_job &j) {
    size_t v = (size_t)j.heads, max = (size_t)j.max;
    size_t kq = 2 * TILE * STRIDE * sizeof(float), coef = v * GDN_RING * TILE * sizeof(float2);
    size_t n = kq > coef ? kq : coef;
    n += v * WARPS * (2 * CHUNK + GDN_RING + TILE) * sizeof(float4);
    n += ((size_t)j.keys * STRIDE + 2 * v * GDN_RING + 3 * v * max) * sizeof(float);
    return n + (3 * max + max_size(3 * (size_t)j.count, GDN_BLOCK * TILE)) * sizeof(int32_t);
}

#ifdef __CUDACC__
static __device__ inline struct gdn_shared gdn_shared_at(const struct gdn_job &j, float4 *p) {
    struct gdn_shared m;
    int v = j.heads, kq = 2 * TILE * STRIDE / 4, coef = v * GDN_RING * TILE / 2;
    m.kq = (float *)p;
    m.coef = (float2 *)p;
    m.s = p + (kq > coef ? kq : coef);
    m.ring = m.s + v * WARPS * 2 * CHUNK;
    m.delta = m.ring + v * WARPS * GDN_RING;
    m.keys = (float *)(m.delta + v * WARPS * TILE);
    m.gone = m.keys + j.keys * STRIDE;
    m.g = m.gone + 2 * v * GDN_RING;
    m.sum = m.g + v * j.max;
    m.list = (int32_t *)(m.sum + 2 * v * j.max);
    m.up = m.list + j.max;
    m.depth = m.up + j.max;
    m.where = m.depth + j.max;
    m.over = m.where + j.count;
    m.late = m.over + j.count;
    m.above = m.where; // the listing of rows is over by then
    return m;
}

static __device__ inline int64_t gdn_base_of(int64_t pos) {
    int64_t block = pos / GDN_BLOCK;
    return block > 0 ? (block - 1) * GDN_BLOCK : 0;
}

// What is known before the rows are listed.
static __device__ inline struct gdn_sequence gdn_sequence_of(struct gdn_place run) {
    struct gdn_sequence q;
    int64_t len = run.len, lo = gdn_base_of(len);
    q.row0 = run.first;
    q.rows = (int)run.count;
    q.len = len;
    q.base[0] = (int)(len - lo);
    q.base[1] = len < GDN_BLOCK ? q.base[0] : q.base[0] - GDN_BLOCK;
    q.slot0 = lo % GDN_RING;
    q.n = q.hi = 0;
    return q;
}

// Past the first-level cache: it may stand in front of gpu_await.
static __device__ inline struct gdn_place gdn_place_of(const struct gdn_job &j, int run) {
    const long long *p = (const long long *)&j.runs[run];
    return {__ldcg(p), __ldcg(p + 1), __ldcg(p + 2), __ldcg(p + 3)};
}

static __device__ inline float *gdn_pointer(float *const *p) {
    return (float *)__ldcg((const unsigned long long *)p);
}

// The state of a run's sequence as far as the rule reads it; past the first-level cache.
static __device__ inline struct gdn_state gdn_state_at(const struct gdn_job &j, int run,
                                                       bool exchanged) {
    const struct gdn_state *s = &j.states[run];
    float *low = gdn_pointer(&s->s_lo), *high = gdn_pointer(&s->s_hi);
    struct gdn_state state = {};
    state.s_lo = exchanged ? high : low;
    state.s_hi = exchanged ? low : high;
    state.log_k = gdn_pointer(&s->log_k);
    state.log_d = gdn_pointer(&s->log_d);
    state.log_g = gdn_pointer(&s->log_g);
    return state;
}

// Committed positions from base lo or hi on.
static __device__ inline int gdn_known(const struct gdn_sequence &q, bool hi) {
    return hi ? q.base[1] : q.base[0];
}

// All threads: what the rows are. May stand in front of gpu_await.
static __device__ inline void gdn_look(const struct gdn_job &j, struct gdn_shared &m,
                                       const struct gdn_sequence &q) {
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < q.rows; i += (int)blockDim.x) {
        int64_t pos = __ldcg((const long long *)&j.pos[q.row0 + i]);
        m.over[i] = (int32_t)(__ldcg(&j.parent[q.row0 + i]) - q.row0);
        m.late[i] = (int32_t)(pos - q.len);
        m.where[i] = pos / GDN_BLOCK > q.len / GDN_BLOCK ? 2 : 1;
    }
}

// One warp: appends the rows of a kind to the list, whose next place is n. Returns the new n.
static __device__ inline int gdn_append(struct gdn_shared &m, int count, int kind, int n) {
    int lane = (int)threadIdx.x % WARP;
#pragma unroll 1
    for (int i = lane; i - lane < count; i += WARP) {
        bool mine = i < count && m.where[i] == kind;
        warp_mask mask = warp_vote(mine);
        if (mine)
            m.list[n + mask_before(mask, lane)] = i;
        n += mask_count(mask);
    }
    return n;
}

// One warp: places of the rows. found: [2], n and hi.
static __device__ inline void gdn_list(struct gdn_shared &m, int rows, int *found) {
    int lane = (int)threadIdx.x % WARP;
    int lo = gdn_append(m, rows, 1, 0), first = (lo + 3) / 4 * 4;
    int n = gdn_append(m, rows, 2, first);
    if (lane < first - lo && n > first)
        m.list[lo + lane] = -1;
    n = n > first ? n : lo;
    __syncwarp();
#pragma unroll 1
    for (int i = lane; i < n; i += WARP)
        if (m.list[i] >= 0)
            m.where[m.list[i]] = i;
    __syncwarp();
#pragma unroll 1
    for (int i = lane; i < n; i += WARP) {
        int row = m.list[i], over = row < 0 ? -1 : m.over[row];
        m.depth[i] = row < 0 ? -1 : m.late[row];
        m.up[i] = over < 0 ? -1 : m.where[over];
    }
    if (lane == 0) {
        found[0] = n;
        found[1] = n > first ? first : lo;
    }
}

static __device__ inline int gdn_depth(const struct gdn_shared &m, const struct gdn_sequence &q,
                                       int place) {
    return place < q.n ? m.depth[place] : -1;
}

// One warp: ancestors of the tile at `first`.
static __device__ inline void gdn_climb(struct gdn_shared &m, int first, int depth) {
    int lane = (int)threadIdx.x % WARP, at = first + lane;
    for (int d = depth - 1; d >= 0; d--) {
        at = m.up[at];
        m.above[d * TILE + lane] = at;
    }
}

// One warp: running sums of the committed log decays of a value head, from one base.
static __device__ inline void gdn_sum_log(const struct gdn_job &j, struct gdn_shared &m,
                                          const struct gdn_sequence &q, const float *log_g, int v,
                                          int hi) {
    int lane = (int)threadIdx.x % WARP, known = gdn_known(q, hi);
    int from = (int)q.slot0 + q.base[0] - known;
    float *gone = m.gone + (hi * j.heads + v) * GDN_RING, sum = 0, mine = 0;
#pragma unroll 1
    for (int half = 0; half < GDN_RING; half += 32) {
        int slot = (from + half + lane) % GDN_RING;
        float g = half + lane < known ? log_g[(int64_t)slot * j.a.shape.n_v] : 0;
#pragma unroll
        for (int t = 0; t < 32; t++) {
            sum += warp_from(g, t);
            mine = t == lane ? sum : mine;
        }
        gone[half + lane] = mine;
    }
}

// One warp: sums of the places of the tile from one base, for one value head. They go on from the
// committed sums in position order, so a position's sum does not tell what has been committed.
static __device__ inline void gdn_sum_rows(const struct gdn_job &j, struct gdn_shared &m,
                                           const struct gdn_sequence &q, int first, int v, int hi) {
    int lane = (int)threadIdx.x % WARP, n = gdn_known(q, hi), depth = gdn_depth(m, q, first + lane);
    if (depth < 0)
        return;
    const float *g = m.g + v * j.max;
    float sum = n ? m.gone[(hi * j.heads + v) * GDN_RING + n - 1] : 0;
#pragma unroll 8
    for (int d = 0; d < depth; d++)
        sum += g[m.above[d * TILE + lane]];
    m.sum[(hi * j.heads + v) * j.max + first + lane] = sum + g[first + lane];
}

// One block's position: which columns of which heads, or its share of the products.
struct place {
    int seq, head;     // of the states in this launch; the first value head
    int k_head, rank;  // rank among the blocks that share products
    int group, column; // the products' place; the block's first column
};

static __device__ inline struct place place_of(const struct gdn_job &j) {
    struct place p;
    int n_k = j.a.shape.n_k, y = (int)blockIdx.y;
    p.seq = (int)blockIdx.z;
    p.k_head = y % n_k;
    p.head = y / n_k * j.heads * n_k + p.k_head;
    p.rank = (int)blockIdx.x;
    p.group = p.seq * n_k + p.k_head;
    p.column = (int)blockIdx.x * COLUMNS;
    return p;
}

#endif

// The kernels of the delta rule, between gdn.cu that chooses and the files that have them.

// What launches of the rule say; those that read states early, and that leave things in scratch.
static const struct launch_says GDN_EARLY = {MEMORY_STATES, MEMORY_DELTAS, false, NULL, true};
static const struct launch_says GDN_APART = {MEMORY_STATES, MEMORY_DELTAS | MEMORY_SUMS, false,
                                             NULL, false};
static const struct launch_says GDN_LATE = {0, MEMORY_DELTAS | MEMORY_SUMS, false, NULL, false};

// Queue the rule for that many runs; j->count and j->max are set. t: the tables, if t->few.n
// (gdn_matrix only). False after a fault.
bool gdn_matrix(struct gpu *g, struct gdn_job *j, const struct gdn_tables *t, int runs);
bool gdn_plain(struct gpu *g, struct gdn_job *j, int runs);

// The same bits as gdn_matrix for n <= GDN_STATES runs of at most GDN_SMALL rows each: states are
// read once a run, at the rate of the device's memory. Whether it serves the shape, and the launch.
enum { GDN_SMALL = 24 };
bool gdn_takes_small(const struct gpu *g, const struct gdn_shape *s);
bool gdn_small(struct gpu *g, const struct gdn_args *a, const struct gdn_run *runs, int n,
               const struct rows *r);

// The same for runs of one row each, which read base lo.
bool gdn_single(struct gpu *g, const struct gdn_args *a, const struct gdn_run *runs, int n);

// Bytes of scratch of these. j: shape, count and max.
size_t gdn_matrix_bytes(const struct gpu *g, struct gdn_job j, int runs);
size_t gdn_plain_bytes(const struct gdn_shape *s, int max, int runs);
size_t gdn_single_bytes(const struct gdn_shape *s, int n);
size_t gdn_small_bytes(const struct gdn_shape *s, int rows, int n); // rows: of the longest run

#endif
