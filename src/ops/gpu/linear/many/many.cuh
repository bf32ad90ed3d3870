// SPDX-License-Identifier: Apache-2.0
// What the kernels of many rows whose blocks have tiles of 128 outputs share: the order of tiles,
// and how sums become outputs (gemm.cu, unpacked.cu, unpacked_mma.cu); and on sm_90a (the first
// two) the shape of a block, and how its registers are divided: four warps bring, two warpgroups
// multiply, 64 outputs each. Owns no kernel.
#ifndef COPPICE_OPS_GPU_LINEAR_MANY_MANY_CUH
#define COPPICE_OPS_GPU_LINEAR_MANY_MANY_CUH

#include "ops/gpu/linear/form/activation.cuh"
#include "ops/gpu/linear/launch.h"
#include "ops/gpu/matrix/async_copy.cuh"
#include "ops/gpu/matrix/bulk_copy.cuh"
#include "ops/gpu/matrix/ldmatrix.cuh"
#include "ops/gpu/matrix/wgmma.cuh"
#include "ops/gpu/runtime/gpu_map.h"

enum { OUTPUTS = 128 }; // of a block

struct many_tile {
    const struct linear_one *job;
    int64_t block, row; // of outputs; first row
};

// Tile `at` of a launch with that many blocks of outputs, which its jobs share by `first`: of all
// outputs in turn, `band` tiles of `rows` rows each, before the next rows. Those at work at one
// time share few outputs' weights and few rows, so that the second-level cache holds both.
static __device__ __forceinline__ many_tile tile_in_bands(const linear_launch &l, int64_t blocks,
                                                          int band, int rows, int64_t at,
                                                          int *job) {
    many_tile t;
    const int64_t first = at / (band * blocks) * band, left = l.row_tiles - first;
    const int64_t wide = left < band ? left : band;
    at -= first * blocks;
    int64_t block = at / wide;
    t.row = (first + at % wide) * rows;
    *job = 0;
    while (*job + 1 < l.jobs && block >= l.job[*job + 1].first)
        (*job)++;
    t.job = &l.job[*job];
    t.block = block - t.job->first;
    return t;
}

// Adds a part's sums to those before it.
template <int N>
static __device__ __forceinline__ void add_part(float (&total)[N / 2], const float (&d)[N / 2],
                                                bool first) {
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        total[i] = first ? d[i] : total[i] + d[i];
}

// This lane's two outputs of a tile, and the powers of two to take back; 0 where there is none.
struct many_outputs {
    int64_t m[2];
    float power[2];

    __device__ __forceinline__ many_outputs(const many_tile &t, int sixteen) {
        const linear_one &job = *t.job;
        int lane = threadIdx.x % WARP;
        m[0] = job.pair ? t.block * (OUTPUTS / 2) + sixteen * 8 + lane / 4
                        : t.block * OUTPUTS + sixteen * 16 + lane / 4;
        m[1] = job.pair ? m[0] : m[0] + 8;
        for (int h = 0; h < 2; h++) {
            const matrix_view &v = job.w[job.pair ? h : 0];
            power[h] = m[h] < v.m ? __int_as_float((127 - v.exponent[m[h]]) << 23) : 0;
        }
    }
};

// Powers of two of EACH rows from i0 on, of a thread's; those beyond the last repeat it.
template <int EACH>
static __device__ __forceinline__ void load_unscale(float (&back)[EACH], const float *unscale,
                                                    int i0, int left) {
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int row = (i0 + i) / 2 * 8 + (i0 + i) % 2;
        back[i] = __ldcg(unscale + (row < left ? row : left - 1));
    }
}

// Sums of a job that is no pair to outputs: EACH rows at a time, all of whose loads come first.
template <int N, bool ADD>
static __device__ __forceinline__ void store_plain(const linear_launch &l, const many_tile &t,
                                                   int sixteen, const float (&d)[N / 2]) {
    enum { EACH = N / 4 < 16 ? N / 4 : 16 };
    const many_outputs o(t, sixteen);
    const bool first = o.m[0] < t.job->w[0].m, second = o.m[1] < t.job->w[0].m;
    const int64_t row0 = t.row + threadIdx.x % 4 * 2, stride = t.job->out_stride;
    const int left = (int)(l.n - row0);
    float *out = t.job->out + row0 * stride + o.m[0];
#pragma unroll
    for (int i0 = 0; i0 < N / 4 && left > 0; i0 += EACH) {
        float back[EACH], old[EACH][2];
        load_unscale<EACH>(back, l.unscale + row0, i0, left);
#pragma unroll
        for (int i = 0; ADD && i < EACH; i++) {
            int row = (i0 + i) / 2 * 8 + (i0 + i) % 2;
            old[i][0] = row < left && first ? __ldcg(out + row * stride) : 0;
            old[i][1] = row < left && second ? __ldcg(out + row * stride + 8) : 0;
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int at = (i0 + i) / 2 * 4 + (i0 + i) % 2, row = (i0 + i) / 2 * 8 + (i0 + i) % 2;
            float v0 = d[at] * o.power[0] * back[i], v1 = d[at + 2] * o.power[1] * back[i];
            if (row < left && first)
                out[row * stride] = ADD ? old[i][0] + v0 : v0;
            if (row < left && second)
                out[row * stride + 8] = ADD ? old[i][1] + v1 : v1;
        }
    }
}

// Those of a pair, joined.
template <int N>
static __device__ __forceinline__ void store_joined(const linear_launch &l, const many_tile &t,
                                                    int sixteen, const float (&d)[N / 2]) {
    enum { EACH = N / 4 < 16 ? N / 4 : 16 };
    const many_outputs o(t, sixteen);
    const int64_t row0 = t.row + threadIdx.x % 4 * 2, stride = t.job->out_stride;
    const int left = o.m[0] < t.job->w[0].m ? (int)(l.n - row0) : 0;
    float *out = t.job->out + row0 * stride + o.m[0];
#pragma unroll
    for (int i0 = 0; i0 < N / 4 && left > 0; i0 += EACH) {
        float back[EACH];
        load_unscale<EACH>(back, l.unscale + row0, i0, left);
        float gate[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++)
            gate[i] = d[(i0 + i) / 2 * 4 + (i0 + i) % 2] * o.power[0] * back[i];
        silu_all(gate);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int at = (i0 + i) / 2 * 4 + (i0 + i) % 2, row = (i0 + i) / 2 * 8 + (i0 + i) % 2;
            if (row < left)
                out[row * stride] = gate[i] * (d[at + 2] * o.power[1] * back[i]);
        }
    }
}

// A warp's sums of 16 outputs, the tile's sixteenth number `sixteen`, with N rows from t.row on, to
// outputs: powers of two taken back, then stored, added or joined. d: of eight rows after the other
// a lane's four sums as a matrix instruction leaves them.
template <int N>
static __device__ __forceinline__ void store_tile(const linear_launch &l, const many_tile &t,
                                                  int sixteen, const float (&d)[N / 2]) {
    if (t.job->pair)
        store_joined<N>(l, t, sixteen, d);
    else if (t.job->add)
        store_plain<N, true>(l, t, sixteen, d);
    else
        store_plain<N, false>(l, t, sixteen, d);
}

enum {
    STEP = 64,    // k of a stage
    BRINGERS = 4, // warps
    MULTIPLIERS = 8,
    THREADS = (BRINGERS + MULTIPLIERS) * WARP,
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Which multiplying warpgroup a thread is in: the same in all lanes of a warp, so that descriptors
// are made once a warp, next to the other instructions.
static __device__ __forceinline__ int multiplying_group(void) {
    return warp_from((int)threadIdx.x / 128, 0) - BRINGERS / 4;
}
#endif

#endif
