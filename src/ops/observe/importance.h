// SPDX-License-Identifier: Apache-2.0
// Importances of columns: while an exec is prepared for it, its table is one that adds up the
// squares of what each matrix of a layer is multiplied by, column by column, and does what the
// backend's own table does. The sums become an importance matrix (formats/imatrix.h).
#ifndef COPPICE_OPS_OBSERVE_IMPORTANCE_H
#define COPPICE_OPS_OBSERVE_IMPORTANCE_H

#include <stddef.h>

#include "formats/imatrix.h"
#include "ops/ops.h"

// From now on the exec sums. Call it before weights and activations are created. The sums are freed
// with the exec.
int importance_prepare(struct exec *x, struct err *e);

// Sums so far of the matrices whose names begin with "blk.", those without a row left out; borrowed
// until the next op. NULL and 0 on an exec that was not prepared.
const struct imatrix_sum *importance_sums(struct exec *x, size_t *n);

#endif
