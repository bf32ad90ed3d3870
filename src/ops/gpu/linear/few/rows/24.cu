// SPDX-License-Identifier: Apache-2.0
// The kernel of ops/gpu/linear/few/few.cuh for up to 24 rows.
#include "ops/gpu/linear/few/few.cuh"

linear_few_fn *linear_few_24(void) {
    return linear_few_kernel<24>;
}
