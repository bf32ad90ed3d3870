// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet, first half: gates, the causal convolution along a row's ancestors, SiLU and the
// norms of queries and keys. One warp makes one head of one row, or of several rows in turn, always
// in the same order, so a row's bits depend on its own inputs and its three predecessors only. Owns
// no state.
#include "base/num.h"
#include "ops/gpu/gdn/gdn.h"
#include "ops/gpu/linear/finish.cuh"
#include "ops/gpu/linear/form/activation.cuh"
#include "ops/gpu/matrix/thread.cuh"

enum {
    WARPS = 8,
    RUN = 16,                         // rows of a warp where there are many,
    MANY = 384,                       // from here on
    SLAB = 33,                        // rows of one sequence from which on a block makes a head
    SLAB_WARPS = 16,                  // of all of them, its warps,
    SLAB_ROWS = GDN_FEW / SLAB_WARPS, // and rows of each of those
    MOST_BLOCKS = 65535,              // that a grid has in y
    GATES = 96,                       // heads whose gates a warp makes side by side
    AHEAD = 96,                       // blocks, about, that request what the delta rule reads next
    ALONE = 21 // warps of a block for a single row: few blocks, so that the delta rule has room
};

struct conv_job {
    struct gdn_shape shape;
    struct gdn_conv_args a;
    float *const *kept;          // [GDN_STATES] last inputs of sequences first_seq, ...
    const int32_t *parent, *seq; // [n]
    int64_t n;
    int first_seq;
    struct gdn_few few; // instead of kept, parent and seq, if few.n
    bool four;          // heads of at most 128 values, in fours
    // With few.n, what the delta rule will read: slots of the log from `slot` on, and the newer
    // base.
    int slot, known;
    bool newer;
    struct linear_left left[4]; // of a single row: u, a, b; no parts: it is stored
};

// Constants of the gates of heads lane, lane + 32, ... below GATES, for reading in front of a wait.
struct gate_constants {
    float dt[GATES / WARP], by[GATES / WARP];

    __device__ __forceinline__ gate_constants(const struct conv_job &j, int lane) {
#pragma unroll
        for (int i = 0; i < GATES / WARP; i++) {
            const int h = lane + i * WARP;
            dt[i] = h < j.shape.n_v ? j.a.dt_bias[h] : 0.0f;
            by[i] = h < j.shape.n_v ? j.a.ssm_a[h] : 0.0f;
        }
    }
};

// Gates of head h of a row from a and b, its outputs of their projections.
static __device__ __forceinline__ void gate(const struct conv_job &j, int64_t row, int h, float a,
                                            float b, float dt, float by) {
    const float y = a + dt, softplus = y > 20 ? y : log1pf(expf(y));
    j.a.rows.g[row * j.shape.n_v + h] = by * softplus;
    j.a.rows.beta[row * j.shape.n_v + h] = row_sigmoid(b);
}

// Those of a row; all that it reads is under way at once.
static __device__ void gates(const struct conv_job &j, int64_t row, int lane,
                             const struct gate_constants &c) {
    const float *a = j.a.a + row * j.shape.n_v, *b = j.a.b + row * j.shape.n_v;
    float x[GATES / WARP], z[GATES / WARP];
#pragma unroll
    for (int i = 0; i < GATES / WARP; i++) {
        const int h = lane + i * WARP;
        x[i] = h < j.shape.n_v ? __ldcg(a + h) : 0.0f;
        z[i] = h < j.shape.n_v ? __ldcg(b + h) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < GATES / WARP; i++)
        if (lane + i * WARP < j.shape.n_v)
            gate(j, row, lane + i * WARP, x[i], z[i], c.dt[i], c.by[i]);
    for (int h = lane + GATES; h < j.shape.n_v; h += WARP)
        gate(j, row, h, __ldcg(a + h), __ldcg(b + h), j.a.dt_bias[h], j.a.ssm_a[h]);
}

// Where the inputs of a row and its three predecessors are, oldest first: in the projection's
// output, or among those that the sequence has kept. From tables alone.
struct taps {
    const float *at[GDN_CONV];
    bool kept[GDN_CONV];
};

static __device__ struct taps find_taps(const struct conv_job &j, int64_t row, int seq) {
    const float *old = j.few.n ? j.few.state.conv
                               : (const float *)__ldcg((const unsigned long long *)&j.kept[seq]);
    int64_t channels = j.shape.channels;
    int state = GDN_CONV - 2; // newest committed input
    struct taps in;
#pragma unroll
    for (int t = GDN_CONV - 1; t >= 0; t--) {
        in.kept[t] = row < 0;
        in.at[t] = row >= 0 ? j.a.rows.u + row * channels : old + state-- * channels;
        row = row < 0 ? row : j.few.n ? j.few.up[row] : __ldcg(&j.parent[row]);
    }
    return in;
}

// Which head of which part (q, k, v) a warp makes.
struct head_place {
    int part, head, n, dim;
    int64_t channel; // its first
    float unit;      // length that its values are normed to, of q and k
};

static __device__ struct head_place place_of(const struct gdn_shape &s, int head) {
    struct head_place p;
    p.part = head < s.n_k ? 0 : head < 2 * s.n_k ? 1 : 2;
    p.head = head - p.part * s.n_k;
    p.n = p.part == 2 ? s.n_v : s.n_k;
    p.dim = p.part == 2 ? s.dv : s.dk;
    p.channel = (int64_t)p.part * s.n_k * s.dk + (int64_t)p.head * p.dim;
    p.unit = p.part == 0 ? 1.0f / sqrtf((float)p.dim) : 1.0f;
    return p;
}

static __device__ float *head_out(const struct conv_job &j, const struct head_place &p,
                                  int64_t row) {
    const struct gdn_rows &r = j.a.rows;
    return (p.part == 0 ? r.q : p.part == 1 ? r.k : r.v) + (row * p.n + p.head) * p.dim;
}

// What values are multiplied by, of R rows whose squares a lane has summed up.
template <int R>
static __device__ __forceinline__ void norms_of(const struct head_place &p, float (&sum)[R]) {
#pragma unroll
    for (int d = 16; d; d /= 2)
#pragma unroll
        for (int r = 0; r < R; r++)
            sum[r] += warp_across(sum[r], d);
#pragma unroll
    for (int r = 0; r < R; r++)
        sum[r] = p.unit / sqrtf(sum[r] + 1e-6f);
}

// Four neighbouring channels a lane, in heads of at most 128 values: the lane's weights.
static __device__ void load_weights(const struct conv_job &j, const struct head_place &p,
                                    float4 w[4]) {
    int i = (int)threadIdx.x % WARP * 4;
    const float4 *weights = (const float4 *)(j.a.conv_w + (p.channel + i) * GDN_CONV);
#pragma unroll
    for (int c = 0; c < 4; c++)
        w[c] = i < p.dim ? weights[c] : make_float4(0, 0, 0, 0);
}

static __device__ float4 load_tap(const struct head_place &p, const float *row) {
    int i = (int)threadIdx.x % WARP * 4;
    return i < p.dim ? __ldcg((const float4 *)(row + p.channel + i)) : make_float4(0, 0, 0, 0);
}

// y = the convolution of a row's four inputs, oldest first.
static __device__ __forceinline__ void convolve(const float4 w[4], const float4 x[GDN_CONV],
                                                float *y) {
    y[0] = y[1] = y[2] = y[3] = 0;
#pragma unroll
    for (int t = 0; t < GDN_CONV; t++) {
        const float by[4] = {((float *)&w[0])[t], ((float *)&w[1])[t], ((float *)&w[2])[t],
                             ((float *)&w[3])[t]};
        y[0] = fmaf(by[0], x[t].x, y[0]);
        y[1] = fmaf(by[1], x[t].y, y[1]);
        y[2] = fmaf(by[2], x[t].z, y[2]);
        y[3] = fmaf(by[3], x[t].w, y[3]);
    }
}

// The head of R rows from `row` on, from their convolutions; those that are not `mine` are left
// out.
template <int R>
static __device__ __forceinline__ void finish_fours(const struct conv_job &j,
                                                    const struct head_place &p, int64_t row,
                                                    const bool (&mine)[R], float (&y)[4 * R]) {
    const int i = (int)threadIdx.x % WARP * 4;
    float scale[R] = {};
    row_silu_all(y);
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            scale[r] = fmaf(y[4 * r + c], y[4 * r + c], scale[r]);
    if (p.part != 2)
        norms_of(p, scale);
#pragma unroll
    for (int r = 0; r < R; r++) {
        const float by = p.part == 2 ? 1.0f : scale[r];
        if (mine[r] && i < p.dim)
            *(float4 *)(head_out(j, p, row + r) + i) =
                make_float4(y[4 * r] * by, y[4 * r + 1] * by, y[4 * r + 2] * by, y[4 * r + 3] * by);
    }
}

// That of one row from its inputs.
static __device__ void finish_four(const struct conv_job &j, const struct head_place &p,
                                   int64_t row, const float4 w[4], const float4 x[GDN_CONV]) {
    const bool mine[1] = {true};
    float y[4];
    convolve(w, x, y);
    finish_fours<1>(j, p, row, mine, y);
}

// Everything but the rows' own inputs is here before gpu_await.
static __device__ void conv_four(const struct conv_job &j, int64_t row, int head, int seq) {
    struct head_place p = place_of(j.shape, head);
    struct taps in = find_taps(j, row, seq);
    float4 w[4], x[GDN_CONV];
    load_weights(j, p, w);
#pragma unroll
    for (int t = 0; t < GDN_CONV; t++)
        if (in.kept[t])
            x[t] = load_tap(p, in.at[t]);
    gpu_await();
    gpu_let_next();
#pragma unroll
    for (int t = 0; t < GDN_CONV; t++)
        if (!in.kept[t])
            x[t] = load_tap(p, in.at[t]);
    finish_four(j, p, row, w, x);
}

// Any shape.
static __device__ void conv_any(const struct conv_job &j, int64_t row, int head, int seq) {
    struct head_place p = place_of(j.shape, head);
    struct taps in = find_taps(j, row, seq);
    const float *w = j.a.conv_w + p.channel * GDN_CONV;
    float *out = head_out(j, p, row), sum = 0;
    int lane = (int)threadIdx.x % WARP;
    for (int i = lane; i < p.dim; i += WARP) {
        float x = 0;
#pragma unroll
        for (int t = 0; t < GDN_CONV; t++)
            x = fmaf(w[i * GDN_CONV + t], in.at[t][p.channel + i], x);
        float y = row_silu(x);
        out[i] = y;
        sum = fmaf(y, y, sum);
    }
    if (p.part == 2)
        return;
    float scale[1] = {sum};
    norms_of(p, scale);
    for (int i = lane; i < p.dim; i += WARP)
        out[i] *= scale[0];
}

// Brings this thread's share of `bytes` from p on to the second-level cache: 128 at a time.
static __device__ void prefetch(const void *p, int64_t bytes, int thread, int threads) {
#if __CUDA_ARCH__ >= 800
    for (int64_t i = (int64_t)thread * 128; i < bytes; i += (int64_t)threads * 128)
        prefetch_line((const char *)p + i);
#endif
}

// Slots of a log of `size` floats each.
static __device__ void prefetch_log(const struct conv_job &j, const float *log, int64_t size,
                                    int thread, int threads) {
    int rest = j.slot + j.known > GDN_RING ? j.slot + j.known - GDN_RING : 0;
    prefetch(log + j.slot * size, (j.known - rest) * size * 4, thread, threads);
    prefetch(log, rest * size * 4, thread, threads);
}

// A block of those after the heads': what the delta rule reads while this launch and its end
// leave memory idle. Nothing is changed, so it need not wait.
static __device__ void prefetch_state(const struct conv_job &j, int block) {
    const struct gdn_shape &s = j.shape;
    const struct gdn_state &st = j.few.state;
    int threads = (int)((gridDim.x - block) * gridDim.y * blockDim.x);
    int thread = (int)(((blockIdx.x - block) * gridDim.y + blockIdx.y) * blockDim.x + threadIdx.x);
    int64_t base = (int64_t)s.n_v * s.dk * s.dv * 4;
    prefetch(st.s_lo, base, thread, threads);
    prefetch_log(j, st.log_k, (int64_t)s.n_k * s.dk, thread, threads);
    prefetch_log(j, st.log_d, (int64_t)s.n_v * s.dv, thread, threads);
    prefetch_log(j, st.log_g, s.n_v, thread, threads);
    if (j.newer)
        prefetch(st.s_hi, base, thread, threads);
}

// Which of a launch's sequences a row is of; below 0: of none.
static __device__ __forceinline__ int sequence_of(const struct conv_job &j, int64_t row) {
    const int seq = j.few.n ? 0 : __ldcg(&j.seq[row]) - j.first_seq;
    return seq < GDN_STATES ? seq : -1;
}

// Block (some heads, row); heads of any shape also the rows that follow in steps of gridDim.y.
static __global__ void __launch_bounds__(WARPS *WARP, 4)
    conv_heads(const __grid_constant__ struct conv_job j) {
    const int head = (int)blockIdx.x * WARPS + (int)threadIdx.x / WARP,
              lane = (int)threadIdx.x % WARP;
    const int heads = 2 * j.shape.n_k + j.shape.n_v, blocks = (heads + WARPS) / WARPS;
    if ((int)blockIdx.x >= blocks)
        prefetch_state(j, blocks);
    if (head < heads && j.four && sequence_of(j, blockIdx.y) >= 0) {
        conv_four(j, blockIdx.y, head, sequence_of(j, blockIdx.y));
        return;
    }
    const struct gate_constants c(j, lane);
    gpu_await();
    gpu_let_next();
#pragma unroll 1
    for (int64_t row = blockIdx.y; head <= heads && row < j.n; row += gridDim.y) {
        const int seq = sequence_of(j, row);
        if (seq >= 0 && head == heads)
            gates(j, row, lane, c);
        else if (seq >= 0 && !j.four)
            conv_any(j, row, head, seq);
    }
}

// From SLAB to GDN_FEW rows of one sequence, heads in fours: a block makes a head of all of them,
// whose inputs meet in shared memory, so that they and the weights are read once. Blocks after
// those make the gates, a row a warp, and request the state.
static __global__ void __launch_bounds__(SLAB_WARPS *WARP)
    conv_slab(const __grid_constant__ struct conv_job j) {
    enum { R = SLAB_ROWS };
    __shared__ float4 inputs[GDN_FEW][32];
    const int lane = (int)threadIdx.x % WARP, first = (int)threadIdx.x / WARP * R;
    const int head = (int)blockIdx.x, heads = 2 * j.shape.n_k + j.shape.n_v;
    if (head >= heads + R)
        prefetch_state(j, heads + R);
    if (head >= heads) {
        const int row = (head - heads) * SLAB_WARPS + (int)threadIdx.x / WARP;
        const struct gate_constants c(j, lane);
        gpu_await();
        gpu_let_next();
        if (row < j.few.n)
            gates(j, row, lane, c);
        return;
    }
    const struct head_place p = place_of(j.shape, head);
    float4 w[4], kept[GDN_CONV - 1];
    bool mine[R];
    load_weights(j, p, w);
#pragma unroll
    for (int t = 0; t < GDN_CONV - 1; t++)
        kept[t] = load_tap(p, j.few.state.conv + t * j.shape.channels);
    gpu_await();
    gpu_let_next();
#pragma unroll
    for (int r = 0; r < R; r++) {
        mine[r] = first + r < j.few.n;
        if (mine[r])
            inputs[first + r][lane] =
                load_tap(p, j.a.rows.u + (int64_t)(first + r) * j.shape.channels);
    }
    __syncthreads();
    float y[4 * R] = {};
#pragma unroll
    for (int r = 0; r < R; r++) {
        float4 x[GDN_CONV];
        int row = first + r, state = GDN_CONV - 2; // newest committed input
#pragma unroll
        for (int t = GDN_CONV - 1; mine[r] && t >= 0; t--) {
            x[t] = row >= 0     ? inputs[row][lane]
                   : state == 2 ? kept[2]
                   : state == 1 ? kept[1]
                                : kept[0];
            state -= row < 0;
            row = row < 0 ? row : j.few.up[row];
        }
        if (mine[r])
            convolve(w, x, y + 4 * r);
    }
    finish_fours<R>(j, p, first, mine, y);
}

// The inputs of a row's three predecessors, wherever they are.
static __device__ __forceinline__ void
load_taps(const struct conv_job &j, const struct head_place &p, int64_t row, int seq, float4 *x) {
    struct taps in = find_taps(j, row, seq);
#pragma unroll
    for (int t = 0; t < GDN_CONV - 1; t++)
        x[t] = load_tap(p, in.at[t]);
}

// Which of RUN rows from `first` on are a launch's, and how they hang together.
struct conv_run {
    int seq;        // of the lane's row, below 0: none
    unsigned mine;  // rows of this launch's sequences
    unsigned after; // rows whose parent stands right in front of them
    bool deep;      // so it is for the first row, and for the two in front of it
};

static __device__ struct conv_run find_run(const struct conv_job &j, int64_t first) {
    enum { BACK = GDN_CONV - 2 };
    const int lane = (int)threadIdx.x % WARP;
    const int64_t row = first + lane, back = row - BACK; // the same rows for other lanes
    struct conv_run r;
    r.seq = lane < RUN && row < j.n ? __ldcg(&j.seq[row]) - j.first_seq : -1;
    bool follows =
        lane < RUN + BACK && back > 0 && back < j.n && __ldcg(&j.parent[back]) == back - 1;
    warp_mask chain = warp_vote(follows);
    r.mine = warp_vote(r.seq >= 0 && r.seq < GDN_STATES);
    r.after = chain >> BACK;
    r.deep = (chain & ((2u << BACK) - 1)) == (2u << BACK) - 1;
    return r;
}

// The gates of a single row; sums that were left are stored. Constants are read in front of the
// wait.
static __device__ void gates_alone(const struct conv_job &j, int lane) {
    const struct linear_left &a = j.left[1], &b = j.left[2];
    const struct gate_constants c(j, lane);
    signed char e[2][GATES / WARP] = {};
#pragma unroll
    for (int i = 0; i < GATES / WARP; i++) {
        const int h = lane + i * WARP;
        if (h >= j.shape.n_v)
            break;
        e[0][i] = a.parts ? a.exponent[0][h] : (signed char)0;
        e[1][i] = b.parts ? b.exponent[0][h] : (signed char)0;
    }
    gpu_await();
#pragma unroll
    for (int i = 0; i < GATES / WARP; i++) {
        const int h = lane + i * WARP;
        if (h >= j.shape.n_v)
            break;
        const float x =
            a.parts ? finish_one(a, 0, h, __ldcg(a.unscale), e[0][i]) : __ldcg(j.a.a + h);
        const float z =
            b.parts ? finish_one(b, 0, h, __ldcg(b.unscale), e[1][i]) : __ldcg(j.a.b + h);
        if (a.parts)
            a.out[h] = x;
        if (b.parts)
            b.out[h] = z;
        gate(j, 0, h, x, z, c.dt[i], c.by[i]);
    }
}

// A head of a single row, whose input is stored if it was left in parts.
static __device__ void conv_alone(const struct conv_job &j, int head) {
    const struct head_place p = place_of(j.shape, head);
    const struct linear_left &o = j.left[0];
    const int own = (int)threadIdx.x % WARP * 4;
    const bool left = o.parts > 0 && own < p.dim;
    const int64_t i = (p.channel + own) / 4;
    float4 w[4], x[GDN_CONV];
    load_weights(j, p, w);
#pragma unroll
    for (int t = 0; t < GDN_CONV - 1; t++)
        x[t] = load_tap(p, j.few.state.conv + t * j.shape.channels);
    const char4 e = left ? finish_exponents(o, 0, i) : make_char4(0, 0, 0, 0);
    gpu_await();
    if (left)
        ((float4 *)o.out)[i] = x[GDN_CONV - 1] = finish_four(o, 0, 0, i, __ldcg(o.unscale), e);
    else
        x[GDN_CONV - 1] = load_tap(p, j.a.rows.u);
    finish_four(j, p, 0, w, x);
}

// A single row, heads in fours: the next launch begins before this one waits.
static __global__ void __launch_bounds__(ALONE *WARP)
    conv_row(const __grid_constant__ struct conv_job j) {
    const int head = (int)blockIdx.x * ALONE + (int)threadIdx.x / WARP;
    const int heads = 2 * j.shape.n_k + j.shape.n_v;
    gpu_let_ahead();
    if (head < heads)
        conv_alone(j, head);
    else if (head == heads)
        gates_alone(j, (int)threadIdx.x % WARP);
    else
        gpu_await();
}

// Many rows, heads in fours: a warp makes a head of RUN rows, so that its weights are read once,
// and a row that follows its parent finds three of its inputs in registers. In a prompt each row
// follows the one in front of it, so the inputs in front of the first row are read, too, before
// anything is known. Few registers, and therefore many warps: inputs are requested AHEAD_ROWS rows
// before.
static __global__ void __launch_bounds__(WARPS *WARP, 3)
    conv_runs(const __grid_constant__ struct conv_job j) {
    enum { AHEAD_ROWS = 2 };
    const struct gdn_shape &s = j.shape;
    int head = (int)blockIdx.x * WARPS + (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int64_t first = (int64_t)blockIdx.y * RUN;
    struct head_place p = place_of(s, head);
    float4 w[4], own[AHEAD_ROWS], x[GDN_CONV] = {};
    if (head < 2 * s.n_k + s.n_v)
        load_weights(j, p, w);
    gpu_await();
    gpu_let_next();
    if (head > 2 * s.n_k + s.n_v)
        return;
    const struct conv_run run = find_run(j, first);
    if (head == 2 * s.n_k + s.n_v) {
        const struct gate_constants c(j, lane);
        for (int r = 0; r < RUN; r++)
            if (run.mine >> r & 1)
                gates(j, first + r, lane, c);
        return;
    }
    const float *u = j.a.rows.u + first * s.channels;
    const int rows = (int)(j.n - first < RUN ? j.n - first : RUN);
#pragma unroll
    for (int t = 0; t < GDN_CONV - 1; t++)
        if (first > 0)
            x[t + 1] = load_tap(p, u + (t - (GDN_CONV - 1)) * (int64_t)s.channels);
#pragma unroll
    for (int r = 0; r < AHEAD_ROWS; r++)
        if (r < rows)
            own[r] = load_tap(p, u + r * (int64_t)s.channels);
    for (int r0 = 0; r0 < rows; r0 += AHEAD_ROWS) {
        bool mine[AHEAD_ROWS];
        float y[4 * AHEAD_ROWS] = {};
#pragma unroll
        for (int i = 0; i < AHEAD_ROWS; i++) {
            const int r = r0 + i;
            const int of = warp_from(run.seq, r);
            const float4 now = own[i];
            if (r + AHEAD_ROWS < rows)
                own[i] = load_tap(p, u + (r + AHEAD_ROWS) * (int64_t)s.channels);
            mine[i] = run.mine >> r & 1;
            if (!mine[i])
                continue;
#pragma unroll
            for (int t = 0; t < GDN_CONV - 1; t++)
                x[t] = x[t + 1];
            if (!(run.after >> r & 1) || (r == 0 && !run.deep))
                load_taps(j, p, first + r, of, x);
            x[GDN_CONV - 1] = now;
            convolve(w, x, y + 4 * i);
        }
        finish_fours(j, p, first + r0, mine, y);
    }
}

// Device array of where the last inputs of sequences first .. stop - 1 are, at most GDN_STATES.
// That changes with the sequences only, so the stage mostly finds it. NULL after a fault.
static float *const *stage_kept(struct gpu *g, const struct gdn_state *const *seqs, int first,
                                int stop) {
    float *kept[GDN_STATES];
    int n = stop - first < GDN_STATES ? stop - first : GDN_STATES;
    for (int i = 0; i < n; i++)
        kept[i] = seqs[first + i]->conv;
    return (float *const *)gpu_stage(g, kept, (size_t)n * sizeof *kept);
}

// Few rows of one sequence: their tables, and what the delta rule will read.
static void fill_few(struct conv_job *j, const struct rows *r) {
    int32_t seq = r->seq[0];
    int64_t len = r->pos[0]; // committed positions: the depth of a row without a parent
    for (int64_t i = 0; i < r->n; i++)
        len = r->pos[i] < len ? r->pos[i] : len;
    j->few = gdn_few_of(j->a.seqs, seq, r->parent, 0, r->n);
    int64_t block = len / GDN_BLOCK, lo = block > 0 ? (block - 1) * GDN_BLOCK : 0;
    j->slot = (int)(lo % GDN_RING);
    j->known = (int)(len - lo);
    for (int64_t i = 0; i < r->n; i++)
        j->newer = j->newer || r->pos[i] / GDN_BLOCK > block;
}

// A row whose predecessors are all kept; takes up sums that linear layers have left of it. Those of
// another result wait for the gated norm, which has time while the delta rule runs.
static void launch_alone(struct gpu *g, struct conv_job *j) {
    const float *const rows[3] = {j->a.rows.u, j->a.a, j->a.b};
    const int warps = 2 * j->shape.n_k + j->shape.n_v + 1;
    const struct launch_says says = {MEMORY_WEIGHTS | MEMORY_STATES, MEMORY_ROWS, true, NULL, true};
    if (linear_take_row(g, rows, 3, true, j->left) && j->left[3].parts)
        linear_hold(g, &j->left[3]);
    gpu_launch_saying({g, "gdn_gates_conv", says}, conv_row,
                      (unsigned)((warps + ALONE - 1) / ALONE), ALONE * WARP, 0, *j);
}

static void launch_slab(struct gpu *g, const struct conv_job *j, struct launch_says says) {
    const int heads = 2 * j->shape.n_k + j->shape.n_v;
    const int ahead = gdn_takes_matrix(g, &j->shape) ? AHEAD / 2 : 0;
    gpu_launch_saying({g, "gdn_gates_conv", says}, conv_slab, (unsigned)(heads + SLAB_ROWS + ahead),
                      SLAB_WARPS * WARP, 0, *j);
}

extern "C" void cuda_gdn_gates_conv(struct exec *x, const struct gdn_conv_args *a,
                                    const struct rows *r) {
    struct gpu *g = gpu_of(x);
    if (!r->n)
        return;
    size_t ids = (size_t)r->n * sizeof(int32_t);
    struct gdn_range range = gdn_sequences(r->seq, r->n);
    struct conv_job j = {};
    j.shape = a->shape;
    j.a = *a;
    j.n = r->n;
    if (r->n <= GDN_FEW && range.stop - range.first == 1) {
        fill_few(&j, r);
    } else {
        j.parent = (const int32_t *)gpu_stage(g, r->parent, ids);
        j.seq = (const int32_t *)gpu_stage(g, r->seq, ids);
    }
    const struct gdn_shape *h = &a->shape;
    j.four = h->dk <= 128 && h->dv <= 128 && h->dk % 4 == 0 && h->dv % 4 == 0;
    if (j.four && j.few.n == 1 && h->n_v <= GATES) {
        launch_alone(g, &j);
        return;
    }
    int warps = 2 * a->shape.n_k + a->shape.n_v + 1;
    bool runs = j.four && r->n >= MANY;
    const int64_t blocks = runs ? (r->n + RUN - 1) / RUN : min_i64(r->n, MOST_BLOCKS);
    dim3 grid((unsigned)((warps + WARPS - 1) / WARPS), (unsigned)blocks);
    const struct launch_says says = {MEMORY_WEIGHTS | (runs ? 0u : (unsigned)MEMORY_STATES),
                                     MEMORY_ROWS, false, NULL, false};
    if (j.four && j.few.n >= SLAB) {
        launch_slab(g, &j, says);
        return;
    }
    if (j.few.n && gdn_takes_matrix(g, h))
        grid.x += (AHEAD + grid.y - 1) / grid.y;
    for (j.first_seq = range.first; j.first_seq < range.stop; j.first_seq += GDN_STATES) {
        if (!j.few.n)
            j.kept = stage_kept(g, a->seqs, j.first_seq, range.stop);
        if (!j.few.n && (!j.parent || !j.seq || !j.kept))
            return;
        gpu_launch_saying({g, "gdn_gates_conv", says}, runs ? conv_runs : conv_heads, grid,
                          WARPS * WARP, 0, j);
    }
}
