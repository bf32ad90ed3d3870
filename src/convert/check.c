// SPDX-License-Identifier: Apache-2.0
// What is asked of every source tensor: that it has the shape that config.json implies, and that
// somebody takes it.
#include <inttypes.h>
#include <string.h>

#include "convert/impl.h"

// Dimensions without those of size 1; returns how many are left.
static int squeeze(const int64_t *ne, int n, int64_t *out) {
    int k = 0;
    for (int i = 0; i < n; i++)
        if (ne[i] != 1)
            out[k++] = ne[i];
    return k;
}

int convert_check_shape(const struct tensor *t, const int64_t *ne, int n_dims, struct err *e) {
    int64_t have[4], want[4];
    int h = squeeze(t->ne, t->n_dims, have), w = squeeze(ne, n_dims, want);
    if (h == w && !memcmp(have, want, (size_t)h * sizeof *have))
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
