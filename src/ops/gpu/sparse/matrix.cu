// SPDX-License-Identifier: Apache-2.0
// Attention to chosen blocks of keys by mma.sync (sm_80 and newer). A block of threads has a query
// block and a head, a warp 16 rows of it; queries stay in registers. Keys of the next block arrive
// while weights and values of this one are worked on, values while the scores are.
#include "ops/gpu/sparse/tile.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// Keys or values of a block to a tile of rows of D halves: F16 by asynchronous copies, which are
// closed as a group; what is at `end` and after becomes zero.
template <int D>
static __device__ __forceinline__ void bring_block(const struct sparse_places *p, int64_t block,
                                                   int kv, int end, unsigned tile,
                                                   unsigned char *memory) {
    constexpr int PIECES = D / 8, STEP = SPARSE_THREADS / PIECES;
    int at = threadIdx.x % PIECES;
#pragma unroll 4
    for (int row = threadIdx.x / PIECES; row < SPARSE_BLOCK; row += STEP) {
        int place = whole_rows<D>::at(row, at);
        const struct kv_row from = sparse_row(p, block * SPARSE_BLOCK + (row < end ? row : 0), kv);
        if (p->codec == KV_F16) {
            copy_or_zero(tile + (unsigned)place, row < end ? from.codes + at * 16 : NULL);
            continue;
        }
        float x[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        if (row < end)
            kv_load8_as_is(p->codec, from, at, x);
        *(uint4 *)(memory + place) = pack_eight(x);
    }
    copies_close();
}

// s = queries times keys: 16 rows, 128 columns.
template <int D>
static __device__ __forceinline__ void score_block(const unsigned (&a)[D / 16][4], unsigned keys,
                                                   float (&s)[64]) {
    int lane = threadIdx.x % WARP;
    unsigned at[4];
    for (int k = 0; k < 4; k++)
        at[k] = (unsigned)((2 * k + lane / 8 % 2) ^ lane % 8) * 16;
    keys += (unsigned)((lane / 16 * 8 + lane % 8) * D * 2);
#pragma unroll
    for (int i = 0; i < 64; i++)
        s[i] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++)
#pragma unroll
        for (int i = 0; i < 8; i++) {
            unsigned b[4];
            load_four(b, keys + (unsigned)(i * 16 * D * 2) + at[k % 4] + k / 4 * 128);
            mma_k16(s + 8 * i, a[k], b[0], b[1]);
            mma_k16(s + 8 * i + 4, a[k], b[2], b[3]);
        }
}

// acc += weights times values.
template <int D>
static __device__ __forceinline__ void gather_block(const unsigned (&p)[8][4], unsigned values,
                                                    float (&acc)[D / 2]) {
    int lane = threadIdx.x % WARP;
    values += (unsigned)(lane % 16 * D * 2);
#pragma unroll
    for (int k = 0; k < 8; k++)
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            unsigned b[4], at = (unsigned)((2 * i + lane / 16) ^ lane % 8) * 16;
            load_four_turned(b, values + (unsigned)(k * 16 * D * 2) + at);
            mma_k16(acc + 8 * i, p[k], b[0], b[1]);
            mma_k16(acc + 8 * i + 4, p[k], b[2], b[3]);
        }
}

template <int D>
static __global__ void __launch_bounds__(SPARSE_THREADS, 1)
    attend_blocks(const __grid_constant__ struct sparse_run u) {
    extern __shared__ __align__(1024) unsigned char memory[];
    constexpr int TILE = SPARSE_BLOCK * D * 2;
    unsigned keys = shared_address(memory), values = keys + TILE;
    const struct sparse_item t = sparse_item_of(&u);
    int row = threadIdx.x / WARP * 16, own = row + threadIdx.x % WARP / 4;
    unsigned a[D / 16][4];
    float acc[D / 2];
    struct sparse_soft z;
    gpu_await();
    gpu_let_next();
    const int32_t *list = u.list + t.at * u.blocks, count = u.count[t.at];
    int32_t block = list[0];
    bring_block<D>(&u.k, block, t.kv, block == t.m ? t.end : SPARSE_BLOCK, keys, memory);
    sparse_queries<D>(&u, &t, row, a, z.factor);
    sparse_begin(&z);
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        acc[i] = 0;
    for (int j = 0; j < count; j++) {
        int end = block == t.m ? t.end : SPARSE_BLOCK;
        int32_t next = j + 1 < count ? list[j + 1] : -1;
        float s[64], fade[2];
        unsigned p[8][4];
        copies_wait<0>();
        __syncthreads();
        bring_block<D>(&u.v, block, t.kv, end, values, memory + TILE);
        score_block<D>(a, keys, s);
        __syncthreads();
        if (next >= 0)
            bring_block<D>(&u.k, next, t.kv, next == t.m ? t.end : SPARSE_BLOCK, keys, memory);
        else
            copies_close();
        if (block == t.m)
            sparse_hide(s, own);
        sparse_weigh(&z, s, fade);
        sparse_pack(s, p);
        sparse_fade(acc, fade);
        copies_wait<1>();
        __syncthreads();
        gather_block<D>(p, values, acc);
        block = next;
    }
    sparse_put(&u, &t, &z, own, acc);
}

#else

template <int D> static __global__ void attend_blocks(const __grid_constant__ struct sparse_run u) {
    (void)u;
    gpu_await();
}

#endif

extern "C" int sparse_attend_matrix_bytes(int d) {
    return 2 * SPARSE_BLOCK * d * 2;
}

template <int D> static void launch_matrix(struct gpu *g, const struct sparse_run *u) {
    dim3 grid((unsigned)u->rows_blocks, (unsigned)u->n_heads);
    int bytes = sparse_attend_matrix_bytes(D);
    if (gpu_allow_shared(g, (const void *)attend_blocks<D>, bytes, "sparse_attend"))
        gpu_launch_early(g, "sparse_attend", attend_blocks<D>, grid, SPARSE_THREADS, (size_t)bytes,
                         *u);
}

extern "C" void sparse_attend_matrix(struct gpu *g, const struct sparse_run *u) {
    if (u->d == 64)
        launch_matrix<64>(g, u);
    else
        launch_matrix<128>(g, u);
}
