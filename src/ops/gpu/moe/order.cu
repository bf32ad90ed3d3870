// SPDX-License-Identifier: Apache-2.0
// Entries by expert, on the device: one block counts, adds up, lists the tiles and fills in the
// entries. In which order the entries of an expert stand changes no bits.
#include "ops/gpu/moe/moe.h"

enum { THREADS = 1024 };
static_assert((int)OPS_EXPERTS_MAX <= (int)THREADS, "a thread has an expert");

// The sum of v over the threads before this one, by one warp's scan of warps' scans.
static __device__ int sum_before(int v) {
    __shared__ int part[32];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int sum = v;
    for (int d = 1; d < WARP; d *= 2) {
        const int other = warp_below(sum, d);
        sum += lane >= d ? other : 0;
    }
    __syncthreads();
    if (lane == WARP - 1)
        part[warp] = sum;
    __syncthreads();
    int all = part[lane];
    for (int d = 1; d < WARP; d *= 2) {
        const int other = warp_below(all, d);
        all += lane >= d ? other : 0;
    }
    const int of_warps = warp_from(all, warp ? warp - 1 : 0);
    return sum - v + (warp ? of_warps : 0);
}

static __global__ void __launch_bounds__(THREADS)
    order_entries(const int32_t *ids, int entries, struct moe_order o) {
    __shared__ int count[THREADS];
    const int own = threadIdx.x;
    gpu_await();
    gpu_let_next();
    count[own] = 0;
    __syncthreads();
    for (int i = own; i < entries; i += THREADS)
        atomicAdd(&count[__ldcg(ids + i)], 1);
    __syncthreads();
    const int n = count[own], first = sum_before(n), tiles = (n + o.rows - 1) / o.rows;
    const int tile = sum_before(tiles);
    for (int i = 0; i < tiles; i++) {
        const int left = n - i * o.rows;
        o.tile[tile + i] = {own, first + i * o.rows, left < o.rows ? left : o.rows, 0};
    }
    if (own == THREADS - 1)
        *o.tiles = tile + tiles;
    __syncthreads();
    count[own] = first;
    __syncthreads();
    for (int i = own; i < entries; i += THREADS)
        o.entry[atomicAdd(&count[__ldcg(ids + i)], 1)] = i;
}

int64_t moe_order_max_tiles(int64_t entries, int experts, int rows) {
    return entries / rows + (entries < experts ? entries : experts);
}

static size_t rounded(size_t bytes) {
    return (bytes + 255) / 256 * 256;
}

size_t moe_order_bytes(int64_t entries, int experts, int rows) {
    return rounded(sizeof(int32_t)) + rounded((size_t)entries * sizeof(int32_t)) +
           rounded((size_t)moe_order_max_tiles(entries, experts, rows) * sizeof(struct moe_tile));
}

struct moe_order moe_order_make(struct gpu *g, const struct moe_call_args *c, int rows,
                                unsigned char *memory) {
    struct moe_order o = {};
    o.tiles = (int32_t *)memory;
    o.entry = (int32_t *)(memory + rounded(sizeof(int32_t)));
    o.tile = (struct moe_tile *)((unsigned char *)o.entry +
                                 rounded((size_t)c->listed * sizeof(int32_t)));
    o.max = moe_order_max_tiles(c->listed, c->experts, rows);
    o.rows = rows;
    gpu_launch_early(g, "moe_order", order_entries, 1, THREADS, 0, c->ids, (int)c->listed, o);
    return o;
}
