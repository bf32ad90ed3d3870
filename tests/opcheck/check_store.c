// SPDX-License-Identifier: Apache-2.0
// Experts that come and go (ops/experts/store.h), on backends that have that: layers that share too
// few slots, of which some are lent at times, against the same layers with all experts resident, to
// the bit, and the slots, uses and counts after each call against those of expert_pool_choose and
// expert_pool_lend.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck/families.h"
#include "ops/experts/store.h"
#include "support/expert_slots.h"

enum { LAYERS = 4, MAX_EXPERTS = 40, MOST_ROWS = 160, MAX_USED = 6, ROOMS = 4 };

// Layers of one or two classes.
struct stored {
    int experts, used;
    int64_t k, f, m;
    struct matrix part[LAYERS][EXPERT_PARTS];
    struct weight *kept[LAYERS][EXPERT_PARTS], *loose[LAYERS][EXPERT_PARTS];
    int class[LAYERS], index[LAYERS];
    struct expert_classes classes;
    struct expert_store *store;
    struct expert_pool pool[EXPERT_CLASSES];
    struct expert_stats count;
    int streamed; // calls after which the next layer's experts were brought ahead
    struct expert_loan room[ROOMS];
    int entered;
    int64_t moved; // experts that stayed, but elsewhere
    struct expert_lent lent;
};

static void make_matrices(struct stored *s, struct rng *r, const uint32_t types[2]) {
    s->experts = (int)between(r, 7, MAX_EXPERTS);
    s->used = (int)between(r, 1, MAX_USED);
    s->k = 256 * between(r, 1, 3);
    s->f = 256 * between(r, 1, 2);
    s->m = between(r, 10, 200);
    for (int i = 0; i < LAYERS; i++)
        for (int p = 0; p < EXPERT_PARTS; p++) {
            bool down = p == EXPERT_PARTS - 1;
            uint32_t type = down && i == LAYERS - 1 ? types[1] : types[0];
            int64_t m = down ? s->m : s->f;
            s->part[i][p] = matrix_new(r, type, down ? s->f : s->k, m * s->experts);
            struct tensor *t = &s->part[i][p].t;
            t->n_dims = 3;
            t->ne[1] = m;
            t->ne[2] = s->experts;
        }
}

static void layer_tensors(const struct stored *s, int layer, struct tensor *parts) {
    for (int p = 0; p < EXPERT_PARTS; p++)
        parts[p] = s->part[layer][p].t;
}

static void open_pool(struct stored *s, int class) {
    struct expert_pool *p = &s->pool[class];
    struct err e;
    *p = (struct expert_pool){.layers = s->classes.c[class].layers,
                              .experts = s->experts,
                              .slots = s->classes.c[class].slots};
    size_t all = (size_t)(p->layers * p->experts);
    p->owner = calloc((size_t)p->slots, sizeof *p->owner);
    p->place = calloc(all, sizeof *p->place);
    p->uses = calloc(all, sizeof *p->uses);
    p->total = calloc((size_t)p->layers, sizeof *p->total);
    p->rows = calloc((size_t)p->layers, sizeof *p->rows);
    for (size_t i = 0; i < all; i++)
        p->uses[i] = (uint32_t)(i * 37 % 11);
    expert_pool_fill(p, &e);
}

// The room that is there, and some that take anything up to all that may be lent.
static int open_rooms(struct stored *s, struct check *c, int64_t own, struct err *e) {
    struct expert_layout l;
    expert_layout_of(&l, &s->classes, own);
    int64_t more = expert_layout_max(&l, &s->classes) - own;
    int rc = 0;
    for (int i = 0; i < ROOMS && !rc; i++) {
        int64_t bytes = own + (i ? (int64_t)rng_below(&c->rng, 1 << 16) * more / (1 << 16) : 0);
        rc = expert_layout_lend(&l, &s->classes, bytes, &s->room[i], e);
        if (!rc && expert_store_room(s->store, bytes, e) != i)
            rc = err_set(e, ERR_MISMATCH, "rooms are not numbered");
        if (!rc)
            rc = expert_store_room_end(s->store, NULL, e);
    }
    return rc;
}

static int open_store(struct stored *s, struct check *c, struct err *e) {
    struct tensor parts[EXPERT_PARTS];
    uint32_t uses[LAYERS * MAX_EXPERTS];
    s->classes = (struct expert_classes){0};
    for (int i = 0; i < LAYERS; i++) {
        layer_tensors(s, i, parts);
        s->class[i] =
            expert_classes_add(&s->classes, s->experts, exec_expert_record(c->exec, parts), e);
        s->index[i] = s->classes.c[s->class[i]].layers - 1;
    }
    for (int i = 0; i < s->classes.n; i++) {
        struct expert_class *k = &s->classes.c[i];
        k->slots = s->experts + (int64_t)rng_below(&c->rng, (uint32_t)s->experts);
        open_pool(s, i);
    }
    for (int i = 0; i < LAYERS; i++)
        memcpy(uses + i * s->experts, s->pool[s->class[i]].uses + s->index[i] * s->experts,
               (size_t)s->experts * sizeof *uses);
    int64_t own = between(&c->rng, 1, 100000);
    int rc = expert_store_create(&s->store, c->exec, &s->classes, own, e);
    for (int i = 0; i < LAYERS && !rc; i++) {
        layer_tensors(s, i, parts);
        rc = expert_store_layer(s->store, parts, e);
        for (int p = 0; p < EXPERT_PARTS && !rc; p++) {
            s->loose[i][p] = matrix_pack(c->exec, &s->part[i][p]);
            rc = expert_store_weight(s->store, p, &parts[p], &s->kept[i][p], e);
        }
    }
    if (!rc)
        rc = expert_store_finish(s->store, uses, e);
    return rc ? rc : open_rooms(s, c, own, e);
}

static void close_store(struct stored *s, struct exec *x) {
    for (int i = 0; i < LAYERS; i++)
        for (int p = 0; p < EXPERT_PARTS; p++) {
            if (s->kept[i][p])
                exec_ops(x)->weight_destroy(x, s->kept[i][p]);
            if (s->loose[i][p])
                exec_ops(x)->weight_destroy(x, s->loose[i][p]);
            matrix_free(&s->part[i][p]);
        }
    expert_store_destroy(s->store);
    for (int i = 0; i < s->classes.n; i++) {
        free(s->pool[i].owner);
        free(s->pool[i].place);
        free(s->pool[i].uses);
        free(s->pool[i].total);
        free(s->pool[i].rows);
    }
}

// n rows through a layer with these weights: [n * used][m] to out.
static void run_layer(struct check *c, const struct stored *s, struct weight *const *w,
                      const int32_t *ids, int64_t n, const float *in, float *out) {
    struct exec *x = c->exec;
    const struct ops *ops = exec_ops(x);
    int64_t entries = n * s->used;
    struct act *rows = act_new(x, n, s->k), *mid = act_new(x, entries, s->f);
    struct buffers b;
    buffers_open(&b, c, x);
    struct moe_list list = {n, s->used, buffers_in(&b, ids, (size_t)entries * sizeof *ids)};
    ops->to_act(x, buffers_in(&b, in, (size_t)(n * s->k) * sizeof *in), n, s->k, rows);
    struct gate_up both = {.gate = w[0], .up = w[1]};
    ops->moe_gate_up(x, &both, &list, rows, mid);
    struct moe_linear_args down = {.w = w[2], .list = list, .in = mid, .entries = true};
    down.out = buffers_io(&b, out, (size_t)(entries * s->m) * sizeof *out);
    ops->moe_linear(x, &down);
    buffers_close(&b);
    ops->act_destroy(x, rows);
    ops->act_destroy(x, mid);
}

// After a call of many entries: what the next layer gets before its choice.
static void follow_ahead(struct stored *s, int layer, const int32_t *ids, int64_t entries) {
    struct expert_move moves[MAX_EXPERTS];
    int next = layer + 1;
    if (next == LAYERS || !expert_pool_many(entries, s->experts))
        return;
    const struct expert_now now = {s->index[layer], ids, entries};
    bool one = s->class[layer] == s->class[next];
    s->count.ahead += (uint64_t)expert_pool_ahead(&s->pool[s->class[next]], s->index[next],
                                                  one ? &now : NULL, moves);
    s->streamed++;
}

// What a call does to the slots, without a device; whether the device did the same.
static bool follow(struct stored *s, int layer, const int32_t *ids, int64_t n) {
    static uint32_t uses[LAYERS * MAX_EXPERTS];
    static unsigned char resident[LAYERS * MAX_EXPERTS];
    struct expert_move moves[MAX_EXPERTS];
    struct expert_pool *p = &s->pool[s->class[layer]];
    struct expert_stats now;
    bool chosen[MAX_EXPERTS] = {false}, same = true;
    int different = 0;
    for (int64_t i = 0; i < n * s->used; i++) {
        different += !chosen[ids[i]];
        chosen[ids[i]] = true;
    }
    int missing = expert_pool_choose(p, s->index[layer], ids, n, s->used, moves);
    s->count.misses += (uint64_t)missing;
    s->count.hits += (uint64_t)(different - missing);
    follow_ahead(s, layer, ids, n * s->used);
    struct err e;
    same = !expert_store_uses(s->store, uses, resident, &e);
    expert_store_stats(s->store, &now);
    for (int i = 0; i < LAYERS; i++)
        for (int k = 0; k < s->experts; k++) {
            const struct expert_pool *q = &s->pool[s->class[i]];
            int at = s->index[i] * s->experts + k;
            same = same && uses[i * s->experts + k] == q->uses[at] &&
                   resident[i * s->experts + k] == (q->place[at] >= 0);
        }
    return same && now.hits == s->count.hits && now.misses == s->count.misses &&
           now.ahead == s->count.ahead;
}

// Enters some room, as the specification does.
static bool lend(struct stored *s, struct check *c) {
    int to = (int)rng_below(&c->rng, ROOMS);
    struct expert_shift moves[LAYERS * MAX_EXPERTS];
    struct err e;
    if (expert_store_enter(s->store, to, &e))
        return false;
    if (to == s->entered)
        return true;
    for (int i = 0; i < s->classes.n; i++) {
        int64_t keep = s->room[to].keep[i];
        if (keep < s->pool[i].slots)
            s->moved += expert_pool_lend(&s->pool[i], keep, moves, &e);
        else
            expert_pool_back(&s->pool[i], keep);
    }
    s->entered = to;
    s->lent.slots = s->room[to].slots;
    s->lent.loans += s->lent.slots > 0;
    s->lent.given += (uint64_t)s->lent.slots;
    struct expert_lent now = expert_store_lent(s->store);
    return now.slots == s->lent.slots && now.loans == s->lent.loans && now.given == s->lent.given;
}

// Calls of layers in turn with few and many rows; what differed.
static void compare_calls(struct check *c, struct stored *s, int64_t *bits, int *slots) {
    static const int max[] = {1, 1, 3, 20, MOST_ROWS};
    float *in = malloc((size_t)(MOST_ROWS * s->k) * sizeof *in);
    size_t values = (size_t)(MOST_ROWS * s->used * s->m);
    float *a = calloc(values, sizeof *a), *b = calloc(values, sizeof *b);
    int32_t ids[MOST_ROWS * MAX_USED];
    fill_random(&c->rng, in, MOST_ROWS * s->k, 1);
    for (int turn = 0; turn < 30; turn++) {
        int layer = turn % LAYERS;
        int64_t n = between(&c->rng, 1, max[rng_below(&c->rng, 5)]);
        int64_t first = rng_below(&c->rng, (uint32_t)s->experts);
        for (int64_t i = 0; i < n * s->used; i++) // neighbours, so that some are chosen often
            ids[i] = (int32_t)((first + i / s->used % 9 + i % s->used) % s->experts);
        if (rng_below(&c->rng, 3) == 0)
            *slots += !lend(s, c);
        run_layer(c, s, s->loose[layer], ids, n, in, a);
        run_layer(c, s, s->kept[layer], ids, n, in, b);
        *bits += bit_differences(a, b, n * s->used * s->m);
        *slots += !follow(s, layer, ids, n);
    }
    free(in);
    free(a);
    free(b);
}

void check_store_rule(struct check *c) {
    static const uint32_t types[][2] = {{TYPE_Q4_K, TYPE_Q6_K}, {TYPE_MXFP4, TYPE_MXFP4},
                                        {TYPE_Q8_0, TYPE_F16},  {TYPE_Q3_K, TYPE_Q5_K},
                                        {TYPE_F32, TYPE_Q4_0},  {TYPE_IQ4_XS, TYPE_IQ4_NL}};
    uint64_t ahead = 0, loans = 0;
    int64_t moved = 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct stored s = {0};
        struct err e = {0};
        int64_t bits = 0;
        int slots = 0;
        make_matrices(&s, &c->rng, types[i]);
        int rc = open_store(&s, c, &e);
        if (!rc)
            compare_calls(c, &s, &bits, &slots);
        if (!rc)
            rc = exec_status(c->exec, &e);
        char shape[96];
        snprintf(shape, sizeof shape, "%s and %s, %d of %d", quant_format(types[i][0])->name,
                 quant_format(types[i][1])->name, s.used, s.experts);
        uint64_t brought = s.count.misses;
        ahead += s.count.ahead;
        loans += s.lent.loans;
        moved += s.moved;
        close_store(&s, c->exec);
        if (rc == ERR_UNSUPPORTED)
            return; // the backend has no such stores
        report(
            c, !rc && !bits && !slots && brought > 0, "experts that come and go", shape,
            "%lld bits differ, %d of 30 calls chose other slots, %llu brought, %llu ahead behind "
            "%d calls%s%s",
            (long long)bits, slots, (unsigned long long)brought, (unsigned long long)s.count.ahead,
            s.streamed, rc ? "; " : "", rc ? e.text : "");
    }
    report(c, ahead > 0, "experts brought ahead", "", "%llu", (unsigned long long)ahead);
    report(c, loans > 0 && moved > 0, "slots that are lent", "", "%llu loans, %lld experts moved",
           (unsigned long long)loans, (long long)moved);
}
