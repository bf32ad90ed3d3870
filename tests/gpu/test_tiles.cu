// SPDX-License-Identifier: Apache-2.0
// Rule E1 rests on this: the bits of an element of a matrix product, made by matrix instructions in
// one K order, depend neither on the number of columns of the instruction nor on the element's
// place in the tile. Random products are made by mma.sync m16n8k16 one column at a time, each
// column in a random place among unrelated ones, and compared with whole tiles of every width and
// instruction. `test_tiles [tiles]`: tiles of 16 x 8 elements to look at, a million by default.
// m16n8k8 has an order of sums of its own and is compared with itself only.
#include <stdio.h>
#include <stdlib.h>

#include "ops/gpu/matrix/wgmma.cuh"
#include "ops/gpu/runtime/gpu.h"

enum { M = 64, N = 256, K = 512, BATCH = 256 };

// One product of a batch: a [M][K], b [N][K] (column n of B is row n here), out [N][M].
static __device__ __half random_half(uint64_t i, uint64_t seed) {
    uint64_t z = (i + seed) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    // Magnitudes over 2^-6 .. 2^6, so that sums cancel and round.
    float x = (float)((int64_t)(z & 0xFFFF) - 32768) / 32768.0f;
    return __float2half_rn(ldexpf(x, (int)(z >> 16 & 15) % 13 - 6));
}

static __global__ void fill(__half *p, uint64_t n, uint64_t seed) {
    for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        p[i] = random_half(i, seed);
}

static __device__ __forceinline__ uint32_t two(const __half *p) {
    return *(const uint32_t *)p;
}

// Fragments of A for 16 rows from `a` on, 16 of K.
static __device__ __forceinline__ void load_a(uint32_t (&f)[4], const __half *a) {
    int row = threadIdx.x % 32 / 4, col = threadIdx.x % 4 * 2;
    f[0] = two(a + row * K + col);
    f[1] = two(a + (row + 8) * K + col);
    f[2] = two(a + row * K + col + 8);
    f[3] = two(a + (row + 8) * K + col + 8);
}

template <int STEP>
static __device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4],
                                           const uint32_t (&b)[2]) {
    if constexpr (STEP == 16) {
#if __CUDA_ARCH__ >= 800
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
        (void)d, (void)a, (void)b;
#endif
    } else {
        for (int h = 0; h < 2; h++)
            asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                         "{%4, %5}, {%6}, {%0, %1, %2, %3};"
                         : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                         : "r"(a[2 * h]), "r"(a[2 * h + 1]), "r"(b[h]));
    }
}

// One warp makes 16 x 8 elements. spread: column n alone in a random place of its tile, with
// columns of other numbers around it; otherwise columns in order.
template <int STEP>
static __global__ void product(const __half *a, const __half *b, float *out, bool spread) {
    int tile = blockIdx.x % (N / 8), m = blockIdx.x / (N / 8) % (M / 16) * 16;
    int64_t batch = blockIdx.x / (N / 8) / (M / 16);
    a += batch * M * K + m * K;
    b += batch * N * K;
    out += batch * M * N;
    int lane = threadIdx.x, rounds = spread ? 8 : 1;
    for (int r = 0; r < rounds; r++) {
        uint32_t hash = (blockIdx.x * 8 + r) * 2654435761u;
        int place = hash >> 29, wanted = tile * 8 + r; // of the tile; the column looked for
        int mine = spread ? (int)((hash >> 7) + lane / 4 * 37) % N : tile * 8 + lane / 4;
        if (spread && lane / 4 == place)
            mine = wanted;
        float d[4] = {0, 0, 0, 0};
        for (int k = 0; k < K; k += 16) {
            uint32_t fa[4], fb[2];
            load_a(fa, a + k);
            fb[0] = two(b + mine * K + k + lane % 4 * 2);
            fb[1] = two(b + mine * K + k + lane % 4 * 2 + 8);
            mma<STEP>(d, fa, fb);
        }
        for (int i = 0; i < 4; i++) {
            int column = lane % 4 * 2 + i % 2, row = m + lane / 4 + i / 2 * 8;
            if (!spread)
                out[(tile * 8 + column) * M + row] = d[i];
            else if (column == place)
                out[wanted * M + row] = d[i];
        }
    }
}

// One warpgroup makes 64 x W elements; column n of the window is column (first + n) % N.
template <int W>
static __global__ void product_wgmma(const __half *a, const __half *b, float *out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char shared[];
    int window = blockIdx.x % (N / W), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int64_t batch = blockIdx.x / (N / W);
    int first = window * W + (int)(batch * 37); // any place in the tile
    a += batch * M * K + warp * 16 * K;
    b += batch * N * K;
    out += batch * M * N;
    float d[W / 2];
    for (int i = 0; i < W / 2; i++)
        d[i] = 0;
    for (int k = 0; k < K; k += 64) {
        __syncthreads();
        for (int i = threadIdx.x; i < W * 8; i += 128) {
            int row = i / 8, piece = i % 8;
            const __half *src = b + (int64_t)((first + row) % N) * K + k + piece * 8;
            *(uint4 *)(shared + row * 128 + (piece ^ row % 8) * 16) = *(const uint4 *)src;
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        uint32_t fa[4][4];
        for (int s = 0; s < 4; s++)
            load_a(fa[s], a + k + s * 16);
        wgmma_fence();
        for (int s = 0; s < 4; s++)
            wgmma_step<W>(d, fa[s], wgmma_rows(shared + s * 32));
        wgmma_commit();
        wgmma_wait<0>();
    }
    for (int i = 0; i < W / 2; i++) {
        int column = i / 4 * 8 + lane % 4 * 2 + i % 2, row = warp * 16 + lane / 4 + i / 2 % 2 * 8;
        out[(first + column) % N * M + row] = d[i];
    }
#else
    (void)a, (void)b, (void)out;
#endif
}

static __global__ void compare(const float *x, const float *y, int64_t n,
                               unsigned long long *differ) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && __float_as_uint(x[i]) != __float_as_uint(y[i]))
        atomicAdd(differ, 1ull); // a count of integers: its order does not matter
}

struct rig {
    __half *a, *b;
    float *want, *got;
    unsigned long long *differ;
};

enum { VARIANTS = 8 };
static const char *const names[VARIANTS] = {"mma.sync m16n8k16, columns scattered",
                                            "mma.sync m16n8k8, columns scattered",
                                            "wgmma m64n8k16",
                                            "wgmma m64n32k16",
                                            "wgmma m64n64k16",
                                            "wgmma m64n128k16",
                                            "wgmma m64n256k16",
                                            "mma.sync m16n8k8 against m16n8k16 (for information)"};

template <int W> static void run_wgmma(const struct rig *r) {
    gpu_set_shared(product_wgmma<W>, W * 128);
    product_wgmma<W><<<BATCH *(N / W), 128, W * 128>>>(r->a, r->b, r->got);
}

static void run_variant(const struct rig *r, int v) {
    const int blocks = BATCH * (N / 8) * (M / 16);
    if (v == 0)
        product<16><<<blocks, 32>>>(r->a, r->b, r->got, true);
    if (v == 1)
        product<8><<<blocks, 32>>>(r->a, r->b, r->got, true);
    if (v == 2)
        run_wgmma<8>(r);
    if (v == 3)
        run_wgmma<32>(r);
    if (v == 4)
        run_wgmma<64>(r);
    if (v == 5)
        run_wgmma<128>(r);
    if (v == 6)
        run_wgmma<256>(r);
    if (v == 7)
        product<8><<<blocks, 32>>>(r->a, r->b, r->got, false);
}

// Elements of one batch that differ from the reference in order.
static int64_t differences(const struct rig *r, int v) {
    const int64_t n = (int64_t)BATCH * M * N;
    const int blocks = BATCH * (N / 8) * (M / 16);
    unsigned long long count = 0;
    if (v == 1)
        product<8><<<blocks, 32>>>(r->a, r->b, r->want, false);
    else
        product<16><<<blocks, 32>>>(r->a, r->b, r->want, false);
    cudaMemset(r->got, 0xFF, (size_t)n * sizeof(float));
    cudaMemset(r->differ, 0, sizeof count);
    run_variant(r, v);
    compare<<<(unsigned)((n + 255) / 256), 256>>>(r->want, r->got, n, r->differ);
    cudaMemcpy(&count, r->differ, sizeof count, cudaMemcpyDeviceToHost);
    return (int64_t)count;
}

// Whether a GPU of this capability has the instructions of a variant.
static bool has_variant(const cudaDeviceProp *p, int v) {
    if (v == 1)
        return true;
    return v == 0 || v == 7 ? p->major >= 8 : p->major == 9 && p->minor == 0;
}

int main(int argc, char **argv) {
    int64_t wanted = argc > 1 ? atoll(argv[1]) : 1000000;
    const int64_t per_batch = (int64_t)BATCH * M * N / 128;
    int64_t batches = (wanted + per_batch - 1) / per_batch, totals[VARIANTS] = {0};
    struct rig r;
    cudaMalloc(&r.a, sizeof(__half) * BATCH * M * K);
    cudaMalloc(&r.b, sizeof(__half) * BATCH * N * K);
    cudaMalloc(&r.want, sizeof(float) * BATCH * M * N);
    cudaMalloc(&r.got, sizeof(float) * BATCH * M * N);
    cudaMalloc(&r.differ, sizeof(unsigned long long));
    cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, 0) != cudaSuccess) {
        printf("no usable GPU\n0 passed, 1 failed\n");
        return 1;
    }
    for (int64_t i = 0; i < batches; i++) {
        fill<<<1024, 256>>>(r.a, (uint64_t)BATCH * M * K, (uint64_t)i << 40);
        fill<<<1024, 256>>>(r.b, (uint64_t)BATCH * N * K, (uint64_t)i << 40 | 1ull << 39);
        for (int v = 0; v < VARIANTS; v++)
            if (has_variant(&p, v))
                totals[v] += differences(&r, v);
    }
    int failed = 0, passed = 0;
    gpu_error code = cudaDeviceSynchronize();
    for (int v = 0; v < VARIANTS; v++) {
        bool ran = has_variant(&p, v);
        printf("%-52s %s%lld of %lld elements differ\n", names[v], ran ? "" : "not run; ",
               (long long)totals[v], (long long)(ran ? batches * per_batch * 128 : 0));
        if (v < 7 && ran)
            *(totals[v] ? &failed : &passed) += 1;
    }
    if (code != GPU_OK) {
        printf("the device failed: %s\n", gpu_error_text(code));
        failed++;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
