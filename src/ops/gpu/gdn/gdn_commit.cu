// SPDX-License-Identifier: Apache-2.0
// Commit of a path to the recurrent log of all layers: one launch for each piece of the path that
// ends at a multiple of 32 positions, usually the only one. A layer's first blocks fold the
// completed block of positions into a new base, taking rows that this very launch appends from
// where they are; the others advance the conv inputs and copy rows into the ring. Nobody reads what
// another writes.
#include "ops/gpu/gdn/gdn.h"
#include "ops/rowmath.h"

enum {
    THREADS = 128,
    FOLD_ROWS = 32,      // of the key dimension, in one fold block
    FOLD_COLUMNS = 128,  // in one fold block
    CONV = THREADS * 4,  // channels of one block
    COPY = THREADS * 16, // floats of a row that one block copies
};

struct commit_layer {
    struct gdn_state state;
    const float *u, *k, *d, *g;
};

struct commit_job {
    struct gdn_shape shape;
    const struct commit_layer *layers; // [gridDim.y]
    int64_t pos;                       // of the first row of this piece
    int n;                             // rows in this piece, at most GDN_BLOCK
    bool fold;                         // the piece ends a block
    const int32_t *path;               // [n]
    int row_blocks, column_blocks, fold_blocks, conv_blocks, k_blocks, d_blocks;
};

// What folding shares in a block. Position j of the block of positions adds factor[j] x d[j].
struct fold_room {
    float c[GDN_BLOCK], decay;
    const float *k[GDN_BLOCK], *d[GDN_BLOCK];
    float factor[GDN_BLOCK][FOLD_ROWS];
    float4 delta[GDN_BLOCK][FOLD_COLUMNS / 4];
};

// One warp: where each position's row is, and how far it has decayed at the end of the block.
static __device__ void weigh_block(const struct commit_job &j, const struct commit_layer &l,
                                   struct fold_room &m, int head) {
    const struct gdn_shape &s = j.shape;
    int lane = (int)threadIdx.x, k_head = head % s.n_k;
    int64_t pos = j.pos + j.n - GDN_BLOCK + lane, slot = pos % GDN_RING;
    float g;
    if (pos < j.pos) {
        m.k[lane] = l.state.log_k + (slot * s.n_k + k_head) * s.dk;
        m.d[lane] = l.state.log_d + (slot * s.n_v + head) * s.dv;
        g = l.state.log_g[slot * s.n_v + head];
    } else {
        int64_t row = j.path[pos - j.pos];
        m.k[lane] = l.k + (row * s.n_k + k_head) * s.dk;
        m.d[lane] = l.d + (row * s.n_v + head) * s.dv;
        g = l.g[row * s.n_v + head];
    }
    float sum = gdn_scan(g, lane), all = __shfl_sync(0xFFFFFFFFu, sum, 31);
    m.c[lane] = row_exp(all - sum);
    if (lane == 0)
        m.decay = row_exp(all);
}

// 8 rows and 4 columns of the base a thread.
template <bool VEC>
static __device__ void fold(const struct commit_job &j, const struct commit_layer &l,
                            struct fold_room &m) {
    const struct gdn_shape &s = j.shape;
    enum { OWN = FOLD_ROWS / (THREADS / 32) };
    int block = (int)blockIdx.x, t = (int)threadIdx.x, lane = t % 32, group = t / 32;
    int column = block % j.column_blocks * FOLD_COLUMNS + lane * 4;
    int row = block / j.column_blocks % j.row_blocks * FOLD_ROWS;
    int head = block / (j.column_blocks * j.row_blocks), left = s.dv - column;
    int64_t at = ((int64_t)head * s.dk + row + group * OWN) * s.dv + column;
    if (t < 32)
        weigh_block(j, l, m, head);
    float4 acc[OWN];
#pragma unroll
    for (int i = 0; i < OWN; i++)
        acc[i] =
            gdn_get4<VEC>(l.state.s_hi + at + i * s.dv, row + group * OWN + i < s.dk ? left : 0);
    __syncthreads();
#pragma unroll
    for (int p = group; p < GDN_BLOCK; p += THREADS / 32) {
        m.delta[p][lane] = gdn_get4<VEC>(m.d[p] + column, left);
        m.factor[p][lane] = row + lane < s.dk ? m.c[p] * m.k[p][row + lane] : 0;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < OWN; i++)
        acc[i] = gdn_scale4(acc[i], m.decay);
#pragma unroll 4
    for (int p = 0; p < GDN_BLOCK; p++) {
        float4 d = m.delta[p][lane];
#pragma unroll
        for (int i = 0; i < OWN; i++)
            gdn_fma4(&acc[i], m.factor[p][group * OWN + i], d);
    }
#pragma unroll
    for (int i = 0; i < OWN; i++)
        gdn_put4<VEC>(l.state.s_lo + at + i * s.dv, acc[i],
                      row + group * OWN + i < s.dk ? left : 0);
}

// Copies floats [at, at + COPY) of one row to its slot.
template <bool VEC>
static __device__ void append(const float *from, float *log, int64_t row, int64_t slot, int size,
                              int at) {
    float4 v[COPY / (4 * THREADS)];
    int first = at + 4 * (int)threadIdx.x;
#pragma unroll
    for (int i = 0; i < COPY / (4 * THREADS); i++)
        v[i] = gdn_get4<VEC>(from + row * size + first + 4 * THREADS * i,
                             size - first - 4 * THREADS * i);
#pragma unroll
    for (int i = 0; i < COPY / (4 * THREADS); i++)
        gdn_put4<VEC>(log + slot * size + first + 4 * THREADS * i, v[i],
                      size - first - 4 * THREADS * i);
}

// Block number `block` of those that copy rows.
template <bool VEC>
static __device__ void copy(const struct commit_job &j, const struct commit_layer &l, int block) {
    const struct gdn_shape &s = j.shape;
    int each = j.k_blocks + j.d_blocks, r = block / each, at = block % each;
    int64_t row = j.path[r], slot = (j.pos + r) % GDN_RING;
    if (at < j.k_blocks)
        append<VEC>(l.k, l.state.log_k, row, slot, s.n_k * s.dk, at * COPY);
    else
        append<VEC>(l.d, l.state.log_d, row, slot, s.n_v * s.dv, (at - j.k_blocks) * COPY);
    for (int i = (int)threadIdx.x; at == 0 && i < s.n_v; i += THREADS)
        l.state.log_g[slot * s.n_v + i] = l.g[row * s.n_v + i];
}

// The last conv inputs of channels [first, first + CONV) after the piece's rows.
template <bool VEC>
static __device__ void advance(const struct commit_job &j, const struct commit_layer &l,
                               int first) {
    enum { KEPT = GDN_CONV - 1 };
    int64_t channels = j.shape.channels, c = first + 4 * (int)threadIdx.x;
    int left = (int)(channels - c);
    float4 v[KEPT];
#pragma unroll
    for (int t = 0; t < KEPT; t++) {
        int r = j.n + t - KEPT; // row of the piece, or one of the inputs before
        v[t] = gdn_get4<VEC>(r >= 0 ? l.u + j.path[r] * channels + c
                                    : l.state.conv + (r + KEPT) * channels + c,
                             left);
    }
#pragma unroll
    for (int t = 0; t < KEPT; t++) {
        gdn_put4<VEC>(l.state.conv + t * channels + c, v[t], left);
        if (j.fold)
            gdn_put4<VEC>(l.state.conv_hi + t * channels + c, v[t], left);
    }
}

template <bool VEC>
static __global__ void __launch_bounds__(THREADS) commit_piece(struct commit_job j) {
    __shared__ struct fold_room m;
    gpu_await();
    struct commit_layer l = j.layers[blockIdx.y];
    int block = (int)blockIdx.x;
    if (block < j.fold_blocks)
        fold<VEC>(j, l, m);
    else if (block < j.fold_blocks + j.conv_blocks)
        advance<VEC>(j, l, (block - j.fold_blocks) * CONV);
    else
        copy<VEC>(j, l, block - j.fold_blocks - j.conv_blocks);
}

static int blocks_of(int n, int size) {
    return (n + size - 1) / size;
}

static struct commit_job job_of(const struct gdn_shape *s, const int32_t *path) {
    struct commit_job j = {};
    j.shape = *s;
    j.path = path;
    j.row_blocks = blocks_of(s->dk, FOLD_ROWS);
    j.column_blocks = blocks_of(s->dv, FOLD_COLUMNS);
    j.conv_blocks = blocks_of(s->channels, CONV);
    j.k_blocks = blocks_of(s->n_k * s->dk, COPY);
    j.d_blocks = blocks_of(s->n_v * s->dv, COPY);
    return j;
}

// One piece of a sequence's path in all layers; false after a fault.
static bool launch(struct gpu *g, struct commit_job *j, const struct gdn_commit_args *a,
                   const struct gdn_commit_seq *q) {
    enum { LAYERS = 64 };
    struct commit_layer l[LAYERS];
    const struct gdn_shape *s = &j->shape;
    for (int done = 0, count; done < a->n_layers; done += count) {
        count = a->n_layers - done < LAYERS ? a->n_layers - done : LAYERS;
        for (int i = 0; i < count; i++) {
            const struct gdn_rows *r = &a->rows[done + i];
            l[i] = (struct commit_layer){q->states[done + i], r->u, r->k, r->d, r->g};
        }
        j->layers = (const struct commit_layer *)gpu_stage(g, l, (size_t)count * sizeof *l);
        if (!j->layers)
            return false;
        int blocks = j->fold_blocks + j->conv_blocks + j->n * (j->k_blocks + j->d_blocks);
        bool vec = s->dk % 4 == 0 && s->dv % 4 == 0;
        gpu_launch_early(g, "gdn_commit", vec ? commit_piece<true> : commit_piece<false>,
                         dim3((unsigned)blocks, (unsigned)count), THREADS, 0, *j);
    }
    return g->fault == GPU_OK;
}

static bool commit_sequence(struct gpu *g, const struct gdn_commit_args *a,
                            const struct gdn_commit_seq *q) {
    const int32_t *path = (const int32_t *)gpu_stage(g, q->path, (size_t)q->count * sizeof *path);
    struct commit_job j = job_of(&a->shape, path);
    for (int64_t done = 0; path && done < q->count; done += j.n) {
        int64_t left = q->count - done;
        j.pos = q->len + done;
        int room = (int)(GDN_BLOCK - j.pos % GDN_BLOCK);
        j.n = left < room ? (int)left : room;
        j.fold = j.n == room;
        j.fold_blocks = j.fold ? a->shape.n_v * j.row_blocks * j.column_blocks : 0;
        j.path = path + done;
        if (!launch(g, &j, a, q))
            return false;
        for (int i = 0; j.fold && i < a->n_layers; i++) {
            float *newest = q->states[i].s_lo;
            q->states[i].s_lo = q->states[i].s_hi;
            q->states[i].s_hi = newest;
        }
    }
    return path != NULL;
}

extern "C" void cuda_gdn_commit(struct exec *x, const struct gdn_commit_args *a) {
    for (int i = 0; i < a->n_seqs; i++) {
        if (a->seqs[i].count && !commit_sequence(gpu_of(x), a, &a->seqs[i]))
            return;
    }
}
