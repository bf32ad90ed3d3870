// SPDX-License-Identifier: Apache-2.0
// Words of the chunks of dequant_low.cuh, which describes them, and bounds on what is in a block.
// Also for the host, where a test reads tiles without a GPU (tests/gpu/test_forms.cu).
#ifndef COPPICE_OPS_GPU_LINEAR_FORM_REPACK_LOW_CUH
#define COPPICE_OPS_GPU_LINEAR_FORM_REPACK_LOW_CUH

#include "ops/gpu/linear/form/codes.cuh"
#include "ops/gpu/linear/form/low.cuh"
#include "ops/gpu/linear/form/tile_source.cuh"
#include "ops/gpu/linear/linear.h"

RAW_FN const unsigned char *low_at(const tile_source &s, int row, int64_t k) {
    return block_at(s, row, k, low_block(s.type), low_bytes(s.type));
}

// Bytes of two steps' scales: rows g and g + 8 of a step, then of the next. word: 8 g + pair.
template <class SCALE>
static TILE_WORD uint32_t scale_bytes(const tile_source &s, int64_t k0, int word, SCALE scale) {
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned char *b = low_at(s, word / 8 + i % 2 * 8, k0);
        if (b)
            out |= (scale(s.type, b, word % 8 * 2 + i / 2) & 255) << 8 * i;
    }
    return out;
}

// D of rows g and g + 8.
static TILE_WORD uint32_t factor_pair(const tile_source &s, const float (&d)[2], int g, int low,
                                      int high) {
    return scale_bits(s, g, d[0], low, high) | scale_bits(s, g + 8, d[1], low, high) << 16;
}

static TILE_WORD uint32_t two_scales(uint32_t type, const unsigned char *b, int group) {
    return low_two_scales(type, b, group);
}

template <> TILE_WORD uint32_t chunk_word<WEIGHT_Q2_K>(const tile_source &s, int64_t k0, int word) {
    uint32_t out = 0;
    if (word >= 320) { // D and -16 DM
        float d[2] = {0, 0};
        const int g = (word - 320) / 2;
        for (int i = 0; i < 2; i++) {
            const unsigned char *b = low_at(s, g + i * 8, k0);
            const float2 f = b ? low_two_factors(s.type, b) : make_float2(0, 0);
            d[i] = word % 2 ? -16 * f.y : f.x;
        }
        return word % 2 ? factor_pair(s, d, g, 0, 0) : factor_pair(s, d, g, 18, 16);
    }
    if (word >= 256)
        return scale_bytes(s, k0, word - 256, two_scales);
    const int lane = word % 64 / 2;
    for (int i = 0; i < 16; i++) {
        const int reg = i % 4, half = i / 4 % 2, step = word % 2 * 2 + i / 8;
        const int k = word / 64 * 64 + column_of(lane, step, reg, half);
        const unsigned char *b = low_at(s, row_of(lane, reg), k0);
        const int at = 6 + reg % 2 * 2 + reg / 2 * 8 + i / 8 * 4;
        if (b)
            out |= rotated((uint32_t)low_two_code(s.type, b, k), at % 16) << half * 16;
    }
    return out;
}

static TILE_WORD uint32_t eight_scales(uint32_t type, const unsigned char *b, int group) {
    return (uint32_t)low_eight_scale(type, b, group) + 128;
}

// Word `word` of the codes of a section, 0 to 2, of one lane.
static TILE_WORD uint32_t eight_codes(const tile_source &s, int64_t k0, int section, int lane,
                                      int word) {
    uint32_t out = 0;
    for (int i = 0; i < 8; i++) {
        const unsigned char *b = low_at(s, row_of(lane, i / 2), k0);
        if (!b)
            continue;
        const int own = section * 64 + column_of(lane, word, i / 2, i % 2);
        const int last = section * 64 + column_of(lane, 3, i / 2, i % 2);
        const uint32_t high = low_eight_code(s.type, b, last, s.grid) >> word & 1;
        out |= (low_eight_code(s.type, b, own, s.grid) | high << 3) << 4 * i;
    }
    return out;
}

template <>
TILE_WORD uint32_t chunk_word<WEIGHT_LEVELS8>(const tile_source &s, int64_t k0, int word) {
    uint32_t out = 0;
    if (word < 256)
        return eight_codes(s, k0, word / 64, word % 64 / 2, word % 2);
    if (word < 384)
        return eight_codes(s, k0, (word - 256) / 32, word % 32, 2);
    if (word < 448)
        return scale_bytes(s, k0, word - 384, eight_scales);
    if (word < 456) {
        float d[2] = {0, 0};
        for (int i = 0; i < 2; i++) {
            const unsigned char *b = low_at(s, word - 448 + i * 8, k0);
            d[i] = b ? low_eight_factor(s.type, b) : 0;
        }
        return factor_pair(s, d, word - 448, 24, 24);
    }
    for (int i = 0; word < 458 && i < 4; i++)
        out |= (uint32_t)(low_eight_level(s.type, (word - 456) * 4 + i) + 128) << 8 * i;
    return out;
}

// Byte i of the two tables, and a value's nibble.
static TILE_WORD uint32_t sixteen_byte(uint32_t type, int i) {
    const uint32_t byte = (uint32_t)(low_sixteen_level(type, i % 8 * 2 + i / 8) + 128);
    return i < 12 ? byte : byte ^ 255;
}

static TILE_WORD uint32_t sixteen_nibble(const tile_source &s, const unsigned char *b, int i) {
    const int at = low_sixteen_order(s.type, low_sixteen_code(s.type, b, i, s.grid));
    return (uint32_t)(at / 2 + at % 2 * 8);
}

template <>
TILE_WORD uint32_t chunk_word<WEIGHT_LEVELS16>(const tile_source &s, int64_t k0, int word) {
    uint32_t out = 0;
    const int size = low_block(s.type);
    if (word >= 132) {
        float d[2] = {0, 0};
        const int64_t k = k0 + word % 2 * 32;
        for (int i = 0; i < 2; i++) {
            const unsigned char *b = low_at(s, (word - 132) / 2 + i * 8, k);
            d[i] = b ? low_sixteen_scale(s.type, b, (int)(k % size)) : 0;
        }
        return factor_pair(s, d, (word - 132) / 2, 24, 24);
    }
    for (int i = 0; word >= 128 && i < 4; i++)
        out |= sixteen_byte(s.type, (word - 128) * 4 + i) << 8 * i;
    for (int i = 0; word < 128 && i < 8; i++) {
        const int lane = word / 4, reg = i % 2 + i / 4 * 2;
        const int64_t k = k0 + column_of(lane, word % 4, reg, i / 2 % 2);
        const unsigned char *b = low_at(s, row_of(lane, reg), k);
        if (b)
            out |= sixteen_nibble(s, b, (int)(k % size)) << 4 * i;
    }
    return out;
}

template <>
TILE_WORD uint32_t chunk_word<WEIGHT_NVFP4>(const tile_source &s, int64_t k0, int word) {
    const int sign[4] = {15, 12, 14, 13}, size[4] = {9, 6, 3, 0};
    uint32_t out = 0;
    for (int i = 0; word >= 128 && i < 4; i++) {
        const unsigned char *b = low_at(s, (word - 128) / 2 + i % 2 * 8, k0);
        const uint32_t scale = b ? b[word % 2 * 2 + i / 2] : 0u;
        out |= (scale == 0x7F ? 0u : scale & 0x7F) << 8 * i; // 0x7F is no number and reads 0
    }
    for (int i = 0; word < 128 && i < 8; i++) {
        const int lane = word / 4, reg = i % 4, k = column_of(lane, word % 4, reg, i / 4);
        const unsigned char *b = low_at(s, row_of(lane, reg), k0);
        const uint32_t byte = b ? b[4 + k / 16 * 8 + k % 8] : 0u;
        const uint32_t code = k % 16 < 8 ? byte & 15 : byte >> 4;
        out |= ((code >> 3) << sign[reg] | (code & 7) << size[reg]) << i / 4 * 16;
    }
    return out;
}

template <> TILE_WORD uint32_t chunk_word<WEIGHT_Q5_1>(const tile_source &s, int64_t k0, int word) {
    if (word >= 160) { // of a row's two groups: S, S, then what is added
        float d[2] = {0, 0};
        const int g = (word - 160) / 4;
        for (int i = 0; i < 2; i++) {
            const unsigned char *b = low_at(s, g + i * 8, k0 + word % 2 * 32);
            const float2 f = b ? low_five_factors(s.type, b) : make_float2(0, 0);
            d[i] = word % 4 / 2 ? f.y : f.x;
        }
        return word % 4 / 2 ? factor_pair(s, d, g, 0, 0) : factor_pair(s, d, g, 24, 19);
    }
    const int lane = word < 128 ? word / 4 : word - 128;
    return word_of_codes<5>(word < 128 ? word % 4 : 4, [&](int step, int reg, int half) {
        const int64_t k = k0 + column_of(lane, step, reg, half);
        const unsigned char *b = low_at(s, row_of(lane, reg), k);
        return b ? low_five_code(s.type, b, (int)(k % 32)) : 0u;
    });
}

// A bound on the values of a block (on products of its scales with the widest level).
static TILE_WORD float low_bound(uint32_t type, int form, const unsigned char *b) {
    float most = 0;
    if (form == WEIGHT_Q2_K) {
        const float2 f = low_two_factors(type, b);
        return fmaxf(fabsf(f.x) * 15 * 3, fabsf(f.y) * 15);
    }
    if (form == WEIGHT_Q5_1) {
        const float2 f = low_five_factors(type, b);
        return fmaxf(fabsf(f.x) * 33, fabsf(f.y)); // 31, and room for 2^24 times a scale
    }
    if (form == WEIGHT_LEVELS8)
        return fabsf(low_eight_factor(type, b)) * (low_is_iq1(type) ? 16 : 32) * 128;
    for (int i = 0; i < low_block(type); i += 32)
        most = fmaxf(most, fabsf(low_sixteen_scale(type, b, i)) * 128);
    return most;
}

#endif
