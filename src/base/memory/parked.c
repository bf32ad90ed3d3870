// SPDX-License-Identifier: Apache-2.0
// See parked.h. While slabs are away they count as not held.
#include "base/memory/parked.h"

#include <stdlib.h>

#include "base/num.h"
#include "base/vec.h"

static size_t whole(const struct parked *k, size_t bytes) {
    return (bytes + k->from.grain - 1) / k->from.grain * k->from.grain;
}

static void *take(void *arg, size_t bytes) {
    struct parked *k = arg;
    if (!k->open)
        return k->take(k->arg, bytes);
    size_t all = whole(k, bytes);
    if (vec_reserve(&k->all, &k->cap, k->n + 1, sizeof *k->all, NULL))
        return NULL;
    void *p = k->from.reserve(k->from.arg, all);
    if (!p)
        return NULL;
    if (!k->from.back(k->from.arg, p, all)) {
        k->from.release(k->from.arg, p, all);
        return NULL;
    }
    k->all[k->n++] = (struct parked_slab){.p = p, .bytes = all};
    return p;
}

static struct parked_slab *find(struct parked *k, const void *p) {
    for (int64_t i = 0; i < k->n; i++)
        if (k->all[i].p == p)
            return &k->all[i];
    return NULL;
}

static void give(void *arg, void *p) {
    struct parked *k = arg;
    struct parked_slab *s = find(k, p);
    if (!s) {
        k->give(k->arg, p);
        return;
    }
    if (s->away) {
        k->slabs->held += (int64_t)s->bytes; // as slabs.c counts it until now
    } else {
        size_t behind = s->hole + s->hole_bytes;
        k->slabs->held += (int64_t)s->hole_bytes;
        if (s->hole_bytes && s->hole)
            k->from.strip(k->from.arg, s->p, s->hole);
        if (s->bytes > behind)
            k->from.strip(k->from.arg, s->p + behind, s->bytes - behind);
    }
    k->from.release(k->from.arg, s->p, s->bytes);
    if (s->host)
        k->from.host_give(k->from.arg, s->host);
    *s = k->all[--k->n];
}

void parked_init(struct parked *k, struct slabs *s, const struct parked_source *from) {
    *k = (struct parked){.slabs = s,
                         .from = *from,
                         .take = s->source.take,
                         .give = s->source.give,
                         .arg = s->source.arg,
                         .open = true};
    s->source.take = take;
    s->source.give = give;
    s->source.arg = k;
}

void parked_seal(struct parked *k) {
    k->open = false;
}

static int arena_of(const struct parked *k, const unsigned char *p) {
    for (int64_t i = 0; i < k->slabs->n; i++)
        if (k->slabs->slabs[i].base == p)
            return k->slabs->slabs[i].arena;
    return -1;
}

int64_t parked_kept(const struct parked *k) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < k->n; i++)
        bytes += k->all[i].host ? (int64_t)k->all[i].bytes : 0;
    return bytes;
}

int parked_keep(struct parked *k, int arena, int64_t bytes, struct err *e) {
    int64_t have = parked_kept(k);
    for (int64_t i = 0; i < k->n && have < bytes; i++) {
        struct parked_slab *s = &k->all[i];
        if (s->host || s->away || arena_of(k, s->p) != arena)
            continue;
        void *host = k->from.host_take(k->from.arg, s->bytes);
        if (!host || !k->from.save(k->from.arg, host, s->p, s->bytes)) {
            if (host)
                k->from.host_give(k->from.arg, host);
            return err_set(e, ERR_MEMORY,
                           "the host has no %lld MiB of memory to keep weights in while their "
                           "place is lent",
                           (long long)(bytes >> 20));
        }
        s->host = host;
        have += (int64_t)s->bytes;
    }
    return have >= bytes
               ? 0
               : err_set(e, ERR_MEMORY, "%lld MiB are to be lent, and weights take %lld MiB",
                         (long long)(bytes >> 20), (long long)(have >> 20));
}

void parked_leave(struct parked *k) {
    for (int64_t i = 0; i < k->n; i++) {
        struct parked_slab *s = &k->all[i];
        if (!s->host || s->away)
            continue;
        k->from.strip(k->from.arg, s->p, s->bytes);
        s->away = true;
        k->slabs->held -= (int64_t)s->bytes;
    }
}

int parked_return(struct parked *k, struct err *e) {
    for (int64_t i = 0; i < k->n; i++) {
        struct parked_slab *s = &k->all[i];
        if (!s->away)
            continue;
        if (!k->from.back(k->from.arg, s->p, s->bytes))
            return err_set(e, ERR_MEMORY,
                           "%lld MiB of memory that weights had lent do not come back; something "
                           "else has taken them",
                           (long long)(s->bytes >> 20));
        s->away = false;
        k->slabs->held += (int64_t)s->bytes;
        k->slabs->peak = max_i64(k->slabs->peak, k->slabs->held);
        if (!k->from.load(k->from.arg, s->p, s->host, s->bytes))
            return err_set(e, ERR_MEMORY, "weights could not be copied back to where they were");
    }
    return 0;
}

int64_t parked_open(struct parked *k, void *p, size_t bytes) {
    const unsigned char *at = p;
    size_t piece = k->from.piece;
    for (int64_t i = 0; i < k->n; i++) {
        struct parked_slab *s = &k->all[i];
        if (at < s->p || at >= s->p + s->bytes || s->away || s->hole_bytes || !piece)
            continue;
        size_t from = ((size_t)(at - s->p) + piece - 1) / piece * piece;
        size_t to = (size_t)(at - s->p) + bytes;
        to = to >= s->bytes ? s->bytes : to / piece * piece;
        if (to <= from)
            return 0;
        s->hole = from;
        s->hole_bytes = to - from;
        k->from.strip(k->from.arg, s->p + from, to - from);
        k->slabs->held -= (int64_t)s->hole_bytes;
        return (int64_t)s->hole_bytes;
    }
    return 0;
}

int parked_close(struct parked *k, struct err *e) {
    for (int64_t i = 0; i < k->n; i++) {
        struct parked_slab *s = &k->all[i];
        if (!s->hole_bytes)
            continue;
        if (!k->from.back(k->from.arg, s->p + s->hole, s->hole_bytes))
            return err_set(e, ERR_MEMORY,
                           "%lld MiB of memory that slots of experts had lent do not come back; "
                           "something else has taken them",
                           (long long)(s->hole_bytes >> 20));
        k->slabs->held += (int64_t)s->hole_bytes;
        k->slabs->peak = max_i64(k->slabs->peak, k->slabs->held);
        s->hole = s->hole_bytes = 0;
    }
    return 0;
}

void parked_fini(struct parked *k) {
    free(k->all);
    *k = (struct parked){0};
}
