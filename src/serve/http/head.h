// SPDX-License-Identifier: Apache-2.0
// The head of a request: request line and headers, after RFC 9112 and in its strict reading, since
// what two readers of a request understand differently is how requests are smuggled. Pure functions
// over bytes; sockets are elsewhere.
#ifndef COPPICE_SERVE_HTTP_HEAD_H
#define COPPICE_SERVE_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { HTTP_FIELDS_MAX = 128 };

struct http_field {
    const char *name; // in lower case
    const char *value;
};

// Zeroed is valid and empty.
struct http_head {
    char *text; // what the others point into
    struct http_field *fields;
    size_t n_fields;
    const char *method; // HEAD is GET with `bodiless`
    const char *path;   // decoded
    const char *query;
    const char *host; // from the target or the Host header; NULL when absent (HTTP/1.0)
    int minor;        // of version 1
    int64_t length;   // Content-Length; -1: none
    bool bodiless, chunked, keep_alive, closes, expects_continue;
};

// Length of the head at the start of bytes with the empty line that ends it; 0: not complete yet.
// seen: how many bytes were there at the last call, which need not be looked at again.
size_t http_head_end(const char *bytes, size_t n, size_t seen);

// Reads a head of n bytes that http_head_end has found. ERR_FORMAT with the HTTP status in *status
// (400, 431, 501, 505, 417); ERR_MEMORY with 500. What was understood until then is in *head, which
// is valid in any case.
int http_head_parse(struct http_head *head, const char *bytes, size_t n, int *status,
                    struct err *e);
void http_head_fini(struct http_head *head);

// The first field of that name, in lower case; NULL when absent.
const char *http_head_field(const struct http_head *head, const char *name);

#endif
