// SPDX-License-Identifier: Apache-2.0
// The kernel of linear_few.cuh for up to 24 rows.
#include "ops/gpu/linear/few/linear_few.cuh"

linear_few_fn *linear_few_24(void) {
    return linear_few_kernel<24>;
}
