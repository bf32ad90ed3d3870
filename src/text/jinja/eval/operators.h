// SPDX-License-Identifier: Apache-2.0
// Binary operators over values of any kind, and Python's % formatting of text.
#ifndef COPPICE_TEXT_JINJA_EVAL_OPERATORS_H
#define COPPICE_TEXT_JINJA_EVAL_OPERATORS_H

#include "text/jinja/value/value.h"

// op as in jinja_calculate. ERR_USAGE for kinds that the operator does not take.
int jinja_operate(struct jinja_context *c, char op, struct jinja_value a, struct jinja_value b,
                  struct jinja_value *out);

// text % values, where values is a tuple, a dictionary or one value.
int jinja_percent(struct jinja_context *c, const struct jinja_string *text,
                  struct jinja_value values, struct jinja_value *out);
// text.format(args).
int jinja_brace(struct jinja_context *c, const struct jinja_string *text,
                const struct jinja_args *args, struct jinja_value *out);

#endif
