// SPDX-License-Identifier: Apache-2.0
// Rows of the kernel table for one form, by template: included by the files that compile kernels.
#ifndef COPPICE_OPS_GPU_LINEAR_MANY_VARIANTS_CUH
#define COPPICE_OPS_GPU_LINEAR_MANY_VARIANTS_CUH

#include "ops/gpu/linear/few/stream.cuh"

template <int FORM, int NT, bool LOOP, bool SMALL> static struct linear_variant variant() {
    using S = linear_shape<FORM, NT, SMALL>;
    return {linear_kernel<FORM, NT, LOOP, SMALL>, S::BYTES, NT, LINEAR_THREADS};
}

// For many rows, and for whatever ops/gpu/linear/few/stream.cuh does not take. loop: as in
// ops/gpu/linear/launch.h.
template <int FORM> static struct linear_variant variant_of(int n_tiles, bool loop, bool small) {
    if (small) {
        if (!loop && n_tiles == 8)
            return variant<FORM, 8, false, true>();
        return !loop && n_tiles == 1 ? variant<FORM, 1, false, true>() : linear_variant{};
    }
    if (n_tiles == 8)
        return loop ? variant<FORM, 8, true, false>() : variant<FORM, 8, false, false>();
    if (n_tiles == 4)
        return loop ? variant<FORM, 4, true, false>() : variant<FORM, 4, false, false>();
    return {};
}

template <int FORM, int NT> static struct linear_stream_variant stream_variant(void) {
    using S = linear_shape<FORM, NT, false>;
    return {linear_stream<FORM, NT>, NT, stream_limits<NT>::WARPS, WARP_TILES * S::TILE_BYTES,
            NT * 8 * S::PITCH};
}

// For 64 rows. FINE: also for 48. PLAIN: also for 24, since on sm_90a ops/gpu/linear/few/few.cuh
// finds no room for so many rows of wide weights; of other forms and up to 32 rows it takes all.
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

#endif
