// SPDX-License-Identifier: Apache-2.0
// Copies as the exec's backend does them, or at once where memory is the host's; see copier.h.
#include "ops/copier.h"

#include <stdlib.h>
#include <string.h>

#include "ops/exec.h"

// Stands in front of memory of exec_host_alloc; as long as its alignment.
union host_head {
    size_t bytes; // after it
    unsigned char storage[64];
};

void *exec_host_alloc(struct exec *x, size_t bytes) {
    if (bytes > INT64_MAX / 2)
        return NULL;
    size_t whole = sizeof(union host_head) + (bytes + 63) / 64 * 64;
    union host_head *h = x->copies ? x->copies->host_alloc(x, whole) : aligned_alloc(64, whole);
    if (!h)
        return NULL;
    h->bytes = bytes;
    __atomic_fetch_add(&x->host_bytes, (int64_t)bytes, __ATOMIC_RELAXED);
    return h + 1;
}

void exec_host_free(struct exec *x, void *p) {
    if (!p)
        return;
    union host_head *h = (union host_head *)p - 1;
    __atomic_fetch_sub(&x->host_bytes, (int64_t)h->bytes, __ATOMIC_RELAXED);
    if (x->copies)
        x->copies->host_free(x, h);
    else
        free(h);
}

int64_t exec_host_bytes(const struct exec *x) {
    return __atomic_load_n(&x->host_bytes, __ATOMIC_RELAXED);
}

bool exec_host_pinned(const struct exec *x) {
    return x->copies != NULL;
}

const struct copy_backend *cpu_copies;

struct copier {
    const struct copy_backend *b; // NULL: copies are done at once
    struct copy_queue *queue;
    uint64_t last; // ticket
};

int copier_create(struct copier **out, struct exec *x, struct err *e) {
    struct copier *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c)
        return err_set(e, ERR_MEMORY, "no memory for a queue of copies");
    c->b = x->copies;
    int rc = c->b ? c->b->open(&c->queue, x, e) : 0;
    if (rc) {
        free(c);
        return rc;
    }
    *out = c;
    return 0;
}

void copier_destroy(struct copier *c) {
    if (!c)
        return;
    if (c->b)
        c->b->close(c->queue);
    free(c);
}

void copier_after_compute(struct copier *c) {
    if (c->b)
        c->b->after_compute(c->queue);
}

static uint64_t copy(struct copier *c, void *dst, const void *src, size_t bytes, bool to_host) {
    c->last++;
    if (c->b)
        c->b->copy(c->queue, dst, src, bytes, c->last, to_host);
    else if (bytes)
        memmove(dst, src, bytes);
    return c->last;
}

uint64_t copier_to_host(struct copier *c, void *host, const void *device, size_t bytes) {
    return copy(c, host, device, bytes, true);
}

uint64_t copier_to_device(struct copier *c, void *device, const void *host, size_t bytes) {
    return copy(c, device, host, bytes, false);
}

uint64_t copier_rows_to_device(struct copier *c, const struct copier_rows *runs, int n_runs) {
    if (c->b && c->b->copy_rows) {
        c->b->copy_rows(c->queue, runs, n_runs, ++c->last);
        return c->last;
    }
    for (int i = 0; i < n_runs; i++)
        for (size_t j = 0; j < runs[i].n; j++)
            copy(c, (unsigned char *)runs[i].to + j * runs[i].to_step,
                 (const unsigned char *)runs[i].from + j * runs[i].from_step, runs[i].bytes, false);
    return c->last;
}

bool copier_done(struct copier *c, uint64_t ticket) {
    return !c->b || ticket == 0 || c->b->done(c->queue, ticket);
}

int copier_wait(struct copier *c, uint64_t ticket, struct err *e) {
    return c->b && ticket ? c->b->wait(c->queue, ticket, e) : 0;
}

void copier_before_compute(struct copier *c, uint64_t ticket) {
    if (c->b && ticket)
        c->b->before_compute(c->queue, ticket);
}
