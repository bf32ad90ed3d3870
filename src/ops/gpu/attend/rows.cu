// SPDX-License-Identifier: Apache-2.0
// Ops that move rows of state: head norm, rotary embedding and the K/V store with its rotation, row
// copies, and copies of K/V positions. One warp makes one head of one row, in a fixed order, so a
// row's bits depend on that row alone.
#include <math.h>

#include "ops/args/args.h"
#include "ops/gpu/kv/rotate.cuh"
#include "ops/gpu/kv/stored.cuh"
#include "ops/gpu/linear/finish.cuh"
#include "ops/gpu/linear/form/act.cuh"
#include "ops/gpu/runtime/cuda.h"
#include "ops/gpu/runtime/ops_cuda.h"

// Rotation of few rows whose pairs of values lie in one lane, so that blocks take little room and
// can run concurrently with the projections in front of them. What does not depend on those
// (angles, places, weights of norms, powers of two) is there when the wait ends; then sums that
// were left in parts are added up on the way, in the order of ops/gpu/linear/finish.cu. One warp
// makes one head of one row, as in rows.cu, with the same bits.

// The arrays of a call on the device.
struct rope_tables {
    const int64_t *pos;          // [n]
    const struct kv_slot *store; // [n]
    const double *freq;          // [rope.dims / 2] radians a position
};

// Two heads a block, so that two blocks and more find room while a product runs.
enum {
    FEW_THREADS = 64,
    FEW_WARPS = FEW_THREADS / WARP,
    FEW_BLOCKS = 10,
    FEW_MOST_ROWS = 64,
    FEW_MOST_VALUES = 8
};
enum {
    FEW_AT_ONCE = 4,
    FEW_PAIRS = FEW_MOST_VALUES * 16
}; // parts under way; pairs of a head at most

enum head_kind { QUERY, KEY, VALUE, GATE, NOTHING };

struct rope_run {
    struct qk_args a;
    struct kv_layout layout;
    struct rope_tables t;
    struct linear_left left[3]; // of q, k and v; no parts: it is stored
    int gates;                  // heads after the others: gates whose sums were left with q
};

// A warp's head, and where its values are among the outputs of its projection.
struct head {
    enum head_kind kind;
    int at;        // number among those of its kind
    int64_t first; // of its values
    int64_t width; // of a row
    const float *rows;
};

static __device__ __forceinline__ struct head few_head_of(const struct rope_run &u, int h) {
    const struct qk_args &a = u.a;
    const int queries = a.q ? a.n_heads : 0;
    if (h < queries)
        return {QUERY, h, (int64_t)h * a.q_stride, (int64_t)a.n_heads * a.q_stride, a.q};
    h -= queries;
    if (h < a.n_kv)
        return {KEY, h, (int64_t)h * a.dk, (int64_t)a.n_kv * a.dk, a.k};
    h -= a.n_kv;
    if (h < a.n_kv)
        return {VALUE, h, (int64_t)h * a.dv, (int64_t)a.n_kv * a.dv, a.v};
    h -= a.n_kv;
    if (h < u.gates)
        return {GATE, h, (int64_t)h * a.q_stride + a.dk, (int64_t)a.n_heads * a.q_stride, a.q};
    return {NOTHING, 0, 0, 0, NULL};
}

// Parts first .. first + FEW_AT_ONCE - 1 of the `parts` there are, `step` apart, all under way at
// once.
template <int VALUES>
static __device__ __forceinline__ void add_few_parts(const float *from, int64_t step, int first,
                                                     int parts, float (&x)[VALUES]) {
    float v[FEW_AT_ONCE * VALUES];
#pragma unroll
    for (int i = 0; i < FEW_AT_ONCE * VALUES; i++)
        v[i] = first + i / VALUES < parts
                   ? __ldcg(from + (first + i / VALUES) * step + i % VALUES * WARP)
                   : 0.0f;
#pragma unroll
    for (int i = 0; i < FEW_AT_ONCE * VALUES; i++)
        if (first + i / VALUES < parts)
            x[i % VALUES] = first + i / VALUES ? x[i % VALUES] + v[i] : v[i];
}

// x[j]: value j * WARP + lane of the head, from what its projection left or stored.
template <int VALUES>
static __device__ __forceinline__ void read_few(const struct linear_left &o, const struct head &d,
                                                int64_t row, int lane, const float (&power)[VALUES],
                                                float (&x)[VALUES]) {
    if (!o.parts) {
        const float *from = d.rows + row * d.width + d.first + lane;
#pragma unroll
        for (int j = 0; j < VALUES; j++)
            x[j] = __ldcg(from + j * WARP);
        return;
    }
    const float *from = o.partial + row * o.pitch + d.first + lane;
    const float back = __ldcg(o.unscale + row);
    for (int first = 0; first < o.parts; first += FEW_AT_ONCE)
        add_few_parts(from, o.n * o.pitch, first, o.parts, x);
#pragma unroll
    for (int j = 0; j < VALUES; j++)
        x[j] = x[j] * power[j] * back;
}

// RMSNorm; w: of the values, ones count as no weights.
template <int VALUES, bool WEIGHTED>
static __device__ __forceinline__ void norm_few(const float (&w)[VALUES], float eps,
                                                float (&x)[VALUES]) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < VALUES; j++)
        sum = fmaf(x[j], x[j], sum);
    const float factor = 1.0f / sqrtf(warp_sum(sum) / (float)(VALUES * WARP) + eps);
#pragma unroll
    for (int j = 0; j < VALUES; j++)
        x[j] = WEIGHTED ? x[j] * factor * w[j] : x[j] * factor;
}

// cs: cosines of the pairs, then sines; the pairs' second values stand `apart` times 32 after the
// first ones, 0: nothing turns.
template <int VALUES>
static __device__ __forceinline__ void rope_few_head(const float *cs, int apart, int lane,
                                                     float (&x)[VALUES]) {
#pragma unroll
    for (int half = 1; half <= VALUES / 2; half++) {
        if (half != apart)
            continue;
#pragma unroll
        for (int j = 0; j < half; j++) {
            const float c = cs[j * WARP + lane], s = cs[(half + j) * WARP + lane];
            const float first = x[j], second = x[j + half];
            x[j] = first * c - second * s;
            x[j + half] = second * c + first * s;
        }
    }
}

// The code of a codec stands in one place: instructions are what such a short kernel waits for.
template <int VALUES>
static __device__ __forceinline__ void store_few(int codec, struct kv_row to, int lane,
                                                 const float (&x)[VALUES]) {
    switch (codec) {
#define KV_CASE(id)                                                                                \
    case id:                                                                                       \
        for (int j = 0; j < VALUES; j++)                                                           \
            kv_stored<id>::store(to, j, lane, x[j]);                                               \
        break;
        CUDA_KV_AS_IS(KV_CASE)
#undef KV_CASE
    default:
        kv_store_rotated(codec, to, VALUES, lane, x);
    }
}

// Block (row, two heads).
template <int VALUES>
static __global__ void __launch_bounds__(FEW_THREADS, FEW_BLOCKS)
    rope_rows(const __grid_constant__ struct rope_run u) {
    __shared__ float cs[2 * FEW_PAIRS];
    const struct qk_args &a = u.a;
    const int64_t row = blockIdx.x;
    const int lane = threadIdx.x % WARP, pairs = a.rope.dims / 2;
    const struct head d = few_head_of(u, (int)blockIdx.y * FEW_WARPS + (int)threadIdx.x / WARP);
    const struct linear_left &o = u.left[d.kind == KEY ? 1 : d.kind == VALUE ? 2 : 0];
    const float *norm = d.kind == QUERY ? a.q_norm : d.kind == KEY ? a.k_norm : NULL;
    const double pos = (double)__ldcg((const long long *)&u.t.pos[row]);
    const double size = a.rope.magnitude > 0 ? (double)a.rope.magnitude : 1.0;
    for (int t = threadIdx.x; t < pairs; t += FEW_THREADS) {
        double s, c;
        sincos(pos * __ldcg(&u.t.freq[t]), &s, &c);
        cs[t] = (float)(c * size);
        cs[pairs + t] = (float)(s * size);
    }
    float power[VALUES], w[VALUES], x[VALUES] = {};
#pragma unroll
    for (int j = 0; j < VALUES; j++) {
        power[j] = d.kind != NOTHING && o.parts
                       ? exponent_power(o.exponent[0][d.first + j * WARP + lane])
                       : 0.0f;
        w[j] = norm ? norm[j * WARP + lane] : 1.0f;
    }
    struct kv_slot slot = {NULL, 0};
    if (d.kind == KEY || d.kind == VALUE)
        slot = u.t.store[row];
    __syncthreads();
    gpu_await();
    gpu_let_next();
    if (d.kind == NOTHING)
        return;
    read_few(o, d, row, lane, power, x);
    if (d.kind == GATE) {
        float *out = o.out + row * o.out_stride + d.first + lane;
#pragma unroll
        for (int j = 0; j < VALUES; j++)
            out[j * WARP] = x[j];
        return;
    }
    if (norm)
        norm_few<VALUES, true>(w, a.eps, x);
    else if (d.kind == VALUE && a.v_norm)
        norm_few<VALUES, false>(w, a.eps, x);
    if (d.kind != VALUE)
        rope_few_head(cs, pairs / 32, lane, x);
    const struct kv_layout *l = &u.layout;
    const bool query = d.kind == QUERY;
    rotate_head<false>(x, VALUES * WARP, d.kind == VALUE ? l->rotate_v : l->rotate_k, lane);
    struct kv_row to = {(unsigned char *)(a.q_out + (row * a.n_heads + d.at) * a.dk), NULL};
    if (!query)
        to = kv_row_at(l, d.kind == VALUE ? &l->v : &l->k, slot.page, a.layer, d.at, slot.slot);
    store_few(query             ? (int)KV_F32
              : d.kind == VALUE ? (int)l->s.codec_v
                                : (int)l->s.codec_k,
              to, lane, x);
}

// Whether heads are what the kernels take: whole, of 128 or 256 values, pairs 32 or a multiple
// apart.
static bool takes_few(const struct qk_args *a, int64_t n) {
    return n > 1 && n <= FEW_MOST_ROWS && a->k && a->v && a->v != a->k && !a->k_rest &&
           a->dk == a->dv && (a->dk == 128 || a->dk == 256) && a->rope.pairs == ROPE_HALVES &&
           a->rope.first == 0 && a->rope.dims % 64 == 0 && a->rope.dims <= a->dk &&
           (!a->q || a->q_stride == a->dk || a->q_stride == 2 * a->dk);
}

static bool rope_few(struct gpu *g, const struct qk_args *a, const struct rope_tables *t,
                     int64_t n) {
    if (!takes_few(a, n))
        return false;
    struct rope_run u = {};
    u.a = *a;
    u.layout = *a->layout;
    u.t = *t;
    const float *const rows[3] = {a->q, a->k, a->v};
    const int64_t kv = (int64_t)a->n_kv * a->dk;
    const int64_t width[3] = {(int64_t)a->n_heads * a->q_stride, kv, kv};
    if (linear_take_rows(g, rows, width, 3, n, u.left) && u.left[0].parts && a->q_stride > a->dk)
        u.gates = a->n_heads;
    const int heads = (a->q ? a->n_heads : 0) + 2 * a->n_kv + u.gates;
    const dim3 grid((unsigned)n, (unsigned)((heads + FEW_WARPS - 1) / FEW_WARPS));
    const struct launch_says says = {MEMORY_WEIGHTS, MEMORY_ROWS | MEMORY_FRESH, false, t->store,
                                     false};
    if (a->dk == 256)
        gpu_launch_saying({g, "qk_norm_rope_store", says}, rope_rows<8>, grid, FEW_THREADS, 0, u);
    else
        gpu_launch_saying({g, "qk_norm_rope_store", says}, rope_rows<4>, grid, FEW_THREADS, 0, u);
    return true;
}

enum { THREADS = 256, WARP_VALUES = OPS_KEY_MAX / WARP };
// Threads for a single row; values of a lane that may be left, and parts of them.
enum { ALONE = 64, LEFT_VALUES = 4, LEFT_PARTS = 4 };

struct qk_run {
    struct qk_args a;
    struct kv_layout layout;
    const int64_t *pos;
    const struct kv_slot *store;
    const double *freq; // [rope_dims / 2] radians a position
    // Of a single row: what its linear layers left of q, k and v (no parts: it is stored), and of a
    // gate next to them, whose outputs are made by blocks after those of the heads.
    struct linear_left left[4];
    int head_blocks;
};

// Element i * WARP + lane of a head is x[i].
static __device__ __forceinline__ void store_head(const float (&x)[WARP_VALUES], int dim, int codec,
                                                  struct kv_row to, int lane) {
    if (kv_store_rotated(codec, to, dim / WARP, lane, x))
        return;
#pragma unroll
    for (int i = 0; i < WARP_VALUES; i++) {
        if (i * WARP >= dim)
            break;
        kv_store32(codec, to, i, lane, x[i]);
    }
}

// RMSNorm of one head of d values: x[i] = element i * WARP + lane. w: NULL, no weights.
static __device__ __forceinline__ void norm_head(const float *w, int d, float eps, float *x,
                                                 int lane) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < WARP_VALUES; i++) {
        if (i * WARP >= d)
            break;
        sum = fmaf(x[i], x[i], sum);
    }
    float factor = 1.0f / sqrtf(warp_sum(sum) / (float)d + eps);
#pragma unroll
    for (int i = 0; i < WARP_VALUES; i++) {
        if (i * WARP >= d)
            break;
        x[i] = w ? x[i] * factor * w[i * WARP + lane] : x[i] * factor;
    }
}

// Rotation of one head, through the warp's shared row. cs: cosines of the pairs, then sines.
static __device__ __forceinline__ void rope_head(const struct qk_args *a, const float *cs,
                                                 float *row, float *x, int lane) {
    const int pairs = a->rope.dims / 2;
    const bool halves = a->rope.pairs == ROPE_HALVES;
#pragma unroll
    for (int i = 0; i < WARP_VALUES; i++) {
        if (i * WARP >= a->dk)
            break;
        row[i * WARP + lane] = x[i];
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < WARP_VALUES; i++) {
        const int at = i * WARP + lane - a->rope.first;
        if (i * WARP >= a->dk)
            break;
        if (at < 0 || at >= 2 * pairs)
            continue;
        const bool second = halves ? at >= pairs : at % 2;
        const int pair = !halves ? at / 2 : second ? at - pairs : at;
        const float other =
            row[(halves ? second ? at - pairs : at + pairs : at ^ 1) + a->rope.first];
        const float c = cs[pair], s = cs[pairs + pair];
        x[i] = second ? x[i] * c + other * s : x[i] * c - other * s;
    }
}

static __device__ struct kv_row head_at(const struct qk_run *u, int64_t row, bool value, int head) {
    const struct kv_layout *l = &u->layout;
    const struct kv_slot *s = &u->store[row];
    return kv_row_at(l, value ? &l->v : &l->k, s->page, u->a.layer, head, s->slot);
}

// Where head number h of a row is read: query heads, then key heads, then value heads.
static __device__ const float *head_from(const struct qk_args *a, int queries, int64_t row, int h) {
    if (h < queries)
        return a->q + (row * a->n_heads + h) * a->q_stride;
    h -= queries;
    if (!a->k)
        return NULL;
    if (h < a->n_kv)
        return a->k + (row * a->n_kv + h) * (a->k_rest ? a->dv : a->dk);
    return a->v && h < 2 * a->n_kv ? a->v + (row * a->n_kv + h - a->n_kv) * a->dv : NULL;
}

// What stands after a key head's first dv values.
static __device__ void add_rest(const struct qk_args *a, int64_t head, float *x, int lane) {
    const float *from = a->k_rest + head * (a->dk - a->dv) - a->dv;
#pragma unroll
    for (int j = 0; j < WARP_VALUES; j++)
        if (j * WARP >= a->dv && j * WARP < a->dk)
            x[j] = from[j * WARP + lane];
}

// A head of a single row whose parts are not added up yet. What can be read in front of gpu_await
// is; then all parts of all values are under way at once.
struct left_head {
    const float *at;
    int64_t step; // to the next part
    int parts;    // 0: it is stored at `at`
    float power[LEFT_VALUES];

    __device__ __forceinline__ left_head(const struct qk_run &u, int queries, int h, int lane,
                                         const float *from) {
        const int which = h < queries ? 0 : h - queries < u.a.n_kv ? 1 : 2;
        const struct linear_left &o = u.left[which];
        const float *begin = which == 0 ? u.a.q : which == 1 ? u.a.k : u.a.v;
        const int64_t m = from ? from - begin + lane : 0;
        parts = from ? o.parts : 0;
        at = parts ? o.partial + m : from + lane;
        step = o.pitch;
#pragma unroll
        for (int j = 0; j < LEFT_VALUES; j++)
            power[j] =
                parts && j * WARP < u.a.dk ? exponent_power(o.exponent[0][m + j * WARP]) : 0.0f;
    }
    __device__ __forceinline__ void add_up(int dk, float back, float (&x)[WARP_VALUES]) const {
        float v[LEFT_VALUES][LEFT_PARTS];
#pragma unroll
        for (int i = 0; i < LEFT_VALUES * LEFT_PARTS; i++) {
            const int j = i % LEFT_VALUES, p = i / LEFT_VALUES;
            v[j][p] =
                p < (parts ? parts : 1) && j * WARP < dk ? __ldcg(at + p * step + j * WARP) : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < LEFT_VALUES; j++) {
            float sum = v[j][0];
#pragma unroll
            for (int p = 1; p < LEFT_PARTS; p++)
                sum = p < parts ? sum + v[j][p] : sum;
            x[j] = parts ? sum * power[j] * back : sum;
        }
    }
};

// Output m of the gate that was left.
static __device__ __forceinline__ void left_gate(const struct linear_left &o, int64_t m) {
    const signed char e = m < o.m ? o.exponent[0][m] : (signed char)0;
    gpu_await();
    gpu_let_next();
    if (m < o.m)
        o.out[m] = finish_one(o, 0, m, __ldcg(o.unscale), e);
}

// Block (row, some heads), one head a warp. Angles come from tables alone, in front of gpu_await.
template <int T, bool LEFT>
static __global__ void __launch_bounds__(T) qk_rows(const __grid_constant__ struct qk_run u) {
    enum { WARPS = T / WARP };
    __shared__ float cs[OPS_KEY_MAX], rows[WARPS][OPS_KEY_MAX];
    if (LEFT && (int)blockIdx.y >= u.head_blocks) {
        left_gate(u.left[3], (int64_t)(blockIdx.y - u.head_blocks) * T + threadIdx.x);
        return;
    }
    const struct qk_args *a = &u.a;
    int64_t i = blockIdx.x;
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, pairs = a->rope.dims / 2;
    int queries = a->q ? a->n_heads : 0, h = blockIdx.y * WARPS + warp;
    const float *from = head_from(a, queries, i, h);
    double pos = (double)__ldcg((const long long *)&u.pos[i]);
    double size = a->rope.magnitude > 0 ? (double)a->rope.magnitude : 1.0;
    for (int t = threadIdx.x; t < pairs; t += T) {
        double s, c;
        sincos(pos * __ldcg(&u.freq[t]), &s, &c);
        cs[t] = (float)(c * size);
        cs[pairs + t] = (float)(s * size);
    }
    const int width = h < queries || (h < queries + a->n_kv && !a->k_rest) ? a->dk : a->dv;
    float x[WARP_VALUES] = {};
    if constexpr (LEFT) {
        const struct left_head left(u, queries, h, lane, from);
        gpu_await();
        gpu_let_next();
        if (from)
            left.add_up(a->dk, __ldcg(u.left[0].unscale), x);
    } else {
        gpu_await();
        gpu_let_next();
#pragma unroll
        for (int j = 0; j < WARP_VALUES; j++)
            x[j] = from && j * WARP < width ? from[j * WARP + lane] : 0.0f;
    }
    if (!LEFT && a->k_rest && from && h >= queries)
        add_rest(a, i * a->n_kv + h - queries, x, lane);
    __syncthreads();
    if (!from)
        return;
    if (h < queries) {
        if (a->q_norm)
            norm_head(a->q_norm, a->dk, a->eps, x, lane);
        rope_head(a, cs, rows[warp], x, lane);
        rotate_head<false>(x, a->dk, u.layout.rotate_k, lane);
        float *out = a->q_out + (i * a->n_heads + h) * a->dk;
        struct kv_row to = {(unsigned char *)out, NULL};
        store_head(x, a->dk, KV_F32, to, lane);
        return;
    }
    h -= queries;
    if (h < a->n_kv) {
        if (a->k_rest)
            norm_head(a->value_norm, a->dv, a->value_eps, x, lane);
        else if (a->k_norm)
            norm_head(a->k_norm, a->dk, a->eps, x, lane);
        rope_head(a, cs, rows[warp], x, lane);
        rotate_head<false>(x, a->dk, u.layout.rotate_k, lane);
        store_head(x, a->dk, u.layout.s.codec_k, head_at(&u, i, false, h), lane);
        return;
    }
    if (a->v_norm)
        norm_head(NULL, a->dv, a->eps, x, lane);
    rotate_head<false>(x, a->dv, u.layout.rotate_v, lane);
    store_head(x, a->dv, u.layout.s.codec_v, head_at(&u, i, true, h - a->n_kv), lane);
}

// Values of a single row may be left in parts.
static void launch_qk(struct gpu *g, struct qk_run *u, int64_t n) {
    const struct qk_args *a = &u->a;
    const struct launch_says says = {
        MEMORY_WEIGHTS, MEMORY_ROWS | (a->k ? (unsigned)MEMORY_FRESH : 0u), false, u->store, false};
    const int heads = (a->q ? a->n_heads : 0) + (a->k ? (a->v ? 2 : 1) * a->n_kv : 0);
    const int warps = (n == 1 ? (int)ALONE : (int)THREADS) / WARP;
    const float *const from[3] = {a->q, a->k, a->v};
    const bool whole = a->q && a->k && a->v && a->v != a->k && a->q_stride == a->dk &&
                       a->dv == a->dk && !a->k_rest && linear_left_parts(g) <= LEFT_PARTS;
    u->head_blocks = (heads + warps - 1) / warps;
    dim3 grid((unsigned)n, (unsigned)u->head_blocks);
    if (n == 1 && whole && a->dk <= LEFT_VALUES * WARP &&
        linear_take_row(g, from, 3, true, u->left)) {
        const struct linear_left *o = u->left;
        for (int j = 0; j < 4; j++) // all have the same rows
            u->left[0].unscale = o[j].parts ? o[j].unscale : o[0].unscale;
        grid.y += (unsigned)((o[3].parts ? o[3].m + ALONE - 1 : 0) / ALONE);
        gpu_launch_saying({g, "qk_norm_rope_store", says}, qk_rows<ALONE, true>, grid, ALONE, 0,
                          *u);
    } else if (n == 1) {
        gpu_launch_saying({g, "qk_norm_rope_store", says}, qk_rows<ALONE, false>, grid, ALONE, 0,
                          *u);
    } else {
        gpu_launch_saying({g, "qk_norm_rope_store", says}, qk_rows<THREADS, false>, grid, THREADS,
                          0, *u);
    }
}

// Angles are products in double precision, as the scalar op takes them, so their sine and cosine
// are the scalar op's up to a last bit, at any position.
extern "C" void cuda_qk_norm_rope_store(struct exec *x, const struct qk_args *a,
                                        const struct rows *r) {
    struct gpu *g = gpu_of(x);
    if (r->n == 0)
        return;
    if (cuda_qk_lacks(a)) {
        gpu_check(g, GPU_NOT_SUPPORTED, "qk_norm_rope_store: a form without a kernel");
        return;
    }
    double freq[OPS_KEY_MAX / 2 + 1] = {0};
    int pairs = a->rope.dims / 2;
    rope_angles(&a->rope, freq);
    struct qk_run u = {};
    u.a = *a;
    if (a->layout)
        u.layout = *a->layout;
    u.pos = (const int64_t *)gpu_stage(g, r->pos, (size_t)r->n * sizeof *r->pos);
    if (a->k)
        u.store = (const struct kv_slot *)gpu_stage(g, a->store, (size_t)r->n * sizeof *a->store);
    u.freq = (const double *)gpu_stage(g, freq, (size_t)(pairs + 1) * sizeof *freq);
    if (!u.pos || (a->k && !u.store) || !u.freq)
        return;
    const struct rope_tables tables = {u.pos, u.store, u.freq};
    if (!rope_few(g, a, &tables, r->n))
        launch_qk(g, &u, r->n);
}

// Indices of few rows, and places of few positions, come with the launch: no copy in front of it.
enum { FEW_ROWS = 64, FEW_SLOTS = 32 };
struct row_index {
    const int32_t *more; // of more rows, or NULL
    int32_t at[FEW_ROWS];
};
struct few_slots {
    struct kv_slot dst[FEW_SLOTS], src[FEW_SLOTS];
};

// Rows in units of T; block (row, part of the row).
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    copy_units(unsigned char *dst, size_t stride, const unsigned char *src,
               const __grid_constant__ struct row_index index, size_t units) {
    const int32_t at = index.more ? index.more[blockIdx.x] : index.at[blockIdx.x];
    gpu_await();
    gpu_let_next();
    T *to = (T *)(dst + blockIdx.x * stride);
    const T *from = (const T *)src + (size_t)at * units;
    for (size_t i = (size_t)blockIdx.y * THREADS + threadIdx.x; i < units;
         i += (size_t)gridDim.y * THREADS)
        to[i] = from[i];
}

template <typename T>
static void launch_copy(struct gpu *g, void *dst, size_t stride, const void *src,
                        const struct row_index *index, int64_t n, size_t row_bytes) {
    size_t units = row_bytes / sizeof(T), blocks = (units + THREADS - 1) / THREADS;
    dim3 grid((unsigned)n, (unsigned)(blocks < 64 ? blocks : 64));
    gpu_launch_early(g, "copy_rows", copy_units<T>, grid, THREADS, 0, (unsigned char *)dst, stride,
                     (const unsigned char *)src, *index, units);
}

extern "C" void cuda_copy_rows(struct exec *x, void *dst, size_t dst_stride, const void *src,
                               const int32_t *index, int64_t n, size_t row_bytes) {
    struct gpu *g = gpu_of(x);
    if (n == 0 || row_bytes == 0)
        return;
    struct row_index at = {};
    if (n > FEW_ROWS)
        at.more = (const int32_t *)gpu_stage(g, index, (size_t)n * sizeof *index);
    else
        __builtin_memcpy(at.at, index, (size_t)n * sizeof *index);
    if (n > FEW_ROWS && !at.more)
        return;
    size_t all = (size_t)dst | dst_stride | (size_t)src | row_bytes;
    if (all % 16 == 0)
        launch_copy<uint4>(g, dst, dst_stride, src, &at, n, row_bytes);
    else if (all % 4 == 0)
        launch_copy<unsigned>(g, dst, dst_stride, src, &at, n, row_bytes);
    else
        launch_copy<unsigned char>(g, dst, dst_stride, src, &at, n, row_bytes);
    gpu_check(g, gpu_last_error(), "copy_rows");
}

// Rows of all heads of a plane, `bytes` each, in units of T.
template <typename T>
static __device__ void copy_plane(unsigned char *to, int32_t to_slot, const unsigned char *from,
                                  int32_t from_slot, int heads, int64_t bytes) {
    int units = (int)(bytes / (int)sizeof(T));
    for (int i = threadIdx.x; i < heads * units; i += THREADS) {
        int64_t head = i / units * KV_PAGE, at = i % units;
        ((T *)(to + (head + to_slot) * bytes))[at] =
            ((const T *)(from + (head + from_slot) * bytes))[at];
    }
}

// Block (position, layer): the rows of all heads. dst and src: of more positions, or NULL.
static __global__ void __launch_bounds__(THREADS)
    copy_positions(const __grid_constant__ struct kv_layout l,
                   const __grid_constant__ struct few_slots few, const struct kv_slot *dst,
                   const struct kv_slot *src) {
    struct kv_slot to = dst ? dst[blockIdx.x] : few.dst[blockIdx.x];
    struct kv_slot from = src ? src[blockIdx.x] : few.src[blockIdx.x];
    gpu_await();
    gpu_let_next();
    unsigned char *t = to.page + blockIdx.y * l.layer_bytes;
    const unsigned char *f = from.page + blockIdx.y * l.layer_bytes;
    for (int i = 0; i < (l.s.v_in_k ? 1 : 2); i++) {
        const struct kv_plane *p = i ? &l.v : &l.k;
        if (p->code_row % sizeof(uint4) == 0)
            copy_plane<uint4>(t + p->codes, to.slot, f + p->codes, from.slot, l.s.n_heads,
                              p->code_row);
        else
            copy_plane<uint2>(t + p->codes, to.slot, f + p->codes, from.slot, l.s.n_heads,
                              p->code_row);
        copy_plane<unsigned short>(t + p->scales, to.slot, f + p->scales, from.slot, l.s.n_heads,
                                   p->scale_row);
    }
}

extern "C" void cuda_kv_copy(struct exec *x, const struct kv_layout *l, const struct kv_slot *dst,
                             const struct kv_slot *src, int64_t n) {
    struct gpu *g = gpu_of(x);
    if (n == 0)
        return;
    const struct kv_slot *to = NULL, *from = NULL;
    const size_t bytes = (size_t)n * sizeof *dst;
    struct few_slots few = {};
    if (n > FEW_SLOTS) {
        to = (const struct kv_slot *)gpu_stage(g, dst, bytes);
        from = (const struct kv_slot *)gpu_stage(g, src, bytes);
        if (!to || !from)
            return;
    } else {
        __builtin_memcpy(few.dst, dst, bytes);
        __builtin_memcpy(few.src, src, bytes);
    }
    dim3 grid((unsigned)n, (unsigned)l->s.n_layers);
    gpu_launch_early(g, "kv_copy", copy_positions, grid, THREADS, 0, *l, few, to, from);
}
