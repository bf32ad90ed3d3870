// SPDX-License-Identifier: Apache-2.0
// An HTTP/1.1 server in one thread: connections, limits, timeouts, keys, answers whole or in
// chunks, orderly ends. It knows nothing of what is served: one handler takes every request
// (routing is the handler's), and one function makes the bodies of refusals, so that each API has
// its own shape.
//
// All functions are for the thread that runs http_run, except http_post and http_stop. Callbacks
// are never made from inside a call into this module: after exchange_write returns, nothing has
// happened that the caller has not been told of.
//
// TLS and HTTP/2 are left to a reverse proxy.
#ifndef COPPICE_SERVE_HTTP_HTTP_H
#define COPPICE_SERVE_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct http;     // the server
struct exchange; // one request and its answer

// Appends the methods that a path takes, "GET, HEAD, POST"; nothing where there is nothing at it.
typedef void http_methods_fn(void *arg, const char *path, struct str *methods);

// Takes a complete request. The exchange belongs to the handler from here on, until it is given
// back with exchange_reply, exchange_end or exchange_abort: now, or any time later.
typedef void http_handler(void *arg, struct exchange *x);

// A request that the server refuses by itself.
struct http_refusal {
    int status;         // 400, 401, 403, 404, 408, 413, 417, 431, 500, 501, 503, 505
    const char *reason; // one sentence
    const char *method; // "" where the request was not understood so far
    const char *path;   // decoded, without the query; "" likewise
    const char *peer;
};
// Appends the body of a refusal to `body` and returns its content type.
typedef const char *http_refuse_fn(void *arg, const struct http_refusal *r, struct str *body);

// A request that has ended: answered, or left by its client, or broken off.
struct http_ended {
    const char *method, *path, *peer; // as in http_refusal; HEAD is "HEAD" here
    int status;                       // of the answer; 499: the client went before it began
    const char *reason;               // of a refusal, words of no request; NULL: none
    double ms;                        // since its head was there
};
// Called for each request once, in the loop thread, but those of exchange_own_line. It must not
// call this module.
typedef void http_ended_fn(void *arg, const struct http_ended *r);

// What is pointed at must stay while the server lives. Zero means the default in brackets.
struct http_options {
    const char *host; // name or address, IPv6 with or without []; all its addresses; NULL: none
    int port;         // 0: any free one
    const char *unix_path; // also listen there, mode 0600; NULL: no
    http_handler *handler;
    http_refuse_fn *refuse;   // NULL: plain text
    http_ended_fn *ended;     // NULL: nobody is told
    http_methods_fn *methods; // for OPTIONS; NULL: all of them
    void *arg;                // of all four

    const char *const *keys; // any of them opens; none: no key is asked for
    size_t n_keys;
    const char *const *open_paths; // need no key, as "/health"
    size_t n_open_paths;
    const char *const *names; // further names that a Host header may have when there is no key
    size_t n_names;
    const char *const *origins; // for CORS: "https://a.example", "*", or "loopback"; none: off
    size_t n_origins;
    bool any_host; // without a key too: addresses other than loopback, and any Host header
    // SIGTERM, SIGINT, SIGQUIT and SIGHUP (unless it is ignored) end http_run as http_stop does;
    // one server per process.
    bool signals;

    size_t head_bytes;   // request line and headers [64 KiB]
    size_t body_bytes;   // [64 MiB]
    size_t bodies_bytes; // of all requests in progress together, with what is made of them [1 GiB]
    int connections;     // [what the limit of descriptors leaves]
    int head_ms;         // from the first byte of a request to the end of its headers [30 s]
    int body_ms;         // that a body may lie behind a pace of 4 KiB a second [30 s]
    int idle_ms;         // without a request on a connection [120 s]
    int stall_ms;        // without the client taking a byte of a waiting answer [30 s]
    double grace_s;      // how long running exchanges may last after http_stop; < 0: none [5 s]
};

// ERR_USAGE, ERR_MEMORY, ERR_IO. Raises the soft limit of descriptors to the hard one.
int http_create(struct http **out, const struct http_options *o, struct err *e);
// Binds and listens; what connects is answered once http_run runs. ERR_USAGE: the address is open
// to others and there is no key; ERR_IO: cannot be bound; ERR_STATE: the path is in use by another
// one.
int http_listen(struct http *h, struct err *e);
// Addresses bound, as "http://127.0.0.1:8080", "http://[::1]:8080" or "unix:/run/x"; NULL behind
// the last one.
const char *http_address(const struct http *h, size_t i);
// Serves until http_stop, then until the last connection has ended; at most grace_s and 1.5 s more.
// Once only. ERR_IO: the event loop failed.
int http_run(struct http *h, struct err *e);
// Any thread, and signal handlers. First call: no new connections, idle ones are closed, exchanges
// get their drain hook and have grace_s, then their cut hook. Second call: the cut hook at once.
void http_stop(struct http *h);
bool http_draining(const struct http *h);
// After http_run has returned and no other thread posts any more. Frees exchanges that were not
// given back too.
void http_destroy(struct http *h);

// ANY THREAD: has fn(arg) run in the loop soon, in the order of posting. ERR_MEMORY; ERR_STATE when
// http_run has returned, then fn will not run. What was posted before that does run.
int http_post(struct http *h, void (*fn)(void *), void *arg);
// The same for work whose end must be told also when memory is short: the caller's own task, which
// stays until it runs and is in one place at a time. ERR_STATE only.
struct http_task {
    void (*fn)(void *);
    void *arg;
    struct http_task *next; // of the server
    bool owned;             // likewise
};
int http_post_task(struct http *h, struct http_task *t);
// Runs fn(arg) every period_ms while http_run runs. ERR_MEMORY.
int http_every(struct http *h, int period_ms, void (*fn)(void *), void *arg, struct err *e);

struct http_counts {
    int64_t accepted, requests, refused; // since the start
    int64_t connections, exchanges;      // now
    int64_t body_bytes;                  // of requests in progress, and of what they became
};
struct http_counts http_counts(const struct http *h);

// The request. Strings live until the exchange is given back.
// Of static storage. HEAD is told as GET; its body is left out.
const char *exchange_method(const struct exchange *x);
const char *exchange_path(const struct exchange *x);  // decoded UTF-8 without the query
const char *exchange_query(const struct exchange *x); // as sent, "" when there is none
bool exchange_wants_head(const struct exchange *x);   // it is a HEAD
// The first header of that name (any case), NULL when absent.
const char *exchange_request_header(const struct exchange *x, const char *name);
// The i-th header, its name in lower case; false behind the last one.
bool exchange_request_field(const struct exchange *x, size_t i, const char **name,
                            const char **value);
const char *exchange_body(const struct exchange *x,
                          size_t *n);                // a NUL follows; other threads may read
void exchange_drop_body(struct exchange *x);         // frees it early
const char *exchange_peer(const struct exchange *x); // "127.0.0.1:4711" or "unix"

// Memory that follows from a body, in the count that bodies_bytes bounds: the body, and what is
// made of it, for as long as that is there. Zeroed is valid and counts nothing.
struct http_hold {
    struct http *h;
    size_t bytes;
};
// Moves the body, and its place in the count, to the caller, who ends the hold once the memory is
// free. Both must be empty.
void exchange_take_body(struct exchange *x, struct str *body, struct http_hold *hold);
// Any thread, one at a time: the memory is so many bytes now. It is never refused, since what is
// there is there; bodies that come are, while the count is above its bound.
void http_hold_set(struct http_hold *hold, size_t bytes);
void http_hold_end(struct http_hold *hold);
bool http_crowded(const struct http *h); // any thread: the count is above its bound

// Whether the handler itself tells of the end of this request, and http_options.ended is not
// called.
void exchange_own_line(struct exchange *x, bool own);

// What may happen to an exchange that is not given back yet. NULL hooks are skipped.
struct exchange_hooks {
    // The client has gone. What is written from now on is dropped; the exchange must still be given
    // back, here or later.
    void (*gone)(void *arg);
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
bool exchange_gone(const struct exchange *x);
// Has the client gone, or closed its side, as one does that has given up waiting? Asks the system,
// so that it also tells of what the loop has not seen yet. One that closes its side only because it
// has nothing more to send looks the same.
bool exchange_left(const struct exchange *x);
// Bytes written and not yet taken by the client. A writer stops above EXCHANGE_FULL and goes on in
// its writable hook.
enum { EXCHANGE_FULL = 256 << 10 };
size_t exchange_backlog(const struct exchange *x);

#endif
