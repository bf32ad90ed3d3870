// SPDX-License-Identifier: Apache-2.0
// An HTTP/1.1 server in one thread: connections, limits, timeouts, keys, answers whole or in
// chunks, orderly ends. It does not depend on what is served: one handler takes every request
// (routing is the handler's), and one function makes the bodies of refusals, so that each API has
// its own shape.
//
// All functions are for the thread that runs http_run, except http_post and http_stop. Callbacks
// are never made from inside a call into this module or exchange.h: after exchange_write returns,
// nothing has happened that the caller does not know of.
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
struct exchange; // one request and its answer (exchange.h)

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
    int status;                       // of the answer; 499: the client disconnected before
    const char *reason;               // of a refusal, words of no request; NULL: none
    double ms;                        // since its head was there
};
// Called for each request once, in the loop thread, but those of exchange_own_line. It must not
// call this module.
typedef void http_ended_fn(void *arg, const struct http_ended *r);

// Time limits of connections, which http_options may change; the others are in impl.h.
enum {
    HTTP_HEAD_MS = 30000,  // from the first byte of a request to the end of its headers
    HTTP_BODY_MS = 30000,  // that a body may be late against HTTP_BODY_PACE
    HTTP_IDLE_MS = 120000, // without a request on a connection
    HTTP_STALL_MS = 30000, // without the client taking a byte of a waiting answer
    HTTP_GRACE_S = 5,      // of running exchanges after http_stop
    HTTP_BODY_PACE = 4096, // bytes a second
};

// What is pointed at must stay valid while the server exists. Zero means the default, in brackets
// or above.
struct http_options {
    const char *host; // name or address, IPv6 with or without []; all its addresses; NULL: none
    int port;         // 0: any free one
    const char *unix_path; // also listen there, mode 0600; NULL: no
    http_handler *handler;
    http_refuse_fn *refuse;   // NULL: plain text
    http_ended_fn *ended;     // NULL: none
    http_methods_fn *methods; // for OPTIONS; NULL: all of them
    void *arg;                // of all four

    const char *const *keys; // any of them opens; none: no key is required
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
    int head_ms, body_ms, idle_ms, stall_ms;
    double grace_s; // < 0: none
};

// ERR_USAGE, ERR_MEMORY, ERR_IO. Raises the soft limit of descriptors to the hard one.
int http_create(struct http **out, const struct http_options *o, struct err *e);
// Binds and listens; what connects is answered once http_run runs. ERR_USAGE: the address is open
// to others and there is no key; ERR_IO: cannot be bound; ERR_STATE: the path is in use by another
// one.
int http_listen(struct http *h, struct err *e);
// Addresses bound, as "http://127.0.0.1:8080", "http://[::1]:8080" or "unix:/run/x"; NULL after
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
// The same for work whose end must be reported even when memory is short: the caller's own task,
// which stays until it runs and is in one place at a time. ERR_STATE only.
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

// Descriptors and a one-shot timer of others in the loop, so that a client of other servers shares
// its thread and needs no locks. Loop thread only, or before http_run.

// One descriptor that is looked at.
struct http_watch;
typedef void http_ready_fn(void *arg, int fd, bool readable, bool writable);

// Begins to look at fd. NULL: no memory. http_watch_end before fd is closed and before
// http_destroy.
struct http_watch *http_watch_begin(struct http *h, int fd, http_ready_fn *fn, void *arg);
// What is looked for from now on, again and again. ERR_MEMORY.
int http_watch_for(struct http_watch *w, bool read, bool write);
void http_watch_end(struct http_watch *w); // NULL is allowed

// A timer that fires once each time it is set.
struct http_alarm;
struct http_alarm *http_alarm_create(struct http *h, void (*fn)(void *), void *arg); // NULL: memory
void http_alarm_set(struct http_alarm *a, int64_t ms); // in this time; < 0: not any more
void http_alarm_destroy(struct http_alarm *a);         // NULL is allowed; before http_destroy

#endif
