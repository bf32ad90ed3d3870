// SPDX-License-Identifier: Apache-2.0
// The items of a reply; see items.h.
#include "serve/reply/items.h"

#include <stdlib.h>

void answer_items_fini(struct answer_items *l) {
    for (int i = 0; i < l->n; i++) {
        str_fini(&l->at[i].name);
        str_fini(&l->at[i].text);
    }
    free(l->at);
    *l = (struct answer_items){0};
}

struct answer_item *answer_items_open(struct answer_items *l) {
    return l->n > 0 && l->at[l->n - 1].open ? &l->at[l->n - 1] : NULL;
}

struct answer_item *answer_items_begin(struct answer_items *l, enum answer_item_kind kind) {
    if (l->n == l->cap) {
        int cap = l->cap ? 2 * l->cap : 4;
        struct answer_item *at = realloc(l->at, (size_t)cap * sizeof *at);
        if (!at) {
            l->failed = true;
            return NULL;
        }
        l->at = at;
        l->cap = cap;
    }
    struct answer_item *it = &l->at[l->n];
    *it = (struct answer_item){.kind = kind, .index = l->n, .open = true};
    if (kind == ITEM_CALL)
        it->call = l->calls++;
    l->n++;
    return it;
}
