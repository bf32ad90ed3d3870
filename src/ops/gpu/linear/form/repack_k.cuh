// SPDX-License-Identifier: Apache-2.0
// Words of the chunks of Q4_K, Q5_K and Q6_K (dequant.cuh), and bounds on what is in a block. Also
// for the host, where a test reads tiles without a GPU (tests/gpu/test_forms.cu).
#ifndef COPPICE_OPS_GPU_LINEAR_FORM_REPACK_K_CUH
#define COPPICE_OPS_GPU_LINEAR_FORM_REPACK_K_CUH

#include "ops/gpu/linear/form/codes.cuh"
#include "ops/gpu/linear/form/tile_source.cuh"
#include "ops/gpu/linear/linear.h"

static TILE_WORD uint32_t nibble_of_k(const unsigned char *codes, int k) {
    uint32_t byte = codes[k / 64 * 32 + k % 32];
    return k % 64 < 32 ? byte & 15 : byte >> 4;
}

static TILE_WORD void scale_and_min(const unsigned char *c, int j, uint32_t *s, uint32_t *m) {
    *s = j < 4 ? c[j] & 63 : (c[j + 4] & 15) | c[j - 4] >> 6 << 4;
    *m = j < 4 ? c[j + 4] & 63 : c[j + 4] >> 4 | c[j] >> 6 << 4;
}

// Word i of a row's 16 bytes of scales; low, high: powers of two of D in rows 0..7, 8..15.
static TILE_WORD uint32_t k_scale_word(const tile_source &s, int row, const unsigned char *b, int i,
                                       int low, int high) {
    if (!b)
        return 0;
    uint32_t sc[4], m[4];
    for (int j = 0; j < 4; j++)
        scale_and_min(b + 4, i / 2 * 4 + j, &sc[j], &m[j]);
    if (i % 2 == 0) {
        const uint32_t scales = sc[0] << 4 | sc[1] << 10 | (sc[2] & 15);
        return scales | (m[0] << 4 | m[1] << 10 | (m[2] & 15)) << 16;
    }
    const uint32_t factor = i == 1 ? scale_bits(s, row, raw_half(b), low, high)
                                   : half_bits(-ldexpf(raw_half(b + 2), s.exponent[row] + 6));
    return sc[2] >> 4 | sc[3] << 2 | (m[2] >> 4 | m[3] << 2) << 8 | factor << 16;
}

template <> TILE_WORD uint32_t chunk_word<WEIGHT_Q4_K>(const tile_source &s, int64_t k0, int word) {
    if (word >= 512) {
        int row = (word - 512) / 4;
        return k_scale_word(s, row, block_at(s, row, k0, 256, 144), word % 4, 22, 18);
    }
    int lane = word % 128 / 4;
    uint32_t out = 0;
    for (int i = 0; i < 8; i++) {
        int reg = i % 4, k = word / 128 * 64 + column_of(lane, word % 4, reg, i / 4);
        const unsigned char *b = block_at(s, row_of(lane, reg), k0, 256, 144);
        if (b)
            out |= rotated(nibble_of_k(b + 16, k), 2 + 4 * reg) << i / 4 * 16;
    }
    return out;
}

template <> TILE_WORD uint32_t chunk_word<WEIGHT_Q5_K>(const tile_source &s, int64_t k0, int word) {
    if (word >= 640) {
        int row = (word - 640) / 4;
        return k_scale_word(s, row, block_at(s, row, k0, 256, 176), word % 4, 24, 19);
    }
    const bool last = word >= 512;
    const int lane = last ? word % 32 : word % 128 / 4,
              section = last ? word % 128 / 32 : word / 128;
    return word_of_codes<5>(last ? 4 : word % 4, [&](int step, int reg, int half) -> uint32_t {
        const int k = section * 64 + column_of(lane, step, reg, half);
        const unsigned char *b = block_at(s, row_of(lane, reg), k0, 256, 176);
        return b ? nibble_of_k(b + 48, k) | (b[16 + k % 32] >> k / 32 & 1u) << 4 : 0u;
    });
}

// Scale bytes and D of a Q6_K chunk.
static TILE_WORD uint32_t q6_k_scale_word(const tile_source &s, int64_t k0, int word) {
    uint32_t out = 0;
    int g = word < 64 ? word / 8 : word - 64;
    for (int i = 0; i < 4; i++) {
        int row = g + i % 2 * 8;
        const unsigned char *b = block_at(s, row, k0, 256, 210);
        if (word < 64)
            out |= (b ? b[192 + word % 8 * 2 + i / 2] ^ 0x80u : 0x80u) << 8 * i;
        else if (b && i < 2)
            out |= scale_bits(s, row, raw_half(b + 208), 24, 20) << 16 * i;
    }
    return out;
}

static TILE_WORD uint32_t q6_k_code(const unsigned char *b, int k) {
    const int quarter = k % 128 / 32;
    const uint32_t byte = b[k / 128 * 64 + quarter % 2 * 32 + k % 32];
    const uint32_t two = b[128 + k / 128 * 32 + k % 32] >> 2 * quarter & 3;
    return (quarter < 2 ? byte & 15 : byte >> 4) | two << 4;
}

template <> TILE_WORD uint32_t chunk_word<WEIGHT_Q6_K>(const tile_source &s, int64_t k0, int word) {
    if (word >= 768)
        return q6_k_scale_word(s, k0, word - 768);
    const bool last = word >= 512;
    const int lane = word % 128 / 4;
    const int section = last ? (word - 512) / 128 * 2 + word % 4 / 2 : word / 128;
    return word_of_codes<6>(last ? 4 + word % 2 : word % 4, [&](int step, int reg, int half) {
        const int k = section * 64 + column_of(lane, step, reg, half);
        const unsigned char *b = block_at(s, row_of(lane, reg), k0, 256, 210);
        return b ? q6_k_code(b, k) : 0u;
    });
}

RAW_FN int k_bytes(int form) {
    return form == WEIGHT_Q4_K ? 144 : form == WEIGHT_Q5_K ? 176 : 210;
}

// A bound on the values of a block. Of Q5_K a little more, so that 2^24 times a scale has room in
// fp16.
static TILE_WORD float k_bound(int form, const unsigned char *b) {
    if (form == WEIGHT_Q6_K)
        return fabsf(raw_half(b + 208)) * 128 * 32;
    return fmaxf(fabsf(raw_half(b)) * 63 * (form == WEIGHT_Q4_K ? 15 : 33),
                 fabsf(raw_half(b + 2)) * 63);
}

#endif
