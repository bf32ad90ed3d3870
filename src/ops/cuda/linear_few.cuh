// SPDX-License-Identifier: Apache-2.0
// Linear layers of up to 64 rows on sm_90a, where reading the weights is all the work. All rows are
// the N columns of one warpgroup matrix instruction, so their number costs the warps nothing but
// the sums (8 rows: that of one warp). A block stays for the whole launch and walks its units (some
// tiles of 16 outputs of one job, one part of k); each warp has one tile of a unit. It keeps a ring
// of stages of its own weights in shared memory, which bulk copies refill as soon as a stage has
// been read, over the ends of units; it turns 64 or 128 of k at a time into fp16 fragments in
// registers, multiplies, and waits. While one warpgroup multiplies, the others do everything else.
// One more warp has the copy engine bring the activations, which all share, into a ring of their
// own, in the 128-byte swizzle that the instruction reads.
//
// Jobs may have weights of several forms: a unit has one. In a pair the even warps have tiles of
// the first matrix and the odd ones those of the second. The chain of matrix instructions of an
// element is that of linear_mma.cuh, and so are its bits. Sums of a job that is cut into parts are
// left in memory for linear_finish.cu.
#ifndef COPPICE_OPS_CUDA_LINEAR_FEW_CUH
#define COPPICE_OPS_CUDA_LINEAR_FEW_CUH

#include "ops/cuda/barrier.cuh"
#include "ops/cuda/dequant.cuh"
#include "ops/cuda/linear_few.h"
#include "ops/cuda/linear_mma.cuh"
#include "ops/cuda/wgmma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
enum { FEW_STANDS = 1 << 10, FEW_JOIN = 2 << 10 }; // places in front of the rings

// A unit of work as one warp sees it.
struct few_unit {
    const struct linear_one *job;
    const struct matrix_view *w;
    int form, part;
    int64_t tile;
    int begin, end; // of k
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
    u.form = c.form[j];
    unit -= cut.first;
    for (u.part = 0; unit >= cut.groups; u.part++)
        unit -= cut.groups;
    u.begin = cut.begin[u.part];
    u.end = cut.begin[u.part + 1];
    int nth = u.job->pair ? warp / 2 : warp;
    u.w = &u.job->w[u.job->pair ? warp % 2 : 0];
    u.tile = unit * cut.each + (unit < cut.larger ? unit : cut.larger) + nth;
    u.active = nth < cut.each + (unit < cut.larger);
    return u;
}

static __device__ __forceinline__ int few_span(int form) {
    return form <= WEIGHT_Q6_K ? 256 : 64;
}

static __device__ __forceinline__ int few_chunk(int form) {
    switch (form) {
#define X(name, span, chunk)                                                                       \
    case WEIGHT_##name:                                                                            \
        return chunk;
        WEIGHT_FORMS_LIST(X)
#undef X
    default:
        return 0;
    }
}

// What a warp's copies do next, in shared memory since only one thread asks, once a stage: they run
// ahead of the products, over the ends of units.
struct few_stand {
    int unit;              // to look at when this one is done
    int left, bytes, last; // its stages; bytes of a stage, of the last one
    const unsigned char *from;
};

// Finds the next unit of which the warp has a tile; false if there is none.
template <int N>
static __device__ __noinline__ bool few_find(const struct linear_few &c, few_stand *s) {
    for (; s->unit < c.units; s->unit += (int)gridDim.x) {
        few_unit u = few_unit_of(c, s->unit, threadIdx.x / 32);
        if (!u.active)
            continue;
        int chunk = few_chunk(u.form), span = few_span(u.form), step = few_step(u.form, N);
        int k = u.end - u.begin;
        s->left = (k + step - 1) / step;
        s->bytes = step / span * chunk;
        s->last = (k - (s->left - 1) * step + span - 1) / span * chunk;
        s->from = u.w->data + u.tile * u.w->pitch + u.begin / span * chunk;
        s->unit += (int)gridDim.x;
        return true;
    }
    return false;
}

// A warp's place in its ring of weights and in the ring of rows that all share.
struct few_place {
    uint32_t base; // of shared memory
    int slot, row; // that are read next
    uint32_t phase, row_phase;

    // Addresses: of a row's stage, the barriers that say it is there and free, of a stage of
    // weights and its barrier.
    template <int N> __device__ __forceinline__ uint32_t rows(void) const {
        return base + few_front(N) + row * (FEW_K * N * 2);
    }
    __device__ __forceinline__ uint32_t rows_full(void) const {
        return base + 8 * row;
    }
    __device__ __forceinline__ uint32_t rows_empty(const struct linear_few &c) const {
        return base + 8 * (c.stages + row);
    }
    __device__ __forceinline__ int nth(void) const {
        return (int)(threadIdx.x / 32) * FEW_SLOTS + slot;
    }
    template <int N> __device__ __forceinline__ uint32_t weights(const struct linear_few &c) const {
        return few_front(N) + c.stages * (FEW_K * N * 2) + nth() * c.slot; // from base
    }
    __device__ __forceinline__ uint32_t weights_full(const struct linear_few &c) const {
        return base + 8 * (2 * c.stages + nth());
    }

    // Starts the copy of the next stage to this one's place, if there is one. One thread.
    template <int N> __device__ __forceinline__ void start(const struct linear_few &c) const {
        extern __shared__ __align__(1024) unsigned char shared[];
        few_stand *s = (few_stand *)(shared + FEW_STANDS) + threadIdx.x / 32;
        if (s->left == 0 && !few_find<N>(c, s))
            return;
        int bytes = s->left > 1 ? s->bytes : s->last;
        barrier_expect(weights_full(c), bytes);
        copy_bulk(base + weights<N>(c), s->from, bytes, weights_full(c));
        s->from += bytes;
        s->left--;
    }

    __device__ __forceinline__ void step(void) {
        phase ^= slot;
        slot ^= 1;
    }
    __device__ __forceinline__ void step_row(const struct linear_few &c) {
        if (++row == c.stages) {
            row = 0;
            row_phase ^= 1;
        }
    }
};

// Brings a tile of rows, FEW_PANEL values from k on.
static __device__ __forceinline__ void few_copy_rows(uint32_t to, const gpu_tile_map *map, int k,
                                                     uint32_t bar) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(k), "r"(0)
                 : "memory");
}

// The thread that brings activations: all units of this block, a stage as soon as all have left it.
template <int N>
static __device__ __forceinline__ void few_rows(const struct linear_few &c, stream_ring r,
                                                uint32_t empty) {
    enum { PANEL = N * FEW_PANEL * 2, STAGE = FEW_K / FEW_PANEL * PANEL };
    for (int unit = blockIdx.x; unit < c.units; unit += gridDim.x) {
        few_unit u = few_unit_of(c, unit, 0);
        for (int k0 = u.begin; k0 < u.end; k0 += FEW_K, r.step()) {
            int left = (u.end - k0 + FEW_PANEL - 1) / FEW_PANEL;
            int panels = left < FEW_K / FEW_PANEL ? left : FEW_K / FEW_PANEL;
            uint32_t bar = r.bar + r.slot * 8;
            barrier_wait(empty + r.slot * 8, r.phase ^ 1);
            barrier_expect(bar, panels * PANEL);
            for (int p = 0; p < panels; p++)
                few_copy_rows(r.at + r.slot * STAGE + p * PANEL, &c.rows, k0 + p * FEW_PANEL, bar);
        }
    }
}

// The fragments of 16 values of k, `at` of a stage of weights.
template <int FORM>
static __device__ __forceinline__ void few_fragment(dequant<FORM> &q, const unsigned char *own,
                                                    int at,
                                                    uint32_t (&f)[dequant<FORM>::TERMS][4]) {
    const int lane = threadIdx.x % 32, span = dequant<FORM>::SPAN;
    const unsigned char *chunk = own + at / span * dequant<FORM>::CHUNK;
    if (at % span == 0)
        q.open(chunk, 0, lane);
    if (at % FEW_PANEL == 0)
        q.section(chunk, at % span / FEW_PANEL, lane);
    q.step(at % FEW_PANEL / 16, f);
}

// d += the products of STEPS times 16 values of k from `at` of a stage of weights on; rows: address
// of what the stage has of the rows, the same in all lanes.
template <int FORM, int N, int STEPS>
static __device__ __forceinline__ void few_group(float (&d)[N / 2], dequant<FORM> &q,
                                                 const unsigned char *own, int at, uint32_t rows) {
    enum { TERMS = dequant<FORM>::TERMS, PANEL = N * FEW_PANEL * 2 / 16 };
    const uint32_t b = wgmma_rows_low(rows);
    uint32_t f[STEPS][TERMS][4];
#pragma unroll
    for (int i = 0; i < STEPS; i++)
        few_fragment<FORM>(q, own, at + i * 16, f[i]);
#pragma unroll
    for (int i = 0; i < STEPS * TERMS; i++)
        wgmma_keep(f[i / TERMS][i % TERMS]);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < STEPS * TERMS; i++) {
        const int k = at + i / TERMS * 16;
        wgmma_step<N>(d, f[i / TERMS][i % TERMS],
                      wgmma_rows_at(b + k / FEW_PANEL * PANEL + k % FEW_PANEL / 8));
    }
    wgmma_commit();
    wgmma_wait<0>();
}

// The same for 8 rows, by the matrix instruction of one warp, which takes fewer instructions.
template <int FORM, int STEPS>
static __device__ __forceinline__ void
few_group_alone(float (&d)[4], dequant<FORM> &q, const unsigned char *own, int at, uint32_t rows) {
    const int lane = threadIdx.x % 32;
    rows += lane % 8 * 128 + (lane / 8 ^ lane % 8) * 16;
#pragma unroll
    for (int i = 0; i < STEPS; i += 2) {
        const int k = at + i * 16;
        uint32_t b[4];
        load_b(b, (rows + k / FEW_PANEL * (8 * FEW_PANEL * 2)) ^ k % FEW_PANEL * 2);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t f[dequant<FORM>::TERMS][4];
            few_fragment<FORM>(q, own, k + h * 16, f);
#pragma unroll
            for (int t = 0; t < dequant<FORM>::TERMS; t++)
                multiply<false>(d, f[t], b[2 * h], b[2 * h + 1]);
        }
    }
}

// d += the products of one stage of weights, of which `left` values of k are there.
template <int FORM, int N>
static __device__ __forceinline__ void few_stage(float (&d)[N / 2], const unsigned char *own,
                                                 uint32_t rows, int left) {
    enum {
        STEP = few_step(FORM, N),
        GROUP = STEP < 128 || N > 24 || dequant<FORM>::TERMS > 1 ? 64 : 128, // between waits
    };
    dequant<FORM> q;
#pragma unroll
    for (int at = 0; at < STEP; at += N == 8 ? FEW_PANEL : GROUP) {
        if (dequant<FORM>::SPAN < FEW_K && at >= left)
            break;
        if constexpr (N == 8)
            few_group_alone<FORM, FEW_PANEL / 16>(d, q, own, at, rows);
        else if (dequant<FORM>::SPAN < FEW_K && at + FEW_PANEL >= left)
            few_group<FORM, N, FEW_PANEL / 16>(d, q, own, at, rows);
        else
            few_group<FORM, N, GROUP / 16>(d, q, own, at, rows);
    }
}

// Hides from the compiler where a value comes from, so that what follows from it is made again and
// not kept.
static __device__ __forceinline__ int few_again(int v) {
    asm volatile("" : "+r"(v));
    return v;
}

static __device__ __forceinline__ void few_release(uint32_t empty) {
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(empty);
}

// d = the products of one unit whose weights have this form. `group`: a warp of this warp's group
// has a tile.
template <int FORM, int N>
static __device__ __forceinline__ void few_products(const struct linear_few &c, const few_unit &u,
                                                    bool group, few_place &at, float (&d)[N / 2]) {
    extern __shared__ __align__(1024) unsigned char shared[];
    enum { STEP = few_step(FORM, N), PANEL = N * FEW_PANEL * 2 };
#pragma unroll 1
    for (int k0 = u.begin; k0 < u.end; k0 += FEW_K) {
        barrier_wait(at.rows_full(), at.row_phase);
        const uint32_t rows = __reduce_max_sync(0xFFFFFFFF, at.rows<N>());
#pragma unroll 1
        for (int h = 0; group && h < FEW_K && k0 + h < u.end; h += STEP) {
            if (u.active)
                barrier_wait(at.weights_full(c), at.phase);
            __syncwarp();
            few_stage<FORM, N>(d, shared + at.weights<N>(c), rows + h / FEW_PANEL * PANEL,
                               u.end - k0 - h);
            __syncwarp();
            if (!u.active)
                continue;
            if (threadIdx.x % 32 == 0)
                at.start<N>(c);
            at.step();
        }
        few_release(at.rows_empty(c));
        at.step_row(c);
    }
}

// Leaves this warp's sums in memory, by rows (linear_left).
template <int N>
static __device__ __forceinline__ void few_leave(int64_t rows, const few_unit &u, int warp,
                                                 const float (&d)[N / 2]) {
    const struct linear_one *o = u.job;
    int lane = threadIdx.x % 32, n0 = lane % 4 * 2, left = (int)rows - n0;
    int matrix = o->pair ? 2 * u.part + warp % 2 : u.part;
    const int64_t pitch = o->w[0].tiles * TILE_ROWS;
    float *at = o->partial + (matrix * rows + n0) * pitch + u.tile * TILE_ROWS + lane / 4;
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        if (i / 4 * 8 + i % 2 < left)
            __stcg(at + (i / 4 * 8 + i % 2) * pitch + i / 2 % 2 * 8, d[i]);
}

// Whether this warp of a pair has the outputs of rows 8 i to 8 i + 7 in the end.
static __device__ __forceinline__ bool few_has(int warp, int i) {
    return (warp + i) % 2 == 0;
}

// Joins the tiles of a pair: each warp hands over the columns that the other one will have.
template <int N>
static __device__ __forceinline__ void few_join(int warp, float *exchange, float (&d)[N / 2]) {
    float4 *at = (float4 *)exchange + warp / 2 * (N / 8 * 32) + threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < N / 8; i++)
        if (!few_has(warp, i))
            at[i * 32] = make_float4(d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]);
    asm volatile("bar.sync %0, 64;" ::"r"(1 + warp / 2) : "memory");
#pragma unroll
    for (int i = 0; i < N / 8; i++) {
        if (!few_has(warp, i))
            continue;
        float4 other = at[i * 32];
        float v[4] = {other.x, other.y, other.z, other.w};
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float g = warp % 2 ? v[e] : d[4 * i + e], u = warp % 2 ? d[4 * i + e] : v[e];
            d[4 * i + e] = g / (1.0f + expf(-g)) * u;
        }
    }
    asm volatile("bar.sync %0, 64;" ::"r"(1 + warp / 2) : "memory");
}

// Powers of two of a warp's two outputs; 0 where there is no such output.
static __device__ __forceinline__ float2 few_powers(const few_unit &u) {
    float power[2];
    for (int h = 0; h < 2; h++) {
        int64_t m = u.tile * TILE_ROWS + threadIdx.x % 32 / 4 + h * 8;
        power[h] = u.active && m < u.w->m ? __int_as_float((127 - u.w->exponent[m]) << 23) : 0.0f;
    }
    return make_float2(power[0], power[1]);
}

// The outputs: powers of two taken back, then joined, stored or added.
template <int N>
static __device__ __forceinline__ void few_finish(int64_t rows, const float *unscale,
                                                  const few_unit &u, int warp, float *exchange,
                                                  float (&d)[N / 2]) {
    const struct linear_one *o = u.job;
    const float2 power = few_powers(u);
    const int lane = threadIdx.x % 32, n0 = lane % 4 * 2, left = (int)rows - n0;
    float back[N / 4];
#pragma unroll
    for (int i = 0; i < N / 4; i++)
        back[i] = i / 2 * 8 + i % 2 < left ? __ldcg(unscale + n0 + i / 2 * 8 + i % 2) : 0.0f;
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        d[i] = d[i] * (i / 2 % 2 ? power.y : power.x) * back[i / 4 * 2 + i % 2];
    if (o->pair)
        few_join<N>(warp, exchange, d);
    if (!u.active)
        return;
    float *out = o->out + n0 * o->out_stride + u.tile * TILE_ROWS + lane / 4;
    const int room = (int)(u.w->m - (u.tile * TILE_ROWS + lane / 4));
#pragma unroll
    for (int j = 0; j < N / 8; j++, out += 8 * o->out_stride) {
        float old[4];
        if (o->pair && !few_has(warp, j))
            continue;
#pragma unroll
        for (int e = 0; e < 4; e++)
            old[e] = o->add && j * 8 + e % 2 < left && e / 2 * 8 < room
                         ? __ldcg(out + e % 2 * o->out_stride + e / 2 * 8)
                         : 0.0f;
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (j * 8 + e % 2 < left && e / 2 * 8 < room)
                out[e % 2 * o->out_stride + e / 2 * 8] =
                    o->add ? old[e] + d[4 * j + e] : d[4 * j + e];
    }
}

// All units of this block, as one of the warps that multiply.
template <int N>
static __device__ __forceinline__ void few_units(const struct linear_few &c, few_place &at) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const int warp = threadIdx.x / 32;
#pragma unroll 1
    for (int unit = blockIdx.x; unit < c.units; unit += gridDim.x) {
        few_unit u = few_unit_of(c, unit, warp);
        const bool group = few_unit_of(c, unit, N == 8 ? warp : warp / 4 * 4).active;
        float d[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            d[i] = 0;
        switch (u.form) {
#define X(name, span, chunk)                                                                       \
    case WEIGHT_##name:                                                                            \
        if constexpr (WEIGHT_##name != WEIGHT_RAW)                                                 \
            few_products<WEIGHT_##name, N>(c, u, group, at, d);                                    \
        break;
            WEIGHT_FORMS_LIST(X)
#undef X
        }
        u = few_unit_of(c, few_again(unit), warp); // not kept during the products
        if (u.job->parts == 1)
            few_finish<N>(c.n, c.unscale, u, warp, (float *)(shared + FEW_JOIN), d);
        else if (u.active)
            few_leave<N>(c.n, u, warp, d);
    }
}
#endif

// Shared memory: barriers, what copies turn to and room for few_join (few_front bytes), rows,
// weights.
template <int N>
static __global__ void __launch_bounds__(few_threads(N), 1)
    linear_few_kernel(const __grid_constant__ struct linear_few c) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    struct few_place at = {(uint32_t)__cvta_generic_to_shared(shared), 0, 0, 0, 0};
    if (warp == few_warps(N)) {
        if (lane == 0)
            asm volatile("prefetch.tensormap [%0];" ::"l"(&c.rows) : "memory");
        if (lane < c.stages) {
            barrier_init(at.base + 8 * lane, 1);
            barrier_init(at.base + 8 * (c.stages + lane), few_warps(N));
        }
    } else if (lane == 0) {
        ((few_stand *)(shared + FEW_STANDS))[warp] = {(int)blockIdx.x, 0, 0, 0, NULL};
        for (int i = 0; i < FEW_SLOTS; i++, at.step())
            barrier_init(at.weights_full(c), 1);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if (warp < few_warps(N)) {
        if constexpr (N == 48)
            asm volatile("setmaxnreg.inc.sync.aligned.u32 88;");
        for (int i = 0; lane == 0 && i < FEW_SLOTS; i++, at.step())
            at.start<N>(c);
        at.phase = 0;
        __syncthreads();
        gpu_await();
        gpu_let_next();
        few_units<N>(c, at);
    } else {
        if constexpr (N == 48)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        __syncthreads();
        gpu_await();
        gpu_let_next();
        if (threadIdx.x == few_warps(N) * 32)
            few_rows<N>(c, {at.base + few_front(N), at.base, c.stages, 0, 0},
                        at.base + 8 * c.stages);
    }
#else
    gpu_await();
    (void)c;
#endif
}

#endif
