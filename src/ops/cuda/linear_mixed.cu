// SPDX-License-Identifier: Apache-2.0
// Launches of linear_mixed.cuh: how jobs are cut into units and shared memory into rings. What is
// chosen here changes no bits.
#include "ops/cuda/linear_mixed.h"
#include "ops/cuda/ops_cuda.h"

enum { BARRIERS = 8 << 10 };

static bool takes_form(int form) {
    return form <= WEIGHT_Q6_K || form == WEIGHT_Q8_0 || form == WEIGHT_Q4_0;
}

bool linear_mixed_takes(const struct gpu *g, const struct linear_job *jobs, int n_jobs, int64_t n) {
    bool several = false;
    if (g->path != CUDA_PATH_WGMMA || n > MIXED_ROWS || n_jobs > LINEAR_JOBS)
        return false;
    for (int j = 0; j < n_jobs; j++) {
        several = several || jobs[j].w->form != jobs[0].w->form;
        if (!takes_form(jobs[j].w->form))
            return false;
    }
    return several;
}

// Numbers the units of jobs for `tiles` tiles each; their count.
static int count_units(struct linear_mixed *c, int tiles) {
    int units = 0;
    for (int j = 0; j < c->jobs; j++) {
        struct linear_one *o = &c->job[j];
        int each = o->pair ? tiles / 2 : tiles;
        o->first = units;
        units += (int)((o->w[0].tiles + each - 1) / each) * o->parts;
    }
    return units;
}

// Chooses the tiles of a unit so that the busiest block has the least to read.
static void cut(const struct gpu *g, struct linear_mixed *c) {
    enum { LEAST = 8 }; // fewer take as long
    int best = 0;
    for (int t = MIXED_WARPS; t >= 2; t -= 2) {
        int rounds = (count_units(c, t) + g->processors - 1) / g->processors;
        int cost = rounds * (t < LEAST ? LEAST : t);
        if (best && cost >= best)
            continue;
        best = cost;
        c->tiles = t;
    }
    c->units = count_units(c, c->tiles);
}

// Divides a block's shared memory among its rings; its size.
static int share_memory(const struct gpu *g, struct linear_mixed *c, int rows) {
    enum { MOST_ROWS = 8, MOST_SLOTS = 4 };
    int stage = rows * MIXED_K * 2, room = g->shared - BARRIERS;
    c->slot = 0;
    for (int j = 0; j < c->jobs; j++) {
        int form = c->form[j];
        int bytes = mixed_step(form) / weight_span(form) * weight_chunk(form);
        c->slot = bytes > c->slot ? bytes : c->slot;
    }
    int whole = MIXED_WARPS * c->slot;
    c->slots = (room - 4 * stage) / whole;
    c->slots = c->slots > MOST_SLOTS ? MOST_SLOTS : c->slots < 2 ? 2 : c->slots;
    c->stages = (room - c->slots * whole) / stage;
    c->stages = c->stages < MOST_ROWS ? c->stages : MOST_ROWS;
    return BARRIERS + c->stages * stage + c->slots * whole;
}

// Room for the parts of all jobs; false without memory, the fault is set.
static bool parts_room(struct gpu *g, struct linear_mixed *c) {
    size_t bytes = 0;
    for (int j = 0; j < c->jobs; j++)
        bytes += linear_left_bytes(&c->job[j], c->n);
    unsigned char *at = bytes ? (unsigned char *)gpu_scratch(g, bytes) : NULL;
    for (int j = 0; j < c->jobs && at; j++) {
        c->job[j].partial = (float *)at;
        at += linear_left_bytes(&c->job[j], c->n);
    }
    return at || !bytes;
}

static void start(struct gpu *g, struct linear_mixed *c) {
    int rows = (c->n + 7) / 8 * 8;
    linear_mixed_fn *kernel = rows == 8    ? linear_mixed_8()
                              : rows == 16 ? linear_mixed_16()
                              : rows == 24 ? linear_mixed_24()
                                           : linear_mixed_32();
    uint32_t bit = 1u << rows / 8;
    if (!parts_room(g, c))
        return;
    if (!(g->allowed_mixed & bit) &&
        !gpu_check(g, gpu_allow_shared((const void *)kernel, g->shared), "linear"))
        return;
    g->allowed_mixed |= bit;
    cut(g, c);
    int shared = share_memory(g, c, rows),
        blocks = c->units < g->processors ? c->units : g->processors;
    gpu_launch_early(g, "linear", kernel, dim3((unsigned)blocks), dim3(MIXED_THREADS),
                     (size_t)shared, *c);
    struct linear_launch l = {};
    l.n = c->n;
    l.unscale = c->unscale;
    for (int j = 0; j < c->jobs; j++)
        if (c->job[j].parts > 1 && !linear_wait(g, &c->job[j], &l))
            return;
}

void linear_mixed_start(struct gpu *g, const struct linear_job *jobs, int n_jobs,
                        const struct act *in, int64_t n) {
    struct linear_mixed c = {};
    c.n = (int)n;
    c.x = (const __half *)in->x;
    c.stride = in->stride;
    c.unscale = in->unscale;
    for (int j = 0; j < n_jobs; j++) {
        struct linear_one *o = &c.job[c.jobs];
        c.form[c.jobs++] = (signed char)jobs[j].w->form;
        o->w[0] = jobs[j].w->view;
        o->out = jobs[j].out;
        o->out_stride = jobs[j].w->m;
        o->add = jobs[j].add;
        o->parts = linear_parts(jobs[j].w->k, jobs[j].w->m);
    }
    start(g, &c);
}
