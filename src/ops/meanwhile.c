// SPDX-License-Identifier: Apache-2.0
// What is left lies in an attachment of the exec.
#include "ops/meanwhile.h"

#include <stdlib.h>

#include "ops/exec.h"

struct left {
    struct exec_attachment base; // first
    struct meanwhile work;
};

static void destroy(struct exec_attachment *a) {
    free(a);
}

void exec_leave(struct exec *x, struct meanwhile w) {
    struct left *l = (struct left *)exec_attached(x, destroy);
    if (!l) {
        l = calloc(1, sizeof *l);
        if (!l)
            return; // nobody depends on it
        l->base.destroy = destroy;
        exec_attach(x, &l->base);
    }
    l->work = w;
}

struct meanwhile exec_take_left(struct exec *x) {
    struct left *l = (struct left *)exec_attached(x, destroy);
    struct meanwhile w = {NULL, NULL};
    if (l) {
        w = l->work;
        l->work = (struct meanwhile){NULL, NULL};
    }
    return w;
}
