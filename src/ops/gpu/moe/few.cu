// SPDX-License-Identifier: Apache-2.0
// Launches of few.cuh: how an expert's tiles are cut into blocks, and their shared memory. What
// is chosen here changes no bits.
#include "ops/gpu/moe/few.cuh"

typedef void moe_few_fn(const struct moe_few);

struct moe_few_variant {
    moe_few_fn *kernel;
    int ring; // bytes of weights of a block
};

template <int FORM, bool SMALL> static struct moe_few_variant variant(void) {
    using R = moe_ring<FORM, SMALL>;
    return {moe_few_kernel<FORM, SMALL>, MOE_WARPS * R::SLOTS * R::SLOT};
}

static struct moe_few_variant variant_of(int form, bool small) {
    switch (form) {
#define X(name, span, chunk)                                                                       \
    case WEIGHT_##name:                                                                            \
        return small ? variant<WEIGHT_##name, true>() : variant<WEIGHT_##name, false>();
        WEIGHT_FORMS_LIST(X)
#undef X
    default:
        return {};
    }
}

// Tiles of a block: as many as leave each multiprocessor a few blocks.
static int tiles_of(const struct gpu *g, const struct moe_call_args *c) {
    enum { MOST = 32, BLOCKS = 3 };
    const int each = (c->pair ? 2 : 1) * c->parts; // items of a tile
    const int64_t experts =
        (c->listed < c->experts ? c->listed : c->experts) + (c->entries > c->listed);
    const int64_t items = experts * c->matrix[0].w.tiles * each;
    int64_t share = items / ((int64_t)g->processors * BLOCKS); // of a block
    const int64_t warps = MOE_WARPS, max = MOST;
    share = share > max ? max : share < warps ? warps : share / warps * warps;
    return share < each ? 1 : (int)(share / each);
}

// Divides a block's shared memory; its size.
static int share_memory(struct moe_few *a, int ring, int rows) {
    const int items = a->tiles * (a->c.pair ? 2 : 1) * a->c.parts;
    a->scales = (MOE_FRONT + items * MOE_SUMS * (int)sizeof(float) + 127) / 128 * 128;
    a->weights = a->scales + MOE_WARPS * FEW_SCALES;
    a->rows = a->weights + ring;
    a->pitch = rows ? (int)a->c.stride * 2 + 64 : 0;
    return a->rows + rows * a->pitch;
}

// Entries of an expert that a block keeps.
static int rows_of(const struct moe_call_args *c) {
    const int64_t max = c->distinct ? 1 : c->entries;
    return max < MOE_COLUMNS ? (int)max : MOE_COLUMNS;
}

bool moe_few_fits(const struct gpu *g, const struct moe_call_args *c) {
    const struct moe_few_variant v = variant_of(c->form, g->path == CUDA_PATH_SMALL);
    struct moe_few a = {};
    a.c = *c;
    a.tiles = tiles_of(g, c);
    return share_memory(&a, v.ring, rows_of(c)) <= g->shared;
}

bool moe_few_launch(struct gpu *g, const struct moe_call_args *c, const struct moe_peaks *from,
                    const struct moe_peaks *raises, bool ahead) {
    const bool small = g->path == CUDA_PATH_SMALL;
    const struct moe_few_variant v = variant_of(c->form, small);
    const int rows = rows_of(c);
    struct moe_few a = {};
    a.c = *c;
    a.from = *from;
    a.raises = *raises;
    a.ahead = ahead && g->overlaps;
    a.tiles = tiles_of(g, c);
    for (int p = 0; p <= c->parts; p++)
        a.begin[p] = (int)linear_part_begin(c->matrix[0].w.k, c->parts, p);
    a.begin[c->parts] = (int)c->matrix[0].w.k;
    int shared = share_memory(&a, v.ring, rows);
    if (shared > g->shared) {
        if (from->wide)
            return false;
        shared = share_memory(&a, v.ring, 0);
    }
    if (!gpu_allow_shared(g, (const void *)v.kernel, g->shared, "moe"))
        return true;
    dim3 grid((unsigned)((c->matrix[0].w.tiles + a.tiles - 1) / a.tiles), (unsigned)c->entries);
    gpu_launch_saying({g, "moe", moe_says(a.ahead)}, v.kernel, grid, MOE_THREADS, (size_t)shared,
                      a);
    return true;
}
