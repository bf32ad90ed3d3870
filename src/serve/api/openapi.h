// SPDX-License-Identifier: Apache-2.0
// The OpenAPI 3.1 document of the server, from the table of paths and the table of fields, so that
// it cannot say anything else than they do. docs/openapi.json is a copy; a test compares them.
#ifndef COPPICE_SERVE_API_OPENAPI_H
#define COPPICE_SERVE_API_OPENAPI_H

#include "serve/api/route.h"

// Appends the document: JSON with a line for each field and path.
void openapi_write(struct str *out, const struct route *routes, size_t n);

#endif
