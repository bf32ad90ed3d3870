// SPDX-License-Identifier: Apache-2.0
// Values as text, put at the end of the output: str() and json.dumps() of Python.
#ifndef COPPICE_TEXT_JINJA_REPR_H
#define COPPICE_TEXT_JINJA_REPR_H

#include "text/jinja/value.h"

int jinja_put_str(struct jinja_context *c, struct jinja_value v);
// The value itself when it is a string, else str() of it.
int jinja_to_string(struct jinja_context *c, struct jinja_value v, struct jinja_value *out);
// With & < > ' " as HTML entities.
int jinja_put_escaped(struct jinja_context *c, const struct jinja_string *s);

struct jinja_json { // options of json.dumps
    bool ascii;
    const struct jinja_string *indent;     // NULL: one line
    const struct jinja_string *item, *key; // separators; NULL: the usual ones
    bool sort;
};
int jinja_put_json(struct jinja_context *c, struct jinja_value v, const struct jinja_json *how);

#endif
