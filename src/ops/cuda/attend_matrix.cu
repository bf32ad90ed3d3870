// SPDX-License-Identifier: Apache-2.0
// Attention by matrix instructions (mma.sync m16n8k16, f32 sums), for heads of 64, 128 and 256
// values and K and V of at most 16 bits a value. A warp takes 16 (row, query head) pairs; the
// warps of a block share the keys of a chunk, which arrive while they work on the one before.
// Queries become fp16 times a power of two of their own; BF16 and Q8_0 keys become the nearest
// fp16 (BF16 exactly, but for the least magnitudes; beyond 65504 they end there). Weights of a
// chunk are fp16, up to 1024; sums use the rounded ones. A pair's operations do not depend on
// where it lies, and a hidden key adds zeros, so rule E2 holds as attend_plan.h says.
#include "ops/cuda/attend.cuh"

enum { WARPS_MOST = 8, EXTRA = 10 }; // 2^EXTRA: the largest weight

// Shared memory, all halves in rows of D whose 16-byte pieces are exchanged by piece ^ (row % 8).
struct layout {
    struct attend_keys keys[2];
    float scale[WARPS_MOST * ATTEND_TILE];
};

// What a thread knows of its two pairs (fragment rows lane / 4 and lane / 4 + 8).
struct pairs {
    bool here[2];
    int32_t first[2], last[2], split[2];
    float most[2], sum[2];         // of the present part
    float all_most[2], all_sum[2]; // of the parts before
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

static __device__ inline unsigned shared_address(const void *p) {
    return (unsigned)__cvta_generic_to_shared(p);
}

template <int D> static __device__ inline unsigned piece_at(unsigned base, int row, int piece) {
    return base + (unsigned)(row * D * 2 + (piece ^ row % 8) * 16);
}

static __device__ inline void load_four(unsigned *r, unsigned at, bool turned) {
    if (turned)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(at)
                     : "memory");
}

static __device__ inline void multiply(float *c, const unsigned *a, const unsigned *b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ inline void copy_piece(unsigned to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from ? from : ""),
                 "r"(from ? 16 : 0)
                 : "memory");
}

static __device__ inline void close_copies(void) {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// All groups but the newest have landed.
static __device__ inline void await_copies(void) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
}

static __device__ inline unsigned pack(float a, float b) {
    __half2 h = __floats2half2_rn(a, b);
    return *(unsigned *)&h;
}

static __device__ inline float bounded(float x) {
    return fminf(fmaxf(x, -65504.0f), 65504.0f);
}

// The keys or values of a chunk into shared memory; F16 by asynchronous copies.
template <int D>
static __device__ inline void load_tile(const struct attend_run *u, const struct attend_keys *keys,
                                        bool value, int kv, unsigned char *tile) {
    constexpr int PIECES = D / 8;
    uint32_t type = value ? u->type_v : u->type_k;
    unsigned base = shared_address(tile);
    for (int i = threadIdx.x; i < ATTEND_CHUNK * PIECES; i += blockDim.x) {
        int slot = i / PIECES, at = i % PIECES;
        const unsigned char *from = attend_key(u, keys, slot, value, kv);
        if (type == TYPE_F16) {
            copy_piece(piece_at<D>(base, slot, at), from ? from + at * 16 : NULL);
            continue;
        }
        float x[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        if (from)
            attend_load8(from, type, at, x);
        for (int j = 0; j < 8; j++)
            x[j] = bounded(x[j]);
        *(uint4 *)(tile + (piece_at<D>(base, slot, at) - base)) =
            make_uint4(pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7]));
    }
}

// The warp's 16 queries, zeros where there is no pair; scale[i] takes scores to units of log 2.
template <int D>
static __device__ inline void load_queries(const struct attend_run *u, const struct attend_item *t,
                                           int kv, unsigned char *tile, float *scale) {
    int lane = threadIdx.x % 32, first = threadIdx.x / 32 * ATTEND_TILE;
    for (int i = 0; i < ATTEND_TILE; i++) {
        float x[D / 32] = {}, most = 0;
        if (first + i < t->n_pairs) {
            int pair = t->pair + first + i;
            int64_t row = u->list[t->list + pair / u->group];
            const float *q = u->q + (row * u->n_heads + kv * u->group + pair % u->group) * D;
            for (int j = 0; j < D / 32; j++)
                x[j] = q[j * 32 + lane];
        }
        for (int j = 0; j < D / 32; j++)
            most = fmaxf(most, fabsf(x[j]));
        for (int d = 16; d; d /= 2)
            most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, d));
        int e = most > 0 && most < INFINITY ? 14 - ilogbf(most) : 0;
        e = e > 100 ? 100 : e;
        for (int j = 0; j < D / 32; j++) {
            int at = j * 32 + lane;
            *(__half *)(tile + (first + i) * D * 2 + (at / 8 ^ i % 8) * 16 + at % 8 * 2) =
                __float2half_rn(x[j] * ldexpf(1, e));
        }
        if (lane == 0)
            scale[first + i] = u->scale * 1.44269504f * ldexpf(1, -e);
    }
}

// The item's pair in fragment row lane / 4 + 8 i of the warp.
static __device__ inline int pair_at(int i) {
    return threadIdx.x / 32 * ATTEND_TILE + threadIdx.x % 32 / 4 + 8 * i;
}

static __device__ inline int32_t row_at(const struct attend_run *u, const struct attend_item *t,
                                        int i) {
    return u->list[t->list + (t->pair + pair_at(i)) / u->group];
}

// Which keys the thread's pairs may see.
static __device__ inline void find_pairs(const struct attend_run *u, const struct attend_item *t,
                                         struct pairs *p) {
    for (int i = 0; i < 2; i++) {
        p->here[i] = pair_at(i) < t->n_pairs;
        p->split[i] = 0;
        p->first[i] = INT32_MAX;
        p->last[i] = -1;
        p->most[i] = p->all_most[i] = -INFINITY;
        p->sum[i] = p->all_sum[i] = 0;
        if (!p->here[i])
            continue;
        const struct attend_row *r = &u->rows[row_at(u, t, i)];
        p->first[i] = r->first;
        p->last[i] = r->last;
        p->split[i] = r->split;
    }
}

// Whether pair i takes part in a chunk.
static __device__ inline bool takes_part(const struct attend_item *t, const struct pairs *p, int i,
                                         int chunk) {
    if (!p->here[i] || t->kind == ATTEND_WHOLE)
        return p->here[i];
    return (chunk * ATTEND_CHUNK < p->split[i]) == (t->kind == ATTEND_SHARED);
}

// s = Q K^T of the warp's pairs and the chunk's 64 keys, in units of log 2.
template <int D>
static __device__ inline void score(unsigned queries, unsigned tile, const float *scale,
                                    float s[8][4]) {
    int lane = threadIdx.x % 32, first = threadIdx.x / 32 * ATTEND_TILE;
    for (int n = 0; n < 8; n++)
        s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll 4
    for (int k = 0; k < D / 16; k++) {
        unsigned a[4], b[4];
        load_four(a, piece_at<D>(queries, first + lane % 16, 2 * k + lane / 16), false);
#pragma unroll
        for (int n = 0; n < 4; n++) {
            load_four(b, piece_at<D>(tile, n * 16 + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2),
                      false);
            multiply(s[2 * n], a, b);
            multiply(s[2 * n + 1], a, b + 2);
        }
    }
    float s0 = scale[first + lane / 4], s1 = scale[first + lane / 4 + 8];
    for (int n = 0; n < 8; n++) {
        s[n][0] *= s0;
        s[n][1] *= s0;
        s[n][2] *= s1;
        s[n][3] *= s1;
    }
}

// Hidden keys to -inf. All threads of the warp ask the same question first.
static __device__ inline void hide(const struct attend_item *t, const struct pairs *p,
                                   const struct attend_keys *keys, int chunk, float s[8][4]) {
    int begin = chunk * ATTEND_CHUNK, end = begin + ATTEND_CHUNK;
    bool part[2], plain = end <= t->len && keys->pos[0] >= 0;
    for (int i = 0; i < 2; i++) {
        part[i] = takes_part(t, p, i, chunk);
        bool all = part[i] && p->first[i] <= begin && p->last[i] >= end - 1;
        plain = plain && (all || !p->here[i]);
    }
    if (__all_sync(0xFFFFFFFFu, plain))
        return;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int pos = keys->pos[n * 8 + threadIdx.x % 4 * 2 + i % 2];
            if (!part[i / 2] || pos < p->first[i / 2] || pos > p->last[i / 2])
                s[n][i] = -INFINITY;
        }
}

// Scores to weights under the new maximum; fade[i] takes what pair i summed before to it.
static __device__ inline void weigh(struct pairs *p, float s[8][4], unsigned w[8][2], float *fade) {
    for (int i = 0; i < 2; i++) {
        float most = -INFINITY, sum = 0;
        for (int n = 0; n < 8; n++)
            most = fmaxf(most, fmaxf(s[n][2 * i], s[n][2 * i + 1]));
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, 2));
        most = fmaxf(most, p->most[i]);
        float base = most == -INFINITY ? 0 : most - EXTRA;
        for (int n = 0; n < 8; n++) {
            w[n][i] = pack(attend_exp2(s[n][2 * i] - base), attend_exp2(s[n][2 * i + 1] - base));
            float2 v = __half22float2(*(__half2 *)&w[n][i]);
            sum += v.x + v.y;
        }
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
        fade[i] = most == -INFINITY ? 1 : attend_exp2(p->most[i] - most);
        p->sum[i] = fmaf(p->sum[i], fade[i], sum);
        p->most[i] = most;
    }
}

// acc = acc * fade + weights V.
template <int D>
static __device__ inline void gather(unsigned tile, const unsigned w[8][2], const float *fade,
                                     float acc[D / 8][4]) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
        acc[n][0] *= fade[0];
        acc[n][1] *= fade[0];
        acc[n][2] *= fade[1];
        acc[n][3] *= fade[1];
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        unsigned a[4] = {w[2 * k][0], w[2 * k][1], w[2 * k + 1][0], w[2 * k + 1][1]}, b[4];
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            load_four(b, piece_at<D>(tile, k * 16 + lane % 16, 2 * n + lane / 16), true);
            multiply(acc[2 * n], a, b);
            multiply(acc[2 * n + 1], a, b + 2);
        }
    }
}

// Folds the part of those pairs that `due` names into what came before, and begins a new one.
template <int D>
static __device__ inline void fold(struct pairs *p, const bool *due, float acc[D / 8][4],
                                   float *all) {
    for (int i = 0; i < 2; i++) {
        if (!due[i])
            continue;
        float2 f = attend_fold(&p->all_most[i], p->most[i]);
        p->all_sum[i] = fmaf(p->sum[i], f.y, p->all_sum[i] * f.x);
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int j = 2 * i; j < 2 * i + 2; j++) {
                float *to = all + (n * 4 + j) * 32;
                *to = fmaf(acc[n][j], f.y, *to * f.x);
                acc[n][j] = 0;
            }
        p->most[i] = -INFINITY;
        p->sum[i] = 0;
    }
}

// The part of each pair to its slot, or with ATTEND_WHOLE the output.
template <int D>
static __device__ inline void put(const struct attend_run *u, const struct attend_item *t,
                                  const struct pairs *p, int kv, int part,
                                  const float acc[D / 8][4], const float *all) {
    int lane = threadIdx.x % 32;
    int32_t slot = t->kind == ATTEND_LAST ? u->slots - 1 : part - u->part0;
    for (int i = 0; i < 2; i++) {
        if (!p->here[i])
            continue;
        int32_t row = row_at(u, t, i), head = kv * u->group + (t->pair + pair_at(i)) % u->group;
        if (t->kind != ATTEND_WHOLE) {
            int64_t to = attend_slot(u, slot, row, head);
#pragma unroll
            for (int n = 0; n < D / 8; n++)
                *(float2 *)(u->acc + to * D + n * 8 + lane % 4 * 2) =
                    make_float2(acc[n][2 * i], acc[n][2 * i + 1]);
            if (lane % 4 == 0)
                *(float2 *)(u->ml + to * 2) = make_float2(p->most[i], p->sum[i]);
            continue;
        }
        float *out = u->out + row * u->out_stride + head * D;
        for (int n = 0; n < D / 8; n++)
            for (int j = 0; j < 2; j++) {
                int at = n * 8 + lane % 4 * 2 + j;
                out[at] =
                    attend_output(u, row, head, at, all[(n * 4 + 2 * i + j) * 32], p->all_sum[i]);
            }
    }
}

// Block (item, kv head, part). Keys and values have one buffer each: the values of a chunk arrive
// while its scores are made, the next chunk's keys while the values are weighed.
template <int D>
static __global__ void __launch_bounds__(WARPS_MOST * 32, 1)
    attend_kernel(const __grid_constant__ struct attend_run u) {
    gpu_await();
    extern __shared__ unsigned char memory[];
    struct layout *l = (struct layout *)memory;
    unsigned char *tile_k = memory + (sizeof(struct layout) + 127) / 128 * 128;
    unsigned char *tile_v = tile_k + ATTEND_CHUNK * D * 2, *queries = tile_v + ATTEND_CHUNK * D * 2;
    struct attend_item t = u.items[blockIdx.x];
    int kv = blockIdx.y, part = attend_part(t.chunk) + blockIdx.z;
    int warps = blockDim.x / 32, warp = threadIdx.x / 32;
    if (t.kind == ATTEND_SHARED) {
        t.chunk = max(t.chunk, attend_part_begin(part));
        t.end = min(t.end, attend_part_begin(part + 1));
    }
    if (t.chunk >= t.end || (t.kind != ATTEND_SHARED && blockIdx.z > 0))
        return;
    float *all = (float *)(queries + warps * ATTEND_TILE * D * 2) + warp * ATTEND_TILE * D +
                 threadIdx.x % 32;
    float acc[D / 8][4] = {}, s[8][4], fade[2];
    unsigned w[8][2];
    struct pairs p;
    bool works = warp * ATTEND_TILE < t.n_pairs;
    if (t.kind == ATTEND_WHOLE)
        for (int i = 0; i < D / 2; i++)
            all[i * 32] = 0;
    find_pairs(&u, &t, &p);
    attend_find(&u, &t, t.chunk, &l->keys[t.chunk % 2]);
    load_queries<D>(&u, &t, kv, queries, l->scale);
    __syncthreads();
    load_tile<D>(&u, &l->keys[t.chunk % 2], false, kv, tile_k);
    close_copies();
    for (int chunk = t.chunk; chunk < t.end; chunk++) {
        const struct attend_keys *keys = &l->keys[chunk % 2];
        load_tile<D>(&u, keys, true, kv, tile_v);
        close_copies();
        if (chunk + 1 < t.end)
            attend_find(&u, &t, chunk + 1, &l->keys[(chunk + 1) % 2]);
        bool due[2] = {}, active = false;
        for (int i = 0; i < 2; i++) {
            due[i] = t.kind == ATTEND_WHOLE && chunk > t.chunk && attend_folds(chunk, p.split[i]);
            active = active || takes_part(&t, &p, i, chunk);
        }
        if (due[0] || due[1])
            fold<D>(&p, due, acc, all);
        active = works && __any_sync(0xFFFFFFFFu, active);
        await_copies();
        __syncthreads();
        if (active)
            score<D>(shared_address(queries), shared_address(tile_k), l->scale, s);
        __syncthreads();
        if (chunk + 1 < t.end)
            load_tile<D>(&u, &l->keys[(chunk + 1) % 2], false, kv, tile_k);
        close_copies();
        if (active) {
            hide(&t, &p, keys, chunk, s);
            weigh(&p, s, w, fade);
        }
        await_copies();
        __syncthreads();
        if (active)
            gather<D>(shared_address(tile_v), w, fade, acc);
        __syncthreads();
    }
    const bool both[2] = {true, true};
    if (t.kind == ATTEND_WHOLE)
        fold<D>(&p, both, acc, all);
    if (works)
        put<D>(&u, &t, &p, kv, part, acc, all);
}

#else

// Older devices take attend_plain.
template <int D> static __global__ void attend_kernel(const __grid_constant__ struct attend_run u) {
    (void)u;
}

#endif

template <int D>
static void launch(struct gpu *g, const struct attend_run *u, const struct attend_plan *p) {
    int warps = p->tiles < 4 ? 4 : p->tiles;
    size_t tile = ATTEND_CHUNK * D * 2, queries = (size_t)warps * ATTEND_TILE * D * 2;
    size_t bytes = (sizeof(struct layout) + 127) / 128 * 128 + 2 * tile + queries;
    if (p->whole)
        bytes += 2 * queries;
    gpu_check(g, gpu_allow_shared(attend_kernel<D>, (int)bytes), "attend");
    dim3 grid((unsigned)p->n_items, (unsigned)u->n_kv, (unsigned)p->parts);
    gpu_launch_early(g, "attend", attend_kernel<D>, grid, (unsigned)warps * 32, bytes, *u);
}

extern "C" void attend_matrix(struct gpu *g, const struct attend_run *u,
                              const struct attend_plan *p) {
    if (u->head_dim == 64)
        launch<64>(g, u, p);
    else if (u->head_dim == 128)
        launch<128>(g, u, p);
    else
        launch<256>(g, u, p);
}
