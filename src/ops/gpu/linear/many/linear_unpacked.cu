// SPDX-License-Identifier: Apache-2.0
// Linear layers of very many rows on sm_90a. Weights become rows of fp16 in memory once for all
// rows; then one kernel multiplies what the copy engine brings: one thread of a block asks for
// tiles of weights and activations, two warpgroups multiply them, 64 outputs with N rows each.
// Blocks work in clusters of two: neighbouring outputs, the same rows. Each brings half of the
// activations to both, since what comes from the second-level cache is the limit otherwise.
//
// A stage of a block is used by the multiplying warps of both (a copy reaches both), so it is
// filled again only when both have left it; a block ends when its neighbour does. The weights'
// numbers, the order of k and its parts are those of the mma.sync path, and so are the bits.
#include "ops/gpu/linear/many/linear_unpacked.h"

#include "base/num.h"
#include "ops/gpu/linear/many/linear_many.cuh"
#include "ops/gpu/linear/many/linear_unpack.h"

enum {
    CLUSTER = 2, // blocks
    // Of a thread. Together not more than the 168 that each of the 384 begins with: a block that
    // asks for more waits for ever.
    ASK_REGISTERS = 40,
    MULTIPLY_REGISTERS = 232,
    BLOCK_BYTES = 225 << 10, // bytes of a block
};

template <int N> struct unpacked_shape {
    enum {
        A = OUTPUTS * STEP * 2,
        STAGE = A + N * STEP * 2,
        STAGES = (BLOCK_BYTES - 1024) / STAGE,
        BARS = STAGES * STAGE, // where they lie
        BYTES = BARS + 1024,
    };
};

struct unpacked_call {
    gpu_tile_map rows;                 // activations, in tiles of 64 values x N / 2 rows
    gpu_tile_map weights[LINEAR_JOBS]; // in tiles of 64 values x 128 outputs
    struct linear_launch l;            // its jobs begin at tiles of 256 outputs
    int64_t tiles;                     // of all jobs, each for a cluster
};

// In code for other devices the kernel is empty.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <class S> struct unpacked_bars {
    uint32_t at;

    __device__ __forceinline__ uint32_t full(int stage) const {
        return at + stage * 8;
    }
    __device__ __forceinline__ uint32_t empty(int stage) const {
        return at + (S::STAGES + stage) * 8;
    }
};

static __device__ __forceinline__ int cluster_rank(void) {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return (int)rank;
}

// Until all threads of the cluster are here.
static __device__ __forceinline__ void cluster_meet(void) {
    asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
}

// Arrives at the same barrier of a block of the cluster. Nothing was written that others could
// read, so it is relaxed: a release at this scope would wait for all memory of the device every
// time.
static __device__ __forceinline__ void arrive_at(uint32_t bar, int block) {
    asm volatile("{ .reg .b32 to; mapa.shared::cluster.u32 to, %0, %1; "
                 "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [to]; }" ::"r"(bar),
                 "r"(block)
                 : "memory");
}

// copy_rows to the same place of all blocks of the cluster, arriving at the barrier of each.
static __device__ __forceinline__ void copy_to_all(uint32_t to, const gpu_tile_map *map, int k,
                                                   int row, uint32_t bar) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
                 "l"(map), "r"(bar), "r"(k), "r"(row), "h"((unsigned short)((1 << CLUSTER) - 1))
                 : "memory");
}

// Tile `at` of a cluster; of its outputs this block has those of its rank.
static __device__ __forceinline__ many_tile tile_of(const unpacked_call &c, int64_t at, int rows,
                                                    int *job) {
    many_tile t;
    int64_t block = at / c.l.row_tiles;
    t.row = at % c.l.row_tiles * rows;
    *job = 0;
    while (*job + 1 < c.l.jobs && block >= c.l.job[*job + 1].first)
        (*job)++;
    t.job = &c.l.job[*job];
    t.block = (block - t.job->first) * CLUSTER + cluster_rank();
    return t;
}

// A ring's stage, and the parity of its present round.
template <class S> struct unpacked_turn {
    int stage;
    uint32_t phase;

    __device__ __forceinline__ void step(void) {
        if (++stage == S::STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
};

// Has a tile's outputs come to the second-level cache: they will be added to.
template <int N>
static __device__ __forceinline__ void bring_outputs(const unpacked_call &c, const many_tile &t) {
    int64_t m = t.block * OUTPUTS, left = t.job->w[0].m - m;
    int bytes = (int)(left < OUTPUTS ? left : OUTPUTS) / 4 * 16;
    if (bytes <= 0 || t.job->out_stride % 4 || (size_t)t.job->out % 16)
        return;
    for (int64_t row = t.row + threadIdx.x % 32; row < t.row + N && row < c.l.n; row += 32)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(
                         t.job->out + row * t.job->out_stride + m),
                     "r"(bytes)
                     : "memory");
}

// One warp: its first lane asks for all stages of this block. The others stay with it, since lanes
// that wait elsewhere hold up the one that works.
template <int N>
static __device__ __forceinline__ void ask(const unpacked_call &c, uint32_t shared) {
    using S = unpacked_shape<N>;
    enum { PIECE = N / CLUSTER };
    const unpacked_bars<S> bars = {shared + S::BARS};
    const int rank = cluster_rank(), steps = (int)(c.l.stride / STEP);
    unpacked_turn<S> turn = {0, 0};
    gpu_await();
    for (int64_t at = blockIdx.x / CLUSTER; at < c.tiles; at += gridDim.x / CLUSTER) {
        int job;
        many_tile t = tile_of(c, at, N, &job);
        int first = (int)t.block * OUTPUTS, row = (int)t.row + rank * PIECE;
        for (int step = 0; step < steps; step++, turn.step()) {
            uint32_t to = shared + turn.stage * S::STAGE, full = bars.full(turn.stage);
            barrier_wait(bars.empty(turn.stage), turn.phase ^ 1);
            if (threadIdx.x == 0) {
                barrier_expect(full, S::STAGE);
                copy_rows(to, &c.weights[job], step * STEP, first, full);
                copy_to_all(to + S::A + rank * PIECE * STEP * 2, &c.rows, step * STEP, row, full);
            }
            if (step == steps / 2 && t.job->add)
                bring_outputs<N>(c, t);
            __syncwarp();
        }
    }
}

// Where a multiplying warpgroup is in the ring.
template <int N> struct unpacked_multiplier {
    using S = unpacked_shape<N>;
    unpacked_bars<S> bars;
    const unsigned char *memory;
    int group;
    unpacked_turn<S> turn;

    // Says to both blocks that a stage has been read here.
    __device__ __forceinline__ void leave(int which) const {
        if (which >= 0 && threadIdx.x % 32 < CLUSTER)
            arrive_at(bars.empty(which), threadIdx.x % 32);
    }

    // d = the products of the next `steps` stages, in order. A stage is left when the one behind
    // it is under way.
    __device__ __forceinline__ void sum(float (&d)[N / 2], int steps) {
        int before = -1;
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            d[i] = 0;
        for (int step = 0; step < steps; step++, turn.step()) {
            const unsigned char *from = memory + turn.stage * S::STAGE;
            barrier_wait(bars.full(turn.stage), turn.phase);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < STEP / 16; i++)
                wgmma_both<N>(d, wgmma_rows(from + group * (S::A / 2) + i * 32),
                              wgmma_rows(from + S::A + i * 32));
            wgmma_commit();
            wgmma_wait<1>();
            leave(before);
            before = turn.stage;
        }
        wgmma_wait<0>();
        leave(before);
    }
};

template <int N, bool PARTS>
static __device__ __forceinline__ void multiply_tiles(const unpacked_call &c, uint32_t shared,
                                                      const unsigned char *memory) {
    int group = threadIdx.x / 128 - BRINGERS / 4, steps = (int)(c.l.stride / STEP);
    unpacked_multiplier<N> w = {{shared + unpacked_shape<N>::BARS}, memory, group, {0, 0}};
    gpu_await();
    for (int64_t at = blockIdx.x / CLUSTER; at < c.tiles; at += gridDim.x / CLUSTER) {
        int job;
        many_tile t = tile_of(c, at, N, &job);
        float d[N / 2];
        if constexpr (PARTS) {
            float total[N / 2];
            int begin = 0;
            for (int part = 0; part < t.job->parts; part++) {
                int end = (int)linear_part_begin(t.job->w[0].k, t.job->parts, part + 1) / STEP;
                end = end < steps ? end : steps;
                w.sum(d, end - begin);
                begin = end;
                add_part<N>(total, d, part == 0);
            }
            store_tile<N>(c.l, t, total);
        } else {
            w.sum(d, steps);
            store_tile<N>(c.l, t, d);
        }
    }
}
#endif

template <int N, bool PARTS>
static __global__ void __launch_bounds__(THREADS, 1)
    linear_unpacked(const __grid_constant__ struct unpacked_call c) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using S = unpacked_shape<N>;
    extern __shared__ __align__(1024) unsigned char memory[];
    uint32_t shared = (uint32_t)__cvta_generic_to_shared(memory);
    unpacked_bars<S> bars = {shared + S::BARS};
    if (threadIdx.x == 0) {
        for (int s = 0; s < S::STAGES; s++) {
            barrier_init(bars.full(s), 1);
            barrier_init(bars.empty(s), MULTIPLIERS * CLUSTER);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    cluster_meet();
    if (threadIdx.x < BRINGERS * 32) {
        set_registers_down<ASK_REGISTERS>();
        if (threadIdx.x < 32)
            ask<N>(c, shared);
        else
            gpu_await();
    } else {
        set_registers_up<MULTIPLY_REGISTERS>();
        multiply_tiles<N, PARTS>(c, shared, memory);
    }
    cluster_meet();
#else
    gpu_await();
    (void)c;
#endif
}

static bool map(struct gpu *g, gpu_tile_map *m, const void *x, int64_t stride, int64_t rows,
                int rows_each) {
    if (!g->map_maker)
        g->map_maker = gpu_map_maker();
    gpu_error made = gpu_make_map(g->map_maker, m, x, stride, rows, STEP, rows_each);
    return gpu_check(g, made, "linear (unpacked)");
}

template <int N, bool PARTS> static void launch(struct gpu *g, struct unpacked_call *c) {
    const int bytes = unpacked_shape<N>::BYTES;
    c->l.row_tiles = (c->l.n + N - 1) / N;
    c->tiles *= c->l.row_tiles;
    if (!map(g, &c->rows, c->l.x, c->l.stride, c->l.n, N / CLUSTER))
        return;
    gpu_check(g, gpu_allow_shared((linear_unpacked<N, PARTS>), bytes), "linear (unpacked)");
    int64_t most = g->processors / CLUSTER, clusters = c->tiles < most ? c->tiles : most;
    struct gpu_call call = {(const void *)linear_unpacked<N, PARTS>,
                            "linear (unpacked)",
                            dim3((unsigned)(clusters * CLUSTER)),
                            dim3(THREADS),
                            (size_t)bytes,
                            true,
                            CLUSTER,
                            0,
                            NULL,
                            NULL};
    gpu_launch_with<unpacked_call>(g, call, *c);
}

// Time of a launch in rounds of all clusters, times rows: of tiles of `rows` that take `each`
// hundredths of what they should.
static int64_t rounds(const struct gpu *g, const struct unpacked_call *c, int rows, int each) {
    int64_t tiles = c->tiles * ((c->l.n + rows - 1) / rows), most = g->processors / CLUSTER;
    return (tiles + most - 1) / most * rows * each;
}

// Unpacks the jobs of c->l, which fit at `to`, and queues their products.
static void run(struct gpu *g, struct unpacked_call *c, __half *to) {
    bool parts = false;
    c->tiles = 0;
    for (int j = 0; j < c->l.jobs; j++) {
        struct linear_one *o = &c->l.job[j];
        const int64_t rows = linear_unpacked_rows(o), each = OUTPUTS * CLUSTER;
        linear_unpack(g, o, to, c->l.stride);
        if (!map(g, &c->weights[j], to, c->l.stride, rows, OUTPUTS))
            return;
        to += rows * c->l.stride;
        o->first = c->tiles;
        c->tiles += (rows + each - 1) / each;
        parts = parts || o->parts > 1;
    }
    if (!parts)
        launch<256, false>(g, c);
    else if (rounds(g, c, 192, 100) <= rounds(g, c, 128, 108))
        launch<192, true>(g, c);
    else
        launch<128, true>(g, c);
}

// More weights than the scratch memory has room for are unpacked one after the other, and what a
// model reserves has room for its largest pair.
void linear_unpacked_launch(struct gpu *g, struct linear_launch *l) {
    struct unpacked_call c;
    int64_t rows = 0, most = 0;
    for (int j = 0; j < l->jobs; j++) {
        const int64_t each = linear_unpacked_rows(&l->job[j]);
        rows += each;
        most = each > most ? each : most;
    }
    const size_t least = linear_unpacked_bytes(most, l->stride);
    const size_t bytes =
        min_size(linear_unpacked_bytes(rows, l->stride), max_size(least, g->scratch_bytes));
    __half *to = (__half *)gpu_scratch(g, bytes);
    while (to && linear_take(g, l, (int64_t)(bytes / sizeof *to), &c.l))
        run(g, &c, to);
}
