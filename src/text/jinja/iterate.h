// SPDX-License-Identifier: Apache-2.0
// Going over the items of a value, one at a time, as Python's iterators do, and the variable `loop`
// of a for statement.
#ifndef COPPICE_TEXT_JINJA_ITERATE_H
#define COPPICE_TEXT_JINJA_ITERATE_H

#include "text/jinja/container.h"

struct jinja_iter {
    struct jinja_value source;
    size_t at; // position in source
};

// ERR_USAGE when v has no items to go over.
int jinja_iterate(struct jinja_context *c, struct jinja_value v, struct jinja_iter *it);
// The next item: 1, 0 at the end, negative on errors.
int jinja_next(struct jinja_context *c, struct jinja_iter *it, struct jinja_value *out);
bool jinja_is_iterable(struct jinja_value v);
// An iterator over a list: what filters give that are generators in Python.
int jinja_iterator(struct jinja_context *c, struct jinja_value list, struct jinja_value *out);

// All items as a new list.
int jinja_collect(struct jinja_context *c, struct jinja_value v, struct jinja_value *list);
// len(): ERR_USAGE for what has none.
int jinja_length(struct jinja_context *c, struct jinja_value v, int64_t *n);
// `item in box`.
int jinja_contains(struct jinja_context *c, struct jinja_value box, struct jinja_value item,
                   bool *found);

// The iteration of a for statement. Items are taken one ahead at most, unless the template reads
// how many there are.
struct jinja_loop {
    struct jinja_iter it;
    const struct jinja_node *node;
    // The condition of "for ... if": whether an item takes part; NULL: all do.
    int (*test)(struct jinja_context *c, struct jinja_loop *loop, struct jinja_value item,
                bool *takes_part);
    struct jinja_scope *outside;           // where the condition is evaluated
    struct jinja_value before, now, after; // JINJA_ABSENT: not there or not read yet
    bool ended;
    int64_t index0, length; // length -1: not known
};

// Goes on to the next item: 1, 0 at the end, negative on errors.
int jinja_loop_next(struct jinja_context *c, struct jinja_loop *loop, struct jinja_value *out);
// An attribute; JINJA_ABSENT when there is none of that name.
int jinja_loop_attribute(struct jinja_context *c, struct jinja_loop *loop,
                         const struct jinja_string *name, struct jinja_value *out);

#endif
