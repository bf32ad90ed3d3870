// SPDX-License-Identifier: Apache-2.0
// Rotation of few rows whose pairs of values lie in one lane, so that blocks take little room and
// can stand beside the projections in front of them. What does not depend on those (angles, places,
// weights of norms, powers of two) is there when the wait ends; then sums that were left in parts
// are added up on the way, in the order of ops/gpu/linear/finish.cu. One warp makes one head of one
// row, as in rows.cu, with the same bits.
#include <math.h>

#include "ops/gpu/attend/kv_stored.cuh"
#include "ops/gpu/attend/turn_few.h"
#include "ops/gpu/linear/finish.cuh"
#include "ops/gpu/linear/form/act.cuh"
#include "ops/gpu/runtime/ops_cuda.h"

// Two heads a block, so that two blocks and more find room beside a product.
enum { THREADS = 64, WARPS = THREADS / WARP, BLOCKS = 10, MOST_ROWS = 64, MOST_VALUES = 8 };
enum { AT_ONCE = 4, PAIRS = MOST_VALUES * 16 }; // parts under way; pairs of a head at most

enum head_kind { QUERY, KEY, VALUE, GATE, NOTHING };

struct turn_run {
    struct qk_args a;
    struct kv_layout layout;
    struct turn_tables t;
    struct linear_left left[3]; // of q, k and v; no parts: it is stored
    int gates;                  // heads behind the others: gates whose sums were left with q
};

// A warp's head, and where its values are among the outputs of its projection.
struct head {
    enum head_kind kind;
    int at;        // number among those of its kind
    int64_t first; // of its values
    int64_t width; // of a row
    const float *rows;
};

static __device__ __forceinline__ struct head head_of(const struct turn_run &u, int h) {
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

// Parts first .. first + AT_ONCE - 1 of the `parts` there are, `step` apart, all under way at once.
template <int VALUES>
static __device__ __forceinline__ void add_parts(const float *from, int64_t step, int first,
                                                 int parts, float (&x)[VALUES]) {
    float v[AT_ONCE * VALUES];
#pragma unroll
    for (int i = 0; i < AT_ONCE * VALUES; i++)
        v[i] = first + i / VALUES < parts
                   ? __ldcg(from + (first + i / VALUES) * step + i % VALUES * WARP)
                   : 0.0f;
#pragma unroll
    for (int i = 0; i < AT_ONCE * VALUES; i++)
        if (first + i / VALUES < parts)
            x[i % VALUES] = first + i / VALUES ? x[i % VALUES] + v[i] : v[i];
}

// x[j]: value j * WARP + lane of the head, from what its projection left or stored.
template <int VALUES>
static __device__ __forceinline__ void read_head(const struct linear_left &o, const struct head &d,
                                                 int64_t row, int lane,
                                                 const float (&power)[VALUES], float (&x)[VALUES]) {
    if (!o.parts) {
        const float *from = d.rows + row * d.width + d.first + lane;
#pragma unroll
        for (int j = 0; j < VALUES; j++)
            x[j] = __ldcg(from + j * WARP);
        return;
    }
    const float *from = o.partial + row * o.pitch + d.first + lane;
    const float back = __ldcg(o.unscale + row);
    for (int first = 0; first < o.parts; first += AT_ONCE)
        add_parts(from, o.n * o.pitch, first, o.parts, x);
#pragma unroll
    for (int j = 0; j < VALUES; j++)
        x[j] = x[j] * power[j] * back;
}

// RMSNorm; w: of the values, ones count as no weights.
template <int VALUES, bool WEIGHTED>
static __device__ __forceinline__ void norm_head(const float (&w)[VALUES], float eps,
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

// cs: cosines of the pairs, then sines; the pairs' second values stand `apart` times 32 behind the
// first ones, 0: nothing turns.
template <int VALUES>
static __device__ __forceinline__ void turn_head(const float *cs, int apart, int lane,
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
static __device__ __forceinline__ void store_head(int codec, struct kv_row to, int lane,
                                                  const float (&x)[VALUES]) {
    switch (codec) {
#define KV_CASE(id, ...)                                                                           \
    case id:                                                                                       \
        for (int j = 0; j < VALUES; j++)                                                           \
            kv_stored<id>::store(to, j, lane, x[j]);                                               \
        break;
        KV_CODECS(KV_CASE)
#undef KV_CASE
    }
}

// Block (row, two heads).
template <int VALUES>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
    turn_rows(const __grid_constant__ struct turn_run u) {
    __shared__ float cs[2 * PAIRS];
    const struct qk_args &a = u.a;
    const int64_t row = blockIdx.x;
    const int lane = threadIdx.x % WARP, pairs = a.rope.dims / 2;
    const struct head d = head_of(u, (int)blockIdx.y * WARPS + (int)threadIdx.x / WARP);
    const struct linear_left &o = u.left[d.kind == KEY ? 1 : d.kind == VALUE ? 2 : 0];
    const float *norm = d.kind == QUERY ? a.q_norm : d.kind == KEY ? a.k_norm : NULL;
    const double pos = (double)__ldcg((const long long *)&u.t.pos[row]);
    const double size = a.rope.magnitude > 0 ? (double)a.rope.magnitude : 1.0;
    for (int t = threadIdx.x; t < pairs; t += THREADS) {
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
    read_head(o, d, row, lane, power, x);
    if (d.kind == GATE) {
        float *out = o.out + row * o.out_stride + d.first + lane;
#pragma unroll
        for (int j = 0; j < VALUES; j++)
            out[j * WARP] = x[j];
        return;
    }
    if (norm)
        norm_head<VALUES, true>(w, a.eps, x);
    else if (d.kind == VALUE && a.v_norm)
        norm_head<VALUES, false>(w, a.eps, x);
    if (d.kind != VALUE)
        turn_head(cs, pairs / 32, lane, x);
    const struct kv_layout *l = &u.layout;
    const bool query = d.kind == QUERY;
    struct kv_row to = {(unsigned char *)(a.q_out + (row * a.n_heads + d.at) * a.dk), NULL};
    if (!query)
        to = kv_row_at(l, d.kind == VALUE ? &l->v : &l->k, slot.page, a.layer, d.at, slot.slot);
    store_head(query             ? (int)KV_F32
               : d.kind == VALUE ? (int)l->s.codec_v
                                 : (int)l->s.codec_k,
               to, lane, x);
}

// Whether heads are what the kernels take: whole, of 128 or 256 values, pairs 32 or a multiple
// apart.
static bool takes(const struct qk_args *a, int64_t n) {
    return n > 1 && n <= MOST_ROWS && a->k && a->v && a->v != a->k && !a->k_rest &&
           a->dk == a->dv && (a->dk == 128 || a->dk == 256) && a->rope.pairs == ROPE_HALVES &&
           a->rope.first == 0 && a->rope.dims % 64 == 0 && a->rope.dims <= a->dk &&
           (!a->q || a->q_stride == a->dk || a->q_stride == 2 * a->dk);
}

extern "C" bool turn_few(struct gpu *g, const struct qk_args *a, const struct turn_tables *t,
                         int64_t n) {
    if (!takes(a, n))
        return false;
    struct turn_run u = {};
    u.a = *a;
    u.layout = *a->layout;
    u.t = *t;
    const float *const rows[3] = {a->q, a->k, a->v};
    const int64_t kv = (int64_t)a->n_kv * a->dk;
    const int64_t width[3] = {(int64_t)a->n_heads * a->q_stride, kv, kv};
    if (linear_take_rows(g, rows, width, 3, n, u.left) && u.left[0].parts && a->q_stride > a->dk)
        u.gates = a->n_heads;
    const int heads = (a->q ? a->n_heads : 0) + 2 * a->n_kv + u.gates;
    const dim3 grid((unsigned)n, (unsigned)((heads + WARPS - 1) / WARPS));
    const struct launch_says says = {MEMORY_WEIGHTS, MEMORY_ROWS | MEMORY_FRESH, false, t->store,
                                     false};
    if (a->dk == 256)
        gpu_launch_saying({g, "qk_norm_rope_store", says}, turn_rows<8>, grid, THREADS, 0, u);
    else
        gpu_launch_saying({g, "qk_norm_rope_store", says}, turn_rows<4>, grid, THREADS, 0, u);
    return true;
}
