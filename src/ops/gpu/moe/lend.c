// SPDX-License-Identifier: Apache-2.0
// Rooms in the place of slots: the host reads which slots are whose, decides which are dropped as
// ops/experts/pool.h says, and queues the copies of those that stay and move. That waits for the
// device, a fraction of a millisecond compared with what passes of that many rows take, and copies
// on the device are short compared with the bus. The number of slots is an argument of each launch.
#include <stdlib.h>

#include "base/num.h"
#include "ops/gpu/moe/store.h"
#include "ops/gpu/runtime/ops_cuda.h"

int64_t moe_room_scratch(const struct exec *x, const struct exec_limits *l) {
    return (int64_t)round_up_size(gpu_scratch_of((const struct gpu *)x, l), SLABS_ALIGN);
}

int moe_room(struct expert_store *s, int64_t bytes, struct err *e) {
    struct gpu *g = gpu_enter(s->base.x);
    if (s->rooms == EXPERT_ROOMS)
        return err_set(e, ERR_LIMIT, "slots of experts make room for at most %d things",
                       EXPERT_ROOMS);
    struct moe_room *r = &s->room[s->rooms];
    *r = (struct moe_room){0};
    int rc = expert_layout_lend(&s->layout, &s->base.classes, bytes, &r->loan, e);
    if (rc)
        return rc;
    s->base.lends[s->rooms] = r->loan.slot_bytes;
    gpu_suballoc_open(g, s->block + r->loan.start, r->loan.bytes);
    return s->rooms++;
}

int moe_room_end(struct expert_store *s, const struct exec_limits *l, struct err *e) {
    struct gpu *g = gpu_enter(s->base.x);
    struct moe_room *r = &s->room[s->rooms - 1];
    size_t scratch = l ? gpu_scratch_of(g, l) : 0;
    if (scratch > g->scratch_bytes) {
        r->scratch = gpu_alloc(g, scratch);
        r->scratch_bytes = r->scratch ? scratch : 0;
    }
    // What nothing is lent for has the f32 rows that all have. The last is a few bytes a row.
    if (gpu_suballoc_end(g, s->rooms == 1) && (!l || attend_reserve(g, l)))
        return 0;
    return err_set(e, ERR_MEMORY,
                   "what passes work with is larger than was planned for it in the place of "
                   "experts' slots; use a smaller --chunk");
}

void *moe_room_at(const struct expert_store *s, int room, int64_t *bytes) {
    *bytes = s->room[room].loan.bytes;
    return s->block + s->room[room].loan.start;
}

// Takes back what was lent of a class.
static void give_back(struct expert_store *s, int class, int64_t slots) {
    struct moe_pool *d = &s->pool[class];
    if (slots > d->slots)
        gpu_check(s->g,
                  gpu_fill(d->owner + d->slots, 0xFF, (size_t)(slots - d->slots) * sizeof *d->owner,
                           s->g->stream),
                  "taking slots of experts back");
    d->slots = slots;
}

// What expert_pool_lend works on, and moves after it.
struct lending {
    struct expert_pool p;
    struct expert_shift *moves;
    const unsigned char **place;
};

static void lending_fini(struct lending *w) {
    free(w->p.owner);
    free(w->p.place);
    free(w->p.uses);
    free(w->p.total);
    free(w->moves);
    free((void *)w->place);
}

static bool lending_init(struct lending *w, const struct moe_pool *d, int64_t keep) {
    size_t all = (size_t)d->layers * (size_t)d->experts;
    *w = (struct lending){
        .p = {.layers = d->layers, .experts = d->experts, .slots = d->slots},
        .moves = calloc((size_t)keep, sizeof *w->moves),
        .place = calloc(all, sizeof *w->place),
    };
    w->p.owner = calloc((size_t)d->slots, sizeof *w->p.owner);
    w->p.place = calloc(all, sizeof *w->p.place);
    w->p.uses = calloc(all, sizeof *w->p.uses);
    w->p.total = calloc((size_t)d->layers, sizeof *w->p.total);
    return w->moves && w->place && w->p.owner && w->p.place && w->p.uses && w->p.total;
}

static int shrink(struct expert_store *s, int class, int64_t keep, struct err *e) {
    struct gpu *g = s->g;
    struct moe_pool *d = &s->pool[class];
    size_t all = (size_t)d->layers * (size_t)d->experts;
    struct lending w;
    int n = -1;
    if (!lending_init(&w, d, keep)) {
        err_set(e, ERR_MEMORY,
                "no host memory to choose which experts make room for a prompt; free some, or give "
                "--chunk, with which none do");
    } else {
        gpu_download(g, w.p.owner, d->owner, (size_t)d->slots * sizeof *w.p.owner);
        gpu_download(g, w.p.uses, d->uses, all * sizeof *w.p.uses);
        gpu_download(g, w.p.total, d->total, (size_t)d->layers * sizeof *w.p.total);
        n = g->fault == GPU_OK ? expert_pool_lend(&w.p, keep, w.moves, e) : -1;
    }
    for (int i = 0; i < n; i++)
        gpu_copy(g, d->data + w.moves[i].to * d->step, d->data + w.moves[i].from * d->step,
                 (size_t)d->record);
    for (int64_t i = 0; i < keep && n >= 0; i++)
        if (w.p.owner[i] >= 0)
            w.place[w.p.owner[i]] = d->data + i * d->step;
    if (n >= 0) {
        gpu_upload(g, d->owner, w.p.owner, (size_t)keep * sizeof *w.p.owner);
        gpu_upload(g, (void *)d->place, (const void *)w.place, all * sizeof *w.place);
        d->slots = keep;
    }
    lending_fini(&w);
    return n >= 0 ? 0 : ERR_MEMORY;
}

int moe_enter(struct expert_store *s, int room, struct err *e) {
    struct gpu *g = gpu_enter(s->base.x);
    const struct moe_room *r = &s->room[room];
    if (room == s->entered)
        return 0;
    gpu_flush(g);
    moe_stream_rest(s);
    s->ready = NULL;
    int rc = 0;
    for (int i = 0; i < s->base.classes.n && !rc; i++)
        if (r->loan.keep[i] < s->pool[i].slots)
            rc = shrink(s, i, r->loan.keep[i], e);
    const struct expert_loan *now = &s->room[rc ? s->entered : room].loan;
    for (int i = 0; i < s->base.classes.n; i++)
        give_back(s, i, now->keep[i]);
    if (rc)
        return g->fault == GPU_OK ? rc : exec_status(s->base.x, e);
    s->entered = room;
    s->base.lent.slots = now->slots;
    s->base.lent.loans += now->slots > 0;
    s->base.lent.given += (uint64_t)now->slots;
    g->suballoc.scratch = r->scratch;
    g->suballoc.scratch_bytes = r->scratch_bytes;
    launch_order_stop(&g->order); // experts have moved, which kernels read early
    gpu_clear(g, s->block + now->start, (size_t)now->bytes);
    return g->fault == GPU_OK ? 0 : exec_status(s->base.x, e);
}
