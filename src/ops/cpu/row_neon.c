// SPDX-License-Identifier: Apache-2.0
// The row kernels with NEON: the templates over four registers of four lanes.
#include "ops/cpu/vec_neon_codes.h"

#include "ops/cpu/row_tmpl.h"

#include "ops/cpu/attend_tmpl.h"
#include "ops/cpu/delta_keys_tmpl.h"
#include "ops/cpu/delta_tmpl.h"
#include "ops/cpu/gate_tmpl.h"
#include "ops/cpu/load_tmpl.h"
#include "ops/cpu/quantise_tmpl.h"

#include "ops/cpu/fold_tmpl.h"

void row_fill_neon(struct row_kernels *r) {
    fill_table(r, "neon");
}
