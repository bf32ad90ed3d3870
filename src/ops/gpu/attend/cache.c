// SPDX-License-Identifier: Apache-2.0
// A handful of calls are kept, and the oldest is replaced: a target has one group of layers, a
// draft two.
#include "ops/gpu/attend/cache.h"

#include <stdlib.h>

enum { KEPT = 4 };

// What distinguishes the calls of a pass, but for the layer.
struct call_key {
    uint64_t pass; // 0: of no call
    int n_heads, n_kv, dk, dv, mask;
    int64_t window;
    const struct kv_layout *layout;
    const struct kv_view *seqs;
    const struct kv_slot *store;
    const struct attend_choice *choice; // whose calls are cut up otherwise
    int64_t first;
};

struct kept_call {
    struct attend_plans plans; // first
    struct call_key key;
    struct sent {
        const void *device;
        uint64_t turn; // of the stage
    } *sent;           // [cap] of each plan
    int64_t cap;
};

struct attend_cache {
    struct kept_call call[KEPT];
    int next;
};

static struct call_key key_of(const struct attend_args *a, const struct rows *r) {
    return (struct call_key){.pass = r->pass,
                             .n_heads = a->shape.n_heads,
                             .n_kv = a->shape.n_kv,
                             .dk = a->shape.dk,
                             .dv = a->shape.dv,
                             .mask = a->shape.mask,
                             .window = a->shape.window,
                             .layout = a->layout,
                             .seqs = a->seqs,
                             .store = a->store,
                             .choice = a->choice,
                             .first = a->first};
}

static bool same_call(const struct call_key *a, const struct call_key *b) {
    return a->pass == b->pass && a->n_heads == b->n_heads && a->n_kv == b->n_kv && a->dk == b->dk &&
           a->dv == b->dv && a->mask == b->mask && a->window == b->window &&
           a->layout == b->layout && a->seqs == b->seqs && a->store == b->store &&
           a->choice == b->choice && a->first == b->first;
}

const struct attend_plans *attend_find(struct gpu *g, const struct attend_args *a,
                                       const struct rows *r) {
    struct call_key key = key_of(a, r);
    for (int i = 0; g->plans && key.pass && i < KEPT; i++)
        if (same_call(&g->plans->call[i].key, &key))
            return &g->plans->call[i].plans;
    return NULL;
}

// Memory for n plans, new ones zeroed.
static bool grow_plans(struct kept_call *c, int64_t n) {
    if (n <= c->cap)
        return true;
    struct attend_plan *plan = realloc(c->plans.plan, (size_t)n * sizeof *plan);
    if (plan)
        c->plans.plan = plan;
    struct sent *sent = plan ? realloc(c->sent, (size_t)n * sizeof *sent) : NULL;
    if (!sent)
        return false;
    c->sent = sent;
    for (int64_t i = c->cap; i < n; i++)
        plan[i] = (struct attend_plan){.blob = NULL};
    c->cap = n;
    return true;
}

const struct attend_plans *attend_make(struct gpu *g, const struct attend_args *a,
                                       const struct rows *r, const struct attend_cut *cut) {
    if (!g->plans)
        g->plans = calloc(1, sizeof *g->plans);
    if (!g->plans)
        return NULL;
    struct kept_call *c = &g->plans->call[g->plans->next];
    int64_t n = (r->n - a->first + cut->step - 1) / cut->step;
    g->plans->next = (g->plans->next + 1) % KEPT;
    c->key.pass = 0;
    if (!grow_plans(c, n))
        return NULL;
    c->plans.n = n;
    for (int64_t i = 0; i < n; i++) {
        int64_t begin = a->first + i * cut->step;
        int64_t end = begin + cut->step < r->n ? begin + cut->step : r->n;
        if (!attend_plan_build(&c->plans.plan[i], a, r, begin, end, cut->whole, &cut->limits))
            return NULL;
        c->sent[i] = (struct sent){NULL, 0};
    }
    c->key = key_of(a, r);
    return &c->plans;
}

const void *attend_tables(struct gpu *g, const struct attend_plans *p, int64_t i) {
    const struct kept_call *c = (const struct kept_call *)p;
    struct sent *s = &c->sent[i];
    if (!s->device || s->turn != g->stage.turn) {
        s->device = gpu_stage(g, p->plan[i].blob, p->plan[i].bytes);
        s->turn = g->stage.turn;
    }
    return s->device;
}

void attend_forget(struct gpu *g) {
    for (int i = 0; g->plans && i < KEPT; i++) {
        struct kept_call *c = &g->plans->call[i];
        for (int64_t p = 0; p < c->cap; p++)
            attend_plan_fini(&c->plans.plan[p]);
        free(c->plans.plan);
        free(c->sent);
    }
    free(g->plans);
    g->plans = NULL;
}
