// SPDX-License-Identifier: Apache-2.0
// Kernels of few rows by wgmma (linear_few.cuh) of Q8_0 and F16.
#include "ops/cuda/linear_few.cuh"

struct linear_stream_variant linear_few_b(int form, int n_tiles) {
    if (form == WEIGHT_Q8_0 && n_tiles == 6)
        return few_variant<WEIGHT_Q8_0, 48>();
    if (form == WEIGHT_Q8_0 && n_tiles == 8)
        return few_variant<WEIGHT_Q8_0, 64>();
    return form == WEIGHT_HALF && n_tiles == 8 ? few_variant<WEIGHT_HALF, 64>()
                                               : linear_stream_variant{};
}
