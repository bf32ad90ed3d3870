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
//
// A tile's outputs go to shared memory, from where the copy engine stores them while the next tile
// is multiplied; a warp of its own has it do that, and has what they are added to and their powers
// of two there before a tile ends (`attend_ends`). Outputs that the copy engine cannot reach, or
// have no room, are stored by the multiplying warps themselves.
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
    BLOCK_BYTES = 227 << 10, // bytes of a block
    PANEL = 32,              // outputs: 128 bytes
    BAND = 8,                // tiles of rows that all outputs are made of before the next ones
};

// STAGED: the copy engine stores outputs, in panels of PANEL outputs x N rows; without parts only
// those of pairs, which are half as many.
template <int N_, bool PARTS_, bool STAGED_> struct unpacked_shape {
    static constexpr int N = N_;
    static constexpr bool PARTS = PARTS_, STAGED = STAGED_;
    enum {
        A = OUTPUTS * STEP * 2,
        STAGE = A + N * STEP * 2,
        PANELS = !STAGED ? 0
                 : PARTS ? OUTPUTS / PANEL
                         : OUTPUTS / PANEL / 2,
        PANEL_BYTES = N * PANEL * 4,
        SIDE = (N + OUTPUTS) * 4, // powers of two: of rows, of outputs
        STAGES = (BLOCK_BYTES - 1024 - SIDE - PANELS * PANEL_BYTES) / STAGE,
        OUT = STAGES * STAGE, // where outputs, barriers and powers lie
        BARS = OUT + PANELS * PANEL_BYTES,
        POWERS = BARS + 1024,
        BYTES = POWERS + SIDE,
    };
};

struct unpacked_call {
    gpu_tile_map rows;                 // activations, in tiles of 64 values x N / 2 rows
    gpu_tile_map weights[LINEAR_JOBS]; // in tiles of 64 values x 128 outputs
    gpu_tile_map outs[LINEAR_JOBS];    // in tiles of PANEL outputs x N rows, if staged
    struct linear_launch l;            // its jobs begin at tiles of 256 outputs
    int64_t blocks;                    // of 256 outputs, of all jobs
};

// Tiles of a launch, for clusters.
static __host__ __device__ __forceinline__ int64_t all_tiles(const unpacked_call &c) {
    return c.blocks * c.l.row_tiles;
}

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
    // What a tile's end needs is there; its outputs are.
    __device__ __forceinline__ uint32_t side(void) const {
        return at + 2 * S::STAGES * 8;
    }
    __device__ __forceinline__ uint32_t out(void) const {
        return side() + 8;
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

// Tile `at` of a cluster; of its outputs this block has those of its rank. Those at work at one
// time share few outputs' weights and few rows, so that the second-level cache holds both.
static __device__ __forceinline__ many_tile tile_of(const unpacked_call &c, int64_t at, int rows,
                                                    int *job) {
    many_tile t;
    const int64_t band = at / (BAND * c.blocks), first = band * BAND, left = c.l.row_tiles - first;
    const int64_t wide = left < BAND ? left : BAND;
    at -= first * c.blocks;
    int64_t block = at / wide;
    t.row = (first + at % wide) * rows;
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
template <class S>
static __device__ __forceinline__ void ask(const unpacked_call &c, uint32_t shared) {
    enum { N = S::N, PIECE = N / CLUSTER };
    const unpacked_bars<S> bars = {shared + S::BARS};
    const int rank = cluster_rank(), steps = (int)(c.l.stride / STEP);
    unpacked_turn<S> turn = {0, 0};
    gpu_await();
    for (int64_t at = blockIdx.x / CLUSTER; at < all_tiles(c); at += gridDim.x / CLUSTER) {
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
            if (!S::STAGED && step == steps / 2 && t.job->add)
                bring_outputs<N>(c, t);
            __syncwarp();
        }
    }
}

// Outputs of a tile that one block has, and panels that hold them.
static __device__ __forceinline__ int tile_outputs(const many_tile &t) {
    return t.job->pair ? OUTPUTS / 2 : OUTPUTS;
}

// A lane's share of the powers of two of a tile: of its rows, then of its outputs, those of both
// matrices of a pair one after the other.
template <int N>
static __device__ __forceinline__ void bring_powers(const unpacked_call &c, const many_tile &t,
                                                    float *to) {
    const int outputs = tile_outputs(t), lane = threadIdx.x % 32;
    float row[N / 32], output[OUTPUTS / 32];
#pragma unroll
    for (int i = 0; i < N / 32; i++) {
        const int64_t at = t.row + lane + i * 32;
        row[i] = at < c.l.n ? __ldcg(c.l.unscale + at) : 0;
    }
#pragma unroll
    for (int i = 0; i < OUTPUTS / 32; i++) {
        const int at = lane + i * 32;
        const matrix_view &v = t.job->w[at / outputs];
        const int64_t m = t.block * outputs + at % outputs;
        output[i] = m < v.m ? __int_as_float((127 - v.exponent[m]) << 23) : 0;
    }
#pragma unroll
    for (int i = 0; i < N / 32; i++)
        to[lane + i * 32] = row[i];
#pragma unroll
    for (int i = 0; i < OUTPUTS / 32; i++)
        to[N + lane + i * 32] = output[i];
}

static __device__ __forceinline__ void store_panel(const gpu_tile_map *map, int m, int row,
                                                   uint32_t from) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
        "r"(m), "r"(row), "r"(from)
        : "memory");
}

// One warp: before a tile ends, has its powers of two and what it adds to brought to shared memory;
// has its outputs stored from there.
template <class S>
static __device__ __forceinline__ void attend_ends(const unpacked_call &c, uint32_t shared,
                                                   unsigned char *memory) {
    const unpacked_bars<S> bars = {shared + S::BARS};
    const bool one = threadIdx.x % 32 == 0;
    uint32_t phase = 0;
    gpu_await();
    for (int64_t at = blockIdx.x / CLUSTER; at < all_tiles(c); at += gridDim.x / CLUSTER) {
        int job;
        const many_tile t = tile_of(c, at, S::N, &job);
        const int m = (int)t.block * tile_outputs(t), row = (int)t.row;
        const int panels = tile_outputs(t) / PANEL;
        bring_powers<S::N>(c, t, (float *)(memory + S::POWERS));
        __syncwarp();
        if (one && t.job->add) {
            barrier_expect(bars.side(), panels * S::PANEL_BYTES);
            for (int i = 0; i < panels; i++)
                copy_rows(shared + S::OUT + i * S::PANEL_BYTES, &c.outs[job], m + i * PANEL, row,
                          bars.side());
        } else if (one) {
            barrier_arrive(bars.side());
        }
        barrier_wait(bars.out(), phase);
        phase ^= 1;
        if (one) {
            for (int i = 0; i < panels; i++)
                store_panel(&c.outs[job], m + i * PANEL, row, shared + S::OUT + i * S::PANEL_BYTES);
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        }
        __syncwarp();
    }
    if (one)
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// A lane's outputs in panels of shared memory: row 8 i + lane % 4 * 2 + e of output h lies 1024 i
// bytes behind at[e][h], in the 128-byte swizzle.
template <int N> struct staged_outputs {
    unsigned char *at[2][2];
    const float *rows; // powers of two of this lane's first row on
    float power[2];

    __device__ __forceinline__ staged_outputs(unsigned char *out, const float *powers, bool pair) {
        const int lane = threadIdx.x % 32, sixteen = threadIdx.x / 32 - BRINGERS;
        const int first = pair ? sixteen * 8 + lane / 4 : sixteen * 16 + lane / 4;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int m = first + (pair ? 0 : h * 8), in = m % PANEL;
            power[h] = powers[N + first + h * (pair ? OUTPUTS / 2 : 8)];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int row = lane % 4 * 2 + e;
                at[e][h] = out + m / PANEL * (N * PANEL * 4) + row * 128 + (in / 4 ^ row) * 16 +
                           in % 4 * 4;
            }
        }
        rows = powers + lane % 4 * 2;
    }
};

template <int N, bool ADD>
static __device__ __forceinline__ void stage_plain(const staged_outputs<N> &o,
                                                   const float (&d)[N / 2]) {
#pragma unroll
    for (int i = 0; i < N / 8; i++) {
        const float2 two = *(const float2 *)(o.rows + i * 8);
        const float back[2] = {two.x, two.y};
#pragma unroll
        for (int e = 0; e < 2; e++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float *to = (float *)(o.at[e][h] + i * 1024);
                const float v = d[4 * i + 2 * h + e] * o.power[h] * back[e];
                *to = ADD ? *to + v : v;
            }
    }
}

template <int N>
static __device__ __forceinline__ void stage_joined(const staged_outputs<N> &o,
                                                    const float (&d)[N / 2]) {
#pragma unroll
    for (int i = 0; i < N / 8; i++) {
        const float2 two = *(const float2 *)(o.rows + i * 8);
        const float back[2] = {two.x, two.y};
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float v0 = d[4 * i + e] * o.power[0] * back[e];
            float v1 = d[4 * i + 2 + e] * o.power[1] * back[e];
            *(float *)(o.at[e][0] + i * 1024) = v0 / (1.0f + expf(-v0)) * v1;
        }
    }
}

// Where a multiplying warpgroup is in the ring.
template <class S> struct unpacked_multiplier {
    enum { N = S::N };
    unpacked_bars<S> bars;
    unsigned char *memory;
    int group;
    unpacked_turn<S> turn;
    uint32_t tile; // parity

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

    // Sums of a tile to outputs.
    __device__ __forceinline__ void end(const linear_launch &l, const many_tile &t,
                                        const float (&d)[N / 2]) {
        if constexpr (S::STAGED) {
            barrier_wait(bars.side(), tile);
            tile ^= 1;
            const staged_outputs<N> o(memory + S::OUT, (const float *)(memory + S::POWERS),
                                      t.job->pair);
            if (t.job->pair)
                stage_joined<N>(o, d);
            else if (t.job->add)
                stage_plain<N, true>(o, d);
            else
                stage_plain<N, false>(o, d);
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            __syncwarp();
            if (threadIdx.x % 32 == 0)
                barrier_arrive(bars.out());
        } else {
            store_tile<N>(l, t, d);
        }
    }
};

template <class S>
static __device__ __forceinline__ void multiply_tiles(const unpacked_call &c, uint32_t shared,
                                                      unsigned char *memory) {
    enum { N = S::N };
    int group = threadIdx.x / 128 - BRINGERS / 4, steps = (int)(c.l.stride / STEP);
    unpacked_multiplier<S> w = {{shared + S::BARS}, memory, group, {0, 0}, 0};
    gpu_await();
    for (int64_t at = blockIdx.x / CLUSTER; at < all_tiles(c); at += gridDim.x / CLUSTER) {
        int job;
        many_tile t = tile_of(c, at, N, &job);
        float d[N / 2];
        if constexpr (S::PARTS) {
            float total[N / 2];
            int begin = 0;
            for (int part = 0; part < t.job->parts; part++) {
                int end = (int)linear_part_begin(t.job->w[0].k, t.job->parts, part + 1) / STEP;
                end = end < steps ? end : steps;
                w.sum(d, end - begin);
                begin = end;
                add_part<N>(total, d, part == 0);
            }
            w.end(c.l, t, total);
        } else {
            w.sum(d, steps);
            w.end(c.l, t, d);
        }
    }
}

// By the first thread.
template <class S> static __device__ __forceinline__ void init_bars(const unpacked_bars<S> &bars) {
    for (int s = 0; s < S::STAGES; s++) {
        barrier_init(bars.full(s), 1);
        barrier_init(bars.empty(s), MULTIPLIERS * CLUSTER);
    }
    barrier_init(bars.side(), 1);
    barrier_init(bars.out(), MULTIPLIERS);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
#endif

template <class S>
static __global__ void __launch_bounds__(THREADS, 1)
    linear_unpacked(const __grid_constant__ struct unpacked_call c) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char memory[];
    uint32_t shared = (uint32_t)__cvta_generic_to_shared(memory);
    if (threadIdx.x == 0)
        init_bars<S>({shared + S::BARS});
    cluster_meet();
    if (threadIdx.x < BRINGERS * 32) {
        set_registers_down<ASK_REGISTERS>();
        if (threadIdx.x < 32)
            ask<S>(c, shared);
        else if (S::STAGED && threadIdx.x < 64)
            attend_ends<S>(c, shared, memory);
        else
            gpu_await();
    } else {
        set_registers_up<MULTIPLY_REGISTERS>();
        multiply_tiles<S>(c, shared, memory);
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

// Maps the outputs of all jobs, for panels of so many rows.
static bool map_outs(struct gpu *g, struct unpacked_call *c, int rows_each) {
    for (int j = 0; j < c->l.jobs; j++) {
        const struct linear_one *o = &c->l.job[j];
        gpu_error made = gpu_make_float_map(g->map_maker, &c->outs[j], o->out, o->w[0].m,
                                            o->out_stride, c->l.n, rows_each);
        if (!gpu_check(g, made, "linear (unpacked)"))
            return false;
    }
    return true;
}

template <class S> static void launch(struct gpu *g, struct unpacked_call *c) {
    c->l.row_tiles = (c->l.n + S::N - 1) / S::N;
    if (!map(g, &c->rows, c->l.x, c->l.stride, c->l.n, S::N / CLUSTER) ||
        (S::STAGED && !map_outs(g, c, S::N)))
        return;
    gpu_check(g, gpu_allow_shared((linear_unpacked<S>), S::BYTES), "linear (unpacked)");
    int64_t most = g->processors / CLUSTER, tiles = all_tiles(*c);
    struct gpu_call call = {(const void *)linear_unpacked<S>,
                            "linear (unpacked)",
                            dim3((unsigned)((tiles < most ? tiles : most) * CLUSTER)),
                            dim3(THREADS),
                            (size_t)S::BYTES,
                            true,
                            LAUNCH_UNKNOWN,
                            CLUSTER,
                            0,
                            NULL,
                            NULL};
    gpu_launch_with<unpacked_call>(g, call, *c);
}

// Time of a launch in rounds of all clusters, times rows: of tiles of `rows` that take `each`
// hundredths of what they should.
static int64_t rounds(const struct gpu *g, const struct unpacked_call *c, int rows, int each) {
    int64_t tiles = c->blocks * ((c->l.n + rows - 1) / rows), most = g->processors / CLUSTER;
    return (tiles + most - 1) / most * rows * each;
}

// Whether the copy engine can store a job's outputs.
static bool can_stage(const struct linear_one *o) {
    return o->out_stride % 4 == 0 && (size_t)o->out % 16 == 0;
}

// Unpacks the jobs of c->l, which fit at `to`, and queues their products.
static void run(struct gpu *g, struct unpacked_call *c, __half *to) {
    bool parts = false, pairs = true, staged = true;
    c->blocks = 0;
    for (int j = 0; j < c->l.jobs; j++) {
        struct linear_one *o = &c->l.job[j];
        const int64_t rows = linear_unpacked_rows(o), each = OUTPUTS * CLUSTER;
        linear_unpack(g, o, to, c->l.stride);
        if (!map(g, &c->weights[j], to, c->l.stride, rows, OUTPUTS))
            return;
        to += rows * c->l.stride;
        o->first = c->blocks;
        c->blocks += (rows + each - 1) / each;
        parts = parts || o->parts > 1;
        pairs = pairs && o->pair;
        staged = staged && can_stage(o);
    }
    const bool wide = rounds(g, c, 192, 107) <= rounds(g, c, 128, 100);
    if (!parts && staged && pairs)
        launch<unpacked_shape<256, false, true>>(g, c);
    else if (!parts)
        launch<unpacked_shape<256, false, false>>(g, c);
    else if (!staged)
        launch<unpacked_shape<128, true, false>>(g, c);
    else if (wide)
        launch<unpacked_shape<192, true, true>>(g, c);
    else
        launch<unpacked_shape<128, true, true>>(g, c);
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
