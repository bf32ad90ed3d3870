// SPDX-License-Identifier: Apache-2.0
// Single values out of tiles, for gather.cu: where a value lies, and those of the forms that have
// more than one scale or a table. Also for the host (file_blocks.cuh).
#ifndef COPPICE_OPS_GPU_LINEAR_FORM_GATHER_CUH
#define COPPICE_OPS_GPU_LINEAR_FORM_GATHER_CUH

#include "ops/gpu/linear/form/dequant.cuh"
#include "ops/gpu/linear/form/file_blocks.cuh"

// Place of (row of a tile, value of a section of 64): see dequant.cuh.
struct place {
    int lane, step, reg, half;
};

RAW_FN struct place place_of(int row, int k) {
    return {row % 8 * 4 + k % 8 / 2, k / 16, row / 8 + k % 16 / 8 * 2, k % 2};
}

RAW_FN uint32_t word_at(const unsigned char *chunk, int byte) {
    return *(const uint32_t *)(chunk + byte);
}

RAW_FN float half_at(const unsigned char *chunk, int byte) {
    return __half2float(*(const __half *)(chunk + byte));
}

// `bits` bits of a 16-bit half of a word, cut out of its cyclic order.
RAW_FN int field(uint32_t word, int half, int at, int bits) {
    uint32_t v = word >> half * 16 & 0xFFFF;
    return (int)((v | v << 16) >> at & ((1u << bits) - 1));
}

RAW_FN float q2_k_value(const unsigned char *c, int row, int k, int e) {
    struct place p = place_of(row, k % 64);
    const int at = 6 + p.reg % 2 * 2 + p.reg / 2 * 8 + p.step % 2 * 4;
    const uint32_t w = word_at(c, k / 64 * 256 + p.lane * 8 + p.step / 2 * 4);
    const int sm = c[SCALES_Q2_K + row % 8 * 32 + k / 16 * 2 + row / 8];
    const unsigned char *f = c + FACTORS_Q2_K + row % 8 * 8 + row / 8 * 2;
    const float d = ldexpf(half_at(f, 0), -e - (row < 8 ? 18 : 16)),
                dm = ldexpf(half_at(f, 4), -e - 4);
    return d * (float)(sm & 15) * (float)field(w, p.half, at % 16, 2) + dm * (float)(sm >> 4);
}

RAW_FN float levels8_value(const unsigned char *c, int row, int k, int e) {
    struct place p = place_of(row, k % 64);
    const int section = k / 64, bit = 4 * (2 * p.reg + p.half);
    int code = 0;
    for (int i = 0; i < 3; i++) {
        const uint32_t w = i < 2 ? word_at(c, section * 256 + p.lane * 8 + i * 4)
                                 : word_at(c, 1024 + section * 128 + p.lane * 4);
        code |= p.step == 3   ? (int)(w >> (bit + 3) & 1) << i
                : p.step == i ? (int)(w >> bit & 7)
                              : 0;
    }
    const int scale = c[SCALES_LEVELS8 + row % 8 * 32 + k / 16 * 2 + row / 8] - 128;
    const float d = half_at(c, FACTORS_LEVELS8 + row % 8 * 4 + row / 8 * 2);
    return ldexpf(d, -e - 24) * (float)scale * (float)(c[TABLE_LEVELS8 + code] - 128);
}

RAW_FN float levels16_value(const unsigned char *c, int row, int k, int e) {
    struct place p = place_of(row, k);
    const uint32_t w = word_at(c, p.lane * 16 + p.step * 4);
    const int at = (int)(w >> 4 * (p.reg / 2 * 4 + p.half * 2 + p.reg % 2) & 15);
    const int level = (at < 12 ? c[TABLE_LEVELS16 + at] : c[TABLE_LEVELS16 + at] ^ 255) - 128;
    const float d = half_at(c, SCALES_LEVELS16 + row % 8 * 8 + k / 32 * 4 + row / 8 * 2);
    return ldexpf(d, -e - 24) * (float)level;
}

RAW_FN float nvfp4_value(const unsigned char *c, int row, int k, int e) {
    const int sign[4] = {15, 12, 14, 13}, size[4] = {9, 6, 3, 0};
    struct place p = place_of(row, k);
    const uint32_t w = word_at(c, p.lane * 16 + p.step * 4);
    const int code = field(w, p.half, sign[p.reg], 1) << 3 | field(w, p.half, size[p.reg], 3);
    const int scale = c[SCALES_NVFP4 + row % 8 * 8 + k / 16 * 2 + row / 8];
    const int power = scale >> 3, low = scale & 7;
    (void)e; // every row has the same
    return ldexpf(raw_e2m1(code), -1) *
           (power ? ldexpf((float)(8 + low), power - 10) : ldexpf((float)low, -9));
}

RAW_FN float q5_1_value(const unsigned char *c, int row, int k, int e) {
    struct place p = place_of(row, k);
    const int q = code_of_words<5>(p.step, p.reg, p.half, [&](int i) {
        return word_at(c, i < 4 ? p.lane * 16 + i * 4 : HIGH_Q5_1 + p.lane * 4);
    });
    const unsigned char *f = c + SCALES_Q5_1 + row % 8 * 16 + k / 32 * 4 + row / 8 * 2;
    return ldexpf(half_at(f, 0), -e - (row < 8 ? 24 : 19)) * (float)q + ldexpf(half_at(f, 8), -e);
}

// d s q - dm m of a row's scales p, group j; up: the power of two of D.
RAW_FN float k_value(const unsigned char *p, int j, int q, int e, int up) {
    const uint32_t w = word_at(p, j / 4 * 8), rest = word_at(p, j / 4 * 8 + 4);
    int sm[2];
    for (int h = 0; h < 2; h++) {
        const int two = (int)(rest >> 8 * h & 255);
        sm[h] = j % 4 < 2    ? field(w, h, 4 + 6 * (j % 4), 6)
                : j % 4 == 2 ? field(w, h, 0, 4) | (two & 3) << 4
                             : two >> 2;
    }
    float d = ldexpf(half_at(p, 6), -e - up), dm = ldexpf(-half_at(p, 14), -e - 6);
    return d * (float)sm[0] * (float)q - dm * (float)sm[1];
}

RAW_FN float q4_k_value(const unsigned char *c, int row, int k, int e) {
    struct place p = place_of(row, k % 64);
    uint32_t w = word_at(c, k / 64 * 512 + p.lane * 16 + p.step * 4);
    int q = field(w, p.half, 2 + 4 * p.reg, 4);
    return k_value(c + SCALES_Q4_K + row * 16, k / 32, q, e, row < 8 ? 22 : 18);
}

RAW_FN float q5_k_value(const unsigned char *c, int row, int k, int e) {
    struct place p = place_of(row, k % 64);
    const int section = k / 64;
    const int q = code_of_words<5>(p.step, p.reg, p.half, [&](int i) {
        return word_at(c, i < 4 ? section * 512 + p.lane * 16 + i * 4
                                : 2048 + section * 128 + p.lane * 4);
    });
    return k_value(c + SCALES_Q5_K + row * 16, k / 32, q, e, row < 8 ? 24 : 19);
}

RAW_FN float q6_k_value(const unsigned char *c, int row, int k, int e) {
    struct place p = place_of(row, k % 64);
    const int section = k / 64;
    const int q = code_of_words<6>(p.step, p.reg, p.half, [&](int i) {
        return word_at(c, i < 4 ? section * 512 + p.lane * 16 + i * 4
                                : 2048 + section / 2 * 512 + p.lane * 16 + section % 2 * 8 +
                                      i % 4 * 4);
    });
    const int sc = c[SCALES_Q6_K + row % 8 * 32 + k / 16 * 2 + row / 8] - 128;
    const float d = half_at(c, SCALES_Q6_K + 256 + row % 8 * 4 + row / 8 * 2);
    return ldexpf(d, -e - (row < 8 ? 24 : 20)) * (float)sc * (float)(q - 32);
}

#endif
