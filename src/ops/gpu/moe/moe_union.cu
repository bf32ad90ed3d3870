// SPDX-License-Identifier: Apache-2.0
// Experts of the entries of a few rows, each chosen expert read once. Entries are in groups of up
// to MOE_COLUMNS of one expert (moe_order.cu), those of a shared expert in front. A unit is some
// tiles of 16 outputs of one group; a block stays for the whole launch and walks units that follow
// each other, so that it seldom changes its rows and its warps' copies of weights run ahead over
// the ends of units. What a unit is made of is moe_few.cuh's, and so are its bits.
#include "ops/gpu/moe/moe_few.cuh"

enum { UNION_BLOCKS = 2, UNION_KEPT = 32 }; // blocks of a multiprocessor; groups kept by a block

struct moe_union {
    struct moe_few few;             // tiles: of a unit
    struct moe_order order;         // of the list
    int shared_groups, units, sums; // groups of the shared expert; units of a group; bytes of sums
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
// Where a warp or a block stands among its block's units.
struct union_place {
    int group, slot;

    __device__ __forceinline__ void step(int units) {
        if (++slot == units) {
            slot = 0;
            group++;
        }
    }
};

// In front of sums: entries of the present group, then groups of the block.
struct union_front {
    short list[MOE_COLUMNS];
    struct moe_tile group[UNION_KEPT];
};
static_assert(sizeof(union_front) <= MOE_FRONT, "groups fit in front");

// expert, first, n; of the shared one first counts its entries.
static __device__ __forceinline__ moe_tile union_group(const moe_union &a, int group) {
    if (group < a.shared_groups) {
        const int first = group * MOE_COLUMNS, all = (int)(a.few.c.entries - a.few.c.listed);
        return {MOE_SHARED, first, all - first < MOE_COLUMNS ? all - first : MOE_COLUMNS, 0};
    }
    const int4 v = __ldcg((const int4 *)(a.order.tile + group - a.shared_groups));
    return {v.x, v.y, v.z, 0};
}

static __device__ __forceinline__ moe_tile union_kept(const moe_union &a,
                                                      const unsigned char *shared, int first,
                                                      int group) {
    const int at = group - first;
    return at < UNION_KEPT ? ((const union_front *)shared)->group[at] : union_group(a, group);
}

static __device__ __forceinline__ moe_unit union_unit(const moe_union &a,
                                                      const unsigned char *shared, int first,
                                                      const union_place &p) {
    moe_unit u = {union_kept(a, shared, first, p.group).expert, p.slot * a.few.tiles, a.few.tiles,
                  0};
    const int left = (int)a.few.c.matrix[0].w.tiles - u.tile;
    u.tiles = left < u.tiles ? left : u.tiles;
    u.items = u.tiles * (a.few.c.pair ? 2 : 1) * a.few.c.parts;
    return u;
}

// moe_feed over the units of a block.
template <int FORM> struct union_feed {
    using R = moe_ring<FORM, false>;
    union_place at;
    int left, item, k, end; // units from `at` on; the next item of its unit
    const unsigned char *from;

    __device__ __forceinline__ void next(const moe_union &a, const unsigned char *shared, int first,
                                         unsigned char *to) {
        const int lane = threadIdx.x % 32;
        while (k >= end && left > 0) {
            const moe_unit u = union_unit(a, shared, first, at);
            if (item < u.items) {
                const moe_item t(a.few, u, item);
                const matrix_view w = moe_weights(a.few, u, t.matrix);
                k = a.few.begin[t.part];
                end = a.few.begin[t.part + 1];
                from = w.data + t.tile * w.pitch + k / R::SPAN * dequant<FORM>::CHUNK;
                item += MOE_WARPS;
            } else {
                item = threadIdx.x / 32;
                at.step(a.units);
                left--;
            }
        }
        if (k < end) {
            const int bytes_left = (end - k + R::SPAN - 1) / R::SPAN * dequant<FORM>::CHUNK;
            const int bytes = bytes_left < R::SLOT ? bytes_left : R::SLOT;
            for (int i = lane * 16; i < bytes; i += 512)
                copy16<false>(to + i, from + i);
            k += R::STEP;
            from += R::SLOT;
        }
        copies_end<false>();
    }
};

// Takes the rows of a group; all threads.
static __device__ __forceinline__ void union_rows(const moe_union &a, const moe_tile &t,
                                                  unsigned char *shared) {
    short *list = ((union_front *)shared)->list;
    __syncthreads(); // the rows before are not needed any more
    if ((int)threadIdx.x < t.n)
        list[threadIdx.x] =
            (short)(t.expert == MOE_SHARED ? (int)a.few.c.listed + t.first + (int)threadIdx.x
                                           : __ldcg(a.order.entry + t.first + threadIdx.x));
    __syncthreads();
    moe_take(a.few, list, t.n, false, shared + a.few.rows);
    __syncthreads();
}

// What a warp goes on with from unit to unit: its row, its copies, the stage that is next.
template <int FORM> struct union_warp {
    moe_lane_row row;
    union_feed<FORM> feed;
    int slot;
};

// The sums of this warp's items of a unit; first: the block's first group.
template <int FORM>
static __device__ __forceinline__ void union_items(const moe_union &a, const moe_unit &u, int first,
                                                   unsigned char *shared, float *sums,
                                                   union_warp<FORM> &own) {
    using R = moe_ring<FORM, false>;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned char *ring = shared + a.few.weights + warp * (R::SLOTS * R::SLOT);
    unsigned char *scales = shared + a.few.scales + warp * FEW_SCALES;
    for (int i = warp; i < u.items; i += MOE_WARPS) {
        const int part = i % a.few.c.parts, end = a.few.begin[part + 1];
        float d[4] = {0, 0, 0, 0};
#pragma unroll 1
        for (int k = a.few.begin[part]; k < end; k += R::STEP) {
            unsigned char *stage = ring + own.slot * R::SLOT;
            copies_wait<false, R::SLOTS - 1>();
            __syncwarp();
            moe_stage<FORM, false>(d, stage, scales, own.row, k, end - k);
            __syncwarp();
            own.feed.next(a, shared, first, stage);
            own.slot = own.slot + 1 == R::SLOTS ? 0 : own.slot + 1;
        }
        float *to = sums + i * MOE_SUMS + lane % 4 * 2 * MOE_SUM_PITCH;
        to[lane / 4] = d[0];
        to[lane / 4 + MOE_SUM_PITCH] = d[1];
        to[lane / 4 + 8] = d[2];
        to[lane / 4 + 8 + MOE_SUM_PITCH] = d[3];
    }
}
#endif

template <int FORM>
static __global__ void __launch_bounds__(MOE_THREADS, UNION_BLOCKS)
    moe_union_kernel(const __grid_constant__ struct moe_union a) {
#if __CUDA_ARCH__ >= 800 // the launcher takes no other devices
    using R = moe_ring<FORM, false>;
    extern __shared__ __align__(128) unsigned char shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (!a.few.ahead) {
        gpu_await();
        gpu_let_next();
    }
    const int64_t all = (int64_t)(__ldcg(a.order.tiles) + a.shared_groups) * a.units;
    const int begin = (int)(all * blockIdx.x / gridDim.x);
    const int end = (int)(all * (blockIdx.x + 1) / gridDim.x);
    union_place at = {begin / a.units, begin % a.units};
    const int first = at.group;
    if (threadIdx.x < UNION_KEPT && first + (int)threadIdx.x <= (end - 1) / a.units)
        ((union_front *)shared)->group[threadIdx.x] = union_group(a, first + (int)threadIdx.x);
    __syncthreads();
    union_warp<FORM> own = {{shared, true}, {at, end - begin, warp, 0, 0, NULL}, 0};
    unsigned char *ring = shared + a.few.weights + warp * (R::SLOTS * R::SLOT);
    for (int s = 0; s < R::SLOTS; s++)
        own.feed.next(a, shared, first, ring + s * R::SLOT);
    if (a.few.ahead) {
        gpu_await();
        gpu_let_next();
    }
    int group = -1;
    moe_tile t = {};
#pragma unroll 1
    for (int i = begin; i < end; i++, at.step(a.units)) {
        if (at.group != group) {
            group = at.group;
            t = union_kept(a, shared, first, group);
            union_rows(a, t, shared);
            const int column = lane / 4 < t.n ? lane / 4 : 0;
            own.row.at = shared + a.few.rows + column * a.few.pitch + lane % 4 * 16;
        }
        const moe_unit u = union_unit(a, shared, first, at);
        unsigned char *half = shared + (i % 2 ? a.sums : 0); // sums of two units in turns
        union_items<FORM>(a, u, first, shared, (float *)(half + MOE_FRONT), own);
        __syncthreads();
        moe_finish(a.few, u, ((const union_front *)shared)->list, t.n, half);
    }
#else
    gpu_await();
    (void)a;
#endif
}

typedef void moe_union_fn(const struct moe_union);

struct union_variant {
    moe_union_fn *kernel;
    int ring;
};

template <int FORM> static struct union_variant variant(void) {
    using R = moe_ring<FORM, false>;
    return {moe_union_kernel<FORM>, MOE_WARPS * R::SLOTS * R::SLOT};
}

static struct union_variant variant_of(int form) {
    switch (form) {
#define X(name, span, chunk)                                                                       \
    case WEIGHT_##name:                                                                            \
        return variant<WEIGHT_##name>();
        WEIGHT_FORMS_LIST(X)
#undef X
    }
    return {};
}

// Divides a block's shared memory; its size.
static int share_memory(struct moe_union *u, int ring) {
    struct moe_few *a = &u->few;
    const int each = (a->c.pair ? 2 : 1) * a->c.parts; // items of a tile
    a->tiles = each < MOE_WARPS ? MOE_WARPS / each : 1;
    u->sums = a->tiles * each * MOE_SUMS * (int)sizeof(float);
    a->scales = (MOE_FRONT + 2 * u->sums + 127) / 128 * 128;
    a->weights = a->scales + MOE_WARPS * FEW_SCALES;
    a->rows = a->weights + ring;
    a->pitch = (int)a->c.stride * 2 + 64;
    return a->rows + MOE_COLUMNS * a->pitch;
}

bool moe_union_takes(const struct gpu *g, const struct moe_call_args *c) {
    const struct union_variant v = variant_of(c->form);
    struct moe_union u = {};
    u.few.c = *c;
    return g->path != CUDA_PATH_SMALL && v.kernel && share_memory(&u, v.ring) <= g->shared;
}

void moe_union_launch(struct gpu *g, const struct moe_call_args *c, const struct moe_order *o,
                      const struct moe_peaks *from, const struct moe_peaks *raises, bool ahead) {
    const struct union_variant v = variant_of(c->form);
    struct moe_union u = {};
    u.few.c = *c;
    u.few.from = *from;
    u.few.raises = *raises;
    u.few.ahead = ahead && g->overlaps;
    u.order = *o;
    u.shared_groups = (int)((c->entries - c->listed + MOE_COLUMNS - 1) / MOE_COLUMNS);
    for (int p = 0; p <= c->parts; p++)
        u.few.begin[p] = (int)linear_part_begin(c->matrix[0].w.k, c->parts, p);
    u.few.begin[c->parts] = (int)c->matrix[0].w.k;
    const int shared = share_memory(&u, v.ring);
    u.units = (int)((c->matrix[0].w.tiles + u.few.tiles - 1) / u.few.tiles);
    if (gpu_check(g, gpu_allow_shared((const void *)v.kernel, g->shared), "moe"))
        gpu_launch_early(g, "moe", v.kernel, dim3((unsigned)(g->processors * UNION_BLOCKS)),
                         MOE_THREADS, (size_t)shared, u);
}
