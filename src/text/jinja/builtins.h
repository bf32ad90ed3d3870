// SPDX-License-Identifier: Apache-2.0
// What can be called: macros with the scope they were made in, methods of values, and the tables of
// functions, filters and tests, one row each; and how arguments reach them.
#ifndef COPPICE_TEXT_JINJA_BUILTINS_H
#define COPPICE_TEXT_JINJA_BUILTINS_H

#include "text/jinja/value.h"

struct jinja_macro {
    const char *name;
    const struct jinja_node *node;
    struct jinja_scope *scope;
};

enum { JINJA_MAX_BOUND = 4 };
// A call of something from a table: a[] are its parameters in order, JINJA_ABSENT where not given.
struct jinja_call {
    const char *name;
    struct jinja_value self; // what a method belongs to, a filter is applied to, a test is about
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

// Each table ends in a row without a name.
extern const struct jinja_builtin jinja_filters[];
extern const struct jinja_builtin jinja_tests[];
extern const struct jinja_builtin jinja_functions[];
extern const struct jinja_builtin jinja_methods_string[];
extern const struct jinja_builtin jinja_methods_list[];
extern const struct jinja_builtin jinja_methods_dict[];

// The row of a name; NULL when there is none.
const struct jinja_builtin *jinja_find_row(const struct jinja_builtin *table,
                                           const struct jinja_string *name);
// Binds args to the row's parameters and calls it. ERR_USAGE for too many, unknown or missing ones.
int jinja_invoke(struct jinja_context *c, const struct jinja_builtin *b, struct jinja_value self,
                 const struct jinja_args *args, struct jinja_value *out);

#endif
