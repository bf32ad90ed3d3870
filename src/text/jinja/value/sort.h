// SPDX-License-Identifier: Apache-2.0
// Sorting of lists, stable, by keys that filters choose.
#ifndef COPPICE_TEXT_JINJA_VALUE_SORT_H
#define COPPICE_TEXT_JINJA_VALUE_SORT_H

#include "text/jinja/value/value.h"

struct jinja_sort {
    struct jinja_value path;      // to the key inside of an item; absent or none: the item itself
    struct jinja_value otherwise; // instead of an undefined key
    bool paths;                   // path is several of them with commas between
    bool case_sensitive, reverse;
};

// The key of an item; strings in lower case unless case matters.
int jinja_sort_key(struct jinja_context *c, const struct jinja_sort *how, struct jinja_value item,
                   struct jinja_value *key);
// Sorts in place. ERR_USAGE when keys have no order.
int jinja_sort(struct jinja_context *c, struct jinja_list *l, const struct jinja_sort *how);

#endif
