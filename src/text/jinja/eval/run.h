// SPDX-License-Identifier: Apache-2.0
// Statements.
#ifndef COPPICE_TEXT_JINJA_EVAL_RUN_H
#define COPPICE_TEXT_JINJA_EVAL_RUN_H

#include "text/jinja/syntax/ast.h"

// Runs a list of statements in the current scope; what it writes goes to the end of the output.
int jinja_run(struct jinja_context *c, const struct jinja_node *body);
// Runs a NODE_FOR over items, as the call of a recursive loop does.
int jinja_run_loop(struct jinja_context *c, const struct jinja_node *node, struct jinja_value items,
                   int depth);

#endif
