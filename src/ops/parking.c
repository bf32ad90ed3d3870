// SPDX-License-Identifier: Apache-2.0
// See parking.h. What is parked is kept as long as the exec, as an attachment of it.
#include "ops/parking.h"

#include <stdlib.h>

#include "ops/exec.h"

struct parking {
    struct exec_attachment base; // first
    struct parked k;
};

static void destroy(struct exec_attachment *a) {
    parked_fini(&((struct parking *)a)->k);
    free(a);
}

static struct parking *parking_of(const struct exec *x) {
    return (struct parking *)exec_attached(x, destroy);
}

int exec_park_open(struct exec *x, struct err *e) {
    if (parking_of(x))
        return 0;
    struct parking *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, ERR_MEMORY, "no memory to park weights");
    p->base.destroy = destroy;
    int rc = x->copies && x->copies->park_open
                 ? x->copies->park_open(x, &p->k, e)
                 : err_set(e, ERR_UNSUPPORTED, "there is no memory but the host's to lend");
    if (rc)
        free(p);
    else
        exec_attach(x, &p->base);
    return rc;
}

bool exec_parks(const struct exec *x) {
    return parking_of(x) != NULL;
}

int exec_park_finish(struct exec *x, int64_t bytes, struct err *e) {
    struct parking *p = parking_of(x);
    if (!p)
        return err_set(e, ERR_STATE, "weights were not loaded to be parked");
    int rc = exec_status(x, e);
    parked_finish(&p->k);
    return rc ? rc : parked_keep(&p->k, ARENA_WEIGHTS, bytes, e);
}

void exec_park(struct exec *x) {
    struct parking *p = parking_of(x);
    if (p)
        parked_leave(&p->k);
}

int exec_unpark(struct exec *x, struct err *e) {
    struct parking *p = parking_of(x);
    int rc = p ? parked_return(&p->k, e) : 0;
    if (rc)
        x->copies->park_fault(x);
    return rc;
}

int64_t exec_park_part(struct exec *x, void *p, int64_t bytes) {
    struct parking *k = parking_of(x);
    return k ? parked_open(&k->k, p, (size_t)bytes) : 0;
}

int exec_unpark_parts(struct exec *x, struct err *e) {
    struct parking *k = parking_of(x);
    int rc = k ? parked_close(&k->k, e) : 0;
    if (rc)
        x->copies->park_fault(x);
    return rc;
}
