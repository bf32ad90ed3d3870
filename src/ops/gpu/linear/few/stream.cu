// SPDX-License-Identifier: Apache-2.0
// Kernels of few rows (stream.cuh): of the K-quants, of the types with small blocks, and of plain
// numbers.
#include "ops/gpu/linear/few/stream.cuh"

template <int FORM, int NT> static struct linear_stream_variant stream_variant(void) {
    using S = linear_shape<FORM, NT, false>;
    return {linear_stream<FORM, NT>, NT, stream_limits<NT>::WARPS, WARP_TILES * S::TILE_BYTES,
            NT * 8 * S::PITCH};
}

// For 64 rows. FINE: also for 48. PLAIN: also for 24, since on sm_90a ops/gpu/linear/few/kernel.cuh
// finds no room for that many rows of wide weights; of other forms and up to 32 rows it takes all.
template <int FORM, bool FINE, bool PLAIN>
static struct linear_stream_variant stream_variant_of(int n_tiles) {
    if constexpr (FINE)
        if (n_tiles == 6)
            return stream_variant<FORM, 6>();
    if constexpr (PLAIN)
        if (n_tiles == 3)
            return stream_variant<FORM, 3>();
    return n_tiles == 8 ? stream_variant<FORM, 8>() : linear_stream_variant{};
}

struct linear_stream_variant linear_stream_variant_of(int form, int n_tiles) {
    switch (form) {
    case WEIGHT_Q4_K:
        return stream_variant_of<WEIGHT_Q4_K, true, false>(n_tiles);
    case WEIGHT_Q5_K:
        return stream_variant_of<WEIGHT_Q5_K, true, false>(n_tiles);
    case WEIGHT_Q6_K:
        return stream_variant_of<WEIGHT_Q6_K, true, false>(n_tiles);
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
