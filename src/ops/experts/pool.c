// SPDX-License-Identifier: Apache-2.0
// See pool.h.
#include "ops/experts/pool.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"

int expert_classes_find(const struct expert_classes *c, int64_t record) {
    for (int i = 0; i < c->n; i++)
        if (c->c[i].record == record)
            return i;
    return -1;
}

int expert_classes_add(struct expert_classes *c, int experts, int64_t record, struct err *e) {
    int i = expert_classes_find(c, record);
    if (i < 0 && c->n == EXPERT_CLASSES)
        return err_set(e, ERR_UNSUPPORTED,
                       "experts of this file have more than %d different sizes; convert it with "
                       "one quantisation for all layers",
                       EXPERT_CLASSES);
    if (i < 0) {
        i = c->n++;
        c->c[i] = (struct expert_class){.record = record};
    }
    c->experts = experts;
    c->c[i].layers++;
    return i;
}

int expert_classes_layers(const struct expert_classes *c) {
    int layers = 0;
    for (int i = 0; i < c->n; i++)
        layers += c->c[i].layers;
    return layers;
}

int64_t expert_classes_all(const struct expert_classes *c) {
    int64_t bytes = 0;
    for (int i = 0; i < c->n; i++)
        bytes += c->c[i].record * c->c[i].layers * c->experts;
    return bytes;
}

int64_t expert_classes_held(const struct expert_classes *c) {
    int64_t bytes = 0;
    for (int i = 0; i < c->n; i++)
        bytes += c->c[i].record * c->c[i].slots;
    return bytes;
}

int64_t expert_classes_min(const struct expert_classes *c) {
    int64_t bytes = 0;
    for (int i = 0; i < c->n; i++)
        bytes += c->c[i].record * c->experts;
    return bytes;
}

int expert_classes_share(struct expert_classes *c, int64_t bytes, struct err *e) {
    int64_t min = expert_classes_min(c), more = expert_classes_all(c) - min;
    if (bytes < min)
        return err_set(e, ERR_MEMORY,
                       "the experts of one layer take %lld MiB and %lld MiB are left for them; use "
                       "a smaller file, a shorter --max-ctx or a smaller --chunk",
                       (long long)(min >> 20), (long long)(max_i64(bytes, 0) >> 20));
    double part = more > 0 ? (double)(bytes - min) / (double)more : 1;
    for (int i = 0; i < c->n; i++) {
        struct expert_class *k = &c->c[i];
        int64_t others = (int64_t)(k->layers - 1) * c->experts;
        k->slots = c->experts + (part < 1 ? (int64_t)(part * (double)others) : others);
    }
    return 0;
}

int expert_classes_per_layer(struct expert_classes *c, int64_t slots, struct err *e) {
    for (int i = 0; i < c->n; i++) {
        struct expert_class *k = &c->c[i];
        int64_t fewest = ceil_div(c->experts, k->layers);
        if (slots < fewest)
            return err_set(e, ERR_USAGE,
                           "%lld slots a layer are too few: a pass may choose all %d experts of a "
                           "layer, and %d layers share their slots; use --spark-slots %lld or more",
                           (long long)slots, c->experts, k->layers, (long long)fewest);
        k->slots = k->layers * min_i64(slots, c->experts);
    }
    return 0;
}

double expert_classes_share_of(const struct expert_classes *c) {
    int64_t all = expert_classes_all(c);
    return all > 0 ? (double)expert_classes_held(c) / (double)all : 1;
}

struct rank {
    uint32_t uses;
    int32_t expert, layer, owner;
};

static int by_uses(const void *a, const void *b) {
    const struct rank *x = a, *y = b;
    if (x->uses != y->uses)
        return x->uses < y->uses ? 1 : -1;
    if (x->expert != y->expert)
        return x->expert < y->expert ? -1 : 1;
    return (x->layer > y->layer) - (x->layer < y->layer);
}

int expert_pool_fill(struct expert_pool *p, struct err *e) {
    int64_t all = (int64_t)p->layers * p->experts;
    struct rank *r = malloc((size_t)all * sizeof *r);
    if (!r)
        return err_set(e, ERR_MEMORY, "no memory to order %lld experts", (long long)all);
    for (int64_t i = 0; i < all; i++) {
        r[i] = (struct rank){p->uses[i], (int32_t)(i % p->experts), (int32_t)(i / p->experts),
                             (int32_t)i};
        p->place[i] = -1;
        p->total[i / p->experts] = (i % p->experts ? p->total[i / p->experts] : 0) + p->uses[i];
    }
    qsort(r, (size_t)all, sizeof *r, by_uses);
    for (int64_t s = 0; s < p->slots; s++) {
        p->owner[s] = s < all ? r[s].owner : -1;
        if (s < all)
            p->place[r[s].owner] = (int32_t)s;
    }
    free(r);
    return 0;
}

// The two classes that can lend most, -1 where there are fewer.
static void choose_sides(struct expert_layout *l, const struct expert_classes *c) {
    int64_t max[2] = {0, 0};
    l->lower = l->upper = -1;
    for (int i = 0; i < c->n; i++) {
        int64_t bytes = (c->c[i].slots - c->experts) * c->c[i].record;
        if (bytes > max[0]) {
            max[1] = max[0];
            l->upper = l->lower;
            max[0] = bytes;
            l->lower = i;
        } else if (bytes > max[1]) {
            max[1] = bytes;
            l->upper = i;
        }
    }
}

void expert_layout_of(struct expert_layout *l, const struct expert_classes *c, int64_t room_bytes) {
    *l = (struct expert_layout){.room_bytes = round_up(room_bytes, LOAN_ALIGN)};
    choose_sides(l, c);
    int64_t at = 0;
    for (int pass = 0; pass < 2; pass++) // the lower one comes last
        for (int i = 0; i < c->n; i++) {
            if (i == l->upper || (i == l->lower) != (pass == 1))
                continue;
            l->at[i].first = at;
            l->at[i].step = c->c[i].record;
            at += c->c[i].record * c->c[i].slots;
        }
    l->room = round_up(at, LOAN_ALIGN);
    at = l->room + l->room_bytes;
    if (l->upper >= 0) {
        const struct expert_class *k = &c->c[l->upper];
        l->at[l->upper].first = at + (k->slots - 1) * k->record;
        l->at[l->upper].step = -k->record;
        at += k->record * k->slots;
    }
    l->bytes = at;
}

int64_t expert_layout_low(const struct expert_layout *l, const struct expert_classes *c,
                          int which) {
    int64_t first = l->at[which].first, step = l->at[which].step;
    return step < 0 ? first + (c->c[which].slots - 1) * step : first;
}

// The room that is there when that many slots stay.
static void room_of_slots(const struct expert_layout *l, const struct expert_classes *c,
                          struct expert_loan *o) {
    int64_t end = l->room + l->room_bytes;
    o->start = l->room;
    if (l->lower >= 0)
        o->start =
            round_up(l->at[l->lower].first + o->keep[l->lower] * l->at[l->lower].step, LOAN_ALIGN);
    if (l->upper >= 0)
        end = l->at[l->upper].first + (o->keep[l->upper] - 1) * l->at[l->upper].step;
    o->bytes = max_i64((end - o->start) / LOAN_ALIGN * LOAN_ALIGN, 0);
    o->slots = o->slot_bytes = 0;
    for (int i = 0; i < c->n; i++) {
        o->slots += c->c[i].slots - o->keep[i];
        o->slot_bytes += (c->c[i].slots - o->keep[i]) * c->c[i].record;
    }
}

// Both sides keep `part` of what they may lend, rounded down.
static void keep_part(const struct expert_layout *l, const struct expert_classes *c, double part,
                      struct expert_loan *o) {
    for (int i = 0; i < c->n; i++) {
        int64_t above_min = c->c[i].slots - c->experts;
        bool lends = (i == l->lower || i == l->upper) && above_min > 0;
        o->keep[i] = lends ? c->experts + (int64_t)(part * (double)above_min) : c->c[i].slots;
    }
    room_of_slots(l, c, o);
}

int64_t expert_layout_max(const struct expert_layout *l, const struct expert_classes *c) {
    struct expert_loan all = {0};
    keep_part(l, c, 0, &all);
    return all.bytes;
}

// Gives one more slot up, of the class that has most to spare; false: none has.
static bool give_one(const struct expert_layout *l, const struct expert_classes *c,
                     struct expert_loan *o) {
    int sides[2] = {l->lower, l->upper}, best = -1;
    for (int k = 0; k < 2; k++) {
        int i = sides[k];
        if (i >= 0 && o->keep[i] > c->experts && (best < 0 || o->keep[i] > o->keep[best]))
            best = i;
    }
    if (best < 0)
        return false;
    o->keep[best]--;
    room_of_slots(l, c, o);
    return true;
}

int expert_layout_lend(const struct expert_layout *l, const struct expert_classes *c, int64_t bytes,
                       struct expert_loan *out, struct err *e) {
    int64_t max = expert_layout_max(l, c), lendable = max - l->room_bytes;
    *out = (struct expert_loan){0};
    keep_part(l, c, 1, out);
    if (bytes <= out->bytes)
        return 0;
    if (bytes > max)
        return err_set(e, ERR_MEMORY,
                       "%lld MiB in the place of experts' slots are wanted and at most %lld can be "
                       "had, since the experts of one layer stay; give the model more memory "
                       "(--vram-limit, --spark-vram, --spark-slots)",
                       (long long)((bytes + (1 << 20) - 1) >> 20), (long long)(max >> 20));
    double part = 1 - (double)(bytes - l->room_bytes) / (double)lendable;
    keep_part(l, c, part > 0 ? part : 0, out);
    while (out->bytes < bytes && give_one(l, c, out)) {
    }
    return 0;
}

struct slot_rank {
    uint64_t part;
    int32_t slot;
};

static int hottest_first(const void *a, const void *b) {
    const struct slot_rank *x = a, *y = b;
    if (x->part != y->part)
        return x->part < y->part ? 1 : -1;
    return (x->slot > y->slot) - (x->slot < y->slot);
}

// The experts in the slots, hottest first; how many.
static int64_t rank_slots(const struct expert_pool *p, struct slot_rank *r) {
    int64_t n = 0;
    for (int64_t s = 0; s < p->slots; s++) {
        int32_t o = p->owner[s];
        if (o >= 0)
            r[n++] = (struct slot_rank){
                expert_part(p->uses[o], p->total[o / p->experts], p->experts), (int32_t)s};
    }
    qsort(r, (size_t)n, sizeof *r, hottest_first);
    return n;
}

int expert_pool_lend(struct expert_pool *p, int64_t keep, struct expert_shift *moves,
                     struct err *e) {
    struct slot_rank *r = malloc((size_t)p->slots * sizeof *r);
    int64_t hole = 0;
    int n = 0;
    if (!r)
        return err_set(e, ERR_MEMORY, "no memory to order %lld slots", (long long)p->slots);
    int64_t all = rank_slots(p, r);
    for (int64_t i = keep; i < all; i++) { // the coldest
        p->place[p->owner[r[i].slot]] = -1;
        p->owner[r[i].slot] = -1;
    }
    for (int64_t i = keep; i < p->slots; i++) {
        if (p->owner[i] < 0)
            continue;
        while (p->owner[hole] >= 0)
            hole++;
        moves[n++] = (struct expert_shift){(int32_t)i, (int32_t)hole};
        p->place[p->owner[i]] = (int32_t)hole;
        p->owner[hole] = p->owner[i];
        p->owner[i] = -1;
    }
    p->slots = keep;
    free(r);
    return n;
}

int expert_loan_choose(const struct expert_classes *c, int64_t own, const struct expert_passes *way,
                       int n_ways, int64_t n) {
    int64_t missing = expert_classes_all(c) - expert_classes_held(c);
    int64_t min = ceil_div(n, own) * missing;
    int best = -1;
    for (int i = 0; i < n_ways; i++) {
        int64_t lent = way[i].slot_bytes;
        int64_t bytes = ceil_div(n, way[i].rows) * (missing + lent) + lent;
        if (bytes < min || (bytes == min && best >= 0 && lent < way[best].slot_bytes)) {
            min = bytes;
            best = i;
        }
    }
    return best;
}
