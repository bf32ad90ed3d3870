// SPDX-License-Identifier: Apache-2.0
// Weights to rows of fp16 in memory: with very many rows of activations it costs little to do that
// once, and the products then wait for nothing but copies. The numbers are those that all linear
// kernels multiply (dequant.cuh), so what is multiplied in the same order has the same bits.
#include "ops/gpu/linear/many/many.h"

#include "ops/gpu/linear/form/dequant.cuh"
#include "ops/gpu/matrix/ldmatrix.cuh"

enum { WARPS = 8, STEP = 64, ROW = STEP * 2 /* bytes */, WHOLE = 128 /* outputs */ };

// Where the outputs of a matrix go.
struct unpack_place {
    __half *to;
    int64_t stride;
    bool pair; // with another, eights of both in turn
    int which; // of the two

    __device__ __forceinline__ __half *row(int64_t tile, int r) const {
        return to + (pair ? tile * 32 + r / 8 * 16 + which * 8 + r % 8 : tile * 16 + r) * stride;
    }
};

// A fragment of 16 outputs x 16 of k (step s of 64) to a warp's shared memory: 16-byte piece c of a
// row lies at piece c ^ (row % 8).
static __device__ __forceinline__ void leave_step(unsigned char *shared, int s,
                                                  const uint32_t (&a)[4]) {
    int lane = threadIdx.x % WARP;
#if __CUDA_ARCH__ >= 900
    uint32_t to =
        shared_address(shared) + lane % 16 * ROW + ((2 * s + lane / 16) ^ (lane % 8)) * 16;
    store_four(to, a);
#else
    for (int i = 0; i < 4; i++) {
        int row = lane / 4 + i % 2 * 8, piece = (2 * s + i / 2) ^ (row % 8);
        *(uint32_t *)(shared + row * ROW + piece * 16 + lane % 4 * 4) = a[i];
    }
#endif
}

// A chunk to a warp's shared memory. All of it is requested before the first byte is there; it
// will not be read again soon.
template <int BYTES>
static __device__ __forceinline__ void bring_chunk(const unsigned char *chunk, unsigned char *to) {
    enum { EACH = (BYTES / 16 + 31) / 32 };
    const int lane = threadIdx.x % WARP;
    uint4 piece[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if ((i * 32 + lane) * 16 < BYTES)
            piece[i] = __ldcs((const uint4 *)chunk + i * 32 + lane);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if ((i * 32 + lane) * 16 < BYTES)
            *(uint4 *)(to + (i * 32 + lane) * 16) = piece[i];
}

// A warp unpacks one chunk of one tile.
template <int FORM>
static __global__ void __launch_bounds__(WARPS *WARP)
    unpack_weights(matrix_view v, unpack_place place, int64_t chunks) {
    enum { BYTES = dequant<FORM>::CHUNK, SECTIONS = dequant<FORM>::SPAN / STEP };
    static_assert(BYTES % 16 == 0, "chunks are read in pieces of 16 bytes");
    __shared__ __align__(128) unsigned char shared[WARPS][TILE_ROWS * ROW];
    __shared__ __align__(16) unsigned char packed[WARPS][BYTES];
    gpu_await();
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int64_t at = (int64_t)blockIdx.x * WARPS + warp, tile = at / chunks, c = at % chunks;
    if (tile >= v.tiles)
        return;
    const int64_t k = c * dequant<FORM>::SPAN;
    const unsigned char *chunk = packed[warp];
    bring_chunk<BYTES>(v.data + tile * v.pitch + c * BYTES, packed[warp]);
    __syncwarp();
    dequant<FORM> q;
    q.open(chunk, k, lane);
#pragma unroll
    for (int sec = 0; sec < SECTIONS; sec++) {
        q.section(chunk, sec, lane);
#pragma unroll
        for (int s = 0; s < STEP / 16; s++) {
            uint32_t a[1][4];
            q.step(s, a);
            leave_step(shared[warp], s, a[0]);
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < TILE_ROWS / 4; i++) {
            int r = i * 4 + lane / 8, piece = lane % 8;
            *(uint4 *)(place.row(tile, r) + k + sec * STEP + piece * 8) =
                *(const uint4 *)(shared[warp] + r * ROW + (piece ^ r % 8) * 16);
        }
        __syncwarp();
    }
}

template <int FORM>
static void unpack_form(struct gpu *g, const matrix_view &v, const unpack_place &place) {
    int64_t chunks = place.stride / dequant<FORM>::SPAN;
    int64_t blocks = (v.tiles * chunks + WARPS - 1) / WARPS;
    gpu_launch_early(g, "linear (unpacking)", unpack_weights<FORM>, (unsigned)blocks, WARPS * WARP,
                     0, v, place, chunks);
}

int64_t linear_unpacked_rows(const struct linear_one *o) {
    return o->w[0].tiles * TILE_ROWS * (o->pair ? 2 : 1);
}

void linear_unpack(struct gpu *g, const struct linear_one *o, void *to, int64_t stride) {
    static void (*const launchers[])(struct gpu *, const matrix_view &, const unpack_place &) = {
        unpack_form<WEIGHT_Q2_K>,     unpack_form<WEIGHT_LEVELS8>, unpack_form<WEIGHT_Q4_K>,
        unpack_form<WEIGHT_Q5_K>,     unpack_form<WEIGHT_Q6_K>,    unpack_form<WEIGHT_Q8_0>,
        unpack_form<WEIGHT_Q4_0>,     unpack_form<WEIGHT_MXFP4>,   unpack_form<WEIGHT_NVFP4>,
        unpack_form<WEIGHT_LEVELS16>, unpack_form<WEIGHT_Q5_1>,    unpack_form<WEIGHT_HALF>};
    unpack_place place = {(__half *)to, stride, o->pair, 0};
    for (; place.which < (o->pair ? 2 : 1); place.which++) {
        const matrix_view &v = o->w[place.which];
        launchers[weight_form_of(v.type)](g, v, place);
    }
}

// Takes `fit` tiles off the front of a matrix.
static void take_tiles(matrix_view *from, int64_t fit, matrix_view *taken) {
    int64_t rows = fit * TILE_ROWS;
    *taken = *from;
    taken->tiles = fit;
    taken->m = rows < from->m ? rows : from->m;
    from->data += fit * from->pitch;
    from->exponent += rows;
    from->m -= taken->m;
    from->tiles -= fit;
}

bool linear_take(struct gpu *g, struct linear_launch *l, int64_t halves, struct linear_launch *c) {
    int64_t left = halves / l->stride;
    *c = *l;
    c->jobs = 0;
    for (int j = 0; j < l->jobs; j++) {
        struct linear_one *o = &l->job[j], *taken = &c->job[c->jobs];
        int64_t tiles = o->w[0].tiles, fit = left / (o->pair ? 2 : 1) / TILE_ROWS;
        if (tiles == 0)
            continue;
        fit = fit >= tiles ? tiles : fit / (WHOLE / TILE_ROWS) * (WHOLE / TILE_ROWS);
        if (fit == 0)
            return c->jobs || gpu_check(g, GPU_NO_KERNEL, "linear (unpacking)");
        *taken = *o;
        for (int i = 0; i < (o->pair ? 2 : 1); i++)
            take_tiles(&o->w[i], fit, &taken->w[i]);
        o->out += taken->w[0].m;
        left -= linear_unpacked_rows(taken);
        c->jobs++;
    }
    return c->jobs > 0;
}
