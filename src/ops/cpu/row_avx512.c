// SPDX-License-Identifier: Apache-2.0
// The row kernels with AVX-512.
#include "ops/cpu/row.h"

void row_fill_avx512(struct row_kernels *r) {
    r->name = "avx512";
}
