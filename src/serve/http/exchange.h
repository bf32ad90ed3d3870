// SPDX-License-Identifier: Apache-2.0
// One request and its answer, as handlers see them (http.h): what was requested, and an answer
// whole or in chunks. Strings of the request stay valid until the exchange is given back. Loop
// thread only, except where a function says otherwise.
#ifndef COPPICE_SERVE_HTTP_EXCHANGE_H
#define COPPICE_SERVE_HTTP_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

struct http;
struct exchange;

// Of static storage. HEAD is reported as GET; its body is left out.
const char *exchange_method(const struct exchange *x);
const char *exchange_path(const struct exchange *x);  // decoded UTF-8 without the query
const char *exchange_query(const struct exchange *x); // as sent, "" when there is none
bool exchange_is_head(const struct exchange *x);      // it is a HEAD
// The first header of that name (any case), NULL when absent.
const char *exchange_request_header(const struct exchange *x, const char *name);
// The i-th header, its name in lower case; false after the last one.
bool exchange_request_field(const struct exchange *x, size_t i, const char **name,
                            const char **value);
const char *exchange_body(const struct exchange *x,
                          size_t *n);                // a NUL follows; other threads may read
void exchange_drop_body(struct exchange *x);         // frees it early
const char *exchange_peer(const struct exchange *x); // "127.0.0.1:4711" or "unix"

// Memory that follows from a body, in the count that bodies_bytes bounds: the body, and what is
// made of it, for as long as that is there. Zeroed is valid and counts nothing.
struct http_memory {
    struct http *h;
    size_t bytes;
};
// Moves the body, and its place in the count, to the caller, who releases it once the memory is
// free. Both must be empty.
void exchange_take_body(struct exchange *x, struct str *body, struct http_memory *memory);
// Any thread, one at a time: the memory is that many bytes now. It is never refused, since what is
// there is there; bodies that come are, while the count is above its bound.
void http_memory_set(struct http_memory *memory, size_t bytes);
void http_memory_release(struct http_memory *memory);
bool http_crowded(const struct http *h); // any thread: the count is above its bound

// Whether the handler itself reports the end of this request, and http_options.ended is not
// called.
void exchange_own_line(struct exchange *x, bool own);

// Events of an exchange that is not given back yet. NULL hooks are skipped.
struct exchange_hooks {
    // The client has disconnected. What is written from now on is dropped; the exchange must still
    // be given back, here or later.
    void (*disconnected)(void *arg);
    // The backlog had passed EXCHANGE_FULL and has fallen to a quarter of it.
    void (*writable)(void *arg);
    void (*drain)(void *arg); // the server will end; grace_s are left
    void (*cut)(void *arg);   // time is over: write a last word and give the exchange back now
};
// A handler that returns before it has given back the exchange sets them. hooks is copied.
void exchange_watch(struct exchange *x, const struct exchange_hooks *hooks, void *arg);

// A header of the answer, before it begins; bytes that a header must not hold become spaces.
void exchange_header(struct exchange *x, const char *name, const char *value);
void exchange_drop_headers(struct exchange *x); // for another answer than they were of
// The whole answer; gives the exchange back. type may be NULL (no body then).
void exchange_reply(struct exchange *x, int status, const char *type, const void *body, size_t n);
// An answer in pieces: begin once, write any number of times, end (which gives the exchange back).
void exchange_begin(struct exchange *x, int status, const char *type);
void exchange_write(struct exchange *x, const void *bytes, size_t n);
void exchange_end(struct exchange *x);
// Gives back the exchange and breaks the connection, so that the client sees an incomplete answer.
void exchange_abort(struct exchange *x);
bool exchange_disconnected(const struct exchange *x);
// Whether the client has disconnected or closed its side, as one does that has given up waiting:
// also what the loop has not seen yet. One that closes its side only because it has nothing more to
// send looks the same.
bool exchange_may_be_disconnected(const struct exchange *x);
// Bytes written and not yet taken by the client. A writer stops above EXCHANGE_FULL and goes on in
// its writable hook.
enum { EXCHANGE_FULL = 256 << 10 };
size_t exchange_backlog(const struct exchange *x);

#endif
