// SPDX-License-Identifier: Apache-2.0
// Linear kernels of the types with small blocks, of plain numbers, and of all others.
#include "ops/gpu/linear/many/variants.cuh"

struct linear_variant linear_b_variant(int form, int n_tiles, bool loop, bool small) {
    switch (form) {
    case WEIGHT_Q8_0:
        return variant_of<WEIGHT_Q8_0>(n_tiles, loop, small);
    case WEIGHT_Q4_0:
        return variant_of<WEIGHT_Q4_0>(n_tiles, loop, small);
    case WEIGHT_MXFP4:
        return variant_of<WEIGHT_MXFP4>(n_tiles, loop, small);
    case WEIGHT_NVFP4:
        return variant_of<WEIGHT_NVFP4>(n_tiles, loop, small);
    case WEIGHT_LEVELS16:
        return variant_of<WEIGHT_LEVELS16>(n_tiles, loop, small);
    case WEIGHT_Q5_1:
        return variant_of<WEIGHT_Q5_1>(n_tiles, loop, small);
    case WEIGHT_HALF:
        return variant_of<WEIGHT_HALF>(n_tiles, loop, small);
    case WEIGHT_FLOAT:
        return variant_of<WEIGHT_FLOAT>(n_tiles, loop, small);
    default:
        return {};
    }
}
