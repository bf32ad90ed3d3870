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
#include "ops/gpu/linear/form/file_blocks.cuh"
#include "ops/gpu/linear/operands.h"

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

// dequant (dequant.cuh, which includes this) of the forms that types of few bits and the older ones
// share: codes through a table of levels that the chunk itself has, codes of two bits, E2M1 with
// scales of 16, and codes of five bits with a minimum.

template <int FORM> struct dequant;

// Where in a chunk its scales begin, and what follows them or stands in front.
enum {
    SCALES_Q2_K = 1024,
    FACTORS_Q2_K = 1280,
    SCALES_LEVELS8 = 1536,
    FACTORS_LEVELS8 = 1792,
    TABLE_LEVELS8 = 1824,
    TABLE_LEVELS16 = 512,
    SCALES_LEVELS16 = 528,
    SCALES_NVFP4 = 512,
    HIGH_Q5_1 = 512,
    SCALES_Q5_1 = 640,
};

// Four levels + 128, of rows g (low two bytes) and g + 8, as subnormal halves times S, less 128 S.
static TILE_FN void level_halves(uint32_t levels, __half2 s, __half2 c, uint32_t *a) {
    a[0] = scaled(permuted(levels, 0, 0x4140), __low2half2(s), __low2half2(c));
    a[1] = scaled(permuted(levels, 0, 0x4342), __high2half2(s), __high2half2(c));
}

// Chunk: 4 sections of 256 bytes of codes, 8 x 32 bytes of scales and minima (for each of 16 steps:
// row g, row g+8; the scale in the low nibble), 8 x 8 bytes: D of rows g and g+8, -16 DM of them. A
// word has two steps: in each half a[0], a[1] of the first in bits 6..7, 8..9, of the second four
// bits higher, and a[2], a[3] there after its bytes are swapped.
template <> struct dequant<WEIGHT_Q2_K> {
    enum { SPAN = SPAN_Q2_K, CHUNK = CHUNK_Q2_K, TERMS = 1 };
    __half2 d, m, back[2], s[4], c[4]; // of rows g, g+8: of the chunk (m: -16 DM), of the steps
    uint32_t code[2];

    TILE_FN void open(const unsigned char *chunk, int64_t, int lane) {
        uint2 v = *(const uint2 *)(chunk + FACTORS_Q2_K + lane / 4 * 8);
        d = half2_of(v.x);
        m = half2_of(v.y);
        back[0] = __hmul2_rn(d, half2_of(0xCC00CC00)); // -16 D
        back[1] = __hmul2_rn(m, half2_of(0xBC00BC00));
    }
    TILE_FN void section(const unsigned char *chunk, int sec, int lane) {
        uint2 v = *(const uint2 *)(chunk + sec * 256 + lane * 8);
        uint2 q = *(const uint2 *)(chunk + SCALES_Q2_K + lane / 4 * 32 + sec * 8);
        const uint32_t fields = 0x03C003C0, sixteen = 0x4C004C00, one = 0x3C003C00;
        code[0] = v.x;
        code[1] = v.y;
        for (int i = 0; i < 4; i++) {
            uint32_t b = permuted(i / 2 ? q.y : q.x, 0, i % 2 ? 0x4342 : 0x4140);
            s[i] = fused(half2_of(and_or(b << 6, fields, sixteen)), d, back[0]);
            c[i] = fused(half2_of(and_or(b << 2, fields, one)), m, back[1]);
        }
    }
    TILE_FN void step(int i, uint32_t (*a)[4]) const {
        uint32_t w = code[i / 2], b = swap_bytes(w);
        if (i % 2) {
            w >>= 4;
            b >>= 4;
        }
        __half2 s0 = __low2half2(s[i]), c0 = __low2half2(c[i]);
        __half2 s1 = __high2half2(s[i]), c1 = __high2half2(c[i]);
        a[0][0] = scaled(w & 0x00C000C0, s0, c0);
        a[0][1] = scaled(w & 0x03000300, s1, c1);
        a[0][2] = scaled(b & 0x00C000C0, s0, c0);
        a[0][3] = scaled(b & 0x03000300, s1, c1);
    }
};

// Chunk: 4 x 256 bytes of codes, two words a section, 4 x 128 of a third, scales + 128 and D as in
// Q6_K, 8 bytes of levels + 128. A word has the codes of a step in the low three bits of its
// nibbles: a[0] to a[3], the lower k of each first. The codes of the fourth step are the nibbles'
// high bits, bit j of them in word j.
template <> struct dequant<WEIGHT_LEVELS8> {
    enum { SPAN = SPAN_LEVELS8, CHUNK = CHUNK_LEVELS8, TERMS = 1 };
    __half2 d, s[4]; // of rows g, g+8: of the chunk, of the steps
    uint32_t code[3];
    uint2 table;

    TILE_FN void open(const unsigned char *chunk, int64_t, int lane) {
        d = half2_of(*(const uint32_t *)(chunk + FACTORS_LEVELS8 + lane / 4 * 4));
        table = *(const uint2 *)(chunk + TABLE_LEVELS8);
    }
    TILE_FN void section(const unsigned char *chunk, int sec, int lane) {
        uint2 v = *(const uint2 *)(chunk + sec * 256 + lane * 8);
        code[0] = v.x;
        code[1] = v.y;
        code[2] = *(const uint32_t *)(chunk + 1024 + sec * 128 + lane * 4);
        uint2 q = *(const uint2 *)(chunk + SCALES_LEVELS8 + lane / 4 * 32 + sec * 8);
        for (int i = 0; i < 4; i++) {
            uint32_t b = permuted(i / 2 ? q.y : q.x, 0x64646464, i % 2 ? 0x4342 : 0x4140);
            s[i] = __hmul2_rn(__hadd2_rn(half2_of(b), half2_of(0xE480E480)), d); // b - 1152
        }
    }
    TILE_FN void step(int i, uint32_t (*a)[4]) const {
        uint32_t w = i == 3 ? and_or(code[2] >> 1, 0x44444444,
                                     and_or(code[1] >> 2, 0x22222222, code[0] >> 3 & 0x11111111))
                            : code[i % 3] & 0x77777777;
        __half2 c = __hmul2_rn(s[i], half2_of(0x80808080)); // -2^-17: 128 levels
        level_halves(pick_bytes(table.x, table.y, w), s[i], c, a[0]);
        level_halves(pick_bytes(table.x, table.y, w >> 16), s[i], c, a[0] + 2);
    }
};

// Chunk: 512 bytes of codes, 16 levels, 8 x 8 bytes of scales as in Q8_0. The levels, in order, lie
// alternately in two tables of eight bytes, each as itself + 128, but for the last four of the
// second table (levels of 0 and more), which are stored inverted. The low three bits of a code name
// the place in both, the high one names the table: a lookup in the other one gives 0 or, of the
// last four of the first table, 255 (pick_bytes), so that "either or" of both is the level + 128.
// The nibbles of a step's word are the lower k of a[0], of a[1], the higher k of these, and so on.
template <> struct dequant<WEIGHT_LEVELS16> {
    enum { SPAN = SPAN_LEVELS16, CHUNK = CHUNK_LEVELS16, TERMS = 1 };
    __half2 s[2], c[2];
    uint32_t code[4], table[4];

    TILE_FN void open(const unsigned char *, int64_t, int) {
    }
    TILE_FN void section(const unsigned char *chunk, int, int lane) {
        load_words(chunk + lane * 16, code);
        load_words(chunk + TABLE_LEVELS16, table);
        uint2 q = *(const uint2 *)(chunk + SCALES_LEVELS16 + lane / 4 * 8);
        s[0] = half2_of(q.x);
        s[1] = half2_of(q.y);
        c[0] = __hmul2_rn(s[0], half2_of(0x80808080)); // -2^-17: 128 levels
        c[1] = __hmul2_rn(s[1], half2_of(0x80808080));
    }
    // Two registers of four codes; other: with their high bits inverted.
    TILE_FN void halves(int i, uint32_t which, uint32_t other, uint32_t *a) const {
        const uint32_t first = pick_bytes(table[0], table[1], which);
        const uint32_t second = pick_bytes(table[2], table[3], other);
        const uint32_t low = xor_and(first, second, 0x00FF00FF);
        const uint32_t high = xor_and(first, second, 0xFF00FF00) >> 8;
        a[0] = scaled(low, __low2half2(s[i / 2]), __low2half2(c[i / 2]));
        a[1] = scaled(high, __high2half2(s[i / 2]), __high2half2(c[i / 2]));
    }
    TILE_FN void step(int i, uint32_t (*a)[4]) const {
        const uint32_t w = code[i], other = w ^ 0x88888888;
        halves(i, w, other, a[0]);
        halves(i, w >> 16, other >> 16, a[0] + 2);
    }
};

// Chunk: 512 bytes of codes as in MXFP4, 8 x 8 bytes of scales: for each of four steps rows g and
// g+8. A scale is UE4M3, which seven bits higher is its value times 2^-8 in fp16; a value comes out
// times 2^-7.
template <> struct dequant<WEIGHT_NVFP4> {
    enum { SPAN = SPAN_NVFP4, CHUNK = CHUNK_NVFP4, TERMS = 1 };
    __half2 s[4];
    uint32_t code[4];

    TILE_FN void open(const unsigned char *, int64_t, int) {
    }
    TILE_FN void section(const unsigned char *chunk, int, int lane) {
        load_words(chunk + lane * 16, code);
        uint2 q = *(const uint2 *)(chunk + SCALES_NVFP4 + lane / 4 * 8);
        for (int i = 0; i < 4; i++) {
            uint32_t b = permuted(i / 2 ? q.y : q.x, 0, i % 2 ? 0x4342 : 0x4140);
            s[i] = __hmul2_rn(half2_of(b << 7), half2_of(0x78007800)); // 2^15
        }
    }
    TILE_FN void step(int i, uint32_t (*a)[4]) const {
        const uint32_t w = code[i], both = 0x8E008E00, size = 0x0E000E00, sign = 0x80008000;
        __half2 s0 = __low2half2(s[i]), s1 = __high2half2(s[i]);
        a[0][0] = bits_of(__hmul2_rn(half2_of(w & both), s0));
        a[0][1] = bits_of(__hmul2_rn(half2_of(w << 3 & both), s1));
        a[0][2] = bits_of(__hmul2_rn(half2_of(and_or(w << 6, size, w << 1 & sign)), s0));
        a[0][3] = bits_of(__hmul2_rn(half2_of(and_or(w << 9, size, w << 2 & sign)), s1));
    }
};

// Chunk: 512 bytes of words 0 to 3 and 128 of words 4 as in Q5_K, 8 x 16 bytes of scales: S of rows
// g and g+8 of group 0, of group 1, then what is added to each.
template <> struct dequant<WEIGHT_Q5_1> {
    enum { SPAN = SPAN_Q5_1, CHUNK = CHUNK_Q5_1, TERMS = 1 };
    __half2 s[2], c[2];
    five_codes five;

    TILE_FN void open(const unsigned char *, int64_t, int) {
    }
    TILE_FN void section(const unsigned char *chunk, int, int lane) {
        const uint4 q = load16(chunk + SCALES_Q5_1 + lane / 4 * 16);
        load_words(chunk + lane * 16, five.w);
        five.w[4] = *(const uint32_t *)(chunk + HIGH_Q5_1 + lane * 4);
        s[0] = half2_of(q.x);
        s[1] = half2_of(q.y);
        c[0] = half2_of(q.z);
        c[1] = half2_of(q.w);
    }
    TILE_FN void step(int i, uint32_t (*a)[4]) const {
        const __half2 t = s[i / 2], m = c[i / 2];
        uint32_t u[4];
        five.step(i, u);
        for (int j = 0; j < 4; j++)
            a[0][j] = scaled(u[j], j % 2 ? __high2half2(t) : __low2half2(t),
                             j % 2 ? __high2half2(m) : __low2half2(m));
    }
};

#endif
