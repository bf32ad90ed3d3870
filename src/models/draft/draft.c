// SPDX-License-Identifier: Apache-2.0
// The table of kinds of drafts and the handle around its rows.
#include "models/draft/draft.h"

#include <stdlib.h>

#include "models/model_impl.h"

const char DRAFT_OF_TARGET[] = "the target's own file";

struct draft {
    const struct draft_class *class;
    void *self;
};

// The last one reads what no other does, and says what is wrong with it.
static const struct draft_class *const classes[] = {&draft_class_mtp, &draft_class_eagle3,
                                                    &draft_class_dflash};
enum { CLASSES = sizeof classes / sizeof *classes };

static const struct draft_class *class_of(const struct draft_source *s, const struct gguf *target) {
    struct gguf *own = NULL;
    struct err none;
    int i = 0;
    const struct gguf *file = target;
    if (s->path != DRAFT_OF_TARGET)
        file = gguf_open(&own, s->path, &none) ? NULL : own;
    while (i < CLASSES - 1 && !classes[i]->takes(s->path, file, target))
        i++;
    gguf_close(own);
    return classes[i];
}

static int create(struct draft **out, const struct draft_class *class, struct model *target,
                  const struct draft_source *s, bool dry, struct err *e) {
    struct draft *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, ERR_MEMORY, "no memory for a draft");
    d->class = class;
    int rc = class->open(&d->self, target, s, dry, e);
    if (rc) {
        free(d);
        return rc;
    }
    *out = d;
    return 0;
}

int draft_open_class(struct draft **out, const struct draft_class *class, struct model *target,
                     const struct draft_source *s, struct err *e) {
    if (exec_is_device(target->x)) {
        struct draft *dry = NULL;
        struct draft_plan plan;
        int rc = create(&dry, class, target, s, true, e);
        if (rc)
            return rc;
        class->plan(dry->self, &plan);
        load_make_room(target->x, plan.weights);
        draft_destroy(dry);
    }
    return create(out, class, target, s, false, e);
}

int draft_open(struct draft **out, struct model *target, const struct draft_source *s,
               struct err *e) {
    return draft_open_class(out, class_of(s, target->load.arg), target, s, e);
}

void draft_destroy(struct draft *d) {
    if (!d)
        return;
    d->class->destroy(d->self);
    free(d);
}

int draft_measure(struct draft_plan *p, const struct draft_plan_args *a, struct err *e) {
    struct model *target;
    struct draft *d = NULL;
    int rc = model_dry(&target, a->x, a->target, a->target_options, e);
    if (rc)
        return rc;
    rc = create(&d, class_of(a->source, a->target), target, a->source, true, e);
    if (!rc) {
        d->class->plan(d->self, p);
        p->name = d->class->name;
        draft_destroy(d);
    }
    model_destroy(target);
    return rc;
}

struct draft_traits draft_traits(const struct draft *d) {
    return d->class->traits(d->self);
}

void draft_describe(const struct draft *d, struct str *out) {
    d->class->describe(d->self, out);
}

bool draft_knows(const struct draft *d, int32_t token) {
    return !d->class->knows || d->class->knows(d->self, token);
}

struct dflash *draft_dflash(const struct draft *d) {
    return d->class == &draft_class_dflash ? d->self : NULL;
}

struct path *draft_path(const struct draft *d) {
    return d->class->path ? d->class->path(d->self) : NULL;
}

int draft_begin(struct draft *d, const struct draft_level *l, int n, struct err *e) {
    return d->class->begin(d->self, l, n, e);
}

int draft_run_level(struct draft *d, const struct draft_level *l, int n, struct draft_guesses *out,
                    struct err *e) {
    return d->class->level(d->self, l, n, out, e);
}
