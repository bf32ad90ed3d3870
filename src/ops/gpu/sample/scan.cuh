// SPDX-License-Identifier: Apache-2.0
// Rows of logits as their scores, and `scan_logits`, which goes over all of them once (sample.cu).
#ifndef COPPICE_OPS_GPU_SAMPLE_SCAN_CUH
#define COPPICE_OPS_GPU_SAMPLE_SCAN_CUH

#include "base/num.h"
#include "ops/gpu/runtime/gpu.h"
#include "ops/gpu/runtime/ops_cuda.h"
#include "ops/rowmath.h"

enum {
    GROUP = 128,        // neighbouring ids; a warp's work at a time
    SCAN_THREADS = 256, // threads
    SPAN = 4,           // groups of a warp of scan_logits
    THREADS = 1024,     // of choose and rank
    LIST = 2048,        // elements of the short list
    BINS = 2048,        // of a histogram: two 11-bit digits and a 10-bit one
    FILTER = 8192,      // bits that tell most ids without a penalty or bias
    BATCH = 128,        // rows of one launch
    ANSWERS = 2048,     // candidates of one launch, ids and log-probabilities
};

// Device form of a row's parameters.
struct draw {
    uint64_t key; // of the noise
    float temperature, repeat, frequency, presence;
    float share, least, depth; // top-p and min-p; how far below the best top-p can reach
    int32_t top_k;             // 0: off
    bool noise, sum;           // scan_logits: score with noise; sum the exponentials
    bool cut;                  // top-k, top-p or min-p is on
    bool top_p;
    int32_t n_seen, n_bias, n_changed; // the last: of both together
    const int32_t *seen, *count;
    const struct logit_bias *bias; // by id
    const uint32_t *allow;         // bits of the tokens that may be chosen; NULL: all
    const int32_t *ids_of;         // tokens of the row's elements; NULL: their places
};

// The noise of an element.
static __device__ float noise_of(const struct draw *d, int64_t id) {
    return row_gumbel(d->key, d->ids_of ? d->ids_of[id] : id);
}

struct job {
    const float *logits; // [n][vocab]
    int64_t vocab;
    const struct draw *draws; // [n]
    int groups;
    uint64_t *best;        // [n][groups] element() of each group
    float *sum;            // [n][groups] sum of e^(score - best score), where requested
    int k;                 // rank only
    int32_t *ids;          // [n] choices, or [n][k]
    float *logp;           // [n][k]
    const int32_t *chosen; // rank: [n] tokens, or NULL
    float *chosen_logp;    // [n] their log-probabilities; -INFINITY of -1
};

// Unsigned integers in the order of the floats; NaN counts as the least.
static __device__ uint32_t key_of(float z) {
    uint32_t bits = __float_as_uint(z == z ? z + 0.0f : -INFINITY); // -0 becomes 0
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static __device__ float score_of(uint32_t key) {
    return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key);
}

// Elements in their order: the larger one comes first.
static __device__ uint64_t element(uint32_t key, int64_t id) {
    return (uint64_t)key << 32 | (uint32_t)~(uint32_t)id;
}

static __device__ int32_t id_of(uint64_t e) {
    return (int32_t)~(uint32_t)e;
}

static __device__ uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

// One row as its scores: logits, biases, penalties, temperature.
struct row_view {
    const float *logits;
    int64_t vocab;
    const struct draw *d;
    const uint32_t *filter; // shared, [FILTER / 32]

    __device__ float biased(float x, int64_t id) const {
        int lo = 0, hi = d->n_bias;
        while (lo < hi) {
            int mid = (lo + hi) / 2;
            if (d->bias[mid].id < id)
                lo = mid + 1;
            else
                hi = mid;
        }
        return lo < d->n_bias && d->bias[lo].id == id ? x + d->bias[lo].bias : x;
    }
    __device__ float penalised(float x, int64_t id) const {
        for (int i = 0; i < d->n_seen; i++) {
            if (d->seen[i] != id)
                continue;
            x = x > 0 ? x / d->repeat : x * d->repeat;
            return x - (d->frequency * (float)d->count[i] + d->presence);
        }
        return x;
    }
    // Whether there is such a token; the others are no elements at all.
    __device__ bool has(int64_t id) const {
        return id < vocab && (!d->allow || (d->allow[id / 32] >> (id % 32) & 1));
    }
    __device__ float score(int64_t id) const {
        return score_at(logits[id], id);
    }
    __device__ float score_at(float x, int64_t id) const {
        if (d->n_changed && filter[id % FILTER / 32] >> (id % 32) & 1)
            x = penalised(biased(x, id), id);
        return d->temperature > 0 && d->temperature != 1 ? x / d->temperature : x;
    }
};

static __device__ struct row_view view_of(const struct job &j, int64_t row, uint32_t *filter) {
    struct row_view v = {j.logits + row * j.vocab, j.vocab, &j.draws[row], filter};
    if (v.d->n_changed == 0)
        return v;
    for (int i = (int)threadIdx.x; i < FILTER / 32; i += (int)blockDim.x)
        filter[i] = 0;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < v.d->n_seen; i += (int)blockDim.x)
        atomicOr(&filter[v.d->seen[i] % FILTER / 32], 1u << (v.d->seen[i] % 32));
    for (int i = (int)threadIdx.x; i < v.d->n_bias; i += (int)blockDim.x)
        atomicOr(&filter[v.d->bias[i].id % FILTER / 32], 1u << (v.d->bias[i].id % 32));
    __syncthreads();
    return v;
}

// Adds up SPAN values over the lanes of a warp: value i ends in lanes WARP / SPAN * i and after.
static __device__ float warp_sums(float v[SPAN]) {
    int lane = (int)threadIdx.x % WARP, d = 16;
#pragma unroll
    for (int n = SPAN / 2; n; n /= 2, d /= 2)
#pragma unroll
        for (int i = 0; i < n; i++) {
            float keep = lane & d ? v[i + n] : v[i], give = lane & d ? v[i] : v[i + n];
            v[i] = keep + warp_across(give, d);
        }
    for (; d; d /= 2)
        v[0] += warp_across(v[0], d);
    return v[0];
}

// e^x for x <= 0; 0 for NaN.
static __device__ float share(float x) {
    return x > -80 ? __expf(x) : 0;
}

// A warp's SPAN groups; a lane has four neighbours of each. VEC: rows start at 16-byte boundaries.
template <bool VEC>
static __device__ void read_span(const float *logits, int64_t vocab, int64_t first,
                                 float4 x[SPAN]) {
#pragma unroll
    for (int i = 0; i < SPAN; i++) {
        int64_t id = first + i * GROUP;
        x[i] = make_float4(0, 0, 0, 0);
        if (VEC && id < vocab)
            x[i] = *(const float4 *)(logits + id);
        if (!VEC && id < vocab)
            x[i].x = logits[id];
        if (!VEC && id + 1 < vocab)
            x[i].y = logits[id + 1];
        if (!VEC && id + 2 < vocab)
            x[i].z = logits[id + 2];
        if (!VEC && id + 3 < vocab)
            x[i].w = logits[id + 3];
    }
}

// Scores of four neighbouring logits from id on, in place; the best of them, 0 where none exists.
static __device__ uint64_t score_four(const struct row_view &v, int64_t id, float z[4]) {
    uint64_t max = 0;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        bool in = v.has(id + e);
        z[e] = in ? v.score_at(z[e], id + e) : -INFINITY;
        if (in && v.d->noise)
            z[e] += noise_of(v.d, id + e);
        max = in ? larger(max, element(key_of(z[e]), id + e)) : max;
    }
    return max;
}

// Whether the row's scores are its logits and all of them may be chosen.
static __device__ bool is_plain(const struct draw *d) {
    return !d->n_changed && !d->allow && !d->noise && (d->temperature <= 0 || d->temperature == 1);
}

// The best element of a warp's group; a lane has four neighbours from id on, whose scores stay.
static __device__ uint64_t group_best(const struct row_view &v, int64_t id, float z[4]) {
    uint64_t own = score_four(v, id, z);
    uint32_t best = warp_largest((uint32_t)(own >> 32));
    uint32_t low = warp_largest((uint32_t)(own >> 32) == best ? (uint32_t)own : 0);
    return (uint64_t)best << 32 | low;
}

// The same of plain rows whose length is a multiple of four. The largest of floats is the largest
// key, and NaN, which counts as the least, becomes -INFINITY.
static __device__ uint64_t plain_best(int64_t vocab, int64_t id, float z[4]) {
    const bool in = id < vocab;
    float max = -INFINITY;
    uint32_t low = 0;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        z[e] = in ? fmaxf(z[e], -INFINITY) : -INFINITY;
        max = fmaxf(max, z[e]);
    }
    uint32_t best = warp_largest(in ? key_of(max) : 0);
    const float top = score_of(best);
#pragma unroll
    for (int e = 3; e >= 0; e--)
        low = in && z[e] == top ? (uint32_t)element(0, id + e) : low;
    return (uint64_t)best << 32 | warp_largest(low);
}

template <bool VEC>
static __global__ void __launch_bounds__(SCAN_THREADS) scan_logits(struct job j) {
    __shared__ uint32_t filter[FILTER / 32];
    int64_t row = blockIdx.y;
    int lane = (int)threadIdx.x % WARP;
    int group = ((int)blockIdx.x * (SCAN_THREADS / WARP) + (int)threadIdx.x / WARP) * SPAN;
    int64_t first = (int64_t)group * GROUP + lane * 4;
    float4 x[SPAN];
    float sums[SPAN];
    gpu_await();
    read_span<VEC>(j.logits + row * j.vocab, j.vocab, first, x);
    struct row_view v = view_of(j, row, filter);
    const bool plain = VEC && is_plain(v.d), summed = v.d->sum;
#pragma unroll
    for (int i = 0; i < SPAN; i++) {
        float z[4] = {x[i].x, x[i].y, x[i].z, x[i].w};
        const int64_t id = first + i * GROUP;
        const uint64_t best = plain ? plain_best(j.vocab, id, z) : group_best(v, id, z);
        if (lane == 0 && group + i < j.groups)
            j.best[row * j.groups + group + i] = best;
        float top = score_of((uint32_t)(best >> 32));
        sums[i] =
            summed ? share(z[0] - top) + share(z[1] - top) + share(z[2] - top) + share(z[3] - top)
                   : 0.0f;
    }
    if (!summed)
        return;
    float sum = warp_sums(sums);
    group += lane / (WARP / SPAN);
    if (lane % (WARP / SPAN) == 0 && group < j.groups)
        j.sum[row * j.groups + group] = sum;
}

#endif
