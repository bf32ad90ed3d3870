// SPDX-License-Identifier: Apache-2.0
// See plan.h: items are added here, and what every source tensor must meet is that it has the
// shape that config.json implies, and that something takes it.
#include "convert/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"

int convert_plan_add(struct convert_plan *p, const struct convert_item *item, struct err *e) {
    int rc = vec_reserve(&p->items, &p->cap, (int64_t)p->count + 1, sizeof *p->items, e);
    if (rc)
        return rc;
    p->items[p->count] = *item;
    const char *name = arena_strndup(&p->arena, item->name, strlen(item->name));
    if (!name)
        return err_set(e, ERR_MEMORY, "not enough memory for the list of tensors");
    p->items[p->count++].name = name;
    return 0;
}

void convert_plan_fini(struct convert_plan *p) {
    free(p->items);
    arena_fini(&p->arena);
    *p = (struct convert_plan){0};
}

// Dimensions without those of size 1; returns how many are left.
static int squeeze(const int64_t *ne, int n, int64_t *out) {
    int k = 0;
    for (int i = 0; i < n; i++)
        if (ne[i] != 1)
            out[k++] = ne[i];
    return k;
}

int convert_check_shape(const struct tensor *t, const int64_t *ne, int n_dims, struct err *e) {
    int64_t have[4], expected[4];
    int h = squeeze(t->ne, t->n_dims, have), w = squeeze(ne, n_dims, expected);
    if (h == w && !memcmp(have, expected, (size_t)h * sizeof *have))
        return 0;
    return err_set(e, ERR_MISMATCH,
                   "tensor '%s' has shape [%" PRId64 ", %" PRId64 ", %" PRId64
                   "] (innermost first), but config.json implies [%" PRId64 ", %" PRId64
                   ", %" PRId64 "]: use files of one checkpoint",
                   t->name, t->ne[0], t->ne[1], t->ne[2], ne[0], n_dims > 1 ? ne[1] : 1,
                   n_dims > 2 ? ne[2] : 1);
}

int convert_mark_used(struct convert_job *j, const struct tensor *t, struct err *e) {
    if (map_insert(&j->used, t->name, strlen(t->name), 0) < 0)
        return err_set(e, ERR_MEMORY, "not enough memory for the list of tensors");
    return 0;
}
