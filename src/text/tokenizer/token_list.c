// SPDX-License-Identifier: Apache-2.0
// Grows by doubling; see token_list.h.
#include "text/tokenizer/token_list.h"

#include <stdlib.h>

#include "base/vec.h"

int token_list_push(struct token_list *l, int32_t id, struct err *e) {
    if (l->max && l->count >= l->max)
        return err_set(e, ERR_LIMIT, "the text has more than %zu tokens; shorten it", l->max);
    int rc = vec_reserve(&l->ids, &l->cap, (int64_t)l->count + 1, sizeof *l->ids, e);
    if (!rc)
        l->ids[l->count++] = id;
    return rc;
}

void token_list_bound(struct token_list *l, int64_t ctx) {
    enum { NEAR = 1 << 16 };
    l->max = 2 * (size_t)ctx + NEAR;
}

void token_list_fini(struct token_list *l) {
    free(l->ids);
    *l = (struct token_list){0};
}
