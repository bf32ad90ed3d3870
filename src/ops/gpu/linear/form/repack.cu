// SPDX-License-Identifier: Apache-2.0
// From the file's blocks to the tiles of ops/gpu/linear/operands.h, on the device, while the file
// streams in. One block makes one tile of 16 rows: first each row's power of two, from a bound on
// its values, then the tile word by word. The layouts are described in dequant.cuh, which reads
// them.
#include "ops/gpu/linear/form/repack.cuh"
#include "ops/gpu/runtime/ops_cuda.h"

enum { THREADS = 128 };

RAW_FN float plain_value(const tile_source &s, int row, int64_t k) {
    if (row >= s.count || k >= s.k)
        return 0;
    return ldexpf(raw_value(s.type, s.rows + row * s.row_bytes, k), s.exponent[row]);
}

// Pairs of scales of groups of 32: rows g and g + 8 in a word, two groups.
static TILE_WORD uint32_t pair_word(const tile_source &s, int64_t k0, int word, int bytes, int low,
                                    int high) {
    uint32_t out = 0;
    for (int i = 0; i < 2; i++) {
        int row = word / 2 + 8 * i;
        const unsigned char *b = block_at(s, row, k0 + word % 2 * 32, 32, bytes);
        if (b)
            out |= scale_bits(s, row, raw_half(b), low, high) << 16 * i;
    }
    return out;
}

template <> TILE_WORD uint32_t chunk_word<WEIGHT_Q8_0>(const tile_source &s, int64_t k0, int word) {
    if (word >= 256)
        return pair_word(s, k0, word - 256, 34, 24, 24);
    int lane = word % 128 / 4, step = word / 128 * 2 + word % 4 / 2;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) {
        int reg = word % 2 * 2 + i / 2;
        int64_t k = k0 + column_of(lane, step, reg, i % 2);
        const unsigned char *b = block_at(s, row_of(lane, reg), k, 32, 34);
        out |= (b ? b[2 + k % 32] ^ 0x80u : 0x80u) << 8 * i;
    }
    return out;
}

template <> TILE_WORD uint32_t chunk_word<WEIGHT_Q4_0>(const tile_source &s, int64_t k0, int word) {
    if (word >= 128)
        return pair_word(s, k0, word - 128, 18, 22, 18);
    int lane = word / 4;
    uint32_t out = 0;
    for (int i = 0; i < 8; i++) {
        int reg = i % 4;
        int64_t k = k0 + column_of(lane, word % 4, reg, i / 4);
        const unsigned char *b = block_at(s, row_of(lane, reg), k, 32, 18);
        uint32_t code = b ? (uint32_t)raw_nibble(b + 2, (int)(k % 32)) : 8;
        out |= rotated(code, (2 + 4 * reg) % 16) << i / 4 * 16;
    }
    return out;
}

template <>
TILE_WORD uint32_t chunk_word<WEIGHT_MXFP4>(const tile_source &s, int64_t k0, int word) {
    const int sign[4] = {15, 12, 14, 13}, size[4] = {9, 6, 3, 0};
    uint32_t out = 0;
    for (int i = 0; word >= 128 && i < 4; i++) {
        int row = word - 128 + i % 2 * 8;
        const unsigned char *b = block_at(s, row, k0 + i / 2 * 32, 32, 17);
        int field = b ? b[0] - 113 + s.exponent[row] + 15 : 0; // of an exponent in fp16
        out |= (field < 1 ? 0u : field > 30 ? 30u : (uint32_t)field) << (8 * i + 2);
    }
    int lane = word / 4;
    for (int i = 0; word < 128 && i < 8; i++) {
        int reg = i % 4;
        int64_t k = k0 + column_of(lane, word % 4, reg, i / 4);
        const unsigned char *b = block_at(s, row_of(lane, reg), k, 32, 17);
        uint32_t code = b ? (uint32_t)raw_nibble(b + 1, (int)(k % 32)) : 0;
        out |= ((code >> 3) << sign[reg] | (code & 7) << size[reg]) << i / 4 * 16;
    }
    return out;
}

template <> TILE_WORD uint32_t chunk_word<WEIGHT_HALF>(const tile_source &s, int64_t k0, int word) {
    int lane = word % 128 / 4, reg = word % 4;
    int64_t k = k0 + column_of(lane, word / 128, reg, 0);
    int row = row_of(lane, reg);
    return half_bits(plain_value(s, row, k)) | half_bits(plain_value(s, row, k + 1)) << 16;
}

template <>
TILE_WORD uint32_t chunk_word<WEIGHT_FLOAT>(const tile_source &s, int64_t k0, int word) {
    int lane = word % 128 / 4, reg = word / 128 % 2 * 2 + word % 4 / 2;
    int64_t k = k0 + column_of(lane, word / 256, reg, word % 2);
    return raw_bits(plain_value(s, row_of(lane, reg), k));
}

// A bound on the values of block i of a row (of value i in the plain types).
static __device__ float block_bound(const tile_source &s, int form, const unsigned char *row,
                                    int64_t i) {
    switch (form) {
    case WEIGHT_Q2_K:
    case WEIGHT_LEVELS8:
    case WEIGHT_LEVELS16:
    case WEIGHT_Q5_1:
        return low_bound(s.type, form, row + i * low_bytes(s.type));
    case WEIGHT_NVFP4:
        return 1; // no need of a power of two
    case WEIGHT_Q4_K:
    case WEIGHT_Q5_K:
    case WEIGHT_Q6_K:
        return k_bound(form, row + i * k_bytes(form));
    case WEIGHT_Q8_0:
        return fabsf(raw_half(row + i * 34)) * 128;
    case WEIGHT_Q4_0:
        return fabsf(raw_half(row + i * 18)) * 8;
    case WEIGHT_MXFP4:
        return ldexpf(1, row[i * 17] - 128);
    default:
        return fabsf(raw_value(s.type, row, i));
    }
}

// Values of a block.
static __device__ int block_of(uint32_t type, int form) {
    switch (form) {
    case WEIGHT_Q4_K:
    case WEIGHT_Q5_K:
    case WEIGHT_Q6_K:
        return 256;
    case WEIGHT_Q8_0:
    case WEIGHT_Q4_0:
    case WEIGHT_MXFP4:
        return 32;
    case WEIGHT_HALF:
    case WEIGHT_FLOAT:
        return 1;
    default:
        return low_block(type);
    }
}

// Eight threads a row.
static __device__ void row_exponents(const tile_source &s, int form, int *exponent) {
    int row = threadIdx.x / 8;
    int size = block_of(s.type, form);
    float max = 0;
    if (row < s.count)
        for (int64_t i = threadIdx.x % 8; i < s.k / size; i += 8)
            max = fmaxf(max, block_bound(s, form, s.rows + row * s.row_bytes, i));
    for (int d = 4; d; d /= 2)
        max = fmaxf(max, warp_across(max, d));
    int e = max > 0 && max < INFINITY ? target_of(form) - 1 - ilogbf(max) : 0;
    if (threadIdx.x % 8 == 0)
        exponent[row] = e > 126 ? 126 : e;
}

template <int FORM>
static __global__ void repack(tile_source s, unsigned char *data, int64_t pitch,
                              signed char *exponents) {
    __shared__ int exponent[TILE_ROWS];
    const int span = FORM <= WEIGHT_Q6_K ? 256 : 64;
    s.rows += blockIdx.x * (int64_t)TILE_ROWS * s.row_bytes;
    s.count -= blockIdx.x * (int64_t)TILE_ROWS;
    s.exponent = exponent;
    row_exponents(s, FORM, exponent);
    __syncthreads();
    if (threadIdx.x < TILE_ROWS)
        exponents[blockIdx.x * TILE_ROWS + threadIdx.x] = (signed char)exponent[threadIdx.x];
    uint32_t *out = (uint32_t *)(data + blockIdx.x * pitch);
    int words = (int)(pitch / ((s.k + span - 1) / span) / 4);
    for (int64_t k0 = 0; k0 < s.k; k0 += span, out += words)
        for (int w = threadIdx.x; w < words; w += THREADS)
            out[w] = chunk_word<FORM>(s, k0, w);
}

extern "C" void cuda_repack(struct gpu *g, struct weight *w, const unsigned char *rows,
                            int64_t row_bytes, int64_t first, int64_t count, const void *grid) {
    int64_t tile = first / TILE_ROWS;
    unsigned blocks = (unsigned)((count + TILE_ROWS - 1) / TILE_ROWS);
    struct tile_source s = {
        rows, count, row_bytes, w->k, w->view.type, nullptr, (const uint16_t *)grid};
    unsigned char *data = (unsigned char *)w->view.data + tile * w->view.pitch;
    signed char *exponents = (signed char *)w->view.exponent + tile * TILE_ROWS;
    switch (w->form) {
#define X(name, span, chunk)                                                                       \
    case WEIGHT_##name:                                                                            \
        gpu_launch(g, "repacking a weight", repack<WEIGHT_##name>, blocks, THREADS, 0, s, data,    \
                   w->view.pitch, exponents);                                                      \
        break;
        WEIGHT_FORMS_LIST(X)
#undef X
    }
    launch_order_stop(&g->order); // weights have changed, which kernels read early
}
