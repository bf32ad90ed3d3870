// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet, the delta rule by the recurrent log (formulas: arXiv 2412.06464 section 3,
// unrolled from a base; ops/cpu/gdn/ops.c is the specification). Two launches, of which the second
// needs what the first makes only half-way.
//
// products: the products of the rows' keys and queries with the keys of their ancestors, a key head
// in a few blocks.
//
// deltas: a block makes 16 columns of the value heads that share a key head; the columns of a head
// are independent given the coefficients of both sums. It multiplies the base with the rows, the
// key dimension in four parts whatever the number of rows, and then takes the products. From there
// on a lane is a row and a warp has four columns of it, so nothing waits for another warp: a row
// takes what the base gives, the committed positions, and its ancestors in flight, depth by depth,
// in position order whatever shape the tree has. A prompt's slice is the tree that is a chain.
//
// What limits these kernels is latency, that of fetching instructions included: loops that only
// copy stay rolled up. No state is written; commit.cu does that.
#include "ops/gpu/gdn/gdn.cuh"

enum {
    PARTS = 8,             // blocks of `products` of one key head
    PRODUCT_THREADS = 128, // small enough to run concurrently with a block of `deltas`
    DELTA_THREADS = 512,   // what registers are shared out for; no block has as many
};

static __device__ float2 *products_of(const struct gdn_job &j, const struct place &p, int first) {
    int tiles = (j.max + TILE - 1) / TILE, tile = first / TILE;
    return j.products + ((int64_t)p.group * tiles + tile) * (GDN_RING + j.max) * TILE;
}

// Rows [at, at + CHUNK) of base lo or hi.
template <bool VEC>
static __device__ void load_state(const struct gdn_job &j, struct gdn_shared &m,
                                  const struct place &p, const float *from, int hi, int at) {
    const struct gdn_shape &s = j.a.shape;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < j.heads * CHUNK * WARPS; i += (int)blockDim.x) {
        int c = i % WARPS, k = i / WARPS % CHUNK, v = i / (WARPS * CHUNK);
        int column = p.column + 4 * c, head = p.head + v * s.n_k;
        int to = k / 16 * 4 + k % 4, quarter = k / 4 % 4;
        copy_floats<VEC>(&m.s[((v * WARPS + c) * (CHUNK / 4) + to) * 8 + hi * 4 + quarter],
                         from + ((int64_t)head * s.dk + at + k) * s.dv + column,
                         at + k < s.dk ? s.dv - column : 0);
    }
}

// Deltas of committed positions.
template <bool VEC>
static __device__ void load_log(const struct gdn_job &j, struct gdn_shared &m,
                                const struct place &p, const struct gdn_state &state) {
    const struct gdn_shape &s = j.a.shape;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < j.heads * GDN_RING * WARPS; i += (int)blockDim.x) {
        int c = i % WARPS, slot = i / WARPS % GDN_RING, v = i / (WARPS * GDN_RING);
        int column = p.column + 4 * c, head = p.head + v * s.n_k;
        copy_floats<VEC>(&m.ring[(v * WARPS + c) * GDN_RING + slot],
                         state.log_d + ((int64_t)slot * s.n_v + head) * s.dv + column,
                         s.dv - column);
    }
}

// Part [at, at + CHUNK) of the tile's keys and queries.
template <bool VEC>
static __device__ void load_rows(const struct gdn_job &j, struct gdn_shared &m,
                                 const struct place &p, const struct gdn_sequence &q, int first,
                                 int at) {
    const struct gdn_shape &s = j.a.shape;
    int rows = q.n - first < TILE ? q.n - first : TILE;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < 2 * rows * 32; i += (int)blockDim.x) {
        int c = i % 32 * 4, r = i / 64, which = i / 32 % 2;
        int64_t row = m.list[first + r];
        int64_t from = ((q.row0 + (row < 0 ? 0 : row)) * s.n_k + p.k_head) * s.dk + at + c;
        copy_floats<VEC>((float4 *)&m.kq[(which * TILE + r) * STRIDE + c],
                         (which ? j.a.rows.q : j.a.rows.k) + from, row < 0 ? 0 : s.dk - at - c);
    }
}

// Key number `key` of those that the tile can need: committed positions from base lo, then places.
static __device__ const float *key_of(const struct gdn_job &j, const struct gdn_shared &m,
                                      const struct place &p, const struct gdn_sequence &q,
                                      const float *log_k, int key) {
    const struct gdn_shape &s = j.a.shape;
    if (key < q.base[0])
        return log_k + ((q.slot0 + key) % GDN_RING * s.n_k + p.k_head) * s.dk;
    int64_t row = m.list[key - q.base[0]];
    return j.a.rows.k + ((q.row0 + (row < 0 ? 0 : row)) * s.n_k + p.k_head) * s.dk;
}

// A tile, and a part of the key dimension.
struct cut {
    int first; // place
    int n;     // keys that its rows can need
    int at;    // [at, at + CHUNK) of the key dimension
};

// This block's keys from its number `from` on.
template <bool VEC>
static __device__ void load_keys(const struct gdn_job &j, struct gdn_shared &m,
                                 const struct place &p, const struct gdn_sequence &q,
                                 const float *log_k, const struct cut &u, int from) {
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < j.keys * 32; i += (int)blockDim.x) {
        int c = u.at + i % 32 * 4, key = p.rank + (from + i / 32) * j.parts;
        if (key < u.n)
            copy_floats<VEC>((float4 *)&m.keys[i / 32 * STRIDE + i % 32 * 4],
                             key_of(j, m, p, q, log_k, key) + c, j.a.shape.dk - c);
    }
}

static __device__ float swap_half(float keep, float give, int d) {
    return keep + warp_across(give, d);
}

// Eight lanes: products of four rows with two keys, to to0 and to1 (NULL: not kept). A product sums
// a lane's elements, then lanes.
static __device__ void dots(const struct gdn_shared &m, int pair, int row, bool add, float2 *to0,
                            float2 *to1, int rows) {
    int l = (int)threadIdx.x % 8, bit4 = l & 4, bit2 = l & 2;
    const float *k0 = m.keys + 2 * pair * STRIDE + l * 4, *k1 = k0 + STRIDE;
    float4 a[CHUNK / 32], b[CHUNK / 32];
#pragma unroll
    for (int i = 0; i < CHUNK / 32; i++) {
        a[i] = *(const float4 *)(k0 + 32 * i);
        b[i] = *(const float4 *)(k1 + 32 * i);
    }
    int max = rows < 4 ? rows : 4; // the same for all lanes of a warp
#pragma unroll 1
    for (int r = row; r < row + max; r++) {
        const float *x = m.kq + r * STRIDE + l * 4;
        float sum[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < CHUNK / 32; i++) {
            float4 k = *(const float4 *)(x + 32 * i);
            float4 q = *(const float4 *)(x + TILE * STRIDE + 32 * i);
            float kk[4] = {k.x, k.y, k.z, k.w}, qq[4] = {q.x, q.y, q.z, q.w};
            float aa[4] = {a[i].x, a[i].y, a[i].z, a[i].w};
            float bb[4] = {b[i].x, b[i].y, b[i].z, b[i].w};
#pragma unroll
            for (int e = 0; e < 4; e++) {
                sum[0] = fmaf(aa[e], kk[e], sum[0]);
                sum[1] = fmaf(aa[e], qq[e], sum[1]);
                sum[2] = fmaf(bb[e], kk[e], sum[2]);
                sum[3] = fmaf(bb[e], qq[e], sum[3]);
            }
        }
        // Each lane goes on with half of what it has, so that in the end two lanes have one sum.
        float k = swap_half(bit4 ? sum[2] : sum[0], bit4 ? sum[0] : sum[2], 4);
        float q = swap_half(bit4 ? sum[3] : sum[1], bit4 ? sum[1] : sum[3], 4);
        float one = swap_half(bit2 ? q : k, bit2 ? k : q, 2);
        one += warp_across(one, 1);
        float2 *to = bit4 ? to1 : to0;
        if (to && r < rows && !(l & 1)) {
            float *out = (float *)(to + r) + (bit2 != 0);
            *out = add ? *out + one : one;
        }
    }
}

// This block's share of the products of the tile; its first keys are loaded already.
template <bool VEC>
static __device__ void multiply_chunk(const struct gdn_job &j, struct gdn_shared &m,
                                      const struct place &p, const struct gdn_sequence &q,
                                      const float *log_k, const struct cut &u, float2 *out) {
    int rows = u.n - q.base[0] - u.first, blocks = (rows + 3) / 4;
    int mine = (u.n - p.rank + j.parts - 1) / j.parts;
    for (int from = 0; from < mine; from += j.keys) {
        if (from) {
            __syncthreads();
            load_keys<VEC>(j, m, p, q, log_k, u, from);
            copies_wait_all();
            __syncthreads();
        }
        int here = mine - from < j.keys ? mine - from : j.keys, pairs = (here + 1) / 2;
        // Warps stay whole: the last items are made and not kept.
        for (int i = (int)threadIdx.x / 8; i / 4 * 4 < pairs * blocks; i += (int)blockDim.x / 8) {
            int pair = i % pairs, block = i / pairs;
            bool in = block < blocks;
            float2 *to = out + (int64_t)(p.rank + (from + 2 * pair) * j.parts) * TILE;
            float2 *next = in && 2 * pair + 1 < here ? to + j.parts * TILE : NULL;
            dots(m, pair, in ? 4 * block : 0, u.at > 0, in ? to : NULL, next, rows);
        }
    }
}

// What the base gives to R <= 4 neighbouring places of the tile and four columns: sums of the key's
// and of the query's products in a quarter of the key dimension.
struct sums {
    float4 a[4], b[4];
};

template <int R>
static __device__ void read_state(const struct gdn_job &j, const struct gdn_shared &m,
                                  const struct gdn_sequence &q, int first, int at,
                                  struct sums *acc) {
    int lane = (int)threadIdx.x % WARP, w = (int)threadIdx.x / WARP, row = lane / 4 * R;
    int left = j.a.shape.dk - at < CHUNK ? j.a.shape.dk - at : CHUNK;
    if (first + row >= q.n)
        return;
    const float4 *s = m.s + w * CHUNK * 2 + (first + row >= q.hi ? 4 : 0) + lane % 4;
    const float *x = m.kq + row * STRIDE + lane % 4 * 4;
#pragma unroll 1
    for (int i = 0; i < (left + 15) / 16; i++) {
        float4 v[4];
#pragma unroll
        for (int e = 0; e < 4; e++)
            v[e] = s[(4 * i + e) * 8];
#pragma unroll
        for (int r = 0; r < R; r++) {
            float4 k = *(const float4 *)(x + r * STRIDE + 16 * i);
            float4 y = *(const float4 *)(x + (TILE + r) * STRIDE + 16 * i);
            float kk[4] = {k.x, k.y, k.z, k.w}, yy[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
            for (int e = 0; e < 4; e++) {
                gdn_fma4(&acc->a[r], kk[e], v[e]);
                gdn_fma4(&acc->b[r], yy[e], v[e]);
            }
        }
    }
}

static __device__ float4 swap4(float4 keep, float4 give, int d) {
    return make_float4(swap_half(keep.x, give.x, d), swap_half(keep.y, give.y, d),
                       swap_half(keep.z, give.z, d), swap_half(keep.w, give.w, d));
}

// Adds up the quarters. With four places in a lane it goes on with one of them, place 32-lane.
static __device__ void join4(const struct sums &s, float4 *a, float4 *b) {
    int one = (int)threadIdx.x & 1, two = (int)threadIdx.x & 2;
    float4 x[2], y[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        x[r] = swap4(one ? s.a[2 * r + 1] : s.a[2 * r], one ? s.a[2 * r] : s.a[2 * r + 1], 1);
        y[r] = swap4(one ? s.b[2 * r + 1] : s.b[2 * r], one ? s.b[2 * r] : s.b[2 * r + 1], 1);
    }
    *a = swap4(two ? x[1] : x[0], two ? x[0] : x[1], 2);
    *b = swap4(two ? y[1] : y[0], two ? y[0] : y[1], 2);
}

static __device__ void join1(const struct sums &s, float4 *a, float4 *b) {
    *a = swap4(s.a[0], s.a[0], 1);
    *b = swap4(s.b[0], s.b[0], 1);
    *a = swap4(*a, *a, 2);
    *b = swap4(*b, *b, 2);
}

// e^x of a decay: 0 or below.
static __device__ float plain_decay(float x) {
    return __expf(x);
}

// Coefficients of one position, t from the row's base, for the row at place `at`; other: its place,
// -1: it is committed. x: products of its key.
static __device__ __forceinline__ void weigh_one(const struct gdn_job &j, struct gdn_shared &m,
                                                 int t, int at, int other, int hi, float2 x) {
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int v = 0; v < HEADS_MOST; v++) {
        if (v >= j.heads)
            break;
        const float *sum = m.sum + (hi * j.heads + v) * j.max;
        float then = other < 0 ? m.gone[(hi * j.heads + v) * GDN_RING + t] : sum[other];
        float f = plain_decay(sum[at] - then);
        m.coef[(v * GDN_RING + t) * TILE + lane] = make_float2(x.x * f, x.y * f);
    }
}

// Coefficients of the tile's sums: a lane is a row, warps take positions from the row's base on.
static __device__ void plain_coefficients(const struct gdn_job &j, struct gdn_shared &m,
                                          const struct gdn_sequence &q, int first, int depth,
                                          const float2 *products) {
    int lane = (int)threadIdx.x % WARP, at = first + lane;
    int hi = at >= q.hi, known = gdn_known(q, hi), n = depth < 0 ? -1 : known + depth;
    enum { BATCH = 6 };
    int step = (int)blockDim.x / WARP;
    for (int t = (int)threadIdx.x / WARP; t <= n; t += BATCH * step) {
        float2 x[BATCH]; // all on their way before the first is used
        int other[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            int u = t + i * step < n ? t + i * step : n;
            other[i] = u < known ? 0 : u < n ? m.above[(u - known) * TILE + lane] : at;
            int key = u < known ? q.base[0] - known + u : q.base[0] + other[i];
            x[i] = __ldcg(&products[(int64_t)key * TILE + lane]);
        }
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            if (t + i * step <= n)
                weigh_one(j, m, t + i * step, at, t + i * step < known ? -1 : other[i], hi, x[i]);
    }
}

// A lane's row in the second half.
struct line {
    int at, place, depth, known, slot; // place in the tile, in the list; slot of its base
    int64_t cell;                      // of its four columns in [n][n_v][dv]
    int left;                          // how many of them exist
    float4 v;
    float beta;
};

template <bool VEC>
static __device__ struct line line_of(const struct gdn_job &j, const struct gdn_shared &m,
                                      const struct place &p, const struct gdn_sequence &q,
                                      int first, int at) {
    const struct gdn_shape &s = j.a.shape;
    int w = (int)threadIdx.x / WARP, column = p.column + w % WARPS * 4;
    struct line l;
    l.at = at;
    l.place = first + at;
    l.depth = gdn_depth(m, q, l.place);
    l.known = gdn_known(q, l.place >= q.hi);
    l.slot = (int)q.slot0 + q.base[0] - l.known;
    l.left = l.depth < 0 ? 0 : s.dv - column;
    int64_t row = q.row0 + (l.depth < 0 ? 0 : m.list[l.place]);
    int64_t cell = row * s.n_v + p.head + w / WARPS * s.n_k;
    l.cell = cell * s.dv + column;
    l.v = gdn_get4<VEC>(j.a.rows.v + l.cell, l.left);
    l.beta = j.a.rows.beta[cell];
    return l;
}

// Committed positions, then ancestors in earlier tiles, whose deltas this warp has written.
template <bool VEC>
static __device__ void add_known(const struct gdn_job &j, const struct gdn_shared &m,
                                 const struct line &l, const float2 *coef, int first, float4 *a,
                                 float4 *b) {
    enum { BATCH = 8 };
    int w = (int)threadIdx.x / WARP;
    const float4 *ring = m.ring + w * GDN_RING;
    int known = l.depth < 0 ? 0 : l.known;
#pragma unroll 1
    for (int t = 0; t < known; t += BATCH) {
        float4 d[BATCH]; // all on their way before the first is used
        float2 c[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            d[i] = ring[(l.slot + t + i) & (GDN_RING - 1)];
            c[i] = coef[((t + i) & (GDN_RING - 1)) * TILE];
        }
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            if (t + i < known) {
                gdn_fma4(a, c[i].x, d[i]);
                gdn_fma4(b, c[i].y, d[i]);
            }
    }
    for (int i = 0; first > 0 && i < l.depth; i++) {
        int at = m.above[i * TILE + l.at];
        if (at >= first)
            break;
        int64_t apart = (int64_t)(m.list[at] - m.list[l.place]) * j.a.shape.n_v * j.a.shape.dv;
        float4 d = gdn_get4<VEC>(j.a.rows.d + l.cell + apart, l.left);
        float2 c = coef[(known + i) * TILE];
        gdn_fma4(a, c.x, d);
        gdn_fma4(b, c.y, d);
    }
}

// Rows depth by depth: those at a depth are finished, and all deeper ones take what their ancestor
// there adds.
template <bool VEC>
static __device__ void plain_descend(const struct gdn_job &j, const struct gdn_shared &m,
                                     const struct line &l, const float2 *coef, int first, float4 a,
                                     float4 b) {
    float4 *delta = m.delta + (int)threadIdx.x / WARP * TILE, mine = a;
    int deepest = l.depth;
    for (int i = 16; i; i /= 2) {
        int o = warp_across(deepest, i);
        deepest = o > deepest ? o : deepest;
    }
    int next = 0 < l.depth ? m.above[l.at] - first : -1;
    float2 ahead = l.depth >= 0 ? coef[l.known * TILE] : make_float2(0, 0);
    for (int i = 0; i <= deepest; i++) {
        int at = next;
        float2 c = ahead;
        if (i < l.depth) { // of the next depth, to have them there in time
            next = i + 1 < l.depth ? m.above[(i + 1) * TILE + l.at] - first : -1;
            ahead = coef[(l.known + i + 1) * TILE];
        }
        if (i == l.depth) {
            mine = make_float4(l.beta * (l.v.x - a.x), l.beta * (l.v.y - a.y),
                               l.beta * (l.v.z - a.z), l.beta * (l.v.w - a.w));
            delta[l.at] = mine;
            gdn_fma4(&b, c.y, mine);
        }
        __syncwarp();
        if (i < l.depth && at >= 0) {
            float4 d = delta[at];
            gdn_fma4(&a, c.x, d);
            gdn_fma4(&b, c.y, d);
        }
    }
    gdn_put4<VEC>(j.a.rows.d + l.cell, mine, l.left);
    gdn_put4<VEC>(j.a.out + l.cell, b, l.left);
    __syncwarp();
}

// Sums of log decays that a tile needs: one for each value head and base.
static __device__ int sums_of(const struct gdn_job &j, const struct gdn_sequence &q) {
    return j.heads * (q.hi < q.n ? 2 : 1);
}

// Who is above whom in the tile at `first`, and how committed positions decay; different warps.
static __device__ void prepare_rows(const struct gdn_job &j, struct gdn_shared &m,
                                    const struct place &p, const struct gdn_sequence &q,
                                    const float *log_g, int first) {
    int w = (int)threadIdx.x / WARP, warps = (int)blockDim.x / WARP;
    for (int i = (int)threadIdx.x; i < TILE * j.heads; i += (int)blockDim.x) {
        int at = first + i % TILE, v = i / TILE;
        if (gdn_depth(m, q, at) >= 0) {
            int64_t row = q.row0 + m.list[at];
            m.g[v * j.max + at] = j.a.rows.g[row * j.a.shape.n_v + p.head + v * j.a.shape.n_k];
        }
    }
    if (w == 0)
        gdn_climb(m, first, gdn_depth(m, q, first + (int)threadIdx.x));
    for (int i = w - 1; first == 0 && i >= 0 && i < sums_of(j, q); i += warps - 1)
        gdn_sum_log(j, m, q, log_g + p.head + i % j.heads * j.a.shape.n_k, i % j.heads,
                    i / j.heads);
}

// The second half of a tile, from the base's sums on.
template <bool VEC>
static __device__ void plain_finish_rows(const struct gdn_job &j, struct gdn_shared &m,
                                         const struct place &p, const struct gdn_sequence &q,
                                         int first, bool few, const struct sums &acc) {
    int lane = (int)threadIdx.x % WARP, v = (int)threadIdx.x / WARP / WARPS;
    struct line l = line_of<VEC>(j, m, p, q, first, few ? lane / 4 : lane);
    const float2 *coef = m.coef + v * GDN_RING * TILE + l.at;
    float4 a, b;
    if (few)
        join1(acc, &a, &b);
    else
        join4(acc, &a, &b);
    plain_coefficients(j, m, q, first, gdn_depth(m, q, first + lane), products_of(j, p, first));
    bool hi = l.place >= q.hi;
    float gain = l.depth < 0 ? 0 : plain_decay(m.sum[(hi * j.heads + v) * j.max + l.place]);
    __syncthreads();
    gpu_let_next();
    a = gdn_scale4(a, gain);
    b = gdn_scale4(b, gain);
    add_known<VEC>(j, m, l, coef, first, &a, &b);
    plain_descend<VEC>(j, m, l, coef, first, a, b);
    __syncthreads();
}

template <bool VEC>
static __device__ void run_tile(const struct gdn_job &j, struct gdn_shared &m,
                                const struct place &p, const struct gdn_sequence &q,
                                const struct gdn_state &state, int first) {
    const struct gdn_shape &s = j.a.shape;
    bool few = q.n - first <= TILE / 4, again = s.dk > CHUNK; // bases do not fit as a whole
    struct sums acc = {};
    for (int at = 0; at < s.dk; at += CHUNK) {
        load_rows<VEC>(j, m, p, q, first, at);
        if (again && (first > 0 || at > 0))
            load_state<VEC>(j, m, p, state.s_lo, 0, at);
        if (q.hi < q.n && (again || first == 0))
            load_state<VEC>(j, m, p, state.s_hi, 1, at);
        if (at == 0)
            prepare_rows(j, m, p, q, state.log_g, first);
        copies_wait_all();
        __syncthreads();
        for (int i = (int)threadIdx.x / WARP; at == 0 && i < sums_of(j, q);
             i += (int)blockDim.x / WARP)
            gdn_sum_rows(j, m, q, first, i % j.heads, i / j.heads);
        if (few)
            read_state<1>(j, m, q, first, at, &acc);
        else
            read_state<4>(j, m, q, first, at, &acc);
        __syncthreads();
    }
    plain_finish_rows<VEC>(j, m, p, q, first, few, acc);
}

// Lists the rows of the block's sequence; all threads.
static __device__ void find_rows(struct gdn_shared &m, int *found, struct gdn_sequence *q) {
    __syncthreads();
    if (threadIdx.x < WARP)
        gdn_list(m, q->rows, found);
    __syncthreads();
    q->n = found[0];
    q->hi = found[1];
}

// The work of a block on its columns, once `products` is through.
template <bool VEC>
static __global__ void __launch_bounds__(DELTA_THREADS) plain_deltas(struct gdn_job j) {
    extern __shared__ float4 memory[];
    __shared__ int found[2];
    struct place p = place_of(j);
    struct gdn_shared m = gdn_shared_at(j, memory);
    gpu_await();
    struct gdn_place run = gdn_place_of(j, p.seq);
    struct gdn_state state = gdn_state_at(j, p.seq, run.exchanged);
    struct gdn_sequence q = gdn_sequence_of(run);
    gdn_look(j, m, q);
    load_state<VEC>(j, m, p, state.s_lo, 0, 0);
    load_log<VEC>(j, m, p, state);
    find_rows(m, found, &q);
    for (int first = 0; first < q.n; first += TILE)
        run_tile<VEC>(j, m, p, q, state, first);
    copies_wait_all();
}

template <bool VEC>
static __global__ void __launch_bounds__(PRODUCT_THREADS) plain_products(struct gdn_job j) {
    extern __shared__ float4 memory[];
    __shared__ int found[2];
    struct place p = place_of(j);
    struct gdn_shared m = gdn_shared_at(j, memory);
    gpu_await();
    gpu_let_next();
    const float *log_k = j.states[p.seq].log_k;
    struct gdn_sequence q = gdn_sequence_of(gdn_place_of(j, p.seq));
    gdn_look(j, m, q);
    find_rows(m, found, &q);
    for (int first = 0; first < q.n; first += TILE) {
        struct cut u = {first, q.base[0] + (q.n - first < TILE ? q.n : first + TILE), 0};
        for (; u.at < j.a.shape.dk; u.at += CHUNK) {
            load_rows<VEC>(j, m, p, q, first, u.at);
            load_keys<VEC>(j, m, p, q, log_k, u, 0);
            copies_wait_all();
            __syncthreads();
            multiply_chunk<VEC>(j, m, p, q, log_k, u, products_of(j, p, first));
            __syncthreads();
        }
    }
}

// Launches

size_t gdn_plain_bytes(const struct gdn_shape *s, int max, int runs) {
    size_t tiles = (size_t)(max + TILE - 1) / TILE, keys = (size_t)(GDN_RING + max);
    return (size_t)(s->n_k * runs) * tiles * keys * TILE * sizeof(float2);
}

// How the work is cut, and room for the products. False after a fault.
static bool arrange(struct gpu *g, struct gdn_job *j, int runs) {
    const struct gdn_shape *s = &j->a.shape;
    int ratio = s->n_v / s->n_k;
    j->keys = g->shared < (80 << 10) ? 4 : 16;
    j->parts = PARTS;
    j->heads = ratio < HEADS_MOST ? ratio : HEADS_MOST;
    while (j->heads > 1 && (ratio % j->heads || gdn_room_bytes(*j) > (size_t)g->shared))
        j->heads--;
    j->products = (float2 *)gpu_scratch(g, gdn_plain_bytes(s, j->max, runs));
    return j->products != NULL;
}

bool gdn_plain(struct gpu *g, struct gdn_job *j, int runs) {
    const struct gdn_shape *s = &j->a.shape;
    if (!arrange(g, j, runs))
        return false;
    bool vec = s->dk % 4 == 0 && s->dv % 4 == 0;
    struct gdn_job first = *j, second = *j;
    first.heads = 0;
    second.keys = 0;
    size_t small = gdn_room_bytes(first), large = gdn_room_bytes(second);
    void (*kernel)(struct gdn_job) = vec ? plain_deltas<true> : plain_deltas<false>;
    void (*before)(struct gdn_job) = vec ? plain_products<true> : plain_products<false>;
    dim3 grid((unsigned)((s->dv + COLUMNS - 1) / COLUMNS), (unsigned)(s->n_v / j->heads),
              (unsigned)runs);
    if (!gpu_allow_max_shared(g, (const void *)before, "gdn") ||
        !gpu_allow_max_shared(g, (const void *)kernel, "gdn"))
        return false;
    gpu_launch_saying({g, "gdn products", GDN_LATE}, before,
                      dim3((unsigned)j->parts, (unsigned)s->n_k, (unsigned)runs), PRODUCT_THREADS,
                      small, first);
    gpu_launch_saying({g, "gdn", GDN_LATE}, kernel, grid, dim3((unsigned)(j->heads * WARPS * WARP)),
                      large, second);
    return g->fault == GPU_OK;
}
