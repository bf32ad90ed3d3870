// SPDX-License-Identifier: Apache-2.0
// A small table by content, the least recently used entry leaving first.
#include "compress/flowkv.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

struct flowkv_key flowkv_key_of(const char *text, size_t n, uint64_t options) {
    return (struct flowkv_key){
        {hash_bytes(text, n, 1), hash_bytes(text, n, 2)},
        n,
        options,
    };
}

static bool same(const struct flowkv_key *a, const struct flowkv_key *b) {
    return a->hash[0] == b->hash[0] && a->hash[1] == b->hash[1] && a->n == b->n &&
           a->options == b->options;
}

const struct flowkv_entry *flowkv_find(struct flowkv *f, const struct flowkv_key *k) {
    for (int i = 0; i < f->n; i++)
        if (same(&f->entries[i].key, k)) {
            f->entries[i].used = ++f->clock;
            f->hits++;
            return &f->entries[i];
        }
    f->misses++;
    return NULL;
}

int flowkv_put(struct flowkv *f, const struct flowkv_entry *entry, struct err *e) {
    size_t bytes = (size_t)entry->n_spans * sizeof *entry->spans;
    struct flowkv_span *spans = malloc(bytes ? bytes : 1);
    if (!spans)
        return err_set(e, ERR_MEMORY, "no memory to remember %lld pieces of a message",
                       (long long)entry->n_spans);
    if (bytes)
        memcpy(spans, entry->spans, bytes);
    struct flowkv_entry *to = &f->entries[0];
    if (f->n < FLOWKV_ENTRIES)
        to = &f->entries[f->n++];
    else
        for (int i = 1; i < f->n; i++)
            if (f->entries[i].used < to->used)
                to = &f->entries[i];
    free(to->spans);
    *to = *entry;
    to->spans = spans;
    to->used = ++f->clock;
    return 0;
}

void flowkv_fini(struct flowkv *f) {
    for (int i = 0; i < f->n; i++)
        free(f->entries[i].spans);
    *f = (struct flowkv){0};
}
