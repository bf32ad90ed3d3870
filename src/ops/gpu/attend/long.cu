// SPDX-License-Identifier: Apache-2.0
// Attention of many rows (prompts) by the warpgroup instruction of sm_90a, for heads of 128 and 256
// whose keys and values are F16 or have a codec with scales. A block stays for the whole launch and
// walks its items. Two warpgroups have 64 (row, query head) pairs of one kv head each, which are
// the rows of both products: queries times keys make scores, which stay in registers, become
// weights there, and multiply values. So a pair's maximum and sum are its four lanes' own, nothing
// passes through shared memory but keys and values, and while one warpgroup makes weights the other
// one multiplies. A third warpgroup brings keys and values into a ring of stages, over the ends of
// items, as halves.
//
// Every element goes through the same operations in the same order as in matrix.cu (the
// instructions make the same bits whichever factor is the left one: tests/gpu/test_tiles.cu), so
// that either may serve a row.
#include "ops/gpu/attend/long_bring.cuh"
#include "ops/gpu/linear/form/activation.cuh"
#include "ops/gpu/matrix/wgmma.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// The two pairs that a lane has.
struct long_pairs {
    float scale[2], max[2];    // max: of the present part
    float folded[2], total[2]; // maximum and sum of what is folded so far
    int32_t first[2], last[2], split[2];
    unsigned queries; // wgmma_low of those of the lane's warpgroup, the same in all of a warp
};
template <class F> struct long_sums {
    float acc[F::PANELS][64], sum[4];
};

// Folded values of a lane, in fours: two of each pair. In registers; or the first KEPT fours in the
// block's shared memory and the others in memory, where those of other lanes are next to each
// other.
template <class F> struct long_folded {
    float4 *at, *kept;
    bool some; // is there
    __device__ __forceinline__ void open(unsigned char *memory, float *of_block) {
        at = (float4 *)of_block + threadIdx.x / 128 * (32 * 128) + threadIdx.x % 128;
        kept = (float4 *)(memory + F::FOURS) + threadIdx.x;
        some = false;
    }
    __device__ __forceinline__ float4 get(int i) const {
        if (!some)
            return make_float4(0, 0, 0, 0);
        return i < F::KEPT ? kept[i * MAKERS] : __ldcg(at + i * 128);
    }
    __device__ __forceinline__ void put(int i, float4 v) {
        if (i < F::KEPT)
            kept[i * MAKERS] = v;
        else
            __stcg(at + i * 128, v);
    }
    __device__ __forceinline__ void turn(void) {
        some = true;
    }
};
template <bool SCALED> struct long_folded<long_form<128, SCALED>> {
    float4 x[16];
    __device__ __forceinline__ void open(unsigned char *, float *) {
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

static __device__ __forceinline__ float folded_one(float was, float is, float2 by, bool now) {
    return now ? fmaf(is, by.y, was * by.x) : was;
}

// What a fold multiplies: x what is folded so far, y the part.
struct long_turn {
    float2 by[2];
    bool now[2]; // pairs that fold
};

// The maxima of the parts of those pairs that fold go into what is folded.
static __device__ __forceinline__ void long_close(struct long_pairs *p, struct long_turn *t) {
#pragma unroll
    for (int y = 0; y < 2; y++) {
        t->by[y] = make_float2(1, 0);
        if (!t->now[y])
            continue;
        t->by[y] = attend_fold(&p->folded[y], p->max[y]);
        p->max[y] = -INFINITY;
    }
}

static __device__ __forceinline__ float4 folded_four(const struct long_turn &t, float4 was,
                                                     const float *is) {
    return make_float4(
        folded_one(was.x, is[0], t.by[0], t.now[0]), folded_one(was.y, is[1], t.by[0], t.now[0]),
        folded_one(was.z, is[2], t.by[1], t.now[1]), folded_one(was.w, is[3], t.by[1], t.now[1]));
}

// Folds the part of those pairs for which `now` holds.
template <class F>
static __device__ __forceinline__ void long_fold(struct long_pairs *p, struct long_sums<F> *z,
                                                 struct long_folded<F> *x,
                                                 const struct long_turn &t) {
    enum { BATCH = 16 };
#pragma unroll
    for (int y = 0; y < 2; y++) {
        if (!t.now[y])
            continue;
        p->total[y] = fmaf(z->sum[2 * y], t.by[y].y, p->total[y] * t.by[y].x);
        z->sum[2 * y] = z->sum[2 * y + 1] = 0;
    }
#pragma unroll
    for (int i = 0; i < F::PANELS * 16; i += BATCH) {
        float4 was[BATCH];
#pragma unroll
        for (int j = 0; j < BATCH; j++)
            was[j] = x->get(i + j);
#pragma unroll
        for (int j = 0; j < BATCH; j++) {
            float *a = &z->acc[(i + j) / 16][(i + j) % 16 * 4];
            x->put(i + j, folded_four(t, was[j], a));
            a[0] = t.now[0] ? 0 : a[0];
            a[1] = t.now[0] ? 0 : a[1];
            a[2] = t.now[1] ? 0 : a[2];
            a[3] = t.now[1] ? 0 : a[3];
        }
    }
    x->turn();
}

static __device__ __forceinline__ int maker_group(void) {
    return threadIdx.x / 128;
}

// All threads of a warpgroup that makes.
static __device__ __forceinline__ void group_sync(void) {
    if (maker_group() == 0)
        lanes_meet<128>(1);
    else
        lanes_meet<128>(3);
}

// Requests s = scores of the warpgroup's pairs, wgmma_low of whose queries is `queries`, with the
// keys at `keys`.
template <class F>
static __device__ __forceinline__ void long_score(unsigned queries, unsigned keys, float (&s)[32]) {
    const unsigned b = wgmma_low(keys, 1024);
#pragma unroll
    for (int k = 0; k < F::D / 16; k++)
        wgmma_both_if<64, false>(
            s, wgmma_operand(queries + (unsigned)(k / 4 * LONG_PAIRS * 8 + k % 4 * 2)),
            wgmma_operand(b + (unsigned)(k / 4 * ATTEND_CHUNK * 8 + k % 4 * 2)), k > 0);
    wgmma_commit();
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
static __device__ __forceinline__ float2 long_weigh(struct long_pairs *p, float (&s)[32]) {
    float fade[2], base[2];
#pragma unroll
    for (int y = 0; y < 2; y++) {
        float part = s[2 * y];
#pragma unroll
        for (int i = 0; i < 16; i++)
            part = fmaxf(part, s[i / 2 * 4 + 2 * y + i % 2]);
        part = fmaxf(part, warp_across(part, 1));
        part = fmaxf(part, warp_across(part, 2));
        const float old = p->max[y], max = renewed(old, part * p->scale[y]);
        fade[y] = max == -INFINITY ? 1 : exp2_near(old - max);
        base[y] = max == -INFINITY ? 0 : max - EXTRA;
        p->max[y] = max;
    }
#pragma unroll
    for (int i = 0; i < 32; i++) {
        const int y = i / 2 % 2;
        s[i] = exp2_near(fmaf(s[i], p->scale[y], -base[y]));
    }
    return make_float2(fade[0], fade[1]);
}

// Weights as a factor of a product. Nothing is packed while one reads w: the assembler would make
// products wait for each other (C7513).
static __device__ __forceinline__ void long_pack(const float (&s)[32], uint32_t (&w)[4][4]) {
#pragma unroll
    for (int i = 0; i < 16; i++)
        w[i / 4][i % 4] = pack(s[2 * i], s[2 * i + 1]);
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

// Requests acc += weights times the values at `values`.
template <class F>
static __device__ __forceinline__ void long_gather(struct long_sums<F> *z, uint32_t (&w)[4][4],
                                                   unsigned values) {
    const unsigned b = wgmma_low(values, ATTEND_CHUNK * 128);
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int j = 0; j < F::PANELS; j++)
            wgmma_step<128, true>(
                z->acc[j], w[k], wgmma_operand(b + (unsigned)(j * 2 * ATTEND_CHUNK * 8 + k * 128)));
    wgmma_commit();
}

// The values have been made; then the sums of their weights, which also keeps those in their
// registers until here. WAY: other code for each, so that no two waits become one in front of the
// branches they are in.
template <class F, int WAY>
static __device__ __forceinline__ void long_gathered(struct long_sums<F> *z, uint32_t (&w)[4][4]) {
    const unsigned ones[2] = {0x3C003C00u, 0x3C003C00u};
    wgmma_wait<0, WAY>();
#pragma unroll
    for (int j = 0; j < F::PANELS; j++)
        wgmma_made(z->acc[j]);
#pragma unroll
    for (int k = 0; k < 4; k++)
        mma_k16(z->sum, w[k], ones[0], ones[1]);
}

// A warp has left a tile.
template <class F> static __device__ __forceinline__ void long_leave(unsigned base, int tile) {
    __syncwarp();
    if (threadIdx.x % WARP == 0)
        barrier_arrive(empty_at<F>(base, tile));
}

// A tile is there for the products.
template <class F> static __device__ __forceinline__ void long_await(unsigned base, int tile) {
    barrier_wait(full_at<F>(base, tile), (unsigned)(tile / 2 / F::STAGES & 1));
}

template <class F>
static __device__ __forceinline__ const struct long_keys *keys_of(const unsigned char *memory,
                                                                  int tile) {
    return (const struct long_keys *)(memory + F::KEYS) + tile / 2 % F::STAGES;
}

template <class F> static __device__ __forceinline__ unsigned keys_at(unsigned base, int tile) {
    return base + (unsigned)(F::K + tile / 2 % F::STAGES * F::TILE);
}
template <class F> static __device__ __forceinline__ unsigned values_at(unsigned base, int tile) {
    return base + (unsigned)(F::V + tile / 2 % F::STAGES * F::TILE);
}

// Whether a warp's pairs see all keys of a chunk, which are there.
static __device__ __forceinline__ bool long_sees(const struct long_pairs &p,
                                                 const struct long_keys *k, int chunk) {
    const int from = chunk * ATTEND_CHUNK;
    const bool sees = k->whole && from >= p.first[0] && from >= p.first[1] &&
                      from + ATTEND_CHUNK <= p.last[0] + 1 && from + ATTEND_CHUNK <= p.last[1] + 1;
    return warp_all(sees);
}

// An item's first chunk up to its weights; tile: its keys, which are there.
template <class F>
static __device__ __forceinline__ void long_first(unsigned char *memory, struct long_pairs *p,
                                                  uint32_t (&w)[4][4], int tile, bool sees) {
    const unsigned base = shared_address(memory);
    float s[32];
    wgmma_fence();
    long_score<F>(p->queries, keys_at<F>(base, tile), s);
    wgmma_wait<0>();
    wgmma_made(s);
    if (!sees)
        long_hide(*p, &keys_of<F>(memory, tile)->keys, s);
    long_leave<F>(base, tile);
    long_weigh(p, s);
    long_pack(s, w);
}

// A chunk's scores, and while they become weights, the values of the chunk before, whose weights
// are w; then w are this chunk's. tile: its keys, which are there, as the values before them.
template <class F, bool HIDE>
static __device__ __forceinline__ void
long_step(unsigned char *memory, struct long_pairs *p, struct long_sums<F> *z,
          struct long_folded<F> *x, uint32_t (&w)[4][4], int tile, struct long_turn t) {
    const unsigned base = shared_address(memory);
    float s[32];
#pragma unroll
    for (int k = 0; k < 4; k++)
        wgmma_keep(w[k]);
    wgmma_fence();
    long_score<F>(p->queries, keys_at<F>(base, tile), s);
    long_gather<F>(z, w, values_at<F>(base, tile - 2));
    wgmma_wait<1>();
    wgmma_made(s);
    if constexpr (HIDE)
        long_hide(*p, &keys_of<F>(memory, tile)->keys, s);
    long_leave<F>(base, tile);
    long_close(p, &t);
    const float2 fade = long_weigh(p, s);
    wgmma_made(s);
    // The weights are made here, while values are: in one block of code the assembler would wait
    // for those first.
    if (warp_any(t.now[0] || t.now[1])) {
        long_gathered<F, 0>(z, w);
        long_leave<F>(base, tile - 1);
        long_pack(s, w);
        long_fold<F>(p, z, x, t);
    } else {
        long_gathered<F, 1>(z, w);
        long_leave<F>(base, tile - 1);
        long_pack(s, w);
    }
    if (warp_any(fade.x != 1 || fade.y != 1))
        long_fade<F>(z, fade);
}

// All chunks of an item; *tile: of its first keys, then after its last values.
template <class F>
static __device__ __forceinline__ void
long_chunks(const struct attend_item *t, unsigned char *memory, struct long_pairs *p,
            struct long_sums<F> *z, struct long_folded<F> *x, int *tile) {
    const unsigned base = shared_address(memory);
    int turn = attend_part_begin(attend_part(t->chunk) + 1);
    uint32_t w[4][4];
    long_await<F>(base, *tile);
    long_first<F>(memory, p, w, *tile, long_sees(*p, keys_of<F>(memory, *tile), t->chunk));
#pragma unroll 1
    for (int chunk = t->chunk + 1; chunk < t->end; chunk++) {
        const bool begins = chunk == turn;
        struct long_turn now;
#pragma unroll
        for (int y = 0; y < 2; y++)
            now.now[y] = chunk == p->split[y] || (begins && chunk < p->split[y]);
        if (begins)
            turn = attend_part_begin(attend_part(chunk) + 1);
        *tile += 2;
        long_await<F>(base, *tile - 1);
        long_await<F>(base, *tile);
        if (long_sees(*p, keys_of<F>(memory, *tile), chunk))
            long_step<F, false>(memory, p, z, x, w, *tile, now);
        else
            long_step<F, true>(memory, p, z, x, w, *tile, now);
    }
    *tile += 2;
    long_await<F>(base, *tile - 1);
#pragma unroll
    for (int k = 0; k < 4; k++)
        wgmma_keep(w[k]);
    wgmma_fence();
    long_gather<F>(z, w, values_at<F>(base, *tile - 2));
    long_gathered<F, 2>(z, w);
    long_leave<F>(base, *tile - 1);
}

static __device__ __forceinline__ int own_pair(int y) {
    return (int)threadIdx.x / WARP * 16 + (int)threadIdx.x % WARP / 4 + 8 * y;
}

// A warp's pairs, and which keys they may see.
static __device__ __forceinline__ void long_find(const struct attend_run *u, const struct work *b,
                                                 struct long_state *m) {
    const struct attend_item *t = &b->t;
    const int i = threadIdx.x / WARP * 16 + threadIdx.x % WARP;
    if (threadIdx.x % WARP >= 16)
        return;
    struct attend_row r = {0, INT32_MAX, -1, 0};
    m->place[i] = 0;
    if (i < t->n_pairs) {
        const int pair = t->pair + i, at = pair / u->group;
        const int32_t row = attend_entry(&u->list[t->list + at]);
        m->place[i] = row * u->n_heads + b->kv * u->group + pair - at * u->group;
        r = attend_entry(&u->rows[row]);
    }
    m->first[i] = r.first;
    m->last[i] = r.last;
    m->split[i] = r.split / ATTEND_CHUNK;
}

// The pairs of an item and their queries: each warp its own, which its warpgroup multiplies.
template <class F>
static __device__ __forceinline__ void long_open(const struct attend_run *u, const struct work *b,
                                                 struct long_state *m, struct long_pairs *p) {
    enum { AT_ONCE = 8 };
    group_sync(); // the item before is done with
    long_find(u, b, m);
    __syncwarp();
    for (int i = 0; i < ATTEND_TILE; i += AT_ONCE)
        some_queries<F, AT_ONCE, 1>(u, b, m, (int)threadIdx.x / WARP * ATTEND_TILE + i, LONG_PAIRS);
    show_shared();
    group_sync();
#pragma unroll
    for (int y = 0; y < 2; y++) {
        const int pair = own_pair(y);
        p->scale[y] = m->scale[pair];
        p->first[y] = m->first[pair];
        p->last[y] = m->last[pair];
        p->split[y] = m->split[pair];
        p->max[y] = p->folded[y] = -INFINITY;
        p->total[y] = 0;
    }
}

// Where a lane's outputs go.
struct long_outs {
    float *out[2], part[2]; // part: one over the sum of weights
    int32_t row[2], head[2];
    bool there[2];
};

enum long_gate { LONG_PLAIN, LONG_SIGMOID, LONG_SOFTPLUS };

// Fours i .. i + N - 1 of a lane's outputs, whose gates are requested together.
template <class F, long_gate GATE, int N>
static __device__ __forceinline__ void
long_put(const struct attend_run *u, const struct long_outs &o, const struct long_turn &t,
         const struct long_sums<F> &z, const struct long_folded<F> &x, int i) {
    const int at = i * 8 + (int)threadIdx.x % 4 * 2;
    float4 was[N];
    float gate[N][4];
#pragma unroll
    for (int j = 0; j < N; j++) {
        was[j] = x.get(i + j);
#pragma unroll
        for (int e = 0; e < 4; e++)
            gate[j][e] = GATE != LONG_PLAIN && o.there[e / 2]
                             ? attend_gate_of(u, o.row[e / 2], o.head[e / 2], at + j * 8 + e % 2)
                             : 0;
    }
#pragma unroll
    for (int j = 0; j < N; j++) {
        const float4 four = folded_four(t, was[j], &z.acc[(i + j) / 16][(i + j) % 16 * 4]);
        float v[4] = {four.x, four.y, four.z, four.w};
        if (GATE == LONG_SIGMOID)
            sigmoid_all(gate[j]); // attend_gate_factor
#pragma unroll
        for (int e = 0; e < 4; e++) {
            v[e] = v[e] * o.part[e / 2] + 0.0f; // attend_divided
            if (GATE != LONG_PLAIN)
                v[e] *= GATE == LONG_SIGMOID ? gate[j][e] : attend_gate_factor(true, gate[j][e]);
        }
#pragma unroll
        for (int y = 0; y < 2; y++)
            if (o.there[y])
                *(float2 *)(o.out[y] + at + j * 8) = make_float2(v[2 * y], v[2 * y + 1]);
    }
}

template <class F, long_gate GATE>
static __device__ __forceinline__ void
long_put_all(const struct attend_run *u, const struct long_outs &o, const struct long_turn &t,
             const struct long_sums<F> &z, const struct long_folded<F> &x) {
#pragma unroll
    for (int i = 0; i < F::PANELS * 16; i += 8)
        long_put<F, GATE, 8>(u, o, t, z, x, i);
}

// The last fold and the outputs.
template <class F>
static __device__ __forceinline__ void
long_end(const struct attend_run *u, const struct work *b, const struct long_state *m,
         struct long_pairs *p, const struct long_sums<F> &z, const struct long_folded<F> &x) {
    struct long_turn t = {{}, {true, true}};
    struct long_outs o;
    long_close(p, &t);
#pragma unroll
    for (int y = 0; y < 2; y++) {
        const int pair = own_pair(y), place = m->place[pair];
        o.there[y] = pair < b->t.n_pairs;
        o.row[y] = place / u->n_heads;
        o.head[y] = place - o.row[y] * u->n_heads;
        o.out[y] = u->out + o.row[y] * u->out_stride + o.head[y] * F::D;
        o.part[y] = 1.0f / attend_sunk(u, o.head[y], p->folded[y],
                                       fmaf(z.sum[2 * y], t.by[y].y, p->total[y] * t.by[y].x));
    }
    if (!u->gate)
        long_put_all<F, LONG_PLAIN>(u, o, t, z, x);
    else if (u->gate_softplus)
        long_put_all<F, LONG_SOFTPLUS>(u, o, t, z, x);
    else
        long_put_all<F, LONG_SIGMOID>(u, o, t, z, x);
}

// Makes the outputs of all items of this block.
template <class F>
static __device__ __forceinline__ void long_make(const struct attend_run *u, int items,
                                                 unsigned char *memory, float *folded) {
    struct long_state *m = (struct long_state *)(memory + F::STATE);
    const unsigned queries =
        wgmma_low(shared_address(memory) + F::Q + (unsigned)(maker_group() * 64 * 128), 1024);
    int tile = 0;
#pragma unroll 1
    for (int at = blockIdx.x; at < items * u->n_kv; at += (int)gridDim.x) {
        const struct work b = long_work(u, items, at, memory);
        struct long_pairs p;
        p.queries = warp_from(queries, 0);
        struct long_sums<F> z;
        struct long_folded<F> x;
        long_open<F>(u, &b, m, &p);
        x.open(memory, folded + (int64_t)blockIdx.x * FOLDED);
#pragma unroll
        for (int i = 0; i < F::PANELS * 64; i++)
            z.acc[i / 64][i % 64] = 0;
        z.sum[0] = z.sum[1] = z.sum[2] = z.sum[3] = 0;
        long_chunks<F>(&b.t, memory, &p, &z, &x, &tile);
        long_end<F>(u, &b, m, &p, z, x);
    }
}

// Blocks at most one for each of the items x n_kv.
template <class F>
static __global__ void __launch_bounds__(MAKERS + BRINGERS, 1)
    attend_long_kernel(const __grid_constant__ struct attend_run u,
                       const __grid_constant__ struct long_map map, int items, float *folded) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const unsigned base = shared_address(memory);
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2 * F::STAGES; i++) {
            barrier_init(base + F::BARS + i * 8, BRINGERS);
            barrier_init(base + F::BARS + (2 * F::STAGES + i) * 8, F::WARPS);
        }
        show_shared();
    }
    gpu_await();
    gpu_let_next();
    __syncthreads();
    if (threadIdx.x >= MAKERS) {
        registers_down<F::BRING>();
        long_bring<F>(&u, &map, items, memory);
    } else {
        registers_up<F::MAKE>();
        long_make<F>(&u, items, memory, folded);
    }
}
#else
template <int D_, bool SCALED> struct long_form {
    static constexpr int D = D_, BYTES = 0;
};

// Other devices take attend_matrix.
template <class F>
static __global__ void attend_long_kernel(const __grid_constant__ struct attend_run u,
                                          const __grid_constant__ struct long_map map, int items,
                                          float *folded) {
    (void)u, (void)map, (void)items, (void)folded;
    gpu_await();
}

#endif

// Maps half a terabyte of addresses around a page, for tiles of a chunk's keys.
// Without a map all threads that bring copy.
template <class F> static struct long_map map_pages(struct gpu *g, const unsigned char *some_page) {
    const uint64_t row = F::D * 2, half = (uint64_t)MAP_ROWS / 2 * row;
    const uint64_t page = (uint64_t)some_page;
    const uint64_t size[3] = {F::D * MAP_WIDE, MAP_ROWS, F::D / 64}, step[2] = {row, 128};
    const uint32_t box[3] = {64, ATTEND_CHUNK, F::D / 64};
    struct long_map m = {};
    const unsigned char *low =
        (const unsigned char *)(page > half ? page - half : page % row + row);
    if (page % 16 == 0 && gpu_make_map_of(gpu_maps(g), &m.tiles, low, 3, size, step, box) == GPU_OK)
        m.low = low;
    return m;
}

template <class F>
static void launch_long(struct gpu *g, const struct attend_run *u, const struct attend_plan *p,
                        float *folded) {
    const int64_t all = (int64_t)p->n_items * u->n_kv;
    const int max = g->processors < MOST_BLOCKS ? g->processors : (int)MOST_BLOCKS;
    const unsigned blocks = (unsigned)(all < max ? all : max);
    if (blocks && gpu_allow_shared(g, (const void *)attend_long_kernel<F>, F::BYTES, "attend"))
        gpu_launch_saying({g, "attend", attend_says(u)}, attend_long_kernel<F>, blocks,
                          MAKERS + BRINGERS, F::BYTES, *u, map_pages<F>(g, u->some_page),
                          p->n_items, folded);
}

extern "C" size_t attend_long_bytes(int head_dim) {
    return head_dim == 256 ? (size_t)MOST_BLOCKS * FOLDED * sizeof(float) : 0;
}

template <bool SCALED>
static void launch_any(struct gpu *g, const struct attend_run *u, const struct attend_plan *p) {
    if (u->dk == 128) {
        launch_long<long_form<128, SCALED>>(g, u, p, NULL);
        return;
    }
    float *folded = (float *)gpu_scratch(g, attend_long_bytes(256));
    if (folded)
        launch_long<long_form<256, SCALED>>(g, u, p, folded);
}

extern "C" void attend_long(struct gpu *g, const struct attend_run *u,
                            const struct attend_plan *p) {
    if (u->k.scale_row || u->v.scale_row)
        launch_any<true>(g, u, p);
    else
        launch_any<false>(g, u, p);
}
