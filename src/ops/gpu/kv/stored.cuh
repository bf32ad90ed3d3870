// SPDX-License-Identifier: Apache-2.0
// How device code reads and writes the codecs of keys and values: a specialisation of kv_stored for
// each of CUDA_KV_CODECS, rounded exactly as the scalar codec rounds, and calls that choose among
// these. What is not in that list is refused when a model is loaded. For .cu files only.
#ifndef COPPICE_OPS_GPU_KV_STORED_CUH
#define COPPICE_OPS_GPU_KV_STORED_CUH

#include "ops/gpu/linear/form/act.cuh"
#include "ops/gpu/runtime/ops_cuda.h"
#include "ops/kv/layout.h"

// load8: values 8 at .. 8 at + 7 of a row as floats. store: element i * WARP + lane of a row by the
// lanes of a warp, a block of 32 values at once. Rows are multiples of 32 values.
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

// Of a block of few bits: its scale, its minimum if it has one, and the highest bits of its codes.
template <bool MINIMUM, bool BITS> struct kv_scales {
    enum { HALVES = 1 + MINIMUM + 2 * BITS };
    unsigned short d, m; // fp16
    unsigned bits;

    __device__ inline void read(struct kv_row row, int block) {
        if constexpr (MINIMUM && BITS) {
            uint2 v = ((const uint2 *)row.scales)[block];
            d = (unsigned short)v.x, m = (unsigned short)(v.x >> 16), bits = v.y;
        } else if constexpr (MINIMUM) {
            unsigned v = ((const unsigned *)row.scales)[block];
            d = (unsigned short)v, m = (unsigned short)(v >> 16), bits = 0;
        } else {
            const unsigned short *s = (const unsigned short *)row.scales + block * HALVES;
            d = s[0], m = 0, bits = BITS ? s[1] | (unsigned)s[HALVES - 1] << 16 : 0;
        }
    }
    // By all lanes of a warp.
    static __device__ inline void write(struct kv_row row, int block, int lane, float scale,
                                        float minimum, unsigned highest) {
        const unsigned low = __half_as_ushort(__float2half_rn(scale)),
                       high = __half_as_ushort(__float2half_rn(minimum));
        const unsigned first = MINIMUM ? low | high << 16 : low | highest << 16,
                       then = MINIMUM ? highest : highest >> 16;
        if (lane < HALVES)
            ((unsigned short *)row.scales)[block * HALVES + lane] =
                (unsigned short)((lane < 2 ? first : then) >> lane % 2 * 16);
    }
};

static __device__ inline float kv_half(unsigned short bits) {
    return __half2float(__ushort_as_half(bits));
}

// Codes of four bits, and of five, whose fifth lie with the scales. MINIMUM: a value is d c + m,
// else d (c - ZERO).
template <bool MINIMUM_, bool FIFTH_> struct kv_nibbles {
    static constexpr bool MINIMUM = MINIMUM_, FIFTH = FIFTH_;
    enum { ZERO = MINIMUM ? 0 : FIFTH ? 16 : 8, TOP = FIFTH ? 31 : 15 };
    typedef kv_scales<MINIMUM, FIFTH> scales;

    static __device__ inline void load8(struct kv_row row, int at, float *x) {
        const int eight = at % 4, shift = eight / 2 * 4;
        const uint2 v = ((const uint2 *)row.codes)[at / 4 * 2 + eight % 2];
        scales s;
        s.read(row, at / 4);
        const float d = kv_half(s.d), m = kv_half(s.m);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            unsigned c = (i < 4 ? v.x : v.y) >> (i % 4 * 8 + shift) & 15;
            if (FIFTH)
                c |= (s.bits >> (eight * 8 + i) & 1) << 4;
            x[i] = MINIMUM ? d * (float)c + m : d * (float)((int)c - ZERO);
        }
    }
    static __device__ inline float inverse(float d) {
        return fabsf(d) > 3e-39f ? 1.0f / d : 0.0f;
    }
    // The largest magnitude becomes code 0, with the sign of the first value that has it.
    static __device__ inline float symmetric(float x, int *code) {
        const float most = warp_max(fabsf(x));
        const float first = warp_from(x, mask_first(warp_vote(fabsf(x) == most)));
        const float d = (most > 0 ? first : 0.0f) / (float)-ZERO;
        *code = min((int)(x * inverse(d) + (float)ZERO + 0.5f), (int)TOP);
        return d;
    }
    static __device__ inline float affine(float x, int *code, float *m) {
        const float high = warp_max(x), low = -warp_max(-x), d = (high - low) / (float)TOP;
        *code = min((int)((x - low) * inverse(d) + 0.5f), (int)TOP);
        *m = low;
        return d;
    }
    static __device__ inline void store(struct kv_row row, int i, int lane, float x) {
        int c;
        float d, m = 0;
        if constexpr (MINIMUM)
            d = affine(x, &c, &m);
        else
            d = symmetric(x, &c);
        const int other = warp_across(c, 16);
        if (lane < 16)
            row.codes[i * 16 + lane] = (unsigned char)((c & 15) | (other & 15) << 4);
        scales::write(row, i, lane, d, m, FIFTH ? warp_vote(c >> 4 & 1) : 0);
    }
};

template <> struct kv_stored<KV_Q5_1> : kv_nibbles<true, true> {};
template <> struct kv_stored<KV_Q5_0> : kv_nibbles<false, true> {};
template <> struct kv_stored<KV_Q4_1> : kv_nibbles<true, false> {};
template <> struct kv_stored<KV_Q4_0> : kv_nibbles<false, false> {};

template <> struct kv_stored<KV_TQ3_0> {
    typedef kv_scales<false, true> scales;

    static __device__ inline float centroid(unsigned code) {
        const float c[8] = KV_TQ3_CENTROIDS;
        const float low = code & 2 ? (code & 1 ? c[3] : c[2]) : (code & 1 ? c[1] : c[0]);
        const float high = code & 2 ? (code & 1 ? c[7] : c[6]) : (code & 1 ? c[5] : c[4]);
        return code & 4 ? high : low;
    }
    static __device__ inline void load8(struct kv_row row, int at, float *x) {
        const int eight = at % 4;
        const uint2 v = ((const uint2 *)row.codes)[at / 4];
        scales s;
        s.read(row, at / 4);
        const float d = kv_half(s.d);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const unsigned low = (i < 4 ? v.x : v.y) >> (i % 4 * 8 + eight * 2) & 3;
            x[i] = d * centroid(low | (s.bits >> (eight * 8 + i) & 1) << 2);
        }
    }
    static __device__ inline unsigned nearest(float x) {
        const float c[8] = KV_TQ3_CENTROIDS;
        unsigned code = 0;
#pragma unroll
        for (int i = 0; i < 7; i++)
            code += x >= 0.5f * (c[i] + c[i + 1]);
        return code;
    }
    // From the first lane to the last, as the scalar codec adds.
    static __device__ inline float in_order(float x) {
        float sum = 0;
#pragma unroll 8
        for (int i = 0; i < WARP; i++)
            sum += warp_from(x, i);
        return sum;
    }
    static __device__ inline void store(struct kv_row row, int i, int lane, float x) {
        const float rms = sqrtf(in_order(x * x) / 32.0f);
        const unsigned c = nearest(x * (rms > 1e-30f ? 1.0f / rms : 0.0f));
        const float value = centroid(c);
        const float d = in_order(x * value) / in_order(value * value);
        unsigned byte = (c & 3) << lane / 8 * 2;
        byte |= warp_across(byte, 8);
        byte |= warp_across(byte, 16);
        if (lane < 8)
            row.codes[i * 8 + lane] = (unsigned char)byte;
        scales::write(row, i, lane, d, 0, warp_vote(c >> 2));
    }
};

#define KV_CASE(id)                                                                                \
    case id:                                                                                       \
        kv_stored<id>::load8(row, at, x);                                                          \
        break;
static __device__ inline void kv_load8(int codec, struct kv_row row, int at, float *x) {
    switch (codec) { CUDA_KV_CODECS(KV_CASE) }
}
// Of codecs that are not rotated.
static __device__ inline void kv_load8_as_is(int codec, struct kv_row row, int at, float *x) {
    switch (codec) { CUDA_KV_AS_IS(KV_CASE) }
}
#undef KV_CASE

// Element i * WARP + lane of a row in a codec that is not rotated.
static __device__ inline void kv_store32(int codec, struct kv_row row, int i, int lane, float x) {
    switch (codec) {
#define KV_CASE(id)                                                                                \
    case id:                                                                                       \
        kv_stored<id>::store(row, i, lane, x);                                                     \
        break;
        CUDA_KV_AS_IS(KV_CASE)
#undef KV_CASE
    }
}

// The first `blocks` blocks of a head in one that is: element i * WARP + lane is x[i]. Values move
// up, so that the code of a block stands in one place.
template <int CODEC, int N>
static __device__ __forceinline__ void kv_store_blocks(struct kv_row row, int blocks, int lane,
                                                       const float (&x)[N]) {
    float left[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        left[i] = x[i];
#pragma unroll 1
    for (int j = 0; j < blocks; j++) {
        kv_stored<CODEC>::store(row, j, lane, left[0]);
#pragma unroll
        for (int i = 0; i + 1 < N; i++)
            left[i] = left[i + 1];
    }
}

#define KV_STORE_CASE(id)                                                                          \
    case id:                                                                                       \
        kv_store_blocks<id>(to, blocks, lane, x);                                                  \
        break;
// False: the codec is not rotated.
template <int N>
static __device__ __forceinline__ bool kv_store_rotated(int codec, struct kv_row to, int blocks,
                                                        int lane, const float (&x)[N]) {
    switch (codec) {
        CUDA_KV_ROTATED(KV_STORE_CASE)
    default:
        return false;
    }
    return true;
}
#undef KV_STORE_CASE

#endif
