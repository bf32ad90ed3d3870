// SPDX-License-Identifier: Apache-2.0
// See loan.h.
#include "ops/experts/loan.h"

#include <stdlib.h>

#include "base/num.h"

// The two classes that can lend most, -1 where there are fewer.
static void choose_sides(struct expert_layout *l, const struct expert_classes *c) {
    int64_t most[2] = {0, 0};
    l->lower = l->upper = -1;
    for (int i = 0; i < c->n; i++) {
        int64_t bytes = (c->c[i].slots - c->experts) * c->c[i].record;
        if (bytes > most[0]) {
            most[1] = most[0];
            l->upper = l->lower;
            most[0] = bytes;
            l->lower = i;
        } else if (bytes > most[1]) {
            most[1] = bytes;
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

// The room that is there when so many slots stay.
static void room_beside(const struct expert_layout *l, const struct expert_classes *c,
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
        int64_t spare = c->c[i].slots - c->experts;
        bool lends = (i == l->lower || i == l->upper) && spare > 0;
        o->keep[i] = lends ? c->experts + (int64_t)(part * (double)spare) : c->c[i].slots;
    }
    room_beside(l, c, o);
}

int64_t expert_layout_most(const struct expert_layout *l, const struct expert_classes *c) {
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
    room_beside(l, c, o);
    return true;
}

int expert_layout_lend(const struct expert_layout *l, const struct expert_classes *c, int64_t bytes,
                       struct expert_loan *out, struct err *e) {
    int64_t most = expert_layout_most(l, c), lendable = most - l->room_bytes;
    *out = (struct expert_loan){0};
    keep_part(l, c, 1, out);
    if (bytes <= out->bytes)
        return 0;
    if (bytes > most)
        return err_set(e, ERR_MEMORY,
                       "%lld MiB in the place of experts' slots are wanted and at most %lld can be "
                       "had, since the experts of one layer stay; give the model more memory "
                       "(--vram-limit, --spark-vram, --spark-slots)",
                       (long long)((bytes + (1 << 20) - 1) >> 20), (long long)(most >> 20));
    double part = 1 - (double)(bytes - l->room_bytes) / (double)lendable;
    keep_part(l, c, part > 0 ? part : 0, out);
    while (out->bytes < bytes && give_one(l, c, out)) {
    }
    return 0;
}

struct rank {
    uint64_t part;
    int32_t slot;
};

static int hottest_first(const void *a, const void *b) {
    const struct rank *x = a, *y = b;
    if (x->part != y->part)
        return x->part < y->part ? 1 : -1;
    return (x->slot > y->slot) - (x->slot < y->slot);
}

// What is in the slots, hottest first; how many.
static int64_t rank_slots(const struct expert_pool *p, struct rank *r) {
    int64_t n = 0;
    for (int64_t s = 0; s < p->slots; s++) {
        int32_t o = p->owner[s];
        if (o >= 0)
            r[n++] = (struct rank){expert_part(p->heat[o], p->total[o / p->experts], p->experts),
                                   (int32_t)s};
    }
    qsort(r, (size_t)n, sizeof *r, hottest_first);
    return n;
}

int expert_pool_lend(struct expert_pool *p, int64_t keep, struct expert_shift *moves,
                     struct err *e) {
    struct rank *r = malloc((size_t)p->slots * sizeof *r);
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

void expert_pool_back(struct expert_pool *p, int64_t slots) {
    for (int64_t s = p->slots; s < slots; s++)
        p->owner[s] = -1;
    p->slots = slots;
}

int expert_loan_choose(const struct expert_classes *c, int64_t own, const struct expert_passes *way,
                       int n_ways, int64_t n) {
    int64_t missing = expert_classes_all(c) - expert_classes_held(c);
    int64_t least = ceil_div(n, own) * missing;
    int best = -1;
    for (int i = 0; i < n_ways; i++) {
        int64_t lent = way[i].slot_bytes;
        int64_t bytes = ceil_div(n, way[i].rows) * (missing + lent) + lent;
        if (bytes < least || (bytes == least && best >= 0 && lent < way[best].slot_bytes)) {
            least = bytes;
            best = i;
        }
    }
    return best;
}
