// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet, the delta rule in one launch, for devices with much shared memory. A block makes
// 16 columns of the value heads that share a key head, as in plain.cu, but what the rows have
// to be multiplied with goes through matrix instructions: committed keys, the rows' own keys, and
// the base (split.cuh). Each product is one chain of instructions over k whatever the tile, so
// no row's bits depend on where it stands.
//
// All that earlier passes have left (base, log, tables) is read and split before gpu_await, past
// the first-level cache, while the launch in front still runs; only the rows' own values are left
// for afterwards. That is sound because every kernel calls gpu_let_next after its gpu_await: when
// this one begins, all launches but the one in front have ended, and their writes are visible. If
// that one is a commit, this one waits first.
#include "ops/gpu/gdn/gdn.cuh"
#include "ops/gpu/gdn/split.cuh"
#include "ops/gpu/matrix/barrier.cuh"

enum {
    THREADS = HEADS_MOST * 128, // at most
    P_STRIDE = TILE + 4,        // of products
};

// A block's shared memory; rows of split values are PIECES long.
struct split_shared {
    struct gdn_shared m; // kq, s, delta and keys are not used; ring: [v][position from base lo][c]
    uint4 *rows;         // [high, low, keys][TILE]: left operands, and keys as right ones;
                         // coefficients come to the same place
    uint4 *keys;         // [GDN_RING] committed, from base lo on
    uint4 *state;        // [lo, hi][value head][COLUMNS]
    float4 *sums;        // [k, q][w][TILE] what the base gives, then with committed positions
    float2 *products;    // [keys_of()][P_STRIDE], unless they are far
    float *unscale;      // [lo, hi][w] powers of two of four columns
    float *log_g;        // [value head][GDN_RING] committed, from base lo on
};

// Products that a row can have: with committed positions, and with places in sixteens.
static __host__ __device__ inline int keys_of(const struct gdn_job &j) {
    return GDN_RING + (j.max + 15) / 16 * 16;
}

// Pieces of the sums, where sixteen keys have room too.
static __host__ __device__ inline int sums_of(const struct gdn_job &j) {
    int sums = 2 * j.heads * WARPS * TILE;
    return sums > 16 * PIECES ? sums : 16 * PIECES;
}

static size_t room_bytes(const struct gdn_job &j, bool far) {
    size_t v = (size_t)j.heads, max = (size_t)j.max;
    size_t rows = 3 * TILE * PIECES * sizeof(uint4), coef = v * GDN_RING * TILE * sizeof(float2);
    size_t n = rows > coef ? rows : coef;
    n += (GDN_RING + 2 * v * COLUMNS) * PIECES * sizeof(uint4);
    n += (v * WARPS * GDN_RING + (size_t)sums_of(j)) * sizeof(float4);
    n += far ? 0 : (size_t)keys_of(j) * P_STRIDE * sizeof(float2);
    n += (2 * v * WARPS + 3 * v * GDN_RING + 3 * v * max) * sizeof(float);
    return n + (3 * max + 3 * (size_t)j.count + GDN_BLOCK * TILE) * sizeof(int32_t);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

static __device__ __forceinline__ int threads_of(const struct gdn_job &j) {
    return j.heads * WARPS * WARP;
}

static __device__ __forceinline__ struct split_shared shared_at(const struct gdn_job &j, uint4 *p) {
    struct split_shared r;
    struct gdn_shared *m = &r.m;
    int v = j.heads, rows = 3 * TILE * PIECES, coef = v * GDN_RING * TILE / 2;
    bool far = j.products != NULL;
    *m = (struct gdn_shared){};
    r.rows = p;
    m->coef = (float2 *)p;
    r.keys = p + (rows > coef ? rows : coef);
    r.state = r.keys + GDN_RING * PIECES;
    m->ring = (float4 *)(r.state + 2 * v * COLUMNS * PIECES);
    r.sums = m->ring + v * WARPS * GDN_RING;
    r.products = (float2 *)(r.sums + sums_of(j));
    r.unscale = (float *)(r.products + (far ? 0 : keys_of(j) * P_STRIDE));
    r.log_g = r.unscale + 2 * v * WARPS;
    m->gone = r.log_g + v * GDN_RING;
    m->g = m->gone + 2 * v * GDN_RING;
    m->sum = m->g + v * j.max;
    m->list = (int32_t *)(m->sum + 2 * v * j.max);
    m->up = m->list + j.max;
    m->depth = m->up + j.max;
    m->where = m->depth + j.max;
    m->over = m->where + j.count;
    m->late = m->over + j.count;
    m->above = m->late + j.count;
    if (far) {
        int64_t block = ((int64_t)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
        r.products = j.products + block * keys_of(j) * P_STRIDE;
    }
    return r;
}

static __device__ __forceinline__ float4 far4(const float *p, bool there) {
    return there ? __ldcg((const float4 *)p) : make_float4(0, 0, 0, 0);
}

// A thread's share of a base: four columns (its warp's) in four neighbouring values of k.
struct corner {
    float4 row[4];
};

static __device__ __forceinline__ void ask_state(const struct gdn_job &j, const struct place &p,
                                                 const float *from, struct corner *c) {
    const struct gdn_shape &s = j.a.shape;
    int w = (int)threadIdx.x / WARP, k = (int)threadIdx.x % WARP * 4;
    int column = p.column + w % WARPS * 4;
    from += ((p.head + w / WARPS * s.n_k) * s.dk + k) * s.dv + column;
#pragma unroll
    for (int i = 0; i < 4; i++)
        c->row[i] = far4(from + i * s.dv, k < s.dk && column < s.dv);
}

static __device__ __forceinline__ void put_state(const struct gdn_job &j, struct split_shared &r,
                                                 int hi, const struct corner &c) {
    int w = (int)threadIdx.x / WARP, row = (hi * j.heads + w / WARPS) * COLUMNS + w % WARPS * 4;
    float down = split_columns(r.state, row, c.row);
    if (threadIdx.x % WARP == 0)
        r.unscale[hi * j.heads * WARPS + w] = down;
}

// Committed keys, split.
static __device__ __forceinline__ void load_keys(const struct gdn_job &j, struct split_shared &r,
                                                 const struct place &p,
                                                 const struct gdn_sequence &q, const float *log_k) {
    enum { BATCH = 6 };
    const struct gdn_shape &s = j.a.shape;
    int lane = (int)threadIdx.x % WARP, step = threads_of(j) / WARP;
#pragma unroll 1
    for (int t = (int)threadIdx.x / WARP; t < q.base[0]; t += BATCH * step) {
        float4 v[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            int key = t + i * step;
            if (key >= q.base[0])
                break;
            int slot = ((int)q.slot0 + key) & (GDN_RING - 1);
            v[i] = far4(log_k + (slot * s.n_k + p.k_head) * s.dk + lane * 4, lane * 4 < s.dk);
        }
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            if (t + i * step >= q.base[0])
                break;
            *piece(r.keys, t + i * step, lane) = split_values(v[i], power_of_two(UP));
        }
    }
}

// Deltas of committed positions.
static __device__ __forceinline__ void load_log(const struct gdn_job &j, struct split_shared &r,
                                                const struct place &p, const struct gdn_sequence &q,
                                                const float *log_d) {
    const struct gdn_shape &s = j.a.shape;
    int c = (int)threadIdx.x % WARPS, left = s.dv - p.column - 4 * c;
#pragma unroll 1
    for (int i = (int)threadIdx.x / WARPS; i < j.heads * GDN_RING; i += threads_of(j) / WARPS) {
        int t = i % GDN_RING, v = i / GDN_RING, slot = ((int)q.slot0 + t) & (GDN_RING - 1);
        if (t < q.base[0])
            copy_floats<true>(&r.m.ring[i * WARPS + c],
                              log_d + (slot * s.n_v + p.head + v * s.n_k) * s.dv + p.column + 4 * c,
                              left);
    }
}

// Committed log decay of a thread: position threadIdx.x % GDN_RING of a value head.
static __device__ __forceinline__ float ask_decay(const struct gdn_job &j, const struct place &p,
                                                  const struct gdn_sequence &q,
                                                  const float *log_g) {
    int t = (int)threadIdx.x % GDN_RING, v = (int)threadIdx.x / GDN_RING;
    int slot = ((int)q.slot0 + t) & (GDN_RING - 1);
    bool there = v < j.heads && t < q.base[0];
    return there ? __ldcg(&log_g[slot * j.a.shape.n_v + p.head + v * j.a.shape.n_k]) : 0;
}

// Running sums of the committed log decays from the bases that are read, in position order; a lane
// is a position. Warps from the second on.
static __device__ __forceinline__ void sum_log(const struct gdn_job &j, struct split_shared &r,
                                               const struct gdn_sequence &q) {
    int lane = (int)threadIdx.x % WARP, step = threads_of(j) / WARP - 1;
#pragma unroll 1
    for (int i = (int)threadIdx.x / WARP - 1; i < (j.newer ? 4 : 2) * j.heads; i += step) {
        int half = i % 2, v = i / 2 % j.heads, hi = i / (2 * j.heads), t = half * 32 + lane;
        const float4 *g = (const float4 *)(r.log_g + v * GDN_RING + q.base[0] - q.base[hi]);
        float sum = 0;
        for (int s = 0; s < gdn_known(q, hi) && s <= half * 32; s += 32)
#pragma unroll
            for (int e = 0; e < 32; e += 4) {
                float4 x = g[(s + e) / 4];
                sum += s + e <= t ? x.x : 0;
                sum += s + e + 1 <= t ? x.y : 0;
                sum += s + e + 2 <= t ? x.z : 0;
                sum += s + e + 3 <= t ? x.w : 0;
            }
        r.m.gone[(hi * j.heads + v) * GDN_RING + t] = sum;
    }
}

// Keys and queries of the tile, split; log decays of its rows.
static __device__ __forceinline__ void load_rows(const struct gdn_job &j, struct split_shared &r,
                                                 const struct place &p,
                                                 const struct gdn_sequence &q, int first) {
    enum { BATCH = 3 };
    const struct gdn_shape &s = j.a.shape;
    int lane = (int)threadIdx.x % WARP, step = threads_of(j) / WARP;
    int rows = q.n - first < TILE ? q.n - first : TILE;
    bool decays = (int)threadIdx.x / TILE < j.heads && gdn_depth(r.m, q, first + lane) >= 0;
    float g = 0;
    if (decays)
        g = __ldcg(&j.a.rows.g[(q.row0 + r.m.list[first + lane]) * s.n_v + p.head +
                               (int)threadIdx.x / TILE * s.n_k]);
#pragma unroll 1
    for (int t = (int)threadIdx.x / WARP; t < rows; t += BATCH * step) {
        float4 k[BATCH], y[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            int64_t row = t + i * step < rows ? r.m.list[first + t + i * step] : -1;
            int64_t from = ((q.row0 + row) * s.n_k + p.k_head) * s.dk + lane * 4;
            k[i] = far4(j.a.rows.k + from, row >= 0 && lane * 4 < s.dk);
            y[i] = far4(j.a.rows.q + from, row >= 0 && lane * 4 < s.dk);
        }
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            if (t + i * step >= rows)
                break;
            uint4 *high = r.rows, *low = high + TILE * PIECES, *keys = low + TILE * PIECES;
            *piece(keys, t + i * step, lane) = put_left(high, low, t + i * step, lane, k[i], y[i]);
        }
    }
    if (decays)
        r.m.g[(int)threadIdx.x / TILE * j.max + first + (int)threadIdx.x % TILE] = g;
}

// What the warps multiply the tile with, all in sixteens: keys that lie in `keys` first, then the
// tile's own, then the columns of the bases.
struct factors {
    uint4 *keys;
    int n, number; // how many sixteens, and the number of the first key
    bool all;      // the tile's own keys and the bases too
};

// n divided by 1 to 4, for n up to 12.
static __device__ __forceinline__ int quotient(int n, int by) {
    return by == 1 ? n : by == 2 ? n / 2 : by == 3 ? n * 11 / 32 : n / 4;
}

// Products with sixteen keys from the number `key` on to their places.
static __device__ __forceinline__ void put_products(struct split_shared &r, int key, int at,
                                                    const float c[2][4]) {
    const float down = 1.0f / (1 << 2 * UP);
    float2 *to = r.products + (key + (int)threadIdx.x % 4 * 2) * P_STRIDE + at;
#pragma unroll
    for (int n = 0; n < 2; n++, to += 8 * P_STRIDE) {
        to[0] = make_float2(c[n][0] * down, c[n][2] * down);
        to[P_STRIDE] = make_float2(c[n][1] * down, c[n][3] * down);
    }
}

// What the columns of value head v of a base give to the place `at` of the tile.
static __device__ __forceinline__ void put_sums(const struct gdn_job &j, struct split_shared &r,
                                                int hi, int v, int at, const float c[2][4]) {
#pragma unroll
    for (int n = 0; n < 2; n++) {
        int w = v * WARPS + 2 * n + (int)threadIdx.x % 4 / 2;
        float by = r.unscale[hi * j.heads * WARPS + w];
        float2 *to = (float2 *)(r.sums + w * TILE + at) + (int)threadIdx.x % 2;
        to[0] = make_float2(c[n][0] * by, c[n][1] * by);
        to[2 * j.heads * WARPS * TILE] = make_float2(c[n][2] * by, c[n][3] * by);
    }
}

// Multiplies the tile; a warp has eight of its places and takes every so many of the factors.
static __device__ __forceinline__ void multiply_tile(const struct gdn_job &j,
                                                     struct split_shared &r,
                                                     const struct gdn_sequence &q, int first,
                                                     struct factors f) {
    int rows = q.n - first < TILE ? q.n - first : TILE, eights = (rows + 7) / 8;
    int w = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP, warps = j.heads * WARPS;
    int turn = quotient(w, eights), mine = w - turn * eights, step = quotient(warps, eights);
    int at = mine * 8 + lane / 4;
    if (turn >= step)
        return;
    struct left a;
    load_left(&a, r.rows, r.rows + TILE * PIECES, at);
    int keys = f.n + (f.all ? mine / 2 + 1 : 0);
    int lo = keys + (f.all && first + mine * 8 < q.hi ? j.heads : 0);
    int hi = lo + (f.all && q.hi < q.n && first + mine * 8 + 7 >= q.hi ? j.heads : 0);
#pragma unroll 1
    for (int i = turn; i < hi; i += step) {
        float c[2][4];
        bool newer = i >= lo, state = i >= keys, committed = i < f.n;
        int n = committed ? i : i - (newer ? lo : state ? keys : f.n);
        multiply_rows(a,
                      state       ? r.state
                      : committed ? f.keys
                                  : r.rows + 2 * TILE * PIECES,
                      (newer ? n + j.heads : n) * 16, c);
        if (!state)
            put_products(r, (committed ? f.number : GDN_RING + first) + n * 16, at, c);
        else if ((first + at >= q.hi) == newer)
            put_sums(j, r, newer, n, at, c);
    }
}

// Keys of earlier tiles, places [from, from + n), to where the sums will be.
static __device__ __forceinline__ void load_earlier(const struct gdn_job &j, struct split_shared &r,
                                                    const struct place &p,
                                                    const struct gdn_sequence &q, int from, int n) {
    const struct gdn_shape &s = j.a.shape;
    int lane = (int)threadIdx.x % WARP;
#pragma unroll 1
    for (int t = (int)threadIdx.x / WARP; t < n; t += threads_of(j) / WARP) {
        int64_t row = r.m.list[from + t];
        float4 v = far4(j.a.rows.k + ((q.row0 + row) * s.n_k + p.k_head) * s.dk + lane * 4,
                        row >= 0 && lane * 4 < s.dk);
        *piece((uint4 *)r.sums, t, lane) = split_values(v, power_of_two(UP));
    }
}

// All products of the tile: with the keys of earlier tiles, sixteen at a time, then the rest.
static __device__ __forceinline__ void multiply_all(const struct gdn_job &j, struct split_shared &r,
                                                    const struct place &p,
                                                    const struct gdn_sequence &q, int first) {
    enum { KEYS = 16 };
    for (int from = 0; from <= first; from += KEYS) {
        struct factors f = {r.keys, (q.base[0] + 15) / 16, 0, true};
        if (from < first) {
            __syncthreads();
            load_earlier(j, r, p, q, from, KEYS);
            __syncthreads();
            f = {(uint4 *)r.sums, 1, GDN_RING + from, false};
        } else if (from > 0) {
            __syncthreads();
        }
        multiply_tile(j, r, q, first, f);
    }
}

// Coefficients of one position for all value heads: its products x, times what has faded since.
// then: sums of the log decays up to there, `apart` from head to head.
static __device__ __forceinline__ void put_coefficients(const struct gdn_job &j, float2 x,
                                                        const float *own, const float *then,
                                                        int apart, float2 *to) {
    float f[HEADS_MOST];
#pragma unroll
    for (int v = 0; v < HEADS_MOST; v++)
        f[v] = v < j.heads ? then[v * apart] : 0;
#pragma unroll
    for (int v = 0; v < HEADS_MOST; v++) {
        float by = decay_of(own[v] - f[v]);
        if (v < j.heads)
            to[v * GDN_RING * TILE] = make_float2(x.x * by, x.y * by);
    }
}

// Coefficients of the tile's sums, by position from the row's base; threads take (position, row),
// in tiles of at most eight rows four positions a warp. First committed positions, then ancestors
// in flight and the row itself.
static __device__ __forceinline__ void split_coefficients(const struct gdn_job &j,
                                                          struct split_shared &r,
                                                          const struct gdn_sequence &q, int first,
                                                          bool few) {
    int width = few ? 8 : TILE, row = (int)threadIdx.x % width, at = first + row;
    int turn = (int)threadIdx.x / width, step = threads_of(j) / width;
    int depth = gdn_depth(r.m, q, at), hi = at >= q.hi, known = depth < 0 ? 0 : gdn_known(q, hi);
    const float *sum = r.m.sum + hi * j.heads * j.max;
    const float *gone = r.m.gone + hi * j.heads * GDN_RING;
    float2 *coef = r.m.coef + row;
    const float2 *x = r.products + (q.base[0] - known) * P_STRIDE + row;
    float own[HEADS_MOST];
#pragma unroll
    for (int v = 0; v < HEADS_MOST; v++)
        own[v] = depth >= 0 && v < j.heads ? sum[v * j.max + at] : 0;
#pragma unroll 2
    for (int t = turn; t < known; t += step)
        put_coefficients(j, x[t * P_STRIDE], own, gone + t, GDN_RING, coef + t * TILE);
    x = r.products + GDN_RING * P_STRIDE + row;
#pragma unroll 1
    for (int i = turn; i <= depth; i += step) {
        int other = i < depth ? r.m.above[i * TILE + row] : at;
        put_coefficients(j, x[other * P_STRIDE], own, sum + other, j.max,
                         coef + (known + i) * TILE);
    }
}

// Which eight rows a warp has: those of the value heads lie in different quarters of the processor
// (a warp's number modulo four), so that few rows do not meet in one.
static __device__ __forceinline__ int eight_of(void) {
    int w = (int)threadIdx.x / WARP;
    return (w + w / WARPS) % WARPS;
}

// A thread's row and four columns in the second half. Two layouts: eight rows of the tile and all
// columns of a head in a warp (which: eight_of), or all rows and four columns (w: which four).
struct line {
    int at, depth; // in the tile; < 0: no row
    int known, v, c;
    int64_t head, cell; // in [n][n_v], and of its columns in [n][n_v][dv]
    float4 x;           // value
    float beta;
    bool there;
};

static __device__ __forceinline__ struct line
line_of(const struct gdn_job &j, const struct split_shared &r, const struct place &p,
        const struct gdn_sequence &q, int first, bool eight) {
    const struct gdn_shape &s = j.a.shape;
    int w = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    struct line l;
    l.at = eight ? eight_of() * 8 + lane / 4 : lane;
    l.c = eight ? lane % 4 : w % WARPS;
    l.v = w / WARPS;
    l.depth = gdn_depth(r.m, q, first + l.at);
    l.known = gdn_known(q, first + l.at >= q.hi);
    int column = p.column + 4 * l.c;
    int64_t row = q.row0 + (l.depth < 0 ? 0 : r.m.list[first + l.at]);
    l.head = row * s.n_v + p.head + l.v * s.n_k;
    l.cell = l.head * s.dv + column;
    l.there = l.depth >= 0 && column < s.dv;
    return l;
}

static __device__ __forceinline__ void load_line(const struct gdn_job &j, struct line *l) {
    l->x = far4(j.a.rows.v + l->cell, l->there);
    l->beta = __ldcg(&j.a.rows.beta[l->head]);
}

// What the base gives, with its decay.
static __device__ __forceinline__ void begin_line(const struct gdn_job &j,
                                                  const struct split_shared &r,
                                                  const struct gdn_sequence &q, int first,
                                                  const struct line &l, float4 *a, float4 *b) {
    int w = l.v * WARPS + l.c, hi = first + l.at >= q.hi;
    float gain = l.depth < 0 ? 0 : decay_of(r.m.sum[(hi * j.heads + l.v) * j.max + first + l.at]);
    *a = gdn_scale4(r.sums[w * TILE + l.at], gain);
    *b = gdn_scale4(r.sums[(j.heads * WARPS + w) * TILE + l.at], gain);
}

// Committed positions, then ancestors in earlier tiles, whose deltas this block has written.
static __device__ __forceinline__ void add_known(const struct gdn_job &j,
                                                 const struct split_shared &r,
                                                 const struct gdn_sequence &q, int first,
                                                 const struct line &l, float4 *a, float4 *b) {
    enum { BATCH = 8 };
    const float2 *coef = r.m.coef + l.v * GDN_RING * TILE + l.at;
    int t = 0, known = l.depth < 0 ? 0 : l.known;
    const float4 *ring = r.m.ring + (l.v * GDN_RING + q.base[0] - l.known) * WARPS + l.c;
#pragma unroll 1
    for (; t + BATCH <= known; t += BATCH) {
        float4 d[BATCH]; // all on their way before the first is used
        float2 c[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            d[i] = ring[(t + i) * WARPS];
            c[i] = coef[(t + i) * TILE];
        }
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            gdn_fma4(a, c[i].x, d[i]);
            gdn_fma4(b, c[i].y, d[i]);
        }
    }
#pragma unroll 1
    for (; t < known; t++) {
        float4 d = ring[t * WARPS];
        float2 c = coef[t * TILE];
        gdn_fma4(a, c.x, d);
        gdn_fma4(b, c.y, d);
    }
    for (int i = 0; first > 0 && i < l.depth; i++) {
        int at = r.m.above[i * TILE + l.at];
        if (at >= first)
            break;
        int64_t apart = (int64_t)(r.m.list[at] - r.m.list[first + l.at]) * j.a.shape.n_v;
        float4 d = gdn_get4<true>(j.a.rows.d + l.cell + apart * j.a.shape.dv, l.there ? 4 : 0);
        float2 c = coef[(known + i) * TILE];
        gdn_fma4(a, c.x, d);
        gdn_fma4(b, c.y, d);
    }
}

static __device__ __forceinline__ float4 shuffle4(float4 v, int lane) {
    return make_float4(warp_from(v.x, lane), warp_from(v.y, lane), warp_from(v.z, lane),
                       warp_from(v.w, lane));
}

// Rows depth by depth: those at a depth are finished, and all deeper ones take what their ancestor
// there adds. All rows of the tile that there are lie in the warp; neighbours are `apart` lanes
// from each other.
static __device__ __forceinline__ void split_descend(const struct gdn_job &j,
                                                     const struct split_shared &r, int first,
                                                     const struct line &l, int apart, float4 a,
                                                     float4 b) {
    enum { BATCH = 4 };
    int deepest = warp_largest(l.depth), lane = (int)threadIdx.x % WARP;
    const float2 *coef = r.m.coef + (l.v * GDN_RING + l.known) * TILE + l.at;
    float4 mine = make_float4(0, 0, 0, 0);
#pragma unroll 1
    for (int i = 0; i <= deepest; i += BATCH) {
        int from[BATCH];
        float2 c[BATCH];
#pragma unroll
        for (int e = 0; e < BATCH; e++) { // -1: nothing to add
            int above = i + e < l.depth ? r.m.above[(i + e) * TILE + l.at] - first : -1;
            from[e] = i + e == l.depth ? lane : above >= 0 ? above * apart + lane % apart : -1;
            c[e] = i + e <= l.depth ? coef[(i + e) * TILE] : make_float2(0, 0);
        }
#pragma unroll
        for (int e = 0; e < BATCH; e++) {
            float4 now = make_float4(l.beta * (l.x.x - a.x), l.beta * (l.x.y - a.y),
                                     l.beta * (l.x.z - a.z), l.beta * (l.x.w - a.w));
            if (i + e == l.depth)
                mine = now;
            float4 d = shuffle4(mine, from[e] < 0 ? lane : from[e]);
            if (from[e] >= 0) {
                gdn_fma4(&a, c[e].x, d);
                gdn_fma4(&b, c[e].y, d);
            }
        }
    }
    gdn_put4<true>(j.a.rows.d + l.cell, mine, l.there ? 4 : 0);
    gdn_put4<true>(j.a.out + l.cell, b, l.there ? 4 : 0);
}

// At most eight rows: the committed positions for one row and one column a thread, from the base's
// sums on; what comes of it takes their place.
static __device__ __forceinline__ void add_known_few(const struct gdn_job &j,
                                                     const struct split_shared &r,
                                                     const struct gdn_sequence &q, int first) {
    enum { BATCH = 8 };
    int thread = (int)threadIdx.x % 128, v = (int)threadIdx.x / 128;
    int row = thread / COLUMNS, c = thread % COLUMNS, hi = first + row >= q.hi;
    if (gdn_depth(r.m, q, first + row) < 0)
        return;
    int w = v * WARPS + c / 4, t = 0, known = gdn_known(q, hi);
    float gain = decay_of(r.m.sum[(hi * j.heads + v) * j.max + first + row]);
    float *a = (float *)&r.sums[w * TILE + row] + c % 4;
    float *b = (float *)&r.sums[(j.heads * WARPS + w) * TILE + row] + c % 4;
    float x = *a * gain, y = *b * gain;
    const float2 *coef = r.m.coef + v * GDN_RING * TILE + row;
    const float *ring = (float *)(r.m.ring + (v * GDN_RING + q.base[0] - known) * WARPS) + c;
#pragma unroll 1
    for (; t + BATCH <= known; t += BATCH) {
        float d[BATCH]; // all on their way before the first is used
        float2 f[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            d[i] = ring[(t + i) * COLUMNS];
            f[i] = coef[(t + i) * TILE];
        }
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            x = fmaf(f[i].x, d[i], x);
            y = fmaf(f[i].y, d[i], y);
        }
    }
#pragma unroll 1
    for (; t < known; t++) {
        x = fmaf(coef[t * TILE].x, ring[t * COLUMNS], x);
        y = fmaf(coef[t * TILE].y, ring[t * COLUMNS], y);
    }
    *a = x;
    *b = y;
}

// Waits for the warps of a value head.
static __device__ __forceinline__ void await_head(int v) {
    warps_meet<128>(v + 1);
}

// The second half of a tile: from the base's sums and the coefficients on.
static __device__ __forceinline__ void
split_finish_tile(const struct gdn_job &j, struct split_shared &r, const struct place &p,
                  const struct gdn_sequence &q, int first, bool few, struct line l) {
    int w = l.v * WARPS + l.c, all = j.heads * WARPS;
    if (few && first == 0) {
        add_known_few(j, r, q, first);
        await_head(l.v);
        if (eight_of() == 0)
            split_descend(j, r, first, l, WARPS, r.sums[w * TILE + l.at],
                          r.sums[(all + w) * TILE + l.at]);
        return;
    }
    float4 a, b;
    struct line k = few ? l : line_of(j, r, p, q, first, true);
    begin_line(j, r, q, first, k, &a, &b);
    add_known(j, r, q, first, k, &a, &b);
    if (few) {
        if (eight_of() == 0)
            split_descend(j, r, first, l, WARPS, a, b);
        return;
    }
    int to = k.v * WARPS + k.c;
    r.sums[to * TILE + k.at] = a;
    r.sums[(all + to) * TILE + k.at] = b;
    await_head(l.v);
    split_descend(j, r, first, l, 1, r.sums[w * TILE + l.at], r.sums[(all + w) * TILE + l.at]);
}

static __device__ __forceinline__ void run_tile(const struct gdn_job &j, struct split_shared &r,
                                                const struct place &p, const struct gdn_sequence &q,
                                                int first) {
    int lane = (int)threadIdx.x % WARP, w = (int)threadIdx.x / WARP;
    int bases = q.hi < q.n ? 2 : 1;
    bool few = q.n - first <= 8;
    if (first > 0 && w == 0)
        gdn_climb(r.m, first, gdn_depth(r.m, q, first + lane));
    load_rows(j, r, p, q, first);
    struct line l = line_of(j, r, p, q, first, few);
    load_line(j, &l);
    __syncthreads();
    for (int i = w; i < j.heads * bases; i += threads_of(j) / WARP)
        gdn_sum_rows(j, r.m, q, first, i < j.heads ? i : i - j.heads, i >= j.heads);
    multiply_all(j, r, p, q, first);
    __syncthreads();
    split_coefficients(j, r, q, first, few);
    __syncthreads();
    split_finish_tile(j, r, p, q, first, few, l);
    __syncthreads();
}

// Lists the rows of the block's sequence, where the tables have not done that; all threads.
static __device__ __forceinline__ void list_rows(const struct gdn_tables &t, struct gdn_shared &m,
                                                 int rows, int *found) {
    if (t.few.n) {
        int i = (int)threadIdx.x;
        if (i < t.n) {
            m.list[i] = t.list[i];
            m.up[i] = t.up[i];
            m.depth[i] = t.depth[i];
        }
        return;
    }
    __syncthreads();
    if (threadIdx.x < WARP)
        gdn_list(m, rows, found);
}

// All that does not depend on the rows' values; leaves the first tile's ancestors in place. Loads
// that do not need each other are under way at once.
static __device__ __forceinline__ void open_tiles(const struct gdn_job &j,
                                                  const struct gdn_tables &t,
                                                  struct split_shared &r, const struct place &p,
                                                  struct gdn_sequence *q, int *found) {
    const struct gdn_place run =
        t.few.n ? gdn_place{t.first, t.few.n, t.len, 0} : gdn_place_of(j, p.seq);
    const struct gdn_state state = t.few.n ? t.few.state : gdn_state_at(j, p.seq, run.exchanged);
    struct corner c, d;
    ask_state(j, p, state.s_lo, &c);
    if (j.newer)
        ask_state(j, p, state.s_hi, &d);
    *q = gdn_sequence_of(run);
    float decay = ask_decay(j, p, *q, state.log_g);
    load_log(j, r, p, *q, state.log_d);
    if (!t.few.n)
        gdn_look(j, r.m, *q);
    load_keys(j, r, p, *q, state.log_k);
    put_state(j, r, 0, c);
    if (j.newer)
        put_state(j, r, 1, d);
    if ((int)threadIdx.x < j.heads * GDN_RING)
        r.log_g[threadIdx.x] = decay;
    list_rows(t, r.m, q->rows, found);
    __syncthreads();
    q->n = t.few.n ? t.n : found[0];
    q->hi = t.few.n ? t.hi : found[1];
    if (threadIdx.x < WARP)
        gdn_climb(r.m, 0, gdn_depth(r.m, *q, (int)threadIdx.x));
    else
        sum_log(j, r, *q);
    copies_wait_all();
    __syncthreads();
}

// USUAL: three value heads of 128 x 128 a block, so that the compiler knows all strides.
template <bool USUAL>
static __global__ void __launch_bounds__(THREADS, 1)
    matrix_deltas(struct gdn_job j, const __grid_constant__ struct gdn_tables t) {
    extern __shared__ uint4 memory[];
    __shared__ int found[2];
    if (USUAL) {
        j.a.shape.dk = j.a.shape.dv = CHUNK;
        j.heads = HEADS_MOST;
    }
    struct place p = place_of(j);
    struct split_shared r = shared_at(j, memory);
    struct gdn_sequence q;
    open_tiles(j, t, r, p, &q, found);
    gpu_await();
    gpu_let_next();
    for (int first = 0; first < q.n; first += TILE)
        run_tile(j, r, p, q, first);
}

#else

// Older devices take gdn_plain.
template <bool USUAL>
static __global__ void matrix_deltas(struct gdn_job j,
                                     const __grid_constant__ struct gdn_tables t) {
    (void)j;
    (void)t;
    gpu_await();
}

#endif

bool gdn_takes_matrix(const struct gpu *g, const struct gdn_shape *s) {
    enum { SHARED = 160 << 10 };
    return g->sm >= 80 && g->path != CUDA_PATH_SMALL && g->shared >= SHARED && s->dk <= CHUNK &&
           s->dk % 4 == 0 && s->dv % 4 == 0;
}

// Chooses the heads of a block; whether its products find no room in shared memory.
static bool arrange(const struct gpu *g, struct gdn_job *j) {
    int ratio = j->a.shape.n_v / j->a.shape.n_k;
    size_t max = (size_t)g->shared - 128; // a little is in use already
    j->heads = ratio < HEADS_MOST ? ratio : HEADS_MOST;
    while (j->heads > 1 && (ratio % j->heads || room_bytes(*j, true) > max))
        j->heads--;
    return room_bytes(*j, false) > max;
}

static dim3 grid_of(const struct gdn_job *j, int runs) {
    const struct gdn_shape *s = &j->a.shape;
    return dim3((unsigned)((s->dv + COLUMNS - 1) / COLUMNS), (unsigned)(s->n_v / j->heads),
                (unsigned)runs);
}

static size_t far_bytes(const struct gdn_job *j, dim3 grid) {
    size_t blocks = (size_t)grid.x * grid.y * grid.z;
    return blocks * (size_t)keys_of(*j) * P_STRIDE * sizeof(float2);
}

size_t gdn_matrix_bytes(const struct gpu *g, struct gdn_job j, int runs) {
    return arrange(g, &j) ? far_bytes(&j, grid_of(&j, runs)) : 0;
}

bool gdn_matrix(struct gpu *g, struct gdn_job *j, const struct gdn_tables *t, int runs) {
    const struct gdn_shape *s = &j->a.shape;
    bool far = arrange(g, j);
    dim3 grid = grid_of(j, runs);
    j->products = NULL;
    if (far) {
        j->products = (float2 *)gpu_scratch(g, far_bytes(j, grid));
        if (!j->products)
            return false;
    }
    size_t bytes = room_bytes(*j, far);
    bool usual = s->dk == CHUNK && s->dv == CHUNK && j->heads == HEADS_MOST;
    void (*kernel)(struct gdn_job, const struct gdn_tables) =
        usual ? matrix_deltas<true> : matrix_deltas<false>;
    if (!gpu_allow_max_shared(g, (const void *)kernel, "gdn"))
        return false;
    gpu_launch_saying({g, "gdn", far ? GDN_APART : GDN_EARLY}, kernel, grid,
                      dim3((unsigned)(j->heads * WARPS * WARP)), bytes, *j, *t);
    return g->fault == GPU_OK;
}
