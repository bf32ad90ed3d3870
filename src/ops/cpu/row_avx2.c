// SPDX-License-Identifier: Apache-2.0
// The row kernels with AVX2.
#include "ops/cpu/row.h"

void row_fill_avx2(struct row_kernels *r) {
    r->name = "avx2";
}
