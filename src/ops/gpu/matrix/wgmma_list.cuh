// SPDX-License-Identifier: Apache-2.0
// The sizes of the warpgroup instruction that kernels use (wgmma.cuh, which includes this): PTX
// names every register of the sums by its number.
#ifndef COPPICE_OPS_GPU_MATRIX_WGMMA_LIST_CUH
#define COPPICE_OPS_GPU_MATRIX_WGMMA_LIST_CUH

// Numbers of registers, t tens and 2, 4, .. more; from 0 to a multiple of ten; to N.
#define P2(t)    "%" #t "0, %" #t "1"
#define P4(t)    P2(t) ", %" #t "2, %" #t "3"
#define P6(t)    P4(t) ", %" #t "4, %" #t "5"
#define P8(t)    P6(t) ", %" #t "6, %" #t "7"
#define P10(t)   P8(t) ", %" #t "8, %" #t "9"
#define T10      P10()
#define T20      T10 ", " P10(1)
#define T30      T20 ", " P10(2)
#define T40      T30 ", " P10(3)
#define T50      T40 ", " P10(4)
#define T60      T50 ", " P10(5)
#define T70      T60 ", " P10(6)
#define T80      T70 ", " P10(7)
#define T90      T80 ", " P10(8)
#define T100     T90 ", " P10(9)
#define T110     T100 ", " P10(10)
#define T120     T110 ", " P10(11)
#define TEXT_4   P4()
#define TEXT_8   P8()
#define TEXT_12  T10 ", " P2(1)
#define TEXT_16  T10 ", " P6(1)
#define TEXT_24  T20 ", " P4(2)
#define TEXT_32  T30 ", " P2(3)
#define TEXT_36  T30 ", " P6(3)
#define TEXT_48  T40 ", " P8(4)
#define TEXT_64  T60 ", " P4(6)
#define TEXT_72  T70 ", " P2(7)
#define TEXT_80  T80
#define TEXT_96  T90 ", " P6(9)
#define TEXT_128 T120 ", " P8(12)

// The registers.
#define D4(i)    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D8(i)    D4(i), D4(i + 4)
#define D16(i)   D8(i), D8(i + 8)
#define D32(i)   D16(i), D16(i + 16)
#define D64(i)   D32(i), D32(i + 32)
#define SUMS_4   D4(0)
#define SUMS_8   D8(0)
#define SUMS_12  D8(0), D4(8)
#define SUMS_16  D16(0)
#define SUMS_24  D16(0), D8(16)
#define SUMS_32  D32(0)
#define SUMS_36  D32(0), D4(32)
#define SUMS_48  D32(0), D16(32)
#define SUMS_64  D64(0)
#define SUMS_72  D64(0), D8(64)
#define SUMS_80  D64(0), D16(64)
#define SUMS_96  D64(0), D32(64)
#define SUMS_128 D64(0), D64(64)

// R: N / 2; then the numbers of the operands that follow.
#define WGMMA_STEP(N, R, TURNED, A0, A1, A2, A3, B)                                                \
    template <>                                                                                    \
    __device__ __forceinline__ void wgmma_step<N, TURNED>(float(&d)[R], const uint32_t(&a)[4],     \
                                                          uint64_t b) {                            \
        asm volatile("{ .reg .pred add; setp.eq.u32 add, 0, 0; "                                   \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 {" TEXT_##R           \
                     "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", add, 1, 1, " #TURNED   \
                     "; }"                                                                         \
                     : SUMS_##R                                                                    \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                        \
    }
#define WGMMA_BOTH(N, R, A, B)                                                                     \
    template <>                                                                                    \
    __device__ __forceinline__ void wgmma_both<N>(float(&d)[R], uint64_t a, uint64_t b) {          \
        asm volatile("{ .reg .pred add; setp.eq.u32 add, 0, 0; "                                   \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 {" TEXT_##R           \
                     "}, %" #A ", %" #B ", add, 1, 1, 0, 0; }"                                     \
                     : SUMS_##R                                                                    \
                     : "l"(a), "l"(b));                                                            \
    }
#define WGMMA_BOTH_IF(N, R, TURNED, A, B, ADD)                                                     \
    template <>                                                                                    \
    __device__ __forceinline__ void wgmma_both_if<N, TURNED>(float(&d)[R], uint64_t a, uint64_t b, \
                                                             int add) {                            \
        asm volatile("{ .reg .pred add; setp.ne.b32 add, %" #ADD ", 0; "                           \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 {" TEXT_##R           \
                     "}, %" #A ", %" #B ", add, 1, 1, " #TURNED ", 0; }"                           \
                     : SUMS_##R                                                                    \
                     : "l"(a), "l"(b), "r"(add));                                                  \
    }

WGMMA_STEP(8, 4, 0, 4, 5, 6, 7, 8)
WGMMA_STEP(16, 8, 0, 8, 9, 10, 11, 12)
WGMMA_STEP(24, 12, 0, 12, 13, 14, 15, 16)
WGMMA_STEP(32, 16, 0, 16, 17, 18, 19, 20)
WGMMA_STEP(48, 24, 0, 24, 25, 26, 27, 28)
WGMMA_STEP(64, 32, 0, 32, 33, 34, 35, 36)
WGMMA_STEP(96, 48, 0, 48, 49, 50, 51, 52)
WGMMA_STEP(128, 64, 0, 64, 65, 66, 67, 68)
WGMMA_STEP(256, 128, 0, 128, 129, 130, 131, 132)
WGMMA_STEP(128, 64, 1, 64, 65, 66, 67, 68)
WGMMA_BOTH(128, 64, 64, 65)
WGMMA_BOTH(160, 80, 80, 81)
WGMMA_BOTH(192, 96, 96, 97)
WGMMA_BOTH(256, 128, 128, 129)
WGMMA_BOTH_IF(32, 16, 0, 16, 17, 18)
WGMMA_BOTH_IF(48, 24, 0, 24, 25, 26)
WGMMA_BOTH_IF(64, 32, 0, 32, 33, 34)
WGMMA_BOTH_IF(72, 36, 0, 36, 37, 38)
WGMMA_BOTH_IF(128, 64, 0, 64, 65, 66)
WGMMA_BOTH_IF(64, 32, 1, 32, 33, 34)
WGMMA_BOTH_IF(96, 48, 1, 48, 49, 50)
WGMMA_BOTH_IF(144, 72, 1, 72, 73, 74)

#endif
