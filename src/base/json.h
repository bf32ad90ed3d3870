// SPDX-License-Identifier: Apache-2.0
// JSON: a reader over json-c (the only file that includes it is json.c) and an own writer.
// Values are borrowed from the document; numbers keep full 64-bit integer precision. A build of the
// engine alone can write JSON but not read it (json_absent.c).
#ifndef COPPICE_BASE_JSON_H
#define COPPICE_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct json; // any value; owned by its root

enum json_kind {
    JSON_NULL,
    JSON_BOOL,
    JSON_INT,
    JSON_DOUBLE,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
};

// Parses exactly one value of strict UTF-8 JSON (depth <= 128; refused are NaN, Infinity,
// integers beyond 64 bits and NULs in keys; of equal keys the last counts). ERR_UNSUPPORTED in a
// build without json-c.
int json_parse(struct json **out, const char *text, size_t len, struct err *e);
void json_free(struct json *root);

enum json_kind json_kind_of(const struct json *v); // NULL pointer counts as JSON_NULL
const struct json *json_get(const struct json *object, const char *key); // NULL when absent
size_t json_len(const struct json *v);                                   // array or object members
const struct json *json_at(const struct json *array, size_t i);
// Calls fn for each member in file order until it returns non-zero; returns that value.
typedef int json_member_fn(void *arg, const char *key, size_t key_len, const struct json *v);
int json_each(const struct json *object, json_member_fn *fn, void *arg);

// Typed reads with a default for absent or other-typed values.
const char *json_str(const struct json *v, size_t *len); // NULL unless a string
int64_t json_int(const struct json *v, int64_t otherwise);
double json_num(const struct json *v, double otherwise);
bool json_bool(const struct json *v, bool otherwise);

// Writer: comma state is kept, so calls read like the output. Zeroed is valid.
struct json_writer {
    struct str out;
    bool comma;
};
void jw_begin(struct json_writer *w, char open); // '{' or '['
void jw_end(struct json_writer *w, char close);  // '}' or ']'
void jw_key(struct json_writer *w, const char *key);
void jw_str(struct json_writer *w, const char *s, size_t n); // invalid UTF-8 becomes U+FFFD
void jw_cstr(struct json_writer *w, const char *s);
void jw_int(struct json_writer *w, int64_t v);
void jw_num(struct json_writer *w, double v); // shortest that round-trips; non-finite becomes null
void jw_bool(struct json_writer *w, bool v);
void jw_null(struct json_writer *w);

#endif
