// SPDX-License-Identifier: Apache-2.0
// Kernels of few rows (stream.cuh) of the types with small blocks and of plain numbers.
#include "ops/gpu/linear/many/variants.cuh"

struct linear_stream_variant linear_stream_b(int form, int n_tiles) {
    switch (form) {
    case WEIGHT_Q8_0:
        return stream_variant_of<WEIGHT_Q8_0, true, false>(n_tiles);
    case WEIGHT_Q4_0:
        return stream_variant_of<WEIGHT_Q4_0, false, false>(n_tiles);
    case WEIGHT_MXFP4:
        return stream_variant_of<WEIGHT_MXFP4, false, false>(n_tiles);
    case WEIGHT_HALF:
        return stream_variant_of<WEIGHT_HALF, false, true>(n_tiles);
    case WEIGHT_FLOAT:
        return stream_variant_of<WEIGHT_FLOAT, false, true>(n_tiles);
    default:
        return {};
    }
}
