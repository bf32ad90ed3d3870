// SPDX-License-Identifier: Apache-2.0
// Attention of many rows (prompts) by the warpgroup instruction of sm_90a, for F16 keys and values
// of heads of 128 and 256. A block stays for the whole launch and walks its items. Two warpgroups
// have 64 (row, query head) pairs of one kv head each, which are the rows of both products: queries
// times keys make scores, which stay in registers, become weights there, and multiply values. So a
// pair's maximum and sum are its four lanes' own, nothing passes through shared memory but keys and
// values, and while one warpgroup makes weights the other one multiplies. A third warpgroup brings
// keys and values into a ring of stages, over the ends of items.
//
// Every element goes through the same operations in the same order as in attend_matrix.cu (the
// instructions make the same bits whichever factor is the left one: tests/gpu/test_tiles.cu), so
// that either may serve a row.
#include "ops/gpu/attend/attend_long.cuh"
#include "ops/gpu/attend/attend_wgmma.cuh"

enum { MOST_BLOCKS = 256, FOLDED = LONG_PAIRS * 256 }; // with places for folded values; of a block

#if !defined(__CUDA_ARCH__) || defined(ATTEND_LONG)

// The two pairs that a lane has.
struct long_pairs {
    float scale[2], most[2];   // most: of the present part
    float folded[2], total[2]; // maximum and sum of what is folded so far
    int32_t first[2], last[2], split[2];
};
template <class F> struct long_sums {
    float acc[F::PANELS][64], sum[4];
};

// Folded values of a lane, in fours: two of each pair. In registers, or in memory where others are
// next to each other.
template <int D> struct long_folded;
template <> struct long_folded<128> {
    float4 x[16];
    __device__ __forceinline__ void open(float *) {
#pragma unroll
        for (int i = 0; i < 16; i++)
            x[i] = make_float4(0, 0, 0, 0);
    }
    __device__ __forceinline__ float4 get(int i) const {
        return x[i];
    }
    __device__ __forceinline__ void put(int i, float4 v) {
        x[i] = v;
    }
    __device__ __forceinline__ void turn(void) {
    }
};
template <> struct long_folded<256> {
    float4 *at;
    bool some; // is there
    __device__ __forceinline__ void open(float *of_block) {
        at = (float4 *)of_block + threadIdx.x / 128 * (32 * 128) + threadIdx.x % 128;
        some = false;
    }
    __device__ __forceinline__ float4 get(int i) const {
        return some ? __ldcg(at + i * 128) : make_float4(0, 0, 0, 0);
    }
    __device__ __forceinline__ void put(int i, float4 v) {
        __stcg(at + i * 128, v);
    }
    __device__ __forceinline__ void turn(void) {
        some = true;
    }
};

static __device__ __forceinline__ float folded_one(float was, float is, float2 by, bool now) {
    return now ? fmaf(is, by.y, was * by.x) : was;
}

// Folds the part of those pairs for which `now` holds; then put(i, four) for the lane's fours.
template <class F, class PUT>
static __device__ __forceinline__ void long_fold(struct long_pairs *p, struct long_sums<F> *z,
                                                 const struct long_folded<F::D> &x,
                                                 const bool (&now)[2], PUT put) {
    enum { BATCH = 8 };
    float2 by[2];
#pragma unroll
    for (int y = 0; y < 2; y++) {
        by[y] = make_float2(1, 0);
        if (!now[y])
            continue;
        by[y] = attend_fold(&p->folded[y], p->most[y]);
        p->most[y] = -INFINITY;
        p->total[y] = fmaf(z->sum[2 * y], by[y].y, p->total[y] * by[y].x);
        z->sum[2 * y] = z->sum[2 * y + 1] = 0;
    }
#pragma unroll
    for (int i = 0; i < F::PANELS * 16; i += BATCH) {
        float4 was[BATCH];
#pragma unroll
        for (int j = 0; j < BATCH; j++)
            was[j] = x.get(i + j);
#pragma unroll
        for (int j = 0; j < BATCH; j++) {
            float *a = &z->acc[(i + j) / 16][(i + j) % 16 * 4];
            put(i + j, make_float4(folded_one(was[j].x, a[0], by[0], now[0]),
                                   folded_one(was[j].y, a[1], by[0], now[0]),
                                   folded_one(was[j].z, a[2], by[1], now[1]),
                                   folded_one(was[j].w, a[3], by[1], now[1])));
            a[0] = now[0] ? 0 : a[0];
            a[1] = now[0] ? 0 : a[1];
            a[2] = now[1] ? 0 : a[2];
            a[3] = now[1] ? 0 : a[3];
        }
    }
}

static __device__ __forceinline__ int maker_group(void) {
    return threadIdx.x / 128;
}

static __device__ __forceinline__ void makers_sync(void) {
    asm volatile("barrier.sync 1, %0;" ::"n"((int)MAKERS) : "memory");
}

// s = scores of the warpgroup's pairs with the keys at `keys`.
template <class F>
static __device__ __forceinline__ void long_score(unsigned queries, unsigned keys, float (&s)[32]) {
    const unsigned a = attend_low(queries + (unsigned)(maker_group() * 64 * 128));
    const unsigned b = attend_low(keys);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < F::D / 16; k++)
        attend_multiply<64, false>(
            s, attend_operand(a + (unsigned)(k / 4 * LONG_PAIRS * 8 + k % 4 * 2)),
            attend_operand(b + (unsigned)(k / 4 * ATTEND_CHUNK * 8 + k % 4 * 2)), k > 0);
    wgmma_commit();
    wgmma_wait<0>();
    attend_made(s);
}

// Scores of hidden keys to -inf.
static __device__ __forceinline__ void long_hide(const struct long_pairs &p,
                                                 const struct attend_keys *keys, float (&s)[32]) {
    const int q = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 32; i++) {
        const int32_t pos = keys->pos[i / 4 * 8 + q * 2 + i % 2];
        if (pos < p.first[i / 2 % 2] || pos > p.last[i / 2 % 2])
            s[i] = -INFINITY;
    }
}

// Scores to weights, under each pair's new maximum; returns what its sums fade by.
static __device__ __forceinline__ float2 long_weigh(struct long_pairs *p, const float (&s)[32],
                                                    uint32_t (&w)[4][4]) {
    float fade[2], base[2];
#pragma unroll
    for (int y = 0; y < 2; y++) {
        float part = s[2 * y];
#pragma unroll
        for (int i = 0; i < 16; i++)
            part = fmaxf(part, s[i / 2 * 4 + 2 * y + i % 2]);
        part = fmaxf(part, __shfl_xor_sync(0xFFFFFFFFu, part, 1));
        part = fmaxf(part, __shfl_xor_sync(0xFFFFFFFFu, part, 2));
        const float old = p->most[y], most = renewed(old, part * p->scale[y]);
        fade[y] = most == -INFINITY ? 1 : attend_exp2(old - most);
        base[y] = most == -INFINITY ? 0 : most - EXTRA;
        p->most[y] = most;
    }
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const int y = i % 2, at = i / 2 * 4 + 2 * y;
        w[i / 4][i % 4] = pack(attend_exp2(fmaf(s[at], p->scale[y], -base[y])),
                               attend_exp2(fmaf(s[at + 1], p->scale[y], -base[y])));
    }
    return make_float2(fade[0], fade[1]);
}

template <class F>
static __device__ __forceinline__ void long_fade(struct long_sums<F> *z, float2 fade) {
#pragma unroll
    for (int i = 0; i < F::PANELS * 64; i++)
        z->acc[i / 64][i % 64] *= i / 2 % 2 ? fade.y : fade.x;
#pragma unroll
    for (int i = 0; i < 4; i++)
        z->sum[i] *= i / 2 ? fade.y : fade.x;
}

// Sums of weights, then acc += weights times the values at `values`, when they are there.
template <class F>
static __device__ __forceinline__ void long_gather(struct long_sums<F> *z, uint32_t (&w)[4][4],
                                                   unsigned values, unsigned full,
                                                   unsigned parity) {
    const unsigned ones[2] = {0x3C003C00u, 0x3C003C00u};
#pragma unroll
    for (int k = 0; k < 4; k++)
        multiply(z->sum, w[k], ones);
    barrier_wait(full, parity);
    const unsigned b = attend_low_panels(values);
#pragma unroll
    for (int k = 0; k < 4; k++)
        wgmma_keep(w[k]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int j = 0; j < F::PANELS; j++)
            attend_gather(z->acc[j], w[k],
                          attend_operand(b + (unsigned)(j * 2 * ATTEND_CHUNK * 8 + k * 128)));
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (int j = 0; j < F::PANELS; j++)
        attend_made(z->acc[j]);
}

// A warp has left a tile.
template <class F> static __device__ __forceinline__ void long_leave(unsigned base, int tile) {
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(empty_at<F>(base, tile));
}

// All chunks of an item; *tile: of its first keys, then behind its last values.
template <class F>
static __device__ __forceinline__ void
long_chunks(const struct attend_item *t, unsigned char *memory, struct long_pairs *p,
            struct long_sums<F> *z, struct long_folded<F::D> *x, int *tile) {
    const unsigned base = shared_address(memory);
    int turn = attend_part_begin(attend_part(t->chunk) + 1);
#pragma unroll 1
    for (int chunk = t->chunk; chunk < t->end; chunk++, *tile += 2) {
        const int stage = *tile / 2 % F::STAGES, from = chunk * ATTEND_CHUNK;
        const unsigned parity = (unsigned)(*tile / 2 / F::STAGES & 1);
        const struct long_keys *k = (const struct long_keys *)(memory + F::KEYS) + stage;
        const bool begins = chunk == turn;
        const bool now[2] = {
            chunk > t->chunk && (chunk == p->split[0] || (begins && chunk < p->split[0])),
            chunk > t->chunk && (chunk == p->split[1] || (begins && chunk < p->split[1]))};
        float s[32];
        uint32_t w[4][4];
        if (begins)
            turn = attend_part_begin(attend_part(chunk) + 1);
        if (__any_sync(0xFFFFFFFFu, now[0] || now[1])) {
            long_fold<F>(p, z, *x, now, [&](int i, float4 v) { x->put(i, v); });
            x->turn();
        }
        barrier_wait(full_at<F>(base, *tile), parity);
        long_score<F>(base + F::Q, base + (unsigned)(F::K + stage * F::TILE), s);
        const bool sees = k->whole && from >= p->first[0] && from >= p->first[1] &&
                          from + ATTEND_CHUNK <= p->last[0] + 1 &&
                          from + ATTEND_CHUNK <= p->last[1] + 1;
        if (!__all_sync(0xFFFFFFFFu, sees))
            long_hide(*p, &k->keys, s);
        long_leave<F>(base, *tile);
        const float2 fade = long_weigh(p, s, w);
        if (__any_sync(0xFFFFFFFFu, fade.x != 1 || fade.y != 1))
            long_fade<F>(z, fade);
        long_gather<F>(z, w, base + (unsigned)(F::V + stage * F::TILE), full_at<F>(base, *tile + 1),
                       parity);
        long_leave<F>(base, *tile + 1);
    }
}

static __device__ __forceinline__ int own_pair(int y) {
    return (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4 + 8 * y;
}

// The pairs of an item and their queries; all threads that make.
template <class F>
static __device__ __forceinline__ void long_open(const struct attend_run *u, const struct work *b,
                                                 struct state<F::T> *m, struct long_pairs *p) {
    makers_sync(); // the item before is done with
    find_pairs<F::T>(u, b, m);
    makers_sync();
    load_queries<F>(u, b, m, LONG_PAIRS);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    makers_sync();
#pragma unroll
    for (int y = 0; y < 2; y++) {
        const int pair = own_pair(y);
        p->scale[y] = m->scale[pair];
        p->first[y] = m->first[pair];
        p->last[y] = m->last[pair];
        p->split[y] = m->split[pair];
        p->most[y] = p->folded[y] = -INFINITY;
        p->total[y] = 0;
    }
}

// The last fold and the outputs.
template <class F>
static __device__ __forceinline__ void
long_end(const struct attend_run *u, const struct work *b, const struct state<F::T> *m,
         struct long_pairs *p, struct long_sums<F> *z, const struct long_folded<F::D> &x) {
    const bool now[2] = {true, true};
    int32_t row[2], head[2];
    float *out[2], sum[2];
    bool there[2];
#pragma unroll
    for (int y = 0; y < 2; y++) {
        const int pair = own_pair(y), place = m->place[pair];
        there[y] = pair < b->t.n_pairs;
        row[y] = place / u->n_heads;
        head[y] = place - row[y] * u->n_heads;
        out[y] = u->out + row[y] * u->out_stride + head[y] * F::D;
        // As long_fold will have it.
        float most = p->folded[y];
        const float2 by = attend_fold(&most, p->most[y]);
        sum[y] = attend_sunk(u, head[y], most, fmaf(z->sum[2 * y], by.y, p->total[y] * by.x));
    }
    long_fold<F>(p, z, x, now, [&](int i, float4 v) {
        const int at = i * 8 + (int)threadIdx.x % 4 * 2;
        if (there[0])
            *(float2 *)(out[0] + at) =
                make_float2(attend_output(u, row[0], head[0], at, v.x, sum[0]),
                            attend_output(u, row[0], head[0], at + 1, v.y, sum[0]));
        if (there[1])
            *(float2 *)(out[1] + at) =
                make_float2(attend_output(u, row[1], head[1], at, v.z, sum[1]),
                            attend_output(u, row[1], head[1], at + 1, v.w, sum[1]));
    });
}

// Makes the outputs of all items of this block.
template <class F>
static __device__ __forceinline__ void long_make(const struct attend_run *u, int items,
                                                 unsigned char *memory, float *folded) {
    struct state<F::T> *m = (struct state<F::T> *)(memory + F::STATE);
    int tile = 0;
#pragma unroll 1
    for (int at = blockIdx.x; at < items * u->n_kv; at += (int)gridDim.x) {
        const struct work b = long_work(u, items, at, memory);
        struct long_pairs p;
        struct long_sums<F> z;
        struct long_folded<F::D> x;
        long_open<F>(u, &b, m, &p);
        x.open(folded + (int64_t)blockIdx.x * FOLDED);
#pragma unroll
        for (int i = 0; i < F::PANELS * 64; i++)
            z.acc[i / 64][i % 64] = 0;
        z.sum[0] = z.sum[1] = z.sum[2] = z.sum[3] = 0;
        long_chunks<F>(&b.t, memory, &p, &z, &x, &tile);
        long_end<F>(u, &b, m, &p, &z, x);
    }
}

// Blocks at most one for each of the items x n_kv.
template <class F>
static __global__ void __launch_bounds__(MAKERS + BRINGERS, 1)
    attend_long_kernel(const __grid_constant__ struct attend_run u, int items, float *folded) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const unsigned base = shared_address(memory);
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2 * F::STAGES; i++) {
            barrier_init(base + F::BARS + i * 8, BRINGERS);
            barrier_init(base + F::BARS + (2 * F::STAGES + i) * 8, F::WARPS);
        }
    }
    gpu_await();
    gpu_let_next();
    __syncthreads();
    if (threadIdx.x >= MAKERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        long_bring<F>(&u, items, memory);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
        long_make<F>(&u, items, memory, folded);
    }
}

#else

template <int D> struct long_form {
    static constexpr int BYTES = 0;
};

// Other devices take attend_matrix.
template <class F>
static __global__ void attend_long_kernel(const __grid_constant__ struct attend_run u, int items,
                                          float *folded) {
    (void)u, (void)items, (void)folded;
    gpu_await();
}

#endif

template <class F>
static void launch(struct gpu *g, const struct attend_run *u, const struct attend_plan *p,
                   float *folded) {
    const int64_t all = (int64_t)p->n_items * u->n_kv;
    const int most = g->processors < MOST_BLOCKS ? g->processors : (int)MOST_BLOCKS;
    const unsigned blocks = (unsigned)(all < most ? all : most);
    if (blocks && gpu_check(g, gpu_allow_shared(attend_long_kernel<F>, F::BYTES), "attend"))
        gpu_launch_saying({g, "attend", attend_says(u)}, attend_long_kernel<F>, blocks,
                          MAKERS + BRINGERS, F::BYTES, *u, p->n_items, folded);
}

extern "C" size_t attend_long_bytes(int head_dim) {
    return head_dim == 256 ? (size_t)MOST_BLOCKS * FOLDED * sizeof(float) : 0;
}

extern "C" void attend_long(struct gpu *g, const struct attend_run *u,
                            const struct attend_plan *p) {
    if (u->dk == 128) {
        launch<long_form<128>>(g, u, p, NULL);
        return;
    }
    float *folded = (float *)gpu_scratch(g, attend_long_bytes(256));
    if (folded)
        launch<long_form<256>>(g, u, p, folded);
}
