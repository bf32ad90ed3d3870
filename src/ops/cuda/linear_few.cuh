// SPDX-License-Identifier: Apache-2.0
// Linear layers of up to 64 rows on sm_90a. All rows are the N columns of one warpgroup matrix
// instruction, which sums at twice the rate of mma.sync and needs no fragments of activations. A
// block stays for the whole launch and walks its units (some tiles of 16 outputs, one part of k);
// each warp has one tile of a unit. It keeps a ring of stages of its own weights in shared memory,
// which bulk copies refill as soon as a stage has been read, over the ends of units; it turns 64 or
// 128 of k into fp16 fragments in registers, multiplies, and waits for that. Two more warps bring
// the activations, which all share, into a ring of their own, in the 128-byte swizzle that the
// instruction reads, and a third passes on that they are there.
//
// In a pair the even warps have tiles of the first matrix and the odd ones those of the second.
// The chain of matrix instructions of an element is that of linear_mma.cuh, and so are its bits.
// Sums of a job that is cut into parts are left in memory for linear_finish.cu.
#ifndef COPPICE_OPS_CUDA_LINEAR_FEW_CUH
#define COPPICE_OPS_CUDA_LINEAR_FEW_CUH

#include "ops/cuda/barrier.cuh"
#include "ops/cuda/linear_mma.cuh"
#include "ops/cuda/wgmma.cuh"

enum { FEW_WARPS = 20, FEW_THREADS = FEW_WARPS * 32 + 128, FEW_STEP = 64 };

template <int FORM, int N> struct few_shape {
    enum {
        SPAN = dequant<FORM>::SPAN,
        // k of a stage of weights, and of one of activations
        WEIGHTS_K = SPAN == 256                                   ? 256
                    : FORM == WEIGHT_HALF || FORM == WEIGHT_FLOAT ? 64
                                                                  : 128,
        ROWS_K = N > 32 && WEIGHTS_K > 128 ? 128 : WEIGHTS_K,
        SLOT = WEIGHTS_K / SPAN * dequant<FORM>::CHUNK, // bytes of a warp's stage
        PANEL = N * FEW_STEP * 2,
        STAGE = ROWS_K / FEW_STEP * PANEL,
        SECTIONS = SPAN == 256 && N <= 32 ? 2 : 1, // of 64 values of k between waits
        EXCHANGE = FEW_WARPS / 2 * 512,            // bytes: 8 columns of each pair's second tile
    };
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// A unit of work as one warp sees it.
struct few_unit {
    const struct linear_one *job;
    const struct matrix_view *w;
    int64_t tile;
    int part;
    int begin, end; // of k
    bool active;    // there is such a tile
};

static __device__ __forceinline__ few_unit few_unit_of(const struct linear_launch &l, int unit,
                                                       int warp) {
    few_unit u;
    int j = 0;
    while (j + 1 < l.jobs && unit >= (int)l.job[j + 1].first)
        j++;
    u.job = &l.job[j];
    unit -= (int)u.job->first;
    int group = unit / u.job->parts, k = (int)u.job->w[0].k;
    u.part = unit - group * u.job->parts;
    u.begin = (int)linear_part_begin(k, u.job->parts, u.part);
    u.end = (int)linear_part_begin(k, u.job->parts, u.part + 1);
    u.end = u.end < k ? u.end : k;
    u.w = &u.job->w[u.job->pair ? warp % 2 : 0];
    u.tile = u.job->pair ? group * (l.tiles / 2) + warp / 2 : group * l.tiles + warp;
    u.active = warp < l.tiles && u.tile < u.w->tiles;
    return u;
}

// What a warp's copies do next: they run ahead of its products, over the ends of units.
template <int FORM, int N> struct few_weights {
    using S = few_shape<FORM, N>;
    const unsigned char *from;
    int unit, left; // values of k of this unit

    // Finds the next unit, from `next` on, of which this warp has a tile.
    __device__ __forceinline__ void open(const struct linear_launch &l, int next, int warp) {
        left = 0;
        for (unit = next; unit < l.units; unit += (int)gridDim.x) {
            few_unit u = few_unit_of(l, unit, warp);
            if (!u.active)
                continue;
            left = u.end - u.begin;
            from = u.w->data + u.tile * u.w->pitch + u.begin / S::SPAN * dequant<FORM>::CHUNK;
            return;
        }
    }

    // Starts the copy of one stage, if there is one.
    __device__ __forceinline__ void start(const struct linear_launch &l, const stream_ring &r,
                                          int slot, int warp) {
        if (left <= 0 && unit < l.units)
            open(l, unit + (int)gridDim.x, warp);
        if (left <= 0)
            return;
        int k = left < S::WEIGHTS_K ? (left + 63) / 64 * 64 : S::WEIGHTS_K;
        int bytes = k / S::SPAN * dequant<FORM>::CHUNK;
        if (threadIdx.x % 32 == 0) {
            barrier_expect(r.bar + slot * 8, bytes);
            copy_bulk(r.at + slot * S::SLOT, from, bytes, r.bar + slot * 8);
        }
        from += bytes;
        left -= S::WEIGHTS_K;
    }
};

// Starts the copies of one stage of activations: `panels` times 64 values of each row.
template <int N>
static __device__ __forceinline__ void few_copy_rows(uint32_t to, const __half *x, int64_t stride,
                                                     int rows, int panels) {
    const int first = threadIdx.x % 64 / 8, piece = threadIdx.x % 8;
    const unsigned char *from = (const unsigned char *)(x + first * stride + piece * 8);
    to += first * 128 + ((piece ^ first) * 16);
    for (int p = 0; p < panels; p++, to += N * FEW_STEP * 2, from += FEW_STEP * 2) {
#pragma unroll
        for (int i = 0; i < N / 8; i++)
            if (first + 8 * i < rows)
                copy_piece(to + i * 1024, from + i * 16 * stride);
    }
}

// Waits for a stage that the copying threads have filled, then lets wgmma read it, which does so
// through another proxy.
static __device__ __forceinline__ void few_pass_on(uint32_t landed, uint32_t parity,
                                                   uint32_t full) {
    barrier_wait(landed, parity);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    if (threadIdx.x % 32 == 0)
        barrier_arrive(full);
}

// The two warps that bring activations: all units of this block, a stage as soon as all have left
// it; and the third one (role 2), which passes stages on.
template <int FORM, int N>
static __device__ __forceinline__ void few_rows(const struct linear_launch &l, stream_ring r,
                                                uint32_t empty, uint32_t landed, int role) {
    using S = few_shape<FORM, N>;
    for (int unit = blockIdx.x; unit < l.units; unit += gridDim.x) {
        few_unit u = few_unit_of(l, unit, 0);
        for (int k0 = u.begin; k0 < u.end; k0 += S::ROWS_K, r.step()) {
            int left = (u.end - k0 + FEW_STEP - 1) / FEW_STEP;
            if (role == 2) {
                few_pass_on(landed + r.slot * 8, r.phase, r.bar + r.slot * 8);
                continue;
            }
            barrier_wait(empty + r.slot * 8, r.phase ^ 1);
            few_copy_rows<N>(r.at + r.slot * S::STAGE, l.x + k0, l.stride, (int)l.n,
                             left < S::ROWS_K / FEW_STEP ? left : S::ROWS_K / FEW_STEP);
            barrier_follow(landed + r.slot * 8);
        }
    }
}

// Leaves this warp's sums in memory, by rows (linear_left).
template <int N>
static __device__ __forceinline__ void few_leave(const struct linear_launch &l, const few_unit &u,
                                                 int warp, const float (&d)[N / 2]) {
    const struct linear_one *o = u.job;
    int lane = threadIdx.x % 32, n0 = lane % 4 * 2, left = (int)l.n - n0;
    int matrix = o->pair ? 2 * u.part + warp % 2 : u.part;
    const int64_t pitch = o->w[0].tiles * TILE_ROWS;
    float *at = o->partial + (matrix * l.n + n0) * pitch + u.tile * TILE_ROWS + lane / 4;
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        if (i / 4 * 8 + i % 2 < left)
            __stcg(at + (i / 4 * 8 + i % 2) * pitch + i / 2 % 2 * 8, d[i]);
}

// Joins the tiles of a pair: the odd warp hands over its values, 8 columns at a time.
template <int N>
static __device__ __forceinline__ void few_join(int warp, float *exchange, float (&d)[N / 2]) {
    float4 *at = (float4 *)exchange + warp / 2 * 32 + threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < N / 8; i++) {
        if (warp % 2)
            *at = make_float4(d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]);
        asm volatile("bar.sync %0, 128;" ::"r"(1 + warp / 4) : "memory");
        if (warp % 2 == 0) {
            float4 up = *at;
            float v[4] = {up.x, up.y, up.z, up.w};
            for (int e = 0; e < 4; e++) {
                float g = d[4 * i + e];
                d[4 * i + e] = g / (1.0f + expf(-g)) * v[e];
            }
        }
        asm volatile("bar.sync %0, 128;" ::"r"(1 + warp / 4) : "memory");
    }
}

// The outputs: powers of two taken back, then joined, stored or added.
template <int N>
static __device__ __forceinline__ void few_finish(const struct linear_launch &l, const few_unit &u,
                                                  int warp, float *exchange, float (&d)[N / 2]) {
    const struct linear_one *o = u.job;
    int lane = threadIdx.x % 32, n0 = lane % 4 * 2;
    float power[2];
    for (int h = 0; h < 2; h++) {
        int64_t m = u.tile * TILE_ROWS + lane / 4 + h * 8;
        power[h] = u.active && m < u.w->m ? __int_as_float((127 - u.w->exponent[m]) << 23) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        int n = n0 + i / 4 * 8 + i % 2;
        d[i] = d[i] * power[i / 2 % 2] * (n < l.n ? __ldcg(l.unscale + n) : 0.0f);
    }
    if (o->pair)
        few_join<N>(warp, exchange, d);
    if (!u.active || (o->pair && warp % 2))
        return;
    float *out = o->out + n0 * o->out_stride + u.tile * TILE_ROWS + lane / 4;
    int64_t room = u.w->m - (u.tile * TILE_ROWS + lane / 4);
    int left = (int)l.n - n0;
#pragma unroll
    for (int j = 0; j < N / 8; j++, out += 8 * o->out_stride, left -= 8) {
        float old[4];
#pragma unroll
        for (int e = 0; e < 4; e++)
            old[e] = o->add && e % 2 < left && e / 2 * 8 < room
                         ? out[e % 2 * o->out_stride + e / 2 * 8]
                         : 0.0f;
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (e % 2 < left && e / 2 * 8 < room)
                out[e % 2 * o->out_stride + e / 2 * 8] =
                    o->add ? old[e] + d[4 * j + e] : d[4 * j + e];
    }
}

// Hides from the compiler where a value comes from, so that it is kept and not made again.
static __device__ __forceinline__ uint32_t few_kept(uint32_t v) {
    asm volatile("" : "+r"(v));
    return v;
}

// The fragments of 64 values of k; `own` points at this stage's weights.
template <int FORM>
static __device__ __forceinline__ void few_fragments(dequant<FORM> &q, const unsigned char *own,
                                                     int k0, int at,
                                                     uint32_t (*f)[dequant<FORM>::TERMS][4]) {
    const int span = dequant<FORM>::SPAN, lane = threadIdx.x % 32;
    const unsigned char *chunk = own + at / span * dequant<FORM>::CHUNK;
    if (at % span == 0)
        q.open(chunk, k0 + at, lane);
    q.section(chunk, at % span / FEW_STEP, lane);
#pragma unroll
    for (int i = 0; i < 4; i++)
        q.step(i, f[i]);
}

// d += f b over SECTIONS times 64 values of k; b: shared address of the activations.
template <int N, int SECTIONS, int TERMS>
static __device__ __forceinline__ void
few_multiply(float (&d)[N / 2], uint32_t (&f)[4 * SECTIONS][TERMS][4], uint32_t b) {
    const int panel = N * FEW_STEP * 2 / 16;
    b = wgmma_rows_low(b);
#pragma unroll
    for (int i = 0; i < 4 * SECTIONS * TERMS; i++)
        wgmma_keep(f[i / TERMS][i % TERMS]);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4 * SECTIONS; i++)
#pragma unroll
        for (int t = 0; t < TERMS; t++)
            wgmma_step<N>(d, f[i][t], wgmma_rows_at(b + i / 4 * panel + i % 4 * 2));
    wgmma_commit();
    wgmma_wait<0>();
}

// One stage of a warp's weights: values k0 .. end of k at most.
struct few_piece {
    const unsigned char *own;
    bool active; // there are any
    int k0, end;
};

// Adds the products of a stage of weights.
template <int FORM, int N>
static __device__ __forceinline__ void few_stage(float (&d)[N / 2], dequant<FORM> &q,
                                                 const few_piece &p, stream_ring &rows,
                                                 uint32_t empty) {
    using S = few_shape<FORM, N>;
    enum { TERMS = dequant<FORM>::TERMS, SECTIONS = S::SECTIONS };
#pragma unroll(S::WEIGHTS_K == 256 ? 4 : 1)
    for (int at = 0; at < S::WEIGHTS_K; at += SECTIONS * FEW_STEP) {
        if (S::SPAN < S::WEIGHTS_K && p.k0 + at >= p.end)
            break;
        uint32_t f[4 * SECTIONS][TERMS][4]; // of an idle warp: anything
        if (p.active)
#pragma unroll
            for (int s = 0; s < SECTIONS; s++)
                few_fragments<FORM>(q, p.own, p.k0, at + s * FEW_STEP, f + 4 * s);
        if (at % S::ROWS_K == 0)
            barrier_wait(rows.bar + rows.slot * 8, rows.phase);
        __syncwarp();
        uint32_t b = rows.at + rows.slot * S::STAGE + at % S::ROWS_K / FEW_STEP * S::PANEL;
        few_multiply<N, SECTIONS, TERMS>(d, f, b);
        if ((at + SECTIONS * FEW_STEP) % S::ROWS_K == 0 ||
            (S::SPAN < S::ROWS_K && p.k0 + at + FEW_STEP >= p.end)) {
            __syncwarp();
            if (threadIdx.x % 32 == 0)
                barrier_arrive(empty + rows.slot * 8);
            rows.step();
        }
    }
}

template <int FORM, int N>
static __device__ __forceinline__ void
few_products(const struct linear_launch &l, unsigned char *shared, stream_ring weights,
             stream_ring rows, uint32_t empty, few_weights<FORM, N> &next) {
    using S = few_shape<FORM, N>;
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(shared);
    const int warp = threadIdx.x / 32;
    dequant<FORM> q;
    for (int unit = blockIdx.x; unit < l.units; unit += gridDim.x) {
        few_unit u = few_unit_of(l, unit, warp);
        float d[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            d[i] = 0;
        for (int k0 = u.begin; k0 < u.end; k0 += S::WEIGHTS_K) {
            if (u.active)
                barrier_wait(weights.bar + weights.slot * 8, weights.phase);
            uint32_t own = few_kept(weights.at - base + weights.slot * S::SLOT);
            few_stage<FORM, N>(d, q, {shared + own, u.active, k0, u.end}, rows, empty);
            if (u.active) {
                __syncwarp();
                next.start(l, weights, weights.slot, warp);
                weights.step();
            }
        }
        if (u.job->parts == 1)
            few_finish<N>(l, u, warp, (float *)(shared + l.barriers - S::EXCHANGE), d);
        else if (u.active)
            few_leave<N>(l, u, warp, d);
    }
}
#endif

// Shared memory: barriers and room for few_join (l.barriers bytes), activations, weights. The last
// warpgroup gives registers to the others.
template <int FORM, int N>
static __global__ void __launch_bounds__(FEW_THREADS, 1)
    linear_few(const __grid_constant__ struct linear_launch l) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using S = few_shape<FORM, N>;
    extern __shared__ __align__(1024) unsigned char shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32 - 4;
    uint32_t base = (uint32_t)__cvta_generic_to_shared(shared), empty = base + 8 * l.stages;
    uint32_t landed = empty + 8 * l.stages;
    stream_ring rows = {base + l.barriers, base, l.stages, 0, 0};
    stream_ring weights = {rows.at + l.stages * S::STAGE + warp * l.slots * S::SLOT,
                           base + 8 * (3 * l.stages + warp * l.slots), l.slots, 0, 0};
    if (warp == warps && lane < l.stages) {
        barrier_init(rows.bar + lane * 8, 1);
        barrier_init(empty + lane * 8, warps);
        barrier_init(landed + lane * 8, 64);
    }
    if (warp < warps && lane < l.slots)
        barrier_init(weights.bar + lane * 8, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if (warp < warps) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 88;");
        few_weights<FORM, N> next;
        next.open(l, blockIdx.x, warp);
        for (int s = 0; s < l.slots; s++)
            next.start(l, weights, s, warp);
        __syncthreads();
        if (!l.beside)
            gpu_await();
        if (l.lets)
            gpu_let_next();
        few_products<FORM, N>(l, shared, weights, rows, empty, next);
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        __syncthreads();
        if (!l.beside)
            gpu_await();
        if (warp < warps + 3)
            few_rows<FORM, N>(l, rows, empty, landed, warp - warps);
    }
    if (l.beside)
        gpu_await();
#else
    gpu_await();
    (void)l;
#endif
}

template <int FORM, int N> static struct linear_stream_variant few_variant(void) {
    using S = few_shape<FORM, N>;
    return {linear_few<FORM, N>, N / 8, FEW_WARPS, S::SLOT, S::STAGE};
}

#endif
