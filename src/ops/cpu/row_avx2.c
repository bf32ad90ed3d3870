// SPDX-License-Identifier: Apache-2.0
// The row kernels with AVX2: the templates over two registers of eight lanes.
#include "ops/cpu/vec_avx2.h"

#include "ops/cpu/vec_x86_fold.h"

#include "ops/cpu/row_tmpl.h"

#include "ops/cpu/attend_tmpl.h"
#include "ops/cpu/delta_keys_tmpl.h"
#include "ops/cpu/delta_tmpl.h"
#include "ops/cpu/gate_tmpl.h"
#include "ops/cpu/load_tmpl.h"
#include "ops/cpu/quantise_tmpl.h"

#include "ops/cpu/fold_tmpl.h"

void row_fill_avx2(struct row_kernels *r) {
    fill_table(r, "avx2");
}
