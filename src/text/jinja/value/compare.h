// SPDX-License-Identifier: Apache-2.0
// How Python compares, hashes, orders and searches values, and what counts as true.
#ifndef COPPICE_TEXT_JINJA_VALUE_COMPARE_H
#define COPPICE_TEXT_JINJA_VALUE_COMPARE_H

#include "text/jinja/value/value.h"

// The number that a BOOL, INT, BIG or FLOAT is; 0 for other kinds. A BIG has no exact int64_t.
int64_t jinja_as_int(struct jinja_value v);
double jinja_as_double(struct jinja_value v);

int jinja_equal(struct jinja_context *c, struct jinja_value a, struct jinja_value b, bool *same);
// ERR_USAGE for what has no hash.
int jinja_hash(struct jinja_context *c, struct jinja_value v, uint64_t *hash);

// a < b is negative, equal 0; ERR_USAGE for kinds that have no order. *order is 2 where a NaN keeps
// every comparison false.
int jinja_order(struct jinja_context *c, struct jinja_value a, struct jinja_value b, const char *op,
                int *order);

// `item in box`.
int jinja_contains(struct jinja_context *c, struct jinja_value box, struct jinja_value item,
                   bool *found);

#endif
