// SPDX-License-Identifier: Apache-2.0
// Grows by doubling; see token_list.h.
#include "text/token_list.h"

#include <stdlib.h>

int token_list_push(struct token_list *l, int32_t id, struct err *e) {
    if (l->count == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 64;
        int32_t *ids = cap > SIZE_MAX / sizeof *ids ? NULL : realloc(l->ids, cap * sizeof *ids);
        if (!ids)
            return err_set(e, ERR_MEMORY,
                           "no memory for a list of %zu tokens; shorten the text or free memory",
                           cap);
        l->ids = ids;
        l->cap = cap;
    }
    l->ids[l->count++] = id;
    return 0;
}

void token_list_fini(struct token_list *l) {
    free(l->ids);
    *l = (struct token_list){0};
}
