// SPDX-License-Identifier: Apache-2.0
// The row kernels with AVX2: the templates over two registers of eight lanes.
#include "ops/cpu/simd/vec/avx2.h"

#include "ops/cpu/simd/vec/x86_fold.h"
#include "ops/cpu/simd/vec/x86_kv.h"

#include "ops/cpu/simd/row/tmpl.h"

#include "ops/cpu/simd/codes_tmpl.h"

#include "ops/cpu/attend/attend_tmpl.h"
#include "ops/cpu/gdn/delta_tmpl.h"
#include "ops/cpu/gdn/gate_tmpl.h"
#include "ops/cpu/sparse/sparse_tmpl.h"

#include "ops/cpu/simd/fold_tmpl.h"

void row_fill_avx2(struct row_kernels *r) {
    fill_table(r, "avx2");
}
