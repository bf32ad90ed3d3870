// SPDX-License-Identifier: Apache-2.0
// Linear layers of many rows by the vendor's library: weights are unpacked to fp16 once a pass,
// multiplied with all rows, and the sums' powers of two taken back; gate and up are joined, other
// sums stored or added. Sums wait in scratch memory behind the weights, as many rows at a time as
// there is room for. What comes out depends on the library, and on how many rows there are.
#include "ops/gpu/linear/many/vendor/linear.h"

#include "ops/gpu/linear/form/act.cuh"
#include "ops/gpu/linear/many/unpack.h"
#include "ops/gpu/linear/many/vendor/vendor.h"

enum { JOINERS = 512, FOURS = 9 /* a thread of theirs */ };
enum { THREADS = 128, MOST_ROWS = 32768 /* of grid.y */ };

// Sums of a job's rows, as the library leaves them.
struct vendor_sums {
    const float *at; // [n][pitch], in the order of linear_unpack
    int64_t pitch;
    const float *unscale; // [n]
    float *out;           // [n][out_stride]
    int64_t out_stride, m;
    const signed char *exponent[2]; // of the job's matrices
    bool add, pair;
};

static __device__ __forceinline__ float power_back(const signed char *exponent, int64_t m) {
    return __int_as_float((127 - exponent[m]) << 23);
}

// W neighbouring outputs.
template <int W> struct alignas(W * sizeof(float)) few {
    float v[W];
};

template <int W>
static __device__ __forceinline__ few<W> scaled(const float *at, const signed char *exponent,
                                                int64_t m, float back) {
    few<W> x = *(const few<W> *)at;
#pragma unroll
    for (int i = 0; i < W; i++)
        x.v[i] = x.v[i] * power_back(exponent, m + i) * back;
    return x;
}

// Four outputs of a pair from m on, joined.
static __device__ __forceinline__ float4 joined(const vendor_sums &s, const float *at, int64_t m,
                                                float back) {
    const float *of_pair = at + m / 8 * 16 + m % 8;
    few<4> g = scaled<4>(of_pair, s.exponent[0], m, back);
    few<4> u = scaled<4>(of_pair + 8, s.exponent[1], m, back);
#pragma unroll
    for (int i = 0; i < 4; i++)
        g.v[i] = g.v[i] / (1.0f + expf(-g.v[i])) * u.v[i];
    return make_float4(g.v[0], g.v[1], g.v[2], g.v[3]);
}

// A thread has W outputs of a row; W is 4 where all of them lie in fours.
template <int W> static __global__ void __launch_bounds__(THREADS) finish_sums(vendor_sums s) {
    gpu_await();
    int64_t m = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W, row = blockIdx.y;
    if (m >= s.m)
        return;
    const float *at = s.at + row * s.pitch;
    float *out = s.out + row * s.out_stride + m, back = s.unscale[row];
    if (s.pair) {
        const float *of_pair = at + m / 8 * 16 + m % 8;
        few<W> g = scaled<W>(of_pair, s.exponent[0], m, back);
        few<W> u = scaled<W>(of_pair + 8, s.exponent[1], m, back);
#pragma unroll
        for (int i = 0; i < W; i++)
            g.v[i] = g.v[i] / (1.0f + expf(-g.v[i])) * u.v[i];
        *(few<W> *)out = g;
        return;
    }
    few<W> x = scaled<W>(at + m, s.exponent[0], m, back), old = {};
    if (s.add)
        old = *(const few<W> *)out;
#pragma unroll
    for (int i = 0; i < W; i++)
        x.v[i] = s.add ? old.v[i] + x.v[i] : x.v[i];
    *(few<W> *)out = x;
}

// Largest value over a block of JOINERS threads.
static __device__ float block_max(float v) {
    __shared__ float part[JOINERS / 32];
    v = warp_max(v);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = v;
    __syncthreads();
    v = part[threadIdx.x % (JOINERS / 32)];
    return warp_max(v);
}

// Block: a row of a pair, joined and made an activation at once: x[n][stride] and its power.
static __global__ void __launch_bounds__(JOINERS)
    join_rows(vendor_sums s, __half *x, float *unscale, int64_t stride) {
    gpu_await();
    const int fours = (int)(s.m / 4), all = (int)(stride / 4);
    const float *at = s.at + blockIdx.x * s.pitch;
    float back = s.unscale[blockIdx.x], most = 0;
    float4 v[FOURS];
#pragma unroll
    for (int r = 0; r < FOURS; r++) {
        int i = r * JOINERS + threadIdx.x;
        v[r] = make_float4(0, 0, 0, 0);
        if (i < fours)
            v[r] = joined(s, at, i * 4, back);
        most = fmaxf(most, largest(v[r]));
    }
    int e = act_exponent(block_max(most), 126);
#pragma unroll
    for (int r = 0; r < FOURS; r++) {
        int i = r * JOINERS + threadIdx.x;
        if (i < all)
            ((uint2 *)(x + blockIdx.x * stride))[i] = act_pack(v[r], power_of_two(e));
    }
    if (threadIdx.x == 0)
        unscale[blockIdx.x] = power_of_two(-e);
}

static void finish(struct gpu *g, const vendor_sums &s, int64_t n) {
    bool fours = s.m % 4 == 0 && s.pitch % 4 == 0 && s.out_stride % 4 == 0 &&
                 (size_t)s.out % 16 == 0 && (size_t)s.at % 16 == 0;
    int64_t each = THREADS * (fours ? 4 : 1);
    dim3 grid((unsigned)((s.m + each - 1) / each), (unsigned)n);
    gpu_launch_early(g, "linear (vendor)", fours ? finish_sums<4> : finish_sums<1>, grid, THREADS,
                     0, s);
}

// A job whose weights are unpacked to `w`; sums that do not stay where the library leaves them have
// VENDOR_SUMS bytes at `sums`. act: NULL, or what a pair becomes at once.
struct vendor_job {
    const linear_one *o;
    __half *w;
    float *sums;
    const struct act *act;
};

// Rows first .. first + n of it.
static void run_rows(struct gpu *g, const struct linear_launch *l, const vendor_job &j,
                     int64_t first, int64_t n) {
    const linear_one *o = j.o;
    const bool apart = o->add || o->pair;
    vendor_sums s = {};
    s.out = o->out + first * o->out_stride;
    s.out_stride = o->out_stride;
    s.m = o->w[0].m;
    s.pitch = apart ? linear_unpacked_rows(o) : o->out_stride;
    s.at = apart ? j.sums : s.out;
    s.unscale = l->unscale + first;
    s.exponent[0] = o->w[0].exponent;
    s.exponent[1] = o->w[1].exponent;
    s.add = o->add;
    s.pair = o->pair;
    struct vendor_product p = {
        j.w, l->x + first * l->stride, (float *)s.at, apart ? s.pitch : s.m, n, l->stride, s.pitch};
    vendor_multiply(g, &p);
    if (j.act)
        gpu_launch_early(g, "linear_gate_up (vendor)", join_rows, (unsigned)n, JOINERS, 0, s,
                         (__half *)j.act->x + first * j.act->stride, j.act->unscale + first,
                         j.act->stride);
    else
        finish(g, s, n);
}

static void run_job(struct gpu *g, const struct linear_launch *l, const vendor_job &j) {
    const int64_t room = VENDOR_SUMS / (int64_t)sizeof(float) / linear_unpacked_rows(j.o);
    const int64_t most = j.o->add || j.o->pair ? room : l->n;
    const int64_t step = most < MOST_ROWS ? most : (int64_t)MOST_ROWS;
    linear_unpack(g, j.o, j.w, l->stride);
    for (int64_t at = 0; at < l->n; at += step)
        run_rows(g, l, j, at, l->n - at < step ? l->n - at : step);
}

bool linear_vendor_gate_up(struct gpu *g, struct linear_launch *l, const struct act *out) {
    const struct linear_one *o = &l->job[0];
    unsigned char *scratch = (unsigned char *)gpu_scratch(g, UNPACKED_BYTES + VENDOR_SUMS);
    bool whole = linear_unpacked_rows(o) * l->stride <= UNPACKED_BYTES / 2 && o->w[0].m % 4 == 0 &&
                 out->stride <= FOURS * JOINERS * 4;
    if (scratch && whole)
        run_job(g, l, {o, (__half *)scratch, (float *)(scratch + UNPACKED_BYTES), out});
    return scratch && whole;
}

void linear_vendor_launch(struct gpu *g, struct linear_launch *l) {
    struct linear_launch c;
    unsigned char *scratch = (unsigned char *)gpu_scratch(g, UNPACKED_BYTES + VENDOR_SUMS);
    while (scratch && linear_take(g, l, UNPACKED_BYTES / 2, &c)) {
        __half *w = (__half *)scratch;
        for (int j = 0; j < c.jobs; j++) {
            run_job(g, &c, {&c.job[j], w, (float *)(scratch + UNPACKED_BYTES), NULL});
            w += linear_unpacked_rows(&c.job[j]) * c.stride;
        }
    }
}
