// SPDX-License-Identifier: Apache-2.0
// Launches of few rows (kernel.cuh, warp.cuh): how jobs are cut into units and shared memory into
// rings. What is chosen here changes no bits.
#include "ops/gpu/linear/few/few.h"
#include "ops/gpu/runtime/ops_cuda.h"

// KEPT: bytes that stay free, so that a small kernel waits there for the end of this one.
// LONG: units of a block from which on its first copies are not what counts. WHOLE: stages of a
// warp's only unit up to which all are copied at once.
enum { KEPT = 6 << 10, MOST_STAGES = 20, LONG = 3, WHOLE = 2 };

static int kernel_rows(int64_t n) {
    return n <= 32 ? (int)(n + 7) / 8 * 8 : n <= 48 ? 48 : (int)(n + 31) / 32 * 32;
}

// Which kernel takes a launch. warp: of warp.cuh.
struct few_kind {
    int rows;
    bool warp;
};

static few_kind few_kind_of(const struct gpu *g, int64_t n) {
    const few_kind k = {kernel_rows(n), n > 8 && g->path != CUDA_PATH_WGMMA};
    return k;
}

static linear_few_fn *few_kernel_of(few_kind k) {
    switch (k.warp ? -k.rows : k.rows) {
#define X(rows)                                                                                    \
    case rows:                                                                                     \
        return linear_few_##rows();
        FEW_KERNELS(X)
#undef X
#define X(rows)                                                                                    \
    case -rows:                                                                                    \
        return linear_few_warp_##rows();
        FEW_WARP_KERNELS(X)
#undef X
    }
    return NULL;
}

// Bytes for rows out of `max`; more if they do not fit.
static int row_bytes_of(struct linear_few *c, few_kind kind, int max) {
    const int rows = kind.rows;
    if (rows > 8) {
        const int stage = kind.warp ? few_warp_stage(rows) : rows * few_k(rows) * 2;
        c->stages = max / stage;
        c->stages = c->stages > MOST_STAGES ? MOST_STAGES : c->stages;
        c->stages = c->stages < LEAST_STAGES ? LEAST_STAGES : c->stages;
        return c->stages * stage;
    }
    const int part = (int)linear_longest_part(c->job, c->jobs) * PART_UNIT;
    c->columns = c->n > 4 ? 8 : c->n > 2 ? 4 : c->n;
    c->span = (max / c->columns - few_pitch(0)) / 2 / PART_UNIT * PART_UNIT;
    c->span = c->span > part ? part : c->span < PART_UNIT ? PART_UNIT : c->span;
    return (c->columns * few_pitch(c->span) + 127) / 128 * 128;
}

// Warps that multiply of a block that takes up to `tiles` tiles at once.
static int warps_of(few_kind kind, int tiles) {
    return kind.warp && tiles > FEW_WARP_WARPS ? (int)FEW_WARP_WARPS : tiles;
}

// Divides a block's shared memory, which takes up to `tiles` tiles at once; its size, more than
// there is if rows do not fit.
static int share_memory(const struct gpu *g, struct linear_few *c, few_kind kind, int tiles) {
    const int rows = kind.rows;
    c->slot = 0;
    for (int j = 0; j < c->jobs; j++) {
        int form = c->form[j];
        int bytes = few_step(form, rows) / weight_span(form) * weight_chunk(form);
        c->slot = bytes > c->slot ? bytes : c->slot;
    }
    const int warps = warps_of(kind, tiles), areas = kind.warp ? warps * FEW_WARP_AREA : 0;
    const int front = kind.warp ? FEW_WARP_FRONT : few_front(rows);
    const int weights = tiles * FEW_SLOTS * c->slot + areas;
    c->twice = tiles - warps;
    c->row_bytes = row_bytes_of(c, kind, g->shared - KEPT - front - weights);
    return front + c->row_bytes + weights;
}

static struct linear_few few_of(const struct linear_launch *l, const int *forms) {
    struct linear_few c = {};
    c.n = (int)l->n;
    c.unscale = l->unscale;
    c.x = l->x;
    c.stride = l->stride;
    for (; c.jobs < l->jobs; c.jobs++) {
        c.job[c.jobs] = l->job[c.jobs];
        c.form[c.jobs] = (signed char)forms[c.jobs];
    }
    return c;
}

// Tiles that a block may take at once, an even number; 0 if they do not fit.
static int max_tiles(const struct gpu *g, struct linear_few *c, few_kind kind) {
    enum { LEAST = 8, LEAST_WARP = 4 };
    const int all = kind.warp ? (int)FEW_WARP_TILES : few_warps(kind.rows);
    const int least = kind.warp ? (int)LEAST_WARP : kind.rows == 8 ? (int)LEAST : all;
    for (int tiles = all; tiles >= least; tiles -= 2)
        if (share_memory(g, c, kind, tiles) <= g->shared)
            return tiles;
    return 0;
}

bool linear_few_fits(const struct gpu *g, const struct linear_launch *l, const int *forms) {
    struct linear_few c = few_of(l, forms);
    return max_tiles(g, &c, few_kind_of(g, l->n)) > 0;
}

// Bytes that a warp reads of a tile of job j.
static int tile_bytes(const struct linear_few *c, int j) {
    const struct linear_one *o = &c->job[j];
    const int form = c->form[j];
    const int64_t chunks = o->w[0].k / o->parts / weight_span(form);
    return (int)(chunks ? chunks : 1) * weight_chunk(form);
}

// Units of a launch whose units have up to `tiles` tiles of the job whose tiles are `heaviest`, and
// as many bytes of the others.
static int count_units(const struct linear_few *c, int tiles, int warps, int heaviest,
                       int (&each)[LINEAR_JOBS]) {
    int units = 0;
    for (int j = 0; j < c->jobs; j++) {
        const struct linear_one *o = &c->job[j];
        int same = tiles * heaviest / tile_bytes(c, j);
        same = same > warps ? warps : same;
        each[j] = o->pair ? same / 2 : same;
        units += (int)((o->w[0].tiles + each[j] - 1) / each[j]) * o->parts;
    }
    return units;
}

// Chooses the tiles of the jobs' units so that the busiest block has the least to read; rounds in
// which the blocks take all units.
static int choose_tiles(const struct gpu *g, const struct linear_few *c, int warps,
                        int (&each)[LINEAR_JOBS]) {
    enum { LEAST = 8, ROUND = 3 }; // fewer take as long; another round's begin takes that long
    int best = 0, tiles = 0, heaviest = 1;
    for (int j = 0; j < c->jobs; j++)
        heaviest = tile_bytes(c, j) > heaviest ? tile_bytes(c, j) : heaviest;
    for (int t = warps; t >= LEAST || t == warps; t -= 2) {
        int rounds = (count_units(c, t, warps, heaviest, each) + g->processors - 1) / g->processors;
        if (best && rounds * (t + ROUND) >= best)
            continue;
        best = rounds * (t + ROUND);
        tiles = t;
    }
    return (count_units(c, tiles, warps, heaviest, each) + g->processors - 1) / g->processors;
}

// What copies of a job's parts request.
static void count_stages(struct linear_few_cut *t, int form, int parts, int rows) {
    const int span = weight_span(form), chunk = weight_chunk(form), step = few_step(form, rows);
    t->bytes = step / span * chunk;
    for (int p = 0; p < parts; p++) {
        const int k = t->begin[p + 1] - t->begin[p];
        t->stages[p] = (k + step - 1) / step;
        t->from[p] = t->begin[p] / span * chunk;
        t->last[p] = (k - (t->stages[p] - 1) * step + span - 1) / span * chunk;
    }
}

// Returns the most tiles that a unit has.
static int cut_into_units(const struct gpu *g, struct linear_few *c, int rows, int warps) {
    int max = 0, each[LINEAR_JOBS];
    const int rounds = choose_tiles(g, c, warps, each);
    c->units = 0;
    for (int j = 0; j < c->jobs; j++) {
        const struct linear_one *o = &c->job[j];
        struct linear_few_cut *t = &c->cut[j];
        int all = (int)o->w[0].tiles;
        t->first = c->units;
        t->groups = (all + each[j] - 1) / each[j];
        if (c->jobs == 1) // as many units as blocks, however few tiles that leaves to some
            t->groups = rounds * g->processors / o->parts;
        t->groups = t->groups > all ? all : t->groups;
        t->each = all / t->groups;
        t->larger = all % t->groups;
        for (int p = 0; p <= o->parts; p++)
            t->begin[p] = (int)linear_part_begin(o->w[0].k, o->parts, p);
        t->begin[o->parts] = (int)o->w[0].k;
        t->inverse = (unsigned)(((1ull << 32) + (unsigned)t->groups - 1) / (unsigned)t->groups);
        count_stages(t, c->form[j], o->parts, rows);
        c->units += t->groups * o->parts;
        int busy = (t->each + (t->larger > 0)) << o->pair;
        max = busy > max ? busy : max;
    }
    return max;
}

// Memory for the parts of all jobs after the first `kept` bytes; false without memory, the fault
// is set.
static bool reserve_parts(struct gpu *g, struct linear_few *c, size_t kept) {
    const size_t bytes = linear_all_left_bytes(c->job, c->jobs, c->n);
    unsigned char *at = bytes ? (unsigned char *)gpu_scratch(g, kept + bytes) : NULL;
    if (at)
        linear_place_left(c->job, c->jobs, c->n, at + kept);
    return at || !bytes;
}

// Maps the rows for the copy engine, which brings them where a warpgroup multiplies.
static bool map_rows(struct gpu *g, struct linear_few *c, const struct linear_launch *l,
                     few_kind kind) {
    const int rows = kind.rows;
    if (rows == 8 || kind.warp)
        return true;
    return gpu_check(g,
                     gpu_make_panels_map(gpu_maps(g), &c->rows, l->x, l->stride, l->n,
                                         few_k(rows) / FEW_PANEL, rows),
                     "linear");
}

// Rows that are still f32 become the kernel's to make, and those of a pair's outputs stay so.
static void take_wide(struct gpu *g, struct linear_few *c) {
    const struct linear_one *o = &c->job[0];
    struct act a;
    if (c->n > PEAK_ROWS)
        return;
    if (o->pair && !g->peaks)
        g->peaks = (unsigned long long *)gpu_alloc(g, PEAKS * sizeof *g->peaks);
    if (!o->pair && act_take(g, c->x, c->n, &a)) {
        c->wide = a.wide;
        c->wide_k = (int)a.k;
        c->peaks = g->peaks;
        c->epoch = g->epoch;
    } else if (o->pair && o->parts == 1 && o->w[0].m % 32 == 0 && g->peaks) {
        c->peaks = g->peaks;
        c->epoch = ++g->epoch;
        g->peaked = true;
    }
}

// How many stages of weights a warp has places for, and how many it copies before the rows; bytes
// of shared memory where `shared` are enough for FEW_SLOTS stages. Copies in flight hold up the
// rows, which all wait for, but those of a short launch of up to 8 rows are all there before them.
static int choose_slots(const struct gpu *g, struct linear_few *c, few_kind kind, int busy,
                        int blocks, int shared) {
    int max = 0;
    for (int j = 0; j < c->jobs; j++)
        for (int p = 0; p < c->job[j].parts; p++)
            max = c->cut[j].stages[p] > max ? c->cut[j].stages[p] : max;
    const int all = shared + (max - FEW_SLOTS) * busy * c->slot;
    c->slots = FEW_SLOTS;
    c->ahead = c->units >= LONG * blocks ? (int)FEW_SLOTS : 1;
    c->whole = kind.rows == 8 && c->units <= blocks && max <= WHOLE && all <= g->shared - KEPT;
    if (!c->whole)
        return shared;
    c->slots = c->ahead = max;
    return all;
}

void linear_few_start(struct gpu *g, const struct linear_launch *l, const int *forms, size_t kept) {
    const few_kind kind = few_kind_of(g, l->n);
    linear_few_fn *kernel = few_kernel_of(kind);
    struct linear_few c = few_of(l, forms);
    take_wide(g, &c);
    if (!reserve_parts(g, &c, kept) ||
        !gpu_allow_shared(g, (const void *)kernel, g->shared, "linear") ||
        !map_rows(g, &c, l, kind))
        return;
    const int busy = cut_into_units(g, &c, kind.rows, max_tiles(g, &c, kind));
    const int warps = warps_of(kind, busy);
    const int threads = kind.warp ? (warps + 1) * 32 : few_threads(kind.rows);
    const int blocks = c.units < g->processors ? c.units : g->processors;
    const int shared = choose_slots(g, &c, kind, busy, blocks, share_memory(g, &c, kind, busy));
    struct launch_says says = linear_says(c.job, c.jobs);
    if (c.wide) // rows that it makes are stored
        says.writes |= MEMORY_ACTS;
    gpu_launch_saying({g, "linear", says}, kernel, dim3((unsigned)blocks), dim3((unsigned)threads),
                      (size_t)shared, c);
    for (int j = 0; j < c.jobs; j++)
        if (c.job[j].parts > 1 && !linear_defer(g, &c.job[j], l))
            return;
}
