// SPDX-License-Identifier: Apache-2.0
// Values as text, put at the end of the output: str(), repr() and json.dumps() of Python; and the
// sentences about undefined values.
#ifndef COPPICE_TEXT_JINJA_VALUE_TEXT_H
#define COPPICE_TEXT_JINJA_VALUE_TEXT_H

#include "text/jinja/value/value.h"

int jinja_put_str(struct jinja_context *c, struct jinja_value v);
int jinja_put_repr(struct jinja_context *c, struct jinja_value v);
// The value itself when it is a string, else str() of it.
int jinja_to_string(struct jinja_context *c, struct jinja_value v, struct jinja_value *out);
// Python's escape of a code point: \xe9, \u20ac, \U0001f600.
void jinja_escape_code(uint32_t code, char out[16]);

// With & < > ' " written as HTML wants them.
int jinja_put_escaped(struct jinja_context *c, const struct jinja_string *s);

struct jinja_json { // options of json.dumps
    bool ascii;
    const struct jinja_string *indent;     // NULL: one line
    const struct jinja_string *item, *key; // separators; NULL: the usual ones
    bool sort;
};
int jinja_put_json(struct jinja_context *c, struct jinja_value v, const struct jinja_json *how);

// ERR_USAGE: what is wrong with using this JINJA_UNDEFINED.
int jinja_fail_undefined(struct jinja_context *c, struct jinja_value v);

#endif
