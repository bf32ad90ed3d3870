// SPDX-License-Identifier: Apache-2.0
// The ladder of instruction-set levels: scalar first, then what the machine adds. This is the only
// place that asks the CPU what it can do.
#include "ops/cpu/row.h"

#if defined(__x86_64__)
#include <cpuid.h>

// clang before 15 does not know "f16c" as a feature's name.
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

enum row_level row_kernels_fill(struct row_kernels *r, enum row_level most) {
    row_fill_scalar(r);
    if (most < ROW_AVX2 || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !has_f16c())
        return ROW_SCALAR;
    row_fill_avx2(r);
    linear_fill_avx2(r);
    if (most < ROW_AVX512 || !__builtin_cpu_supports("avx512f") ||
        !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vnni"))
        return ROW_AVX2;
    row_fill_avx512(r);
    linear_fill_avx512(r);
    return ROW_AVX512;
}
#else
enum row_level row_kernels_fill(struct row_kernels *r, enum row_level most) {
    (void)most;
    row_fill_scalar(r);
    return ROW_SCALAR;
}
#endif
