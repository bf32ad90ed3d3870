// SPDX-License-Identifier: Apache-2.0
// What every vec_*.h builds on: vectors of four numbers in the compiler's own notation, which is
// the same for all instruction sets.
#ifndef COPPICE_OPS_CPU_SIMD_VEC_COMMON_H
#define COPPICE_OPS_CPU_SIMD_VEC_COMMON_H

#include "ops/cpu/simd/row/row.h"

typedef float v4f __attribute__((vector_size(16)));
typedef int32_t v4i __attribute__((vector_size(16)));

INLINE v4f four_floats(v4i x) {
    return __builtin_convertvector(x, v4f);
}

#endif
