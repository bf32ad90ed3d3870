// SPDX-License-Identifier: Apache-2.0
// Adding up what few-row linear layers left of a k that was cut into parts: four outputs of one
// row, in the order of the parts, powers of two taken back. For kernels that finish such sums.
#ifndef COPPICE_OPS_GPU_LINEAR_FINISH_CUH
#define COPPICE_OPS_GPU_LINEAR_FINISH_CUH

#include "ops/gpu/linear/launch.h"

static __device__ __forceinline__ float4 add_fours(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

static __device__ __forceinline__ float exponent_power(signed char e) {
    return __int_as_float((127 - e) << 23);
}

// The exponents of outputs 4 i to 4 i + 3 of matrix t.
static __device__ __forceinline__ char4 finish_exponents(const struct linear_left &o, int t,
                                                         int64_t i) {
    return *(const char4 *)(o.exponent[t] + i * 4);
}

// Outputs 4 i to 4 i + 3 of row `row` of matrix t; back: the row's power of two; e: the exponents.
// All loads of parts are under way at once.
static __device__ __forceinline__ float4 finish_four(const struct linear_left &o, int t,
                                                     int64_t row, int64_t i, float back, char4 e) {
    const float4 *at = (const float4 *)(o.partial + (t * o.n + row) * o.pitch) + i;
    const int64_t step = (o.pair ? 2 : 1) * o.n * o.pitch / 4; // to the next part
    float4 v[LINEAR_PARTS];
#pragma unroll
    for (int p = 0; p < LINEAR_PARTS; p++)
        if (p < o.parts)
            v[p] = __ldcg(at + p * step);
    float4 sum = v[0];
#pragma unroll
    for (int p = 1; p < LINEAR_PARTS; p++)
        if (p < o.parts)
            sum = add_fours(sum, v[p]);
    return make_float4(sum.x * exponent_power(e.x) * back, sum.y * exponent_power(e.y) * back,
                       sum.z * exponent_power(e.z) * back, sum.w * exponent_power(e.w) * back);
}

static __device__ __forceinline__ float4 finish_four(const struct linear_left &o, int t,
                                                     int64_t row, int64_t i, float back) {
    return finish_four(o, t, row, i, back, finish_exponents(o, t, i));
}

// Output m of row `row`, of a job without `add` or `pair`; e: its exponent.
static __device__ __forceinline__ float finish_one(const struct linear_left &o, int64_t row,
                                                   int64_t m, float back, signed char e) {
    const float *at = o.partial + row * o.pitch + m;
    const int64_t step = o.n * o.pitch;
    float v[LINEAR_PARTS];
#pragma unroll
    for (int p = 0; p < LINEAR_PARTS; p++)
        if (p < o.parts)
            v[p] = __ldcg(at + p * step);
    float sum = v[0];
#pragma unroll
    for (int p = 1; p < LINEAR_PARTS; p++)
        if (p < o.parts)
            sum += v[p];
    return sum * exponent_power(e) * back;
}

static __device__ __forceinline__ float finish_one(const struct linear_left &o, int64_t row,
                                                   int64_t m, float back) {
    return finish_one(o, row, m, back, o.exponent[0][m]);
}

// Whether what is deferred are jobs of one row that neither add nor join, whose outputs are `rows`
// or, with `other`, one more: then they are the caller's to finish by its next launch. left[i]: of
// rows[i], without parts if that is stored already; left[count]: of the other one. False: nothing
// is changed.
bool linear_take_row(struct gpu *g, const float *const *rows, int count, bool other,
                     struct linear_left *left);

// The same for jobs of n rows among `rows`, whose outputs are width[i] a row; without others.
bool linear_take_rows(struct gpu *g, const float *const *rows, const int64_t *width, int count,
                      int64_t n, struct linear_left *left);

// Like linear_take_sums, if that job does not add, and its rows' powers of two are not those that
// the caller's launch writes.
bool linear_take_product(struct gpu *g, const float *rows, int64_t n, int64_t k,
                         const float *written, struct linear_left *left);

// Holds back a job of those, which the launch that stores its outputs takes up after some that
// pass it by (launch_says.passes): linear_take_held, which says whether that are `row`. All others
// find it added up.
void linear_hold(struct gpu *g, const struct linear_left *left);
bool linear_take_held(struct gpu *g, const float *row, int64_t m, struct linear_left *left);

// The most parts of a job whose sums are deferred; 0: there is none.
int linear_left_parts(const struct gpu *g);

#endif
