// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 messages as bytes: heads of requests and responses, and chunked bodies, after RFC 9112
// and in its strict reading, since what two readers of a request understand differently is how
// requests are smuggled. The only reader of HTTP: the server, its client of other servers and the
// load generator use it. Pure functions over bytes; sockets are elsewhere.
#ifndef COPPICE_SERVE_HTTP_MESSAGE_H
#define COPPICE_SERVE_HTTP_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

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
    int status;         // of a response; 0: a request
    const char *method; // of a request, like all up to host; HEAD is GET with `bodiless`
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

// Reads the head of a request, n bytes that http_head_end has found. ERR_FORMAT with the HTTP
// status in *status (400, 431, 501, 505, 417); ERR_MEMORY with 500. What was understood until then
// is in *head, which is valid in any case.
int http_head_parse(struct http_head *head, const char *bytes, size_t n, int *status,
                    struct err *e);
// The same for a response: ERR_FORMAT, ERR_MEMORY.
int http_head_parse_response(struct http_head *head, const char *bytes, size_t n, struct err *e);
void http_head_fini(struct http_head *head);

// Whether a comma-separated list, as of a field's value, has the word in any case.
bool http_has_word(const char *list, const char *word);

// The first field of that name, in lower case; NULL when absent.
const char *http_head_field(const struct http_head *head, const char *name);

// A chunked body (RFC 9112, 7.1), taken apart as its bytes arrive.
// Zeroed but for limit and body is the beginning of a body.
struct http_chunked {
    struct str *body; // what the chunks carry is appended here
    size_t limit;     // of its length
    int state;
    uint64_t left; // bytes of the chunk still to come, or its size so far
    size_t line;   // bytes of the size line or of all trailer lines so far
    bool done;
};

// Takes bytes off in[0..n), appends what they carry to the body and sets *used; it stops after the
// end of the body (done). ERR_FORMAT with *status 400 (grammar, line too long) or 413 (body beyond
// the limit), ERR_MEMORY with 500.
int http_chunked_take(struct http_chunked *c, const char *in, size_t n, size_t *used, int *status,
                      struct err *e);

#endif
