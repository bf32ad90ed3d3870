// SPDX-License-Identifier: Apache-2.0
// Launches of linear_few.cuh: how jobs are cut into units and shared memory into rings. What is
// chosen here changes no bits.
#include "ops/cuda/linear_few.h"
#include "ops/cuda/ops_cuda.h"

// KEPT: bytes that stay free, so that a small kernel waits there for the end of this one.
enum { KEPT = 6 << 10, LEAST_STAGES = 2, MOST_STAGES = 20 };

static int kernel_rows(int64_t n) {
    return n <= 32 ? (int)(n + 7) / 8 * 8 : n <= 48 ? 48 : 64;
}

static linear_few_fn *kernel_of(int rows) {
    switch (rows) {
    case 8:
        return linear_few_8();
    case 16:
        return linear_few_16();
    case 24:
        return linear_few_24();
    case 32:
        return linear_few_32();
    case 48:
        return linear_few_48();
    default:
        return linear_few_64();
    }
}

// Divides a block's shared memory among its rings; its size, more than there is if they find no
// room.
static int share_memory(const struct gpu *g, struct linear_few *c, int rows) {
    int stage = rows * FEW_K * 2, room = g->shared - KEPT - few_front(rows);
    c->slot = 0;
    for (int j = 0; j < c->jobs; j++) {
        int form = c->form[j];
        int bytes = few_step(form, rows) / weight_span(form) * weight_chunk(form);
        c->slot = bytes > c->slot ? bytes : c->slot;
    }
    int weights = few_warps(rows) * FEW_SLOTS * c->slot;
    c->stages = (room - weights) / stage;
    c->stages = c->stages > MOST_STAGES ? MOST_STAGES : c->stages;
    c->stages = c->stages < LEAST_STAGES ? LEAST_STAGES : c->stages;
    return few_front(rows) + c->stages * stage + weights;
}

bool linear_few_takes(const struct gpu *g, const struct linear_launch *l, const int *forms) {
    struct linear_few c = {};
    if (g->path != CUDA_PATH_WGMMA || l->n > FEW_ROWS)
        return false;
    for (int j = 0; j < l->jobs; j++) {
        if (forms[j] == WEIGHT_RAW)
            return false;
        c.form[c.jobs++] = (signed char)forms[j];
    }
    return share_memory(g, &c, kernel_rows(l->n)) <= g->shared;
}

// Units of a launch whose jobs are cut for up to `tiles` tiles each.
static int count_units(const struct linear_few *c, int tiles) {
    int units = 0;
    for (int j = 0; j < c->jobs; j++) {
        const struct linear_one *o = &c->job[j];
        int each = o->pair ? tiles / 2 : tiles;
        units += (int)((o->w[0].tiles + each - 1) / each) * o->parts;
    }
    return units;
}

// The tiles of a unit by which the busiest block has the least to read.
static int choose_tiles(const struct gpu *g, const struct linear_few *c, int warps) {
    enum { LEAST = 8 }; // fewer take as long
    int best = 0, tiles = 0;
    for (int t = warps; t >= 2; t -= 2) {
        int rounds = (count_units(c, t) + g->processors - 1) / g->processors;
        int cost = rounds * (t < LEAST ? LEAST : t);
        if (best && cost >= best)
            continue;
        best = cost;
        tiles = t;
    }
    return tiles;
}

static void cut(const struct gpu *g, struct linear_few *c, int warps) {
    const int tiles = choose_tiles(g, c, warps), least = count_units(c, tiles);
    const int rounds = (least + g->processors - 1) / g->processors;
    c->units = 0;
    for (int j = 0; j < c->jobs; j++) {
        const struct linear_one *o = &c->job[j];
        struct linear_few_cut *t = &c->cut[j];
        int each = o->pair ? tiles / 2 : tiles, all = (int)o->w[0].tiles;
        t->first = c->units;
        t->groups = (all + each - 1) / each;
        if (c->jobs == 1) // as many units as blocks, however few tiles that leaves to some
            t->groups = rounds * g->processors / o->parts;
        t->groups = t->groups > all ? all : t->groups;
        t->each = all / t->groups;
        t->larger = all % t->groups;
        for (int p = 0; p <= o->parts; p++)
            t->begin[p] = (int)linear_part_begin(o->w[0].k, o->parts, p);
        t->begin[o->parts] = (int)o->w[0].k;
        c->units += t->groups * o->parts;
    }
}

// Room for the parts of all jobs behind the first `kept` bytes; false without memory, the fault is
// set.
static bool parts_room(struct gpu *g, struct linear_few *c, size_t kept) {
    size_t bytes = 0;
    for (int j = 0; j < c->jobs; j++)
        bytes += linear_left_bytes(&c->job[j], c->n);
    unsigned char *at = bytes ? (unsigned char *)gpu_scratch(g, kept + bytes) : NULL;
    if (!at)
        return !bytes;
    at += kept;
    for (int j = 0; j < c->jobs; j++) {
        c->job[j].partial = (float *)at;
        at += linear_left_bytes(&c->job[j], c->n);
    }
    return true;
}

static bool allow_shared(struct gpu *g, linear_few_fn *kernel, int rows) {
    uint32_t bit = 1u << rows / 8;
    if (!(g->allowed_few & bit) &&
        !gpu_check(g, gpu_allow_shared((const void *)kernel, g->shared), "linear"))
        return false;
    g->allowed_few |= bit;
    return true;
}

// Maps the rows for the copy engine.
static bool map_rows(struct gpu *g, struct linear_few *c, const struct linear_launch *l, int rows) {
    if (!g->map_maker)
        g->map_maker = gpu_map_maker();
    return gpu_check(
        g, gpu_make_map(g->map_maker, &c->rows, l->x, l->stride, l->n, FEW_PANEL, rows), "linear");
}

void linear_few_start(struct gpu *g, const struct linear_launch *l, const int *forms, size_t kept) {
    const int rows = kernel_rows(l->n);
    linear_few_fn *kernel = kernel_of(rows);
    struct linear_few c = {};
    c.n = (int)l->n;
    c.unscale = l->unscale;
    for (; c.jobs < l->jobs; c.jobs++) {
        c.job[c.jobs] = l->job[c.jobs];
        c.form[c.jobs] = (signed char)forms[c.jobs];
    }
    if (!parts_room(g, &c, kept) || !allow_shared(g, kernel, rows) || !map_rows(g, &c, l, rows))
        return;
    cut(g, &c, few_warps(rows));
    int shared = share_memory(g, &c, rows);
    int blocks = c.units < g->processors ? c.units : g->processors;
    gpu_launch_early(g, "linear", kernel, dim3((unsigned)blocks), dim3((unsigned)few_threads(rows)),
                     (size_t)shared, c);
    for (int j = 0; j < c.jobs; j++)
        if (c.job[j].parts > 1 && !linear_wait(g, &c.job[j], l))
            return;
}
