// SPDX-License-Identifier: Apache-2.0
// The ladder of instruction-set levels: scalar first, then what the machine adds. This is the only
// place that asks the CPU what it can do.
#include "ops/cpu/row.h"

enum row_level row_kernels_fill(struct row_kernels *r, enum row_level most) {
    (void)most;
    row_fill_scalar(r);
    return ROW_SCALAR;
}
