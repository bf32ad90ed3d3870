// SPDX-License-Identifier: Apache-2.0
// The fields that requests may have: one row each, from which bodies are read (params.h) and the
// OpenAPI document is written (serve/api/openapi.h). Rows are read in their order, so of several
// spellings of one thing the last counts. What becomes of fields without a row is body.c's to say.
#ifndef COPPICE_SERVE_REQUEST_FIELDS_H
#define COPPICE_SERVE_REQUEST_FIELDS_H

#include <stddef.h>

#include "serve/request/params.h"

extern const struct field fields[];
extern const size_t fields_count;

// Fields of the object `coppice` of generating requests.
extern const struct field fields_extra[];
extern const size_t fields_extra_count;

#endif
