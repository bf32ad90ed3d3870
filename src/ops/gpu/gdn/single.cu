// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet, the delta rule for single rows of many sequences: what plain decoding side by
// side needs. There a row costs as much as a base and a log, so everything is arranged for the rate
// of memory. Two launches, with the bits of matrix.cu (the same sums in the same order).
//
// single_products: a block has one key head of one sequence: the products of the row's key and
// query with all keys of the log and its own, and the row split, for all of the head's value heads.
// single_deltas: a block has 64 columns of a value head; a warp multiplies 16 of them with the row,
// straight from registers that its base has come to; then a thread is a column. Base and log are
// requested in front of gpu_await. Heads of 128 only.
#include "ops/gpu/gdn/columns.cuh"
#include "ops/gpu/gdn/gdn.cuh"

enum { PRODUCT_THREADS = GDN_RING / EIGHT * 32 };

// What a pass has of a run.
struct single_run {
    int32_t row, known, slot0; // committed positions since the base, slot of the first
    int32_t exchanged;         // the state, as in gdn_place
};

struct single_job {
    struct gdn_shape shape;
    struct gdn_rows rows;
    float *out;
    const struct single_run *runs;  // [n]
    const struct gdn_state *states; // [n] bases by address
    uint4 *left;                    // [n][n_k][high, low][PIECES] the row as a left operand
    float2 *products;               // [n][n_k][GDN_RING] of key and query; its own is `known`
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
static __device__ __forceinline__ struct single_run run_at(const struct single_job &j, int i) {
    int4 v = __ldcg((const int4 *)&j.runs[i]);
    return {v.x, v.y, v.z, v.w};
}

// The row's key and query as the lane's share of a left operand whose other rows are zero.
static __device__ __forceinline__ void split_row(const struct single_job &j, int64_t row, int head,
                                                 struct left *a) {
    int lane = (int)threadIdx.x % WARP;
    int64_t at = (row * j.shape.n_k + head) * D + lane % 4 * 4;
#pragma unroll
    for (int s = 0; s < SPLIT_STEPS; s++) {
        uint4 k = split_values(far4(j.rows.k + at + 16 * s, lane < 4), power_of_two(UP));
        uint4 q = split_values(far4(j.rows.q + at + 16 * s, lane < 4), power_of_two(UP));
        a->high[s] = make_uint4(k.x, q.x, k.y, q.y);
        a->low[s] = make_uint4(k.z, q.z, k.w, q.w);
    }
}

// Block (key head, run).
static __global__ void __launch_bounds__(PRODUCT_THREADS)
    single_products(const __grid_constant__ struct single_job j) {
    int lane = (int)threadIdx.x % WARP, w = (int)threadIdx.x / WARP, head = (int)blockIdx.x;
    int key = 8 * w + lane / 4;
    struct single_run r = run_at(j, (int)blockIdx.y);
    const float *log_k = gdn_pointer(&j.states[blockIdx.y].log_k) + lane % 4 * 4;
    log_k += (int64_t)(((r.slot0 + key) & (GDN_RING - 1)) * j.shape.n_k + head) * D;
    float4 v[SPLIT_STEPS];
#pragma unroll
    for (int s = 0; s < SPLIT_STEPS; s++)
        v[s] = far4(log_k + 16 * s, key < r.known);
    gpu_await();
    gpu_let_next();
    if (8 * w > r.known)
        return;
    int64_t own = ((int64_t)r.row * j.shape.n_k + head) * D + lane % 4 * 4;
    int64_t place = (int64_t)blockIdx.y * j.shape.n_k + head;
    struct left a;
    split_row(j, r.row, head, &a);
#pragma unroll
    for (int s = 0; s < SPLIT_STEPS; s++)
        if (key == r.known)
            v[s] = far4(j.rows.k + own + 16 * s, true);
    struct chains y = {};
#pragma unroll
    for (int s = 0; s < SPLIT_STEPS; s++)
        add_step(&y, a.high[s], a.low[s], split_values(v[s], power_of_two(UP)));
    close_chains(&y);
    if (lane >= 4)
        return;
    const float down = 1.0f / (1 << 2 * UP);
    float4 *to = (float4 *)(j.products + place * GDN_RING + 8 * w) + lane;
    *to = make_float4(y.c[0] * down, y.c[2] * down, y.c[1] * down, y.c[3] * down);
#pragma unroll
    for (int s = 0; s < SPLIT_STEPS; s++) {
        if (w > 0)
            break;
        uint4 *left = j.left + place * 2 * PIECES + 4 * s + lane;
        left[0] = a.high[s];
        left[PIECES] = a.low[s];
    }
}

// What the threads of a block share.
struct single_shared {
    float ring[GDN_RING][OWN]; // deltas of committed positions
    uint4 left[2][PIECES];     // [high, low]
    float2 coef[GDN_RING];
    float sum[2][OWN]; // what the base gives key and query
    float g[GDN_RING], gone[GDN_RING];
};

// What the warp's columns give the row, to its 16 places of m->sum.
static __device__ __forceinline__ void multiply_columns(struct single_shared *m,
                                                        const struct right &r, float down, int at) {
    int lane = (int)threadIdx.x % WARP;
    struct chains y[2] = {};
#pragma unroll
    for (int s = 0; s < SPLIT_STEPS; s++) {
        uint4 high = m->left[0][4 * s + lane % 4], low = m->left[1][4 * s + lane % 4];
        if (lane >= 4)
            high = low = make_uint4(0, 0, 0, 0);
        add_step(&y[0], high, low, r.b[0][s]);
        add_step(&y[1], high, low, r.b[1][s]);
    }
    close_chains(&y[0]);
    close_chains(&y[1]);
    float by = warp_from(down, lane % 4 * 8);
    if (lane >= 4)
        return;
#pragma unroll
    for (int q = 0; q < 2; q++)
        *(float4 *)&m->sum[q][at + 4 * lane] = make_float4(
            y[0].c[2 * q] * by, y[1].c[2 * q] * by, y[0].c[2 * q + 1] * by, y[1].c[2 * q + 1] * by);
}

// One column, from the base's sums on.
static __device__ __forceinline__ void finish_column(const struct single_shared *m, int known,
                                                     float gain, float value, float beta, float *d,
                                                     float *out) {
    enum { BATCH = 8 };
    int c = (int)threadIdx.x, t = 0;
    float a = m->sum[0][c] * gain, b = m->sum[1][c] * gain;
#pragma unroll 1
    for (; t + BATCH <= known; t += BATCH) {
        float v[BATCH]; // all on their way before the first is used
        float2 f[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            v[i] = m->ring[t + i][c];
            f[i] = m->coef[t + i];
        }
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            a = fmaf(f[i].x, v[i], a);
            b = fmaf(f[i].y, v[i], b);
        }
    }
#pragma unroll 1
    for (; t < known; t++) {
        a = fmaf(m->coef[t].x, m->ring[t][c], a);
        b = fmaf(m->coef[t].y, m->ring[t][c], b);
    }
    float mine = beta * (value - a);
    *d = mine;
    *out = fmaf(m->coef[known].y, mine, b);
}

// Block (half of a value head, run).
static __global__ void __launch_bounds__(OWN_THREADS, 4)
    single_deltas(const __grid_constant__ struct single_job j) {
    __shared__ __align__(16) struct single_shared m;
    int t = (int)threadIdx.x, w = t / WARP, n_v = j.shape.n_v;
    int head = (int)blockIdx.x / 2, first = (int)blockIdx.x % 2 * OWN;
    const struct gdn_state *st = &j.states[blockIdx.y];
    struct single_run r = run_at(j, (int)blockIdx.y);
    struct columns c;
    struct right base;
    const float *lo = gdn_pointer(r.exchanged ? &st->s_hi : &st->s_lo);
    ask_columns(lo + (int64_t)head * D * D + first + 16 * w, &c);
    ask_log(j, &m, r, st, head, first);
    __syncthreads();
    if (t < GDN_RING)
        sum_log(m.g, m.gone, t, 0, r.known);
    float down = split_four(c, &base);
    gpu_await();
    gpu_let_next();
    int64_t place = (int64_t)blockIdx.y * j.shape.n_k + head % j.shape.n_k;
    int64_t cell = (int64_t)r.row * n_v + head, at = cell * D + first + t;
    float g = __ldcg(&j.rows.g[cell]), beta = __ldcg(&j.rows.beta[cell]), value = 0;
    float2 x = make_float2(0, 0);
    if (t < OWN) {
        ((uint4 *)m.left)[t] = __ldcg(&j.left[place * 2 * PIECES + t]);
        x = __ldcg(&j.products[place * GDN_RING + t]);
        value = __ldcg(&j.rows.v[at]);
    }
    copies_wait_all();
    __syncthreads();
    float own = (r.known ? m.gone[r.known - 1] : 0) + g;
    if (t <= r.known) {
        float by = decay_of(own - (t < r.known ? m.gone[t] : own));
        m.coef[t] = make_float2(x.x * by, x.y * by);
    }
    multiply_columns(&m, base, down, 16 * w);
    __syncthreads();
    if (t < OWN)
        finish_column(&m, r.known, decay_of(own), value, beta, &j.rows.d[at], &j.out[at]);
}

#else

// Older devices take gdn_plain.
static __global__ void single_products(const __grid_constant__ struct single_job j) {
    (void)j;
    gpu_await();
}

static __global__ void single_deltas(const __grid_constant__ struct single_job j) {
    (void)j;
    gpu_await();
}

#endif

// The tables of a launch; false after a fault.
static bool stage_tables(struct gpu *g, struct single_job *j, const struct gdn_args *a,
                         const struct gdn_run *runs, int n) {
    struct single_run r[GDN_STATES] = {};
    for (int i = 0; i < n; i++) {
        int64_t len = a->len[runs[i].seq], block = len / GDN_BLOCK;
        int64_t lo = block > 0 ? (block - 1) * GDN_BLOCK : 0;
        r[i] = {(int32_t)runs[i].first, (int32_t)(len - lo), (int32_t)(lo % GDN_RING),
                gdn_exchanged(a->seqs[runs[i].seq])};
    }
    j->runs = (const struct single_run *)gpu_stage(g, r, (size_t)n * sizeof *r);
    j->states = gdn_stage_states(g, a, runs, n);
    return j->runs && j->states;
}

static size_t left_bytes(const struct gdn_shape *s, int n) {
    return (size_t)(n * s->n_k) * 2 * PIECES * sizeof(uint4);
}

size_t gdn_single_bytes(const struct gdn_shape *s, int n) {
    return left_bytes(s, n) + (size_t)(n * s->n_k) * GDN_RING * sizeof(float2);
}

bool gdn_single(struct gpu *g, const struct gdn_args *a, const struct gdn_run *runs, int n) {
    const struct gdn_shape *s = &a->shape;
    struct single_job j = {};
    j.shape = *s;
    j.rows = a->rows;
    j.out = a->out;
    unsigned char *scratch = (unsigned char *)gpu_scratch(g, gdn_single_bytes(s, n));
    if (!scratch || !stage_tables(g, &j, a, runs, n))
        return false;
    j.left = (uint4 *)scratch;
    j.products = (float2 *)(scratch + left_bytes(s, n));
    gpu_launch_saying({g, "gdn products", GDN_APART}, single_products,
                      dim3((unsigned)s->n_k, (unsigned)n), PRODUCT_THREADS, 0, j);
    gpu_launch_saying({g, "gdn", GDN_APART}, single_deltas,
                      dim3((unsigned)(s->n_v * 2), (unsigned)n), OWN_THREADS, 0, j);
    return g->fault == GPU_OK;
}
