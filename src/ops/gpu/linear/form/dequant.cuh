// SPDX-License-Identifier: Apache-2.0
// From a weight tile to the A operands of matrix instructions: one struct a form, with one lane's
// part of the work. A caller binds it to a tile once, opens each chunk (16-byte aligned, in shared
// or global memory), then each section of 64 values of k in it, then takes the four steps of 16:
// registers a[0..3] of m16n8k16 in the layout of the PTX manual: a[0] row g, k 2t and 2t+1; a[1]
// row g+8; a[2], a[3] the same with k + 8; g = lane / 4, t = lane % 4. m16n8k8 takes a[0], a[1],
// then a[2], a[3]; wgmma m64 takes warp w's four registers from tile w of four.
//
// Codes become fp16 by being placed in the mantissa of a subnormal number, u 2^-24 times a power
// of two that depends on where in the mantissa they lie; the scale holds the inverse. So a value
// is one logic operation and one fused multiply-add, rounded once: fp16(u S + C).
#ifndef COPPICE_OPS_GPU_LINEAR_FORM_DEQUANT_CUH
#define COPPICE_OPS_GPU_LINEAR_FORM_DEQUANT_CUH

#include "ops/gpu/linear/form/codes.cuh"
#include "ops/gpu/linear/form/raw.cuh"
#include "ops/gpu/linear/linear.h"

template <int FORM> struct dequant;

// Where in a chunk its scales begin.
enum { SCALES_Q4_K = 2048, SCALES_Q5_K = 2560, SCALES_Q6_K = 3072 };

// Scales and minima of four groups of one row of a Q4_K or Q5_K chunk, half of its 16 bytes. In
// each half of the first word, scales in the lower, minima in the upper one: group 0 in bits 4..9,
// group 1 in 10..15, the low bits of group 2 in 0..3. In byte 0 (scales) and byte 1 (minima) of the
// second word the high bits of group 2 below group 3. Its upper half belongs to the row: D in the
// first four groups, -64 DM in the others, as fp16 (the block's d and dmin times powers of two).
struct k_four {
    uint32_t w, rest; // rest: bytes 0 and 1 of the second word in halves

    TILE_FN k_four(uint32_t first, uint32_t second) : w(first), rest(permuted(second, 0, 0x4140)) {
    }
    // Fields of group j as 64 + s and 1 + m / 64.
    TILE_FN uint32_t fields(int j) const {
        const uint32_t one = 0x3C005400, all = 0x03F003F0, high = 0x03000300, low = 0x00F000F0;
        if (j < 2)
            return and_or(j ? w >> 6 : w, all, one);
        if (j == 2)
            return and_or(w << 4, low, and_or(rest << 8, high, one));
        return and_or(rest << 2, all, one);
    }
};

struct k_row {
    uint4 v;
    __half2 d, back;

    TILE_FN void open(const unsigned char *p) {
        v = load16(p);
        d = half2_of(permuted(v.y, v.w, 0x7632));
        back = __hmul2_rn(d, half2_of(0xBC00D400)); // -64 D, +64 DM
    }
    TILE_FN k_four four(int h) const {
        return h ? k_four(v.z, v.w) : k_four(v.x, v.y);
    }
    // (S, -M) of group j of these.
    TILE_FN __half2 group(const k_four &f, int j) const {
        return fused(half2_of(f.fields(j)), d, back);
    }
    TILE_FN __half2 group(int h, int j) const {
        return group(four(h), j);
    }
};

// Chunk: 4 sections of 512 bytes of codes, 16 rows of scales. A word holds the 8 codes of a step:
// in each half a[0], a[1] in bits 2..5, 6..9, and a[2], a[3] there after its bytes are swapped.
template <> struct dequant<WEIGHT_Q4_K> {
    enum { SPAN = SPAN_Q4_K, CHUNK = CHUNK_Q4_K, TERMS = 1 };
    k_row row[2];
    __half2 s[2][2];
    uint32_t code[4];

    TILE_FN void open(const unsigned char *chunk, int64_t, int lane) {
        row[0].open(chunk + SCALES_Q4_K + lane / 4 * 16);
        row[1].open(chunk + SCALES_Q4_K + 128 + lane / 4 * 16);
    }
    TILE_FN void codes(const unsigned char *chunk, int sec, int lane) {
        load_words(chunk + sec * 512 + lane * 16, code);
    }
    TILE_FN void section(const unsigned char *chunk, int sec, int lane) {
        codes(chunk, sec, lane);
        for (int i = 0; i < 4; i++)
            s[i / 2][i % 2] = row[i % 2].group(sec / 2, sec % 2 * 2 + i / 2);
    }
    TILE_FN void step(int i, uint32_t (*a)[4]) const {
        uint32_t w = code[i], b = swap_bytes(w);
        __half2 s0 = __low2half2(s[i / 2][0]), c0 = __high2half2(s[i / 2][0]);
        __half2 s1 = __low2half2(s[i / 2][1]), c1 = __high2half2(s[i / 2][1]);
        a[0][0] = scaled(w & 0x003C003C, s0, c0);
        a[0][1] = scaled(w & 0x03C003C0, s1, c1);
        a[0][2] = scaled(b & 0x003C003C, s0, c0);
        a[0][3] = scaled(b & 0x03C003C0, s1, c1);
    }
};

// Chunk: 4 x 512 bytes of words 0 to 3 of the sections, 4 x 128 of words 4, 16 rows of scales.
template <> struct dequant<WEIGHT_Q5_K> {
    enum { SPAN = SPAN_Q5_K, CHUNK = CHUNK_Q5_K, TERMS = 1 };
    k_row row[2];
    __half2 s[2][2];
    five_codes five;

    TILE_FN void open(const unsigned char *chunk, int64_t, int lane) {
        row[0].open(chunk + SCALES_Q5_K + lane / 4 * 16);
        row[1].open(chunk + SCALES_Q5_K + 128 + lane / 4 * 16);
    }
    TILE_FN void codes(const unsigned char *chunk, int sec, int lane) {
        load_words(chunk + sec * 512 + lane * 16, five.w);
        five.w[4] = *(const uint32_t *)(chunk + 2048 + sec * 128 + lane * 4);
    }
    TILE_FN void section(const unsigned char *chunk, int sec, int lane) {
        codes(chunk, sec, lane);
        for (int i = 0; i < 4; i++)
            s[i / 2][i % 2] = row[i % 2].group(sec / 2, sec % 2 * 2 + i / 2);
    }
    TILE_FN void step(int i, uint32_t (*a)[4]) const {
        uint32_t u[4];
        five.step(i, u);
        for (int j = 0; j < 4; j++)
            a[0][j] = scaled(u[j], __low2half2(s[i / 2][j % 2]), __high2half2(s[i / 2][j % 2]));
    }
};

// Chunk: 4 x 512 bytes of words 0 to 3 of the sections, 2 x 512 of words 4 and 5 (two sections
// each), 8 x 32 bytes of scales + 128 (for each of 16 steps: row g, row g+8), 8 pairs of D.
template <> struct dequant<WEIGHT_Q6_K> {
    enum { SPAN = SPAN_Q6_K, CHUNK = CHUNK_Q6_K, TERMS = 1 };
    __half2 d, scale[4]; // of rows g, g+8: of the chunk, of the steps
    six_codes six;

    TILE_FN void open(const unsigned char *chunk, int64_t, int lane) {
        d = half2_of(*(const uint32_t *)(chunk + SCALES_Q6_K + 256 + lane / 4 * 4));
    }
    TILE_FN void codes(const unsigned char *chunk, int sec, int lane) {
        load_words(chunk + sec * 512 + lane * 16, six.w);
        uint2 h = *(const uint2 *)(chunk + 2048 + sec / 2 * 512 + lane * 16 + sec % 2 * 8);
        six.w[4] = h.x;
        six.w[5] = h.y;
    }
    TILE_FN void scales(const unsigned char *chunk, int sec, int lane) {
        uint2 q = *(const uint2 *)(chunk + SCALES_Q6_K + lane / 4 * 32 + sec * 8);
        for (int i = 0; i < 4; i++) {
            uint32_t v = permuted(i / 2 ? q.y : q.x, 0x64646464, i % 2 ? 0x4342 : 0x4140);
            scale[i] = __hmul2_rn(__hadd2_rn(half2_of(v), half2_of(0xE480E480)), d); // v - 1152
        }
    }
    TILE_FN void section(const unsigned char *chunk, int sec, int lane) {
        codes(chunk, sec, lane);
        scales(chunk, sec, lane);
    }
    TILE_FN void step(int i, uint32_t (*a)[4]) const {
        uint32_t u[4];
        six.step(i, u);
        const __half2 s = scale[i];
        const __half2 c = __hmul2_rn(s, half2_of(0x82008020)); // -2^-19, -2^-15: 32 codes
        for (int j = 0; j < 4; j++)
            a[0][j] = scaled(u[j], j % 2 ? __high2half2(s) : __low2half2(s),
                             j % 2 ? __high2half2(c) : __low2half2(c));
    }
};

// Chunk: 2 x 512 bytes of codes + 128 (8 bytes a step), 8 x 8 bytes of scales: group 0 of rows g
// and g+8, group 1 of them.
template <> struct dequant<WEIGHT_Q8_0> {
    enum { SPAN = SPAN_Q8_0, CHUNK = CHUNK_Q8_0, TERMS = 1 };
    __half2 s[2], c[2];
    uint32_t code[8];

    TILE_FN void open(const unsigned char *, int64_t, int) {
    }
    TILE_FN void section(const unsigned char *chunk, int, int lane) {
        for (int j = 0; j < 2; j++)
            load_words(chunk + j * 512 + lane * 16, code + 4 * j);
        uint2 v = *(const uint2 *)(chunk + 1024 + lane / 4 * 8);
        s[0] = half2_of(v.x);
        s[1] = half2_of(v.y);
        c[0] = __hmul2_rn(s[0], half2_of(0x80808080)); // -2^-17: 128 codes
        c[1] = __hmul2_rn(s[1], half2_of(0x80808080));
    }
    TILE_FN void step(int i, uint32_t (*a)[4]) const {
        __half2 s0 = __low2half2(s[i / 2]), c0 = __low2half2(c[i / 2]);
        __half2 s1 = __high2half2(s[i / 2]), c1 = __high2half2(c[i / 2]);
        uint32_t v = code[2 * i], w = code[2 * i + 1];
        a[0][0] = scaled(permuted(v, 0, 0x4140), s0, c0);
        a[0][1] = scaled(permuted(v, 0, 0x4342), s1, c1);
        a[0][2] = scaled(permuted(w, 0, 0x4140), s0, c0);
        a[0][3] = scaled(permuted(w, 0, 0x4342), s1, c1);
    }
};

// Chunk: 512 bytes of codes as in Q4_K, 8 x 8 bytes of scales as in Q8_0.
template <> struct dequant<WEIGHT_Q4_0> {
    enum { SPAN = SPAN_Q4_0, CHUNK = CHUNK_Q4_0, TERMS = 1 };
    __half2 s[2], c[2];
    uint32_t code[4];

    TILE_FN void open(const unsigned char *, int64_t, int) {
    }
    TILE_FN void section(const unsigned char *chunk, int, int lane) {
        load_words(chunk + lane * 16, code);
        uint2 q = *(const uint2 *)(chunk + 512 + lane / 4 * 8);
        s[0] = half2_of(q.x);
        s[1] = half2_of(q.y);
        c[0] = __hmul2_rn(s[0], half2_of(0x82008020)); // -2^-19, -2^-15: 8 codes
        c[1] = __hmul2_rn(s[1], half2_of(0x82008020));
    }
    TILE_FN void step(int i, uint32_t (*a)[4]) const {
        __half2 s0 = __low2half2(s[i / 2]), c0 = __low2half2(c[i / 2]);
        __half2 s1 = __high2half2(s[i / 2]), c1 = __high2half2(c[i / 2]);
        uint32_t w = code[i], b = swap_bytes(w);
        a[0][0] = scaled(w & 0x003C003C, s0, c0);
        a[0][1] = scaled(w & 0x03C003C0, s1, c1);
        a[0][2] = scaled(b & 0x003C003C, s0, c0);
        a[0][3] = scaled(b & 0x03C003C0, s1, c1);
    }
};

// Chunk: 512 bytes of codes, 8 x 4 bytes of scales: the high bytes of powers of two in fp16, group
// 0 of rows g and g+8, group 1 of them. A code is a sign and E2M1, which are the sign and the low
// bits of the exponent and the first of the mantissa of its value times 2^-14 in fp16. In each half
// of a word a[0] and a[1] have sign and code in bits 15 and 9..11, 12 and 6..8, a[2] and a[3] in
// bits 14 and 3..5, 13 and 0..2.
template <> struct dequant<WEIGHT_MXFP4> {
    enum { SPAN = SPAN_MXFP4, CHUNK = CHUNK_MXFP4, TERMS = 1 };
    __half2 s[2];
    uint32_t code[4];

    TILE_FN void open(const unsigned char *, int64_t, int) {
    }
    TILE_FN void section(const unsigned char *chunk, int, int lane) {
        load_words(chunk + lane * 16, code);
        uint32_t q = *(const uint32_t *)(chunk + 512 + lane / 4 * 4);
        s[0] = half2_of(permuted(q, 0, 0x1404));
        s[1] = half2_of(permuted(q, 0, 0x3424));
    }
    TILE_FN void step(int i, uint32_t (*a)[4]) const {
        const uint32_t w = code[i], both = 0x8E008E00, size = 0x0E000E00, sign = 0x80008000;
        __half2 s0 = __low2half2(s[i / 2]), s1 = __high2half2(s[i / 2]);
        a[0][0] = bits_of(__hmul2_rn(half2_of(w & both), s0));
        a[0][1] = bits_of(__hmul2_rn(half2_of(w << 3 & both), s1));
        a[0][2] = bits_of(__hmul2_rn(half2_of(and_or(w << 6, size, w << 1 & sign)), s0));
        a[0][3] = bits_of(__hmul2_rn(half2_of(and_or(w << 9, size, w << 2 & sign)), s1));
    }
};

// Chunk: 4 steps of 512 bytes, the operand itself.
template <> struct dequant<WEIGHT_HALF> {
    enum { SPAN = SPAN_HALF, CHUNK = CHUNK_HALF, TERMS = 1 };
    uint4 v[4];

    TILE_FN void open(const unsigned char *, int64_t, int) {
    }
    TILE_FN void section(const unsigned char *chunk, int, int lane) {
        for (int i = 0; i < 4; i++)
            v[i] = load16(chunk + i * 512 + lane * 16);
    }
    TILE_FN void step(int i, uint32_t (*a)[4]) const {
        a[0][0] = v[i].x;
        a[0][1] = v[i].y;
        a[0][2] = v[i].z;
        a[0][3] = v[i].w;
    }
};

// High and low halves of two numbers: together 22 bits.
static TILE_FN void split_pair(float x, float y, uint32_t *high, uint32_t *low) {
    __half2 h = __floats2half2_rn(x, y);
    float2 back = __half22float2(h);
    *high = bits_of(h);
    *low = bits_of(__floats2half2_rn(x - back.x, y - back.y));
}

// Chunk: 4 steps of 1024 bytes: a lane's a[0], a[1] as four f32 in the first half of it, a[2], a[3]
// in the second. Two terms a step: the high halves, then the low ones.
template <> struct dequant<WEIGHT_FLOAT> {
    enum { SPAN = SPAN_FLOAT, CHUNK = CHUNK_FLOAT, TERMS = 2 };
    const unsigned char *at;

    TILE_FN void open(const unsigned char *, int64_t, int) {
    }
    TILE_FN void section(const unsigned char *chunk, int, int lane) {
        at = chunk + lane * 16;
    }
    TILE_FN void step(int i, uint32_t (*a)[4]) const {
        for (int j = 0; j < 2; j++) {
            float4 v = *(const float4 *)(at + i * 1024 + j * 512);
            split_pair(v.x, v.y, &a[0][2 * j], &a[1][2 * j]);
            split_pair(v.z, v.w, &a[0][2 * j + 1], &a[1][2 * j + 1]);
        }
    }
};

#include "ops/gpu/linear/form/dequant_low.cuh"

#endif
