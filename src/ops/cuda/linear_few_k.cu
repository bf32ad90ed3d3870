// SPDX-License-Identifier: Apache-2.0
// Kernels of few rows by wgmma (linear_few.cuh) of the K-quants.
#include "ops/cuda/linear_few.cuh"

template <int FORM> static struct linear_stream_variant variant(int n_tiles) {
    switch (n_tiles) {
    case 2:
        return few_variant<FORM, 16>();
    case 3:
        return few_variant<FORM, 24>();
    case 4:
        return few_variant<FORM, 32>();
    case 6:
        return few_variant<FORM, 48>();
    case 8:
        return few_variant<FORM, 64>();
    default:
        return {};
    }
}

struct linear_stream_variant linear_few_k(int form, int n_tiles) {
    switch (form) {
    case WEIGHT_Q4_K:
        return variant<WEIGHT_Q4_K>(n_tiles);
    case WEIGHT_Q5_K:
        return variant<WEIGHT_Q5_K>(n_tiles);
    case WEIGHT_Q6_K:
        return variant<WEIGHT_Q6_K>(n_tiles);
    default:
        return {};
    }
}
