// SPDX-License-Identifier: Apache-2.0
// Linear layers over many rows on sm_90a. A block makes 128 outputs for 128 rows with two
// warpgroups: each turns its 64 outputs' weights into fp16 fragments in registers, 64 of k at a
// time, and multiplies them with activations that wait in shared memory, three stages deep. Two
// blocks share a multiprocessor, so that one converts while the other multiplies. The weights'
// numbers, the order of k and its parts are those of the mma.sync path, and so are the bits.
#include "ops/gpu/linear/form/dequant.cuh"
#include "ops/gpu/linear/many/many.h"
#include "ops/gpu/matrix/async_copy.cuh"
#include "ops/gpu/matrix/wgmma.cuh"
#include "ops/gpu/runtime/gpu.h"

enum {
    COLUMNS = 128, // activation rows of a block
    GROUPS = 2,    // warpgroups
    BLOCK_TILES = 4 * GROUPS,
    THREADS = 128 * GROUPS,
    STEP = 64, // k of a stage
    STAGES = 3,
    SUMS = COLUMNS / 2, // of a thread
    ROW_BYTES = STEP * 2,
    STAGE_SIZE = COLUMNS * ROW_BYTES,
    SHARED = STAGES * STAGE_SIZE + SUMS * THREADS * 4,
};

// In code for other devices the kernels are empty.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Starts the copy of STEP values from k on of the block's rows into a stage, in the 128-byte
// swizzle. Rows beyond the last repeat it.
static __device__ __forceinline__ void load_stage(const linear_launch &a, unsigned char *stage,
                                                  int64_t first, int64_t k) {
    for (int i = threadIdx.x; i < COLUMNS * 8; i += THREADS) {
        int row = i / 8, piece = i % 8;
        int64_t r = first + row < a.n ? first + row : a.n - 1;
        const __half *src = a.x + r * a.stride + k + piece * 8;
        uint32_t to = shared_address(stage + row * ROW_BYTES + (piece ^ row % 8) * 16);
        copy_piece(to, src);
    }
}

// Weights of section `at` (64 of k); a chunk of the form may hold several.
template <int FORM>
static __device__ __forceinline__ void next_section(dequant<FORM> &q, const unsigned char *tile,
                                                    int64_t at, int lane) {
    enum { SECTIONS = dequant<FORM>::SPAN / STEP };
    const unsigned char *chunk = tile + at / SECTIONS * dequant<FORM>::CHUNK;
    if (at % SECTIONS == 0)
        q.open(chunk, at * STEP, lane);
    q.section(chunk, (int)(at % SECTIONS), lane);
}

// Adds the sums of a part to those before it: they lie in shared memory, each thread its own.
static __device__ __forceinline__ void close_part(float (&d)[SUMS], float *total, bool first) {
#pragma unroll
    for (int i = 0; i < SUMS; i++) {
        float *t = total + i * THREADS + threadIdx.x;
        *t = first ? d[i] : *t + d[i];
        d[i] = 0;
    }
}

static __device__ __forceinline__ void store_sums(const linear_launch &a, const linear_one &job,
                                                  int64_t tile, int64_t first, const float *total) {
    int lane = threadIdx.x % WARP;
    for (int i = 0; i < SUMS; i++) {
        int64_t row = first + i / 4 * 8 + lane % 4 * 2 + i % 2;
        int64_t m = tile * TILE_ROWS + lane / 4 + i / 2 % 2 * 8;
        if (row >= a.n || m >= job.w[0].m)
            continue;
        float v = total[i * THREADS + threadIdx.x];
        v = v * __int_as_float((127 - job.w[0].exponent[m]) << 23) * a.unscale[row];
        float *out = job.out + row * job.out_stride + m;
        *out = job.add ? *out + v : v;
    }
}
#endif

template <int FORM>
static __global__ __launch_bounds__(THREADS, 2) void linear_wgmma(const linear_launch a) {
    gpu_await();
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char shared[];
    float *total = (float *)(shared + STAGES * STAGE_SIZE);
    int lane = threadIdx.x % WARP;
    int64_t first = (int64_t)blockIdx.y * COLUMNS;
    int n_job = 0;
    while (n_job + 1 < a.jobs && blockIdx.x >= a.job[n_job + 1].first)
        n_job++;
    const linear_one &job = a.job[n_job];
    const matrix_view &w = job.w[0];
    int64_t tile = (blockIdx.x - job.first) * BLOCK_TILES + threadIdx.x / WARP;
    int64_t mine = tile < w.tiles ? tile : w.tiles - 1, steps = a.stride / STEP;
    const unsigned char *weights = w.data + mine * w.pitch;
    dequant<FORM> q;
    float d[SUMS];
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        d[i] = 0;
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps)
            load_stage(a, shared + s * STAGE_SIZE, first, s * STEP);
        copies_close();
    }
    next_section<FORM>(q, weights, 0, lane);
    int part = 0;
    int64_t end = linear_part_begin(w.k, job.parts, 1) / STEP;
    for (int64_t at = 0; at < steps; at++) {
        uint32_t f[STEP / 16][dequant<FORM>::TERMS][4];
#pragma unroll
        for (int i = 0; i < STEP / 16; i++)
            q.step(i, f[i]);
#pragma unroll
        for (int i = 0; i < STEP / 16; i++)
#pragma unroll
            for (int t = 0; t < dequant<FORM>::TERMS; t++)
                wgmma_keep(f[i][t]);
        copies_wait<STAGES - 2>();
        show_shared();
        __syncthreads();
        int64_t ahead = at + STAGES - 1;
        if (ahead < steps)
            load_stage(a, shared + ahead % STAGES * STAGE_SIZE, first, ahead * STEP);
        copies_close();
        const unsigned char *stage = shared + at % STAGES * STAGE_SIZE;
        // The next weights are requested in front of the products, into registers other than those
        // of f. After them the assembler would give them f's (matrix/wgmma.cuh).
        if (at + 1 < steps)
            next_section<FORM>(q, weights, at + 1, lane);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < STEP / 16; i++)
#pragma unroll
            for (int t = 0; t < dequant<FORM>::TERMS; t++)
                wgmma_step<COLUMNS>(d, f[i][t], wgmma_rows(stage + i * 32));
        wgmma_commit();
        wgmma_wait<0>();
        if (at + 1 == end || at + 1 == steps) {
            close_part(d, total, part == 0);
            end = linear_part_begin(w.k, job.parts, ++part + 1) / STEP;
        }
    }
    if (tile < w.tiles)
        store_sums(a, job, tile, first, total);
#else
    (void)a;
#endif
}

template <int FORM> static void launch(struct gpu *g, const linear_launch *l, unsigned blocks) {
    dim3 grid(blocks, (unsigned)((l->n + COLUMNS - 1) / COLUMNS));
    gpu_allow_shared(g, (const void *)linear_wgmma<FORM>, SHARED, "linear (wgmma)");
    gpu_launch_saying({g, "linear (wgmma)", LINEAR_WHOLE}, linear_wgmma<FORM>, grid, THREADS,
                      SHARED, *l);
}

void linear_wgmma_launch(struct gpu *g, struct linear_launch *l) {
    int64_t blocks = 0;
    for (int j = 0; j < l->jobs; j++) {
        l->job[j].first = blocks;
        blocks += (l->job[j].w[0].tiles + BLOCK_TILES - 1) / BLOCK_TILES;
    }
    launch<WEIGHT_FLOAT>(g, l, (unsigned)blocks);
}
