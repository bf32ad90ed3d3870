// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet, the delta rule by the recurrent log (formulas: arXiv 2412.06464 section 3,
// unrolled from a base; ops_gdn.c is the specification). Two launches:
//
// products: one block a row and key head. It finds the row's ancestors, multiplies their keys with
// the row's key and query, and turns the decays between them into the coefficients of both sums.
//
// deltas: one block a sequence, value head and 16 columns. The columns of a head are independent
// given the coefficients. A thread keeps both sums of one row and four columns in registers: first
// what the base gives, then committed positions, then ancestors in flight, depth by depth for 32
// rows at once. So every row adds up in position order along its own ancestors, whatever shape the
// tree has; a prompt's slice is the tree that is a chain.
//
// No state is written; gdn_commit.cu does that.
#include "ops/cuda/gdn.h"
#include "ops/rowmath.h"

enum {
    THREADS = 128,
    COLUMNS = 16, // of a block of `deltas`
    TILE = 32,    // rows at once
    CHUNK = 128,  // of the key dimension
    STRIDE = CHUNK + 4,
    LINE = GDN_RING + 4, // coefficients of one row in shared memory
};

// Rows are local: 0 .. count - 1, row i being first + i of the forest.
struct gdn_job {
    struct gdn_args a;
    const struct gdn_state *states; // [GDN_STATES] of sequences first_seq, ...
    const int32_t *parent, *seq;    // [count] parents are indices into the forest
    const int64_t *pos, *len;       // [count], [sequences]
    int first_seq;
    float *ck, *cq; // [count][n_v][GDN_RING] coefficients of the two sums, by position from base
    float *gain;    // [count][n_v] e^{G_i}
    int32_t *above; // [count][GDN_BLOCK] ancestors in flight, the highest first
};

static __device__ int64_t base_of(int64_t pos) {
    int64_t block = pos / GDN_BLOCK;
    return block > 0 ? (block - 1) * GDN_BLOCK : 0;
}

static __device__ bool in_range(const struct gdn_job &j, int64_t row) {
    int seq = j.seq[row] - j.first_seq;
    return seq >= 0 && seq < GDN_STATES;
}

// Ancestors in flight of a row that is `depth` deep; one thread, parents in shared memory.
static __device__ void climb(const int32_t *parent, int64_t first, int64_t row, int depth,
                             int32_t *above) {
    for (int d = depth - 1; d >= 0; d--) {
        row = parent[row] - first;
        above[d] = (int32_t)row;
    }
}

// What products shares in a block.
struct lineage {
    const float *log_k, *log_g; // of the sequence
    int64_t base;
    int n, committed; // ancestors since the base, how many of them are committed
    int32_t above[GDN_BLOCK];
    float kk[GDN_RING], kq[GDN_RING];
};

static __device__ const float *key_at(const struct gdn_job &j, const struct lineage &l, int at,
                                      int head, int64_t row) {
    const struct gdn_shape &s = j.a.shape;
    if (at < l.committed)
        return l.log_k + ((l.base + at) % GDN_RING * s.n_k + head) * s.dk;
    int64_t r = at < l.n ? l.above[at - l.committed] : row;
    return j.a.rows.k + ((j.a.first + r) * s.n_k + head) * s.dk;
}

static __device__ float decay_at(const struct gdn_job &j, const struct lineage &l, int at, int head,
                                 int64_t row) {
    int nv = j.a.shape.n_v;
    if (at > l.n)
        return 0;
    if (at < l.committed)
        return l.log_g[(l.base + at) % GDN_RING * nv + head];
    int64_t r = at < l.n ? l.above[at - l.committed] : row;
    return j.a.rows.g[(j.a.first + r) * nv + head];
}

// One warp: the products of the row's key and query with its ancestors' keys, and its own.
static __device__ void dots(const struct gdn_job &j, struct lineage &l, const float *k,
                            const float *q, int head, int64_t row) {
    int lane = (int)threadIdx.x % 32, dk = j.a.shape.dk;
#pragma unroll 4
    for (int at = (int)threadIdx.x / 32; at <= l.n; at += THREADS / 32) {
        const float *key = key_at(j, l, at, head, row);
        float kk = 0, kq = 0;
        for (int i = lane; i < dk; i += 32) {
            kk = fmaf(key[i], k[i], kk);
            kq = fmaf(key[i], q[i], kq);
        }
        // The lower half of the warp goes on with kk, the upper with kq.
        float sum = lane < 16 ? kk : kq, other = lane < 16 ? kq : kk;
        sum += __shfl_xor_sync(0xFFFFFFFFu, other, 16);
        for (int d = 8; d; d /= 2)
            sum += __shfl_xor_sync(0xFFFFFFFFu, sum, d);
        if (lane % 16 == 0)
            (lane ? l.kq : l.kk)[at] = sum;
    }
}

// One warp: coefficients of one value head.
static __device__ void fade(const struct gdn_job &j, const struct lineage &l, int head,
                            int64_t row) {
    int lane = (int)threadIdx.x % 32;
    float lo = gdn_scan(decay_at(j, l, lane, head, row), lane);
    float hi = gdn_scan(decay_at(j, l, lane + 32, head, row), lane);
    hi += __shfl_sync(0xFFFFFFFFu, lo, 31);
    float own = __shfl_sync(0xFFFFFFFFu, l.n < 32 ? lo : hi, l.n % 32); // G_i
    int64_t line = row * j.a.shape.n_v + head;
    float *ck = j.ck + line * GDN_RING, *cq = j.cq + line * GDN_RING;
    float f[2] = {row_exp(own - lo), row_exp(own - hi)};
    for (int i = 0; i < 2; i++) {
        int at = lane + 32 * i;
        bool in = at <= l.n;
        ck[at] = in ? f[i] * l.kk[at] : 0;
        cq[at] = in ? f[i] * l.kq[at] : 0;
    }
    if (lane == 0)
        j.gain[line] = row_exp(own);
}

static __global__ void __launch_bounds__(THREADS) products(struct gdn_job j) {
    gpu_await();
    extern __shared__ int32_t parent[]; // [count], then key and query
    __shared__ struct lineage l;
    const struct gdn_shape &s = j.a.shape;
    int64_t row = blockIdx.y, count = j.a.count;
    int head = (int)blockIdx.x, t = (int)threadIdx.x;
    if (!in_range(j, row))
        return;
    float *k = (float *)(parent + count), *q = k + s.dk;
    for (int64_t i = t; i < count; i += THREADS)
        parent[i] = j.parent[i];
    int64_t own = ((j.a.first + row) * s.n_k + head) * s.dk;
    for (int i = t; i < s.dk; i += THREADS) {
        k[i] = j.a.rows.k[own + i];
        q[i] = j.a.rows.q[own + i];
    }
    __syncthreads();
    if (t == 0) {
        const struct gdn_state &state = j.states[j.seq[row] - j.first_seq];
        int64_t pos = j.pos[row], len = j.len[j.seq[row]];
        l.log_k = state.log_k;
        l.log_g = state.log_g;
        l.base = base_of(pos);
        l.n = (int)(pos - l.base);
        l.committed = (int)(len - l.base);
        climb(parent, j.a.first, row, l.n - l.committed, l.above);
    }
    __syncthreads();
    if (head == 0 && t < l.n - l.committed)
        j.above[row * GDN_BLOCK + t] = l.above[t];
    dots(j, l, k, q, head, row);
    __syncthreads();
    for (int v = head + t / 32 * s.n_k; v < s.n_v; v += THREADS / 32 * s.n_k)
        fade(j, l, v, row);
}

// What deltas shares in a block, beside the list of rows.
struct delta_room {
    float s[2][CHUNK][COLUMNS]; // part of the bases lo and hi
    union {
        struct {
            float k[TILE][STRIDE], q[TILE][STRIDE];
        } rows;
        struct {
            float ck[TILE][LINE], cq[TILE][LINE];
            int32_t above[TILE][GDN_BLOCK + 1]; // as places in the list
        } lines;
    } u;
    float ring[GDN_RING][COLUMNS]; // deltas of committed positions
    float d[TILE][COLUMNS];        // deltas of this tile
    int uses[2], deepest;
};

// The row that a thread works on, and its four columns.
struct place {
    int row; // local, or -1
    int64_t base;
    int n, committed, hi;
    int column, left; // the first of four columns; how many of them exist
};

// Lists the rows of sequence seq in order; where: place of each row. One warp. Returns their
// number.
static __device__ int list_rows(const struct gdn_job &j, int seq, int32_t *list, int32_t *where) {
    int lane = (int)threadIdx.x % 32, n = 0;
    for (int64_t i = lane; i - lane < j.a.count; i += 32) {
        bool mine = i < j.a.count && j.seq[i] == seq;
        unsigned mask = __ballot_sync(0xFFFFFFFFu, mine);
        int at = n + __popc(mask & ((1u << lane) - 1));
        if (mine) {
            list[at] = (int32_t)i;
            where[i] = at;
        }
        n += __popc(mask);
    }
    return n;
}

static __device__ struct place place_of(const struct gdn_job &j, const int32_t *list, int n_list,
                                        int first, int64_t len) {
    struct place p;
    int at = first + (int)threadIdx.x / 4;
    p.row = at < n_list ? list[at] : -1;
    p.column = (int)blockIdx.x * COLUMNS + (int)threadIdx.x % 4 * 4;
    p.left = j.a.shape.dv - p.column;
    p.base = p.n = p.committed = p.hi = 0;
    if (p.row >= 0) {
        int64_t pos = j.pos[p.row];
        p.base = base_of(pos);
        p.n = (int)(pos - p.base);
        p.committed = (int)(len - p.base);
        p.hi = pos / GDN_BLOCK > len / GDN_BLOCK;
    }
    return p;
}

// Rows [at, at + CHUNK) of the head's base and the same part of the tile's keys and queries.
template <bool VEC>
static __device__ void load_chunk(const struct gdn_job &j, struct delta_room &m,
                                  const struct gdn_state &state, const int32_t *list, int rows,
                                  int at) {
    const struct gdn_shape &s = j.a.shape;
    int t = (int)threadIdx.x, v_head = (int)blockIdx.y, c = t % 4 * 4;
    int column = (int)blockIdx.x * COLUMNS + c, left = s.dv - column;
    for (int hi = 0; hi < 2; hi++) {
        const float *from = (hi ? state.s_hi : state.s_lo) + (int64_t)v_head * s.dk * s.dv + column;
        if (!m.uses[hi])
            continue;
#pragma unroll
        for (int i = t / 4; i < CHUNK; i += THREADS / 4)
            *(float4 *)&m.s[hi][i][c] =
                gdn_get4<VEC>(from + (int64_t)(at + i) * s.dv, at + i < s.dk ? left : 0);
    }
#pragma unroll 4
    for (int r = t / 32; r < TILE; r += THREADS / 32) {
        int64_t row = r < rows ? j.a.first + list[r] : 0;
        int64_t from = (row * s.n_k + v_head % s.n_k) * s.dk + at + t % 32 * 4;
        int there = r < rows ? s.dk - at - t % 32 * 4 : 0;
        *(float4 *)&m.u.rows.k[r][t % 32 * 4] = gdn_get4<VEC>(j.a.rows.k + from, there);
        *(float4 *)&m.u.rows.q[r][t % 32 * 4] = gdn_get4<VEC>(j.a.rows.q + from, there);
    }
}

// a += S^T k, b += S^T q over one chunk.
static __device__ void read_state(const struct delta_room &m, const struct place &p, float4 *a,
                                  float4 *b) {
    int r = (int)threadIdx.x / 4, c = (int)threadIdx.x % 4 * 4;
    const float(*s)[COLUMNS] = m.s[p.hi];
#pragma unroll 4
    for (int i = 0; i < CHUNK; i += 4) {
        float4 k = *(const float4 *)&m.u.rows.k[r][i], q = *(const float4 *)&m.u.rows.q[r][i];
        float kk[4] = {k.x, k.y, k.z, k.w}, qq[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float4 v = *(const float4 *)&s[i + e][c];
            gdn_fma4(a, kk[e], v);
            gdn_fma4(b, qq[e], v);
        }
    }
}

// Coefficients and ancestors of the tile's rows.
static __device__ void load_lines(const struct gdn_job &j, struct delta_room &m,
                                  const int32_t *list, const int32_t *where, int rows,
                                  int64_t len) {
    int t = (int)threadIdx.x, nv = j.a.shape.n_v;
#pragma unroll 4
    for (int i = t; i < TILE * (GDN_RING / 4); i += THREADS) {
        int r = i / (GDN_RING / 4), c = i % (GDN_RING / 4) * 4;
        if (r >= rows)
            break;
        int64_t from = ((int64_t)list[r] * nv + blockIdx.y) * GDN_RING + c;
        *(float4 *)&m.u.lines.ck[r][c] = *(const float4 *)(j.ck + from);
        *(float4 *)&m.u.lines.cq[r][c] = *(const float4 *)(j.cq + from);
    }
    for (int i = t; i < rows * GDN_BLOCK; i += THREADS) {
        int r = i / GDN_BLOCK, d = i % GDN_BLOCK;
        if (d < j.pos[list[r]] - len)
            m.u.lines.above[r][d] = where[j.above[(int64_t)list[r] * GDN_BLOCK + d]];
    }
}

// Committed positions, then ancestors in earlier tiles (their deltas were written by this block).
template <bool VEC>
static __device__ void add_known(const struct gdn_job &j, const struct delta_room &m,
                                 const struct place &p, const int32_t *list, int first, float4 *a,
                                 float4 *b) {
    int r = (int)threadIdx.x / 4, c = (int)threadIdx.x % 4 * 4;
    const float *ck = m.u.lines.ck[r], *cq = m.u.lines.cq[r];
#pragma unroll 4
    for (int i = 0; i < p.committed; i++) {
        float4 d = *(const float4 *)&m.ring[(p.base + i) % GDN_RING][c];
        gdn_fma4(a, ck[i], d);
        gdn_fma4(b, cq[i], d);
    }
    for (int i = p.committed; i < p.n; i++) {
        int at = m.u.lines.above[r][i - p.committed];
        if (at >= first)
            break;
        int64_t row = j.a.first + list[at];
        float4 d = gdn_get4<VEC>(
            j.a.rows.d + (row * j.a.shape.n_v + blockIdx.y) * j.a.shape.dv + p.column, p.left);
        gdn_fma4(a, ck[i], d);
        gdn_fma4(b, cq[i], d);
    }
}

// Rows of the tile, depth by depth: those at depth d are finished, and all deeper ones take what
// their ancestor there adds.
template <bool VEC>
static __device__ void run_tile(const struct gdn_job &j, struct delta_room &m,
                                const struct place &p, int first, float4 a, float4 b) {
    const struct gdn_shape &s = j.a.shape;
    int r = (int)threadIdx.x / 4, c = (int)threadIdx.x % 4 * 4, depth = p.n - p.committed;
    const float *ck = m.u.lines.ck[r], *cq = m.u.lines.cq[r];
    int64_t line = p.row < 0 ? 0 : (j.a.first + p.row) * s.n_v + blockIdx.y;
    float4 v = gdn_get4<VEC>(j.a.rows.v + line * s.dv + p.column, p.row < 0 ? 0 : p.left);
    float beta = p.row < 0 ? 0 : j.a.rows.beta[line];
    for (int level = 0; level <= m.deepest; level++) {
        if (p.row >= 0 && depth == level) {
            float4 d = make_float4(beta * (v.x - a.x), beta * (v.y - a.y), beta * (v.z - a.z),
                                   beta * (v.w - a.w));
            *(float4 *)&m.d[r][c] = d;
            gdn_put4<VEC>(j.a.rows.d + line * s.dv + p.column, d, p.left);
            gdn_fma4(&b, cq[p.n], d);
            gdn_put4<VEC>(j.a.out + line * s.dv + p.column, b, p.left);
        }
        __syncthreads();
        if (p.row >= 0 && depth > level) {
            int at = m.u.lines.above[r][level] - first;
            if (at >= 0) {
                float4 d = *(const float4 *)&m.d[at][c];
                gdn_fma4(&a, ck[p.committed + level], d);
                gdn_fma4(&b, cq[p.committed + level], d);
            }
        }
    }
}

template <bool VEC> static __global__ void __launch_bounds__(THREADS) deltas(struct gdn_job j) {
    gpu_await();
    extern __shared__ float4 memory[];
    struct delta_room &m = *(struct delta_room *)memory;
    int32_t *list = (int32_t *)(&m + 1), *where = list + j.a.count;
    __shared__ int n_list;
    const struct gdn_shape &s = j.a.shape;
    const struct gdn_state &state = j.states[blockIdx.z];
    int t = (int)threadIdx.x, seq = j.first_seq + (int)blockIdx.z;
    if (t < 32) {
        int n = list_rows(j, seq, list, where);
        n_list = n;
    }
    for (int i = t / 4; i < GDN_RING; i += THREADS / 4) {
        int column = (int)blockIdx.x * COLUMNS + t % 4 * 4;
        *(float4 *)&m.ring[i][t % 4 * 4] = gdn_get4<VEC>(
            state.log_d + ((int64_t)i * s.n_v + blockIdx.y) * s.dv + column, s.dv - column);
    }
    __syncthreads();
    int64_t len = n_list ? j.len[seq] : 0;
    for (int first = 0; first < n_list; first += TILE) {
        struct place p = place_of(j, list, n_list, first, len);
        int rows = n_list - first < TILE ? n_list - first : TILE;
        m.uses[0] = m.uses[1] = m.deepest = 0;
        __syncthreads();
        if (p.row >= 0) {
            m.uses[p.hi] = 1;
            atomicMax(&m.deepest, p.n - p.committed);
        }
        __syncthreads();
        float4 a = make_float4(0, 0, 0, 0), b = a;
        for (int at = 0; at < s.dk; at += CHUNK) {
            load_chunk<VEC>(j, m, state, list + first, rows, at);
            __syncthreads();
            read_state(m, p, &a, &b);
            __syncthreads();
        }
        load_lines(j, m, list + first, where, rows, len);
        float gain = p.row < 0 ? 0 : j.gain[(int64_t)p.row * s.n_v + blockIdx.y];
        a = gdn_scale4(a, gain);
        b = gdn_scale4(b, gain);
        __syncthreads();
        if (p.row >= 0)
            add_known<VEC>(j, m, p, list, first, &a, &b);
        run_tile<VEC>(j, m, p, first, a, b);
        __syncthreads();
    }
}

static bool launch(struct gpu *g, const struct gdn_job *j, int sequences) {
    const struct gdn_shape *s = &j->a.shape;
    unsigned count = (unsigned)j->a.count;
    size_t small = count * sizeof(int32_t) + 2 * (size_t)s->dk * sizeof(float);
    gpu_launch_early(g, "gdn products", products, dim3((unsigned)s->n_k, count), THREADS, small,
                     *j);
    dim3 grid((unsigned)((s->dv + COLUMNS - 1) / COLUMNS), (unsigned)s->n_v, (unsigned)sequences);
    size_t large = sizeof(struct delta_room) + 2 * count * sizeof(int32_t);
    bool vec = s->dk % 4 == 0 && s->dv % 4 == 0;
    void (*kernel)(struct gdn_job) = vec ? deltas<true> : deltas<false>;
    gpu_check(g, gpu_allow_shared(kernel, (int)large), "gdn deltas");
    gpu_launch_early(g, "gdn deltas", kernel, grid, THREADS, large, *j);
    return g->fault == GPU_OK;
}

// Room for what products hands to deltas.
static bool share_scratch(struct gpu *g, struct gdn_job *j) {
    size_t lines = (size_t)j->a.count * (size_t)j->a.shape.n_v;
    size_t bytes = (2 * GDN_RING + 1) * lines * sizeof(float);
    float *p = (float *)gpu_scratch(g, bytes + (size_t)j->a.count * GDN_BLOCK * sizeof(int32_t));
    if (!p)
        return false;
    j->ck = p;
    j->cq = p + lines * GDN_RING;
    j->gain = p + 2 * lines * GDN_RING;
    j->above = (int32_t *)(j->gain + lines);
    return true;
}

extern "C" void cuda_gdn(struct exec *x, const struct gdn_args *a, const struct rows *r) {
    struct gpu *g = gpu_of(x);
    struct gdn_job j = {};
    size_t ids = (size_t)a->count * sizeof(int32_t);
    j.a = *a;
    if (!a->count || !share_scratch(g, &j))
        return;
    struct gdn_range range = gdn_sequences(r->seq + a->first, a->count);
    j.parent = (const int32_t *)gpu_stage(g, r->parent + a->first, ids);
    j.seq = (const int32_t *)gpu_stage(g, r->seq + a->first, ids);
    j.pos = (const int64_t *)gpu_stage(g, r->pos + a->first, (size_t)a->count * sizeof *r->pos);
    j.len = (const int64_t *)gpu_stage(g, a->len, (size_t)range.stop * sizeof *a->len);
    for (j.first_seq = range.first; j.first_seq < range.stop; j.first_seq += GDN_STATES) {
        int left = range.stop - j.first_seq;
        j.states = gdn_stage_states(g, a->seqs, j.first_seq, range.stop);
        if (!j.parent || !j.seq || !j.pos || !j.len || !j.states ||
            !launch(g, &j, left < GDN_STATES ? left : GDN_STATES))
            return;
    }
}
