// SPDX-License-Identifier: Apache-2.0
// JSON: a strict reader (RFC 8259) over json-c that says where a text is wrong, and an own writer.
// Values are borrowed from the document; numbers keep their spelling. A document is for one thread
// at a time. json-c may crash where memory runs out, so untrusted text is parsed under limits of
// depth and number of values (struct json_rules). A build of the engine alone can write JSON but
// not read it (absent.c).
#ifndef COPPICE_BASE_JSON_JSON_H
#define COPPICE_BASE_JSON_JSON_H

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

// Zeroed: what json_parse does.
struct json_rules {
    int depth;         // of arrays and objects in each other; 0: 128
    int64_t values;    // in all, which take 250 bytes or less each; 0: any number
    int64_t objects;   // among them, which take 800 bytes more each; 0: any number
    bool unique_keys;  // a key that comes twice in an object is refused by its name
    bool big_integers; // integers beyond 64 bits are taken: JSON_INT that json_int cannot return
};

// Parses exactly one value of UTF-8 JSON. Refused are NaN, Infinity, numbers that no double can
// hold, integers beyond 64 bits and NULs in keys; of equal keys the last one counts, in the first
// one's place. Half a surrogate pair becomes U+FFFD. The value null is NULL. ERR_FORMAT with byte
// and line, ERR_LIMIT, ERR_MEMORY; ERR_UNSUPPORTED in a build without json-c.
int json_parse_with(struct json **out, const char *text, size_t len, const struct json_rules *rules,
                    struct err *e);
int json_parse(struct json **out, const char *text, size_t len, struct err *e);
void json_free(struct json *root);
// Bytes of memory that a document takes, about.
size_t json_memory(const struct json *root);

enum json_kind json_kind_of(const struct json *v); // NULL pointer counts as JSON_NULL
// "a string", "an array", ...: a value in a sentence that says what it must be.
const char *json_kind_name(const struct json *v);
const struct json *json_get(const struct json *object, const char *key); // NULL: absent or null
bool json_has(const struct json *object, const char *key);               // null counts
size_t json_len(const struct json *v);                                   // array or object members
const struct json *json_at(const struct json *array, size_t i);
// Calls fn for each member in file order until it returns non-zero; returns that value. v is NULL
// for null.
typedef int json_member_fn(void *arg, const char *key, size_t key_len, const struct json *v);
int json_each(const struct json *object, json_member_fn *fn, void *arg);

// Typed reads with a default for absent or other-typed values.
const char *json_str(const struct json *v, size_t *len); // NULL unless a string
int64_t json_int(const struct json *v, int64_t otherwise);
double json_num(const struct json *v, double otherwise);
bool json_bool(const struct json *v, bool otherwise);
// A number as it was spelt ("1.0", "1e-7", "-0"), NUL-terminated; NULL unless a number, or when
// memory is short.
const char *json_number_text(const struct json *v);

// A document that a writer makes in place of a text. Zeroed is valid.
struct json_builder {
    struct json *open[16]; // [n] arrays and objects in each other that the writer has begun
    int n;
    const char *key; // of the next value
    struct json *root;
    bool failed; // memory was short, or it is too deep
};
// What the writer builds with: an array or object, which is open then, a string of valid UTF-8, and
// for all other kinds the value that a text of JSON is; a value that was read is shared.
void json_build(struct json_builder *b, enum json_kind kind, const char *s, size_t n);
void json_build_shared(struct json_builder *b, const struct json *v);
// The values that were built: the same that the text would be read as. Those that jw_value took are
// shared with their document, so that both stay with one thread. ERR_MEMORY: "no memory for " what.
int json_built(struct json_builder *b, struct json **out, const char *what, struct err *e);

// Writer: comma state is kept, so calls read like the output. Zeroed is valid, and writes a text.
struct json_writer {
    struct str out;
    bool comma;
    struct json_builder *builder;
};
void jw_begin(struct json_writer *w, char open); // '{' or '['
void jw_end(struct json_writer *w, char close);  // '}' or ']'
void jw_key(struct json_writer *w, const char *key);
// Invalid UTF-8 becomes U+FFFD; s may be NULL where n is 0.
void jw_str(struct json_writer *w, const char *s, size_t n);
void jw_cstr(struct json_writer *w, const char *s);
void jw_int(struct json_writer *w, int64_t v);
void jw_num(struct json_writer *w, double v); // shortest that round-trips; non-finite becomes null
void jw_bool(struct json_writer *w, bool v);
void jw_null(struct json_writer *w);

// A key with its value.
void jw_key_str(struct json_writer *w, const char *key, const char *s); // NULL: null
void jw_key_int(struct json_writer *w, const char *key, int64_t v);
void jw_key_num(struct json_writer *w, const char *key, double v);
void jw_key_bool(struct json_writer *w, const char *key, bool v);
void jw_key_null(struct json_writer *w, const char *key);
void jw_key_text(struct json_writer *w, const char *key, const char *s, size_t n); // as jw_str
void jw_key_value(struct json_writer *w, const char *key, const struct json *v);   // as jw_value
void jw_key_begin(struct json_writer *w, const char *key, char open);
// The same as a json_member_fn: json_each(object, jw_member, w) copies the members.
int jw_member(void *w, const char *key, size_t len, const struct json *v);
// A value that was read: members in their order, numbers as they were spelt, strings with the
// escapes of this writer.
void jw_value(struct json_writer *w, const struct json *v);

#endif
