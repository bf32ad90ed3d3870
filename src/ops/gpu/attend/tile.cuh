// SPDX-License-Identifier: Apache-2.0
// Tiles of 16-bit values in shared memory and the matrix instructions that read them, for the
// attention kernels. A tile has rows of D halves whose 16-byte pieces are exchanged by
// piece ^ (row % 8), so that eight rows of one piece lie in different banks; for wgmma its rows are
// cut into columns of 64 halves. For .cu files only.
#ifndef COPPICE_OPS_GPU_ATTEND_TILE_CUH
#define COPPICE_OPS_GPU_ATTEND_TILE_CUH

#include "ops/gpu/attend/attend.cuh"
#include "ops/gpu/matrix/async_copy.cuh"
#include "ops/gpu/matrix/ldmatrix.cuh"
#include "ops/gpu/matrix/mma.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// Where pieces of a tile lie: rows of D halves as they are, or in columns of 64 halves, the ROWS
// rows of a column one after the other. PITCH: from a row to the next; COLUMN: to the next 64
// halves.
template <int D> struct whole_rows {
    static constexpr int PITCH = D * 2, COLUMN = 128;
    static __device__ inline int at(int row, int piece) {
        return row * PITCH + (piece ^ row % 8) * 16;
    }
};
template <int ROWS> struct cut_rows {
    static constexpr int PITCH = 128, COLUMN = ROWS * PITCH;
    static __device__ inline int at(int row, int piece) {
        return (piece / 8 * ROWS + row) * PITCH + (piece % 8 ^ row % 8) * 16;
    }
};

template <int D> static __device__ inline unsigned piece_at(unsigned base, int row, int piece) {
    return base + (unsigned)(row * D * 2 + (piece ^ row % 8) * 16);
}

// 16 bytes; zeros where from is NULL.
static __device__ inline void copy_or_zero(unsigned to, const void *from) {
    copy_piece_if(to, from ? from : "", from);
}

static __device__ inline unsigned pack(float a, float b) {
    __half2 h = __floats2half2_rn(a, b);
    return *(unsigned *)&h;
}

static __device__ inline float bounded(float x) {
    return fminf(fmaxf(x, -65504.0f), 65504.0f);
}

// Eight floats as a piece of halves, which end at 65504.
static __device__ inline uint4 pack_eight(const float *x) {
    return make_uint4(pack(bounded(x[0]), bounded(x[1])), pack(bounded(x[2]), bounded(x[3])),
                      pack(bounded(x[4]), bounded(x[5])), pack(bounded(x[6]), bounded(x[7])));
}

// Q8_0 rows of a chunk: 16 codes and their scale are one thread's, and two pieces.
template <class PLACES, int D, int THREADS>
static __device__ inline void load_codes(const struct attend_run *u, const struct attend_keys *keys,
                                         bool value, int kv, unsigned char *tile) {
    constexpr int TWOS = D / 16, STEP = THREADS / TWOS;
    int at = threadIdx.x % TWOS;
#pragma unroll 2
    for (int slot = threadIdx.x / TWOS; slot < ATTEND_CHUNK; slot += STEP) {
        struct kv_row from = attend_key(u, keys, slot, value, kv);
        uint4 codes = make_uint4(0, 0, 0, 0);
        float d = 0, x[16];
        if (from.codes) {
            codes = ((const uint4 *)from.codes)[at];
            d = kv_stored<KV_Q8_0>::scale(from, at / 2);
        }
        kv_stored<KV_Q8_0>::unpack(codes.x, d, x);
        kv_stored<KV_Q8_0>::unpack(codes.y, d, x + 4);
        kv_stored<KV_Q8_0>::unpack(codes.z, d, x + 8);
        kv_stored<KV_Q8_0>::unpack(codes.w, d, x + 12);
        *(uint4 *)(tile + PLACES::at(slot, 2 * at)) = pack_eight(x);
        *(uint4 *)(tile + PLACES::at(slot, 2 * at + 1)) = pack_eight(x + 8);
    }
}

// The keys or values of a chunk, by all THREADS threads, in places of PLACES; F16 by asynchronous
// copies, which the caller closes. Committed keys lie one after the other.
template <class PLACES, int D, int THREADS>
static __device__ inline void load_chunk(const struct attend_run *u, const struct attend_item *t,
                                         const struct attend_keys *keys, int chunk, bool value,
                                         int kv, unsigned char *tile) {
    constexpr int PIECES = D / 8, STEP = THREADS / PIECES;
    int codec = value ? u->codec_v : u->codec_k;
    unsigned base = shared_address(tile);
    int slot = threadIdx.x / PIECES, at = threadIdx.x % PIECES;
    static_assert(STEP % 8 == 0, "a thread's pieces all lie in the same column");
    if (codec == KV_F16 && (chunk + 1) * ATTEND_CHUNK <= t->len && keys->page[0]) {
        const unsigned char *from = keys->page[0] + (value ? u->v.codes : u->k.codes) +
                                    (kv * ATTEND_CHUNK + slot) * D * 2 + at * 16;
        unsigned to = base + (unsigned)PLACES::at(slot, at);
#pragma unroll
        for (int i = 0; i < ATTEND_CHUNK / STEP; i++)
            copy_piece(to + (unsigned)(i * STEP * PLACES::PITCH), from + i * STEP * D * 2);
        return;
    }
    if (codec == KV_Q8_0) {
        load_codes<PLACES, D, THREADS>(u, keys, value, kv, tile);
        return;
    }
    for (; slot < ATTEND_CHUNK; slot += STEP) {
        struct kv_row from = attend_key(u, keys, slot, value, kv);
        if (codec == KV_F16) {
            copy_or_zero(base + (unsigned)PLACES::at(slot, at),
                         from.codes ? from.codes + at * 16 : NULL);
            continue;
        }
        float x[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        if (from.codes)
            kv_load8(codec, from, at, x);
        *(uint4 *)(tile + PLACES::at(slot, at)) = pack_eight(x);
    }
}

#endif

#endif
