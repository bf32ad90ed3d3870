// SPDX-License-Identifier: Apache-2.0
// Linear layers of very many rows on sm_90a. Weights become rows of fp16 in memory once for all
// rows; then one kernel multiplies what the copy engine brings: one thread of a block requests
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
// of two there before a tile ends (`attend_ends`). In the largest tiles they take what the ring of
// stages leaves and borrow stages of it after the tile's last one: room of their own would leave
// three stages, of which the products wait. Outputs that the copy engine cannot reach, or that are
// in one part and not joined, are stored by the multiplying warps themselves.
#include "ops/gpu/linear/many/many.h"

#include "base/num.h"
#include "ops/gpu/linear/many/many.cuh"
#include "ops/gpu/matrix/cluster.cuh"

enum {
    CLUSTER = 2, // blocks
    // Of a thread. Together not more than the 168 that each of the 384 begins with: a block that
    // requests more waits for ever.
    ASK_REGISTERS = 40,
    MULTIPLY_REGISTERS = 232,
    BLOCK_BYTES = 227 << 10, // bytes of a block
    PANEL = 32,              // outputs: 128 bytes
    BAND = 8,                // tiles of rows that all outputs are made of before the next ones
};

// How outputs leave a block: the multiplying warps store them; or the copy engine does, from room
// of their own (what is added to can come early) or from stages that they borrow (there are more).
enum unpacked_ends { BY_WARPS, OWN_ROOM, BORROWING };

// The copy engine stores pieces of PANEL outputs x HIGH rows; without parts only those of pairs,
// which are half as many.
template <int N_, bool PARTS_, unpacked_ends ENDS> struct unpacked_shape {
    static constexpr int N = N_;
    static constexpr bool PARTS = PARTS_, STAGED = ENDS != BY_WARPS;
    enum {
        A = OUTPUTS * STEP * 2,
        STAGE = A + N * STEP * 2,
        SIDE = (N + OUTPUTS) * 4, // powers of two: of rows, of outputs
        ROOM = BLOCK_BYTES - 1024 - SIDE,
        HIGH = N % 64 == 0 ? 64 : 32,
        PIECE = HIGH * PANEL * 4, // bytes
        PANEL_PIECES = N / HIGH,
        PIECES = !STAGED ? 0 : PANEL_PIECES * (PARTS ? OUTPUTS : OUTPUTS / 2) / PANEL,
        STAGES = (ROOM - (ENDS == OWN_ROOM ? PIECES * PIECE : 0)) / STAGE,
        // Pieces after the ring; those of a stage; stages that the others borrow.
        LEFT = (ROOM - STAGES * STAGE) / PIECE,
        KEPT = LEFT < PIECES ? LEFT : PIECES,
        EACH = STAGE / PIECE,
        BORROWED = (PIECES - KEPT + EACH - 1) / EACH,
        OUT = STAGES * STAGE, // where kept pieces, barriers and powers lie
        BARS = OUT + KEPT * PIECE,
        POWERS = BARS + 1024,
        BYTES = POWERS + SIDE,
    };
    static_assert(BORROWED < STAGES, "stages for products are left");

    // Where a piece of a tile's outputs lies whose borrowed stages begin with `stage`.
    static __device__ __forceinline__ int piece_at(int stage, int piece) {
        if (piece < KEPT)
            return OUT + piece * PIECE;
        const int slot = stage + (piece - KEPT) / EACH;
        return (slot < STAGES ? slot : slot - STAGES) * STAGE + (piece - KEPT) % EACH * PIECE;
    }
};

struct unpacked_call {
    gpu_tile_map rows;                 // activations, in tiles of 64 values x N / 2 rows
    gpu_tile_map weights[LINEAR_JOBS]; // in tiles of 64 values x 128 outputs
    gpu_tile_map outs[LINEAR_JOBS];    // in pieces, if staged
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
    // The stages that its outputs borrow are free.
    __device__ __forceinline__ uint32_t lent(void) const {
        return side() + 16;
    }
};

// Tile `at` of a cluster; of its outputs this block has those of its rank.
static __device__ __forceinline__ many_tile tile_of(const unpacked_call &c, int64_t at, int rows,
                                                    int *job) {
    many_tile t = tile_in_bands(c.l, c.blocks, BAND, rows, at, job);
    t.block = t.block * CLUSTER + (int)cluster_rank();
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
    __device__ __forceinline__ void skip(int steps) {
        stage += steps;
        phase ^= stage / S::STAGES & 1;
        stage %= S::STAGES;
    }
};

// Has a tile's outputs come to the second-level cache: they will be added to.
template <int N>
static __device__ __forceinline__ void bring_outputs(const unpacked_call &c, const many_tile &t) {
    int64_t m = t.block * OUTPUTS, left = t.job->w[0].m - m;
    int bytes = (int)(left < OUTPUTS ? left : OUTPUTS) / 4 * 16;
    if (bytes <= 0 || t.job->out_stride % 4 || (size_t)t.job->out % 16)
        return;
    for (int64_t row = t.row + threadIdx.x % WARP; row < t.row + N && row < c.l.n; row += 32)
        prefetch_bulk(t.job->out + row * t.job->out_stride + m, bytes);
}

// One warp: its first lane requests all stages of this block. The others stay with it, since lanes
// that wait elsewhere hold up the one that works. Stages that outputs borrow are full at once, of
// nothing.
template <class S>
static __device__ __forceinline__ void ask(const unpacked_call &c, uint32_t shared) {
    enum { N = S::N, PIECE = N / CLUSTER };
    const unpacked_bars<S> bars = {shared + S::BARS};
    const int rank = (int)cluster_rank(), steps = (int)(c.l.stride / STEP);
    unpacked_turn<S> turn = {0, 0};
    uint32_t ends = 0; // parity
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
                tile_copy(to, &c.weights[job], step * STEP, first, full);
                cluster_tile_copy<CLUSTER>(to + S::A + rank * PIECE * STEP * 2, &c.rows,
                                           step * STEP, row, full);
            }
            if ((!S::STAGED || S::BORROWED) && step == steps / 2 && t.job->add)
                bring_outputs<N>(c, t);
            __syncwarp();
        }
        for (int i = 0; i < S::BORROWED; i++, turn.step()) {
            barrier_wait(bars.empty(turn.stage), turn.phase ^ 1);
            if (threadIdx.x == 0)
                barrier_arrive(bars.full(turn.stage));
        }
        if constexpr (S::BORROWED > 0) { // no stages of two tiles at once, however short they are
            barrier_wait(bars.out(), ends ^ 1);
            ends ^= 1;
            if (threadIdx.x == 0)
                barrier_arrive(bars.lent());
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
    const int outputs = tile_outputs(t), lane = threadIdx.x % WARP;
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

template <class S> static __device__ __forceinline__ int tile_pieces(const many_tile &t) {
    return tile_outputs(t) / PANEL * S::PANEL_PIECES;
}

// By one thread: pieces of a tile's outputs between memory and the places that borrowed stages from
// `stage` on and the room after the ring are.
template <class S, bool STORE>
static __device__ __forceinline__ void move_pieces(const gpu_tile_map *map, const many_tile &t,
                                                   uint32_t shared, int stage, uint32_t bar) {
    const int m = (int)t.block * tile_outputs(t);
    for (int i = 0; i < tile_pieces<S>(t); i++) {
        const int first = m + i / S::PANEL_PIECES * PANEL;
        const int row = (int)t.row + i % S::PANEL_PIECES * S::HIGH;
        const uint32_t at = shared + S::piece_at(stage, i);
        if (STORE)
            tile_store(map, first, row, at);
        else
            tile_copy(at, map, first, row, bar);
    }
}

// One warp: before a tile ends, has its powers of two and what it adds to brought to shared memory;
// has its outputs stored from there, and gives the borrowed stages back as all who multiply would.
template <class S>
static __device__ __forceinline__ void attend_ends(const unpacked_call &c, uint32_t shared,
                                                   unsigned char *memory) {
    const unpacked_bars<S> bars = {shared + S::BARS};
    const int lane = threadIdx.x % WARP, steps = (int)(c.l.stride / STEP);
    const bool one = lane == 0;
    unpacked_turn<S> turn = {0, 0};
    uint32_t phase = 0;
    gpu_await();
    for (int64_t at = blockIdx.x / CLUSTER; at < all_tiles(c);
         at += gridDim.x / CLUSTER, phase ^= 1) {
        int job;
        const many_tile t = tile_of(c, at, S::N, &job);
        bring_powers<S::N>(c, t, (float *)(memory + S::POWERS));
        turn.skip(steps);
        if (S::BORROWED)
            barrier_wait(bars.lent(), phase);
        __syncwarp();
        if (one && t.job->add) {
            barrier_expect(bars.side(), tile_pieces<S>(t) * S::PIECE);
            move_pieces<S, false>(&c.outs[job], t, shared, turn.stage, bars.side());
        } else if (one) {
            barrier_arrive(bars.side());
        }
        barrier_wait(bars.out(), phase);
        if (one) {
            move_pieces<S, true>(&c.outs[job], t, shared, turn.stage, 0);
            stores_close();
            stores_read();
        }
        __syncwarp();
        for (int i = 0; i < S::BORROWED; i++, turn.step())
            if (lane < MULTIPLIERS * CLUSTER)
                cluster_arrive_at(bars.empty(turn.stage), lane / MULTIPLIERS);
    }
    if (one)
        stores_done();
}

// A lane's outputs in pieces of shared memory: row 8 i + lane % 4 * 2 + e of output h lies
// i % (HIGH / 8) * 1024 bytes after piece[i / (HIGH / 8)] + in[e][h], in the 128-byte swizzle.
template <class S> struct staged_outputs {
    enum { EIGHTS = S::HIGH / 8 };
    unsigned char *piece[S::PANEL_PIECES];
    int in[2][2];
    const float *rows; // powers of two of this lane's first row on
    float power[2];

    __device__ __forceinline__ staged_outputs(unsigned char *memory, int stage, bool pair) {
        const int lane = threadIdx.x % WARP, sixteen = threadIdx.x / WARP - BRINGERS;
        const int first = pair ? sixteen * 8 + lane / 4 : sixteen * 16 + lane / 4;
        const float *powers = (const float *)(memory + S::POWERS);
#pragma unroll
        for (int i = 0; i < S::PANEL_PIECES; i++)
            piece[i] = memory + S::piece_at(stage, first / PANEL * S::PANEL_PIECES + i);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int m = (first + (pair ? 0 : h * 8)) % PANEL;
            power[h] = powers[S::N + first + h * (pair ? OUTPUTS / 2 : 8)];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int row = lane % 4 * 2 + e;
                in[e][h] = row * 128 + (m / 4 ^ row) * 16 + m % 4 * 4;
            }
        }
        rows = powers + lane % 4 * 2;
    }
    __device__ __forceinline__ float *at(int i, int e, int h) const {
        return (float *)(piece[i / EIGHTS] + in[e][h] + i % EIGHTS * 1024);
    }
};

template <class S, bool ADD>
static __device__ __forceinline__ void stage_plain(const staged_outputs<S> &o,
                                                   const float (&d)[S::N / 2]) {
#pragma unroll
    for (int i = 0; i < S::N / 8; i++) {
        const float2 two = *(const float2 *)(o.rows + i * 8);
        const float back[2] = {two.x, two.y};
#pragma unroll
        for (int e = 0; e < 2; e++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float *to = o.at(i, e, h);
                const float v = d[4 * i + 2 * h + e] * o.power[h] * back[e];
                *to = ADD ? *to + v : v;
            }
    }
}

template <class S>
static __device__ __forceinline__ void stage_joined(const staged_outputs<S> &o,
                                                    const float (&d)[S::N / 2]) {
    enum { EACH = 8 }; // values at once
#pragma unroll
    for (int i0 = 0; i0 < S::N / 8; i0 += EACH / 2) {
        float gate[EACH], up[EACH];
#pragma unroll
        for (int v = 0; v < EACH; v++) {
            const int i = i0 + v / 2, e = v % 2;
            const float back = o.rows[i * 8 + e];
            gate[v] = d[4 * i + e] * o.power[0] * back;
            up[v] = d[4 * i + 2 + e] * o.power[1] * back;
        }
        silu_all(gate);
#pragma unroll
        for (int v = 0; v < EACH; v++)
            *o.at(i0 + v / 2, v % 2, 0) = gate[v] * up[v];
    }
}

// Where a multiplying warpgroup is in the ring.
template <class S> struct unpacked_multiplier {
    enum { N = S::N };
    unpacked_bars<S> bars;
    unsigned char *memory;
    uint32_t weights, rows; // wgmma_low of the group's in the first stage
    unpacked_turn<S> turn;
    uint32_t tile; // parity

    // Says to both blocks that a stage has been read here.
    __device__ __forceinline__ void leave(int which) const {
        if (which >= 0 && threadIdx.x % WARP < CLUSTER)
            cluster_arrive_at(bars.empty(which), threadIdx.x % WARP);
    }

    // d = the products of the next `steps` stages, in order. A stage is left when the one after
    // it is under way.
    __device__ __forceinline__ void sum(float (&d)[N / 2], int steps) {
        int before = -1;
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            d[i] = 0;
        for (int step = 0; step < steps; step++, turn.step()) {
            const uint32_t from = (uint32_t)turn.stage * (S::STAGE / 16);
            barrier_wait(bars.full(turn.stage), turn.phase);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < STEP / 16; i++)
                wgmma_both<N>(d, wgmma_operand(weights + from + i * 2),
                              wgmma_operand(rows + from + i * 2));
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
            const staged_outputs<S> o(memory, turn.stage, t.job->pair);
            turn.skip(S::BORROWED);
            if (t.job->pair)
                stage_joined<S>(o, d);
            else if (t.job->add)
                stage_plain<S, true>(o, d);
            else
                stage_plain<S, false>(o, d);
            show_shared();
            __syncwarp();
            if (threadIdx.x % WARP == 0)
                barrier_arrive(bars.out());
        } else {
            store_tile<N>(l, t, threadIdx.x / WARP - BRINGERS, d);
        }
    }
};

template <class S>
static __device__ __forceinline__ void multiply_tiles(const unpacked_call &c, uint32_t shared,
                                                      unsigned char *memory) {
    enum { N = S::N };
    const int steps = (int)(c.l.stride / STEP);
    unpacked_multiplier<S> w = {
        {shared + S::BARS},       memory, wgmma_low(shared + multiplying_group() * (S::A / 2)),
        wgmma_low(shared + S::A), {0, 0}, 0};
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
    barrier_init(bars.lent(), 1);
    barriers_ready();
    show_shared();
}
#endif

template <class S>
static __global__ void __launch_bounds__(THREADS, 1)
    linear_unpacked(const __grid_constant__ struct unpacked_call c) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char memory[];
    uint32_t shared = shared_address(memory);
    if (threadIdx.x == 0)
        init_bars<S>({shared + S::BARS});
    cluster_meet();
    if (threadIdx.x < BRINGERS * WARP) {
        registers_down<ASK_REGISTERS>();
        if (threadIdx.x < 32)
            ask<S>(c, shared);
        else if (S::STAGED && threadIdx.x < 64)
            attend_ends<S>(c, shared, memory);
        else
            gpu_await();
    } else {
        registers_up<MULTIPLY_REGISTERS>();
        multiply_tiles<S>(c, shared, memory);
    }
    cluster_meet();
#else
    gpu_await();
    (void)c;
#endif
}

static bool map_rows(struct gpu *g, gpu_tile_map *m, const void *x, int64_t stride, int64_t rows,
                     int rows_each) {
    gpu_error made = gpu_make_map(gpu_maps(g), m, x, stride, rows, STEP, rows_each);
    return gpu_check(g, made, "linear (unpacked)");
}

// Maps the outputs of all jobs, for pieces of that many rows.
static bool map_outs(struct gpu *g, struct unpacked_call *c, int rows_each) {
    for (int j = 0; j < c->l.jobs; j++) {
        const struct linear_one *o = &c->l.job[j];
        gpu_error made = gpu_make_float_map(gpu_maps(g), &c->outs[j], o->out, o->w[0].m,
                                            o->out_stride, c->l.n, rows_each);
        if (!gpu_check(g, made, "linear (unpacked)"))
            return false;
    }
    return true;
}

template <class S> static void launch(struct gpu *g, struct unpacked_call *c) {
    c->l.row_tiles = (c->l.n + S::N - 1) / S::N;
    if (!map_rows(g, &c->rows, c->l.x, c->l.stride, c->l.n, S::N / CLUSTER) ||
        (S::STAGED && !map_outs(g, c, S::HIGH)))
        return;
    gpu_allow_shared(g, (const void *)(linear_unpacked<S>), S::BYTES, "linear (unpacked)");
    int64_t max = g->processors / CLUSTER, tiles = all_tiles(*c);
    struct gpu_call call = {(const void *)linear_unpacked<S>,
                            "linear (unpacked)",
                            dim3((unsigned)((tiles < max ? tiles : max) * CLUSTER)),
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

// Rows of the tiles that take least: rounds of all clusters, times rows, times what a row takes in
// such a tile, in hundredths (8,192 rows of a 27B model): of added outputs, and of others.
static int best_tile(const struct gpu *g, const struct unpacked_call *c, bool add) {
    static const int tiles[][3] = {{128, 100, 100}, {160, 95, 93}, {192, 91, 87}};
    const int64_t max = g->processors / CLUSTER;
    int64_t least = INT64_MAX;
    int best = 0;
    for (int i = 0; i < 3; i++) {
        const int64_t all = c->blocks * ((c->l.n + tiles[i][0] - 1) / tiles[i][0]);
        const int64_t time = (all + max - 1) / max * tiles[i][0] * tiles[i][add ? 1 : 2];
        if (time < least)
            best = tiles[i][0];
        least = time < least ? time : least;
    }
    return best;
}

// Whether the copy engine can store a job's outputs.
static bool can_stage(const struct linear_one *o) {
    return o->out_stride % 4 == 0 && (size_t)o->out % 16 == 0;
}

// Unpacks the jobs of l, which fit at `to`, and queues their products.
static void launch_products(struct gpu *g, const struct linear_launch *l, __half *to) {
    bool parts = false, pairs = true, staged = true, add = false;
    struct unpacked_call call, *c = &call;
    c->l = *l;
    c->blocks = 0;
    for (int j = 0; j < l->jobs; j++) {
        struct linear_one *o = &c->l.job[j];
        const int64_t rows = linear_unpacked_rows(o), each = OUTPUTS * CLUSTER;
        linear_unpack(g, o, to, l->stride);
        if (!map_rows(g, &c->weights[j], to, l->stride, rows, OUTPUTS))
            return;
        to += rows * l->stride;
        o->first = c->blocks;
        c->blocks += (rows + each - 1) / each;
        parts = parts || o->parts > 1;
        pairs = pairs && o->pair;
        staged = staged && can_stage(o);
        add = add || o->add;
    }
    const int rows = best_tile(g, c, add);
    if (!parts && staged && pairs)
        launch<unpacked_shape<256, false, BORROWING>>(g, c);
    else if (!parts)
        launch<unpacked_shape<256, false, BY_WARPS>>(g, c);
    else if (!staged)
        launch<unpacked_shape<128, true, BY_WARPS>>(g, c);
    else if (rows == 128)
        launch<unpacked_shape<128, true, OWN_ROOM>>(g, c);
    else if (rows == 160)
        launch<unpacked_shape<160, true, OWN_ROOM>>(g, c);
    else
        launch<unpacked_shape<192, true, BORROWING>>(g, c);
}

// More weights than the scratch memory has room for are unpacked one after the other, and what a
// model reserves has room for its largest pair.
void linear_unpacked_launch(struct gpu *g, struct linear_launch *l, size_t kept) {
    struct linear_launch some;
    int64_t rows = 0, max = 0;
    for (int j = 0; j < l->jobs; j++) {
        const int64_t each = linear_unpacked_rows(&l->job[j]);
        rows += each;
        max = each > max ? each : max;
    }
    const size_t least = linear_unpacked_bytes(g, max, l->stride);
    const size_t room = max_size(least, g->scratch_bytes > kept ? g->scratch_bytes - kept : 0);
    const size_t bytes = min_size(linear_unpacked_bytes(g, rows, l->stride), room);
    unsigned char *scratch = (unsigned char *)gpu_scratch(g, kept + bytes);
    while (scratch && linear_take(g, l, (int64_t)(bytes / sizeof(__half)), &some)) {
        if (g->path == CUDA_PATH_MMA)
            linear_unpacked_mma_run(g, &some, (__half *)(scratch + kept));
        else
            launch_products(g, &some, (__half *)(scratch + kept));
    }
}
