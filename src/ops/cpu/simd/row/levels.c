// SPDX-License-Identifier: Apache-2.0
// The ladder of instruction-set levels: scalar first, then what the machine adds. This is the only
// place that reads the features of the CPU. With COPPICE_SCALAR (builds for fuzzing) scalar is all.
#include "ops/cpu/simd/row/row.h"

#if defined(__x86_64__) && !defined(COPPICE_SCALAR)
#define BUILT "scalar avx2 avx512 amx"
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

// clang before 15 does not accept "f16c" as a feature's name.
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

// AMX with int8 and bf16, and the system's leave to use tiles, which holds for all threads from
// then on.
static bool has_amx(void) {
    enum { BITS = 1 << 24 | 1 << 25 | 1 << 22, REQUEST = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & BITS) != BITS)
        return false;
#if defined(__linux__)
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0; // ARCH_REQ_XCOMP_PERM
#else
    return false;
#endif
}

enum row_level row_kernels_fill(struct row_kernels *r, enum row_level max) {
    row_fill_scalar(r);
    if (max < ROW_AVX2 || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !has_f16c())
        return ROW_SCALAR;
    row_fill_avx2(r);
    linear_fill_avx2(r);
    if (max < ROW_AVX512 || !__builtin_cpu_supports("avx512f") ||
        !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vnni"))
        return ROW_AVX2;
    row_fill_avx512(r);
    linear_fill_avx512(r);
    if (max < ROW_AMX || !has_amx())
        return ROW_AVX512;
    linear_fill_avx512_split(r);
    linear_fill_amx(r);
    linear_fill_bf16_amx(r);
    r->name = "amx";
    return ROW_AMX;
}
#elif defined(__aarch64__) && !defined(COPPICE_SCALAR)
#define BUILT "scalar neon dotprod i8mm"
#include <sys/auxv.h>

// Bits of the two words in which the system says what the processor adds to NEON, which all have.
enum { HAS_DOTPROD = 1 << 20, HAS_I8MM = 1 << 13 };

enum row_level row_kernels_fill(struct row_kernels *r, enum row_level max) {
    row_fill_scalar(r);
    if (max < ROW_NEON)
        return ROW_SCALAR;
    row_fill_neon(r);
    linear_fill_neon(r);
    linear_fill_bf16_neon(r);
    if (max < ROW_DOTPROD || !(getauxval(AT_HWCAP) & HAS_DOTPROD))
        return ROW_NEON;
    linear_fill_dotprod(r);
    r->name = "dotprod";
    if (max < ROW_I8MM || !(getauxval(AT_HWCAP2) & HAS_I8MM))
        return ROW_DOTPROD;
    linear_fill_i8mm(r);
    r->name = "i8mm";
    return ROW_I8MM;
}
#else
#define BUILT "scalar"

enum row_level row_kernels_fill(struct row_kernels *r, enum row_level max) {
    (void)max;
    row_fill_scalar(r);
    return ROW_SCALAR;
}
#endif

const char *exec_cpu_levels(void) {
    return BUILT;
}
