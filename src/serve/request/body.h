// SPDX-License-Identifier: Apache-2.0
// From the bytes of a request's body to its parameters: parsed by the rules of the interface, each
// field read by its row (fields.h), every other member refused or named as ignored (body.c).
#ifndef COPPICE_SERVE_REQUEST_BODY_H
#define COPPICE_SERVE_REQUEST_BODY_H

#include "serve/http/exchange.h"
#include "serve/request/params.h"

// The body of a request as JSON, by the rules of the interface: depth 256, keys once, bounded
// memory. False with x filled.
bool body_parse(const char *text, size_t n, struct json **out, struct api_error *x);
// The same of a body that is freed then. hold counts from here on what is made of the document
// until its prompt is there.
bool body_take(struct str *text, struct http_memory *memory, struct json **out,
               struct api_error *x);

// Fills p from the object `body`, which must outlive p's borrowed values. False with x filled where
// the request is refused. params_fini in any case.
bool body_read(struct params *p, const struct json *body, enum endpoint endpoint,
               const struct params_limits *l, struct api_error *x);

#endif
