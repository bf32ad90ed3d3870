// SPDX-License-Identifier: Apache-2.0
// Lists and dictionaries, and how Python compares, hashes, orders and sorts values.
#ifndef COPPICE_TEXT_JINJA_CONTAINER_H
#define COPPICE_TEXT_JINJA_CONTAINER_H

#include "text/jinja/value.h"

// push and dict_set fail for lack of memory only, or for a key that has no hash.
struct jinja_value jinja_tuple(struct jinja_context *c, size_t n); // n absent items to fill
int jinja_push(struct jinja_context *c, struct jinja_list *l, struct jinja_value v);
struct jinja_entry *jinja_dict_find(const struct jinja_dict *m, struct jinja_value key,
                                    uint64_t hash);
struct jinja_entry *jinja_dict_text(const struct jinja_dict *m, const char *key, size_t n);
int jinja_dict_set(struct jinja_context *c, struct jinja_dict *m, struct jinja_value key,
                   struct jinja_value value);

int jinja_equal(struct jinja_context *c, struct jinja_value a, struct jinja_value b, bool *same);
// ERR_USAGE for what has no hash.
int jinja_hash(struct jinja_context *c, struct jinja_value v, uint64_t *hash);
// a < b is negative, equal 0; ERR_USAGE for kinds that have no order. *order is 2 where a NaN keeps
// every comparison false.
int jinja_order(struct jinja_context *c, struct jinja_value a, struct jinja_value b, const char *op,
                int *order);

struct jinja_keyed {
    struct jinja_value key, item;
};
// Sorts by the keys and keeps equal ones as they were, reversed or not. work: as large as a.
// ERR_USAGE when keys have no order.
int jinja_sort(struct jinja_context *c, struct jinja_keyed *a, struct jinja_keyed *work, size_t n,
               bool reverse);

#endif
