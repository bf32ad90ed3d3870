// SPDX-License-Identifier: Apache-2.0
// Linear layers of up to 128 rows on sm_90a, and of up to 8 on sm_80 and newer, where reading the
// weights is all the work. All rows are the N columns of one matrix instruction, of a warpgroup or,
// up to 8 rows, of a warp. A block stays for the whole launch and walks its units (some tiles of 16
// outputs of one job, one part of k); each warp has one tile of a unit. It keeps a ring of two
// stages of its own weights in shared memory, which its lanes' copies refill over the ends of
// units; it turns some of k at a time into fp16 fragments in registers and multiplies. A warpgroup
// waits for its products; meanwhile the others do everything else. One thread has the copy engine
// bring the activations, which all share, into a ring of their own, in the 128-byte swizzle that a
// warpgroup's instruction reads; up to 8 rows are loaded as a warp's instruction takes them.
//
// Jobs may have weights of several forms: a unit has one. In a pair the even warps have tiles of
// the first matrix and the odd ones those of the second. The chain of matrix instructions of an
// element is that of ops/gpu/linear/many/tiles.cuh, and so are its bits. Sums of a job that is cut
// into parts are left in memory for ops/gpu/linear/finish.cu.
#ifndef COPPICE_OPS_GPU_LINEAR_FEW_FEW_CUH
#define COPPICE_OPS_GPU_LINEAR_FEW_FEW_CUH

#include "ops/gpu/linear/few/rings.cuh"
#include "ops/gpu/linear/few/scales.cuh"
#include "ops/gpu/linear/form/act.cuh"
#include "ops/gpu/linear/form/activation.cuh"
#include "ops/gpu/linear/form/dequant.cuh"
#include "ops/gpu/linear/many/tiles.cuh"
#include "ops/gpu/matrix/wgmma.cuh"

#if __CUDA_ARCH__ >= 800
// A stage of weights as a warp reads it.
struct few_stage_at {
    const unsigned char *weights;
    unsigned char *scales; // of the warp (scales.cuh)
    uint32_t rows;         // address of what the stage has of the rows
};

// The fragments of 16 values of k, `at` of a stage.
template <int FORM>
static __device__ __forceinline__ void few_fragment(few_dequant<FORM> &q, const few_stage_at &s,
                                                    int at,
                                                    uint32_t (&f)[dequant<FORM>::TERMS][4]) {
    const int lane = threadIdx.x % WARP, span = dequant<FORM>::SPAN;
    const unsigned char *chunk = s.weights + at / span * dequant<FORM>::CHUNK;
    if (at % span == 0)
        q.open(chunk, s.scales, lane);
    if (at % FEW_PANEL == 0)
        q.section(chunk, s.scales, at % span / FEW_PANEL, lane);
    q.step(at % FEW_PANEL / 16, f);
}

// The fragments of STEPS times 16 values of k from `at` of a stage on.
template <int FORM, int STEPS>
static __device__ __forceinline__ void few_make(few_dequant<FORM> &q, const few_stage_at &s, int at,
                                                uint32_t (&f)[STEPS][dequant<FORM>::TERMS][4]) {
    enum { TERMS = dequant<FORM>::TERMS };
#pragma unroll
    for (int i = 0; i < STEPS; i++)
        few_fragment<FORM>(q, s, at + i * 16, f[i]);
#pragma unroll
    for (int i = 0; i < STEPS * TERMS; i++)
        wgmma_keep(f[i / TERMS][i % TERMS]);
}

// Begins d += the products of f with the rows' values from `row_at` of their stage on; s.rows is
// the same in all lanes.
template <int N, int STEPS, int TERMS>
static __device__ __forceinline__ void few_begin(float (&d)[N / 2], const few_stage_at &s,
                                                 int row_at, const uint32_t (&f)[STEPS][TERMS][4]) {
    enum { PANEL = N * FEW_PANEL * 2 / 16 };
    const uint32_t b = wgmma_low(s.rows);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < STEPS * TERMS; i++) {
        const int k = row_at + i / TERMS * 16;
        wgmma_step<N>(d, f[i / TERMS][i % TERMS],
                      wgmma_operand(b + k / FEW_PANEL * PANEL + k % FEW_PANEL / 8));
    }
    wgmma_commit();
}

// d += the products of STEPS times 16 values of k from `at` of a stage on, from `row_at` of its
// rows on.
template <int FORM, int N, int STEPS>
static __device__ __forceinline__ void few_group(float (&d)[N / 2], few_dequant<FORM> &q,
                                                 const few_stage_at &s, int at, int row_at) {
    uint32_t f[STEPS][dequant<FORM>::TERMS][4];
    few_make<FORM, STEPS>(q, s, at, f);
    few_begin<N>(d, s, row_at, f);
    wgmma_wait<0>();
}

// Keeps the registers of f until here (wgmma_hold).
template <int STEPS>
static __device__ __forceinline__ void few_hold(const struct linear_few &c,
                                                const uint32_t (&f)[STEPS][1][4]) {
#pragma unroll
    for (int i = 0; i < STEPS; i++)
        wgmma_hold(c.n, f[i][0]);
}

// The same for 8 rows, by the matrix instruction of one warp: the products of FEW_PANEL values of
// k. s.rows: of this lane.
template <int FORM>
static __device__ __forceinline__ void few_panel(float (&d)[4], few_dequant<FORM> &q,
                                                 const few_stage_at &s, int at) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint4 v = load_shared16(s.rows + (at + i * 32) * 2);
        const uint32_t b[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t f[dequant<FORM>::TERMS][4];
            few_fragment<FORM>(q, s, at + i * 32 + h * 16, f);
#pragma unroll
            for (int t = 0; t < dequant<FORM>::TERMS; t++)
                multiply<false>(d, f[t], b[2 * h], b[2 * h + 1]);
        }
    }
}

// d += the products of LENGTH values of k of a stage of weights from `from` on; of the stage `left`
// are there. s.rows: of value `from`.
template <int FORM, int N, int LENGTH>
static __device__ __forceinline__ void few_stage(float (&d)[N / 2], few_dequant<FORM> &q,
                                                 const few_stage_at &s, int from, int left) {
    enum {
        TERMS = dequant<FORM>::TERMS,
        // Between waits; the fragments of more leave too few registers.
        SMALL = LENGTH < 128 || N > 24 || TERMS > 1 || FORM == WEIGHT_Q5_1,
        GROUP = N > 32 && TERMS > 1 ? 32
                : SMALL             ? 64
                                    : 128,
        LAST = GROUP < FEW_PANEL ? GROUP : FEW_PANEL,
    };
#pragma unroll
    for (int i = 0; i < LENGTH; i += N == 8 ? FEW_PANEL : GROUP) {
        const int at = from + i;
        if (dequant<FORM>::SPAN < 256 && at >= left)
            break;
        if constexpr (N == 8)
            few_panel<FORM>(d, q, s, at);
        else if (dequant<FORM>::SPAN < 256 && at + FEW_PANEL >= left)
            few_group<FORM, N, LAST / 16>(d, q, s, at, i);
        else
            few_group<FORM, N, GROUP / 16>(d, q, s, at, i);
    }
}

// few_products where a stage of weights has several of rows.
template <int FORM, int N>
static __device__ __forceinline__ void
few_products_long(const struct linear_few &c, const few_unit &u, bool group, few_place &at,
                  few_stage_at &s, float (&d)[N / 2]) {
    extern __shared__ __align__(1024) unsigned char shared[];
    enum { STEP = few_step(FORM, N) };
#pragma unroll 1
    for (int k0 = u.begin; k0 < u.end; k0 += STEP) {
        few_dequant<FORM> q;
        if (u.active)
            s.weights = shared + at.next<N, FORM>(c);
        __syncwarp();
#pragma unroll
        for (int h = 0; h < STEP; h += few_k(N)) {
            if (dequant<FORM>::SPAN < 256 && k0 + h >= u.end)
                break;
            barrier_wait(at.rows_full(), at.row_phase);
            s.rows = warp_largest(at.rows<N>()); // in a register of the warp
            if (group)
                few_stage<FORM, N, few_k(N)>(d, q, s, h, u.end - k0);
            at.step_row<N>(c);
        }
    }
}

// Whether few_products_ahead takes weights of a form. Of fewer rows more warps do the same for each
// other, of more the sums leave no registers; other forms with it make the assembler wait for each
// product of the kernel (C7513).
static constexpr bool few_ahead(int form, int rows) {
    return rows == 96 && form <= WEIGHT_Q6_K;
}

// What a group of warps without tiles does of a unit: it leaves the stages of rows.
template <int N>
static __device__ __forceinline__ void few_idle(const struct linear_few &c, const few_unit &u,
                                                few_place &at) {
#pragma unroll 1
    for (int k = u.begin; k < u.end; k += few_k(N)) {
        barrier_wait(at.rows_full(), at.row_phase);
        at.step_row<N>(c);
    }
}

// few_products where fragments are made while the group of products before them is under way, in
// two sets of registers that take turns. A stage of weights has several of rows.
template <int FORM, int N>
static __device__ __forceinline__ void few_products_ahead(const struct linear_few &c,
                                                          const few_unit &u, few_place &at,
                                                          few_stage_at &s, float (&d)[N / 2]) {
    extern __shared__ __align__(1024) unsigned char shared[];
    enum { STEP = few_step(FORM, N), GROUP = 32, STEPS = GROUP / 16 };
    static_assert(STEP > few_k(N) && STEP == dequant<FORM>::SPAN, "stages of rows and weights");
    uint32_t f[2][STEPS][1][4];
#pragma unroll 1
    for (int k0 = u.begin; k0 < u.end; k0 += STEP) {
        few_dequant<FORM> q;
        if (u.active)
            s.weights = shared + at.next<N, FORM>(c);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < STEP; i += GROUP) {
            const bool next = i % few_k(N) == 0; // a stage of rows begins
            few_make<FORM, STEPS>(q, s, i, f[i / GROUP % 2]);
            if (next) {
                barrier_wait(at.rows_full(), at.row_phase);
                s.rows = warp_largest(at.rows<N>()); // in a register of the warp
            }
            few_begin<N>(d, s, i % few_k(N), f[i / GROUP % 2]);
            wgmma_wait<1>();
            few_hold<STEPS>(c, f[(i / GROUP + 1) % 2]);
            if (next && (i > 0 || k0 > u.begin))
                at.leave_row<N>(c); // the stage before this one
            if (next)
                at.pass_row(c);
        }
    }
    wgmma_wait<0>();
    few_hold<STEPS>(c, f[0]);
    few_hold<STEPS>(c, f[1]);
    at.leave_row<N>(c);
}

// few_products where a stage of rows has several of weights, or one.
template <int FORM, int N>
static __device__ __forceinline__ void
few_products_short(const struct linear_few &c, const few_unit &u, bool group, few_place &at,
                   few_stage_at &s, float (&d)[N / 2]) {
    extern __shared__ __align__(1024) unsigned char shared[];
    enum { STEP = few_step(FORM, N), PANEL = N * FEW_PANEL * 2 };
#pragma unroll 1
    for (int k0 = u.begin; k0 < u.end; k0 += few_k(N)) {
        barrier_wait(at.rows_full(), at.row_phase);
        const uint32_t rows = at.rows<N>();
#pragma unroll 1
        for (int h = 0; group && h < few_k(N) && k0 + h < u.end; h += STEP) {
            few_dequant<FORM> q;
            if (u.active)
                s.weights = shared + at.next<N, FORM>(c);
            __syncwarp();
            // In a register of the warp.
            s.rows = warp_largest(rows + h / FEW_PANEL * PANEL);
            few_stage<FORM, N, STEP>(d, q, s, 0, u.end - k0 - h);
        }
        at.step_row<N>(c);
    }
}

// d = the products of one unit whose weights have this form. `group`: a warp of this warp's group
// has a tile.
template <int FORM, int N>
static __device__ __forceinline__ void few_products(const struct linear_few &c, const few_unit &u,
                                                    bool group, few_place &at, float (&d)[N / 2]) {
    extern __shared__ __align__(1024) unsigned char shared[];
    few_stage_at s;
    s.weights = shared + few_front(N); // of a warp without a tile: whatever is there
    s.scales = shared + few_scales(N) + threadIdx.x / WARP * FEW_SCALES;
    if (few_ahead(FORM, N) && !group)
        few_idle<N>(c, u, at);
    else if constexpr (few_ahead(FORM, N))
        few_products_ahead<FORM, N>(c, u, at, s, d);
    else if constexpr (few_step(FORM, N) > few_k(N))
        few_products_long<FORM, N>(c, u, group, at, s, d);
    else
        few_products_short<FORM, N>(c, u, group, at, s, d);
}

// Eight values of k of row r, as they are or made of f32 values.
static __device__ __forceinline__ uint4 few_eight(const struct linear_few &c, int r, int k,
                                                  float scale) {
    if (!c.wide)
        return __ldcg((const uint4 *)(c.x + r * c.stride + k));
    const float4 *from = (const float4 *)(c.wide + r * c.stride + k);
    const float4 none = make_float4(0, 0, 0, 0);
    const uint2 low = act_pack(k < c.wide_k ? __ldcg(from) : none, scale);
    const uint2 high = act_pack(k < c.wide_k ? __ldcg(from + 1) : none, scale);
    return make_uint4(low.x, low.y, high.x, high.y);
}

// The exponent of row r of f32 values.
static __device__ __forceinline__ int few_exponent(const struct linear_few &c, int r) {
    return act_exponent(peak_of(c.peaks + r, c.epoch), 126);
}

// Takes values k0 to k1 - 1 of up to 8 rows to shared memory, as the lanes of a matrix instruction
// have them: of every 32 values of k lane 4 g + t has {2 t, 2 t + 1} and these plus 8, 16 and 24 of
// row g, 16 bytes. All threads of the block. keep: values that were made are stored as well.
static __device__ __forceinline__ void few_take(const struct linear_few &c, int k0, int k1,
                                                bool keep) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const int groups = (k1 - k0 + 63) / 64 * 2; // of 32 values of a row
    for (int at = threadIdx.x; at < groups * c.n; at += blockDim.x) {
        int i = at, r = 0;
        for (; i >= groups; r++)
            i -= groups;
        const int k = k0 + i * 32;
        const float scale = c.wide ? power_of_two(few_exponent(c, r)) : 0.0f;
        uint4 *to = (uint4 *)(shared + few_front(8) + r * few_pitch(c.span)) + i * 4, v[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            v[j] = few_eight(c, r, k + j * 8, scale);
        to[0] = make_uint4(v[0].x, v[1].x, v[2].x, v[3].x);
        to[1] = make_uint4(v[0].y, v[1].y, v[2].y, v[3].y);
        to[2] = make_uint4(v[0].z, v[1].z, v[2].z, v[3].z);
        to[3] = make_uint4(v[0].w, v[1].w, v[2].w, v[3].w);
        for (int j = 0; keep && j < 4; j++)
            ((uint4 *)(c.x + r * c.stride + k))[j] = v[j];
    }
}

// few_products for up to 8 rows. Columns that have no row read one that is there. again: another
// unit's rows were there before.
template <int FORM>
static __device__ __forceinline__ void few_products_alone(const struct linear_few &c,
                                                          const few_unit &u, bool again,
                                                          few_place &at, float (&d)[4]) {
    // The first units of the parts of k store the rows that they make, for later readers.
    const bool keep = c.wide && u.first == 0;
    extern __shared__ __align__(1024) unsigned char shared[];
    const int lane = threadIdx.x % WARP, row = lane / 4 & (c.columns - 1);
    const uint32_t rows = at.base + few_front(8) + row * few_pitch(c.span) + lane % 4 * 16;
    few_stage_at s;
    s.scales = shared + few_scales(8) + threadIdx.x / WARP * FEW_SCALES;
#pragma unroll 1
    for (int k0 = u.begin; k0 < u.end; k0 += c.span) {
        const int end = k0 + c.span < u.end ? k0 + c.span : u.end;
        if (again || k0 > u.begin)
            __syncthreads();
        few_take(c, k0, end, keep);
        __syncthreads();
#pragma unroll 1
        for (int k = k0; u.active && k < end; k += few_step(FORM, 8)) {
            few_dequant<FORM> q;
            s.weights = shared + at.next<8, FORM>(c);
            s.rows = rows + (k - k0) * 2;
            few_stage<FORM, 8, few_step(FORM, 8)>(d, q, s, 0, end - k);
        }
    }
}

// Leaves this warp's sums in memory, by rows (linear_left).
template <int N>
static __device__ __forceinline__ void few_leave(int64_t rows, const few_unit &u, int warp,
                                                 const float (&d)[N / 2]) {
    const struct linear_one *o = u.job;
    int lane = threadIdx.x % WARP, n0 = lane % 4 * 2, left = (int)rows - n0;
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

// Joins the tiles of a pair: each warp hands over the columns that the other one will have, every
// 8 rows or, where EACH is 2 and the warps have rooms of their own, every other 8 after another.
template <int N, int EACH>
static __device__ __forceinline__ void few_join(int warp, float4 *give, const float4 *take,
                                                float (&d)[N / 2]) {
    enum { TURN = few_joined(N) / 8 };
    give += threadIdx.x % WARP;
    take += threadIdx.x % WARP;
#pragma unroll
    for (int i0 = 0; i0 < N / 8; i0 += TURN) {
#pragma unroll
        for (int i = i0; i < i0 + TURN; i++)
            if (!few_has(warp, i))
                give[(i - i0) / EACH * 32] =
                    make_float4(d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]);
        warps_meet<2 * WARP>(1 + warp / 2);
#pragma unroll
        for (int i = i0; i < i0 + TURN; i++) {
            if (!few_has(warp, i))
                continue;
            float4 other = take[(i - i0) / EACH * 32];
            float v[4] = {other.x, other.y, other.z, other.w};
            float gate[4];
#pragma unroll
            for (int e = 0; e < 4; e++)
                gate[e] = warp % 2 ? v[e] : d[4 * i + e];
            silu_all(gate);
#pragma unroll
            for (int e = 0; e < 4; e++)
                d[4 * i + e] = gate[e] * (warp % 2 ? d[4 * i + e] : v[e]);
        }
        warps_meet<2 * WARP>(1 + warp / 2);
    }
}

// Powers of two of a warp's two outputs; 0 where there is no such output.
static __device__ __forceinline__ float2 few_powers(const few_unit &u) {
    float power[2];
    for (int h = 0; h < 2; h++) {
        int64_t m = u.tile * TILE_ROWS + threadIdx.x % WARP / 4 + h * 8;
        power[h] = u.active && m < u.w->m ? __int_as_float((127 - u.w->exponent[m]) << 23) : 0.0f;
    }
    return make_float2(power[0], power[1]);
}

// The inverse of the power of two that row r was multiplied with.
template <int N>
static __device__ __forceinline__ float few_back(const struct linear_few &c, int r) {
    return N == 8 && c.wide ? power_of_two(-few_exponent(c, r)) : __ldcg(c.unscale + r);
}

// Raises the peaks of up to 8 rows by a warp's outputs, columns of which are in lanes as in d.
static __device__ __forceinline__ void few_raise(const struct linear_few &c, const float (&d)[4]) {
    float max[2] = {fmaxf(fabsf(d[0]), fabsf(d[2])), fmaxf(fabsf(d[1]), fabsf(d[3]))};
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        for (int by = 16; by >= 4; by /= 2)
            max[i] = fmaxf(max[i], warp_across(max[i], by));
        if (lane < 4 && lane * 2 + i < c.n)
            peak_raise(c.peaks + lane * 2 + i, c.epoch, max[i]);
    }
}

// Powers of two of rows and tiles where a warpgroup multiplies: in shared memory before they are
// needed, so that the end of a unit waits for no loads. This requests the exponents of the tile
// that the warp has of a unit; a wait for weights that are requested after them, or
// few_powers_kept, waits for them.
static __device__ __forceinline__ void few_ask_exponents(const few_unit &u, uint32_t base) {
    const int warp = threadIdx.x / WARP;
    __syncwarp(); // all lanes have read those of the unit before
    if (u.active && u.job->parts == 1 && threadIdx.x % WARP == 0)
        copy_piece(base + FEW_EXPONENTS + warp * TILE_ROWS,
                   (const unsigned char *)u.w->exponent + u.tile * TILE_ROWS);
}

// few_powers of exponents that have been requested.
static __device__ __forceinline__ float2 few_powers_kept(const few_unit &u) {
    extern __shared__ __align__(1024) unsigned char shared[];
    enum { SURE = 3 }; // stages of weights from which on one of their waits was after the copy
    if (u.cut->stages[u.part] < SURE) {
        copies_end<false>();
        copies_wait<false, 0>();
        __syncwarp();
    }
    const signed char *of = (const signed char *)shared + FEW_EXPONENTS +
                            threadIdx.x / WARP * TILE_ROWS + threadIdx.x % WARP / 4;
    return make_float2(__int_as_float((127 - of[0]) << 23), __int_as_float((127 - of[8]) << 23));
}

// Keeps what takes the rows' powers of two back; the first warp, after gpu_await.
template <int N>
static __device__ __forceinline__ void few_keep_back(const struct linear_few &c, uint32_t base) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const int lane = threadIdx.x % WARP;
    float v[N / 32 + 1];
#pragma unroll
    for (int i = 0; i * 32 < N; i++)
        v[i] = lane + i * 32 < c.n ? __ldcg(c.unscale + lane + i * 32) : 0.0f;
#pragma unroll
    for (int i = 0; i * 32 < N; i++)
        if (lane + i * 32 < N)
            ((float *)(shared + FEW_BACK))[lane + i * 32] = v[i];
    __syncwarp();
    if (lane == 0)
        barrier_arrive(base + FEW_BACK_BAR);
}

// Takes the powers of two back, of rows and tiles that the kernel keeps.
template <int N>
static __device__ __forceinline__ void few_scale_kept(const few_unit &u, float (&d)[N / 2]) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const float2 power = few_powers_kept(u);
    const float2 *back = (const float2 *)(shared + FEW_BACK) + threadIdx.x % 4;
    barrier_wait(shared_address(shared) + FEW_BACK_BAR, 0);
#pragma unroll
    for (int i = 0; i < N / 2; i += 4) {
        const float2 of = back[i];
        d[i] = d[i] * power.x * of.x;
        d[i + 1] = d[i + 1] * power.x * of.y;
        d[i + 2] = d[i + 2] * power.y * of.x;
        d[i + 3] = d[i + 3] * power.y * of.y;
    }
}

// Takes the powers of two back.
template <int N>
static __device__ __forceinline__ void few_scale(const struct linear_few &c, const few_unit &u,
                                                 float (&d)[N / 2]) {
    const float2 power = few_powers(u);
    const int n0 = threadIdx.x % WARP % 4 * 2, left = c.n - n0;
    float back[N / 4];
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
        const int row = i / 2 * 8 + i % 2;
        back[i] = row < left ? few_back<N>(c, n0 + row) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        d[i] = d[i] * (i / 2 % 2 ? power.y : power.x) * back[i / 4 * 2 + i % 2];
}

// Stores or adds; of a pair those rows that `warp` has, all if it is negative.
template <int N>
static __device__ __forceinline__ void few_store(const struct linear_few &c, const few_unit &u,
                                                 int warp, const float (&d)[N / 2]) {
    if (!u.active)
        return;
    const struct linear_one *o = u.job;
    const int lane = threadIdx.x % WARP, n0 = lane % 4 * 2, left = c.n - n0;
    float *out = o->out + n0 * o->out_stride + u.tile * TILE_ROWS + lane / 4;
    const int below = (int)(u.w->m - (u.tile * TILE_ROWS + lane / 4));
#pragma unroll
    for (int j = 0; j < N / 8; j++, out += 8 * o->out_stride) {
        float old[4];
        if (o->pair && warp >= 0 && !few_has(warp, j))
            continue;
#pragma unroll
        for (int e = 0; e < 4; e++)
            old[e] = o->add && j * 8 + e % 2 < left && e / 2 * 8 < below
                         ? __ldcg(out + e % 2 * o->out_stride + e / 2 * 8)
                         : 0.0f;
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (j * 8 + e % 2 < left && e / 2 * 8 < below)
                out[e % 2 * o->out_stride + e / 2 * 8] =
                    o->add ? old[e] + d[4 * j + e] : d[4 * j + e];
    }
}

// The outputs: powers of two taken back, then joined, stored or added.
template <int N>
static __device__ __forceinline__ void few_finish(const struct linear_few &c, const few_unit &u,
                                                  int warp, float4 *exchange, float (&d)[N / 2]) {
    if constexpr (N > 8)
        few_scale_kept<N>(u, d);
    else
        few_scale<N>(c, u, d);
    exchange += warp / 2 * (few_joined(N) / 8 * 32);
    if (u.job->pair)
        few_join<N, 1>(warp, exchange, exchange, d);
    if constexpr (N == 8)
        if (u.active && u.job->pair && c.peaks && few_has(warp, 0))
            few_raise(c, d);
    few_store<N>(c, u, warp, d);
}

// All units of this block, the first of which is u with up to 8 rows, as one of the warps that
// multiply.
template <int N>
static __device__ __forceinline__ void few_units(const struct linear_few &c, few_unit u,
                                                 few_place &at) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const int warp = threadIdx.x / WARP;
#pragma unroll 1
    for (int unit = blockIdx.x; unit < c.units; unit += gridDim.x) {
        const bool again = unit != (int)blockIdx.x;
        if (N > 8 || again)
            u = few_unit_of(c, unit, warp);
        const bool group = N > 8 && few_unit_of(c, unit, warp / 4 * 4).active;
        if constexpr (N > 8)
            few_ask_exponents(u, at.base);
        float d[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            d[i] = 0;
        switch (u.form) {
#define X(name, span, chunk)                                                                       \
    case WEIGHT_##name:                                                                            \
        if constexpr (N == 8)                                                                      \
            few_products_alone<WEIGHT_##name>(c, u, again, at, d);                                 \
        else                                                                                       \
            few_products<WEIGHT_##name, N>(c, u, group, at, d);                                    \
        break;
            WEIGHT_FORMS_LIST(X)
#undef X
        }
        u = few_unit_of(c, made_again(unit), warp); // not kept during the products
        if (u.job->parts == 1)
            few_finish<N>(c, u, warp, (float4 *)(shared + FEW_JOIN), d);
        else if (u.active)
            few_leave<N>(c.n, u, warp, d);
    }
}

// Whether this machine code has the kernel of that many rows.
static constexpr bool few_runs(int rows) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    return true;
#else
    return rows == 8;
#endif
}

// What a block does. Shared memory: few_front bytes, rows, weights.
template <int N> static __device__ __forceinline__ void few_block(const struct linear_few &c) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    struct few_place at = {shared_address(shared), 0, 0, 0, 0, false, {}};
    at.own = few_front(N) + c.row_bytes + warp * (N == 8 ? c.slots : (int)FEW_SLOTS) * c.slot;
    at.both = 2 * at.own + c.slot;
    const bool multiplies = warp < few_warps(N);
    few_unit u = {};
    bool opened = true;
    at.copies.to = at.base + at.own + lane * 16;
    if constexpr (N == 8) {
        u = few_unit_of(c, blockIdx.x, warp);
        at.copies.open<N>(c, u);
    } else {
        if (multiplies)
            opened = at.copies.open_apart(c, few_unit_of(c, blockIdx.x, made_again(warp)));
        if (warp == few_bringer(N) / 32)
            few_rows_open<N>(c, at.base);
    }
    for (int i = opened; multiplies && i < c.ahead; i++) {
        at.copies.to = at.base + at.own + i * c.slot + lane * 16;
        at.copies.start_odd<N>(c);
        copies_end<false>();
        __syncwarp(); // all lanes have read what the next turn may write (few_find)
    }
    at.copies.to = c.ahead == FEW_SLOTS ? 0 : at.base + at.own + c.slot + lane * 16;
    if (N > 8) // up to 8 rows warps share nothing yet
        __syncthreads();
    gpu_await();
    gpu_let_next();
    if constexpr (N > 8)
        if (threadIdx.x == few_bringer(N))
            for (int i = 0; few_rows<N>(c, at.base) && (!multiplies || i + 1 < c.stages); i++)
                continue;
    __syncwarp();
    if (N > 8 && warp == 0)
        few_keep_back<N>(c, at.base);
    if (N == 8 && c.wide && blockIdx.x == 0 && threadIdx.x < c.n)
        ((float *)c.unscale)[threadIdx.x] = power_of_two(-few_exponent(c, threadIdx.x));
    if (multiplies)
        few_units<N>(c, u, at);
}
#endif

template <int N>
static __global__ void __launch_bounds__(few_bounds(N), 1)
    linear_few_kernel(const __grid_constant__ struct linear_few c) {
#if __CUDA_ARCH__ >= 800
    if constexpr (few_runs(N))
        few_block<N>(c);
    else
        gpu_await();
#else
    gpu_await();
    (void)c;
#endif
}

#endif
