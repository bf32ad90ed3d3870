// SPDX-License-Identifier: Apache-2.0
// Linear layers of very many rows by mma.sync (sm_80 and newer). Weights become rows of fp16 in
// memory once for all rows; then one kernel multiplies them. A block stays for the whole launch and
// walks tiles of 128 outputs x R rows; its eight warps have 64 outputs and a quarter of the rows
// each. All threads bring stages of 64 values of k, ahead over the ends of tiles, into the 96 KB
// that GPUs of 8.6, 8.9 and 12.0 have room for.
//
// The weights' numbers, the order of k and its parts, and the chain of matrix instructions of an
// element are those of tiles.cuh, and so are the bits.
#include "base/num.h"
#include "ops/gpu/linear/many/many.cuh"
#include "ops/gpu/linear/many/many.h"
#include "ops/gpu/linear/many/tiles.cuh"

enum {
    LINE = STEP * 2,
    MMA_THREADS = 256,
    WARPS_ACROSS = 4,  // that share rows of weights
    WARP_OUTPUTS = 64, // of a warp
    SIXTEENS = WARP_OUTPUTS / 16,
    EACH = MMA_THREADS / 8, // lines of a stage that all threads bring at once
    BRING = OUTPUTS / EACH,
    ROOM = 96 << 10, // of shared memory
    BAND = 1536,     // rows that all outputs are made of before the next ones
};

template <bool PARTS_, int ROWS_> struct tiles_shape {
    static constexpr bool PARTS = PARTS_;
    enum {
        ROWS = ROWS_, // of a tile
        WARP_ROWS = ROWS / WARPS_ACROSS,
        EIGHTS = WARP_ROWS / 8,
        STAGE = (OUTPUTS + ROWS) * LINE,
        STAGES = ROOM / STAGE,
        BYTES = STAGES * STAGE,
        BRING_ROWS = ROWS / EACH,
    };
    static_assert(STAGES >= 2 && WARP_ROWS % 16 == 0 && BAND % ROWS == 0, "a ring, whole loads");
};

struct tiles_call {
    struct linear_launch l;             // its jobs begin at blocks of 128 outputs
    const __half *weights[LINEAR_JOBS]; // unpacked, of the launch's stride
    int rows[LINEAR_JOBS];              // of them
    int64_t blocks;                     // of all jobs
};

static __host__ __device__ __forceinline__ int64_t all_tiles(const tiles_call &c) {
    return c.blocks * c.l.row_tiles;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
template <class S>
static __device__ __forceinline__ many_tile tile_of(const tiles_call &c, int64_t at, int *job) {
    return tile_in_bands(c.l, c.blocks, BAND / S::ROWS, S::ROWS, at, job);
}

// What a thread brings next: piece threadIdx.x % 8 of every 32nd output and row of a stage. Piece p
// of line r lies at piece p ^ (r % 8) of its line.
template <class S> struct tiles_source {
    int64_t at; // tile
    int step;
    uint32_t to;                                // of the first piece, in a stage
    uint32_t output[BRING], row[S::BRING_ROWS]; // pieces from the start of the operand
    const uint4 *weights;

    __device__ __forceinline__ void open(const tiles_call &c) {
        if (at >= all_tiles(c))
            return;
        int job;
        const many_tile t = tile_of<S>(c, at, &job);
        const uint32_t pitch = (uint32_t)(c.l.stride / 8), piece = threadIdx.x % 8;
        const int first = (int)t.block * OUTPUTS + (int)threadIdx.x / 8, max = c.rows[job] - 1;
        const int first_row = (int)t.row + (int)threadIdx.x / 8, last = (int)c.l.n - 1;
        weights = (const uint4 *)c.weights[job];
#pragma unroll
        for (int i = 0; i < BRING; i++)
            output[i] = (uint32_t)min(first + i * EACH, max) * pitch + piece;
#pragma unroll
        for (int i = 0; i < S::BRING_ROWS; i++)
            row[i] = (uint32_t)min(first_row + i * EACH, last) * pitch + piece;
    }

    __device__ __forceinline__ void start(const tiles_call &c, uint32_t stage) {
        if (at < all_tiles(c)) {
            const uint4 *w = weights + step * 8, *x = (const uint4 *)c.l.x + step * 8;
            stage += to;
#pragma unroll
            for (int i = 0; i < BRING; i++)
                copy_piece(stage + i * EACH * LINE, w + output[i]);
#pragma unroll
            for (int i = 0; i < S::BRING_ROWS; i++)
                copy_piece(stage + (OUTPUTS + i * EACH) * LINE, x + row[i]);
            if (++step * STEP == c.l.stride) {
                step = 0;
                at += gridDim.x;
                open(c);
            }
        }
        copies_end<false>();
    }
};

// Adds the products of a stage. weights, rows: where this lane's lines of the warp's first matrices
// lie in it.
template <int EIGHTS>
static __device__ __forceinline__ void multiply_step(float (&d)[SIXTEENS][EIGHTS * 4],
                                                     uint32_t weights, uint32_t rows) {
#pragma unroll
    for (int s = 0; s < STEP / 16; s++) {
        uint32_t a[SIXTEENS][4], b[EIGHTS / 2][4];
#pragma unroll
        for (int j = 0; j < EIGHTS / 2; j++)
            load_four(b[j], (rows ^ s * 32) + j * 16 * LINE);
#pragma unroll
        for (int i = 0; i < SIXTEENS; i++)
            load_four(a[i], (weights ^ s * 32) + i * 16 * LINE);
#pragma unroll
        for (int i = 0; i < SIXTEENS; i++)
#pragma unroll
            for (int j = 0; j < EIGHTS; j++)
                multiply<false>(d[i] + j * 4, a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
}

// A block's ring, as its warps multiply.
template <class S> struct tiles_ring {
    enum { STAGES = S::STAGES, STAGE = S::STAGE, EIGHTS = S::EIGHTS };
    uint32_t shared, weights, rows; // of the first stage, as multiply_step has them
    int slot;
    tiles_source<S> next;

    __device__ __forceinline__ tiles_ring(const tiles_call &c, uint32_t memory) {
        const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, q = lane / 8, in = lane % 8;
        const int output = warp / WARPS_ACROSS * WARP_OUTPUTS;
        const int row = warp % WARPS_ACROSS * S::WARP_ROWS;
        shared = memory;
        weights = memory + (output + q % 2 * 8 + in) * LINE + (q / 2 ^ in) * 16;
        rows = memory + (OUTPUTS + row + q / 2 * 8 + in) * LINE + (q % 2 ^ in) * 16;
        slot = 0;
        next.at = blockIdx.x;
        next.step = 0;
        next.to = threadIdx.x / 8 * LINE + (threadIdx.x % 8 ^ threadIdx.x / 8 % 8) * 16;
        next.open(c);
        for (int s = 0; s < STAGES - 1; s++)
            next.start(c, shared + s * STAGE);
    }

    // d = the products of the next `steps` stages, in order.
    __device__ __forceinline__ void sum(const tiles_call &c, float (&d)[SIXTEENS][EIGHTS * 4],
                                        int steps) {
#pragma unroll
        for (int i = 0; i < SIXTEENS * EIGHTS * 4; i++)
            d[i / (EIGHTS * 4)][i % (EIGHTS * 4)] = 0;
        for (int step = 0; step < steps; step++) {
            copies_wait<false, STAGES - 2>();
            __syncthreads();
            next.start(c, shared + (slot ? slot - 1 : STAGES - 1) * STAGE);
            multiply_step<EIGHTS>(d, weights + slot * STAGE, rows + slot * STAGE);
            slot = slot + 1 == STAGES ? 0 : slot + 1;
        }
    }
};

// All sums of a warp's part of a tile.
template <class S>
static __device__ __forceinline__ void sum_tile(const tiles_call &c, tiles_ring<S> &ring,
                                                const many_tile &t,
                                                float (&d)[SIXTEENS][S::EIGHTS * 4]) {
    const int steps = (int)(c.l.stride / STEP);
    if constexpr (S::PARTS) {
        float part[SIXTEENS][S::EIGHTS * 4];
        int begin = 0;
        for (int p = 0; p < t.job->parts; p++) {
            int end = (int)linear_part_begin(t.job->w[0].k, t.job->parts, p + 1) / STEP;
            end = end < steps ? end : steps;
            ring.sum(c, part, end - begin);
            begin = end;
#pragma unroll
            for (int i = 0; i < SIXTEENS; i++)
                add_part<S::WARP_ROWS>(d[i], part[i], p == 0);
        }
    } else {
        ring.sum(c, d, steps);
    }
}
#endif

template <class S>
static __global__ void __launch_bounds__(MMA_THREADS, 1)
    linear_unpacked_mma(const __grid_constant__ struct tiles_call c) {
    gpu_await();
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    extern __shared__ __align__(128) unsigned char shared[];
    tiles_ring<S> ring(c, shared_address(shared));
    const int warp = threadIdx.x / WARP;
    for (int64_t at = blockIdx.x; at < all_tiles(c); at += gridDim.x) {
        int job;
        many_tile t = tile_of<S>(c, at, &job);
        float d[SIXTEENS][S::EIGHTS * 4];
        sum_tile<S>(c, ring, t, d);
        t.row += warp % WARPS_ACROSS * S::WARP_ROWS;
#pragma unroll
        for (int i = 0; i < SIXTEENS; i++)
            store_tile<S::WARP_ROWS>(c.l, t, warp / WARPS_ACROSS * SIXTEENS + i, d[i]);
    }
#else
    (void)c;
#endif
}

template <class S> static void launch(struct gpu *g, struct tiles_call *c) {
    c->l.row_tiles = (c->l.n + S::ROWS - 1) / S::ROWS;
    if (gpu_allow_shared(g, (const void *)(linear_unpacked_mma<S>), S::BYTES, "linear (unpacked)"))
        gpu_launch_early(g, "linear (unpacked)", linear_unpacked_mma<S>,
                         (unsigned)min_i64(all_tiles(*c), g->processors), MMA_THREADS, S::BYTES,
                         *c);
}

// Whether tiles of `large` rows, a row of which takes `percent` of what one of 128 takes, are done
// before those of 128.
static bool are_faster(const struct gpu *g, const struct tiles_call *c, int large, int percent) {
    int64_t time[2];
    for (int i = 0; i < 2; i++) {
        const int rows = i ? large : 128;
        const int64_t tiles = c->blocks * ((c->l.n + rows - 1) / rows);
        time[i] = (tiles + g->processors - 1) / g->processors * rows * (i ? percent : 100);
    }
    return time[1] < time[0];
}

void linear_unpacked_mma_run(struct gpu *g, const struct linear_launch *l, __half *to) {
    struct tiles_call c;
    bool parts = false;
    c.l = *l;
    c.blocks = 0;
    for (int j = 0; j < c.l.jobs; j++) {
        struct linear_one *o = &c.l.job[j];
        linear_unpack(g, o, to, c.l.stride);
        c.weights[j] = to;
        c.rows[j] = (int)linear_unpacked_rows(o);
        to += c.rows[j] * c.l.stride;
        o->first = c.blocks;
        c.blocks += (c.rows[j] + OUTPUTS - 1) / OUTPUTS;
        parts = parts || o->parts > 1;
    }
    if (parts && are_faster(g, &c, 192, 83))
        launch<tiles_shape<true, 192>>(g, &c);
    else if (parts)
        launch<tiles_shape<true, 128>>(g, &c);
    else if (are_faster(g, &c, 256, 75))
        launch<tiles_shape<false, 256>>(g, &c);
    else
        launch<tiles_shape<false, 128>>(g, &c);
}
