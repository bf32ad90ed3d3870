// SPDX-License-Identifier: Apache-2.0
// Nothing that a client sends is dropped silently: every member of a request's body, in all depths,
// is one that is read (fields.h, and the readers of conversations), one that is refused, or one
// that does nothing here and is told of in a header of the answer. What may stand where is a table
// of names for each kind of object, as the published types of the interfaces have them, and one of
// the fields that clients of other servers send.
#ifndef COPPICE_SERVE_REQUEST_NAMES_H
#define COPPICE_SERVE_REQUEST_NAMES_H

#include "serve/request/params.h"

// The header of an answer that names the members that did nothing, with commas between.
#define FIELD_NAMES_HEADER "x-ignored-fields"
enum { FIELD_NAMES_MOST = 1024 }; // bytes of it

// Looks at all names of a body that has been read; those that do nothing are added to p->ignored.
// False with x filled where one is refused.
bool field_names_check(struct params *p, const struct json *body, enum endpoint endpoint,
                       struct api_error *x);

// Adds one, "input[3].status", in the letters that a header may hold.
void field_names_ignore(struct params *p, const char *place);

#endif
