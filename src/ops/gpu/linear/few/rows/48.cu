// SPDX-License-Identifier: Apache-2.0
// The kernel of ops/gpu/linear/few/few.cuh for up to 48 rows.
#include "ops/gpu/linear/few/few.cuh"

linear_few_fn *linear_few_48(void) {
    return linear_few_kernel<48>;
}
