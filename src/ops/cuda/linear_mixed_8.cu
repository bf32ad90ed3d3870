// SPDX-License-Identifier: Apache-2.0
// The kernel of linear_mixed.cuh for up to 8 rows.
#include "ops/cuda/linear_mixed.cuh"

linear_mixed_fn *linear_mixed_8(void) {
    return linear_mixed_kernel<8>;
}
