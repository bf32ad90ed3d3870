// SPDX-License-Identifier: Apache-2.0
// Attributes, items and slices of values, in the order in which jinja2 looks for them, and without
// what its sandbox forbids.
#ifndef COPPICE_TEXT_JINJA_ACCESS_H
#define COPPICE_TEXT_JINJA_ACCESS_H

#include "text/jinja/value.h"

// v.name: the attribute, else the item, else an undefined value. ERR_USAGE when v is undefined.
int jinja_get_attribute(struct jinja_context *c, struct jinja_value v, struct jinja_value name,
                        struct jinja_value *out);
// v[key]: the item, else the attribute, else an undefined value.
int jinja_get_item(struct jinja_context *c, struct jinja_value v, struct jinja_value key,
                   struct jinja_value *out);
// v[part[0]:part[1]:part[2]]; JINJA_ABSENT and none stand for a missing part.
int jinja_get_slice(struct jinja_context *c, struct jinja_value v, const struct jinja_value part[3],
                    struct jinja_value *out);
// The item under a path such as "function.name" or "0.x"; an integer is one step. Steps that give
// an undefined value go on with `otherwise` unless that is absent or none.
int jinja_get_path(struct jinja_context *c, struct jinja_value v, struct jinja_value path,
                   struct jinja_value otherwise, struct jinja_value *out);

#endif
