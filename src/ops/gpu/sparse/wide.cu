// SPDX-License-Identifier: Apache-2.0
// Attention to chosen blocks of keys by wgmma (sm_90a), for heads of 128 with F16 keys and values
// whose pieces lie at equal distances, so that the copy engine finds them by one map. A block of
// threads has a query block and a head: one warp requests keys and values, two blocks of each
// ahead, and two warpgroups have 64 rows each. A warpgroup requests the scores of the next keys,
// then for the values of these, and makes weights of the scores while the values are multiplied.
// Weights and sums are those of matrix.cu.
#include "ops/gpu/matrix/bulk_copy.cuh"
#include "ops/gpu/matrix/wgmma.cuh"
#include "ops/gpu/sparse/tile.cuh"

enum {
    D = 128,
    ASKERS = 4, // warps, of which one works
    GROUPS = 2,
    THREADS = ASKERS * WARP + GROUPS * 128,
    STAGES = 2,
    ASK_REGISTERS = 24, // together at most 168 a thread: see ops/gpu/linear/many/unpacked.cu
    WORK_REGISTERS = 240,
    PANEL = SPARSE_BLOCK * 128, // bytes of 64 values of 128 rows
    TILE = 2 * PANEL,
    KEYS = TILE, // after the queries
    VALUES = KEYS + STAGES * TILE,
    FACTORS = VALUES + STAGES * TILE,
    BARS = FACTORS + SPARSE_BLOCK * 4,
    BYTES = BARS + 4 * STAGES * 8,
};

struct wide_call {
    gpu_tile_map k, v; // values, slots, panels, heads, pieces
    struct sparse_run u;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Barriers of a stage: filled, and left by all warps, of keys and of values.
struct wide_bars {
    uint32_t at;
    __device__ __forceinline__ uint32_t full(int value, int stage) const {
        return at + (uint32_t)(value * STAGES + stage) * 8;
    }
    __device__ __forceinline__ uint32_t empty(int value, int stage) const {
        return at + (uint32_t)((2 + value) * STAGES + stage) * 8;
    }
};

// 64 values of the 128 rows of a block, from piece 2 block on.
static __device__ __forceinline__ void copy_panel(uint32_t to, const gpu_tile_map *map, int panel,
                                                  int kv, int block, uint32_t bar) {
    tile_copy(to, map, {0, 0, panel, kv, 2 * block}, bar);
}

static __device__ __forceinline__ void copy_block(uint32_t to, const gpu_tile_map *map, int kv,
                                                  int block, uint32_t bar) {
    barrier_expect(bar, TILE);
    copy_panel(to, map, 0, kv, block, bar);
    copy_panel(to + PANEL, map, 1, kv, block, bar);
}

// One lane requests all blocks of the list.
static __device__ __forceinline__ void ask_blocks(const struct wide_call *c,
                                                  const struct sparse_item *t, uint32_t shared) {
    const struct wide_bars bars = {shared + BARS};
    const int32_t *list = c->u.list + t->at * c->u.blocks, count = __ldcg(c->u.count + t->at);
    int32_t block = __ldcg(list);
    for (int j = 0; j < count; j++) {
        int stage = j % STAGES;
        uint32_t free = (uint32_t)(j / STAGES % 2) ^ 1;
        int32_t next = j + 1 < count ? __ldcg(list + j + 1) : 0;
        barrier_wait(bars.empty(0, stage), free);
        copy_block(shared + KEYS + stage * TILE, &c->k, t->kv, block, bars.full(0, stage));
        barrier_wait(bars.empty(1, stage), free);
        copy_block(shared + VALUES + stage * TILE, &c->v, t->kv, block, bars.full(1, stage));
        block = next;
    }
}

static __device__ __forceinline__ void group_sync(int group) {
    warps_meet<128>(1 + group);
}

// A warpgroup at work.
struct wide_group {
    const struct sparse_run *u;
    const struct sparse_item *t;
    unsigned char *memory;
    uint32_t shared;
    struct wide_bars bars;
    int group, row; // row: the lane's first

    // Queries of the group's 64 rows, a row a warp.
    __device__ __forceinline__ void load_queries(struct sparse_soft *z) const {
        int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP % 4;
        float *factor = (float *)(memory + FACTORS);
        for (int i = 0; i < 16; i++) {
            int at = group * 64 + warp * 16 + i;
            float4 x = make_float4(0, 0, 0, 0);
            if (sparse_has(t, at))
                x = ((const float4 *)sparse_query(u, t, at))[lane];
            int e = sparse_exponent(warp_max(largest(x)));
            int place = lane / 16 * PANEL + at * 128 + (lane % 16 / 2 ^ at % 8) * 16 + lane % 2 * 8;
            *(uint2 *)(memory + place) = act_pack(x, power_of_two(e));
            if (lane == 0)
                factor[at] = sparse_factor(u, e);
        }
        show_shared();
        group_sync(group);
        z->factor[0] = factor[row];
        z->factor[1] = factor[row + 8];
    }

    // Waits for keys j and requests their scores.
    __device__ __forceinline__ void ask_scores(int j, float (&s)[64]) const {
        uint32_t a = wgmma_low(shared + (uint32_t)group * 64 * 128);
        uint32_t b = wgmma_low(shared + KEYS + (uint32_t)(j % STAGES) * TILE);
        barrier_wait(bars.full(0, j % STAGES), (uint32_t)(j / STAGES % 2));
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < D / 16; k++) {
            uint32_t at = (uint32_t)(k / 4 * (PANEL >> 4) + k % 4 * 2);
            wgmma_both_if<128, false>(s, wgmma_operand(a + at), wgmma_operand(b + at), k > 0);
        }
        wgmma_commit();
    }

    // Waits for values j and requests their products with weights.
    __device__ __forceinline__ void ask_values(int j, const unsigned (&p)[8][4],
                                               float (&acc)[64]) const {
        uint32_t b = wgmma_low(shared + VALUES + (uint32_t)(j % STAGES) * TILE, PANEL);
        barrier_wait(bars.full(1, j % STAGES), (uint32_t)(j / STAGES % 2));
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < SPARSE_BLOCK / 16; k++)
            wgmma_step<128, true>(acc, p[k], wgmma_operand(b + (uint32_t)k * (2048 >> 4)));
        wgmma_commit();
    }

    __device__ __forceinline__ void leave(int value, int j) const {
        if (threadIdx.x % WARP == 0)
            barrier_arrive(bars.empty(value, j % STAGES));
    }

    // The scores of keys j become weights while the values before them are multiplied by theirs.
    // LAST: they are the rows' own block.
    template <bool LAST>
    __device__ __forceinline__ void step(int j, struct sparse_soft *z, float (&s)[64],
                                         unsigned (&p)[8][4], float (&acc)[64]) const {
        float fade[2];
        ask_scores(j, s);
        ask_values(j - 1, p, acc);
        wgmma_wait<1>();
        wgmma_made(s);
        leave(0, j);
        if (LAST)
            sparse_hide(s, row);
        sparse_weigh(z, s, fade);
        wgmma_wait<0>();
        wgmma_made(acc);
        leave(1, j - 1);
        sparse_fade(acc, fade);
        sparse_pack(s, p);
    }

    // Values after the end of the text, which may be anything, to zeros.
    __device__ __forceinline__ void clear_behind(int j) const {
        unsigned char *v = memory + VALUES + j % STAGES * TILE;
        if (t->end == SPARSE_BLOCK)
            return;
        barrier_wait(bars.full(1, j % STAGES), (uint32_t)(j / STAGES % 2));
        int from = t->end * 128;
        for (int i = from + ((int)threadIdx.x - ASKERS * WARP) * 16; i < PANEL;
             i += GROUPS * 128 * 16) {
            *(uint4 *)(v + i) = make_uint4(0, 0, 0, 0);
            *(uint4 *)(v + PANEL + i) = make_uint4(0, 0, 0, 0);
        }
        show_shared();
        warps_meet<GROUPS * 128>(3);
    }

    __device__ __forceinline__ void work(void) const {
        const int count = __ldcg(u->count + t->at);
        struct sparse_soft z;
        float s[64], acc[64], fade[2];
        unsigned p[8][4];
        load_queries(&z);
        sparse_begin(&z);
#pragma unroll
        for (int i = 0; i < 64; i++)
            acc[i] = 0;
        ask_scores(0, s);
        wgmma_wait<0>();
        wgmma_made(s);
        leave(0, 0);
        if (count == 1)
            sparse_hide(s, row);
        sparse_weigh(&z, s, fade);
        sparse_pack(s, p);
        for (int j = 1; j < count - 1; j++)
            step<false>(j, &z, s, p, acc);
        if (count > 1)
            step<true>(count - 1, &z, s, p, acc);
        clear_behind(count - 1);
        ask_values(count - 1, p, acc);
        wgmma_wait<0>();
        wgmma_made(acc);
        sparse_put(u, t, &z, row, acc);
    }
};
#endif

static __global__ void __launch_bounds__(THREADS, 1)
    attend_blocks_wide(const __grid_constant__ struct wide_call c) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char memory[];
    uint32_t shared = shared_address(memory);
    const struct wide_bars bars = {shared + BARS};
    const struct sparse_item t = sparse_item_of(&c.u);
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2 * STAGES; i++) {
            barrier_init(bars.full(i / STAGES, i % STAGES), 1);
            barrier_init(bars.empty(i / STAGES, i % STAGES), GROUPS * 4);
        }
        barriers_ready();
        show_shared();
    }
    __syncthreads();
    gpu_await();
    gpu_let_next();
    if (threadIdx.x < ASKERS * WARP) {
        registers_down<ASK_REGISTERS>();
        if (threadIdx.x == 0)
            ask_blocks(&c, &t, shared);
    } else {
        registers_up<WORK_REGISTERS>();
        int group = threadIdx.x / 128 - ASKERS / 4;
        int row = group * 64 + threadIdx.x / WARP % 4 * 16 + threadIdx.x % WARP / 4;
        const struct wide_group w = {&c.u, &t, memory, shared, bars, group, row};
        w.work();
    }
#else
    gpu_await();
    (void)c;
#endif
}

static bool make_block_map(struct gpu *g, gpu_tile_map *m, const struct sparse_run *u,
                           const struct sparse_places *p) {
    const int64_t pieces = (u->first + u->n + KV_PAGE - 1) / KV_PAGE;
    const uint64_t size[5] = {64, KV_PAGE, D / 64, (uint64_t)u->n_kv, (uint64_t)pieces};
    const uint64_t step[4] = {(uint64_t)p->code_slot, 128, (uint64_t)p->code_head,
                              (uint64_t)(pieces > 1 ? p->piece : KV_PAGE * p->code_slot)};
    const uint32_t box[5] = {64, KV_PAGE, 1, 1, SPARSE_BLOCK / KV_PAGE};
    return gpu_check(g, gpu_make_map_of(gpu_maps(g), m, p->data + p->codes, 5, size, step, box),
                     "sparse_attend");
}

static bool mappable(const struct sparse_places *p) {
    int64_t all = (int64_t)(size_t)p->data | p->codes | p->piece | p->code_slot | p->code_head;
    return p->codec == KV_F16 && !p->pages && all % 16 == 0;
}

extern "C" bool sparse_wide_takes(const struct gpu *g, const struct sparse_run *u) {
    return u->d == D && mappable(&u->k) && mappable(&u->v) && BYTES + 1024 <= g->shared;
}

extern "C" void sparse_attend_wide(struct gpu *g, const struct sparse_run *u) {
    struct wide_call c;
    dim3 grid((unsigned)u->rows_blocks, (unsigned)u->n_heads);
    c.u = *u;
    if (make_block_map(g, &c.k, u, &u->k) && make_block_map(g, &c.v, u, &u->v) &&
        gpu_allow_shared(g, (const void *)attend_blocks_wide, BYTES, "sparse_attend"))
        gpu_launch_early(g, "sparse_attend", attend_blocks_wide, grid, THREADS, BYTES, c);
}
