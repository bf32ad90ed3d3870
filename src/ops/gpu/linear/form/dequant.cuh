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

#include "ops/gpu/linear/form/fragment.cuh"
#include "ops/gpu/linear/form/raw.cuh"
#include "ops/gpu/linear/linear.h"

template <int FORM> struct dequant;

// Where in a chunk its scales begin.
enum { SCALES_Q4_K = 2048, SCALES_Q5_K = 2560, SCALES_Q6_K = 3072 };

// Scales and minima of one row of a Q4_K or Q5_K chunk: word 0 holds D and -64 DM as fp16 (the
// block's d and dmin times powers of two), words 1 to 3 eight 6-bit scales in their low halves and
// eight minima in the high ones: groups 0..2 in bits 4..9 of a word, 4..6 in bits 10..15, 3 in bits
// 0..3 of word 1 and 0..1 of word 2, 7 in bits 0..3 of word 3 and 2..3 of word 2. So two lanes can
// take four groups each by the same instructions (k_fours).
struct k_row {
    uint32_t w[3];
    __half2 d, back;

    TILE_FN void open(const unsigned char *p) {
        uint4 v = load16(p);
        d = half2_of(v.x);
        w[0] = v.y;
        w[1] = v.z;
        w[2] = v.w;
        back = __hmul2_rn(d, half2_of(0xBC00D400)); // -64 D, +64 DM
    }

    // Fields of group 4 h + j as 64 + s and 1 + m / 64.
    TILE_FN uint32_t fields(int h, int j) const {
        const uint32_t one = 0x3C005400, all = 0x03F003F0, high = 0x03000300, low = 0x00F000F0;
        if (j < 3)
            return and_or(w[j] >> 6 * h, all, one);
        return ((h ? w[2] : w[0]) << 4 & low) | ((w[1] << (8 - 2 * h) & high) | one);
    }

    // (S, -M) of it.
    TILE_FN __half2 group(int h, int j) const {
        return fused(half2_of(fields(h, j)), d, back);
    }
};

// Chunk: 4 sections of 512 bytes of codes, 16 rows of scales. A word holds the 8 codes of a step:
// in each half a[0], a[1] in bits 2..5, 6..9, and a[2], a[3] there after its bytes are swapped.
template <> struct dequant<WEIGHT_Q4_K> {
    enum { SPAN = SPAN_Q4_K, CHUNK = CHUNK_Q4_K, TERMS = 1 };
    k_row row[2];
    __half2 s[2][2];
    uint32_t code[4];

    TILE_FN void open_codes(const unsigned char *, int) {
    }
    TILE_FN void open(const unsigned char *chunk, int64_t, int lane) {
        row[0].open(chunk + SCALES_Q4_K + lane / 4 * 16);
        row[1].open(chunk + SCALES_Q4_K + 128 + lane / 4 * 16);
    }
    TILE_FN void codes(const unsigned char *chunk, int sec, int lane) {
        uint4 v = load16(chunk + sec * 512 + lane * 16);
        code[0] = v.x;
        code[1] = v.y;
        code[2] = v.z;
        code[3] = v.w;
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

// Chunk: 4 x 512 bytes of low bits, 512 of high bits (a word a section), 16 rows of scales. Low
// bits as in Q4_K but one bit lower; the fifth bits of step i are bits 5 + i and 9 + i of the high
// word, and of that word with its bytes swapped.
template <> struct dequant<WEIGHT_Q5_K> {
    enum { SPAN = SPAN_Q5_K, CHUNK = CHUNK_Q5_K, TERMS = 1 };
    k_row row[2];
    __half2 s[2][2];
    uint32_t code[4], high[4], now;

    TILE_FN void open_codes(const unsigned char *chunk, int lane) {
        uint4 v = load16(chunk + 2048 + lane * 16);
        high[0] = v.x;
        high[1] = v.y;
        high[2] = v.z;
        high[3] = v.w;
    }
    TILE_FN void open(const unsigned char *chunk, int64_t, int lane) {
        open_codes(chunk, lane);
        row[0].open(chunk + SCALES_Q5_K + lane / 4 * 16);
        row[1].open(chunk + SCALES_Q5_K + 128 + lane / 4 * 16);
    }
    TILE_FN void codes(const unsigned char *chunk, int sec, int lane) {
        uint4 v = load16(chunk + sec * 512 + lane * 16);
        code[0] = v.x;
        code[1] = v.y;
        code[2] = v.z;
        code[3] = v.w;
        now = sec == 0 ? high[0] : sec == 1 ? high[1] : sec == 2 ? high[2] : high[3];
    }
    TILE_FN void section(const unsigned char *chunk, int sec, int lane) {
        codes(chunk, sec, lane);
        for (int i = 0; i < 4; i++)
            s[i / 2][i % 2] = row[i % 2].group(sec / 2, sec % 2 * 2 + i / 2);
    }
    TILE_FN void step(int i, uint32_t (*a)[4]) const {
        uint32_t w = code[i], b = swap_bytes(w);
        uint32_t h = now >> i, r = swap_bytes(now) >> i;
        __half2 s0 = __low2half2(s[i / 2][0]), c0 = __high2half2(s[i / 2][0]);
        __half2 s1 = __low2half2(s[i / 2][1]), c1 = __high2half2(s[i / 2][1]);
        a[0][0] = scaled((w & 0x001E001E) | (h & 0x00200020), s0, c0);
        a[0][1] = scaled((w & 0x01E001E0) | (h & 0x02000200), s1, c1);
        a[0][2] = scaled((b & 0x001E001E) | (r & 0x00200020), s0, c0);
        a[0][3] = scaled((b & 0x01E001E0) | (r & 0x02000200), s1, c1);
    }
};

// Chunk: 4 x 512 bytes of low nibbles, 2 x 512 of high bits (two words a section), 8 x 32 bytes of
// scales + 128 (for each of 16 steps: row g, row g+8), 8 pairs of D. A nibble word holds a[0],
// a[1] in bits 0..3, 4..7 of each half, a[2], a[3] eight bits higher. A word of high bits serves
// two steps: bits 4 and 8, 6 and 10; then, bytes swapped, the same.
template <> struct dequant<WEIGHT_Q6_K> {
    enum { SPAN = SPAN_Q6_K, CHUNK = CHUNK_Q6_K, TERMS = 1 };
    __half2 d, scale[4]; // of rows g, g+8: of the chunk, of the steps
    uint32_t code[4], high[2];

    TILE_FN void open(const unsigned char *chunk, int64_t, int lane) {
        d = half2_of(*(const uint32_t *)(chunk + SCALES_Q6_K + 256 + lane / 4 * 4));
    }
    TILE_FN void codes(const unsigned char *chunk, int sec, int lane) {
        uint4 v = load16(chunk + sec * 512 + lane * 16);
        code[0] = v.x;
        code[1] = v.y;
        code[2] = v.z;
        code[3] = v.w;
        uint2 h = *(const uint2 *)(chunk + 2048 + sec / 2 * 512 + lane * 16 + sec % 2 * 8);
        high[0] = h.x;
        high[1] = h.y;
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
        uint32_t w = code[i], b = w >> 8, h = i % 2 ? swap_bytes(high[i / 2]) : high[i / 2];
        uint32_t r = h >> 2;
        __half2 s = scale[i];
        __half2 c = __hmul2_rn(s, half2_of(0x82008020)); // -2^-19, -2^-15: 32 codes
        __half2 s0 = __low2half2(s), c0 = __low2half2(c);
        __half2 s1 = __high2half2(s), c1 = __high2half2(c);
        a[0][0] = scaled((w & 0x000F000F) | (h & 0x00300030), s0, c0);
        a[0][1] = scaled((w & 0x00F000F0) | (h & 0x03000300), s1, c1);
        a[0][2] = scaled((b & 0x000F000F) | (r & 0x00300030), s0, c0);
        a[0][3] = scaled((b & 0x00F000F0) | (r & 0x03000300), s1, c1);
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
        for (int j = 0; j < 2; j++) {
            uint4 v = load16(chunk + j * 512 + lane * 16);
            code[4 * j] = v.x;
            code[4 * j + 1] = v.y;
            code[4 * j + 2] = v.z;
            code[4 * j + 3] = v.w;
        }
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
        uint4 v = load16(chunk + lane * 16);
        code[0] = v.x;
        code[1] = v.y;
        code[2] = v.z;
        code[3] = v.w;
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
        uint4 v = load16(chunk + lane * 16);
        code[0] = v.x;
        code[1] = v.y;
        code[2] = v.z;
        code[3] = v.w;
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
