// SPDX-License-Identifier: Apache-2.0
// Scales of a chunk of K-quants for one warp: each lane of a fragment's four would unpack the same
// ones, so every lane unpacks its quarter, leaves it in shared memory (FEW_SCALES bytes a warp),
// and reads what it needs. Besides that few_dequant is dequant (dequant.cuh), with the same bits.
#ifndef COPPICE_OPS_GPU_LINEAR_FEW_SCALES_CUH
#define COPPICE_OPS_GPU_LINEAR_FEW_SCALES_CUH

#include "ops/gpu/linear/few/few.h"
#include "ops/gpu/linear/form/dequant.cuh"

// All lanes of a warp, for the same chunk; shared: of the warp. What a chunk leaves there is read
// until the next one is opened, in front of which the warp must have met. To open a chunk loads the
// first section's codes as well, in front of where the warp meets.
template <int FORM> struct few_dequant : dequant<FORM> {
    __device__ __forceinline__ void open(const unsigned char *chunk, unsigned char *, int lane) {
        dequant<FORM>::open(chunk, 0, lane);
    }
    __device__ __forceinline__ void section(const unsigned char *chunk, const unsigned char *,
                                            int sec, int lane) {
        dequant<FORM>::section(chunk, sec, lane);
    }
};

// (S, -M) of four groups as they are read: [row][half of the chunk][group].
static __device__ __forceinline__ void few_share_k(const unsigned char *rows, unsigned char *shared,
                                                   int lane) {
    k_row row;
    row.open(rows + lane / 2 * 16);
    const k_four f = row.four(lane % 2);
    *(uint4 *)(shared + lane * 16) = make_uint4(bits_of(row.group(f, 0)), bits_of(row.group(f, 1)),
                                                bits_of(row.group(f, 2)), bits_of(row.group(f, 3)));
    __syncwarp();
}

// Those of rows g and g + 8 in section sec.
static __device__ __forceinline__ void few_read_k(const unsigned char *shared, int sec, int lane,
                                                  __half2 (&s)[2][2]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        uint2 v = *(const uint2 *)(shared + (lane / 4 + 8 * r) * 32 + sec / 2 * 16 + sec % 2 * 8);
        s[0][r] = half2_of(v.x);
        s[1][r] = half2_of(v.y);
    }
}

template <int FORM, int SCALES> struct few_dequant_k : dequant<FORM> {
    __device__ __forceinline__ void open(const unsigned char *chunk, unsigned char *shared,
                                         int lane) {
        this->codes(chunk, 0, lane);
        few_share_k(chunk + SCALES, shared, lane);
    }
    __device__ __forceinline__ void section(const unsigned char *chunk, const unsigned char *shared,
                                            int sec, int lane) {
        if (sec > 0)
            this->codes(chunk, sec, lane);
        few_read_k(shared, sec, lane, this->s);
    }
};

template <> struct few_dequant<WEIGHT_Q4_K> : few_dequant_k<WEIGHT_Q4_K, SCALES_Q4_K> {};
template <> struct few_dequant<WEIGHT_Q5_K> : few_dequant_k<WEIGHT_Q5_K, SCALES_Q5_K> {};

template <> struct few_dequant<WEIGHT_Q6_K> : dequant<WEIGHT_Q6_K> {
    __device__ __forceinline__ void open(const unsigned char *chunk, unsigned char *shared,
                                         int lane) {
        dequant<WEIGHT_Q6_K>::open(chunk, 0, lane);
        codes(chunk, 0, lane);
        scales(chunk, lane % 4, lane);
        *(uint4 *)(shared + lane % 4 * 128 + lane / 4 * 16) =
            make_uint4(bits_of(scale[0]), bits_of(scale[1]), bits_of(scale[2]), bits_of(scale[3]));
        __syncwarp();
    }
    __device__ __forceinline__ void section(const unsigned char *chunk, const unsigned char *shared,
                                            int sec, int lane) {
        if (sec > 0)
            codes(chunk, sec, lane);
        uint4 v = load16(shared + sec * 128 + lane / 4 * 16);
        scale[0] = half2_of(v.x);
        scale[1] = half2_of(v.y);
        scale[2] = half2_of(v.z);
        scale[3] = half2_of(v.w);
    }
};

#endif
