// SPDX-License-Identifier: Apache-2.0
// linear and linear_gate_up: the launches of the family that serves a call (linear_choice.h). Jobs
// whose weights have one form share a launch, and few rows of any forms do
// (ops/gpu/linear/few/few.cu). What is chosen here (tile of rows, split or loop) changes no bits.
#include "base/num.h"
#include "ops/gpu/linear/few/few.h"
#include "ops/gpu/linear/form/values.h"
#include "ops/gpu/linear/launch.h"
#include "ops/gpu/linear/many/many.h"
#include "ops/gpu/runtime/ops_cuda.h"
#include "ops/linear_choice.h"

enum { OUTPUTS = 128, BUSY_BLOCKS = 200 };

static struct linear_variant tiles_variant(int form, int n_tiles, bool loop, bool small) {
    static struct linear_variant (*const of[])(int n_tiles, bool loop, bool small) = {
#define X(name, span, chunk) linear_tiles_##name,
        WEIGHT_FORMS_LIST(X)
#undef X
    };
    return of[form](n_tiles, loop, small);
}

// The smallest tile that holds all rows, or the largest that the device has room for.
static struct linear_variant choose_tile(const struct gpu *g, int form, int64_t rows, bool loop) {
    static const int sizes[] = {1, 2, 3, 4, 6, 8};
    struct linear_variant best = {};
    for (int i = 0; i < 6; i++) {
        struct linear_variant v = tiles_variant(form, sizes[i], loop, g->path == CUDA_PATH_SMALL);
        if (!v.kernel || v.shared > g->shared)
            continue;
        best = v;
        if (sizes[i] * 8 >= rows)
            break;
    }
    return best;
}

enum { TICKETS = 8192, MANY_SLICE = 512 };

static bool need_tickets(struct gpu *g, int64_t n) {
    if (n <= g->n_tickets)
        return true;
    gpu_release(g, g->tickets);
    g->n_tickets = (int64_t)max_size((size_t)n, TICKETS);
    g->tickets = (unsigned *)gpu_alloc(g, (size_t)g->n_tickets * sizeof *g->tickets);
    if (g->tickets)
        return true;
    g->n_tickets = 0;
    return gpu_check(g, GPU_OUT_OF_MEMORY, "tickets of linear layers");
}

// Units of work of a job: blocks of outputs times parts.
static int64_t units_of(const struct linear_one *j, bool loop) {
    int64_t outputs = j->pair ? 2 * j->w[0].m : j->w[0].m;
    return (outputs + OUTPUTS - 1) / OUTPUTS * (loop ? 1 : j->parts);
}

// Numbers the units of l's jobs for blocks of `warps` warps; their count.
static int64_t stream_units(struct linear_launch *l, int warps) {
    int64_t units = 0;
    for (int j = 0; j < l->jobs; j++) {
        struct linear_one *o = &l->job[j];
        int64_t tiles = (o->w[0].m + TILE_ROWS - 1) / TILE_ROWS;
        int64_t each = o->pair ? warps : (int64_t)warps * 2;
        o->first = units;
        units += (tiles + each - 1) / each * o->parts;
    }
    return units;
}

// A launch of ops/gpu/linear/few/stream.cuh that has been planned.
struct stream_call {
    struct linear_launch l;
    struct linear_stream_variant v;
    int form, warps, threads, shared; // of a block: warps that multiply; threads; bytes
    size_t partial;                   // bytes of sums between launches
};

// Divides a block's shared memory among its rings; false if that many warps do not fit.
static bool fit_rings(const struct gpu *g, struct stream_call *c, int warps) {
    enum { ROWS = 64 << 10, WEIGHTS = 96 << 10, BARRIERS = 2048, MOST = 12 };
    struct linear_launch *l = &c->l;
    int slot = warps * c->v.slot;
    l->stages = clamp_i32(ROWS / c->v.stage, 2, MOST);
    l->slots = clamp_i32(WEIGHTS / slot, 2, MOST);
    l->barriers = BARRIERS;
    c->warps = warps;
    c->threads = (warps + 1) * 32;
    c->shared = BARRIERS + l->stages * c->v.stage + l->slots * slot;
    return c->shared <= g->shared;
}

// Chooses the warps of a block so that the busiest block has done soonest. A stage takes as long as
// its instructions, of which a multiprocessor works off four warps' at a time, or as its bytes.
static bool stream_warps(const struct gpu *g, struct stream_call *c) {
    enum { BYTES = 14 };                               // for one warp's
    static const int64_t step[] = {80, 120, 170, 210}; // seen with Q4_K on an H200, in 10 ns
    int64_t best = 0, part = linear_longest_part(c->l.job, c->l.jobs);
    int warps = 0;
    for (int w = c->v.warps; w >= 2; w--) {
        int64_t units = stream_units(&c->l, w) * c->l.row_tiles;
        int64_t each = step[(w - 1) / 4] > BYTES * w ? step[(w - 1) / 4] : BYTES * w;
        int64_t cost = (units + g->processors - 1) / g->processors * each * part;
        if ((warps && cost > best) || !fit_rings(g, c, w))
            continue;
        best = cost;
        warps = w;
    }
    return warps && fit_rings(g, c, warps);
}

// Plans the launch of c->l's jobs, all of one form; false if no kernel of few rows can take them.
static bool stream_plan(const struct gpu *g, int form, struct stream_call *c) {
    static const int sizes[] = {3, 6, 8};
    struct linear_stream_variant best = {};
    for (int i = 0; i < 3 && best.n_tiles * 8 < c->l.n; i++) {
        c->v = linear_stream_variant_of(form, sizes[i]);
        if (c->v.kernel && fit_rings(g, c, 4))
            best = c->v;
    }
    c->v = best;
    c->form = form;
    if (!best.kernel)
        return false;
    int row = best.n_tiles * 8;
    c->l.row_tiles = (c->l.n + row - 1) / row;
    if (!stream_warps(g, c))
        return false;
    c->l.units = (int)(stream_units(&c->l, c->warps) * c->l.row_tiles);
    c->partial = linear_all_left_bytes(c->l.job, c->l.jobs, c->l.n);
    return true;
}

// Gives the jobs of a call their part of the memory for sums, and queues it.
static unsigned char *stream_start(struct gpu *g, struct stream_call *c, unsigned char *partial) {
    struct linear_launch *l = &c->l;
    partial = linear_place_left(l->job, l->jobs, l->n, partial);
    int blocks = l->units < g->processors ? l->units : g->processors;
    struct launch_says says = linear_says(l->job, l->jobs);
    if (gpu_allow_shared(g, (const void *)c->v.kernel, g->shared, "linear"))
        gpu_launch_saying({g, "linear", says}, c->v.kernel, dim3((unsigned)blocks),
                          dim3((unsigned)c->threads), (size_t)c->shared, *l);
    return partial;
}

// Queues planned calls; what they leave to add up waits.
static void stream_run(struct gpu *g, struct stream_call *calls, int n, size_t kept) {
    size_t bytes = kept;
    for (int i = 0; i < n; i++)
        bytes += calls[i].partial;
    unsigned char *partial = bytes > kept ? (unsigned char *)gpu_scratch(g, bytes) : NULL;
    if (bytes > kept) {
        if (!partial)
            return;
        partial += kept;
    }
    for (int i = 0; i < n; i++) {
        calls[i].l.lets = g->overlaps && i == 0;
        partial = stream_start(g, &calls[i], partial);
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < calls[i].l.jobs; j++)
            if (calls[i].l.job[j].parts > 1 && !linear_defer(g, &calls[i].l.job[j], &calls[i].l))
                return;
}

enum { // bits of families
    NO_FEW = 1 << LINEAR_FEW,
    NO_STREAM = NO_FEW | 1 << LINEAR_STREAM, // nor few, which comes first
    NO_UNPACKED = NO_STREAM | 1 << LINEAR_UNPACKED,
};

static enum linear_family family_of(const struct gpu *g, int form, int64_t n, unsigned without) {
    struct linear_call c = {g->path, g->clusters, form, n, without};
    return linear_choose(&c);
}

// The max rows that are few on a path, of which the small one has none.
static int64_t max_few(enum cuda_path path) {
    return path == CUDA_PATH_WGMMA ? LINEAR_FEW_ROWS : LINEAR_STREAM_ROWS;
}

// Whether 64 rows of a form are no slower at once than 32 and 32, which on the path mma is so by a
// kernel of ops/gpu/linear/few/stream.cuh, if it finds room, and of F32 by any.
static bool form_streams(const struct gpu *g, int form) {
    enum { ROOM = 164864 }; // bytes that ops/gpu/linear/few/stream.cuh requests at most
    if (g->path != CUDA_PATH_MMA || form == WEIGHT_FLOAT)
        return true;
    return g->shared >= ROOM && family_of(g, form, LINEAR_STREAM_ROWS, NO_FEW) == LINEAR_STREAM;
}

// Families that do not serve calls which must keep the first bytes of scratch memory.
static unsigned not_behind(const struct gpu *g, size_t kept) {
    return kept && g->path != CUDA_PATH_MMA ? 1u << LINEAR_UNPACKED : 0;
}

// LINEAR_TILES: launches the jobs of l, all of one form. Of the scratch memory the first `kept`
// bytes are in use.
static void launch_tiles(struct gpu *g, int form, struct linear_launch *l, size_t kept) {
    int64_t units = 0, whole = 0;
    bool cut = false;
    for (int j = 0; j < l->jobs; j++) {
        whole += units_of(&l->job[j], true);
        cut = cut || l->job[j].parts > 1;
    }
    struct linear_variant v = choose_tile(g, form, l->n, true);
    bool loop = cut && l->n > 64 && v.kernel;
    loop = loop && whole * ((l->n + v.n_tiles * 8 - 1) / (v.n_tiles * 8)) >= BUSY_BLOCKS;
    if (!loop)
        v = choose_tile(g, form, l->n, false);
    if (!v.kernel) {
        gpu_check(g, GPU_NO_KERNEL, "linear");
        return;
    }
    l->row_tiles = (l->n + v.n_tiles * 8 - 1) / (v.n_tiles * 8);
    for (int j = 0; j < l->jobs; j++) {
        l->job[j].first = units;
        units += units_of(&l->job[j], loop);
    }
    int64_t blocks = units * l->row_tiles;
    if (cut && !loop) {
        size_t bytes = (size_t)blocks * v.threads * v.n_tiles * 8 * sizeof(float);
        unsigned char *scratch = (unsigned char *)gpu_scratch(g, kept + bytes);
        if (!scratch || !need_tickets(g, blocks))
            return;
        l->partial = (float *)(scratch + kept);
        l->ticket = g->tickets;
    }
    if (!gpu_allow_shared(g, (const void *)v.kernel, v.shared, "linear"))
        return;
    gpu_launch_saying({g, "linear", LINEAR_WHOLE}, v.kernel, (unsigned)blocks, (unsigned)v.threads,
                      v.shared, *l);
}

// The same by the family for such rows that launches neither few rows nor unpacked weights.
static void launch(struct gpu *g, int form, struct linear_launch *l, size_t kept) {
    enum linear_family family = family_of(g, form, l->n, NO_UNPACKED);
    if (family == LINEAR_GEMM)
        linear_gemm_launch(g, form, l);
    else if (family == LINEAR_WGMMA)
        linear_wgmma_launch(g, l);
    else
        launch_tiles(g, form, l, kept);
}

static struct linear_launch launch_of(const struct act *in, int64_t n) {
    struct linear_launch l = {};
    l.n = n;
    l.x = (const __half *)in->x;
    l.stride = in->stride;
    l.unscale = in->unscale;
    return l;
}

// of_pair: the job is one of two alike that will be joined, cut as they are together.
static void add_job(struct linear_launch *l, const struct linear_job *j, bool of_pair) {
    struct linear_one *o = &l->job[l->jobs++];
    o->w[0] = j->w->view;
    o->out = j->out;
    o->out_stride = j->w->m;
    o->add = j->add;
    o->pair = false;
    o->parts = linear_parts(j->w->k, of_pair ? 2 * j->w->m : j->w->m);
}

// Queues the jobs of l as few rows of any forms where all of them can be; false: nothing is queued.
static bool run_few(struct gpu *g, const struct linear_launch *l, const int *forms, size_t kept) {
    for (int j = 0; j < l->jobs; j++)
        if (family_of(g, forms[j], l->n, 0) != LINEAR_FEW)
            return false;
    if (!linear_few_fits(g, l, forms))
        return false;
    linear_few_start(g, l, forms, kept);
    return true;
}

// At most LINEAR_JOBS jobs; of_pair: see add_job. Of the scratch memory the first `kept` bytes are
// in use.
static void run_some(struct gpu *g, const struct linear_job *jobs, int n_jobs, const struct act *in,
                     int64_t n, size_t kept, bool of_pair) {
    struct stream_call calls[WEIGHT_FORMS];
    struct linear_launch many = launch_of(in, n), few = launch_of(in, n);
    int n_calls = 0, forms[LINEAR_JOBS];
    for (int j = 0; j < n_jobs; j++) {
        forms[j] = jobs[j].w->form;
        add_job(&few, &jobs[j], of_pair);
    }
    if (run_few(g, &few, forms, kept))
        return;
    for (int form = 0; form < WEIGHT_FORMS; form++) {
        struct stream_call *c = &calls[n_calls];
        const enum linear_family family = family_of(g, form, n, NO_FEW | not_behind(g, kept));
        c->l = launch_of(in, n);
        for (int j = 0; j < n_jobs; j++)
            if (jobs[j].w->form == form)
                add_job(family == LINEAR_UNPACKED ? &many : &c->l, &jobs[j], of_pair);
        if (c->l.jobs && family == LINEAR_STREAM && stream_plan(g, form, c))
            n_calls++;
        else if (c->l.jobs)
            launch(g, form, &c->l, kept);
    }
    if (n_calls)
        stream_run(g, calls, n_calls, kept);
    if (many.jobs)
        linear_unpacked_launch(g, &many, kept);
}

static struct act rows_from(const struct act *in, int64_t at) {
    struct act part = *in;
    part.x = (__half *)in->x + at * in->stride;
    part.unscale = in->unscale + at;
    part.wide = in->wide + at * in->stride;
    return part;
}

extern "C" void cuda_linear(struct exec *x, const struct linear_job *jobs, int n_jobs,
                            const struct act *in, int64_t n) {
    struct gpu *g = gpu_of(x);
    bool streams = true;
    for (int j = 0; j < n_jobs; j++)
        streams = streams && form_streams(g, jobs[j].w->form);
    const int64_t slice = linear_slice(g->path, streams, n);
    for (int64_t at = 0; at < n; at += slice) {
        const struct act part = rows_from(in, at);
        struct linear_job some[LINEAR_JOBS];
        int64_t count = n - at < slice ? n - at : slice;
        for (int first = 0; first < n_jobs; first += LINEAR_JOBS) {
            int jobs_now = n_jobs - first < LINEAR_JOBS ? n_jobs - first : LINEAR_JOBS;
            for (int j = 0; j < jobs_now; j++) {
                some[j] = jobs[first + j];
                some[j].out += at * some[j].w->m;
            }
            run_some(g, some, jobs_now, &part, count, 0, false);
        }
    }
    values_add_biases(g, jobs, n_jobs, n);
}

// Rows of a slice of gate_up_apart with `left` of n rows left: few, or many of those that need no
// memory for sums. w: its matrices, or NULL for the most that a slice has.
static int64_t apart_slice(const struct gpu *g, const struct gate_up *w, int64_t n, int64_t left) {
    const int64_t few = max_few(g->path);
    if (g->path == CUDA_PATH_WGMMA && left > few)
        return min_i64(left, MANY_SLICE);
    const bool floats = w && (w->gate->form == WEIGHT_FLOAT || w->up->form == WEIGHT_FLOAT);
    const bool unpacks = g->path == CUDA_PATH_MMA && n >= 2 * MANY_SLICE && !floats;
    if (unpacks && left >= MANY_SLICE)
        return MANY_SLICE;
    const bool streams = !w || (form_streams(g, w->gate->form) && form_streams(g, w->up->form));
    return linear_slice(g->path, streams, min_i64(left, few));
}

// Bytes of scratch that the products of such a slice take besides its rows: sums of parts, or
// weights.
static size_t apart_bytes(const struct gpu *g, int64_t slice, int64_t m, int64_t k) {
    const size_t sums = 2 * (size_t)max_few(g->path) * linear_sums_bytes(m);
    const bool unpacks = g->path == CUDA_PATH_MMA && slice >= MANY_SLICE;
    return unpacks ? max_size(sums, linear_unpacked_bytes(g, m + OUTPUTS, k)) : sums;
}

// Matrices of two forms, of F32 for many rows of wgmma, and any activation: each matrix on its own,
// then joined, a slice of rows at a time.
static void gate_up_apart(struct gpu *g, const struct gate_up *w, const struct act *in, int64_t n,
                          struct act *out) {
    const bool of_pair = w->gate->form == w->up->form;
    const int64_t m = w->gate->m, slice = apart_slice(g, w, n, n);
    size_t kept = (size_t)(2 * slice * m) * sizeof(float);
    if (!gpu_scratch(g, kept + apart_bytes(g, slice, m, in->stride))) // so that nothing moves below
        return;
    for (int64_t at = 0, count; at < n; at += count) {
        struct act part = rows_from(in, at);
        count = apart_slice(g, w, n, n - at);
        float *wide = (float *)gpu_scratch(g, kept);
        struct linear_job jobs[2] = {{w->gate, wide, false, NULL},
                                     {w->up, wide + slice * m, false, NULL}};
        run_some(g, jobs, 2, &part, count, kept, of_pair);
        const struct values_join join = {wide,
                                         wide + slice * m,
                                         m,
                                         m,
                                         w->gate_bias,
                                         w->up_bias,
                                         NULL,
                                         m,
                                         w->activation,
                                         out->wide + at * out->stride,
                                         out->stride};
        values_join(g, &join, count);
    }
}

// gate_up's two matrices as one job. Matrices of two forms are cut as if each were alone.
static struct linear_launch pair_of(const struct weight *gate, const struct weight *up,
                                    const struct act *in, int64_t n, const struct act *out) {
    struct linear_launch l = launch_of(in, n);
    struct linear_one *o = &l.job[l.jobs++];
    o->w[0] = gate->view;
    o->w[1] = up->view;
    o->out = out->wide;
    o->out_stride = out->stride;
    o->pair = true;
    o->parts = linear_parts(gate->k, gate->form == up->form ? 2 * gate->m : gate->m);
    return l;
}

// Rows of linear_gate_up before they become fp16.
static void gate_up_rows(struct gpu *g, const struct gate_up *w, const struct act *in, int64_t n,
                         struct act *out) {
    const struct weight *gate = w->gate, *up = w->up;
    const bool same = gate->form == up->form;
    const enum linear_family family = family_of(g, gate->form, n, NO_STREAM);
    const enum linear_family other = family_of(g, up->form, n, NO_STREAM);
    const enum linear_family wide = family_of(g, gate->form, n, NO_UNPACKED);
    if (family == LINEAR_UNPACKED && other == LINEAR_UNPACKED) {
        struct linear_launch l = pair_of(gate, up, in, n, out);
        linear_unpacked_launch(g, &l, 0);
    } else if (!same || (n > max_few(g->path) && wide == LINEAR_WGMMA)) {
        gate_up_apart(g, w, in, n, out);
    } else {
        struct stream_call c;
        c.l = pair_of(gate, up, in, n, out);
        if (run_few(g, &c.l, &gate->form, 0))
            return;
        if (family_of(g, gate->form, n, NO_FEW) == LINEAR_STREAM && stream_plan(g, gate->form, &c))
            stream_run(g, &c, 1, 0);
        else
            launch(g, gate->form, &c.l, 0);
    }
}

extern "C" void cuda_linear_gate_up(struct exec *x, const struct gate_up *w, const struct act *in,
                                    int64_t n, struct act *out) {
    struct gpu *g = gpu_of(x);
    const bool streams = form_streams(g, w->gate->form) && form_streams(g, w->up->form);
    const int64_t slice = linear_slice(g->path, streams, n);
    cuda_act_shape(out, n, w->gate->m);
    g->peaked = false;
    if (w->activation != ACTIVATION_SILU || w->gate_bias || w->up_bias) {
        gate_up_apart(g, w, in, n, out);
        cuda_act_finish(x, out, n);
        return;
    }
    for (int64_t at = 0; at < n; at += slice) {
        const struct act rows = rows_from(in, at);
        struct act part = rows_from(out, at);
        gate_up_rows(g, w, &rows, n - at < slice ? n - at : slice, &part);
    }
    if (g->peaked && n <= PEAK_ROWS)
        act_defer(g, out, n);
    else if (n > 0)
        cuda_act_finish(x, out, n);
}

// Sums of parts: of a slice of few rows; of more rows, where the blocks are fewer than BUSY_BLOCKS
// if each took all parts of its tile of at most 64 rows (launch).
extern "C" size_t linear_scratch(const struct gpu *g, const struct exec_limits *l) {
    enum { TILE = 64, BUSY = 2 * BUSY_BLOCKS * LINEAR_PARTS * OUTPUTS * TILE * (int)sizeof(float) };
    const bool small = g->path == CUDA_PATH_SMALL;
    const int64_t m = l->outputs, apart = max_few(g->path);
    const int64_t few = small ? (int64_t)LINEAR_SMALL_ROWS : apart;
    const size_t row = LINEAR_JOBS * linear_sums_bytes(2 * m);
    size_t bytes = row * (size_t)few;
    if (g->path == CUDA_PATH_MMA && l->rows > few)
        bytes = max_size(bytes, (size_t)min_i64((int64_t)row * (l->rows + TILE), BUSY));
    // gate_up_apart: both matrices of a slice, whose joined rows are an activation.
    const int64_t slice = apart_slice(g, NULL, l->rows, l->rows);
    const int64_t pair = min_i64((slice > apart ? slice : apart) * m, l->act);
    bytes =
        max_size(bytes, (size_t)(2 * pair) * sizeof(float) + apart_bytes(g, slice, m, l->inputs));
    if (family_of(g, WEIGHT_HALF, l->rows, 0) == LINEAR_UNPACKED)
        bytes = max_size(bytes, linear_unpacked_bytes(g, 2 * (m + OUTPUTS), l->inputs));
    return bytes;
}

extern "C" size_t linear_kept(void) {
    return TICKETS * sizeof(unsigned) + PEAKS * sizeof(unsigned long long);
}

extern "C" bool linear_reserve(struct gpu *g) {
    if (!g->peaks)
        g->peaks = (unsigned long long *)gpu_alloc(g, PEAKS * sizeof *g->peaks);
    return g->peaks && need_tickets(g, TICKETS) && linear_defer_reserve(g);
}
