// SPDX-License-Identifier: Apache-2.0
// Making stores of experts: each tensor is repacked into the slots, which hold nothing yet, goes
// from there to its places in the records of its layer in pinned host memory, and once all are
// there the slots are filled.
#include "ops/gpu/moe/store.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "ops/copier.h"
#include "ops/gpu/runtime/ops_cuda.h"

static int64_t part_bytes(const struct exec *x, const struct tensor *t) {
    struct weight w;
    (void)x;
    return cuda_weight_layout(t, &w) ? w.step : 0;
}

void moe_forget(struct gpu *g) {
    for (struct expert_store *s = g->stores; s; s = s->next) {
        s->ready = NULL;
        s->copies.ahead = false;
        gpu_check(g, gpu_stream_wait(s->copies.stream), "waiting for experts");
        for (int i = 0; i < s->base.classes.n; i++) {
            struct moe_pool *p = &s->pool[i];
            size_t all = (size_t)p->layers * (size_t)p->experts;
            gpu_clear(g, (void *)p->place, all * sizeof *p->place);
            gpu_check(g, gpu_fill(p->owner, 0xFF, (size_t)p->slots * sizeof *p->owner, g->stream),
                      "forgetting experts");
        }
    }
}

static void destroy_store(struct expert_store *s) {
    struct gpu *g = gpu_enter(s->base.x);
    for (struct expert_store **at = &g->stores; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    if (s->n || s->stats_host) // the device may still read there
        gpu_check(g, gpu_stream_wait(g->stream), "waiting for experts");
    moe_stream_close(s);
    for (int i = 0; i < s->n; i++)
        exec_host_free(s->base.x, s->layers[i].host);
    if (s->entered) // its scratch is part of what goes
        g->suballoc.scratch_bytes = 0;
    gpu_release(g, s->block);
    for (int i = 0; i < s->base.classes.n; i++) {
        struct moe_pool *p = &s->pool[i];
        void *all[] = {p->owner, p->place, p->uses, p->total, p->rows};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            gpu_release(g, all[k]);
    }
    gpu_release(g, s->moves);
    gpu_release(g, s->missing);
    gpu_release(g, s->counted);
    exec_host_free(s->base.x, s->stats_host);
    free(s->layers);
    free(s);
}

static bool open_pool(struct expert_store *s, int class) {
    const struct expert_class *c = &s->base.classes.c[class];
    struct gpu *g = s->g;
    struct moe_pool *p = &s->pool[class];
    const int experts = s->base.classes.experts;
    size_t all = (size_t)c->layers * (size_t)experts, slots = (size_t)c->slots;
    *p = (struct moe_pool){.layers = c->layers,
                           .experts = experts,
                           .slots = c->slots,
                           .record = c->record,
                           .data = s->block + s->layout.at[class].first,
                           .step = s->layout.at[class].step};
    p->owner = gpu_alloc(g, slots * sizeof *p->owner);
    p->place = gpu_alloc(g, all * sizeof *p->place);
    p->uses = gpu_alloc(g, all * sizeof *p->uses);
    p->total = gpu_alloc(g, (size_t)c->layers * sizeof *p->total);
    p->rows = gpu_alloc(g, (size_t)c->layers * sizeof *p->rows);
    return p->total && p->owner && p->place && p->uses && p->rows;
}

static bool open_counts(struct expert_store *s) {
    struct gpu *g = s->g;
    void *seen = NULL;
    s->moves = gpu_alloc(g, (size_t)s->base.classes.experts * sizeof *s->moves);
    s->missing = gpu_alloc(g, sizeof *s->missing);
    s->counted = gpu_alloc(g, sizeof *s->counted);
    s->stats_host = exec_host_alloc(s->base.x, sizeof *s->stats_host);
    if (!s->moves || !s->missing || !s->counted || !s->stats_host ||
        gpu_host_on_device(&seen, s->stats_host) != GPU_OK)
        return false;
    *s->stats_host = (struct expert_stats){0};
    s->stats_device = seen;
    s->base.stats = s->stats_host;
    return true;
}

static int create_store(struct expert_store **out, struct exec *x, const struct expert_classes *c,
                        int64_t room, struct err *e) {
    struct gpu *g = gpu_enter(x);
    struct expert_store *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for experts");
    s->g = g;
    s->base = (struct expert_store_base){.x = x, .backend = &cuda_experts, .classes = *c};
    s->layers = calloc((size_t)expert_classes_layers(c), sizeof *s->layers);
    expert_layout_of(&s->layout, c, room);
    bool ok = s->layers && open_counts(s) && moe_stream_open(s);
    s->block = ok ? gpu_alloc_in(g, ARENA_SLOTS, (size_t)s->layout.bytes) : NULL;
    ok = s->block != NULL;
    for (int i = 0; i < c->n && ok; i++)
        ok = open_pool(s, i);
    if (!ok) {
        gpu_last_error();
        destroy_store(s);
        return err_set(e, ERR_MEMORY,
                       "GPU %d has no %lld MiB for slots of experts; use a smaller --vram-limit or "
                       "fewer --spark-slots",
                       g->device, (long long)(expert_classes_held(c) >> 20));
    }
    s->next = g->stores;
    g->stores = s;
    *out = s;
    return 0;
}

static int tell_layer(struct expert_store *s, const struct tensor *parts, struct err *e) {
    int64_t record = exec_expert_record(s->base.x, parts), at = 0;
    int class = expert_classes_find(&s->base.classes, record);
    if (class < 0 || s->told[class] >= s->base.classes.c[class].layers)
        return err_set(e, ERR_MISMATCH,
                       "experts of a layer are of a size that was not planned; "
                       "the file has changed since, load it again");
    struct moe_home *h = &s->layers[s->n];
    *h = (struct moe_home){.store = s, .pool = &s->pool[class], .index = s->told[class]};
    for (int i = 0; i < EXPERT_PARTS; i++) {
        h->at[i] = at;
        h->step[i] = part_bytes(s->base.x, &parts[i]);
        at += exec_expert_bytes(s->base.x, &parts[i]);
    }
    size_t bytes = (size_t)(record * s->base.classes.experts);
    void *seen = NULL;
    h->host = exec_host_alloc(s->base.x, bytes);
    if (!h->host || gpu_host_on_device(&seen, h->host) != GPU_OK) {
        gpu_last_error();
        exec_host_free(s->base.x, h->host);
        return err_set(e, ERR_MEMORY,
                       "the host has no %lld MiB of pinned memory for the experts of layer %d of "
                       "%d; use a smaller file, or a GPU that holds them",
                       (long long)(bytes >> 20), s->n + 1, expert_classes_layers(&s->base.classes));
    }
    h->seen = seen;
    s->told[class]++;
    s->n++;
    return 0;
}

// The tensor's tiles by way of the slots, which are not in use yet.
static void pack(struct expert_store *s, const struct moe_home *h, int part, const struct weight *w,
                 const struct tensor *t, bool *ok) {
    struct gpu *g = s->g;
    const int class = (int)(h->pool - s->pool);
    unsigned char *low = s->block + expert_layout_low(&s->layout, &s->base.classes, class);
    struct weight some = *w;
    some.data = low;
    some.view.data = low;
    *ok = cuda_weight_stream(g, &some, t);
    if (*ok)
        gpu_check(g,
                  gpu_rows_to_host(h->host + h->at[part], (size_t)h->pool->record, low,
                                   (size_t)w->step, (size_t)w->step, (size_t)w->experts, g->stream),
                  "packing experts");
}

static int make_weight(struct expert_store *s, int part, const struct tensor *t,
                       struct weight **out, struct err *e) {
    struct gpu *g = gpu_enter(s->base.x);
    struct moe_home *h = &s->layers[s->n - 1];
    struct weight *w = malloc(sizeof *w), shape;
    bool ok = cuda_weight_layout(t, &shape);
    if (!ok || shape.experts != s->base.classes.experts || shape.step != h->step[part]) {
        free(w);
        return ok ? err_set(e, ERR_MISMATCH, "its experts are not those that were planned")
                  : cuda_refuse_type(t, e);
    }
    unsigned char *kept =
        gpu_alloc_in(g, ARENA_WEIGHTS, (size_t)(shape.experts * shape.view.tiles * TILE_ROWS));
    ok = w && kept;
    if (ok) {
        *w = shape;
        w->data = kept;
        w->view.exponent = (const signed char *)kept;
        w->home = h;
        w->place = h->pool->place + (int64_t)h->index * h->pool->experts;
        w->at = h->at[part];
        pack(s, h, part, w, t, &ok);
    }
    if (!ok) {
        free(w);
        gpu_release(g, kept);
        return err_set(e, ERR_MEMORY, "out of memory for the experts of tensor %s", t->name);
    }
    if (g->fault != GPU_OK) {
        cuda_weight_destroy(s->base.x, w);
        return exec_status(s->base.x, e);
    }
    *out = w;
    return 0;
}

// Layer i's row in an array over the layers of its class.
static size_t row_of(const struct expert_store *s, int i) {
    return (size_t)s->layers[i].index * (size_t)s->base.classes.experts;
}

static int fill_slots(struct expert_store *s, int class, const uint32_t *uses, struct err *e) {
    struct gpu *g = s->g;
    struct moe_pool *d = &s->pool[class];
    size_t experts = (size_t)d->experts, all = (size_t)d->layers * experts;
    struct expert_pool p = {.layers = d->layers, .experts = d->experts, .slots = d->slots};
    const struct moe_home **home = calloc((size_t)d->layers, sizeof *home);
    const unsigned char **place = calloc(all, sizeof *place);
    p.owner = calloc((size_t)d->slots, sizeof *p.owner);
    p.place = calloc(all, sizeof *p.place);
    p.uses = calloc(all, sizeof *p.uses);
    p.total = calloc((size_t)d->layers, sizeof *p.total);
    bool ok = home && place && p.owner && p.place && p.uses && p.total;
    for (int i = 0; ok && i < s->n; i++) {
        if (s->layers[i].pool != d)
            continue;
        home[s->layers[i].index] = &s->layers[i];
        if (uses)
            memcpy(p.uses + row_of(s, i), uses + (size_t)i * experts, experts * sizeof *uses);
    }
    int rc = ok ? expert_pool_fill(&p, e) : err_set(e, ERR_MEMORY, "no memory to place experts");
    for (int64_t i = 0; !rc && i < d->slots; i++) {
        int32_t o = p.owner[i];
        unsigned char *to = d->data + i * d->step;
        if (o < 0)
            continue;
        place[o] = to;
        gpu_check(g,
                  gpu_to_device(to, home[o / d->experts]->host + o % d->experts * d->record,
                                (size_t)d->record, g->stream),
                  "placing experts");
    }
    if (!rc) {
        gpu_upload(g, d->owner, p.owner, (size_t)d->slots * sizeof *p.owner);
        gpu_upload(g, (void *)d->place, (const void *)place, all * sizeof *place);
        gpu_upload(g, d->uses, p.uses, all * sizeof *p.uses);
        gpu_upload(g, d->total, p.total, (size_t)d->layers * sizeof *p.total);
    }
    free(p.owner);
    free(p.place);
    free(p.uses);
    free(p.total);
    free((void *)home);
    free((void *)place);
    return rc;
}

static int finish_store(struct expert_store *s, const uint32_t *uses, struct err *e) {
    gpu_enter(s->base.x);
    int rc = 0;
    for (int i = 0; i < s->base.classes.n && !rc; i++)
        rc = fill_slots(s, i, uses, e);
    return rc ? rc : exec_status(s->base.x, e);
}

static void read_uses(struct expert_store *s, uint32_t *uses, unsigned char *resident) {
    struct gpu *g = gpu_enter(s->base.x);
    size_t experts = (size_t)s->base.classes.experts;
    const unsigned char *place[OPS_EXPERTS_MAX];
    for (int i = 0; i < s->n; i++) {
        const struct moe_pool *p = s->layers[i].pool;
        gpu_download(g, uses + (size_t)i * experts, p->uses + row_of(s, i), experts * sizeof *uses);
        if (!resident)
            continue;
        gpu_download(g, (void *)place, (const void *)(p->place + row_of(s, i)),
                     experts * sizeof *place);
        for (size_t k = 0; k < experts; k++)
            resident[(size_t)i * experts + k] = place[k] != NULL;
    }
}

const struct expert_backend cuda_experts = {
    .bytes = part_bytes,
    .create = create_store,
    .layer = tell_layer,
    .weight = make_weight,
    .finish = finish_store,
    .destroy = destroy_store,
    .uses = read_uses,
    .room = moe_room,
    .room_end = moe_room_end,
    .enter = moe_enter,
    .room_scratch = moe_room_scratch,
    .room_at = moe_room_at,
};
