// SPDX-License-Identifier: Apache-2.0
// Embedding rows: single rows of a matrix in device form, back as f32. The operations are those of
// the scalar codecs, and powers of two come off exactly, so the values are the codecs' own as long
// as no scale has become subnormal in fp16 (that is, lies below 2^-17 of its row's largest).
#include "ops/gpu/linear/form/gather.cuh"
#include "ops/gpu/runtime/ops_cuda.h"

enum { THREADS = 128 };

static __device__ float q8_0_value(const unsigned char *c, int row, int k, int e) {
    struct place p = place_of(row, k);
    int at = p.step / 2 * 512 + p.lane * 16 + p.step % 2 * 8 + p.reg * 2 + p.half;
    float d = ldexpf(half_at(c, 1024 + row % 8 * 8 + k / 32 * 4 + row / 8 * 2), -e - 24);
    return d * (float)(c[at] - 128);
}

static __device__ float q4_0_value(const unsigned char *c, int row, int k, int e) {
    struct place p = place_of(row, k);
    int q = field(word_at(c, p.lane * 16 + p.step * 4), p.half, (2 + 4 * p.reg) % 16, 4);
    float d = half_at(c, 512 + row % 8 * 8 + k / 32 * 4 + row / 8 * 2);
    return ldexpf(d, -e - (row < 8 ? 22 : 18)) * (float)(q - 8);
}

static __device__ float mxfp4_value(const unsigned char *c, int row, int k, int e) {
    const int sign[4] = {15, 12, 14, 13}, size[4] = {9, 6, 3, 0};
    struct place p = place_of(row, k);
    uint32_t w = word_at(c, p.lane * 16 + p.step * 4);
    int code = field(w, p.half, sign[p.reg], 1) << 3 | field(w, p.half, size[p.reg], 3);
    int power = c[512 + row % 8 * 4 + k / 32 * 2 + row / 8] >> 2;
    return power ? ldexpf(raw_e2m1(code), power - 15 - 15 - e) : 0.0f;
}

static __device__ float half_value(const unsigned char *c, int row, int k, int e) {
    struct place p = place_of(row, k);
    return ldexpf(half_at(c, p.step * 512 + p.lane * 16 + p.reg * 4 + p.half * 2), -e);
}

static __device__ float float_value(const unsigned char *c, int row, int k, int e) {
    struct place p = place_of(row, k);
    int at = p.step * 1024 + p.reg / 2 * 512 + p.lane * 16 + p.reg % 2 * 8 + p.half * 4;
    return ldexpf(__uint_as_float(word_at(c, at)), -e);
}

static __device__ float value_of(const matrix_view &w, int form, int64_t row, int64_t k) {
    int e = w.exponent[row], r = (int)(row % TILE_ROWS);
    const unsigned char *tile = w.data + row / TILE_ROWS * w.pitch;
    const unsigned char *fine = tile + k / 64 * (w.pitch / ((w.k + 63) / 64));
    switch (form) {
    case WEIGHT_Q4_K:
        return q4_k_value(tile + k / 256 * CHUNK_Q4_K, r, (int)(k % 256), e);
    case WEIGHT_Q5_K:
        return q5_k_value(tile + k / 256 * CHUNK_Q5_K, r, (int)(k % 256), e);
    case WEIGHT_Q6_K:
        return q6_k_value(tile + k / 256 * CHUNK_Q6_K, r, (int)(k % 256), e);
    case WEIGHT_Q8_0:
        return q8_0_value(fine, r, (int)(k % 64), e);
    case WEIGHT_Q4_0:
        return q4_0_value(fine, r, (int)(k % 64), e);
    case WEIGHT_MXFP4:
        return mxfp4_value(fine, r, (int)(k % 64), e);
    case WEIGHT_HALF:
        return half_value(fine, r, (int)(k % 64), e);
    case WEIGHT_FLOAT:
        return float_value(fine, r, (int)(k % 64), e);
    case WEIGHT_Q2_K:
        return q2_k_value(tile + k / 256 * CHUNK_Q2_K, r, (int)(k % 256), e);
    case WEIGHT_LEVELS8:
        return levels8_value(tile + k / 256 * CHUNK_LEVELS8, r, (int)(k % 256), e);
    case WEIGHT_LEVELS16:
        return levels16_value(fine, r, (int)(k % 64), e);
    case WEIGHT_NVFP4:
        return nvfp4_value(fine, r, (int)(k % 64), e);
    case WEIGHT_Q5_1:
        return q5_1_value(fine, r, (int)(k % 64), e);
    default:
        return 0;
    }
}

// Ids of few rows come with the launch: no copy stands in front of it, and it reads the rows before
// it waits.
enum { FEW = 64 };
struct few_ids {
    int32_t at[FEW];
};

// ids: those of more rows, or NULL.
static __global__ void gather(matrix_view w, int form, const __grid_constant__ struct few_ids few,
                              const int32_t *ids, float *out) {
    int64_t row = ids ? ids[blockIdx.y] : few.at[blockIdx.y];
    int64_t k = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    float value = k < w.k ? value_of(w, form, row, k) : 0.0f;
    gpu_await();
    gpu_let_next();
    if (k < w.k)
        out[blockIdx.y * w.k + k] = value;
}

extern "C" void cuda_gather_rows(struct exec *x, const struct weight *w, const int32_t *ids,
                                 int64_t n, float *out) {
    const int64_t max = 32768; // of grid.y
    struct gpu *g = gpu_of(x);
    unsigned columns = (unsigned)((w->k + THREADS - 1) / THREADS);
    for (int64_t i = 0; i < n; i += max) {
        int64_t count = n - i < max ? n - i : max;
        const int32_t *d = NULL;
        struct few_ids few = {};
        if (count > FEW)
            d = (const int32_t *)gpu_stage(g, ids + i, (size_t)count * sizeof *ids);
        else
            __builtin_memcpy(few.at, ids + i, (size_t)count * sizeof *ids);
        if (count > FEW && !d)
            return;
        gpu_launch_early(g, "gather_rows", gather, dim3(columns, (unsigned)count), THREADS, 0,
                         w->view, w->form, few, d, out + i * w->k);
    }
}
