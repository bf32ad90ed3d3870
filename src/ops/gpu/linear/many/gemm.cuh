// SPDX-License-Identifier: Apache-2.0
// Linear layers of many rows on sm_90a: blocks that stay, each with four warps that bring and two
// warpgroups that multiply. Every bringing warp has two tiles of 16 outputs: it keeps a ring of
// their packed chunks under way, turns 64 of k at a time into fp16 and leaves them in shared
// memory, in the swizzle that wgmma reads; one thread has the copy engine bring the activations
// next to them. Both go into one ring of stages, which only mbarriers guard, so that the bringing
// warps run ahead over the ends of tiles. A warpgroup multiplies 64 outputs with N rows.
//
// A tile of linear_gate_up has 64 outputs of each matrix, eight of gate and up in turn, so that a
// thread holds both sums of an output. The weights' numbers, the order of k and its parts are those
// of the mma.sync path, and so are the bits.
//
// What a tile is, where its weights lie and where its sums go is a CALL's to say:
//   rows: the map of the activations; AHEAD: whether weights may be requested in front of gpu_await
//   all_tiles(), values() (of k, padded), tile_at(number, N), with a row
//   data(tile, warp, i): packed weights of tile i of a bringing warp
//   is_pair(tile), parts(tile), inputs(tile): k; store<N>(tile, sums)
#ifndef COPPICE_OPS_GPU_LINEAR_MANY_GEMM_CUH
#define COPPICE_OPS_GPU_LINEAR_MANY_GEMM_CUH

#include "ops/gpu/linear/few/stream.cuh"
#include "ops/gpu/linear/many/many.cuh"
#include "ops/gpu/runtime/gpu_map.h"

enum {
    // Of a thread. Together not more than the 168 that each of the 384 begins with: a block that
    // requests more waits for ever.
    BRING_REGISTERS = 104,
    MULTIPLY_REGISTERS = 200,
    BARRIERS = 1024, // bytes
};

template <int FORM, int N> struct gemm_shape {
    enum {
        SECTIONS = dequant<FORM>::SPAN / STEP,
        CHUNK = dequant<FORM>::CHUNK, // two of them are copied at once
        SLOT = WARP_TILES * CHUNK,
        A = OUTPUTS * STEP * 2,
        STAGE = A + N * STEP * 2,
        STAGES = N == 256 ? 3 : 4,
        SLOTS = SECTIONS > 1 ? 2 : 4, // of a bringing warp
        RAW = STAGES * STAGE,         // where they lie
        BARS = RAW + BRINGERS * SLOTS * SLOT,
        BYTES = BARS + BARRIERS,
    };
};

// In code for other devices the kernels are empty.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Addresses of the barriers of a block.
template <class S> struct gemm_bars {
    uint32_t at;

    __device__ __forceinline__ uint32_t full(int stage) const {
        return at + stage * 8;
    }
    __device__ __forceinline__ uint32_t empty(int stage) const {
        return at + (S::STAGES + stage) * 8;
    }
    __device__ __forceinline__ uint32_t raw(int warp, int slot) const {
        return at + (2 * S::STAGES + warp * S::SLOTS + slot) * 8;
    }
};

// What a warp's copies of packed chunks do next.
template <class S, class CALL> struct gemm_feed {
    int64_t tile, tiles, left; // chunks
    const unsigned char *from[WARP_TILES];

    __device__ __forceinline__ void start(const CALL &c, int rows, uint32_t to, uint32_t bar,
                                          int64_t chunks, int warp) {
        if (left == 0) {
            if (tile >= tiles)
                return;
            const typename CALL::tile t = c.tile_at(tile, rows);
            for (int i = 0; i < WARP_TILES; i++)
                from[i] = c.data(t, warp, i);
            left = chunks;
            tile += gridDim.x;
        }
        if (threadIdx.x % WARP == 0) {
            barrier_expect(bar, S::SLOT);
            for (int i = 0; i < WARP_TILES; i++)
                copy_bulk(to + i * S::CHUNK, from[i], S::CHUNK, bar);
        }
        for (int i = 0; i < WARP_TILES; i++)
            from[i] += S::CHUNK;
        left--;
    }
};

// A bringing warp's 64 of k of its tiles, as fp16 to `to`; apart[i] is this lane's place in tile i.
// All are made before the first is stored, so that no store holds up what is made next.
template <int FORM>
static __device__ __forceinline__ void unpack(const dequant<FORM> *q, uint32_t to,
                                              const uint32_t *apart) {
    int lane = threadIdx.x % WARP;
    uint32_t a[STEP / 16][WARP_TILES][1][4];
#pragma unroll
    for (int s = 0; s < STEP / 16; s++)
#pragma unroll
        for (int i = 0; i < WARP_TILES; i++)
            q[i].step(s, a[s][i]);
#pragma unroll
    for (int s = 0; s < STEP / 16; s++)
#pragma unroll
        for (int i = 0; i < WARP_TILES; i++)
            store_four(to + apart[i] + ((2 * s + lane / 16) ^ (lane % 8)) * 16, a[s][i][0]);
}

// A bringing warp: where it is in its rings, and what it has in hand.
template <int FORM, int N, class CALL> struct gemm_bringer {
    using S = gemm_shape<FORM, N>;
    gemm_bars<S> bars;
    uint32_t shared, raw_phase, phase;
    const unsigned char *memory;
    int own, slot, stage; // own: its ring
    int64_t chunks;       // of a tile
    gemm_feed<S, CALL> feed;
    dequant<FORM> q[WARP_TILES];

    // Waits for the next chunk.
    __device__ __forceinline__ void open(int64_t k) {
        int lane = threadIdx.x % WARP;
        barrier_wait(bars.raw(threadIdx.x / WARP, slot), raw_phase);
        for (int i = 0; i < WARP_TILES; i++)
            q[i].open(memory + own + slot * S::SLOT + i * S::CHUNK, k, lane);
    }
    __device__ __forceinline__ void section(int sec) {
        for (int i = 0; i < WARP_TILES; i++)
            q[i].section(memory + own + slot * S::SLOT + i * S::CHUNK, sec, threadIdx.x % WARP);
    }
    // Has the chunk's place filled again.
    __device__ __forceinline__ void refill(const CALL &c) {
        int warp = threadIdx.x / WARP;
        __syncwarp();
        feed.start(c, N, shared + own + slot * S::SLOT, bars.raw(warp, slot), chunks, warp);
        if (++slot == S::SLOTS) {
            slot = 0;
            raw_phase ^= 1;
        }
    }
    // A stage of 64 of k from k on, once there is room: what is in hand becomes fp16.
    __device__ __forceinline__ void fill(const CALL &c, int k, int row, const uint32_t *apart) {
        barrier_wait(bars.empty(stage), phase ^ 1);
        if (threadIdx.x == 0) {
            barrier_expect(bars.full(stage), N * STEP * 2);
            tile_copy(shared + stage * S::STAGE + S::A, &c.rows, k, row, bars.full(stage));
        }
        unpack<FORM>(q, shared + stage * S::STAGE, apart);
    }
    // Signals the multiplying warps.
    __device__ __forceinline__ void give(void) {
        show_shared();
        __syncwarp();
        if (threadIdx.x % WARP == 0)
            barrier_arrive(bars.full(stage));
        if (++stage == S::STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
    // The next chunk, stage by stage. What comes next is in hand before a stage is given.
    __device__ __forceinline__ void bring(const CALL &c, int k, int row, const uint32_t *apart) {
        open(k);
        section(0);
#pragma unroll
        for (int sec = 0; sec < S::SECTIONS; sec++) {
            fill(c, k + sec * STEP, row, apart);
            if (sec + 1 < S::SECTIONS)
                section(sec + 1);
            else
                refill(c);
            give();
        }
    }
};

template <int FORM, int N, class CALL>
static __device__ __forceinline__ void bring(const CALL &c, uint32_t shared,
                                             const unsigned char *memory) {
    using S = gemm_shape<FORM, N>;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    gemm_bringer<FORM, N, CALL> b;
    b.bars.at = shared + S::BARS;
    b.shared = shared;
    b.memory = memory;
    b.raw_phase = b.phase = 0;
    b.own = S::RAW + warp * S::SLOTS * S::SLOT;
    b.slot = b.stage = 0;
    b.chunks = c.values() / STEP / S::SECTIONS;
    if (!CALL::AHEAD)
        gpu_await();
    const int64_t tiles = c.all_tiles();
    b.feed.tile = blockIdx.x;
    b.feed.tiles = tiles;
    b.feed.left = 0;
    for (int s = 0; s < S::SLOTS; s++)
        b.feed.start(c, N, shared + b.own + s * S::SLOT, b.bars.raw(warp, s), b.chunks, warp);
    if (CALL::AHEAD)
        gpu_await();
    for (int64_t at = blockIdx.x; at < tiles; at += gridDim.x) {
        const typename CALL::tile t = c.tile_at(at, N);
        uint32_t apart[WARP_TILES];
        for (int i = 0; i < WARP_TILES; i++) {
            // Eights of outputs: of a pair gate and up in turn, else one after another.
            int eight =
                c.is_pair(t) ? warp * 4 + i + lane / 8 % 2 * 2 : warp * 4 + i * 2 + lane / 8 % 2;
            apart[i] = eight * 1024 + lane % 8 * 128;
        }
        for (int64_t chunk = 0; chunk < b.chunks; chunk++)
            b.bring(c, (int)chunk * dequant<FORM>::SPAN, (int)t.row, apart);
    }
}

// Where a multiplying warpgroup is in the ring.
template <int FORM, int N> struct gemm_multiplier {
    using S = gemm_shape<FORM, N>;
    gemm_bars<S> bars;
    uint32_t weights, rows; // wgmma_low of the group's in the first stage
    int stage;
    uint32_t phase;

    // Says that a stage has been read.
    __device__ __forceinline__ void leave(int which) const {
        if (which >= 0 && threadIdx.x % WARP == 0)
            barrier_arrive(bars.empty(which));
    }

    // d = the products of the next `steps` stages, in order. A stage is left when the one after
    // it is under way.
    __device__ __forceinline__ void sum(float (&d)[N / 2], int64_t steps) {
        int before = -1;
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            d[i] = 0;
        for (int64_t step = 0; step < steps; step++) {
            const uint32_t from = (uint32_t)stage * (S::STAGE / 16);
            barrier_wait(bars.full(stage), phase);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < STEP / 16; i++)
                wgmma_both<N>(d, wgmma_operand(weights + from + i * 2),
                              wgmma_operand(rows + from + i * 2));
            wgmma_commit();
            wgmma_wait<1>();
            leave(before);
            before = stage;
            if (++stage == S::STAGES) {
                stage = 0;
                phase ^= 1;
            }
        }
        wgmma_wait<0>();
        leave(before);
    }
};

template <int FORM, int N, bool PARTS, class CALL>
static __device__ __forceinline__ void multiply_tiles(const CALL &c, uint32_t shared) {
    using S = gemm_shape<FORM, N>;
    gemm_multiplier<FORM, N> w = {{shared + S::BARS},
                                  wgmma_low(shared + multiplying_group() * (S::A / 2)),
                                  wgmma_low(shared + S::A),
                                  0,
                                  0};
    int64_t steps = c.values() / STEP;
    gpu_await();
    const int64_t tiles = c.all_tiles();
    for (int64_t at = blockIdx.x; at < tiles; at += gridDim.x) {
        const typename CALL::tile t = c.tile_at(at, N);
        float d[N / 2];
        if constexpr (PARTS) {
            float total[N / 2];
            int64_t begin = 0;
            const int parts = c.parts(t);
            for (int part = 0; part < parts; part++) {
                int64_t end = linear_part_begin(c.inputs(t), parts, part + 1) / STEP;
                end = end < steps ? end : steps;
                w.sum(d, end - begin);
                begin = end;
                add_part<N>(total, d, part == 0);
            }
            c.template store<N>(t, total);
        } else {
            w.sum(d, steps);
            c.template store<N>(t, d);
        }
    }
}
#endif

template <int FORM, int N, bool PARTS, class CALL>
static __global__ void __launch_bounds__(THREADS, 1) linear_gemm(const __grid_constant__ CALL c) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using S = gemm_shape<FORM, N>;
    extern __shared__ __align__(1024) unsigned char memory[];
    uint32_t shared = shared_address(memory);
    gemm_bars<S> bars = {shared + S::BARS};
    if (threadIdx.x == 0) {
        for (int s = 0; s < S::STAGES; s++) {
            barrier_init(bars.full(s), BRINGERS + 1);
            barrier_init(bars.empty(s), MULTIPLIERS);
        }
        for (int s = 0; s < BRINGERS * S::SLOTS; s++)
            barrier_init(bars.raw(0, s), 1);
        barriers_ready();
        show_shared();
    }
    __syncthreads();
    if (threadIdx.x < BRINGERS * WARP) {
        registers_down<BRING_REGISTERS>();
        bring<FORM, N>(c, shared, memory);
    } else {
        registers_up<MULTIPLY_REGISTERS>();
        multiply_tiles<FORM, N, PARTS>(c, shared);
    }
#else
    gpu_await();
    (void)c;
#endif
}

#endif
