// SPDX-License-Identifier: Apache-2.0
// Blocks of threads whose pairs choose blocks of keys (choose.cu): which chunks any of them sees.
// The others are passed over, which changes no bit: to a pair, a chunk of hidden keys adds zeros
// under the maximum that it had. For the kernels with matrix instructions (F::CHOICE).
#ifndef COPPICE_OPS_GPU_ATTEND_CHOICE_CUH
#define COPPICE_OPS_GPU_ATTEND_CHOICE_CUH

#include "ops/gpu/attend/block.cuh"

enum {
    CHOICE_WORDS = 96, // of 32 blocks: 393,216 positions; beyond them every chunk is taken
    CHOICE_BYTES = CHOICE_WORDS * 4,
    BLOCK_CHUNKS = SPARSE_BLOCK / ATTEND_CHUNK,
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// The first chunk from `chunk` on that some pair sees, or `end`.
static __device__ __forceinline__ int next_seen(const uint32_t *any, int chunk, int end) {
    while (chunk < end) {
        int block = chunk / BLOCK_CHUNKS;
        if (block >= CHOICE_WORDS * 32)
            return chunk;
        uint32_t left = any[block / 32] >> block % 32;
        if (left & 1)
            return chunk;
        if (left)
            return min(end, (block + __ffs((int)left) - 1) * BLOCK_CHUNKS);
        chunk = (block / 32 + 1) * 32 * BLOCK_CHUNKS;
    }
    return end;
}

// any[] = the bits of all pairs of the block together. All threads, behind gpu_await.
template <class F>
static __device__ inline void find_seen(const struct attend_run *u, const struct attend_item *t,
                                        const struct state<F::T> *m, uint32_t *any) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int last = min(CHOICE_WORDS - 1, (t->end - 1) / BLOCK_CHUNKS / 32);
    for (int i = threadIdx.x; i < CHOICE_WORDS; i += F::THREADS)
        any[i] = 0;
    __syncthreads();
    for (int word = t->chunk / BLOCK_CHUNKS / 32 + lane; word <= last; word += WARP) {
        uint32_t bits = 0;
        for (int pair = warp; pair < t->n_pairs; pair += F::WARPS)
            bits |= u->chosen[(int64_t)m->place[pair] * u->words + word];
        if (bits)
            atomicOr(&any[word], bits);
    }
    __syncthreads();
}

// As begin() of block.cuh: the keys of the first two chunks that are seen become keys 0 and
// 1, and load(b, chunk) brings the first.
template <class F, class LOAD>
static __device__ inline struct work begin_choosing(const struct attend_run *u,
                                                    struct state<F::T> *m, unsigned char *memory,
                                                    uint32_t *any, LOAD load) {
    struct work b = {attend_entry(&u->items[blockIdx.x]), (int)blockIdx.y, memory};
    if (threadIdx.x == 0) {
        m->first_most = m->split_most = 0;
        m->last_least = m->split_least = INT32_MAX;
    }
    __syncthreads();
    find_pairs<F::T>(u, &b, m);
    gpu_await();
    gpu_let_next();
    __syncthreads();
    find_seen<F>(u, &b.t, m, any);
    int chunk[2] = {next_seen(any, b.t.chunk, b.t.end), b.t.end};
    chunk[1] = next_seen(any, chunk[0] + 1, b.t.end);
    for (int i = 0; i < 2 && threadIdx.x < ATTEND_CHUNK; i++) {
        struct attend_found found = {NULL, 0, 0};
        if (chunk[i] < b.t.end)
            found = attend_look(u, &b.t, chunk[i], threadIdx.x);
        attend_note(u, found, &m->keys[i], threadIdx.x);
    }
    __syncthreads();
    load(&b, chunk[0]);
    return b;
}

#endif

#endif
