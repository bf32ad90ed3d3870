// SPDX-License-Identifier: Apache-2.0
// Codes in registers: two fp16 numbers a register and the few operations that make them from codes
// (dequant.cuh), and how a lane has codes of five and of six bits in words of 32.
#ifndef COPPICE_OPS_GPU_LINEAR_FORM_CODES_CUH
#define COPPICE_OPS_GPU_LINEAR_FORM_CODES_CUH

#include "ops/gpu/matrix/thread.cuh"
#include "ops/gpu/runtime/gpu.h"
#include <stdint.h>

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

// u s + c in both halves, each rounded once.
static TILE_FN uint32_t scaled(uint32_t u, __half2 s, __half2 c) {
    return bits_of(fused(half2_of(u), s, c));
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

// Codes of five and of six bits: a lane has those of a section, 16 pairs. A pair is the two codes
// of one register: the same bits of a word's two halves. What comes out is u 2^-24 as fp16 in a[0]
// and a[2], in a[1] and a[3] 2^5 or 2^4 times that. Pairs lie so that most are one mask, or a shift
// and a mask, away, which takes less than to join the high bits with the low ones of each. Tiles
// are made (repack) and read (gather) by the places of single bits.

// Five bits, five words. In each half word j < 4 has a[0], a[1] of step j in bits 0..4, 5..9, word
// 4 a[2], a[3] of step 3. Above these words 0 and 2 have a[2] of steps 0 and 1 in bits 10..14 and
// another bit in 15; words 1, 3, 4 have a[3] of steps 0, 1, 2 in bits 11..15 and another bit in 10.
// Those bits, from the lowest on of words 1, 0, 3, 2, 4, are a[2] of step 2.
struct five_codes {
    uint32_t w[5];

    TILE_FN static uint32_t low(uint32_t w) {
        return w & 0x001F001F;
    }
    TILE_FN static uint32_t high(uint32_t w) {
        return w & 0x03E003E0;
    }
    TILE_FN uint32_t gathered(void) const {
        const uint32_t one = 0x00100010, two = 0x00200020;
        uint32_t v = and_or(w[1] >> 6, one, w[0] >> 10 & two);
        v = and_or(w[2] >> 10, two, v >> 2);
        v = and_or(w[3] >> 6, one, v);
        return and_or(w[4] >> 6, one, v >> 2);
    }
    TILE_FN void step(int i, uint32_t (&u)[4]) const {
        u[0] = low(w[i]);
        u[1] = high(w[i]);
        u[2] = i == 3 ? low(w[4]) : i == 2 ? gathered() : low(w[2 * i] >> 10);
        u[3] = i == 3 ? high(w[4]) : high(w[i == 2 ? 4 : 2 * i + 1] >> 6);
    }
};

// Six bits, six words. In each half word j < 4 has a[0] and a[1] of step j in bits 0..5 and 10..15,
// words 4 and 5 have a[2] and a[3] of steps 0 and 1 there. In bits 6..9 words 0 and 2 have the low
// four bits of a[2] of steps 2 and 3, words 1 and 3 the high four of a[3], words 4 and 5 the high
// two of a[2] and, above them, the low two of a[3].
struct six_codes {
    uint32_t w[6];

    TILE_FN void step(int i, uint32_t (&u)[4]) const {
        const uint32_t low = 0x003F003F, high = 0x03F003F0, two = 0x00300030;
        const uint32_t b = w[4 + i % 2], t = b >> 6;
        u[0] = w[i] & low;
        u[1] = w[i] >> 6 & high;
        u[2] = i < 2 ? b & low : and_or(w[i % 2 * 2] >> 6, 0x000F000F, t << 4 & two);
        u[3] = i < 2 ? t & high : and_or(w[i % 2 * 2 + 1], 0x03C003C0, t << 2 & two);
    }
};

// Where bit `bit` of the code of (step, reg) lies: a word, and a bit of its half.
struct code_place {
    int word, bit;
};

static TILE_FN code_place five_place(int step, int reg, int bit) {
    const int from[5] = {1, 0, 3, 2, 4};
    if (reg < 2)
        return {step, 5 * reg + bit};
    if (step == 3)
        return {4, 5 * (reg - 2) + bit};
    if (reg == 3)
        return {step == 2 ? 4 : 2 * step + 1, 11 + bit};
    if (step < 2)
        return {2 * step, 10 + bit};
    return {from[bit], from[bit] == 0 || from[bit] == 2 ? 15 : 10};
}

static TILE_FN code_place six_place(int step, int reg, int bit) {
    if (reg < 2)
        return {step, 10 * reg + bit};
    if (step < 2)
        return {4 + step, 10 * (reg - 2) + bit};
    if (reg == 2)
        return bit < 4 ? code_place{step * 2 - 4, 6 + bit} : code_place{2 + step, 6 + bit - 4};
    return bit < 2 ? code_place{2 + step, 8 + bit} : code_place{step * 2 - 3, 6 + bit - 2};
}

// Word `word` of a lane's part of a section: code(step, reg, half) gives its codes.
template <int BITS, class CODE> static TILE_FN uint32_t word_of_codes(int word, CODE code) {
    uint32_t out = 0;
    for (int i = 0; i < 16; i++) {
        uint32_t both = 0;
        bool known = false;
        for (int bit = 0; bit < BITS; bit++) {
            const code_place p =
                BITS == 5 ? five_place(i / 4, i % 4, bit) : six_place(i / 4, i % 4, bit);
            if (p.word != word)
                continue;
            if (!known)
                both = code(i / 4, i % 4, 0) | code(i / 4, i % 4, 1) << 16;
            known = true;
            out |= (both >> bit & 0x00010001) << p.bit;
        }
    }
    return out;
}

// The code of (step, reg, half): word(i) gives the words.
template <int BITS, class WORD>
static TILE_FN int code_of_words(int step, int reg, int half, WORD word) {
    int code = 0;
    for (int bit = 0; bit < BITS; bit++) {
        const code_place p = BITS == 5 ? five_place(step, reg, bit) : six_place(step, reg, bit);
        code |= (int)(word(p.word) >> (half * 16 + p.bit) & 1) << bit;
    }
    return code;
}

#endif
