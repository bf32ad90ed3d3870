// SPDX-License-Identifier: Apache-2.0
// Rows of the kernel table for one form, by template: included by the files that compile kernels.
#ifndef COPPICE_OPS_CUDA_LINEAR_VARIANTS_CUH
#define COPPICE_OPS_CUDA_LINEAR_VARIANTS_CUH

#include "ops/cuda/linear_mma.cuh"

template <int FORM, int NT, bool LOOP, bool SMALL> static struct linear_variant variant() {
    using S = linear_shape<FORM, NT, SMALL>;
    return {linear_kernel<FORM, NT, LOOP, SMALL>, S::BYTES, NT, LINEAR_THREADS};
}

// FINE: all tiles of rows; otherwise 8, 24 and 64 rows.
template <int FORM, bool FINE>
static struct linear_variant variant_of(int n_tiles, bool loop, bool small) {
    if (small) {
        if (!loop && n_tiles == 8)
            return variant<FORM, 8, false, true>();
        return !loop && n_tiles == 1 ? variant<FORM, 1, false, true>() : linear_variant{};
    }
    if (n_tiles == 8)
        return loop ? variant<FORM, 8, true, false>() : variant<FORM, 8, false, false>();
    if constexpr (FINE) {
        if (n_tiles == 4)
            return loop ? variant<FORM, 4, true, false>() : variant<FORM, 4, false, false>();
        if (!loop && n_tiles == 2)
            return variant<FORM, 2, false, false>();
        if (!loop && n_tiles == 6)
            return variant<FORM, 6, false, false>();
    }
    if (!loop && n_tiles == 1)
        return variant<FORM, 1, false, false>();
    if (!loop && n_tiles == 3)
        return variant<FORM, 3, false, false>();
    return {};
}

#endif
