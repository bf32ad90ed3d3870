// SPDX-License-Identifier: Apache-2.0
// Experts of few entries (decoding, trees, short pieces), where reading the chosen experts is all
// the work. A block takes some tiles of 16 outputs of one expert and all entries of that expert, up
// to 8 at a time; the first entry of an expert stands for it, blocks of the others end at once, so
// no list has to be made before. A warp multiplies one tile of one matrix over one part of k, with
// a ring of stages of weights in shared memory that its own copies keep filled; parts meet in
// shared memory and are added in order there. The chain of matrix instructions of an element is
// that of ops/gpu/linear/many/tiles.cuh, and so are its bits.
#ifndef COPPICE_OPS_GPU_MOE_FEW_CUH
#define COPPICE_OPS_GPU_MOE_FEW_CUH

#include "ops/gpu/linear/few/scales.cuh"
#include "ops/gpu/linear/form/act.cuh"
#include "ops/gpu/linear/form/activation.cuh"
#include "ops/gpu/linear/many/tiles.cuh"
#include "ops/gpu/matrix/barrier.cuh"
#include "ops/gpu/moe/moe.h"

enum {
    MOE_THREADS = 256,
    MOE_WARPS = MOE_THREADS / WARP,
    MOE_COLUMNS = 8,        // entries at a time
    MOE_LIST = MOE_FEW * 2, // bytes
    MOE_FOUND = MOE_LIST,   // counts of hits by warps and rounds
    MOE_ROUNDS = MOE_FEW / MOE_THREADS,
    MOE_FRONT = MOE_LIST + MOE_WARPS * MOE_ROUNDS * 4, // bytes
    MOE_SUM_PITCH = 20,                                // floats from row to row of sums
    MOE_SUMS = MOE_COLUMNS * MOE_SUM_PITCH,            // floats of an item
};

struct moe_few {
    struct moe_call_args c;
    struct moe_peaks from, raises;
    bool ahead;
    int tiles;                   // of a block
    int begin[LINEAR_PARTS + 1]; // k of the parts; the last is the end
    int pitch;                   // bytes between kept rows; 0: rows are read where they lie
    int scales, weights, rows;   // where these begin in shared memory; sums are after MOE_FRONT
};

// A warp's ring of weights.
template <int FORM, bool SMALL> struct moe_ring {
    enum {
        SPAN = dequant<FORM>::SPAN,
        STEP = weight_of_fours(FORM) ? 256
               : FORM == WEIGHT_Q8_0 ? 128
                                     : 64,
        SLOT = STEP / SPAN * dequant<FORM>::CHUNK,
        SLOTS = SMALL                                         ? 1
                : FORM == WEIGHT_Q6_K || FORM == WEIGHT_FLOAT ? 2
                                                              : 3,
    };
};

// What a block works on.
struct moe_unit {
    int expert, tile, tiles, items; // SHARED: the shared one; first tile; tiles; of all parts and
                                    // matrices
};
enum { MOE_SHARED = -1 };

static __device__ __forceinline__ matrix_view moe_weights(const moe_few &a, const moe_unit &u,
                                                          int matrix) {
    return u.expert == MOE_SHARED ? a.c.shared[matrix].w : moe_expert(a.c.matrix[matrix], u.expert);
}

// The row of x that an entry has.
static __device__ __forceinline__ int64_t moe_row(const moe_call_args &c, int entry) {
    return entry < c.listed ? entry / c.sharers : entry - c.listed + c.shared_row;
}

// An item: one tile of one matrix over one part.
struct moe_item {
    int matrix, part;
    int64_t tile;
    __device__ __forceinline__ moe_item(const moe_few &a, const moe_unit &u, int i) {
        part = i % a.c.parts;
        i /= a.c.parts;
        matrix = a.c.pair ? i % 2 : 0;
        tile = u.tile + (a.c.pair ? i / 2 : i);
    }
};

// Copies of a warp's stages, which run ahead over the ends of items.
template <int FORM, bool SMALL> struct moe_feed {
    using R = moe_ring<FORM, SMALL>;
    int item, k, end;
    const unsigned char *from;

    __device__ __forceinline__ void next(const moe_few &a, const moe_unit &u, unsigned char *to) {
        const int lane = threadIdx.x % WARP;
        if (k >= end && item < u.items) {
            const moe_item t(a, u, item);
            const matrix_view w = moe_weights(a, u, t.matrix);
            k = a.begin[t.part];
            end = a.begin[t.part + 1];
            from = w.data + t.tile * w.pitch + k / R::SPAN * dequant<FORM>::CHUNK;
            item += MOE_WARPS;
        }
        if (k < end) {
            const int left = (end - k + R::SPAN - 1) / R::SPAN * dequant<FORM>::CHUNK;
            const int bytes = left < R::SLOT ? left : R::SLOT;
            for (int at = lane * 16; at < bytes; at += 512) {
                if constexpr (SMALL)
                    copy16<true>(to + at, from + at);
                else
                    copy_once(shared_address(to + at), from + at);
            }
            k += R::STEP;
            from += R::SLOT;
        }
        copies_end<SMALL>();
    }
};

// The entries of the block's expert, in order, into shared memory; none if this is not the first.
static __device__ __forceinline__ int moe_find(const moe_few &a, int own, int expert,
                                               unsigned char *shared) {
    short *list = (short *)shared;
    int *found = (int *)(shared + MOE_FOUND), before[MOE_ROUNDS], all = 0;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    warp_mask votes[MOE_ROUNDS];
#pragma unroll
    for (int r = 0; r < MOE_ROUNDS; r++) {
        const int i = r * MOE_THREADS + threadIdx.x;
        const bool hit = expert == MOE_SHARED ? i >= a.c.listed && i < a.c.entries
                                              : i < a.c.listed && __ldcg(a.c.ids + i) == expert;
        votes[r] = warp_vote(hit);
        before[r] = 0;
        if (lane == 0)
            found[r * MOE_WARPS + warp] = mask_count(votes[r]);
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < MOE_ROUNDS * MOE_WARPS; j++) {
        const int n = found[j];
#pragma unroll
        for (int r = 0; r < MOE_ROUNDS; r++)
            before[r] += j < r * MOE_WARPS + warp ? n : 0;
        all += n;
    }
#pragma unroll
    for (int r = 0; r < MOE_ROUNDS; r++)
        if (votes[r] >> lane & 1)
            list[before[r] + mask_before(votes[r], lane)] = (short)(r * MOE_THREADS + threadIdx.x);
    __syncthreads();
    return list[0] == own ? all : 0;
}

static __device__ __forceinline__ int moe_exponent(const moe_few &a, int entry) {
    return act_exponent(peak_of(a.from.peaks + entry, a.from.epoch), 126);
}

// Eight values of k of an entry's row, as they are or made of f32 values.
static __device__ __forceinline__ uint4 moe_eight(const moe_few &a, int entry, int k, float scale) {
    if (!a.from.wide)
        return __ldcg((const uint4 *)(a.c.x + moe_row(a.c, entry) * a.c.stride + k));
    const float4 *from = (const float4 *)(a.from.wide + entry * a.c.stride + k);
    const float4 none = make_float4(0, 0, 0, 0);
    const uint2 low = act_pack(k < a.from.wide_k ? __ldcg(from) : none, scale);
    const uint2 high = act_pack(k < a.from.wide_k ? __ldcg(from + 1) : none, scale);
    return make_uint4(low.x, low.y, high.x, high.y);
}

// The rows of n entries to shared memory, as the lanes of a matrix instruction have them: of every
// 32 values of k lane 4 g + t has {2 t, 2 t + 1} and these plus 8, 16 and 24 of row g, 16 bytes.
// keep: values that were made are stored as well.
static __device__ __forceinline__ void moe_take(const moe_few &a, const short *list, int n,
                                                bool keep, unsigned char *rows) {
    const int groups = (int)(a.c.stride / 32);
    for (int i = threadIdx.x; i < groups * n; i += MOE_THREADS) {
        const int r = i / groups, at = i - r * groups, entry = list[r], k = at * 32;
        const float scale = a.from.wide ? power_of_two(moe_exponent(a, entry)) : 0.0f;
        uint4 *to = (uint4 *)(rows + r * a.pitch) + at * 4, v[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            v[j] = moe_eight(a, entry, k + j * 8, scale);
        to[0] = make_uint4(v[0].x, v[1].x, v[2].x, v[3].x);
        to[1] = make_uint4(v[0].y, v[1].y, v[2].y, v[3].y);
        to[2] = make_uint4(v[0].z, v[1].z, v[2].z, v[3].z);
        to[3] = make_uint4(v[0].w, v[1].w, v[2].w, v[3].w);
        for (int j = 0; keep && j < 4; j++)
            ((uint4 *)(a.c.x + entry * a.c.stride + k))[j] = v[j];
    }
    if (keep && threadIdx.x < n)
        ((float *)a.c.unscale)[list[threadIdx.x]] =
            power_of_two(-moe_exponent(a, list[threadIdx.x]));
}

// A lane's row: in shared memory, or where it lies.
struct moe_lane_row {
    const unsigned char *at;
    bool kept;
    // What the lane has of the 32 values from k on.
    __device__ __forceinline__ uint4 values(int k) const {
        if (kept)
            return *(const uint4 *)(at + k * 2);
        const uint32_t *from = (const uint32_t *)(at + k * 2);
        return make_uint4(__ldcg(from), __ldcg(from + 4), __ldcg(from + 8), __ldcg(from + 12));
    }
};

// d += the products of 64 values of k from k on, section `sec` of a chunk.
template <int FORM, bool SMALL>
static __device__ __forceinline__ void moe_section(float (&d)[4], const dequant<FORM> &q,
                                                   const moe_lane_row &row, int k) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint4 v = row.values(k + i * WARP);
        const uint32_t b[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t f[dequant<FORM>::TERMS][4];
            q.step(2 * i + h, f);
#pragma unroll
            for (int t = 0; t < dequant<FORM>::TERMS; t++)
                multiply<SMALL>(d, f[t], b[2 * h], b[2 * h + 1]);
        }
    }
}

// d += the products of a stage, of which `left` values of k are there.
template <int FORM, bool SMALL>
static __device__ __forceinline__ void moe_stage(float (&d)[4], const unsigned char *stage,
                                                 unsigned char *scales, const moe_lane_row &row,
                                                 int k, int left) {
    using R = moe_ring<FORM, SMALL>;
    const int lane = threadIdx.x % WARP;
    few_dequant<FORM> q;
#pragma unroll
    for (int at = 0; at < R::STEP; at += 64) {
        if (R::SPAN < 256 && at >= left)
            break;
        const unsigned char *chunk = stage + at / R::SPAN * dequant<FORM>::CHUNK;
        if (at % R::SPAN == 0)
            q.open(chunk, scales, lane);
        q.section(chunk, scales, at % R::SPAN / 64, lane);
        moe_section<FORM, SMALL>(d, q, row, k + at);
    }
}

// The sums of all items of this warp, for up to 8 entries, into shared memory.
template <int FORM, bool SMALL>
static __device__ __forceinline__ void moe_items(const moe_few &a, const moe_unit &u,
                                                 const moe_lane_row &row, unsigned char *shared,
                                                 moe_feed<FORM, SMALL> &feed, int &slot) {
    using R = moe_ring<FORM, SMALL>;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    unsigned char *ring = shared + a.weights + warp * (R::SLOTS * R::SLOT);
    unsigned char *scales = shared + a.scales + warp * FEW_SCALES;
    for (int i = warp; i < u.items; i += MOE_WARPS) {
        const moe_item t(a, u, i);
        const int end = a.begin[t.part + 1];
        float d[4] = {0, 0, 0, 0};
#pragma unroll 1
        for (int k = a.begin[t.part]; k < end; k += R::STEP) {
            unsigned char *stage = ring + slot * R::SLOT;
            copies_wait<SMALL, R::SLOTS - 1>();
            __syncwarp();
            moe_stage<FORM, SMALL>(d, stage, scales, row, k, end - k);
            __syncwarp();
            feed.next(a, u, stage);
            slot = slot + 1 == R::SLOTS ? 0 : slot + 1;
        }
        float *to = (float *)(shared + MOE_FRONT) + i * MOE_SUMS + lane % 4 * 2 * MOE_SUM_PITCH;
        to[lane / 4] = d[0];
        to[lane / 4 + MOE_SUM_PITCH] = d[1];
        to[lane / 4 + 8] = d[2];
        to[lane / 4 + 8 + MOE_SUM_PITCH] = d[3];
    }
}

// What an output needs besides its sums, read before they are there: exponents of the thread's
// first output, by matrix, and the power of two of the only row of a block whose entry has its own
// expert.
struct moe_powers {
    signed char e[2];
    float back;
};

// Which output a thread makes in turn i: tile, row and place; each: rows that take turns.
struct moe_output {
    int tile, r, o;
    __device__ __forceinline__ moe_output(int i, int each) {
        o = i % TILE_ROWS;
        r = i / TILE_ROWS & (each - 1);
        tile = i / TILE_ROWS / each;
    }
};

static __device__ __forceinline__ int moe_turns(const moe_few &a) {
    return a.c.distinct ? 1 : (int)MOE_COLUMNS;
}

static __device__ __forceinline__ signed char moe_power(const moe_few &a, const moe_unit &u,
                                                        int matrix, int64_t m) {
    const bool shared = u.expert == MOE_SHARED;
    const matrix_view &w = shared ? a.c.shared[matrix].w : a.c.matrix[matrix].w;
    return w.exponent[(shared ? 0 : u.expert) * w.tiles * TILE_ROWS + m];
}

static __device__ __forceinline__ float moe_back(const moe_few &a, int entry) {
    return a.from.wide ? power_of_two(-moe_exponent(a, entry))
                       : __ldcg(a.c.unscale + moe_row(a.c, entry));
}

static __device__ __forceinline__ void moe_read_powers(const moe_few &a, const moe_unit &u,
                                                       moe_powers &p) {
    const moe_output at(threadIdx.x, moe_turns(a));
    const int64_t m = (int64_t)(u.tile + at.tile) * TILE_ROWS + at.o;
    for (int i = 0; i < (a.c.pair ? 2 : 1); i++)
        p.e[i] = at.tile < u.tiles ? moe_power(a, u, i, m) : (signed char)0;
}

// One output of one row from the sums of its parts, the first of which is given, powers of two
// taken back.
static __device__ __forceinline__ float moe_value(const moe_few &a, const moe_unit &u, int matrix,
                                                  const float *sums, int64_t m, int e, float back) {
    const bool shared = u.expert == MOE_SHARED;
    const moe_matrix &own = shared ? a.c.shared[matrix] : a.c.matrix[matrix];
    float sum = sums[0];
    for (int p = 1; p < a.c.parts; p++)
        sum += sums[p * MOE_SUMS];
    const float v = sum * __int_as_float((127 - e) << 23) * back;
    return own.bias ? __fadd_rn(v, own.bias[(shared ? 0 : u.expert) * own.w.m + m]) : v;
}

// The outputs of n entries.
static __device__ __forceinline__ void moe_finish(const moe_few &a, const moe_unit &u,
                                                  const short *list, int n,
                                                  const unsigned char *shared,
                                                  const moe_powers &p) {
    const int each = moe_turns(a), outputs = (u.tiles * TILE_ROWS * each + 31) / 32 * 32;
    for (int i = threadIdx.x; i < outputs; i += MOE_THREADS) {
        const moe_output at(i, each);
        const int64_t m = (int64_t)(u.tile + at.tile) * TILE_ROWS + at.o;
        const bool there = at.tile < u.tiles && at.r < n && m < a.c.matrix[0].w.m;
        const int items = a.c.pair ? 2 * a.c.parts : a.c.parts; // of a tile
        const float *sums = (const float *)(shared + MOE_FRONT) + at.tile * items * MOE_SUMS +
                            at.r * MOE_SUM_PITCH + at.o;
        float v = 0;
        if (there) {
            const int entry = list[at.r];
            const float back = a.c.distinct ? p.back : moe_back(a, entry);
            const bool first = i == (int)threadIdx.x;
            v = moe_value(a, u, 0, sums, m, first ? p.e[0] : moe_power(a, u, 0, m), back);
            if (a.c.pair)
                v = activated(a.c.activation, v,
                              moe_value(a, u, 1, sums + a.c.parts * MOE_SUMS, m,
                                        first ? p.e[1] : moe_power(a, u, 1, m), back));
            float *out = entry < a.c.listed
                             ? a.c.out + entry * a.c.out_stride
                             : a.c.shared_out + (entry - a.c.listed) * a.c.out_stride;
            out[m] = v;
        }
        if (a.raises.peaks) {
            const float max = warp_max<16>(fabsf(v));
            if (at.tile < u.tiles && at.r < n && at.o == 0)
                peak_raise(a.raises.peaks + list[at.r], a.raises.epoch, max);
        }
    }
}

// Block (tiles, entry).
template <int FORM, bool ANY_SMALL>
static __global__ void __launch_bounds__(MOE_THREADS)
    moe_few_kernel(const __grid_constant__ struct moe_few a) {
#if __CUDA_ARCH__ >= 800 || !defined(__CUDA_ARCH__)
    const bool SMALL = ANY_SMALL;
#else
    const bool SMALL = true; // the launcher takes no other path there
#endif
    using R = moe_ring<FORM, SMALL>;
    extern __shared__ __align__(128) unsigned char shared[];
    const short *list = (const short *)shared;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, own = blockIdx.y;
    const bool shared_one = own >= a.c.listed, ahead = a.ahead || shared_one;
    if (!ahead) {
        gpu_await();
        gpu_let_next();
    }
    struct moe_unit u = {MOE_SHARED, (int)blockIdx.x * a.tiles, a.tiles, 0};
    if (!shared_one)
        u.expert = __ldcg(a.c.ids + own);
    const int64_t left = a.c.matrix[0].w.tiles - u.tile;
    u.tiles = left < u.tiles ? (int)left : u.tiles;
    u.items = u.tiles * (a.c.pair ? 2 : 1) * a.c.parts;
    int all = 1;
    if (a.c.distinct) {
        if (threadIdx.x == 0)
            ((short *)shared)[0] = (short)own;
        __syncthreads();
    } else {
        all = moe_find(a, own, u.expert, shared);
    }
    moe_feed<FORM, SMALL> feed = {warp, 0, 0, NULL};
    unsigned char *ring = shared + a.weights + warp * (R::SLOTS * R::SLOT);
    for (int s = 0; all && s < R::SLOTS; s++)
        feed.next(a, u, ring + s * R::SLOT);
    moe_powers powers = {};
    if (all)
        moe_read_powers(a, u, powers);
    if (ahead) {
        gpu_await();
        gpu_let_next();
    }
    if (a.c.distinct)
        powers.back = moe_back(a, own);
    int slot = 0;
#pragma unroll 1
    for (int first = 0; first < all; first += MOE_COLUMNS) {
        const int n = all - first < MOE_COLUMNS ? all - first : MOE_COLUMNS;
        if (first) { // the weights once more
            copies_wait<SMALL, 0>();
            __syncwarp();
            feed = {warp, 0, 0, NULL};
            slot = 0;
            for (int s = 0; s < R::SLOTS; s++)
                feed.next(a, u, ring + s * R::SLOT);
        }
        const int column = lane / 4 < n ? lane / 4 : 0;
        moe_lane_row row = {shared + a.rows + column * a.pitch + lane % 4 * 16, a.pitch != 0};
        if (row.kept)
            moe_take(a, list + first, n, a.from.wide && a.c.x && blockIdx.x == 0, shared + a.rows);
        else
            row.at =
                (const unsigned char *)(a.c.x + moe_row(a.c, list[first + column]) * a.c.stride) +
                lane % 4 * 4;
        __syncthreads();
        moe_items<FORM, SMALL>(a, u, row, shared, feed, slot);
        __syncthreads();
        moe_finish(a, u, list + first, n, shared, powers);
        __syncthreads();
    }
}

#endif
