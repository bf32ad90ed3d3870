// SPDX-License-Identifier: Apache-2.0
// Bringing experts: one block looks at what a list of entries chose and gives slots to those that
// are not resident, slot by slot as expert_pool_choose says; then many blocks read them from host
// memory. For lists of many entries the copy engine brings them, the next layer's ahead
// (stream.c). What is brought is the copy of a record, so no bit depends on what was resident.
#include "ops/gpu/moe/store.h"

enum { THREADS = 1024, WARPS = THREADS / WARP, COPY_THREADS = 256, COPY_EACH = 4 };
static_assert((int)OPS_EXPERTS_MAX <= (int)THREADS, "a thread has an expert");

struct fetch {
    struct moe_pool p;
    int layer, kept; // whose experts get slots, but not those that the list chose of `kept`
    int max;         // of them, at most
    const int32_t *ids;
    int entries;
    uint32_t rows;
    const unsigned char *from; // [experts][record] in host memory
    struct expert_move *moves;
    int32_t *missing;
    struct expert_stats *counted, *told;
};

// The two slots that have to go first, of those that this thread looks after and that come after
// `last`, so that looking again is rare. A second one of 0: not known any more.
struct first_slots {
    uint64_t rank[2];

    __device__ void look(const fetch &f, const uint32_t *count, bool any, uint64_t last) {
        rank[0] = rank[1] = UINT64_MAX;
        for (int64_t s = threadIdx.x; s < f.p.slots; s += THREADS) {
            const int32_t owner = __ldcg(f.p.owner + s);
            uint64_t own = (uint64_t)s;
            if (owner >= 0) {
                const int layer = owner / f.p.experts;
                if (layer == f.kept && count[owner - layer * f.p.experts])
                    continue;
                if (layer == f.layer && f.layer != f.kept)
                    continue;
                const uint64_t part =
                    expert_part(__ldcg(f.p.uses + owner), __ldcg(f.p.total + layer), f.p.experts);
                own |= (part + 1) << 31;
            }
            if (!any && own <= last)
                continue;
            rank[1] = own < rank[0] ? rank[0] : own < rank[1] ? own : rank[1];
            rank[0] = own < rank[0] ? own : rank[0];
        }
    }
    __device__ void drop(const fetch &f, const uint32_t *count) {
        const uint64_t last = rank[0];
        rank[0] = rank[1];
        rank[1] = 0;
        if (!rank[0])
            look(f, count, false, last);
    }
};

static __device__ uint64_t lowest(uint64_t v) {
    for (int by = 16; by; by /= 2) {
        const uint64_t other = warp_across((unsigned long long)v, by);
        v = other < v ? other : v;
    }
    return v;
}

// How many of the threads before this one vote, and in *all how many do.
static __device__ int votes_before(bool vote, int *all) {
    __shared__ int part[WARPS];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const warp_mask votes = warp_vote(vote);
    int before = mask_before(votes, lane);
    __syncthreads();
    if (lane == 0)
        part[warp] = mask_count(votes);
    __syncthreads();
    *all = 0;
    for (int i = 0; i < WARPS; i++) {
        before += i < warp ? part[i] : 0;
        *all += part[i];
    }
    return before;
}

static __device__ void warm(const fetch &f, const uint32_t *count) {
    const int own = threadIdx.x;
    uint32_t *uses = f.p.uses + (int64_t)f.layer * f.p.experts;
    const uint32_t rows = __ldcg(f.p.rows + f.layer);
    const bool halve = (uint64_t)rows + f.rows >= EXPERT_HALF;
    if (own < f.p.experts)
        uses[own] = (__ldcg(uses + own) + count[own] * EXPERT_USE) >> (halve ? 1 : 0);
    __syncthreads();
    if (own == 0) {
        const uint32_t total = __ldcg(f.p.total + f.layer) + (uint32_t)f.entries * EXPERT_USE;
        f.p.total[f.layer] = total >> (halve ? 1 : 0);
        f.p.rows[f.layer] = halve ? 0 : rows + f.rows;
    }
}

// Adds to what was counted so far, and copies it to the host.
static __device__ void tell_fetched(const fetch &f, bool ahead, int used, int missing,
                                    int evicted) {
    enum { COUNTS = sizeof(struct expert_stats) / sizeof(uint64_t) };
    unsigned long long *counted = (unsigned long long *)f.counted;
    volatile unsigned long long *told = (volatile unsigned long long *)f.told;
    const uint64_t more[COUNTS] = {
        ahead ? 0 : (uint64_t)(used - missing), ahead ? 0 : (uint64_t)missing,
        (uint64_t)missing * (uint64_t)f.p.record, (uint64_t)evicted, ahead ? (uint64_t)missing : 0};
    for (int i = 0; i < COUNTS; i++) {
        const unsigned long long now = __ldcg(counted + i) + more[i];
        counted[i] = now;
        told[i] = now;
    }
}

// AHEAD: of a layer that has not chosen yet (expert_pool_ahead), else expert_pool_choose.
template <bool AHEAD>
static __global__ void __launch_bounds__(THREADS)
    choose_slots(const __grid_constant__ struct fetch f) {
    __shared__ uint32_t count[THREADS];
    __shared__ int wanted[THREADS], slot[THREADS];
    __shared__ uint64_t part[2][WARPS];
    const int own = threadIdx.x, lane = own % WARP, warp = own / WARP;
    gpu_await();
    gpu_let_next();
    count[own] = 0;
    __syncthreads();
    for (int i = own; i < f.entries; i += THREADS)
        atomicAdd(&count[__ldcg(f.ids + i)], 1u);
    __syncthreads();
    if (!AHEAD)
        warm(f, count);
    const unsigned char **place = f.p.place + (int64_t)f.layer * f.p.experts;
    const bool used = own < f.p.experts && (AHEAD || count[own]);
    const bool misses = used && !__ldcg((const unsigned long long *)place + own);
    int missing, all;
    const int at = votes_before(misses, &missing);
    votes_before(used, &all);
    if (misses)
        wanted[at] = own;
    missing = missing < f.max ? missing : f.max;
    __syncthreads();
    first_slots best = {{UINT64_MAX, UINT64_MAX}};
    if (missing)
        best.look(f, count, true, 0);
    for (int i = 0; i < missing; i++) {
        uint64_t v = lowest(best.rank[0]);
        if (lane == 0)
            part[i % 2][warp] = v;
        __syncthreads();
        v = lowest(part[i % 2][lane]);
        if (AHEAD && v == UINT64_MAX) { // the others are needed now
            missing = i;
            break;
        }
        if (own == 0)
            slot[i] = (int)(v & INT32_MAX);
        if (best.rank[0] == v)
            best.drop(f, count);
    }
    __syncthreads();
    bool evicts = false;
    if (own < missing) {
        int32_t *owner = f.p.owner + slot[own];
        const int32_t old = __ldcg(owner);
        evicts = old >= 0;
        if (evicts)
            f.p.place[old] = NULL;
        *owner = f.layer * f.p.experts + wanted[own];
        place[wanted[own]] = f.p.data + slot[own] * f.p.step;
        f.moves[own] = {wanted[own], slot[own]};
    }
    int evicted;
    votes_before(evicts, &evicted);
    if (own == 0) {
        *f.missing = missing;
        tell_fetched(f, AHEAD, all, missing, evicted);
    }
}

static __global__ void __launch_bounds__(COPY_THREADS)
    bring_experts(const __grid_constant__ struct fetch f) {
    gpu_await();
    gpu_let_next();
    const int64_t units = f.p.record / 16, each = COPY_THREADS * COPY_EACH;
    const int64_t pieces = (units + each - 1) / each, all = __ldcg(f.missing) * pieces;
    for (int64_t piece = blockIdx.x; piece < all; piece += gridDim.x) {
        const int move = (int)(piece / pieces);
        const int2 m = __ldcg((const int2 *)f.moves + move); // struct expert_move
        const int64_t first = (piece - move * pieces) * each + threadIdx.x;
        const uint4 *from = (const uint4 *)(f.from + m.x * f.p.record) + first;
        uint4 *to = (uint4 *)(f.p.data + m.y * f.p.step) + first, v[COPY_EACH];
#pragma unroll
        for (int i = 0; i < COPY_EACH; i++)
            if (first + i * COPY_THREADS < units)
                v[i] = __ldcs(from + i * COPY_THREADS);
#pragma unroll
        for (int i = 0; i < COPY_EACH; i++)
            if (first + i * COPY_THREADS < units)
                to[i * COPY_THREADS] = v[i];
    }
}

// Weights and their places change, which other kernels read early.
static const struct launch_says MOVES = {0, MEMORY_ALL, false, NULL, false};

static struct fetch fetch_of(const struct moe_home *h, const struct moe_list *l) {
    const struct expert_store *s = h->store;
    return {*h->pool,       h->index, h->index, h->pool->experts, l->ids,     (int)(l->n * l->used),
            (uint32_t)l->n, h->seen,  s->moves, s->missing,       s->counted, s->stats_device};
}

void moe_choose(struct gpu *g, const struct moe_home *h, const struct moe_list *l,
                struct moe_moves *to) {
    struct fetch f = fetch_of(h, l);
    f.moves = to->move;
    f.missing = &to->n;
    gpu_launch_saying({g, "experts (slots)", MOVES}, choose_slots<false>, 1, THREADS, 0, f);
}

void moe_choose_ahead(struct gpu *g, const struct moe_home *h, const struct moe_home *now,
                      const struct moe_list *l, struct moe_moves *to) {
    struct fetch f = fetch_of(h, l);
    f.kept = h->pool == now->pool ? now->index : -1;
    f.max = expert_pool_max_ahead(h->pool->experts);
    f.moves = to->move;
    f.missing = &to->n;
    gpu_launch_saying({g, "experts (slots ahead)", MOVES}, choose_slots<true>, 1, THREADS, 0, f);
}

void moe_read(struct gpu *g, const struct moe_home *h, const struct moe_list *l) {
    const struct fetch f = fetch_of(h, l);
    gpu_launch_saying({g, "experts (slots)", MOVES}, choose_slots<false>, 1, THREADS, 0, f);
    gpu_launch_saying({g, "experts (bringing)", MOVES}, bring_experts, (unsigned)g->processors * 2,
                      COPY_THREADS, 0, f);
}
