// SPDX-License-Identifier: Apache-2.0
// Registers of two fp16 numbers, and the few operations that make them from codes (dequant.cuh).
#ifndef COPPICE_OPS_GPU_LINEAR_FORM_FRAGMENT_CUH
#define COPPICE_OPS_GPU_LINEAR_FORM_FRAGMENT_CUH

#include <stdint.h>

#include "ops/gpu/runtime/gpu.h"

// Also for the host, where a test reads tiles without a GPU (tests/gpu/test_forms.cu).
#define TILE_FN __host__ __device__ __forceinline__

// Registers change their type here without instructions: two halves put together one by one would
// cost shifts and permutations around every use.
static TILE_FN __half2 half2_of(uint32_t bits) {
#ifdef __CUDA_ARCH__
    __half2 h;
    *(uint32_t *)&h = bits;
    return h;
#else
    const __half_raw low = {(unsigned short)(bits & 0xFFFF)}, high = {(unsigned short)(bits >> 16)};
    return __halves2half2(__half(low), __half(high));
#endif
}

static TILE_FN uint32_t bits_of(__half2 h) {
#ifdef __CUDA_ARCH__
    return *(uint32_t *)&h;
#else
    return __half_as_ushort(__low2half(h)) | (uint32_t)__half_as_ushort(__high2half(h)) << 16;
#endif
}

// a b + c in both halves, each rounded once.
static TILE_FN __half2 fused(__half2 a, __half2 b, __half2 c) {
#ifdef __CUDA_ARCH__
    return __hfma2(a, b, c);
#else
    const float2 x = __half22float2(a), y = __half22float2(b), z = __half22float2(c);
    return __halves2half2(__double2half((double)x.x * (double)y.x + (double)z.x),
                          __double2half((double)x.y * (double)y.y + (double)z.y));
#endif
}

// The bytes of b:a that the nibbles of `which` name (0 to 7).
static TILE_FN uint32_t permuted(uint32_t a, uint32_t b, uint32_t which) {
#ifdef __CUDA_ARCH__
    return __byte_perm(a, b, which);
#else
    const uint64_t both = (uint64_t)b << 32 | a;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++)
        r |= (uint32_t)(both >> (which >> 4 * i & 7) * 8 & 255) << 8 * i;
    return r;
#endif
}

// The same, but for a nibble from 8 on (whose high bit __byte_perm would mask): all bits of its
// byte are then the highest of the byte that the other three name.
static TILE_FN uint32_t looked_up(uint32_t a, uint32_t b, uint32_t which) {
#ifdef __CUDA_ARCH__
    uint32_t r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(which));
    return r;
#else
    const uint32_t bytes = permuted(a, b, which);
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t byte = bytes >> 8 * i & 255;
        r |= (which >> (4 * i + 3) & 1 ? (byte >> 7) * 255 : byte) << 8 * i;
    }
    return r;
#endif
}

// u s + c in both halves, each rounded once.
static TILE_FN uint32_t scaled(uint32_t u, __half2 s, __half2 c) {
    return bits_of(fused(half2_of(u), s, c));
}

// (v & mask) | more, one instruction even where both are constants.
static TILE_FN uint32_t and_or(uint32_t v, uint32_t mask, uint32_t more) {
#ifdef __CUDA_ARCH__
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(r) : "r"(v), "r"(mask), "r"(more));
    return r;
#else
    return (v & mask) | more;
#endif
}

// (a ^ b) & mask, likewise.
static TILE_FN uint32_t xor_and(uint32_t a, uint32_t b, uint32_t mask) {
#ifdef __CUDA_ARCH__
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0x28;" : "=r"(r) : "r"(a), "r"(b), "r"(mask));
    return r;
#else
    return (a ^ b) & mask;
#endif
}

// Swaps the bytes of each half.
static TILE_FN uint32_t swap_bytes(uint32_t w) {
    return permuted(w, 0, 0x2301);
}

static TILE_FN uint4 load16(const unsigned char *p) {
    return *(const uint4 *)p;
}

// Four words of 16 bytes.
static TILE_FN void load_words(const unsigned char *p, uint32_t *words) {
    const uint4 v = load16(p);
    words[0] = v.x;
    words[1] = v.y;
    words[2] = v.z;
    words[3] = v.w;
}

#endif
