// SPDX-License-Identifier: Apache-2.0
// The table of drafters and the handle around its rows.
#include "spec/draft/drafter.h"

#include <stdlib.h>

#include "base/num.h"

struct drafter {
    const struct drafter_class *class;
    void *self;
    int max_members;
};

static const struct drafter_class *const classes[DRAFT_KINDS] = {
    [DRAFT_LOOKUP] = &drafter_lookup,
    [DRAFT_ORACLE] = &drafter_oracle,
};

int drafter_create_class(struct drafter **out, const struct drafter_class *class,
                         const struct draft_config *c, struct err *e) {
    struct drafter *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, ERR_MEMORY, "no memory for the %s drafter", class->name);
    d->class = class;
    d->max_members = class->shared ? max_i32(c->max_members, 1) : 1;
    int rc = class->create(&d->self, c, e);
    if (rc) {
        free(d);
        return rc;
    }
    *out = d;
    return 0;
}

static const struct drafter_class *class_of(enum draft_kind kind, const struct draft_config *c) {
    if (kind != DRAFT_MODEL)
        return classes[kind];
    const bool by_path = c->draft && draft_traits(c->draft).depends == DRAFT_BY_PATH;
    return by_path ? &drafter_model : &drafter_dflash;
}

int drafter_create(struct drafter **out, enum draft_kind kind, const struct draft_config *c,
                   struct err *e) {
    return drafter_create_class(out, class_of(kind, c), c, e);
}

void drafter_destroy(struct drafter *d) {
    if (!d)
        return;
    d->class->destroy(d->self);
    free(d);
}

int drafter_max_depth(const struct drafter *d) {
    return d->class->max_depth(d->self);
}

bool drafter_free(const struct drafter *d) {
    return d->class->free;
}

bool drafter_by_path(const struct drafter *d) {
    return d->class->by_path && d->class->by_path(d->self);
}

int drafter_propose(struct drafter *d, const struct draft_request *r, int n,
                    struct proposal *const *p, struct err *e) {
    if (n < 1 || n > d->max_members)
        return err_set(e, ERR_USAGE, "the %s drafter is called for %d sequences, not for 1 to %d",
                       d->class->name, n, d->max_members);
    return d->class->propose(d->self, r, n, p, e);
}
