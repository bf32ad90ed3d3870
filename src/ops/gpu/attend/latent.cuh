// SPDX-License-Identifier: Apache-2.0
// What both kernels for latents share (latent.cu, latent_wide.cu): sizes, places in
// shared memory, and how keys come there. For .cu files only.
#ifndef COPPICE_OPS_GPU_ATTEND_LATENT_CUH
#define COPPICE_OPS_GPU_ATTEND_LATENT_CUH

#include "ops/gpu/attend/tile.cuh"

enum { LATENT_KEY = 576, LATENT_VALUE = 512, LATENT_TILES = 4 };

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// Of forms with PAIRS pairs and STAGES_ stages.
template <int PAIRS, int STAGES_, bool ROTATED_> struct latent_places {
    static constexpr int D = LATENT_KEY, DV = LATENT_VALUE, WARPS = 8, THREADS = WARPS * WARP;
    static constexpr bool SAME = true, OUTSIDE = true, ROTATED = ROTATED_, COPIED = false;
    static constexpr int STAGES = STAGES_, SAVED = 0, TILE = ATTEND_CHUNK * D * 2;
    static constexpr int V = 0, Q = STAGES * TILE, ALL = Q + PAIRS * D * 2, STATE = ALL;

    typedef cut_rows<PAIRS> queries;
    typedef cut_rows<ATTEND_CHUNK> keys;

    static __device__ inline unsigned weights(int turn) {
        return (unsigned)(turn % STAGES * TILE + DV / 64 * keys::COLUMN);
    }

    // The keys of a chunk, by all threads: eight of them bring 64 values of a row at once. With
    // ROTATED their codec is stored rotated.
    static __device__ inline void load_keys(const struct attend_run *u, const struct attend_item *t,
                                            const struct attend_keys *k, int chunk,
                                            unsigned char *tile) {
        constexpr int EACH = THREADS / 8; // rows at once
        if (ROTATED) {
            load_coded<keys, D, THREADS>(u->codec_k, stored_rows{u, k, false, 0}, tile);
            return;
        }
        unsigned base = shared_address(tile);
        int row = threadIdx.x / 8, at = threadIdx.x % 8;
        if (u->codec_k == KV_F16 && (chunk + 1) * ATTEND_CHUNK <= t->len && k->page[0]) {
            const unsigned char *from = k->page[0] + u->k.codes + row * D * 2 + at * 16;
            unsigned to = base + (unsigned)keys::at(row, at);
#pragma unroll
            for (int i = 0; i < ATTEND_CHUNK / EACH; i++)
#pragma unroll
                for (int c = 0; c < D / 64; c++)
                    copy_piece(to + (unsigned)(i * EACH * keys::PITCH + c * keys::COLUMN),
                               from + i * EACH * D * 2 + c * 128);
            return;
        }
        for (; row < ATTEND_CHUNK; row += EACH) {
            struct kv_row from = attend_key(u, k, row, false, 0);
#pragma unroll 3
            for (int c = 0; c < D / 64; c++) {
                int piece = c * 8 + at;
                if (u->codec_k == KV_F16) {
                    copy_or_zero(base + (unsigned)keys::at(row, piece),
                                 from.codes ? from.codes + piece * 16 : NULL);
                    continue;
                }
                float x[8] = {0, 0, 0, 0, 0, 0, 0, 0};
                if (from.codes)
                    kv_load8_as_is(u->codec_k, from, piece, x);
                *(uint4 *)(tile + keys::at(row, piece)) = pack_eight(x);
            }
        }
    }
};

#endif

#endif
