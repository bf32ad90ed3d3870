// SPDX-License-Identifier: Apache-2.0
// Rows that a convolution along the rows of blocks makes (block_conv_args), in fours of values, for
// kernels that norm them or turn them into activations. What the convolution reads may still be
// the parts of a linear layer, its rows or its kernels, which are stored then.
#ifndef COPPICE_OPS_GPU_LINEAR_FORM_CONV_CUH
#define COPPICE_OPS_GPU_LINEAR_FORM_CONV_CUH

#include "ops/gpu/linear/finish.cuh"
#include "ops/ops.h"

struct rows_convolved {
    enum { AHEAD = 2 }; // taps whose loads are under way at once

    struct block_conv_args c;
    struct linear_left rows, kernels; // without parts: stored already
    int64_t row;

    __device__ __forceinline__ void early(const float4 *, int) {
    }
    __device__ __forceinline__ void open(int64_t r) {
        row = r;
    }

    struct tap {
        float4 x, base;
        float own;
    };

    __device__ __forceinline__ tap load(int o, int i) const {
        const int64_t at = row - o, groups = c.dim / c.group, g = o * groups + 4 * i / c.group;
        tap t;
        t.base = ((const float4 *)(c.base + o * c.dim))[i];
        t.own = kernels.parts ? finish_one(kernels, row, g, __ldcg(kernels.unscale + row))
                              : __ldcg(c.own + row * c.own_stride + g);
        t.x = rows.parts ? finish_four(rows, 0, at, i, __ldcg(rows.unscale + at))
                         : __ldcg((const float4 *)(c.in + at * c.dim) + i);
        return t;
    }

    static __device__ __forceinline__ float4 product(const tap &t) {
        return make_float4(__fmul_rn(__fadd_rn(t.base.x, t.own), t.x.x),
                           __fmul_rn(__fadd_rn(t.base.y, t.own), t.x.y),
                           __fmul_rn(__fadd_rn(t.base.z, t.own), t.x.z),
                           __fmul_rn(__fadd_rn(t.base.w, t.own), t.x.w));
    }

    // Four i of the row.
    __device__ __forceinline__ float4 operator()(const float4 *, int i) const {
        const int there = (int)min((int64_t)c.taps - 1, row % c.block) + 1;
        float4 *out = (float4 *)(c.out + row * c.dim) + i;
        float4 old = make_float4(0, 0, 0, 0);
        tap t[AHEAD];
        if (c.add)
            old = __ldcg(out);
#pragma unroll
        for (int o = 0; o < AHEAD; o++)
            if (o < there)
                t[o] = load(o, i);
        float4 y = product(t[0]);
#pragma unroll
        for (int o = 1; o < AHEAD; o++)
            if (o < there)
                y = add_fours(y, product(t[o]));
        for (int o = AHEAD; o < there; o++)
            y = add_fours(y, product(load(o, i)));
        if (rows.parts)
            ((float4 *)(rows.out + row * rows.out_stride))[i] = t[0].x;
        if (kernels.parts && 4 * i < kernels.m)
            ((float4 *)(kernels.out + row * kernels.out_stride))[i] =
                finish_four(kernels, 0, row, i, __ldcg(kernels.unscale + row));
        if (c.add) {
            y = add_fours(old, y);
            *out = y;
        }
        return y;
    }
};

#endif
