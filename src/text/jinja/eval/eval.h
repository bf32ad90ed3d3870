// SPDX-License-Identifier: Apache-2.0
// Values of expressions, variables and their scopes, calls.
#ifndef COPPICE_TEXT_JINJA_EVAL_EVAL_H
#define COPPICE_TEXT_JINJA_EVAL_EVAL_H

#include "text/jinja/syntax/ast.h"

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
int jinja_scope_set(struct jinja_context *c, struct jinja_scope *s, int id, struct jinja_value v);
// The variable's value; JINJA_ABSENT: it has none. Slots that are looked at count as steps.
int jinja_lookup(struct jinja_context *c, int id, struct jinja_value *out);
// Assigns in the current scope.
int jinja_assign(struct jinja_context *c, int id, struct jinja_value v);
// Assigns to a name, a tuple of targets or the attribute of a namespace.
int jinja_assign_target(struct jinja_context *c, const struct jinja_node *target,
                        struct jinja_value v);

int jinja_eval(struct jinja_context *c, const struct jinja_node *node, struct jinja_value *out);
// The value of a NODE_FILTER chain whose innermost filter is applied to `input`.
int jinja_eval_filters(struct jinja_context *c, const struct jinja_node *node,
                       struct jinja_value input, struct jinja_value *out);
// Calls a NODE_CALL with one more argument `caller`, unless that is absent.
int jinja_eval_call(struct jinja_context *c, const struct jinja_node *node,
                    struct jinja_value caller, struct jinja_value *out);
struct jinja_value jinja_make_macro(struct jinja_context *c, const struct jinja_node *node);

#endif
