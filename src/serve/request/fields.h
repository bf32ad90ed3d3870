// SPDX-License-Identifier: Apache-2.0
// The fields that requests may have: one row each, from which bodies are read (params.h) and the
// OpenAPI document is written (serve/api/openapi.h). Rows are read in their order, so of several
// spellings of one thing the last counts. What becomes of fields without a row is names.h's to say.
#ifndef COPPICE_SERVE_REQUEST_FIELDS_H
#define COPPICE_SERVE_REQUEST_FIELDS_H

#include <stddef.h>

#include "serve/request/params.h"

enum field_kind {
    FIELD_BOOL,   // bool
    FIELD_INT,    // int64_t, within lo..hi
    FIELD_NUM,    // double, within lo..hi
    FIELD_STRING, // read() only; at most hi characters where that is not 0
    FIELD_ARRAY,  // const struct json *
    FIELD_OBJECT, // const struct json *
    FIELD_ANY,    // read() only; `schema` says what it may be
};

struct field;
// Reads one value, which is not null and of the row's kind. False with x filled to refuse it.
typedef bool field_read_fn(struct params *p, const struct field *f, const struct json *v,
                           const struct params_limits *l, struct api_error *x);

struct field {
    const char *name;
    unsigned endpoints; // bits of enum endpoint
    enum field_kind kind;
    double lo, hi;
    size_t offset;       // in struct params, for kinds that have a place and no read()
    field_read_fn *read; // NULL: stored at offset; a number is then checked against lo..hi
    const char *schema;  // for the document, ' in place of "; NULL: as kind, lo and hi say
    const char *help;    // one sentence
};

extern const struct field fields[];
extern const size_t fields_count;

// Fields of the object `coppice` of generating requests.
extern const struct field fields_extra[];
extern const size_t fields_extra_count;

// Reads the rows of a table for this endpoint from an object.
bool fields_read(struct params *p, const struct field *rows, size_t n, const struct json *object,
                 enum endpoint endpoint, const struct params_limits *l, struct api_error *x);

// "a string", "an array", ... of a value, for sentences.
const char *fields_kind_name(const struct json *v);

#endif
