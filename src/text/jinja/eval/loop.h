// SPDX-License-Identifier: Apache-2.0
// The variable `loop` of a for statement, which also does its iteration: items are taken one ahead
// at most, unless the template asks how many there are.
#ifndef COPPICE_TEXT_JINJA_EVAL_LOOP_H
#define COPPICE_TEXT_JINJA_EVAL_LOOP_H

#include "text/jinja/eval/iterate.h"

struct jinja_loop {
    struct jinja_iter it;
    const struct jinja_node *node;
    // The condition of "for ... if": whether an item takes part; NULL: all do.
    int (*test)(struct jinja_context *c, struct jinja_loop *loop, struct jinja_value item,
                bool *takes_part);
    struct jinja_scope *outside;           // where the condition is evaluated
    struct jinja_value before, now, after; // JINJA_ABSENT: not there or not read yet
    struct jinja_value changed;            // arguments of the last changed()
    bool ended;
    int64_t index0, length; // length -1: not known
    int depth;              // of a recursive loop, from 0
};

// Goes on to the next item: 1, 0 at the end, negative on errors.
int jinja_loop_next(struct jinja_context *c, struct jinja_loop *loop, struct jinja_value *out);
// An attribute; JINJA_ABSENT when there is none of that name.
int jinja_loop_attribute(struct jinja_context *c, struct jinja_value loop,
                         const struct jinja_string *name, struct jinja_value *out);

#endif
