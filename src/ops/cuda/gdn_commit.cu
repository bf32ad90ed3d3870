// SPDX-License-Identifier: Apache-2.0
// Commit of a path to the recurrent log: one launch for each piece of the path that ends at a
// multiple of 32 positions, usually the only one. Its first blocks fold the completed block of
// positions into a new base, taking rows that this very launch appends from where they are; the
// others copy rows into the ring and advance the conv inputs. Nobody reads what another writes.
#include "ops/cuda/gdn.h"
#include "ops/rowmath.h"

enum {
    THREADS = 128,
    FOLD_ROWS = 32,     // of the key dimension, in one fold block
    FOLD_COLUMNS = 128, // in one fold block
    COPY = THREADS * 4, // floats that one copying block moves
};

struct commit_job {
    struct gdn_shape shape;
    struct gdn_state state;
    struct gdn_rows rows;
    int64_t pos;         // of the first row of this piece
    int n;               // rows in this piece, at most GDN_BLOCK
    bool fold;           // the piece ends a block
    const int32_t *path; // [n]
    int row_blocks, column_blocks, fold_blocks;
};

// What folding shares in a block. Position j of the block of positions adds factor[j] x d[j].
struct fold_room {
    float c[GDN_BLOCK], decay;
    const float *k[GDN_BLOCK], *d[GDN_BLOCK];
    float factor[GDN_BLOCK][FOLD_ROWS];
    float4 delta[GDN_BLOCK][FOLD_COLUMNS / 4];
};

// One warp: where each position's row is, and how far it has decayed at the end of the block.
static __device__ void weigh_block(const struct commit_job &j, struct fold_room &m, int head) {
    const struct gdn_shape &s = j.shape;
    int lane = (int)threadIdx.x, k_head = head % s.n_k;
    int64_t pos = j.pos + j.n - GDN_BLOCK + lane, slot = pos % GDN_RING;
    float g;
    if (pos < j.pos) {
        m.k[lane] = j.state.log_k + (slot * s.n_k + k_head) * s.dk;
        m.d[lane] = j.state.log_d + (slot * s.n_v + head) * s.dv;
        g = j.state.log_g[slot * s.n_v + head];
    } else {
        int64_t row = j.path[pos - j.pos];
        m.k[lane] = j.rows.k + (row * s.n_k + k_head) * s.dk;
        m.d[lane] = j.rows.d + (row * s.n_v + head) * s.dv;
        g = j.rows.g[row * s.n_v + head];
    }
    float sum = gdn_scan(g, lane), all = __shfl_sync(0xFFFFFFFFu, sum, 31);
    m.c[lane] = row_exp(all - sum);
    if (lane == 0)
        m.decay = row_exp(all);
}

// 8 rows and 4 columns of the base a thread.
template <bool VEC> static __device__ void fold(const struct commit_job &j, struct fold_room &m) {
    const struct gdn_shape &s = j.shape;
    enum { OWN = FOLD_ROWS / (THREADS / 32) };
    int block = (int)blockIdx.x, t = (int)threadIdx.x, lane = t % 32, group = t / 32;
    int column = block % j.column_blocks * FOLD_COLUMNS + lane * 4;
    int row = block / j.column_blocks % j.row_blocks * FOLD_ROWS;
    int head = block / (j.column_blocks * j.row_blocks), left = s.dv - column;
    int64_t at = ((int64_t)head * s.dk + row + group * OWN) * s.dv + column;
    if (t < 32)
        weigh_block(j, m, head);
    float4 acc[OWN];
#pragma unroll
    for (int i = 0; i < OWN; i++)
        acc[i] =
            gdn_get4<VEC>(j.state.s_hi + at + i * s.dv, row + group * OWN + i < s.dk ? left : 0);
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
        gdn_put4<VEC>(j.state.s_lo + at + i * s.dv, acc[i],
                      row + group * OWN + i < s.dk ? left : 0);
}

// Copies values [first, first + COPY) of the rows, `size` floats each, to their slots.
static __device__ void append(const struct commit_job &j, const float *from, float *log,
                              int64_t size, int64_t first) {
    for (int64_t i = first + threadIdx.x; i < first + COPY && i < j.n * size; i += THREADS) {
        int64_t r = i / size, c = i % size;
        log[(j.pos + r) % GDN_RING * size + c] = from[j.path[r] * size + c];
    }
}

// The last conv inputs of channels [first, first + THREADS) after the piece's rows.
static __device__ void advance(const struct commit_job &j, int64_t first) {
    enum { KEPT = GDN_CONV - 1 };
    int64_t channels = j.shape.channels, c = first + threadIdx.x;
    if (c >= channels)
        return;
    float v[KEPT];
#pragma unroll
    for (int t = 0; t < KEPT; t++) {
        int64_t r = j.n + t - KEPT; // row of the piece, or one of the inputs before
        v[t] =
            r >= 0 ? j.rows.u[j.path[r] * channels + c] : j.state.conv[(r + KEPT) * channels + c];
    }
#pragma unroll
    for (int t = 0; t < KEPT; t++) {
        j.state.conv[t * channels + c] = v[t];
        if (j.fold)
            j.state.conv_hi[t * channels + c] = v[t];
    }
}

static __host__ __device__ int64_t blocks_of(int64_t n, int64_t size) {
    return (n + size - 1) / size;
}

template <bool VEC>
static __global__ void __launch_bounds__(THREADS) commit_piece(struct commit_job j) {
    gpu_await();
    __shared__ struct fold_room m;
    const struct gdn_shape &s = j.shape;
    int64_t block = blockIdx.x, nk = (int64_t)s.n_k * s.dk, nv = (int64_t)s.n_v * s.dv;
    if (block < j.fold_blocks) {
        fold<VEC>(j, m);
        return;
    }
    block -= j.fold_blocks;
    if (block < blocks_of(s.channels, THREADS)) {
        advance(j, block * THREADS);
        return;
    }
    block -= blocks_of(s.channels, THREADS);
    if (block < blocks_of(j.n * nk, COPY)) {
        append(j, j.rows.k, j.state.log_k, nk, block * COPY);
        return;
    }
    block -= blocks_of(j.n * nk, COPY);
    if (block < blocks_of(j.n * nv, COPY))
        append(j, j.rows.d, j.state.log_d, nv, block * COPY);
    else
        append(j, j.rows.g, j.state.log_g, s.n_v, (block - blocks_of(j.n * nv, COPY)) * COPY);
}

static bool launch(struct gpu *g, const struct commit_job *j) {
    const struct gdn_shape *s = &j->shape;
    int64_t copies = blocks_of((int64_t)j->n * s->n_k * s->dk, COPY) +
                     blocks_of((int64_t)j->n * s->n_v * s->dv, COPY) +
                     blocks_of((int64_t)j->n * s->n_v, COPY);
    unsigned blocks = (unsigned)(j->fold_blocks + blocks_of(s->channels, THREADS) + copies);
    bool vec = s->dk % 4 == 0 && s->dv % 4 == 0;
    void (*kernel)(struct commit_job) = vec ? commit_piece<true> : commit_piece<false>;
    gpu_launch_early(g, "gdn_commit", kernel, blocks, THREADS, 0, *j);
    return g->fault == GPU_OK;
}

extern "C" void cuda_gdn_commit(struct exec *x, const struct gdn_commit_args *a) {
    struct gpu *g = gpu_of(x);
    const struct gdn_shape *s = &a->shape;
    if (!a->count)
        return;
    const int32_t *path = (const int32_t *)gpu_stage(g, a->path, (size_t)a->count * sizeof *path);
    struct commit_job j = {};
    j.shape = *s;
    j.rows = a->rows;
    j.row_blocks = (int)blocks_of(s->dk, FOLD_ROWS);
    j.column_blocks = (int)blocks_of(s->dv, FOLD_COLUMNS);
    for (int64_t done = 0; path && done < a->count; done += j.n) {
        int64_t left = a->count - done;
        j.state = *a->state;
        j.pos = a->len + done;
        int room = (int)(GDN_BLOCK - j.pos % GDN_BLOCK);
        j.n = left < room ? (int)left : room;
        j.fold = j.n == room;
        j.fold_blocks = j.fold ? s->n_v * j.row_blocks * j.column_blocks : 0;
        j.path = path + done;
        if (!launch(g, &j))
            return;
        if (j.fold) {
            a->state->s_lo = j.state.s_hi;
            a->state->s_hi = j.state.s_lo;
        }
    }
}
