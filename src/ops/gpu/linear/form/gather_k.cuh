// SPDX-License-Identifier: Apache-2.0
// Single values out of tiles of Q4_K, Q5_K and Q6_K, for gather.cu. Also for the host (raw.cuh).
#ifndef COPPICE_OPS_GPU_LINEAR_FORM_GATHER_K_CUH
#define COPPICE_OPS_GPU_LINEAR_FORM_GATHER_K_CUH

#include "ops/gpu/linear/form/dequant.cuh"
#include "ops/gpu/linear/form/gather_low.cuh"

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
