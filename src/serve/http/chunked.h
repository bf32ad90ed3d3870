// SPDX-License-Identifier: Apache-2.0
// Takes a chunked request body apart (RFC 9112, 7.1) as its bytes arrive. Pure functions.
#ifndef COPPICE_SERVE_HTTP_CHUNKED_H
#define COPPICE_SERVE_HTTP_CHUNKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

// Zeroed but for limit and body is the beginning of a body.
struct http_chunked {
    struct str *body; // what the chunks carry is appended here
    size_t limit;     // of its length
    int state;
    uint64_t left; // bytes of the chunk still to come, or its size so far
    size_t line;   // bytes of the size line or of all trailer lines so far
    bool done;
};

// Takes bytes off in[0..n), appends what they carry to the body and sets *used; it stops behind the
// end of the body (done). ERR_FORMAT with *status 400 (grammar, line too long) or 413 (body beyond
// the limit), ERR_MEMORY with 500.
int http_chunked_take(struct http_chunked *c, const char *in, size_t n, size_t *used, int *status,
                      struct err *e);

#endif
