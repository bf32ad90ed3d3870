// SPDX-License-Identifier: Apache-2.0
// Kernels of few rows (stream.cuh) of the K-quants.
#include "ops/gpu/linear/many/variants.cuh"

struct linear_stream_variant linear_stream_k(int form, int n_tiles) {
    switch (form) {
    case WEIGHT_Q4_K:
        return stream_variant_of<WEIGHT_Q4_K, true, false>(n_tiles);
    case WEIGHT_Q5_K:
        return stream_variant_of<WEIGHT_Q5_K, true, false>(n_tiles);
    case WEIGHT_Q6_K:
        return stream_variant_of<WEIGHT_Q6_K, true, false>(n_tiles);
    default:
        return {};
    }
}
