// SPDX-License-Identifier: Apache-2.0
// The row kernels with NEON: the templates over four registers of four lanes.
#include "ops/cpu/simd/vec/neon_codes.h"

#include "ops/cpu/simd/row/tmpl.h"

#include "ops/cpu/simd/codes_tmpl.h"

#include "ops/cpu/attend/attend_tmpl.h"
#include "ops/cpu/gdn/delta_tmpl.h"
#include "ops/cpu/gdn/gate_tmpl.h"
#include "ops/cpu/sparse/sparse_tmpl.h"

#include "ops/cpu/simd/fold_tmpl.h"

void row_fill_neon(struct row_kernels *r) {
    fill_table(r, "neon");
}
