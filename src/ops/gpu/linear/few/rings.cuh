// SPDX-License-Identifier: Apache-2.0
// What the warps of kernel.cuh work on and what brings it: units of a launch, each warp's ring
// of stages of its own weights, and the ring of rows that all warps share. What copies turn to next
// stands in shared memory in front of the rings, since it is read once a unit or by one
// thread.
#ifndef COPPICE_OPS_GPU_LINEAR_FEW_RINGS_CUH
#define COPPICE_OPS_GPU_LINEAR_FEW_RINGS_CUH

#include "ops/gpu/linear/few/few.h"
#include "ops/gpu/linear/many/tiles.cuh"
#include "ops/gpu/matrix/async_copy.cuh"
#include "ops/gpu/matrix/bulk_copy.cuh"

#if __CUDA_ARCH__ >= 800
enum { FEW_TWO = 64 }; // added to the form of a warp's two tiles
// In front of the rings. FEW_EXPONENTS: of the warps' tiles; FEW_BACK, FEW_BACK_BAR: what takes the
// rows' powers of two back, and the barrier that says it is there.
enum {
    FEW_BACK_BAR = 496,
    FEW_STANDS = 512,
    FEW_EXPONENTS = 1152,
    FEW_ROWS_STAND = 1472,
    FEW_BACK = 1536,
    FEW_JOIN = 2 << 10
};

// A unit of work as one warp sees it.
struct few_unit {
    const struct linear_one *job;
    const struct linear_few_cut *cut;
    const struct matrix_view *w;
    int form, part;
    int64_t tile;
    int first;      // tile of the unit's first warp
    int begin, end; // of k
    int tiles;      // of all warps
    bool active;    // there is such a tile
};

static __device__ __forceinline__ few_unit few_unit_of(const struct linear_few &c, int unit,
                                                       int warp) {
    few_unit u;
    int j = 0;
    while (j + 1 < c.jobs && unit >= c.cut[j + 1].first)
        j++;
    const struct linear_few_cut &cut = c.cut[j];
    u.job = &c.job[j];
    u.cut = &cut;
    u.form = c.form[j];
    unit -= cut.first;
    u.part = cut.groups > 1 ? (int)__umulhi((unsigned)unit, cut.inverse) : unit;
    unit -= u.part * cut.groups;
    u.begin = cut.begin[u.part];
    u.end = cut.begin[u.part + 1];
    const int each = cut.each + (unit < cut.larger), nth = u.job->pair ? warp / 2 : warp;
    u.tiles = u.job->pair ? each * 2 : each;
    u.w = &u.job->w[u.job->pair ? warp % 2 : 0];
    u.first = unit * cut.each + (unit < cut.larger ? unit : cut.larger);
    u.tile = u.first + nth;
    u.active = nth < each;
    return u;
}

// Which of a unit's tiles a warp has where the first warps may have two (warp.cuh).
struct few_share {
    int first;
    bool two;
};

static __device__ __forceinline__ few_share few_share_of(const struct linear_few &c,
                                                         const few_unit &u, int warp) {
    const int first = warp + (warp < c.twice ? warp : c.twice);
    const few_share s = {first, warp < c.twice && first + 1 < u.tiles};
    return s;
}

// What a warp's copies turn to: one unit, some of which they may have done. In shared memory, since
// it is read only where a unit begins or ends.
template <int MOST> struct few_stand {
    const unsigned char *from[MOST]; // the second where the warp has two tiles
    int unit;                        // to look at when this one is done
    int form, stages;                // of it
    int bytes, last;                 // of a stage, of the last one
};

// Finds the next unit of which the warp has a tile; no stages if there is none. One thread. MOST:
// tiles that a warp may have.
template <int N, int MOST>
static __device__ __noinline__ void few_find(const struct linear_few &c, few_stand<MOST> *s) {
    s->stages = 0;
    for (; s->unit < c.units && !s->stages; s->unit += (int)gridDim.x) {
        few_share share = {(int)threadIdx.x / WARP, false};
        if (MOST > 1)
            share = few_share_of(c, few_unit_of(c, s->unit, 0), share.first);
        few_unit u = few_unit_of(c, s->unit, share.first);
        if (!u.active)
            continue;
        s->form = u.form + (share.two ? (int)FEW_TWO : 0);
        s->stages = u.cut->stages[u.part];
        s->bytes = u.cut->bytes;
        s->last = u.cut->last[u.part];
        const int from = u.cut->from[u.part];
        s->from[0] = u.w->data + u.tile * u.w->pitch + from;
        if (MOST == 1 || !share.two)
            continue;
        u = few_unit_of(c, s->unit, share.first + 1);
        s->from[MOST - 1] = u.w->data + u.tile * u.w->pitch + from;
    }
}

static_assert(FEW_STANDS + few_warps(64) * sizeof(few_stand<1>) <= FEW_EXPONENTS &&
                  FEW_EXPONENTS + few_warps(64) * TILE_ROWS <= FEW_ROWS_STAND &&
                  FEW_BACK + FEW_ROWS * sizeof(float) <= FEW_JOIN,
              "what lies in front of the rings does not overlap");

// A warp's copies, which run ahead of its products over the ends of units: each lane copies 16
// bytes of every 512. Of two tiles a stage has one after the other.
template <int MOST> struct few_copies {
    const unsigned char *from[MOST]; // of this lane
    uint32_t to;                     // of this lane: the place that is free
    int left, form;                  // stages of the unit; of its weights, with FEW_TWO

    // Starts the first stage of the block's first unit, all of which the host has worked out; of
    // one tile.
    template <int N>
    __device__ __forceinline__ void open(const struct linear_few &c, const few_unit &u) {
        extern __shared__ __align__(1024) unsigned char shared[];
        const int lane = threadIdx.x % WARP, part = u.part, stages = u.cut->stages[part];
        const unsigned char *begin = u.w->data + u.tile * u.w->pitch + u.cut->from[part];
        const int last = u.cut->last[part], bytes = stages > 1 ? u.cut->bytes : last;
        left = u.active ? stages : 0;
        form = u.form;
        from[0] = begin + lane * 16;
#pragma unroll 1
        for (int at = 0; u.active && at + lane * 16 < bytes; at += 512)
            copy_once(to + at, from[0] + at);
        if (lane == 0)
            ((few_stand<MOST> *)(shared + FEW_STANDS))[threadIdx.x / WARP] = {
                {begin}, (int)(blockIdx.x + gridDim.x), form, left, u.cut->bytes, last};
        __syncwarp();
        if (left) {
            from[0] += bytes;
            left--;
        } else {
            start_odd<N>(c);
        }
        copies_end<false>();
        __syncwarp();
    }

    // The same where a warpgroup multiplies, in whose loops nothing of it may stay in registers;
    // false where the warp has no tile of that unit.
    __device__ __forceinline__ bool open_apart(const struct linear_few &c, const few_unit &u) {
        extern __shared__ __align__(1024) unsigned char shared[];
        few_stand<MOST> *s = (few_stand<MOST> *)(shared + FEW_STANDS) + threadIdx.x / WARP;
        const int lane = threadIdx.x % WARP, part = u.part, stages = u.cut->stages[part];
        const unsigned char *begin = u.w->data + u.tile * u.w->pitch + u.cut->from[part];
        const int last = u.cut->last[part], bytes = stages > 1 ? u.cut->bytes : last;
#pragma unroll 1
        for (int at = 0; u.active && at + lane * 16 < bytes; at += 512)
            copy_once(to + at, begin + lane * 16 + at);
        if (lane == 0)
            *s = {{begin + bytes}, (int)(blockIdx.x + gridDim.x),
                  u.form,          u.active ? stages - 1 : 0,
                  u.cut->bytes,    last};
        if (u.active)
            copies_end<false>();
        __syncwarp();
        volatile few_stand<MOST> *v = s;
        left = v->stages;
        form = v->form;
        from[0] = v->from[0] + lane * 16;
        return u.active;
    }

    // The same for any stage: the unit's last one, or the first of another.
    template <int N> __device__ __forceinline__ void start_odd(const struct linear_few &c) {
        extern __shared__ __align__(1024) unsigned char shared[];
        few_stand<MOST> *s = (few_stand<MOST> *)(shared + FEW_STANDS) + threadIdx.x / WARP;
        const int lane = threadIdx.x % WARP;
        if (left == 0) {
            const bool none = s->unit >= c.units;
            __syncwarp(); // all lanes know it before one looks for the next
            if (none)     // mostly so: the call reads what the launch says through memory
                return;
            if (lane == 0)
                few_find<N, MOST>(c, s);
            __syncwarp();
            left = s->stages;
            form = s->form;
            for (int t = 0; t < MOST; t++)
                from[t] = s->from[t] + lane * 16;
            if (left == 0)
                return;
        }
        const int bytes = left > 1 ? s->bytes : s->last;
        for (int t = 0; t < MOST; t++) {
            if (t > 0 && form < FEW_TWO)
                break;
#pragma unroll 1
            for (int at = 0; at + lane * 16 < bytes; at += 512)
                copy_once(to + t * s->bytes + at, from[t] + at);
            from[t] += bytes;
        }
        left--;
    }

    // Starts the copy of the next stage, if there is one; all lanes. FORM, TILES: of the weights
    // that are multiplied now, most likely of those too. Counts as a group of copies in any case.
    template <int N, int FORM, int TILES>
    __device__ __forceinline__ void start(const struct linear_few &c) {
        enum { BYTES = few_step(FORM, N) / dequant<FORM>::SPAN * dequant<FORM>::CHUNK };
        if (left > 1 && form == FORM + (TILES > 1 ? (int)FEW_TWO : 0)) {
#pragma unroll
            for (int t = 0; t < TILES; t++) {
#pragma unroll
                for (int at = 0; at < BYTES; at += 512)
                    if (at + 512 <= BYTES || at + threadIdx.x % WARP * 16 < BYTES)
                        copy_once(to + t * BYTES + at, from[t] + at);
                from[t] += BYTES;
            }
            left--;
        } else {
            start_odd<N>(c);
        }
        copies_end<false>();
    }
};

// A warp's place in its ring of two stages of weights and in the ring of rows that all share.
struct few_place {
    uint32_t base;      // of shared memory
    uint32_t own, both; // the stage of weights that is read next; the sum of the two; from base
    int row;            // that is read next
    uint32_t row_phase;
    bool rows_left; // a stage of rows has been left
    few_copies<1> copies;

    // Addresses: of a row's stage, the barriers that say it is there and free.
    template <int N> __device__ __forceinline__ uint32_t rows(void) const {
        return base + few_front(N) + row * (few_k(N) * N * 2);
    }
    __device__ __forceinline__ uint32_t rows_full(void) const {
        return base + 8 * row;
    }
    __device__ __forceinline__ uint32_t rows_empty(const struct linear_few &c) const {
        return base + 8 * (c.stages + row);
    }

    // The next stage of weights, from base, when all of it is there; starts the copy of another
    // one, if any is left, to where the stage before it was.
    template <int N, int FORM>
    __device__ __forceinline__ uint32_t next(const struct linear_few &c) {
        const uint32_t now = own;
        copies_wait<false, 0>();
        __syncwarp();
        if (N == 8 && c.whole) {
            own = now + c.slot;
            return now;
        }
        if (copies.to)
            copies.start<N, FORM, 1>(c);
        copies.to = base + now + threadIdx.x % WARP * 16;
        own = both - now;
        return now;
    }
    // Leaves a stage of rows.
    template <int N> __device__ __forceinline__ void step_row(const struct linear_few &c);
    // The same in two steps: goes to the next one; says that the one before that has been read.
    __device__ __forceinline__ void pass_row(const struct linear_few &c) {
        if (++row == c.stages) {
            row = 0;
            row_phase ^= 1;
        }
    }
    template <int N> __device__ __forceinline__ void leave_row(const struct linear_few &c) {
        say_left<N>(base + 8 * (c.stages + (row == 0 ? c.stages : row) - 1), c);
    }
    template <int N>
    __device__ __forceinline__ void say_left(uint32_t bar, const struct linear_few &c);
};

// What the copies of rows turn to next, in shared memory: one thread reads it, once a stage.
struct few_rows_stand {
    int unit;   // to look at when this one is done
    int k, end; // of the next stage, of the unit
    int slot;
    uint32_t phase;
};

// Finds the next unit; false if there is none.
static __device__ __forceinline__ bool few_rows_find(const struct linear_few &c,
                                                     few_rows_stand *s) {
    if (s->unit >= c.units)
        return false;
    const few_unit u = few_unit_of(c, s->unit, 0);
    s->k = u.begin;
    s->end = u.end;
    s->unit += (int)gridDim.x;
    return true;
}

// Makes the ring of rows ready, all but their first copy; the warp that brings them.
template <int N>
static __device__ __forceinline__ void few_rows_open(const struct linear_few &c, uint32_t base) {
    extern __shared__ __align__(1024) unsigned char shared[];
    if (threadIdx.x == few_bringer(N)) {
#pragma unroll 1 // in a branch of its own: racecheck does not see predicates of these
        for (int i = 0; i < c.stages; i++) {
            barrier_init(base + 8 * i, 1);
            barrier_init(base + 8 * (c.stages + i), few_warps(N));
        }
        barrier_init(base + FEW_BACK_BAR, 1);
        prefetch_map(&c.rows);
        few_rows_stand *s = (few_rows_stand *)(shared + FEW_ROWS_STAND);
        *s = {(int)blockIdx.x, 0, 0, 0, 0};
        few_rows_find(c, s);
    }
    barriers_ready();
    show_shared();
}

// Brings the next stage of rows of this block's units as soon as all warps have left its place;
// false if there is none. One thread.
template <int N>
static __device__ __noinline__ bool few_rows(const struct linear_few &c, uint32_t base) {
    enum { STAGE = few_k(N) * N * 2 };
    extern __shared__ __align__(1024) unsigned char shared[];
    few_rows_stand *s = (few_rows_stand *)(shared + FEW_ROWS_STAND);
    if (s->k >= s->end && !few_rows_find(c, s))
        return false;
    const uint32_t bar = base + 8 * s->slot;
    barrier_wait(bar + 8 * c.stages, s->phase ^ 1);
    barrier_expect(bar, STAGE);
    tile_copy(base + few_front(N) + s->slot * STAGE, &c.rows, 0, 0, s->k / FEW_PANEL, bar);
    s->k += few_k(N);
    if (++s->slot == c.stages) {
        s->slot = 0;
        s->phase ^= 1;
    }
    return true;
}

// If one of these warps brings the rows, then to the place of the stage before, which all others
// have mostly left by now; in a ring of two to that of this one. (Where none does, nothing is
// called here: what a call needs would be in local memory.)
template <int N>
__device__ __forceinline__ void few_place::say_left(uint32_t bar, const struct linear_few &c) {
    __syncwarp();
    if (threadIdx.x % WARP == 0)
        barrier_arrive(bar);
    if constexpr (few_bringer(N) < few_warps(N) * 32) {
        if (threadIdx.x == few_bringer(N) && (rows_left || c.stages == LEAST_STAGES))
            few_rows<N>(c, base);
        rows_left = true;
    }
}
template <int N> __device__ __forceinline__ void few_place::step_row(const struct linear_few &c) {
    say_left<N>(rows_empty(c), c);
    pass_row(c);
}
#endif

#endif
