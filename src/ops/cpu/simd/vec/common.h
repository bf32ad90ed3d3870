// SPDX-License-Identifier: Apache-2.0
// What every vec_*.h builds on: how the templates are inlined and unrolled, and vectors of four
// numbers in the compiler's own notation, which is the same for all instruction sets.
#ifndef COPPICE_OPS_CPU_SIMD_VEC_COMMON_H
#define COPPICE_OPS_CPU_SIMD_VEC_COMMON_H

#include "ops/cpu/simd/row/row.h"

#define INLINE static inline __attribute__((always_inline))
// Before a loop whose count is a constant after inlining: its arrays are then in registers.
#ifdef COPPICE_CHECKED // every access is checked: unrolled, a file takes the compiler ten minutes
#define UNROLL
#define UNROLL_BY_4
#else
#define UNROLL      _Pragma("GCC unroll 16")
#define UNROLL_BY_4 _Pragma("GCC unroll 4")
#endif

typedef float v4f __attribute__((vector_size(16)));
typedef int32_t v4i __attribute__((vector_size(16)));

INLINE v4f four_floats(v4i x) {
    return __builtin_convertvector(x, v4f);
}

#endif
