// SPDX-License-Identifier: Apache-2.0
// Tiles of 16-bit values in shared memory and the matrix instructions that read them, for the
// attention kernels. A tile has rows of D halves whose 16-byte pieces are exchanged by
// piece ^ (row % 8), so that eight rows of one piece lie in different banks; for wgmma its rows are
// cut into columns of 64 halves. For .cu files only.
#ifndef COPPICE_OPS_GPU_ATTEND_TILE_CUH
#define COPPICE_OPS_GPU_ATTEND_TILE_CUH

#include "ops/gpu/attend/attend.cuh"
#include "ops/gpu/attend/kv_halves.cuh"
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

// Rows of a chunk whose codec is not F16: a thread has two pieces of a row at once, and with D
// values that are no power of two the same place of each LANES * 16 values.
template <int CODEC, class PLACES, int D, int THREADS>
static __device__ inline void load_codes(const struct attend_run *u, const struct attend_keys *keys,
                                         bool value, int kv, unsigned char *tile) {
    constexpr int TWOS = D / 16, LANES = TWOS & -TWOS, STEP = THREADS / LANES;
    typedef kv_halves<CODEC> halves;
#pragma unroll 2
    for (int slot = threadIdx.x / LANES; slot < ATTEND_CHUNK; slot += STEP) {
        const struct kv_row from = attend_key(u, keys, slot, value, kv);
#pragma unroll 3
        for (int at = threadIdx.x % LANES; at < TWOS; at += LANES) {
            halves x = {};
            uint4 two[2];
            if (from.codes)
                x.read(from, at);
            x.make(two);
            *(uint4 *)(tile + PLACES::at(slot, halves::first(at))) = two[0];
            *(uint4 *)(tile + PLACES::at(slot, halves::first(at) + halves::APART)) = two[1];
        }
    }
}

// The same of any codec but F16: for the kernels' instances where K or V has one that is stored
// rotated. Those have instances of their own because all this code takes registers.
template <class PLACES, int D, int THREADS>
static __device__ inline void load_coded(int codec, const struct attend_run *u,
                                         const struct attend_keys *keys, bool value, int kv,
                                         unsigned char *tile) {
    switch (codec) {
#define KV_CASE(id)                                                                                \
    case id:                                                                                       \
        load_codes<id, PLACES, D, THREADS>(u, keys, value, kv, tile);                              \
        break;
        KV_HALVES_CODECS(KV_CASE)
#undef KV_CASE
    }
}

// The keys or values of a chunk, by all THREADS threads, in places of PLACES; F16 by asynchronous
// copies, which the caller closes. Committed keys lie one after the other. ROTATED: K or V has a
// codec that is stored rotated.
template <bool ROTATED, class PLACES, int D, int THREADS>
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
    if (ROTATED && codec != KV_F16) {
        load_coded<PLACES, D, THREADS>(codec, u, keys, value, kv, tile);
        return;
    }
    if (!ROTATED && codec == KV_Q8_0) {
        load_codes<KV_Q8_0, PLACES, D, THREADS>(u, keys, value, kv, tile);
        return;
    }
    for (; slot < ATTEND_CHUNK; slot += STEP) {
        struct kv_row from = attend_key(u, keys, slot, value, kv);
        if (ROTATED || codec == KV_F16) {
            copy_or_zero(base + (unsigned)PLACES::at(slot, at),
                         from.codes ? from.codes + at * 16 : NULL);
            continue;
        }
        float x[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        if (from.codes)
            kv_load8_as_is(codec, from, at, x);
        *(uint4 *)(tile + PLACES::at(slot, at)) = pack_eight(x);
    }
}

#endif

#endif
