// SPDX-License-Identifier: Apache-2.0
// Which family of CUDA kernels serves a linear layer: a pure function over one table of rows, forms
// and paths, so that it is tested without a GPU. What it says changes speed and no bits.
#ifndef COPPICE_OPS_LINEAR_CHOICE_H
#define COPPICE_OPS_LINEAR_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include "ops/device_choice.h"
#include "ops/gpu/linear/operands.h"

#ifdef __cplusplus
extern "C" {
#endif

// In the order of preference.
enum linear_family {
    LINEAR_UNPACKED, // weights unpacked: ops/gpu/linear/many/unpacked.cu, on the path mma
                     // ops/gpu/linear/many/unpacked_mma.cu
    LINEAR_GEMM,   // weights decoded on the way into wgmma, pairs too: ops/gpu/linear/many/gemm.cu
    LINEAR_WGMMA,  // the same for the forms that ops/gpu/linear/many/gemm.cu lacks, no pairs:
                   // ops/gpu/linear/many/wgmma.cu
    LINEAR_FEW,    // weights of any forms in one launch: ops/gpu/linear/few/few.cu
    LINEAR_STREAM, // weights of one form, mma.sync: ops/gpu/linear/few/stream.cuh
    LINEAR_TILES, // mma.sync with a tile of rows and outputs a block: ops/gpu/linear/many/tiles.cuh
    LINEAR_FAMILIES
};

struct linear_call {
    enum cuda_path path;
    bool clusters;    // the device has clusters of blocks
    int form;         // enum weight_form
    int64_t n;        // rows, at least 1
    unsigned without; // bit f: family f does not fit this call, or is not wanted
};

// The first family of the table that serves the call; LINEAR_TILES serves all.
enum linear_family linear_choose(const struct linear_call *c);

// The most rows that are few on the paths wgmma and mma, those of LINEAR_FEW on the latter, the
// most of a slice on the small path, and the least for which weights are unpacked on the path mma.
enum {
    LINEAR_FEW_ROWS = 128,
    LINEAR_STREAM_ROWS = 64,
    LINEAR_WARP_ROWS = 32,
    LINEAR_SMALL_ROWS = 128,
    LINEAR_MMA_MANY = 512
};

// Rows that a call is cut into: on the path mma slices of few rows are faster than many rows up to
// twice the most that few are (docs/notes/cuda-linear-few-rows.md), those of LINEAR_FEW where not
// all of the call's forms have kernels of LINEAR_STREAM that find room (streams). On the small path
// the sums of all parts of a slice lie in memory.
int64_t linear_slice(enum cuda_path path, bool streams, int64_t n);

#ifdef __cplusplus
}
#endif

#endif
