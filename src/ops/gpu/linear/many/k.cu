// SPDX-License-Identifier: Apache-2.0
// Linear kernels of the K-quants.
#include "ops/gpu/linear/many/variants.cuh"

struct linear_variant linear_k_variant(int form, int n_tiles, bool loop, bool small) {
    switch (form) {
    case WEIGHT_Q2_K:
        return variant_of<WEIGHT_Q2_K>(n_tiles, loop, small);
    case WEIGHT_LEVELS8:
        return variant_of<WEIGHT_LEVELS8>(n_tiles, loop, small);
    case WEIGHT_Q4_K:
        return variant_of<WEIGHT_Q4_K>(n_tiles, loop, small);
    case WEIGHT_Q5_K:
        return variant_of<WEIGHT_Q5_K>(n_tiles, loop, small);
    case WEIGHT_Q6_K:
        return variant_of<WEIGHT_Q6_K>(n_tiles, loop, small);
    default:
        return {};
    }
}
