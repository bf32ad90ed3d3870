// SPDX-License-Identifier: Apache-2.0
// Anchors: the runs of the query go into a small hash table, one walk over the text counts them and
// keeps their first places.
#include "compress/select/anchors.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/vec.h"

enum { HITS_MAX = 32, SLOTS = 256 };

struct run {
    const int32_t *ids; // [ANCHOR_RUN]; NULL: an empty slot
    int64_t count;
    int64_t place[HITS_MAX]; // first tokens
};

static struct run *find_run(struct run *table, const int32_t *ids) {
    uint64_t h = rng_hash(4, (uint64_t)ids[0] << 32 | (uint32_t)ids[1],
                          (uint64_t)ids[2] << 32 | (uint32_t)ids[3], 0);
    struct run *r = &table[h % SLOTS];
    while (r->ids && memcmp(r->ids, ids, ANCHOR_RUN * sizeof *ids))
        r = r == &table[SLOTS - 1] ? table : r + 1;
    return r;
}

static void count_places(struct run *table, const int32_t *ids, int64_t n) {
    for (int64_t i = 0; i + ANCHOR_RUN <= n; i++) {
        struct run *r = find_run(table, ids + i);
        if (!r->ids)
            continue;
        if (r->count < HITS_MAX)
            r->place[r->count] = i;
        r->count++;
    }
}

static int64_t chunk_of(const struct chunks *c, int64_t token) {
    int64_t lo = 0, hi = c->n - 1;
    while (lo < hi) {
        int64_t mid = (lo + hi + 1) / 2;
        if (c->c[mid].first <= token)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

struct out {
    int64_t **order, *n, *cap;
};

static int push(const struct out *o, int64_t chunk, struct err *e) {
    int rc = vec_reserve(o->order, o->cap, *o->n + 1, sizeof **o->order, e);
    if (!rc)
        (*o->order)[(*o->n)++] = chunk;
    return rc;
}

// The chunks at distance d from each place of r.
static int push_ring(const struct chunks *c, const struct run *r, int64_t d, const struct out *o,
                     struct err *e) {
    int rc = 0;
    for (int64_t i = 0; i < r->count && !rc; i++) {
        int64_t begin = chunk_of(c, r->place[i]), end = chunk_of(c, r->place[i] + ANCHOR_RUN - 1);
        if (d == 0) {
            for (int64_t k = begin; k <= end && !rc; k++)
                rc = push(o, k, e);
            continue;
        }
        if (begin - d >= 0)
            rc = push(o, begin - d, e);
        if (!rc && end + d < c->n)
            rc = push(o, end + d, e);
    }
    return rc;
}

static int by_count(const void *a, const void *b) {
    const struct run *x = *(const struct run *const *)a, *y = *(const struct run *const *)b;
    if (x->count != y->count)
        return x->count < y->count ? -1 : 1;
    return x->ids < y->ids ? -1 : x->ids > y->ids;
}

// The runs that say something, those with the fewest places first.
static int useful(struct run *table, int hits, const struct run **list) {
    int n = 0;
    for (int i = 0; i < SLOTS; i++)
        if (table[i].ids && table[i].count && table[i].count <= hits)
            list[n++] = &table[i];
    qsort(list, (size_t)n, sizeof *list, by_count);
    return n;
}

int anchors_find(const struct anchor_search *s, int64_t **order, int64_t *n, int64_t *cap,
                 struct err *e) {
    int64_t all = s->cuts->n;
    int radius = s->radius ? s->radius : all < 1024 ? 2 : all < 2048 ? 4 : 8;
    int hits = s->hits ? s->hits : all < 1024 ? 8 : all < 2048 ? 16 : HITS_MAX;
    if (hits > HITS_MAX)
        hits = HITS_MAX;
    struct run *table = calloc(SLOTS, sizeof *table);
    if (!table)
        return err_set(e, ERR_MEMORY, "no memory to look for the query's words");
    int64_t first = s->end - s->query > ANCHOR_QUERY ? s->end - ANCHOR_QUERY : s->query;
    for (int64_t i = first; i + ANCHOR_RUN <= s->end; i++)
        find_run(table, s->ids + i)->ids = s->ids + i;
    count_places(table, s->ids, s->query);
    const struct run *list[SLOTS];
    int runs = useful(table, hits, list), rc = 0;
    const struct out o = {order, n, cap};
    for (int64_t d = 0; d <= radius && !rc; d++)
        for (int i = 0; i < runs && !rc; i++)
            rc = push_ring(s->cuts, list[i], d, &o, e);
    free(table);
    return rc;
}
