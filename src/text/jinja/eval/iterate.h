// SPDX-License-Identifier: Apache-2.0
// Going over the items of a value, one at a time, as Python's iterators do: what a filter such as
// map or select gives is computed when it is asked for, and only once.
#ifndef COPPICE_TEXT_JINJA_EVAL_ITERATE_H
#define COPPICE_TEXT_JINJA_EVAL_ITERATE_H

#include "text/jinja/value/value.h"

struct jinja_iter;
// The next item: 1, 0 at the end, negative on errors.
typedef int jinja_next_fn(struct jinja_context *c, struct jinja_iter *it, struct jinja_value *out);

struct jinja_iter {
    jinja_next_fn *next; // of a generator; NULL: the items of source
    struct jinja_value source;
    size_t at;                // position in source
    struct jinja_iter *inner; // what a generator reads; set up at its first step
    void *state;              // of a generator
};

// ERR_USAGE when v has no items to go over.
int jinja_iterate(struct jinja_context *c, struct jinja_value v, struct jinja_iter *it);
int jinja_next(struct jinja_context *c, struct jinja_iter *it, struct jinja_value *out);
bool jinja_is_iterable(struct jinja_value v);

// A generator over source.
int jinja_generator(struct jinja_context *c, jinja_next_fn *next, struct jinja_value source,
                    void *state, struct jinja_value *out);
// For a generator's next: the next item of its source. An undefined or otherwise false source,
// which `lenient` generators take for empty, has none.
int jinja_pull(struct jinja_context *c, struct jinja_iter *it, bool lenient,
               struct jinja_value *out);

// All items as a new list.
int jinja_collect(struct jinja_context *c, struct jinja_value v, struct jinja_value *list);
// len(): ERR_USAGE for what has none.
int jinja_length(struct jinja_context *c, struct jinja_value v, int64_t *n);
bool jinja_has_length(struct jinja_value v);

#endif
