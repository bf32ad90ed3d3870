// SPDX-License-Identifier: Apache-2.0
// Experts of the entries of few rows, each chosen expert read once. Entries are in groups of up to
// MOE_COLUMNS of one expert (order.cu; of one row each is its own), those of a shared expert in
// front. A unit is one tile of 16 outputs of one group, of both matrices of a pair; a piece is one
// part of k of one matrix of a unit. A block stays for the whole launch, has units that follow each
// other, and keeps the rows of all their groups, or of as many as find room: a phase.
//
// The pieces of a phase are dealt out evenly to the block's warps, so that each has pieces that
// follow each other. A warp's ring of stages of weights runs ahead over all of them, and it meets
// no other warp: it adds up the parts of a unit in order in registers and makes the outputs itself.
// Where its first pieces are in the middle of a unit, it leaves their sums in shared memory, for
// the warp that begins this unit, which does so at its own end. How pieces are dealt out changes no
// bits: the chain of matrix instructions of a piece and the order of parts are those of
// few.cuh.
#include "ops/gpu/matrix/barrier.cuh"
#include "ops/gpu/moe/few.cuh"

enum {
    UNION_WARPS = 16,
    UNION_GROUPS = 32, // of a phase, at most
    UNION_ROWS = 64,   // of a phase, at most
    UNION_PAIR = 128,  // bytes of a piece's sums of two rows
};

struct moe_union {
    struct moe_few few;     // where scales, weights and rows begin in shared memory; pitch of rows
    struct moe_order order; // of the list; no tiles: each entry is a group
    int shared_groups;      // groups of the shared expert
    int tiles, pieces;      // of a group; of a unit
    int left, left_each;    // where left sums begin; room of a warp
    int slots, rows;        // stages of a ring; rows of a phase
};

struct union_group {
    int expert, first, n, row;    // first: of its entries; row: where its rows begin in the phase
    const unsigned char *data[2]; // of its matrices
    const signed char *exponent[2];
};

// In front of shared memory.
struct union_front {
    union_group group[UNION_GROUPS];
    float *out[UNION_ROWS]; // of rows
    float back[UNION_ROWS]; // powers of two of them
    short entry[UNION_ROWS];
    int done[UNION_WARPS]; // the phase whose first pieces the warp has left
    int groups, max;       // of the phase; rows of a group at most
};

// After it: the list's groups, then its entries in their order.
struct union_listed {
    short expert, first, n, none;
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
static __device__ __forceinline__ union_listed *union_groups(unsigned char *shared) {
    return (union_listed *)(shared + sizeof(union_front));
}
static __device__ __forceinline__ short *union_order(const moe_union &a, unsigned char *shared) {
    return (short *)(union_groups(shared) + a.order.max);
}

// A phase: units begin .. end - 1 of the launch, of groups from `first` on.
struct union_phase {
    int first, begin, end, number;
    int align; // a warp's first piece in its unit is a multiple of it
    int pairs; // of rows that a group has at most
};

// Where a warp stands: group of the phase, tile, piece of the unit.
struct union_place {
    int group, tile, piece;

    // At piece `at` of a phase.
    __device__ __forceinline__ union_place(const moe_union &a, const union_phase &p, int at) {
        const int unit = p.begin + at / a.pieces;
        piece = at % a.pieces;
        group = unit / a.tiles - p.first;
        tile = unit % a.tiles;
    }
    // n more pieces, of this unit.
    __device__ __forceinline__ void step(const moe_union &a, int n) {
        piece += n;
        if (piece == a.pieces) {
            piece = 0;
            if (++tile == a.tiles) {
                tile = 0;
                group++;
            }
        }
    }
};

// The first piece of a warp.
static __device__ __forceinline__ int union_cut(const moe_union &a, const union_phase &p,
                                                int warp) {
    const int all = (p.end - p.begin) * a.pieces, warps = (int)blockDim.x / WARP;
    return warp == warps ? all : (int)((int64_t)all * warp / warps) / p.align * p.align;
}

// A warp's copies of its pieces' weights, which run ahead of its products.
template <int FORM, bool PAIR> struct union_feed {
    using R = moe_ring<FORM, false>;
    union_place at;
    int pieces;     // to turn to, from `at` on
    int left, last; // stages of the present matrix; bytes of the last one
    const unsigned char *from;

    // Turns to what the warp has of the next matrix of a unit, which lies together.
    __device__ __forceinline__ void open(const moe_union &a, const union_front *front) {
        const moe_call_args &c = a.few.c;
        const int matrix = PAIR && at.piece >= c.parts, part = at.piece - matrix * c.parts;
        const int n = c.parts - part < pieces ? c.parts - part : pieces;
        const int begin = a.few.begin[part], k = a.few.begin[part + n] - begin;
        left = (k + R::STEP - 1) / R::STEP;
        last = (k - (left - 1) * R::STEP + R::SPAN - 1) / R::SPAN * dequant<FORM>::CHUNK;
        from = front->group[at.group].data[matrix] + at.tile * c.matrix[matrix].w.pitch +
               (begin / R::SPAN * dequant<FORM>::CHUNK + threadIdx.x % WARP * 16);
        at.step(a, n);
        pieces -= n;
    }
    // Starts the copy of the next stage, if there is one; a group of copies in any case. to: of
    // this lane.
    __device__ __forceinline__ void start(const moe_union &a, const union_front *front,
                                          uint32_t to) {
        const int lane = threadIdx.x % WARP;
        if (left == 0 && pieces > 0)
            open(a, front);
        if (left > 1 || (left == 1 && last == R::SLOT)) {
#pragma unroll
            for (int b = 0; b < R::SLOT; b += 512)
                if (b + 512 <= R::SLOT || b + lane * 16 < R::SLOT)
                    copy_once(to + b, from + b);
            from += R::SLOT;
            left--;
        } else if (left == 1) {
            for (int b = 0; b + lane * 16 < last; b += 512)
                copy_once(to + b, from + b);
            left = 0;
        }
        copies_end<false>();
    }
};

// A warp's ring.
template <int FORM, bool PAIR> struct union_ring {
    using R = moe_ring<FORM, false>;
    union_feed<FORM, PAIR> feed;
    unsigned char *base;
    int read, write, slots; // bytes from base; of the next stage that is read, of the free place

    // Starts the copies of the first stage, and later those of what else there is room for: rows
    // that are requested between wait after less.
    __device__ __forceinline__ void fill(const moe_union &a, const union_front *front, int from,
                                         int to) {
        for (int i = from; i < to; i++)
            feed.start(a, front, shared_address(base + i * R::SLOT + threadIdx.x % WARP * 16));
    }
    // The next stage, when it is there.
    __device__ __forceinline__ const unsigned char *next(const moe_union &a,
                                                         const union_front *front) {
        const unsigned char *stage = base + read;
        if (slots > 2)
            copies_wait<false, 1>();
        else
            copies_wait<false, 0>();
        __syncwarp();
        feed.start(a, front, shared_address(base + write + threadIdx.x % WARP * 16));
        write = read; // free when the next stage is requested
        read = read + R::SLOT == slots * R::SLOT ? 0 : read + R::SLOT;
        return stage;
    }
};

// Takes the list to shared memory; how many groups there are. All threads.
static __device__ __forceinline__ int union_begin(const moe_union &a, unsigned char *shared) {
    const bool one = !a.order.tiles; // row
    const int all = one ? (int)a.few.c.listed : __ldcg(a.order.tiles), max = (int)a.order.max,
              listed = (int)a.few.c.listed;
    union_front *front = (union_front *)shared;
    if (threadIdx.x < UNION_WARPS)
        front->done[threadIdx.x] = 0;
    for (int i = threadIdx.x; i < max || i < listed; i += blockDim.x) {
        int4 v = make_int4(0, i, 1, 0);
        int entry = i;
        if (one)
            v.x = i < listed ? __ldcg(a.few.c.ids + i) : 0;
        else if (i < max)
            v = __ldcg((const int4 *)(a.order.tile + i));
        if (!one && i < listed)
            entry = __ldcg(a.order.entry + i);
        if (i < max)
            union_groups(shared)[i] = {(short)v.x, (short)v.y, (short)v.z, 0};
        if (i < listed)
            union_order(a, shared)[i] = (short)entry;
    }
    __syncthreads();
    return all + a.shared_groups;
}

static __device__ __forceinline__ union_group union_find(const moe_union &a, unsigned char *shared,
                                                         int group) {
    const moe_call_args &c = a.few.c;
    union_group g = {MOE_SHARED, group * MOE_COLUMNS, 0, 0, {}, {}};
    const int rest = (int)(c.entries - c.listed) - g.first;
    g.n = rest < MOE_COLUMNS ? rest : (int)MOE_COLUMNS;
    if (group >= a.shared_groups) {
        const union_listed v = union_groups(shared)[group - a.shared_groups];
        g = {v.expert, v.first, v.n, 0, {}, {}};
    }
    for (int i = 0; i < 2; i++) {
        const matrix_view w =
            g.expert == MOE_SHARED ? c.shared[i].w : moe_expert(c.matrix[i], g.expert);
        g.data[i] = w.data;
        g.exponent[i] = w.exponent;
    }
    return g;
}

// Lists the groups from unit p.begin on whose rows find room, up to unit `end`; sets p.first and
// p.end. All threads.
static __device__ __forceinline__ void union_open(const moe_union &a, unsigned char *shared,
                                                  int end, union_phase &p) {
    union_front *front = (union_front *)shared;
    p.first = p.begin / a.tiles;
    if (threadIdx.x < UNION_GROUPS) {
        const int lane = threadIdx.x, group = p.first + lane;
        const bool there = group <= (end - 1) / a.tiles;
        union_group g = {};
        if (there)
            g = union_find(a, shared, group);
        int rows = g.n;
        for (int d = 1; d < WARP; d *= 2) {
            const int other = warp_below(rows, d);
            rows += lane >= d ? other : 0;
        }
        g.row = rows - g.n;
        front->group[lane] = g;
        const warp_mask fit = warp_vote(there && rows <= a.rows);
        const int max = warp_largest(fit >> lane & 1 ? (unsigned)g.n : 0u);
        if (lane == 0) {
            front->groups = mask_count(fit);
            front->max = max;
        }
    }
    __syncthreads();
    p.pairs = (front->max + 1) / 2;
    for (p.align = 1; (a.pieces - p.align) * p.pairs * UNION_PAIR > a.left_each;)
        p.align = p.align < a.few.c.parts ? a.few.c.parts : a.pieces;
    const int last = (p.first + front->groups) * a.tiles;
    p.end = last < end ? last : end;
}

// Finds the entries of a phase's groups; all threads.
static __device__ __forceinline__ void union_entries(const moe_union &a, unsigned char *shared) {
    union_front *front = (union_front *)shared;
    const moe_call_args &c = a.few.c;
    for (int i = threadIdx.x; i < front->groups * MOE_COLUMNS; i += blockDim.x) {
        const union_group g = front->group[i / MOE_COLUMNS];
        const int at = i % MOE_COLUMNS;
        if (at >= g.n)
            continue;
        const int entry = g.expert == MOE_SHARED ? (int)c.listed + g.first + at
                                                 : union_order(a, shared)[g.first + at];
        front->entry[g.row + at] = (short)entry;
        front->out[g.row + at] = g.expert == MOE_SHARED
                                     ? c.shared_out + (g.first + at) * c.out_stride
                                     : c.out + entry * c.out_stride;
    }
    __syncthreads();
}

// Takes the rows of a phase, as moe_take does; all threads.
static __device__ __forceinline__ void union_take(const moe_union &a, union_front *front,
                                                  unsigned char *to) {
    const moe_few &f = a.few;
    const union_group end = front->group[front->groups - 1];
    const int groups = (int)(f.c.stride / 32), rows = end.row + end.n;
    for (int i = threadIdx.x; i < groups * rows; i += blockDim.x) {
        const int r = i / groups, at = i - r * groups, entry = front->entry[r];
        uint4 *place = (uint4 *)(to + r * f.pitch) + at * 4, v[4];
        const float scale = f.from.wide ? power_of_two(moe_exponent(f, entry)) : 0.0f;
#pragma unroll
        for (int j = 0; j < 4; j++)
            v[j] = moe_eight(f, entry, at * 32 + j * 8, scale);
        place[0] = make_uint4(v[0].x, v[1].x, v[2].x, v[3].x);
        place[1] = make_uint4(v[0].y, v[1].y, v[2].y, v[3].y);
        place[2] = make_uint4(v[0].z, v[1].z, v[2].z, v[3].z);
        place[3] = make_uint4(v[0].w, v[1].w, v[2].w, v[3].w);
    }
    if ((int)threadIdx.x < rows) {
        const int entry = front->entry[threadIdx.x];
        front->back[threadIdx.x] = f.from.wide ? power_of_two(-moe_exponent(f, entry))
                                               : __ldcg(f.c.unscale + moe_row(f.c, entry));
    }
    __syncthreads();
}

// A unit that a warp makes the outputs of.
template <bool PAIR> struct union_unit {
    int group, tile;
    signed char e[2][2];    // exponents of this lane's outputs, by matrix
    float first[4], sum[4]; // over all parts: of the first matrix of a pair, of the present one

    __device__ __forceinline__ void open(const moe_union &a, const union_front *front,
                                         const union_place &p) {
        const int at = p.tile * TILE_ROWS + threadIdx.x % WARP / 4;
        group = p.group;
        tile = p.tile;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (i && !PAIR)
                break;
            const signed char *from = front->group[p.group].exponent[i] + at;
            e[i][0] = from[0];
            e[i][1] = from[8];
        }
    }
    __device__ __forceinline__ void add(int parts, int piece, const float (&d)[4]) {
        const bool second = PAIR && piece == parts, begins = !piece || second;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            first[j] = second ? sum[j] : first[j];
            sum[j] = begins ? d[j] : sum[j] + d[j];
        }
    }
    // The value that a sum stands for; i: of which matrix, h: which of the lane's two outputs, m:
    // which one that is of the matrix.
    __device__ __forceinline__ float value(const moe_union &a, int expert, float v, int i, int h,
                                           int64_t m, float back) const {
        const bool shared = expert == MOE_SHARED;
        const moe_matrix &own = shared ? a.few.c.shared[i] : a.few.c.matrix[i];
        v = v * __int_as_float((127 - e[i][h]) << 23) * back;
        return own.bias ? __fadd_rn(v, own.bias[(shared ? 0 : expert) * own.w.m + m]) : v;
    }
    // Makes and stores the outputs.
    __device__ __forceinline__ void finish(const moe_union &a, const union_front *front) const {
        const moe_call_args &c = a.few.c;
        const int lane = threadIdx.x % WARP, m = tile * TILE_ROWS + lane / 4;
        const int expert = front->group[group].expert, n = front->group[group].n;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            if (j >= n)
                break;
            const int column = lane % 4 * 2 + j;
            const int r = front->group[group].row + (column < n ? column : 0);
            const float back = front->back[r];
            float *out = front->out[r] + m, max = 0;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                if (column >= n || m + h * 8 >= (int)c.matrix[0].w.m)
                    continue;
                float v = value(a, expert, PAIR ? first[2 * h + j] : sum[2 * h + j], 0, h,
                                m + h * 8, back);
                if (PAIR)
                    v = activated(c.activation, v,
                                  value(a, expert, sum[2 * h + j], 1, h, m + h * 8, back));
                out[h * 8] = v;
                max = fmaxf(max, fabsf(v));
            }
            if (!PAIR || !a.few.raises.peaks)
                continue;
            __syncwarp();
            for (int by = 16; by > 2; by /= 2)
                max = fmaxf(max, warp_across(max, by));
            if (lane < 4 && column < n)
                peak_raise(a.few.raises.peaks + front->entry[r], a.few.raises.epoch, max);
        }
    }
};

// Where the sums of a warp's first pieces are left, this lane's.
static __device__ __forceinline__ float4 *union_left(const moe_union &a, const union_phase &p,
                                                     unsigned char *shared, int warp) {
    const int lane = threadIdx.x % WARP, pair = lane % 4 < p.pairs ? lane % 4 : 0;
    return (float4 *)(shared + a.left + warp * a.left_each) + lane / 4 * p.pairs + pair;
}

// Adds the pieces from `at` to `end` - 1 of the phase, which the warps after this one have left or
// will: all of them are first in their warps' work.
template <bool PAIR>
static __device__ __forceinline__ void union_gather(const moe_union &a, const union_phase &p,
                                                    unsigned char *shared, int at, int end,
                                                    union_unit<PAIR> &u) {
    const volatile int *done = ((union_front *)shared)->done;
    int piece = a.pieces - (end - at);
    for (int warp = (int)threadIdx.x / WARP + 1; at < end; warp++) {
        const int cut = union_cut(a, p, warp + 1), stop = cut < end ? cut : end;
        if (stop <= at)
            continue;
        while (done[warp] != p.number)
            continue;
        __threadfence_block();
        const float4 *from = union_left(a, p, shared, warp);
        for (; at < stop; at++, piece++, from += p.pairs * UNION_PAIR / 16) {
            const float4 v = *from;
            const float d[4] = {v.x, v.y, v.z, v.w};
            u.add(a.few.c.parts, piece, d);
        }
    }
}

// All pieces of this warp in a phase; its ring is filled.
template <int FORM, bool PAIR>
static __device__ __forceinline__ void union_products(const moe_union &a, const union_phase &p,
                                                      unsigned char *shared,
                                                      union_ring<FORM, PAIR> &ring) {
    using R = moe_ring<FORM, false>;
    union_front *front = (union_front *)shared;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int begin = union_cut(a, p, warp), end = union_cut(a, p, warp + 1);
    unsigned char *scales = shared + a.few.scales + warp * FEW_SCALES;
    union_place place(a, p, begin);
    union_unit<PAIR> u = {};
#pragma unroll 1
    for (int at = begin; at < end;) {
        const union_group &g = front->group[place.group];
        const int first = place.piece, rest = a.pieces - first;
        const int n = rest < end - at ? rest : end - at;
        const int column = g.row + (lane / 4 < g.n ? lane / 4 : 0);
        const moe_lane_row row = {shared + a.few.rows + column * a.few.pitch + lane % 4 * 16, true};
        float4 *left = union_left(a, p, shared, warp);
        if (!first)
            u.open(a, front, place);
#pragma unroll 1
        for (int piece = first; piece < first + n; piece++) {
            const int part = !PAIR || piece < a.few.c.parts ? piece : piece - a.few.c.parts;
            const int k_end = a.few.begin[part + 1];
            float d[4] = {0, 0, 0, 0};
#pragma unroll 1
            for (int k = a.few.begin[part]; k < k_end; k += R::STEP) {
                const unsigned char *stage = ring.next(a, front);
                moe_stage<FORM, false>(d, stage, scales, row, k, k_end - k);
            }
            if (!first)
                u.add(a.few.c.parts, piece, d);
            else if (lane % 4 < p.pairs)
                left[(piece - first) * p.pairs * (UNION_PAIR / 16)] =
                    make_float4(d[0], d[1], d[2], d[3]);
        }
        place.step(a, n);
        at += n;
        if (first) {
            __threadfence_block();
            __syncwarp();
            if (lane == 0)
                ((volatile union_front *)front)->done[warp] = p.number;
            continue;
        }
        if (n < a.pieces)
            union_gather(a, p, shared, at, at + a.pieces - n, u);
        u.finish(a, front);
    }
}
#endif

template <int FORM, bool PAIR>
static __global__ void __launch_bounds__(UNION_WARPS *WARP, 1)
    moe_union_kernel(const __grid_constant__ struct moe_union a) {
#if __CUDA_ARCH__ >= 800 // the launcher takes no other devices
    using R = moe_ring<FORM, false>;
    extern __shared__ __align__(128) unsigned char shared[];
    union_front *front = (union_front *)shared;
    const int warp = threadIdx.x / WARP;
    bool waits = a.few.ahead;
    if (!waits) {
        gpu_await();
        gpu_let_next();
    }
    const int64_t all = (int64_t)union_begin(a, shared) * a.tiles;
    const int end = (int)(all * (blockIdx.x + 1) / gridDim.x);
    union_phase p = {0, (int)(all * blockIdx.x / gridDim.x), 0, 1, 1, 1};
#pragma unroll 1
    for (; p.begin < end; p.begin = p.end, p.number++) {
        union_open(a, shared, end, p);
        const int first = union_cut(a, p, warp), pieces = union_cut(a, p, warp + 1) - first;
        union_ring<FORM, PAIR> ring = {{union_place(a, p, first), pieces, 0, 0, NULL},
                                       shared + a.few.weights + warp * a.slots * R::SLOT,
                                       0,
                                       (a.slots - 1) * R::SLOT,
                                       a.slots};
        ring.fill(a, front, 0, 1);
        union_entries(a, shared);
        if (waits) {
            gpu_await();
            gpu_let_next();
            waits = false;
        }
        union_take(a, front, shared + a.few.rows);
        ring.fill(a, front, 1, a.slots - 1);
        union_products<FORM, PAIR>(a, p, shared, ring);
        __syncthreads();
    }
    if (waits) {
        gpu_await();
        gpu_let_next();
    }
#else
    gpu_await();
    (void)a;
#endif
}

typedef void moe_union_fn(const struct moe_union);

struct union_variant {
    moe_union_fn *kernel;
    int slot; // bytes of a stage
};

template <int FORM> static struct union_variant variant(bool pair) {
    return {pair ? moe_union_kernel<FORM, true> : moe_union_kernel<FORM, false>,
            moe_ring<FORM, false>::SLOT};
}

static struct union_variant variant_of(int form, bool pair) {
    switch (form) {
#define X(name, span, chunk)                                                                       \
    case WEIGHT_##name:                                                                            \
        return variant<WEIGHT_##name>(pair);
        WEIGHT_FORMS_LIST(X)
#undef X
    }
    return {};
}

struct union_way {
    int warps, slots;
};
static const struct union_way ways[] = {{16, 3}, {16, 2}, {14, 3}, {12, 3}, {12, 2}, {8, 2}};

// Divides a block's shared memory, of which there are `room` bytes; false: too little.
static bool share_memory(struct moe_union *u, const struct union_way *way, int left, int slot,
                         int room) {
    struct moe_few *f = &u->few;
    u->left_each = left;
    u->slots = way->slots;
    f->pitch = (int)f->c.stride * 2 + 64;
    f->scales =
        (int)(sizeof(struct union_front) + (size_t)u->order.max * sizeof(struct union_listed) +
              (size_t)f->c.listed * sizeof(short));
    f->scales = (f->scales + 127) / 128 * 128;
    f->weights = f->scales + way->warps * FEW_SCALES;
    u->left = f->weights + way->warps * way->slots * slot;
    f->rows = u->left + way->warps * left;
    u->rows = (room - f->rows) / f->pitch;
    u->rows = u->rows < UNION_ROWS ? u->rows : UNION_ROWS;
    return f->rows < room && u->rows >= MOE_COLUMNS;
}

// Sets how a block works; its warps, 0 if it finds no room. A second phase of a block would take as
// long as a third of a launch, so that room for the rows of two full groups comes first.
static int choose_union_shape(const struct gpu *g, struct moe_union *u,
                              const struct moe_call_args *c, int slot) {
    const int parts = c->parts, pieces = parts * (c->pair ? 2 : 1);
    // Of left sums: pieces of four rows, from half a unit on of eight; or none.
    const int four = (pieces - 1) * 2 * UNION_PAIR, eight = (pieces - parts) * 4 * UNION_PAIR;
    const int left[] = {four > eight ? four : eight, 0};
    enum { ALL = sizeof ways / sizeof ways[0] };
    u->few.c = *c;
    u->order.max = moe_order_max_tiles(c->listed, c->experts, MOE_UNION_ROWS);
    u->pieces = pieces;
    u->tiles = (int)c->matrix[0].w.tiles;
    for (int i = 0; i < 4 * ALL; i++) {
        const struct union_way *way = &ways[i % ALL];
        if (share_memory(u, way, left[i / ALL % 2], slot, g->shared) &&
            u->rows >= (i < 2 * ALL ? 2 * MOE_COLUMNS : (int)MOE_COLUMNS))
            return way->warps;
    }
    return 0;
}

bool moe_union_takes(const struct gpu *g, const struct moe_call_args *c) {
    const struct union_variant v = variant_of(c->form, c->pair);
    struct moe_union u = {};
    return g->path != CUDA_PATH_SMALL && v.kernel && choose_union_shape(g, &u, c, v.slot);
}

void moe_union_launch(struct gpu *g, const struct moe_call_args *c, const struct moe_order *o,
                      const struct moe_peaks *from, const struct moe_peaks *raises, bool ahead) {
    const struct union_variant v = variant_of(c->form, c->pair);
    struct moe_union u = {};
    const int warps = choose_union_shape(g, &u, c, v.slot);
    u.few.from = *from;
    u.few.raises = *raises;
    u.few.ahead = ahead && g->overlaps;
    if (o->tiles)
        u.order = *o;
    u.shared_groups = (int)((c->entries - c->listed + MOE_COLUMNS - 1) / MOE_COLUMNS);
    for (int p = 0; p <= c->parts; p++)
        u.few.begin[p] = (int)linear_part_begin(c->matrix[0].w.k, c->parts, p);
    u.few.begin[c->parts] = (int)c->matrix[0].w.k;
    const int blocks = g->processors, shared = u.few.rows + u.rows * u.few.pitch;
    if (gpu_allow_shared(g, (const void *)v.kernel, g->shared, "moe"))
        gpu_launch_saying({g, "moe", moe_says(u.few.ahead)}, v.kernel, dim3((unsigned)blocks),
                          dim3((unsigned)warps * WARP), (size_t)shared, u);
}
