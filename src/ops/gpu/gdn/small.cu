// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet, the delta rule for few rows each of many sequences: what decoding side by side
// with small trees needs; single rows take single.cu. There a sequence costs as much as its
// base and log, so everything is arranged for the rate of memory: these are read once a sequence,
// whatever its rows. Two launches, with the bits of matrix.cu (the same sums in the same
// order).
//
// small_products: a block has one key head of one sequence: the products of the rows' keys and
// queries with all keys of the log and their own, and the rows split, for all of the head's value
// heads. small_deltas: a block has 64 columns of a value head; a warp multiplies 16 of them with
// the rows, straight from registers that a base has come to; then a thread is a column. Base and
// log are requested in front of gpu_await. Heads of 128 only.
//
// ROWS is what a sequence may have: 4, 8, 16 or 24, rows that it lacks being zero. With the
// newer base its columns follow those of the older one; a row takes the sums of the base that it
// reads.
#include "ops/gpu/gdn/columns.cuh"
#include "ops/gpu/gdn/gdn.cuh"

// What a pass has of a run.
struct small_run {
    int32_t row, count;      // first row
    int32_t known, slot0;    // committed positions since the older base, slot of the first
    int32_t skip, exchanged; // those in front of the newer base; the state, as in gdn_place
    uint32_t newer;          // bits: which rows read the newer base
    int32_t none;
    uint32_t above[GDN_SMALL]; // bits: ancestors in flight
};

struct small_job {
    struct gdn_shape shape;
    struct gdn_rows rows;
    float *out;
    const struct small_run *runs;   // [n]
    const struct gdn_state *states; // [n] bases by address
    uint4 *left;                    // [n][n_k][lefts()] the rows as left operands
    float2 *products;               // [n][n_k][keys()][ROWS] of key and query
};

// Keys that a row can be multiplied with: committed ones, then those in flight.
static __host__ __device__ constexpr int keys(int rows) {
    return GDN_RING + (rows + EIGHT - 1) / EIGHT * EIGHT;
}

// Lanes that have rows of a left operand, and left operands.
static __host__ __device__ constexpr int lanes(int rows) {
    return 4 * (rows < EIGHT ? rows : EIGHT);
}

static __host__ __device__ constexpr int eights(int rows) {
    return (rows + EIGHT - 1) / EIGHT;
}

// Pieces of the rows: [eights][high, low][step][lane].
static __host__ __device__ constexpr int lefts(int rows) {
    return eights(rows) * 2 * SPLIT_STEPS * lanes(rows);
}

// What the threads of a block share. sum: what a base gives key and query.
template <int ROWS> struct small_shared {
    uint4 left[lefts(ROWS)];
    float ring[GDN_RING][OWN]; // deltas of committed positions
    float2 coef[keys(ROWS)][ROWS];
    float sum[2][ROWS][OWN], value[ROWS][OWN];
    float g[GDN_RING], gone[2][GDN_RING]; // gone: from the older, the newer base on
    float gain[ROWS], beta[ROWS];
    uint32_t above[ROWS];
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
static __device__ __forceinline__ struct small_run run_at(const struct small_job &j, int i) {
    const int4 *p = (const int4 *)&j.runs[i];
    int4 a = __ldcg(p), b = __ldcg(p + 1);
    return {a.x, a.y, a.z, a.w, b.x, b.y, (uint32_t)b.z, 0, {}};
}

// Key and query of row lane / 4 as the lane's share of a left operand; zero where it is not there.
static __device__ __forceinline__ void split_row(const struct small_job &j, int64_t row, int head,
                                                 bool there, struct left *a) {
    int64_t at = (row * j.shape.n_k + head) * D + (int)threadIdx.x % 4 * 4;
#pragma unroll
    for (int s = 0; s < SPLIT_STEPS; s++) {
        uint4 k = split_values(far4(j.rows.k + at + 16 * s, there), power_of_two(UP));
        uint4 q = split_values(far4(j.rows.q + at + 16 * s, there), power_of_two(UP));
        a->high[s] = make_uint4(k.x, q.x, k.y, q.y);
        a->low[s] = make_uint4(k.z, q.z, k.w, q.w);
    }
}

// Block (key head, run); a warp has eight keys.
template <int ROWS>
static __global__ void __launch_bounds__(keys(ROWS) * 4)
    small_products(const __grid_constant__ struct small_job j) {
    int lane = (int)threadIdx.x % WARP, w = (int)threadIdx.x / WARP, head = (int)blockIdx.x;
    int key = EIGHT * w + lane / 4;
    struct small_run r = run_at(j, (int)blockIdx.y);
    const float *log_k = gdn_pointer(&j.states[blockIdx.y].log_k) + lane % 4 * 4;
    log_k += (int64_t)(((r.slot0 + key) & (GDN_RING - 1)) * j.shape.n_k + head) * D;
    float4 v[SPLIT_STEPS];
#pragma unroll
    for (int s = 0; s < SPLIT_STEPS; s++)
        v[s] = far4(log_k + 16 * s, key < r.known);
    gpu_await();
    gpu_let_next();
    if (EIGHT * w >= r.known + r.count)
        return;
    int own = key - r.known;
    const float *k = j.rows.k + ((int64_t)(r.row + own) * j.shape.n_k + head) * D + lane % 4 * 4;
    int64_t place = (int64_t)blockIdx.y * j.shape.n_k + head;
    struct left a;
    uint4 b[SPLIT_STEPS];
#pragma unroll
    for (int s = 0; s < SPLIT_STEPS; s++)
        if (own >= 0 && own < r.count)
            v[s] = far4(k + 16 * s, true);
    split_row(j, r.row + lane / 4, head, lane / 4 < r.count, &a);
#pragma unroll
    for (int s = 0; s < SPLIT_STEPS; s++)
        b[s] = split_values(v[s], power_of_two(UP));
#pragma unroll 1
    for (int e = 0; e < eights(ROWS); e++) {
        int row = EIGHT * e + lane / 4;
        struct chains y = {};
        if (e > 0)
            split_row(j, r.row + row, head, row < r.count, &a);
#pragma unroll
        for (int s = 0; s < SPLIT_STEPS; s++)
            add_step(&y, a.high[s], a.low[s], b[s]);
        close_chains(&y);
        if (lane >= lanes(ROWS))
            break;
        const float down = 1.0f / (1 << 2 * UP);
        float2 *to = j.products + (place * keys(ROWS) + EIGHT * w + lane % 4 * 2) * ROWS + row;
        to[0] = make_float2(y.c[0] * down, y.c[2] * down);
        to[ROWS] = make_float2(y.c[1] * down, y.c[3] * down);
        uint4 *left = j.left + place * lefts(ROWS) + e * 2 * SPLIT_STEPS * lanes(ROWS) + lane;
#pragma unroll
        for (int s = 0; w == 0 && s < SPLIT_STEPS; s++) {
            left[s * lanes(ROWS)] = a.high[s];
            left[(SPLIT_STEPS + s) * lanes(ROWS)] = a.low[s];
        }
    }
}

// Requests what small_products has left and for the rows' values.
template <int ROWS>
static __device__ __forceinline__ void ask_rows(const struct small_job &j,
                                                struct small_shared<ROWS> *m,
                                                const struct small_run &r, int head, int first) {
    int t = (int)threadIdx.x, n_v = j.shape.n_v;
    int64_t place = (int64_t)blockIdx.y * j.shape.n_k + head % j.shape.n_k;
    const float4 *left = (const float4 *)(j.left + place * lefts(ROWS));
    const float4 *x = (const float4 *)(j.products + place * keys(ROWS) * ROWS);
#pragma unroll
    for (int i = t; i < lefts(ROWS); i += OWN_THREADS)
        copy_floats<true>((float4 *)m->left + i, (const float *)(left + i), 4);
#pragma unroll
    for (int i = t; i < keys(ROWS) * ROWS / 2; i += OWN_THREADS)
        copy_floats<true>((float4 *)m->coef + i, (const float *)(x + i), 4);
#pragma unroll
    for (int i = t; i < ROWS * (OWN / 4); i += OWN_THREADS) {
        int row = i / (OWN / 4), c = i % (OWN / 4) * 4;
        bool there = row < r.count;
        int64_t cell = (int64_t)(r.row + (there ? row : 0)) * n_v + head;
        copy_floats<true>((float4 *)&m->value[row][c], j.rows.v + cell * D + first + c,
                          there ? 4 : 0);
    }
    if (t < ROWS && t < r.count) {
        copy_float(&m->beta[t], &j.rows.beta[(int64_t)(r.row + t) * n_v + head], true);
        m->above[t] = __ldcg(&j.runs[blockIdx.y].above[t]);
    }
}

// Log decays of a row and those before it.
template <int ROWS> struct decays {
    float g[ROWS];
    uint32_t above;
    bool newer;
};

template <int ROWS>
static __device__ __forceinline__ struct decays<ROWS>
ask_decays(const struct small_job &j, const struct small_run &r, int head) {
    int row = (int)threadIdx.x % ROWS;
    struct decays<ROWS> y;
    y.newer = r.newer >> row & 1;
    y.above = __ldcg(&j.runs[blockIdx.y].above[row]);
#pragma unroll
    for (int q = 0; q < ROWS; q++)
        y.g[q] = q < r.count ? __ldcg(&j.rows.g[(int64_t)(r.row + q) * j.shape.n_v + head]) : 0;
    return y;
}

// Products become coefficients: times what has faded since. A thread has one row, and every so many
// of its keys. Sums of ancestors in flight are the row's own on their way.
template <int ROWS>
static __device__ __forceinline__ void
weigh(struct small_shared<ROWS> *m, const struct small_run &r, const struct decays<ROWS> &y) {
    enum { GROUPS = OWN_THREADS / ROWS };
    int row = (int)threadIdx.x % ROWS, group = (int)threadIdx.x / ROWS;
    const float *gone = m->gone[y.newer];
    int least = y.newer ? r.skip : 0;
    float own = r.known > least ? gone[r.known - 1] : 0, then[ROWS];
    if (row >= r.count || group >= GROUPS)
        return;
#pragma unroll
    for (int q = 0; q < ROWS; q++) {
        if (q == row || y.above >> q & 1)
            own += y.g[q];
        then[q] = own;
    }
#pragma unroll 2
    for (int t = group; t < r.known; t += GROUPS) {
        float by = decay_of(own - gone[t]);
        m->coef[t][row].x *= by;
        m->coef[t][row].y *= by;
    }
#pragma unroll
    for (int q = 0; q < ROWS; q++) {
        if (q % GROUPS != group || !(q == row || y.above >> q & 1))
            continue;
        float by = decay_of(own - then[q]);
        m->coef[r.known + q][row].x *= by;
        m->coef[r.known + q][row].y *= by;
    }
    if (group == 0)
        m->gain[row] = decay_of(own);
}

// What the warp's columns give the rows that read this base, to its 16 places of m->sum.
template <int ROWS>
static __device__ __forceinline__ void multiply_columns(struct small_shared<ROWS> *m,
                                                        const struct right &r, float down, int at,
                                                        uint32_t readers) {
    int lane = (int)threadIdx.x % WARP;
    float by = warp_from(down, lane % 4 * 8);
#pragma unroll 1
    for (int e = 0; e < eights(ROWS); e++) {
        const uint4 *left = m->left + e * 2 * SPLIT_STEPS * lanes(ROWS) + lane % lanes(ROWS);
        struct chains y[2] = {};
#pragma unroll
        for (int s = 0; s < SPLIT_STEPS; s++) {
            uint4 high = left[s * lanes(ROWS)], low = left[(SPLIT_STEPS + s) * lanes(ROWS)];
            if (lane >= lanes(ROWS))
                high = low = make_uint4(0, 0, 0, 0);
            add_step(&y[0], high, low, r.b[0][s]);
            add_step(&y[1], high, low, r.b[1][s]);
        }
        close_chains(&y[0]);
        close_chains(&y[1]);
        int row = EIGHT * e + lane / 4;
        if (lane >= lanes(ROWS) || !(readers >> row & 1))
            continue;
#pragma unroll
        for (int q = 0; q < 2; q++)
            *(float4 *)&m->sum[q][row][at + lane % 4 * 4] =
                make_float4(y[0].c[2 * q] * by, y[1].c[2 * q] * by, y[0].c[2 * q + 1] * by,
                            y[1].c[2 * q + 1] * by);
    }
}

// N rows of a column with keys and queries, on their way.
template <int N> struct column {
    float a[N], b[N];
};

// What the base gives rows from `from` on with its decay; only: which of them.
template <int ROWS, int N>
static __device__ __forceinline__ void begin_rows(const struct small_shared<ROWS> *m, int c,
                                                  int from, uint32_t only, struct column<N> *x) {
#pragma unroll
    for (int i = 0; i < N; i++)
        if (only >> (from + i) & 1) {
            x->a[i] = m->sum[0][from + i][c] * m->gain[from + i];
            x->b[i] = m->sum[1][from + i][c] * m->gain[from + i];
        }
}

// Coefficients of N rows with one key.
template <int ROWS, int N>
static __device__ __forceinline__ void get_coefficients(const struct small_shared<ROWS> *m, int t,
                                                        int from, float2 *f) {
#pragma unroll
    for (int n = 0; n < N; n += 2) {
        float4 two = *(const float4 *)&m->coef[t][from + n];
        f[n] = make_float2(two.x, two.y);
        f[n + 1] = make_float2(two.z, two.w);
    }
}

// Adds committed positions [t, end).
template <int ROWS, int N>
static __device__ __forceinline__ void add_known(const struct small_shared<ROWS> *m, int c,
                                                 int from, int t, int end, struct column<N> *x) {
    enum { BATCH = N > 4 ? 2 : N > 2 ? 4 : 8 };
#pragma unroll 1
    for (; t + BATCH <= end; t += BATCH) {
        float v[BATCH]; // all on their way before the first is used
        float2 f[BATCH][N];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            v[i] = m->ring[t + i][c];
            get_coefficients<ROWS, N>(m, t + i, from, f[i]);
        }
#pragma unroll
        for (int i = 0; i < BATCH; i++)
#pragma unroll
            for (int n = 0; n < N; n++) {
                x->a[n] = fmaf(f[i][n].x, v[i], x->a[n]);
                x->b[n] = fmaf(f[i][n].y, v[i], x->b[n]);
            }
    }
#pragma unroll 1
    for (; t < end; t++) {
        float2 f[N];
        get_coefficients<ROWS, N>(m, t, from, f);
#pragma unroll
        for (int n = 0; n < N; n++) {
            x->a[n] = fmaf(f[n].x, m->ring[t][c], x->a[n]);
            x->b[n] = fmaf(f[n].y, m->ring[t][c], x->b[n]);
        }
    }
}

// Half of the rows of a column each thread: the base and committed positions. Rows of the newer
// base begin once more after the positions in front of it.
template <int ROWS>
static __device__ __forceinline__ void finish_known(struct small_shared<ROWS> *m,
                                                    const struct small_run &r) {
    enum { N = ROWS / 2 };
    int c = (int)threadIdx.x % OWN, from = (int)threadIdx.x / OWN * N;
    struct column<N> x;
    if (from >= r.count)
        return;
    begin_rows(m, c, from, ~0u, &x);
    if (r.newer) {
        add_known(m, c, from, 0, r.skip, &x);
        begin_rows(m, c, from, r.newer, &x);
    }
    add_known(m, c, from, r.newer ? r.skip : 0, r.known, &x);
#pragma unroll
    for (int i = 0; i < N; i++) {
        m->sum[0][from + i][c] = x.a[i];
        m->sum[1][from + i][c] = x.b[i];
    }
}

// A column: each row takes what its ancestors in flight add, in their order.
template <int ROWS>
static __device__ __forceinline__ void
small_descend(const struct small_job &j, const struct small_shared<ROWS> *m,
              const struct small_run &r, int head, int first) {
    int c = (int)threadIdx.x;
    float d[ROWS];
#pragma unroll
    for (int row = 0; row < ROWS; row++) {
        if (row >= r.count)
            break;
        float a = m->sum[0][row][c], b = m->sum[1][row][c];
        uint32_t above = m->above[row];
#pragma unroll
        for (int q = 0; q < row; q++)
            if (above >> q & 1) {
                float2 f = m->coef[r.known + q][row];
                a = fmaf(f.x, d[q], a);
                b = fmaf(f.y, d[q], b);
            }
        d[row] = m->beta[row] * (m->value[row][c] - a);
        int64_t at = ((int64_t)(r.row + row) * j.shape.n_v + head) * D + first + c;
        j.rows.d[at] = d[row];
        j.out[at] = fmaf(m->coef[r.known + row][row].y, d[row], b);
    }
}

// Block (half of a value head, run).
template <int ROWS>
static __global__ void __launch_bounds__(OWN_THREADS, ROWS <= 16 ? 4 : 3)
    small_deltas(const __grid_constant__ struct small_job j) {
    extern __shared__ __align__(16) unsigned char memory[];
    struct small_shared<ROWS> *m = (struct small_shared<ROWS> *)memory;
    int t = (int)threadIdx.x, w = t / WARP;
    int head = (int)blockIdx.x / 2, first = (int)blockIdx.x % 2 * OWN;
    const struct gdn_state *st = &j.states[blockIdx.y];
    struct small_run r = run_at(j, (int)blockIdx.y);
    struct columns c;
    struct right base;
    const float *lo = gdn_pointer(r.exchanged ? &st->s_hi : &st->s_lo);
    int64_t from = (int64_t)head * D * D + first + 16 * w;
    ask_columns(lo + from, &c);
    ask_log(j, m, r, st, head, first);
    __syncthreads();
    if (t < GDN_RING)
        sum_log(m->g, m->gone[0], t % GDN_RING, 0, r.known);
    else if (r.newer)
        sum_log(m->g, m->gone[1], t % GDN_RING, r.skip, r.known);
    float down = split_four(c, &base);
    gpu_await();
    gpu_let_next();
    ask_rows(j, m, r, head, first);
    struct decays<ROWS> y = ask_decays<ROWS>(j, r, head);
    copies_wait_all();
    __syncthreads();
    weigh(m, r, y);
    multiply_columns(m, base, down, 16 * w, ~r.newer);
    if (r.newer) {
        ask_columns(gdn_pointer(r.exchanged ? &st->s_lo : &st->s_hi) + from, &c);
        down = split_four(c, &base);
        multiply_columns(m, base, down, 16 * w, r.newer);
    }
    __syncthreads();
    finish_known(m, r);
    __syncthreads();
    if (t < OWN)
        small_descend(j, m, r, head, first);
}

#else

// Older devices take gdn_plain.
template <int ROWS>
static __global__ void small_products(const __grid_constant__ struct small_job j) {
    (void)j;
    gpu_await();
}

template <int ROWS>
static __global__ void small_deltas(const __grid_constant__ struct small_job j) {
    (void)j;
    gpu_await();
}

#endif

bool gdn_takes_small(const struct gpu *g, const struct gdn_shape *s) {
    return gdn_takes_matrix(g, s) && s->dk == D && s->dv == D;
}

static struct small_run small_run_of(const struct gdn_args *a, const struct gdn_run *run,
                                     const struct rows *r) {
    int64_t len = a->len[run->seq], block = len / GDN_BLOCK;
    int64_t lo = block > 0 ? (block - 1) * GDN_BLOCK : 0;
    struct small_run s = {};
    s.row = (int32_t)run->first;
    s.count = (int32_t)run->count;
    s.known = (int32_t)(len - lo);
    s.slot0 = (int32_t)(lo % GDN_RING);
    s.skip = len < GDN_BLOCK ? 0 : GDN_BLOCK;
    s.exchanged = gdn_exchanged(a->seqs[run->seq]);
    for (int i = 0; i < s.count; i++) {
        int64_t up = r->parent[run->first + i] - run->first;
        if (up >= 0)
            s.above[i] = s.above[up] | 1u << up;
        if (r->pos[run->first + i] / GDN_BLOCK > block)
            s.newer |= 1u << i;
    }
    return s;
}

// The tables of a launch; false after a fault.
static bool stage_tables(struct gpu *g, struct small_job *j, const struct gdn_args *a,
                         const struct gdn_run *runs, int n, const struct rows *rows) {
    struct small_run r[GDN_STATES] = {};
    for (int i = 0; i < n; i++)
        r[i] = small_run_of(a, &runs[i], rows);
    j->runs = (const struct small_run *)gpu_stage(g, r, (size_t)n * sizeof *r);
    j->states = gdn_stage_states(g, a, runs, n);
    return j->runs && j->states;
}

static size_t left_bytes(const struct gdn_shape *s, int rows, int n) {
    return (size_t)(n * s->n_k * lefts(rows)) * sizeof(uint4);
}

size_t gdn_small_bytes(const struct gdn_shape *s, int rows, int n) {
    return left_bytes(s, rows, n) + (size_t)(n * s->n_k * keys(rows) * rows) * sizeof(float2);
}

template <int ROWS>
static bool launch_small(struct gpu *g, const struct gdn_shape *s, struct small_job *j, int n) {
    unsigned char *scratch = (unsigned char *)gpu_scratch(g, gdn_small_bytes(s, ROWS, n));
    if (!scratch || !gpu_allow_max_shared(g, (const void *)small_deltas<ROWS>, "gdn"))
        return false;
    j->left = (uint4 *)scratch;
    j->products = (float2 *)(scratch + left_bytes(s, ROWS, n));
    gpu_launch_saying({g, "gdn products", GDN_APART}, small_products<ROWS>,
                      dim3((unsigned)s->n_k, (unsigned)n), keys(ROWS) * 4, 0, *j);
    gpu_launch_saying({g, "gdn", GDN_APART}, small_deltas<ROWS>,
                      dim3((unsigned)(s->n_v * 2), (unsigned)n), OWN_THREADS,
                      sizeof(struct small_shared<ROWS>), *j);
    return g->fault == GPU_OK;
}

static int rows_for(int64_t count) {
    return count <= 4 ? 4 : count <= 8 ? 8 : count <= 16 ? 16 : 24;
}

bool gdn_small(struct gpu *g, const struct gdn_args *a, const struct gdn_run *runs, int n,
               const struct rows *r) {
    struct small_job j = {};
    int64_t max = 0;
    j.shape = a->shape;
    j.rows = a->rows;
    j.out = a->out;
    if (!stage_tables(g, &j, a, runs, n, r))
        return false;
    for (int i = 0; i < n; i++)
        max = runs[i].count > max ? runs[i].count : max;
    switch (rows_for(max)) {
    case 4:
        return launch_small<4>(g, &a->shape, &j, n);
    case 8:
        return launch_small<8>(g, &a->shape, &j, n);
    case 16:
        return launch_small<16>(g, &a->shape, &j, n);
    default:
        return launch_small<24>(g, &a->shape, &j, n);
    }
}
