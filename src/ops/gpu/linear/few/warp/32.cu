// SPDX-License-Identifier: Apache-2.0
// The kernel of ops/gpu/linear/few/warp.cuh for up to 32 rows.
#include "ops/gpu/linear/few/warp.cuh"

linear_few_fn *linear_few_warp_32(void) {
    return linear_few_warp_kernel<32>;
}
