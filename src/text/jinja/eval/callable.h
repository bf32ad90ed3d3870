// SPDX-License-Identifier: Apache-2.0
// What can be called: macros with the scope they were made in, methods of values, functions,
// filters and tests from tables; and what carries state between calls. Also how arguments reach
// them.
#ifndef COPPICE_TEXT_JINJA_EVAL_CALLABLE_H
#define COPPICE_TEXT_JINJA_EVAL_CALLABLE_H

#include "text/jinja/value/value.h"

struct jinja_scope;
struct jinja_node;

struct jinja_macro {
    const char *name;
    const struct jinja_node *node;
    struct jinja_scope *scope;
};

enum { JINJA_MAX_BOUND = 7 };
// A call of something from a table: a[] are its parameters in order, JINJA_ABSENT where not given.
struct jinja_call {
    const char *name;
    struct jinja_value self; // what a method belongs to, a filter is applied to, a test asks about
    struct jinja_value a[JINJA_MAX_BOUND];
    const struct jinja_args *args; // as they came
};
typedef int jinja_builtin_fn(struct jinja_context *c, const struct jinja_call *call,
                             struct jinja_value *out);

// A row of a table. parameters: names, separated by spaces, the first `required` of which must be
// given; NULL: the function reads call->args.
struct jinja_builtin {
    const char *name;
    jinja_builtin_fn *fn;
    const char *parameters;
    int required;
};

struct jinja_method {
    struct jinja_value self;
    const struct jinja_builtin *what;
};

struct jinja_cycler {
    struct jinja_value *items;
    size_t n, at;
};

struct jinja_joiner {
    struct jinja_value separator;
    bool used;
};

// Binds args to the row's parameters and calls it. ERR_USAGE for too many, unknown or missing ones.
int jinja_invoke(struct jinja_context *c, const struct jinja_builtin *b, struct jinja_value self,
                 const struct jinja_args *args, struct jinja_value *out);
// The argument of that name; JINJA_ABSENT when not given.
struct jinja_value jinja_named(const struct jinja_args *args, const char *name);

#endif
