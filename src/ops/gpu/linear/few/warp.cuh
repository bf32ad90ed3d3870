// SPDX-License-Identifier: Apache-2.0
// kernel.cuh for 9 to 32 rows by the matrix instruction of a warp (sm_80
// and newer): the same units, rings of weights and fragments, but up to two
// tiles a warp, which share what it loads of the rows: a load of 8 rows by 32
// values of k takes shared memory for four cycles, 24 of them for one tile and
// 24 rows as long as memory takes to bring it. As many warps as find registers,
// since each waits for its own loads; where a unit has more tiles than warps,
// the first ones have two. One more warp brings the rows, a stage of FEW_WARP_K
// values of k at a time. Nothing but mbarriers ties warps together.
//
// The chain of matrix instructions of an element is that of ops/gpu/linear/many/tiles.cuh, and
// so are its bits.
#ifndef COPPICE_OPS_GPU_LINEAR_FEW_WARP_CUH
#define COPPICE_OPS_GPU_LINEAR_FEW_WARP_CUH

#include "ops/gpu/linear/few/kernel.cuh"

#if __CUDA_ARCH__ >= 800
enum { FEW_MOST = 2 }; // tiles of a warp

// Where a warp's scales are, and its ring of weights, from the beginning of
// shared memory.
static __device__ __forceinline__ uint32_t few_warp_area(const struct linear_few &c, int warp) {
    return FEW_WARP_FRONT + c.row_bytes + warp * FEW_WARP_AREA;
}
static __device__ __forceinline__ uint32_t few_warp_ring(const struct linear_few &c, int warp,
                                                         int warps) {
    const int first = warp + (warp < c.twice ? warp : c.twice);
    return few_warp_area(c, warps) + first * FEW_SLOTS * c.slot;
}

// Where in a piece 8 values of k of a row lie, `at` of four: those of all rows
// have different banks.
static __device__ __forceinline__ int few_warp_eight(int row, int at) {
    return row * 64 + (at + row / 2) % 4 * 16;
}

// A warp's place in its ring of two stages of weights, and in the ring of rows.
template <int N> struct few_warp_place {
    uint32_t base;      // of shared memory
    uint32_t own, both; // the stage of weights that is read next; the sum of the
                        // two; from base
    int row;            // that is read next
    uint32_t row_phase;
    few_copies<FEW_MOST> copies;

    // The next stage of weights, from base, when all of it is there; starts the
    // copy of another one to where the stage before it was.
    template <int FORM, int TILES>
    __device__ __forceinline__ uint32_t next(const struct linear_few &c) {
        const uint32_t now = own;
        copies_wait<false, 0>();
        __syncwarp();
        if (copies.to)
            copies.template start<N, FORM, TILES>(c);
        copies.to = base + now + threadIdx.x % WARP * 16;
        own = both - now;
        return now;
    }
    __device__ __forceinline__ uint32_t row_bar(void) const {
        return base + 8 * row;
    }
    // Leaves a stage of rows.
    __device__ __forceinline__ void step_row(const struct linear_few &c) {
        __syncwarp();
        if (threadIdx.x % WARP == 0)
            barrier_arrive(row_bar() + 8 * c.stages);
        if (++row == c.stages) {
            row = 0;
            row_phase ^= 1;
        }
    }
};

// d += the products of FEW_PANEL values of k from `at` of a stage of weights
// on, of the warp's tiles with all rows. s[0].rows: of this lane, where the
// stage of weights begins.
template <int FORM, int N, int TILES>
static __device__ __forceinline__ void few_warp_panel(float (&d)[FEW_MOST][N / 2],
                                                      few_dequant<FORM> (&q)[TILES],
                                                      const few_stage_at (&s)[TILES], int at) {
    enum { GROUPS = N / 8, TERMS = dequant<FORM>::TERMS };
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t b[GROUPS][4];
#pragma unroll
        for (int j = 0; j < GROUPS; j++)
            load_four(b[j], s[0].rows + ((at / 32 + i) * GROUPS + j) * FEW_WARP_PIECE);
#pragma unroll
        for (int h = 0; h < 2 * TILES; h++) {
            uint32_t f[TERMS][4];
            few_fragment<FORM>(q[h % TILES], s[h % TILES], at + i * 32 + h / TILES * 16, f);
#pragma unroll
            for (int j = 0; j < GROUPS * TERMS; j++) {
                const uint32_t *v = b[j / TERMS] + h / TILES * 2;
                multiply<false>(d[h % TILES] + j / TERMS * 4, f[j % TERMS], v[0], v[1]);
            }
        }
    }
}

// d = the products of one unit whose weights have this form. rows: of this
// lane, of the first stage.
template <int FORM, int N, int TILES>
static __device__ __forceinline__ void
few_warp_products(const struct linear_few &c, const few_unit &u, uint32_t rows,
                  few_warp_place<N> &at, float (&d)[FEW_MOST][N / 2]) {
    extern __shared__ __align__(1024) unsigned char shared[];
    enum {
        STEP = few_step(FORM, N),
        BYTES = STEP / dequant<FORM>::SPAN * dequant<FORM>::CHUNK,
        STAGE = few_warp_stage(N),
        UNROLL = 4, // sections, all there are
    };
    few_stage_at s[TILES];
#pragma unroll
    for (int t = 0; t < TILES; t++)
        s[t].scales = shared + few_warp_area(c, threadIdx.x / WARP) + t * FEW_SCALES;
#pragma unroll 1
    for (int k0 = u.begin; k0 < u.end; k0 += FEW_WARP_K) {
        barrier_wait(at.row_bar(), at.row_phase);
#pragma unroll 1
        for (int h = 0; u.active && h < FEW_WARP_K && k0 + h < u.end; h += STEP) {
            const uint32_t weights = at.template next<FORM, TILES>(c);
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                s[t].weights = shared + weights + t * BYTES;
                s[t].rows = rows + at.row * STAGE + h / 32 * (N / 8 * FEW_WARP_PIECE);
            }
            few_dequant<FORM> q[TILES];
#pragma unroll UNROLL
            for (int k = 0; k < STEP && (dequant<FORM>::SPAN == 256 || k0 + h + k < u.end);
                 k += FEW_PANEL)
                few_warp_panel<FORM, N, TILES>(d, q, s, k);
        }
        at.step_row(c);
    }
}

// A pair's two tiles in one warp: outputs into the first.
template <int COUNT>
static __device__ __forceinline__ void few_warp_both(float (&d)[COUNT], const float (&up)[COUNT]) {
    enum { EACH = 4 }; // values at once
    static_assert(COUNT % EACH == 0, "fours");
#pragma unroll
    for (int i0 = 0; i0 < COUNT; i0 += EACH) {
        float gate[EACH] = {d[i0], d[i0 + 1], d[i0 + 2], d[i0 + 3]};
        silu_all(gate);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            d[i0 + i] = gate[i] * up[i0 + i];
    }
}

// What becomes of the sums of a warp's one tile of a unit, or of its two.
template <int N>
static __device__ __forceinline__ void few_warp_one(const struct linear_few &c, int unit, int first,
                                                    float (&d)[N / 2]) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const int warp = threadIdx.x / WARP;
    const few_unit u = few_unit_of(c, unit, first);
    if (!u.active)
        return;
    if (u.job->parts > 1) {
        few_leave<N>(c.n, u, first, d);
        return;
    }
    few_scale<N>(c, u, d);
    if (u.job->pair)
        few_join<N, 2>(warp, (float4 *)(shared + few_warp_area(c, warp)),
                       (float4 *)(shared + few_warp_area(c, warp ^ 1)), d);
    few_store<N>(c, u, warp, d);
}

template <int N>
static __device__ __forceinline__ void few_warp_two(const struct linear_few &c, int unit, int first,
                                                    float (&d)[FEW_MOST][N / 2]) {
    const few_unit u = few_unit_of(c, unit, first), v = few_unit_of(c, unit, first + 1);
    if (u.job->parts > 1) {
        few_leave<N>(c.n, u, first, d[0]);
        few_leave<N>(c.n, v, first + 1, d[1]);
        return;
    }
    few_scale<N>(c, u, d[0]);
    few_scale<N>(c, v, d[1]);
    if (u.job->pair)
        few_warp_both(d[0], d[1]);
    else
        few_store<N>(c, v, -1, d[1]);
    few_store<N>(c, u, -1, d[0]);
}

template <int N, int TILES>
static __device__ __forceinline__ void few_warp_form(const struct linear_few &c, const few_unit &u,
                                                     uint32_t rows, few_warp_place<N> &at,
                                                     float (&d)[FEW_MOST][N / 2]) {
    switch (u.form) {
#define X(name, span, chunk)                                                                       \
    case WEIGHT_##name:                                                                            \
        few_warp_products<WEIGHT_##name, N, TILES>(c, u, rows, at, d);                             \
        break;
        WEIGHT_FORMS_LIST(X)
#undef X
    }
}

// All units of this block, as one of the warps that multiply.
template <int N>
static __device__ __forceinline__ void few_warp_units(const struct linear_few &c,
                                                      few_warp_place<N> &at) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t rows = at.base + FEW_WARP_FRONT + few_warp_eight(lane % 8, lane / 8);
#pragma unroll 1
    for (int unit = blockIdx.x; unit < c.units; unit += gridDim.x) {
        const few_share share = few_share_of(c, few_unit_of(c, unit, 0), warp);
        const few_unit u = few_unit_of(c, unit, share.first);
        float d[FEW_MOST][N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            d[0][i] = d[1][i] = 0;
        // Where a warp's tiles are is not kept during the products.
        if (share.two) {
            few_warp_form<N, 2>(c, u, rows, at, d);
            few_warp_two<N>(c, made_again(unit), warp * 2, d);
        } else {
            few_warp_form<N, 1>(c, u, rows, at, d);
            const int twice = made_again(c.twice);
            few_warp_one<N>(c, made_again(unit), warp + (warp < twice ? warp : twice), d[0]);
        }
    }
}

// The next stage of rows of this block's units; false if there is none.
struct few_rows_at {
    int unit, k, end;

    __device__ __forceinline__ bool next(const struct linear_few &c) {
        k += FEW_WARP_K;
        if (k < end)
            return true;
        if (unit >= c.units)
            return false;
        const few_unit u = few_unit_of(c, unit, 0);
        k = u.begin;
        end = u.end;
        unit += (int)gridDim.x;
        return true;
    }
};

// A macro: as a function it has the compiler give all of the kernel other
// registers.
#define FEW_COPY_IF(there, to, from)                                                               \
    if (there)                                                                                     \
    copy_piece(to, from)

// Brings the rows of all units of this block. One warp.
template <int N>
static __device__ __forceinline__ void few_warp_bring(const struct linear_few &c, uint32_t base) {
    const int lane = threadIdx.x % WARP, row = lane / 4;
    const uint32_t to = base + FEW_WARP_FRONT + few_warp_eight(row, lane % 4);
    const __half *x = c.x + row * c.stride + lane % 4 * 8;
    few_rows_at at = {(int)blockIdx.x, 0, 0};
    int slot = 0;
    uint32_t phase = 1;
    while (at.next(c)) {
        barrier_wait(base + 8 * (c.stages + slot), phase);
#pragma unroll
        for (int i = 0; i < FEW_WARP_K / 32; i++)
#pragma unroll
            for (int j = 0; j < N / 8; j++)
                FEW_COPY_IF(at.k + i / 2 * 64 < at.end && row + 8 * j < c.n,
                            to + slot * few_warp_stage(N) + (i * (N / 8) + j) * FEW_WARP_PIECE,
                            (const unsigned char *)(x + at.k + i * 32 + 8 * j * c.stride));
        barrier_follow(base + 8 * slot);
        if (++slot == c.stages) {
            slot = 0;
            phase ^= 1;
        }
    }
    copies_wait<false, 0>();
}
#undef FEW_COPY_IF

// What a block does. Shared memory: FEW_WARP_FRONT bytes, rows, what each warp
// has.
template <int N> static __device__ __forceinline__ void few_warp_block(const struct linear_few &c) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int warps = blockDim.x / WARP - 1;
    few_warp_place<N> at = {shared_address(shared), 0, 0, 0, 0, {}};
    if (threadIdx.x == 0)
        for (int i = 0; i < c.stages; i++) {
            barrier_init(at.base + 8 * i, 32);
            barrier_init(at.base + 8 * (c.stages + i), warps);
        }
    if (warp < warps) {
        const int stage = warp < c.twice ? 2 * c.slot : c.slot;
        at.own = few_warp_ring(c, warp, warps);
        at.both = 2 * at.own + stage;
        if (lane == 0)
            ((few_stand<2> *)(shared + FEW_STANDS))[warp] = {{}, (int)blockIdx.x, 0, 0, 0, 0};
        __syncwarp();
        for (int i = 0; i < c.ahead; i++) {
            at.copies.to = at.base + at.own + i * stage + lane * 16;
            at.copies.template start_odd<N>(c);
            copies_end<false>();
            __syncwarp(); // all lanes have read what the next turn may write
                          // (few_find)
        }
        at.copies.to = c.ahead == FEW_SLOTS ? 0 : at.base + at.own + stage + lane * 16;
    }
    __syncthreads();
    gpu_await();
    gpu_let_next();
    if (warp < warps)
        few_warp_units<N>(c, at);
    else
        few_warp_bring<N>(c, at.base);
}
#endif

template <int N>
static __global__ void __launch_bounds__(FEW_WARP_THREADS, 1)
    linear_few_warp_kernel(const __grid_constant__ struct linear_few c) {
#if __CUDA_ARCH__ >= 800
    few_warp_block<N>(c);
#else
    gpu_await();
    (void)c;
#endif
}

#endif
