// SPDX-License-Identifier: Apache-2.0
// See copies.h.
#include "support/copies.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

static void *host_alloc(struct exec *x, size_t bytes) {
    (void)x;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void host_free(struct exec *x, void *p) {
    (void)x;
    free(p);
}

static int no_queue(struct copy_queue **out, struct exec *x, struct err *e) {
    (void)x;
    (void)e;
    *out = NULL;
    return 0;
}

static void nothing(struct copy_queue *q) {
    (void)q;
}

static void copy_now(struct copy_queue *q, void *dst, const void *src, size_t bytes,
                     uint64_t ticket, bool to_host) {
    (void)q;
    (void)ticket;
    (void)to_host;
    memcpy(dst, src, bytes);
}

static bool always(struct copy_queue *q, uint64_t ticket) {
    (void)q;
    (void)ticket;
    return true;
}

static int ended(struct copy_queue *q, uint64_t ticket, struct err *e) {
    (void)q;
    (void)ticket;
    (void)e;
    return 0;
}

static void in_order(struct copy_queue *q, uint64_t ticket) {
    (void)q;
    (void)ticket;
}

struct copy_backend copies_at_once(void) {
    return (struct copy_backend){.host_alloc = host_alloc,
                                 .host_free = host_free,
                                 .open = no_queue,
                                 .close = nothing,
                                 .after_compute = nothing,
                                 .copy = copy_now,
                                 .done = always,
                                 .wait = ended,
                                 .before_compute = in_order};
}

struct late_copy {
    void *dst;
    const void *src;
    size_t bytes;
    bool fail;
    struct late_copy *next;
};

// Copies under way, the oldest first: the first one has ticket `done` + 1.
struct copy_queue {
    struct late_copy *first, *last;
    uint64_t done, bad_first, bad_last; // tickets that failed lie between these; 0: none did
    struct rng rng;
};

static const struct late_copies *late;

static int late_open(struct copy_queue **out, struct exec *x, struct err *e) {
    (void)x;
    *out = calloc(1, sizeof **out);
    if (!*out)
        return err_set(e, ERR_MEMORY, "no memory for copies");
    (*out)->rng.state = rng_mix(late->seed);
    return 0;
}

static void copy_next(struct copy_queue *q) {
    struct late_copy *c = q->first;
    q->first = c->next;
    q->done++;
    if (c->bytes && !c->fail)
        memcpy(c->dst, c->src, c->bytes);
    if (c->fail)
        q->bad_last = q->done;
    if (c->fail && !q->bad_first)
        q->bad_first = q->done;
    free(c);
}

static void copy_upto(struct copy_queue *q, uint64_t ticket) {
    while (q->first && q->done < ticket)
        copy_next(q);
}

static void by_chance(struct copy_queue *q) {
    while (q->first && late->chance && rng_below(&q->rng, late->chance) == 0)
        copy_next(q);
}

static void late_close(struct copy_queue *q) {
    copy_upto(q, UINT64_MAX);
    free(q);
}

static void late_copy(struct copy_queue *q, void *dst, const void *src, size_t bytes,
                      uint64_t ticket, bool to_host) {
    struct late_copy *c = malloc(sizeof *c);
    (void)to_host;
    (void)ticket; // they rise by one
    if (!c)
        abort();
    by_chance(q);
    *c = (struct late_copy){dst, src, bytes, late->fail, NULL};
    *(q->first ? &q->last->next : &q->first) = c;
    q->last = c;
}

static bool late_done(struct copy_queue *q, uint64_t ticket) {
    by_chance(q);
    return q->done >= ticket;
}

static int late_wait(struct copy_queue *q, uint64_t ticket, struct err *e) {
    copy_upto(q, ticket);
    bool bad = q->bad_first && ticket >= q->bad_first && ticket <= q->bad_last;
    return bad ? err_set(e, ERR_DEVICE, "a copy has failed") : 0;
}

static void late_before(struct copy_queue *q, uint64_t ticket) {
    copy_upto(q, ticket);
}

struct copy_backend copies_late(const struct late_copies *how) {
    late = how;
    struct copy_backend b = copies_at_once();
    b.open = late_open;
    b.close = late_close;
    b.copy = late_copy;
    b.done = late_done;
    b.wait = late_wait;
    b.before_compute = late_before;
    return b;
}
