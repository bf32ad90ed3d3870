// SPDX-License-Identifier: Apache-2.0
// What repack.cu makes tiles of, where a value sits in them, and words of the chunks that
// dequant.cuh describes, with bounds on what is in a block. Also for the host, where a test reads
// tiles without a GPU (tests/gpu/test_forms.cu).
#ifndef COPPICE_OPS_GPU_LINEAR_FORM_REPACK_CUH
#define COPPICE_OPS_GPU_LINEAR_FORM_REPACK_CUH

#include "ops/gpu/linear/form/codes.cuh"
#include "ops/gpu/linear/form/file_blocks.cuh"
#include "ops/gpu/linear/operands.h"

#define TILE_WORD inline __host__ __device__

// Rows first .. first + 15 of a matrix that is being made.
struct tile_source {
    const unsigned char *rows; // in device memory; those beyond `count` do not exist
    int64_t count, row_bytes, k;
    uint32_t type;
    const int *exponent;  // [16]
    const uint16_t *grid; // of a type with a codebook
};

// Where a value sits: lane, step of 16 and register of a section of 64, half of the register.
RAW_FN int row_of(int lane, int reg) {
    return lane / 4 + reg % 2 * 8;
}

RAW_FN int column_of(int lane, int step, int reg, int half) {
    return 16 * step + lane % 4 * 2 + reg / 2 * 8 + half;
}

RAW_FN uint32_t rotated(uint32_t v, int by) {
    return (v << by | v >> (16 - by)) & 0xFFFF;
}

RAW_FN uint32_t half_bits(float v) {
    return __half_as_ushort(__float2half_rn(v));
}

// The block of a row that holds k, or NULL.
RAW_FN const unsigned char *block_at(const tile_source &s, int row, int64_t k, int size,
                                     int bytes) {
    return row < s.count && k < s.k ? s.rows + row * s.row_bytes + k / size * bytes : nullptr;
}

// 2^e of the row times the factor of its half of the tile.
RAW_FN uint32_t scale_bits(const tile_source &s, int row, float d, int low, int high) {
    return half_bits(ldexpf(d, s.exponent[row] + (row < 8 ? low : high)));
}

// Word `word` of the chunk of 16 rows that begins at k0.
template <int FORM>
static TILE_WORD uint32_t chunk_word(const tile_source &s, int64_t k0, int word);

// The bound of a row is brought into [2^(t-1), 2^t).
RAW_FN int target_of(int form) {
    switch (form) {
    case WEIGHT_Q4_K:
    case WEIGHT_Q5_K:
    case WEIGHT_Q5_1:
        return -3;
    case WEIGHT_Q6_K:
    case WEIGHT_Q4_0:
        return -4;
    case WEIGHT_Q8_0:
    case WEIGHT_Q2_K:
    case WEIGHT_LEVELS8:
    case WEIGHT_LEVELS16:
        return -2;
    case WEIGHT_NVFP4:
        return -6; // 2^-7
    case WEIGHT_MXFP4:
        return 1; // scales up to 2^15
    case WEIGHT_HALF:
        return 16; // exact up to there
    default:
        return 15;
    }
}

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
    float max = 0;
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
        max = fmaxf(max, fabsf(low_sixteen_scale(type, b, i)) * 128);
    return max;
}

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
