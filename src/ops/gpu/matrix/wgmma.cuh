// SPDX-License-Identifier: Apache-2.0
// The warpgroup matrix instruction of sm_90a (PTX ISA, section "Asynchronous Warpgroup Level Matrix
// Instructions"): d (64 x N, f32) += a (64 x 16) b (16 x N), halves. The 128 threads of a warpgroup
// call together; products run on while the threads do, in groups that are closed and waited for.
// The K order and everything else is the caller's.
//   d: lane l of warp w of the group holds, for i = 0 .. N/8-1, sums of rows 16 w + l / 4 (elements
//      4 i, 4 i + 1) and + 8 (4 i + 2, 4 i + 3), columns 8 i + l % 4 * 2 (+ 1)
//   a in registers: each warp its 16 rows as in mma_k16 (mma.cuh); in shared memory: 64 rows
//   b in shared memory: N rows, each a column of the product
// A row in shared memory is 64 halves, which are values of K (128 bytes, in the 128-byte swizzle:
// 16-byte piece c of row r lies at piece c ^ (r % 8)); eight rows take 1024 bytes from a multiple
// of 1024 on. A turned operand has 16 rows of K, whose 64 halves are rows of a or columns of the
// product; more of these follow in panels `lead` bytes apart. What is in shared memory was written,
// and shown (show_shared), before a barrier.
#ifndef COPPICE_OPS_GPU_MATRIX_WGMMA_CUH
#define COPPICE_OPS_GPU_MATRIX_WGMMA_CUH

#include "ops/gpu/matrix/barrier.cuh"
#include "ops/gpu/matrix/mma.cuh"

// Describes an operand: the low word, of the shared address of the wanted 16 of K within the first
// row, to which n bytes (16 of K: 32) add n / 16; then the whole.
static __device__ __forceinline__ uint32_t wgmma_low(uint32_t address, uint32_t lead = 16) {
    return (address & 0x3FFFF) >> 4 | lead >> 4 << 16;
}
static __device__ __forceinline__ uint64_t wgmma_operand(uint32_t low) {
#ifdef GPU_PLAIN
    return (uint64_t)(1024 >> 4 | 1 << 30) << 32 | low;
#else
    uint64_t b;
    asm("mov.b64 %0, {%1, %2};" : "=l"(b) : "r"(low), "n"(1024 >> 4 | 1 << 30));
    return b;
#endif
}
// Both at once.
static __device__ __forceinline__ uint64_t wgmma_rows(const void *p) {
    uint64_t address = (uint64_t)(__cvta_generic_to_shared(p) & 0x3FFFF) >> 4;
    const uint64_t eight_rows = 1024 >> 4, swizzle_128 = 1;
    return address | 1ull << 16 | eight_rows << 32 | swizzle_128 << 62;
}

// Registers of sums and operands may have been written by other code before this, not between it
// and the products.
static __device__ __forceinline__ void wgmma_fence(void) {
#ifndef GPU_PLAIN
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
// The products requested since the last call are a group.
static __device__ __forceinline__ void wgmma_commit(void) {
#ifndef GPU_PLAIN
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
// Waits until at most LEFT groups are unfinished. WAY: other code for each number, so that no two
// waits become one in front of the branches they are in.
template <int LEFT, int WAY = -1> static __device__ __forceinline__ void wgmma_wait(void) {
#ifndef GPU_PLAIN
    if constexpr (WAY < 0)
        asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
    else
        asm volatile("wgmma.wait_group.sync.aligned %0; // %1" ::"n"(LEFT), "n"(WAY) : "memory");
#endif
}

// Says in front of a fence that the weights are ready: the compiler would otherwise still compute
// some between the products of a group and fence each of those (C7519). The products read these
// registers until the wait, yet ptxas 13.0 gives them to what is loaded between commit and wait
// (seen where weights are multiplied as they are loaded, F16: wrong tiles now and then); nothing in
// PTX can say otherwise. So nothing may be loaded or computed there. tests/gpu/check_wgmma.py looks
// for it in the machine code.
static __device__ __forceinline__ void wgmma_keep(uint32_t (&a)[4]) {
#ifndef GPU_PLAIN
    asm volatile("" : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3])::"memory");
#endif
}
// Keeps registers until here: the assembler does not know that products read them until they are
// waited for. The store is never done, since `least` is not negative.
static __device__ __forceinline__ void wgmma_hold(int least, const uint32_t (&a)[4]) {
#ifndef GPU_PLAIN
    asm volatile("{ .reg .pred never; setp.lt.s32 never, %0, 0;"
                 "@never st.shared.v4.b32 [%0], {%1, %2, %3, %4}; }" ::"r"(least),
                 "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
                 : "memory");
#endif
}
// Says after a wait that the products have been made: nothing that reads sums stands before this.
template <int N> static __device__ __forceinline__ void wgmma_made(float (&d)[N]) {
#ifndef GPU_PLAIN
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
#endif
}

#ifdef GPU_PLAIN
// Value k of row i of an operand in shared memory.
static __device__ inline float plain_operand(uint64_t v, int k, int i, bool turned) {
    const uint32_t base = (uint32_t)(v & 0x3FFF) << 4, lead = (uint32_t)(v >> 16 & 0x3FFF) << 4;
    const uint32_t at = turned ? base + i / 64 * lead + k / 8 * 1024 + k % 8 * 128 + i % 64 * 2
                               : base + i / 8 * 1024 + i % 8 * 128 + k * 2;
    return __half2float(*(const __half *)shared_pointer(at ^ (at >> 7 & 7) << 4));
}

// a: four registers, or NULL: from `shared`.
template <int N>
static __device__ __noinline__ void plain_wgmma(float (&d)[N / 2], const uint32_t *a,
                                                uint64_t shared, bool turned_a, uint64_t b,
                                                bool turned_b) {
    const int lane = (int)threadIdx.x % WARP, first = (int)threadIdx.x / WARP % 4 * 16 + lane / 4;
#pragma unroll 1
    for (int k = 0; k < 16; k++)
        for (int i = 0; i < N / 2; i++) {
            const int high = i / 2 % 2, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
            float x;
            if (a)
                x = plain_half(warp_from(a[k / 8 * 2 + high], lane / 4 * 4 + k % 8 / 2), k % 2);
            else
                x = plain_operand(shared, k, first + high * 8, turned_a);
            d[i] = fmaf(x, plain_operand(b, k, column, turned_b), d[i]);
        }
}

template <int N, bool TURNED = false>
static __device__ void wgmma_step(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b) {
    plain_wgmma<N>(d, a, 0, false, b, TURNED);
}
template <int N> static __device__ void wgmma_both(float (&d)[N / 2], uint64_t a, uint64_t b) {
    plain_wgmma<N>(d, NULL, a, false, b, false);
}
template <int N, bool TURNED>
static __device__ void wgmma_both_if(float (&d)[N / 2], uint64_t a, uint64_t b, int add) {
    for (int i = 0; i < N / 2 && !add; i++)
        d[i] = 0;
    plain_wgmma<N>(d, NULL, a, TURNED, b, false);
}
#else
// d += a b, a in registers; b turned with TURNED.
template <int N, bool TURNED = false>
static __device__ void wgmma_step(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b);
// d += a b, both in shared memory.
template <int N> static __device__ void wgmma_both(float (&d)[N / 2], uint64_t a, uint64_t b);
// d = a b, or d += a b with `add`, both in shared memory; a turned with TURNED.
template <int N, bool TURNED>
static __device__ void wgmma_both_if(float (&d)[N / 2], uint64_t a, uint64_t b, int add);

// The sizes that kernels use: PTX names every register of the sums by its number.
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

#endif
