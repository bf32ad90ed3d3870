// SPDX-License-Identifier: Apache-2.0
// Backslash escapes of string literals.
#ifndef COPPICE_TEXT_JINJA_SYNTAX_ESCAPES_H
#define COPPICE_TEXT_JINJA_SYNTAX_ESCAPES_H

#include "text/jinja/value/value.h"

// The string that n bytes between quotes stand for. ERR_FORMAT, without a sentence, for an escape
// that breaks its form.
int jinja_unescape(struct jinja_context *c, const char *s, size_t n, struct jinja_value *out);

#endif
