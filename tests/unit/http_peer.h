// SPDX-License-Identifier: Apache-2.0
// For tests of the HTTP server: a server in its own thread with a handler that does what the path
// says, and a client that sends bytes as they are.
//   /hello   answers "hello"           /echo    answers the method, query and body
//   /stream  three chunks at once      /hold    keeps the exchange until the test lets it go
//   /flood   writes as long as the client takes, up to FLOOD bytes
//   /nudge   waits until `sent` is set, and requests /mark on the connection `other`
//   /mark    notes how many requests have been handled since /nudge
//   /post    posts a task, which sets `before_posted`
#ifndef COPPICE_TESTS_UNIT_HTTP_PEER_H
#define COPPICE_TESTS_UNIT_HTTP_PEER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"
#include "serve/http/exchange.h"
#include "serve/http/http.h"
#include "support/wait.h"

enum {
    FLOOD = 64 << 20,
    HELD_MAX = 1024,
};

struct peer_server {
    struct http *http;
    pthread_t thread;
    int port;
    int rc; // of http_run
    struct exchange *held[HELD_MAX];
    struct http_counts counts; // of the loop, `posted` times
    atomic_int posted;
    atomic_int n_held, gone, drained, cut, writable, handled;
    int at_post;              // requests handled before the last /post
    atomic_int before_posted; // requests handled between a /post and its task; -1: none yet
    atomic_int sent, other, nudged, marked;
    atomic_bool answer_when_cut, begin_held; // what /hold does
    atomic_size_t peak;                      // the largest backlog seen by /flood
};

// Starts a server on a free port of 127.0.0.1 unless o says otherwise; o's handler is filled in.
void peer_start(struct peer_server *s, struct http_options o);
void peer_stop(struct peer_server *s); // stops, joins, destroys
void peer_join(struct peer_server *s); // joins, destroys

// A connection; reads give up after PATIENCE.
int peer_connect(const struct peer_server *s);
void peer_send(int fd, const char *text);
void peer_send_bytes(int fd, const void *bytes, size_t n);
// Reads until the connection ends. -1: it was reset, 0: ended, 1: still open after ms.
int peer_read_all(int fd, struct str *out, int ms);
// Reads one answer by its Content-Length or chunks, without what follows; its status. 0: none.
int peer_answer(int fd, struct str *head, struct str *body);
// Sends text on a connection of its own and returns the status; out may be NULL.
int peer_ask(const struct peer_server *s, const char *text, struct str *out);
struct http_counts peer_counts(struct peer_server *s); // as the loop sees them now
void peer_tell_counts(void *s); // what it posts: fills s->counts, then posted
double peer_now(void);          // ms

#endif
