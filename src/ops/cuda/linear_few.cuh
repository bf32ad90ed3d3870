// SPDX-License-Identifier: Apache-2.0
// Linear layers of up to 64 rows on sm_90a, where reading the weights is all the work. All rows are
// the N columns of one warpgroup matrix instruction, so their number costs the warps nothing but
// the sums. A block stays for the whole launch and walks its units (some tiles of 16 outputs, one
// part of k); each warp has one tile of a unit. It keeps a ring of stages of its own weights in
// shared memory, which bulk copies refill as soon as a stage has been read, over the ends of units;
// it turns 64 of k at a time into fp16 fragments in registers and multiplies. While one warpgroup
// multiplies, the others do everything else. One more warp brings the activations, which all
// share, into a ring of their own, in the 128-byte swizzle that the instruction reads.
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
        WEIGHTS_K = FORM == WEIGHT_FLOAT  ? 64
                    : FORM == WEIGHT_HALF ? 128
                                          : 256,
        ROWS_K = N > 32 && WEIGHTS_K > 128 ? 128 : WEIGHTS_K,
        SLOT = WEIGHTS_K / SPAN * dequant<FORM>::CHUNK, // bytes of a warp's stage
        PANEL = N * FEW_STEP * 2,
        STAGE = ROWS_K / FEW_STEP * PANEL,
        STEPS = N > (SPAN == 64 ? 24 : 32) ? 2 : 4, // of 16 of k between waits
        GROUPS = WEIGHTS_K / (16 * STEPS),
        AHEAD = GROUPS > 1 && dequant<FORM>::TERMS ==
                                  1,    // fragments are made while those before them are multiplied
        EXCHANGE = FEW_WARPS / 2 * 512, // bytes: 8 columns of each pair's second tile
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

// jobs: of one launch or phase, whose units have up to `tiles` tiles.
static __device__ __forceinline__ few_unit few_unit_of(const struct linear_one *jobs, int n_jobs,
                                                       int tiles, int unit, int warp) {
    few_unit u;
    int j = 0;
    while (j + 1 < n_jobs && unit >= (int)jobs[j + 1].first)
        j++;
    u.job = &jobs[j];
    unit -= (int)u.job->first;
    int group = unit / u.job->parts, k = (int)u.job->w[0].k;
    u.part = unit - group * u.job->parts;
    u.begin = (int)linear_part_begin(k, u.job->parts, u.part);
    u.end = (int)linear_part_begin(k, u.job->parts, u.part + 1);
    u.end = u.end < k ? u.end : k;
    u.w = &u.job->w[u.job->pair ? warp % 2 : 0];
    u.tile = u.job->pair ? group * (tiles / 2) + warp / 2 : group * tiles + warp;
    u.active = warp < tiles && u.tile < u.w->tiles;
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
            few_unit u = few_unit_of(l.job, l.jobs, l.tiles, unit, warp);
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
// it. Another one passes on that a stage is there: wgmma reads it through another proxy.
template <int FORM, int N>
static __device__ __forceinline__ void few_rows(const struct linear_launch &l, stream_ring r,
                                                uint32_t empty, uint32_t landed, int role) {
    using S = few_shape<FORM, N>;
    for (int unit = blockIdx.x; unit < l.units; unit += gridDim.x) {
        few_unit u = few_unit_of(l.job, l.jobs, l.tiles, unit, 0);
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
    int lane = threadIdx.x % 32, n0 = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        int n = n0 + i / 4 * 8 + i % 2;
        d[i] = d[i] * (i / 2 % 2 ? power.y : power.x) * (n < rows ? __ldcg(unscale + n) : 0.0f);
    }
    if (o->pair)
        few_join<N>(warp, exchange, d);
    if (!u.active || (o->pair && warp % 2))
        return;
    float *out = o->out + n0 * o->out_stride + u.tile * TILE_ROWS + lane / 4;
    int64_t room = u.w->m - (u.tile * TILE_ROWS + lane / 4);
    int left = (int)rows - n0;
#pragma unroll
    for (int j = 0; j < N / 8; j++, out += 8 * o->out_stride, left -= 8) {
        float old[4];
#pragma unroll
        for (int e = 0; e < 4; e++)
            old[e] = o->add && e % 2 < left && e / 2 * 8 < room
                         ? __ldcg(out + e % 2 * o->out_stride + e / 2 * 8)
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

// The fragments of STEPS times 16 values of k; `own` points at this stage's weights.
template <int FORM, int STEPS>
static __device__ __forceinline__ void
few_fragments(dequant<FORM> &q, const unsigned char *own, int k0, int at,
              uint32_t (&f)[STEPS][dequant<FORM>::TERMS][4]) {
    const int span = dequant<FORM>::SPAN, lane = threadIdx.x % 32;
    const unsigned char *chunk = own + at / span * dequant<FORM>::CHUNK;
    if (at % span == 0)
        q.open(chunk, k0 + at, lane);
    if (at % FEW_STEP == 0)
        q.section(chunk, at % span / FEW_STEP, lane);
#pragma unroll
    for (int i = 0; i < STEPS; i++)
        q.step(at % FEW_STEP / 16 + i, f[i]);
}

// d += f b over STEPS times 16 values of k; b: low word of what describes the
// activations. Not waited for.
template <int N, int STEPS, int TERMS>
static __device__ __forceinline__ void few_multiply(float (&d)[N / 2],
                                                    uint32_t (&f)[STEPS][TERMS][4], uint32_t b) {
#pragma unroll
    for (int i = 0; i < STEPS * TERMS; i++)
        wgmma_keep(f[i / TERMS][i % TERMS]);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < STEPS * TERMS; i++)
        wgmma_step<N>(d, f[i / TERMS][i % TERMS], wgmma_rows_at(b + i / TERMS * 2));
    wgmma_commit();
}

// The same over SECTIONS times 64 values of k; rows: shared address of the activations' panels.
template <int N, int SECTIONS>
static __device__ __forceinline__ void
few_multiply_panels(float (&d)[N / 2], uint32_t (&f)[4 * SECTIONS][1][4], uint32_t rows) {
    const uint32_t b = wgmma_rows_low(rows);
#pragma unroll
    for (int i = 0; i < 4 * SECTIONS; i++)
        wgmma_keep(f[i][0]);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4 * SECTIONS; i++)
        wgmma_step<N>(d, f[i][0], wgmma_rows_at(b + i / 4 * (N * FEW_STEP * 2 / 16) + i % 4 * 2));
    wgmma_commit();
}

// Says behind the wait for them that two fragments were needed until there: by a store that is
// never done, since `units` is not negative (wgmma.cuh, wgmma_keep).
static __device__ __forceinline__ void few_needed(const uint32_t (&a)[4], const uint32_t (&b)[4],
                                                  int units, uint32_t at) {
    asm volatile("{ .reg .pred p; setp.lt.s32 p, %8, 0; "
                 "@p st.shared.v4.b32 [%9], {%0, %1, %2, %3}; "
                 "@p st.shared.v4.b32 [%9], {%4, %5, %6, %7}; }" ::"r"(a[0]),
                 "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]),
                 "r"(units), "r"(at)
                 : "memory");
}

template <int FORM, int N> struct few_state {
    using S = few_shape<FORM, N>;
    float d[N / 2];
    uint32_t f[1 + S::AHEAD][S::STEPS][dequant<FORM>::TERMS][4];
    dequant<FORM> q;
};

static __device__ __forceinline__ void few_release(uint32_t empty, int slot) {
    if (threadIdx.x % 32 == 0)
        barrier_arrive(empty + slot * 8);
}

// One stage of a warp's weights: values k0 .. end of k at most.
struct few_piece {
    const unsigned char *own;
    int k0, end;
    bool first; // of a unit
    int units;  // of the launch, never negative
};

// Adds the products of one stage of weights.
template <int FORM, int N>
static __device__ __forceinline__ void few_stage(few_state<FORM, N> &s, const few_piece &p,
                                                 stream_ring &rows, uint32_t empty) {
    using S = few_shape<FORM, N>;
    enum { TERMS = dequant<FORM>::TERMS, EACH = S::ROWS_K / (16 * S::STEPS) };
    uint32_t b = 0;
#pragma unroll
    for (int i = 0; i < S::GROUPS; i++) {
        const int at = i * S::STEPS * 16;
        if (S::SPAN < S::WEIGHTS_K && at % FEW_STEP == 0 && p.k0 + at >= p.end)
            break;
        uint32_t(&f)[S::STEPS][TERMS][4] = s.f[i % (1 + S::AHEAD)]; // of an idle warp: anything
        few_fragments<FORM, S::STEPS>(s.q, p.own, p.k0, at, f);
        const bool next = i % EACH == 0, left = i > 0 || !p.first;
        int before = rows.slot;
        if (next && left)
            rows.step();
        if (next) {
            b = __reduce_max_sync(0xFFFFFFFF, wgmma_rows_low(rows.at + rows.slot * S::STAGE));
            barrier_wait(rows.bar + rows.slot * 8, rows.phase);
            __syncwarp();
        }
        few_multiply<N, S::STEPS, TERMS>(
            s.d, f, b + at % S::ROWS_K / FEW_STEP * (S::PANEL / 16) + at % FEW_STEP / 8);
        wgmma_wait<S::AHEAD>();
#pragma unroll
        for (int j = 0; S::AHEAD && j < S::STEPS * TERMS; j += 2)
            few_needed(s.f[(i + 1) % 2][j / TERMS][j % TERMS],
                       s.f[(i + 1) % 2][(j + 1) / TERMS][(j + 1) % TERMS], p.units, empty);
        if (next && left)
            few_release(empty, before);
    }
}

template <int FORM, int N>
static __device__ __forceinline__ void
few_products(const struct linear_launch &l, unsigned char *shared, stream_ring weights,
             stream_ring rows, uint32_t empty, few_weights<FORM, N> &next) {
    using S = few_shape<FORM, N>;
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(shared);
    const int warp = threadIdx.x / 32;
    few_state<FORM, N> s;
    for (int unit = blockIdx.x; unit < l.units; unit += gridDim.x) {
        few_unit u = few_unit_of(l.job, l.jobs, l.tiles, unit, warp);
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            s.d[i] = 0;
        for (int k0 = u.begin; k0 < u.end; k0 += S::WEIGHTS_K) {
            if (u.active)
                barrier_wait(weights.bar + weights.slot * 8, weights.phase);
            uint32_t own = few_kept(weights.at - base + weights.slot * S::SLOT);
            few_stage<FORM, N>(s, {shared + own, k0, u.end, k0 == u.begin, l.units}, rows, empty);
            if (u.active) {
                __syncwarp();
                next.start(l, weights, weights.slot, warp);
                weights.step();
            }
        }
        wgmma_wait<0>();
        few_release(empty, rows.slot);
        rows.step();
        u = few_unit_of(l.job, l.jobs, l.tiles, (int)few_kept((uint32_t)unit),
                        warp); // not kept during the products
        if (u.job->parts == 1)
            few_finish<N>(l.n, l.unscale, u, warp, (float *)(shared + l.barriers - S::EXCHANGE),
                          s.d);
        else if (u.active)
            few_leave<N>(l.n, u, warp, s.d);
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
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
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
