// SPDX-License-Identifier: Apache-2.0
// How device code reads and writes the codecs of keys and values: a specialisation of kv_stored for
// each of CUDA_KV_CODECS, rounded exactly as the scalar codec rounds, and calls that choose among
// these. What is not in that list is refused when a model is loaded. For .cu files only.
#ifndef COPPICE_OPS_GPU_ATTEND_KV_STORED_CUH
#define COPPICE_OPS_GPU_ATTEND_KV_STORED_CUH

#include "ops/gpu/linear/form/act.cuh"
#include "ops/gpu/runtime/ops_cuda.h"
#include "ops/kv/layout.h"

// load8: values 8 at .. 8 at + 7 of a row as floats. store: element i * WARP + lane of a row by the
// lanes of a warp. Rows are multiples of 32 values.
template <int CODEC> struct kv_stored;

template <> struct kv_stored<KV_F32> {
    static __device__ inline void load8(struct kv_row row, int at, float *x) {
        float4 a = ((const float4 *)row.codes)[2 * at], b = ((const float4 *)row.codes)[2 * at + 1];
        x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
        x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
    }
    static __device__ inline void store(struct kv_row row, int i, int lane, float x) {
        ((float *)row.codes)[i * WARP + lane] = x;
    }
};

template <> struct kv_stored<KV_F16> {
    static __device__ inline void load8(struct kv_row row, int at, float *x) {
        uint4 v = ((const uint4 *)row.codes)[at];
        unsigned w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            __half2 h = *(const __half2 *)&w[i];
            x[2 * i] = __low2float(h);
            x[2 * i + 1] = __high2float(h);
        }
    }
    static __device__ inline void store(struct kv_row row, int i, int lane, float x) {
        ((__half *)row.codes)[i * WARP + lane] = __float2half_rn(x);
    }
};

template <> struct kv_stored<KV_BF16> {
    static __device__ inline void load8(struct kv_row row, int at, float *x) {
        uint4 v = ((const uint4 *)row.codes)[at];
        unsigned w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[2 * i] = __uint_as_float(w[i] << 16);
            x[2 * i + 1] = __uint_as_float(w[i] & 0xFFFF0000u);
        }
    }
    static __device__ inline void store(struct kv_row row, int i, int lane, float x) {
        unsigned bits = __float_as_uint(x), rounded = bits + 0x7FFF + (bits >> 16 & 1);
        bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
        ((unsigned short *)row.codes)[i * WARP + lane] =
            (unsigned short)(nan ? bits >> 16 | 0x40 : rounded >> 16);
    }
};

template <> struct kv_stored<KV_Q8_0> {
    static __device__ inline float scale(struct kv_row row, int block) {
        return __half2float(((const __half *)row.scales)[block]);
    }
    // Four codes times their scale.
    static __device__ inline void unpack(unsigned codes, float d, float *x) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] = d * (float)(signed char)(codes >> 8 * i);
    }
    static __device__ inline void load8(struct kv_row row, int at, float *x) {
        uint2 v = ((const uint2 *)row.codes)[at];
        float d = scale(row, at / 4);
        unpack(v.x, d, x);
        unpack(v.y, d, x + 4);
    }
    static __device__ inline void store(struct kv_row row, int i, int lane, float x) {
        float d = warp_max(fabsf(x)) / 127.0f;
        float inv = d > 3e-39f ? 1.0f / d : 0.0f;
        if (lane == 0)
            ((__half *)row.scales)[i] = __float2half_rn(d);
        row.codes[i * WARP + lane] = (unsigned char)(signed char)roundf(x * inv);
    }
};

static __device__ inline void kv_load8(int codec, struct kv_row row, int at, float *x) {
    switch (codec) {
#define KV_CASE(id)                                                                                \
    case id:                                                                                       \
        kv_stored<id>::load8(row, at, x);                                                          \
        break;
        CUDA_KV_CODECS(KV_CASE)
#undef KV_CASE
    }
}

static __device__ inline void kv_store32(int codec, struct kv_row row, int i, int lane, float x) {
    switch (codec) {
#define KV_CASE(id)                                                                                \
    case id:                                                                                       \
        kv_stored<id>::store(row, i, lane, x);                                                     \
        break;
        CUDA_KV_CODECS(KV_CASE)
#undef KV_CASE
    }
}

#endif
