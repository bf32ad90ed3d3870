// SPDX-License-Identifier: Apache-2.0
// What evaluates a template: variables in their scopes, expressions, calls and statements.
#ifndef COPPICE_TEXT_JINJA_EVAL_H
#define COPPICE_TEXT_JINJA_EVAL_H

#include "text/jinja/ast.h"

struct jinja_slot {
    int id;
    struct jinja_value value;
};

// The variables of a loop's pass, a macro's call or a block. A macro keeps the scope it was made
// in.
struct jinja_scope {
    struct jinja_scope *parent; // NULL: the variables of the whole template
    struct jinja_slot *slots;
    int n, cap;
};

// A new scope inside of `parent`, which becomes the current one only by the caller's doing.
struct jinja_scope *jinja_scope_new(struct jinja_context *c, struct jinja_scope *parent);
// Assigns in the current scope.
int jinja_assign(struct jinja_context *c, int id, struct jinja_value v);
// Assigns to a name, a tuple of targets or the attribute of a namespace.
int jinja_assign_target(struct jinja_context *c, const struct jinja_node *target,
                        struct jinja_value v);

int jinja_eval(struct jinja_context *c, const struct jinja_node *node, struct jinja_value *out);
// The value of a NODE_FILTER chain whose innermost filter is applied to `input`.
int jinja_eval_filters(struct jinja_context *c, const struct jinja_node *node,
                       struct jinja_value input, struct jinja_value *out);
// A binary operator over values of any kind; op as in jinja_calculate. ERR_USAGE for kinds that it
// does not take.
int jinja_operate(struct jinja_context *c, char op, struct jinja_value a, struct jinja_value b,
                  struct jinja_value *out);

// Runs a list of statements in the current scope; what it writes goes to the end of the output.
int jinja_run(struct jinja_context *c, const struct jinja_node *body);

#endif
