// SPDX-License-Identifier: Apache-2.0
// What evaluates a template: variables in their scopes, expressions, calls and statements.
#ifndef COPPICE_TEXT_JINJA_EVAL_H
#define COPPICE_TEXT_JINJA_EVAL_H

#include "text/jinja/ast.h"

// A binary operator over values of any kind; op as in jinja_calculate. ERR_USAGE for kinds that it
// does not take.
int jinja_operate(struct jinja_context *c, char op, struct jinja_value a, struct jinja_value b,
                  struct jinja_value *out);

// Runs a list of statements in the current scope; what it writes goes to the end of the output.
int jinja_run(struct jinja_context *c, const struct jinja_node *body);

#endif
