// SPDX-License-Identifier: Apache-2.0
// Commit of paths to the recurrent logs of all layers and of many sequences: one launch for all of
// their pieces that end at a multiple of 32 positions, usually the only one. A sequence's first
// blocks fold the completed block of positions into a new base, where there is one, taking rows
// that this very launch appends from where they are; the others advance the conv inputs and copy
// rows into the ring. No thread reads what another writes.
#include "ops/gpu/gdn/gdn.h"
#include "ops/rowmath.h"

enum {
    THREADS = 128,
    FOLD_ROWS = 32,      // of the key dimension, in one fold block
    FOLD_COLUMNS = 128,  // in one fold block
    CONV = THREADS * 4,  // channels of one block
    COPY = THREADS * 16, // floats of a row that one block copies
};

// One layer of one sequence, for the blocks that work on it.
struct commit_layer {
    struct gdn_state state;
    const float *u, *k, *d, *g;
};

// A piece of a sequence's path, at most GDN_BLOCK rows.
struct commit_piece {
    const struct gdn_state *states; // [layers]
    int64_t pos;                    // of the first row
    int32_t path, n;                // where its rows stand in the job's path; how many
    int32_t first;                  // block of the launch
    bool fold;                      // it ends a block of positions
};

struct commit_job {
    struct gdn_shape shape;
    const struct gdn_rows *rows; // [gridDim.y]
    const int32_t *path;
    int n_pieces, blocks; // in all
    int row_blocks, column_blocks, fold_blocks, conv_blocks, k_blocks, d_blocks;
    struct commit_piece pieces[GDN_STATES];
};

// What folding shares in a block. Position j of the block of positions adds factor[j] x d[j].
struct fold_shared {
    float c[GDN_BLOCK], decay;
    const float *k[GDN_BLOCK], *d[GDN_BLOCK];
    float factor[GDN_BLOCK][FOLD_ROWS];
    float4 delta[GDN_BLOCK][FOLD_COLUMNS / 4];
};

// One warp: where each position's row is, and how far it has decayed at the end of the block.
static __device__ void weigh_block(const struct commit_job &j, const struct commit_piece &q,
                                   const struct commit_layer &l, struct fold_shared &m, int head) {
    const struct gdn_shape &s = j.shape;
    int lane = (int)threadIdx.x, k_head = head % s.n_k;
    int64_t pos = q.pos + q.n - GDN_BLOCK + lane, slot = pos % GDN_RING;
    float g;
    if (pos < q.pos) {
        m.k[lane] = l.state.log_k + (slot * s.n_k + k_head) * s.dk;
        m.d[lane] = l.state.log_d + (slot * s.n_v + head) * s.dv;
        g = l.state.log_g[slot * s.n_v + head];
    } else {
        int64_t row = j.path[q.path + pos - q.pos];
        m.k[lane] = l.k + (row * s.n_k + k_head) * s.dk;
        m.d[lane] = l.d + (row * s.n_v + head) * s.dv;
        g = l.g[row * s.n_v + head];
    }
    float sum = gdn_scan(g, lane), all = warp_from(sum, WARP - 1);
    m.c[lane] = row_exp(all - sum);
    if (lane == 0)
        m.decay = row_exp(all);
}

// 8 rows and 4 columns of the base a thread.
template <bool VEC>
static __device__ void fold(const struct commit_job &j, const struct commit_piece &q,
                            const struct commit_layer &l, struct fold_shared &m, int block) {
    const struct gdn_shape &s = j.shape;
    enum { OWN = FOLD_ROWS / (THREADS / WARP) };
    int t = (int)threadIdx.x, lane = t % WARP, group = t / WARP;
    int column = block % j.column_blocks * FOLD_COLUMNS + lane * 4;
    int row = block / j.column_blocks % j.row_blocks * FOLD_ROWS;
    int head = block / (j.column_blocks * j.row_blocks), left = s.dv - column;
    int64_t at = ((int64_t)head * s.dk + row + group * OWN) * s.dv + column;
    if (t < WARP)
        weigh_block(j, q, l, m, head);
    float4 acc[OWN];
#pragma unroll
    for (int i = 0; i < OWN; i++)
        acc[i] =
            gdn_get4<VEC>(l.state.s_hi + at + i * s.dv, row + group * OWN + i < s.dk ? left : 0);
    __syncthreads();
#pragma unroll
    for (int p = group; p < GDN_BLOCK; p += THREADS / WARP) {
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
static __device__ void copy_piece_rows(const struct commit_job &j, const struct commit_piece &q,
                                       const struct commit_layer &l, int block) {
    const struct gdn_shape &s = j.shape;
    int each = j.k_blocks + j.d_blocks, r = block / each, at = block % each;
    int64_t row = j.path[q.path + r], slot = (q.pos + r) % GDN_RING;
    if (at < j.k_blocks)
        append<VEC>(l.k, l.state.log_k, row, slot, s.n_k * s.dk, at * COPY);
    else
        append<VEC>(l.d, l.state.log_d, row, slot, s.n_v * s.dv, (at - j.k_blocks) * COPY);
    for (int i = (int)threadIdx.x; at == 0 && i < s.n_v; i += THREADS)
        l.state.log_g[slot * s.n_v + i] = l.g[row * s.n_v + i];
}

// The last conv inputs of channels [first, first + CONV) after the piece's rows.
template <bool VEC>
static __device__ void advance(const struct commit_job &j, const struct commit_piece &q,
                               const struct commit_layer &l, int first) {
    enum { KEPT = GDN_CONV - 1 };
    int64_t channels = j.shape.channels, c = first + 4 * (int)threadIdx.x;
    int left = (int)(channels - c);
    float4 v[KEPT];
#pragma unroll
    for (int t = 0; t < KEPT; t++) {
        int r = q.n + t - KEPT; // row of the piece, or one of the inputs before
        v[t] = gdn_get4<VEC>(r >= 0 ? l.u + j.path[q.path + r] * channels + c
                                    : l.state.conv + (r + KEPT) * channels + c,
                             left);
    }
#pragma unroll
    for (int t = 0; t < KEPT; t++) {
        gdn_put4<VEC>(l.state.conv + t * channels + c, v[t], left);
        if (q.fold)
            gdn_put4<VEC>(l.state.conv_hi + t * channels + c, v[t], left);
    }
}

// The piece that a block works on.
static __device__ int piece_of(const struct commit_job &j, int block) {
    int lo = 0, n = j.n_pieces;
    while (n > 1) {
        int half = n / 2;
        bool upper = j.pieces[lo + half].first <= block;
        lo += upper ? half : 0;
        n = upper ? n - half : half;
    }
    return lo;
}

// Block (of all pieces, layer).
template <bool VEC>
static __global__ void __launch_bounds__(THREADS)
    commit_pieces(const __grid_constant__ struct commit_job j) {
    __shared__ struct fold_shared m;
    const struct commit_piece &q = j.pieces[piece_of(j, (int)blockIdx.x)];
    int block = (int)blockIdx.x - q.first, folds = q.fold ? j.fold_blocks : 0;
    gpu_await();
    const struct gdn_rows &r = j.rows[blockIdx.y];
    struct commit_layer l = {q.states[blockIdx.y], r.u, r.k, r.d, r.g};
    if (block < folds)
        fold<VEC>(j, q, l, m, block);
    else if (block < folds + j.conv_blocks)
        advance<VEC>(j, q, l, (block - folds) * CONV);
    else
        copy_piece_rows<VEC>(j, q, l, block - folds - j.conv_blocks);
}

static int blocks_of(int n, int size) {
    return (n + size - 1) / size;
}

static void cut_shape(struct commit_job *j, const struct gdn_shape *s) {
    j->shape = *s;
    j->row_blocks = blocks_of(s->dk, FOLD_ROWS);
    j->column_blocks = blocks_of(s->dv, FOLD_COLUMNS);
    j->fold_blocks = s->n_v * j->row_blocks * j->column_blocks;
    j->conv_blocks = blocks_of(s->channels, CONV);
    j->k_blocks = blocks_of(s->n_k * s->dk, COPY);
    j->d_blocks = blocks_of(s->n_v * s->dv, COPY);
}

// Adds the piece that begins after `done` rows of a sequence's path, which lies at `path` of the
// job's. False after a fault.
static bool add_piece(struct gpu *g, struct commit_job *j, int n_layers,
                      const struct gdn_commit_seq *s, int64_t done, int64_t path) {
    struct commit_piece *q = &j->pieces[j->n_pieces++];
    int64_t left = s->count - done;
    q->pos = s->len + done;
    int to_base = (int)(GDN_BLOCK - q->pos % GDN_BLOCK);
    q->n = left < to_base ? (int)left : to_base;
    q->fold = q->n == to_base;
    q->path = (int32_t)(path + done);
    q->first = j->blocks;
    j->blocks +=
        (q->fold ? j->fold_blocks : 0) + j->conv_blocks + q->n * (j->k_blocks + j->d_blocks);
    size_t bytes = (size_t)n_layers * sizeof *s->states;
    q->states = (const struct gdn_state *)gpu_stage(g, s->states, bytes);
    return q->states != NULL;
}

static void launch_commit(struct gpu *g, const struct commit_job *j, int n_layers) {
    bool vec = j->shape.dk % 4 == 0 && j->shape.dv % 4 == 0;
    gpu_launch_early(g, "gdn_commit", vec ? commit_pieces<true> : commit_pieces<false>,
                     dim3((unsigned)j->blocks, (unsigned)n_layers), THREADS, 0, *j);
}

// The next piece of each of n sequences, done[i] rows after their begins, in one launch. Returns
// how many there were; < 0 after a fault.
static int commit_next(struct gpu *g, struct commit_job *j, const struct gdn_commit_args *a,
                       const struct gdn_commit_seq *s, int n, int64_t *done) {
    int64_t path = 0;
    j->n_pieces = j->blocks = 0;
    for (int i = 0; i < n; path += s[i++].count)
        if (done[i] < s[i].count && !add_piece(g, j, a->n_layers, &s[i], done[i], path))
            return -1;
    if (!j->n_pieces)
        return 0;
    launch_commit(g, j, a->n_layers);
    for (int i = 0, at = 0; i < n; i++) {
        if (done[i] >= s[i].count)
            continue;
        const struct commit_piece *q = &j->pieces[at++];
        done[i] += q->n;
        for (int l = 0; q->fold && l < a->n_layers; l++) {
            float *newest = s[i].states[l].s_lo;
            s[i].states[l].s_lo = s[i].states[l].s_hi;
            s[i].states[l].s_hi = newest;
        }
    }
    return g->fault == GPU_OK ? j->n_pieces : -1;
}

enum { PATHS = 4096 }; // rows of many sequences at once

// The paths of n sequences side by side in device memory; NULL after a fault.
static const int32_t *stage_paths(struct gpu *g, const struct gdn_commit_seq *s, int n) {
    int32_t all[PATHS];
    int64_t count = 0;
    if (n == 1)
        return (const int32_t *)gpu_stage(g, s->path, (size_t)s->count * sizeof *s->path);
    for (int i = 0; i < n; i++) {
        for (int64_t r = 0; r < s[i].count; r++)
            all[count++] = s[i].path[r];
    }
    return (const int32_t *)gpu_stage(g, all, (size_t)count * sizeof *all);
}

// How many of n sequences go together.
static int take_sequences(const struct gdn_commit_seq *s, int n) {
    int64_t rows = s->count;
    int taken = 1;
    while (taken < n && taken < GDN_STATES && rows + s[taken].count <= PATHS)
        rows += s[taken++].count;
    return taken;
}

extern "C" void cuda_gdn_commit(struct exec *x, const struct gdn_commit_args *a) {
    struct gpu *g = gpu_of(x);
    struct commit_job j = {};
    cut_shape(&j, &a->shape);
    for (int i = 0, n; i < a->n_seqs; i += n) {
        int64_t done[GDN_STATES] = {0};
        int pieces = 1;
        n = take_sequences(a->seqs + i, a->n_seqs - i);
        j.path = stage_paths(g, a->seqs + i, n);
        j.rows =
            (const struct gdn_rows *)gpu_stage(g, a->rows, (size_t)a->n_layers * sizeof *a->rows);
        while (j.path && j.rows && pieces > 0)
            pieces = commit_next(g, &j, a, a->seqs + i, n, done);
        if (!j.path || !j.rows || pieces < 0)
            return;
    }
}
