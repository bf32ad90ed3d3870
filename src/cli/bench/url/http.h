// SPDX-License-Identifier: Apache-2.0
// What `bench --url` reads from a connection, as its bytes arrive and however they are cut: an
// HTTP/1.1 response (RFC 9112) whose body is of a stated length, chunked or ends with the
// connection, and server-sent events in it (WHATWG HTML, 9.2). Not here: sockets, JSON.
#ifndef COPPICE_CLI_BENCH_URL_HTTP_H
#define COPPICE_CLI_BENCH_URL_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

// Takes a part of the body, or the data of one event. An error ends the reading.
typedef int url_bytes_fn(void *arg, const char *bytes, size_t n, struct err *e);

enum url_http_state {
    URL_HTTP_STATUS,
    URL_HTTP_HEADER,
    URL_HTTP_BODY,
    URL_HTTP_CHUNK_SIZE,
    URL_HTTP_CHUNK,
    URL_HTTP_CHUNK_END,
    URL_HTTP_TRAILER,
    URL_HTTP_UNTIL_CLOSE,
    URL_HTTP_DONE,
};

// A zeroed one is valid and has read nothing.
struct url_http {
    enum url_http_state state;
    int status;        // 0 until it is known
    bool event_stream; // the body's type is text/event-stream
    bool close;        // the connection cannot be used again
    bool chunked, lengthy;
    int64_t left; // of the body or the chunk
    struct str line;
};

// Reads n bytes that came and gives the body's to fn; what follows the response is an error, since
// nothing else was asked for. ERR_FORMAT: this is no HTTP/1.1; ERR_MEMORY; those of fn.
int url_http_push(struct url_http *h, const char *bytes, size_t n, url_bytes_fn *fn, void *arg,
                  struct err *e);
// The connection has ended: ERR_IO when that is not the end of the response.
int url_http_close(struct url_http *h, struct err *e);
void url_http_fini(struct url_http *h);

// A zeroed one is valid and has read nothing.
struct url_events {
    struct str line, data;
    bool any, after_cr;
};

// Gives the data of every event that ends within the n bytes to fn. ERR_LIMIT: a line over 16 MiB;
// ERR_MEMORY; those of fn.
int url_events_push(struct url_events *s, const char *bytes, size_t n, url_bytes_fn *fn, void *arg,
                    struct err *e);
void url_events_fini(struct url_events *s);

#endif
