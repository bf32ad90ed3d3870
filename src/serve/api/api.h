// SPDX-License-Identifier: Apache-2.0
// Which handler answers which path: one table, which the OpenAPI document names too.
#ifndef COPPICE_SERVE_API_API_H
#define COPPICE_SERVE_API_API_H

#include "serve/api/openapi.h"

extern const struct route api_routes[];
extern const size_t api_routes_count;

// Answers a request, now or later.
void api_handle(struct service *s, struct exchange *x);

// Appends the methods of a path, see http_methods_fn.
void api_methods(const char *path, struct str *methods);

// The body of a refusal by the HTTP server itself, in the API's form; returns its type.
const char *api_refusal(const struct http_refusal *r, struct str *body);

#endif
