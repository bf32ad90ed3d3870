// SPDX-License-Identifier: Apache-2.0
// Linear layers of up to 32 rows that read the same rows but whose weights have several forms, as
// one launch: the projections of a recurrent or an attention layer. The frame is that of
// linear_few.cuh (blocks that stay, units of tiles, a ring of weights a warp, warps that bring the
// rows), with the matrix instructions of linear_mma.cuh, since a warp asks for each stage which
// form it has. The chain of matrix instructions of an element is the same everywhere, and so are
// its bits. Sums of a job that is cut into parts are left for linear_finish.cu.
#ifndef COPPICE_OPS_CUDA_LINEAR_MIXED_CUH
#define COPPICE_OPS_CUDA_LINEAR_MIXED_CUH

#include "ops/cuda/linear_few.cuh"
#include "ops/cuda/linear_mixed.h"

enum { MIXED_BARRIERS = 8 << 10, MIXED_STANDS = 1 << 10, MIXED_JOIN = 2 << 10 };

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
static __device__ __forceinline__ int mixed_span(int form) {
    return form <= WEIGHT_Q6_K ? MIXED_K : 64;
}

static __device__ __forceinline__ int mixed_chunk(int form) {
    return form == WEIGHT_Q4_K   ? CHUNK_Q4_K
           : form == WEIGHT_Q5_K ? CHUNK_Q5_K
           : form == WEIGHT_Q6_K ? CHUNK_Q6_K
           : form == WEIGHT_Q8_0 ? CHUNK_Q8_0
                                 : CHUNK_Q4_0;
}

static __device__ __forceinline__ few_unit mixed_unit(const struct linear_mixed &c, int unit,
                                                      int warp) {
    return few_unit_of(c.job, c.jobs, c.tiles, unit, warp);
}

// The unit that a worker's copies of weights turn to next, in shared memory: found when the one
// before it begins.
struct mixed_stand {
    int unit;              // to look at next
    int left, bytes, last; // its stages, 0 if taken; bytes of a stage, of the last one
    const unsigned char *from;
};

// Finds the next unit of which the worker has a tile, if the last one found is taken.
static __device__ __noinline__ void mixed_find(const struct linear_mixed &c, mixed_stand *s) {
    int unit = s->unit;
    if (s->left > 0)
        return;
    for (; unit < c.units; unit += (int)gridDim.x) {
        few_unit u = mixed_unit(c, unit, threadIdx.x / 32);
        if (!u.active)
            continue;
        int form = c.form[u.job - c.job], chunk = mixed_chunk(form), span = mixed_span(form);
        int step = mixed_step(form), k = u.end - u.begin;
        s->left = (k + step - 1) / step;
        s->bytes = step / span * chunk;
        s->last = (k - (s->left - 1) * step + span - 1) / span * chunk;
        s->from = u.w->data + u.tile * u.w->pitch + u.begin / span * chunk;
        unit += (int)gridDim.x;
        break;
    }
    s->unit = unit;
}

// The warps that bring activations (few_rows of linear_few.cuh).
template <int N>
static __device__ __forceinline__ void mixed_rows(const struct linear_mixed &c, stream_ring r,
                                                  uint32_t empty) {
    for (int unit = blockIdx.x; unit < c.units; unit += gridDim.x) {
        few_unit u = mixed_unit(c, unit, 0);
        for (int k0 = u.begin; k0 < u.end; k0 += MIXED_K, r.step()) {
            int left = (u.end - k0 + FEW_STEP - 1) / FEW_STEP;
            barrier_wait(empty + r.slot * 8, r.phase ^ 1);
            few_copy_rows<N>(r.at + r.slot * (N * MIXED_K * 2), c.x + k0, c.stride, c.n,
                             left < MIXED_K / FEW_STEP ? left : MIXED_K / FEW_STEP);
            barrier_follow(r.bar + r.slot * 8);
        }
    }
}

// A ring as it is read: twice the slot, and the parity of its phase.
struct mixed_ring {
    uint32_t at;
    __device__ __forceinline__ uint32_t slot(void) const {
        return at >> 1;
    }
    __device__ __forceinline__ uint32_t phase(void) const {
        return at & 1;
    }
    __device__ __forceinline__ void step(uint32_t n) {
        at += 2;
        if (at >= 2 * n)
            at = at & 1 ^ 1;
    }
};

// A worker's place: its rings, and what its copies do next.
struct mixed_place {
    uint32_t base;             // of shared memory
    uint32_t ring, full;       // addresses of the ring of weights and of its barriers
    mixed_ring weights, rows;  // as they are read
    int filled;                // stages of weights under way or not yet read
    const unsigned char *from; // as in mixed_stand
    int left, bytes, last;

    __device__ __forceinline__ mixed_stand *stand(void) const {
        extern __shared__ __align__(1024) unsigned char shared[];
        return (mixed_stand *)(shared + MIXED_STANDS) + threadIdx.x / 32;
    }

    // Finds what comes behind the unit that copies have turned to.
    __device__ __forceinline__ void look(const struct linear_mixed &c) const {
        if (threadIdx.x % 32 == 0)
            mixed_find(c, stand());
        __syncwarp();
    }

    // Starts the copy of the next stage of a unit.
    __device__ __forceinline__ void start(const struct linear_mixed &c, int slot) {
        int now = left > 1 ? bytes : last;
        if (threadIdx.x % 32 == 0) {
            barrier_expect(full + slot * 8, now);
            copy_bulk(ring + slot * c.slot, from, now, full + slot * 8);
        }
        from += now;
        left--;
    }

    // Turns to the unit that was found, if there is one.
    __device__ __forceinline__ bool take(void) {
        left = stand()->left;
        if (left <= 0)
            return false;
        bytes = stand()->bytes;
        last = stand()->last;
        from = stand()->from;
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            stand()->left = 0;
        return true;
    }

    // Starts copies into all stages that are free.
    __device__ __forceinline__ void refill(const struct linear_mixed &c) {
#pragma unroll 1
        for (; filled < c.slots; filled++) {
            if (left <= 0 && !take())
                return;
            int slot = (int)weights.slot() + filled;
            start(c, slot < c.slots ? slot : slot - c.slots);
        }
    }

    // One stage of weights has been read.
    __device__ __forceinline__ void next(const struct linear_mixed &c) {
        int slot = (int)weights.slot();
        weights.step(c.slots);
        if (left > 0 && filled == c.slots) {
            start(c, slot);
        } else {
            filled--;
            if (filled + 1 == c.slots)
                refill(c);
        }
    }
};

// Adds the products of 32 values of k, steps `first` and the next of a section; b: shared address
// of this lane's row of the first eight activations.
template <int FORM, int N>
static __device__ __forceinline__ void mixed_steps(float (&d)[N / 2], const dequant<FORM> &q,
                                                   int first, uint32_t b_at) {
    uint32_t b[N / 8][4];
#pragma unroll
    for (int j = 0; j < N / 8; j++)
        load_b(b[j], b_at + j * 1024);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t a[1][4];
        q.step(first + i, a);
#pragma unroll
        for (int j = 0; j < N / 8; j++)
            multiply<false>(d + 4 * j, a[0], b[j][2 * i], b[j][2 * i + 1]);
    }
}

// Adds the products of one stage of weights, k0 .. end at most.
template <int FORM, int N>
static __device__ __forceinline__ void mixed_stage(float (&d)[N / 2], const unsigned char *own,
                                                   uint32_t rows, const few_unit &u, int k0) {
    enum { PANEL = N * FEW_STEP * 2, SPAN = dequant<FORM>::SPAN };
    const int lane = threadIdx.x % 32;
    const uint32_t b_at = rows + lane % 8 * 128, piece = (lane / 8 ^ lane % 8) * 16;
    dequant<FORM> q;
#pragma unroll
    for (int at = 0; at < mixed_step(FORM); at += FEW_STEP) {
        const unsigned char *chunk = own + at / SPAN * dequant<FORM>::CHUNK;
        if (SPAN < MIXED_K && k0 + at >= u.end)
            break;
        if (at % SPAN == 0)
            q.open(chunk, k0 + at, lane);
        q.section(chunk, at % SPAN / FEW_STEP, lane);
        mixed_steps<FORM, N>(d, q, 0, b_at + at / FEW_STEP * PANEL + piece);
        mixed_steps<FORM, N>(d, q, 2, b_at + at / FEW_STEP * PANEL + (piece ^ 64));
    }
}

// Those of one stage of rows, k0 .. end at most: one or two of weights.
template <int N>
static __device__ __forceinline__ void mixed_stages(const struct linear_mixed &c, int form,
                                                    const few_unit &u, mixed_place &at, int k0,
                                                    float (&d)[N / 2]) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const uint32_t rows = at.base + MIXED_BARRIERS + at.rows.slot() * (N * MIXED_K * 2);
#pragma unroll 1
    for (int h = 0; h < MIXED_K && k0 + h < u.end; h += mixed_step(form)) {
        barrier_wait(at.full + at.weights.slot() * 8, at.weights.phase());
        const unsigned char *own = shared + (at.ring - at.base) + at.weights.slot() * c.slot;
        switch (form) {
        case WEIGHT_Q4_K:
            mixed_stage<WEIGHT_Q4_K, N>(d, own, rows, u, k0);
            break;
        case WEIGHT_Q5_K:
            mixed_stage<WEIGHT_Q5_K, N>(d, own, rows, u, k0);
            break;
        case WEIGHT_Q6_K:
            mixed_stage<WEIGHT_Q6_K, N>(d, own, rows, u, k0);
            break;
        case WEIGHT_Q8_0:
            mixed_stage<WEIGHT_Q8_0, N>(d, own, rows + h * N * 2, u, k0 + h);
            break;
        default:
            mixed_stage<WEIGHT_Q4_0, N>(d, own, rows, u, k0);
        }
        __syncwarp();
        at.next(c);
    }
}

template <int N>
static __device__ __forceinline__ void mixed_products(const struct linear_mixed &c,
                                                      mixed_place &at) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const int warp = threadIdx.x / 32;
#pragma unroll 1
    for (int unit = blockIdx.x; unit < c.units; unit += gridDim.x) {
        at.look(c);
        at.refill(c);
        few_unit u = mixed_unit(c, unit, warp);
        const int form = c.form[u.job - c.job];
        float d[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            d[i] = 0;
#pragma unroll 1
        for (int k0 = u.begin; k0 < u.end; k0 += MIXED_K) {
            barrier_wait(at.base + at.rows.slot() * 8, at.rows.phase());
            if (u.active)
                mixed_stages<N>(c, form, u, at, k0, d);
            __syncwarp();
            few_release(at.base + 8 * c.stages, at.rows.slot());
            at.rows.step(c.stages);
        }
        u = mixed_unit(c, (int)few_kept((uint32_t)unit), warp); // not kept meanwhile
        if (u.job->parts == 1)
            few_finish<N>(c.n, c.unscale, u, warp, (float *)(shared + MIXED_JOIN), d);
        else if (u.active)
            few_leave<N>(c.n, u, warp, d);
    }
}
#endif

// Shared memory: barriers and what workers' copies do next (MIXED_BARRIERS bytes), activations,
// weights.
template <int N>
static __global__ void __launch_bounds__(MIXED_THREADS, 1)
    linear_mixed_kernel(const __grid_constant__ struct linear_mixed c) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t base = (uint32_t)__cvta_generic_to_shared(shared), empty = base + 8 * c.stages;
    uint32_t full = empty + 8 * c.stages;
    stream_ring rows = {base + MIXED_BARRIERS, base, c.stages, 0, 0};
    if (warp == MIXED_WARPS && lane < c.stages) {
        barrier_init(rows.bar + lane * 8, 64);
        barrier_init(empty + lane * 8, MIXED_WARPS);
    }
    for (int i = lane; warp < MIXED_WARPS && i < c.slots; i += 32)
        barrier_init(full + (warp * c.slots + i) * 8, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if (warp < MIXED_WARPS) {
        uint32_t ring = rows.at + c.stages * (N * MIXED_K * 2) + warp * c.slots * c.slot;
        mixed_place at = {base, ring, full + 8 * warp * c.slots, {0}, {0}, 0, NULL, 0, 0, 0};
        if (lane == 0)
            *at.stand() = {(int)blockIdx.x, 0, 0, 0, NULL};
        at.look(c);
        at.refill(c);
        __syncthreads();
        gpu_await();
        mixed_products<N>(c, at);
    } else {
        __syncthreads();
        gpu_await();
        mixed_rows<N>(c, rows, empty);
    }
#else
    gpu_await();
    (void)c;
#endif
}

#endif
