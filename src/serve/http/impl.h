// SPDX-License-Identifier: Apache-2.0
// What the files of the HTTP server share; no other file includes it.
//
// libevent gives the loop, timers, signals, listeners and output buffers. Its evhttp is not used:
// 2.1 answers what it refuses with a page of its own and no callback (an API's error body cannot be
// had), gives 400 for large headers, calls back only when a whole body has come (so a body would be
// taken before the key is looked at), renews its timeouts with every byte (so a byte a second holds
// a connection for ever), and cannot tell a client that has closed from one that has only finished
// sending.
//
// From below: conn.c moves bytes; exchange.c makes requests of bytes and bytes of answers; http.c
// owns the loop. A lower file reaches a higher one through `events` only.
#ifndef COPPICE_SERVE_HTTP_IMPL_H
#define COPPICE_SERVE_HTTP_IMPL_H

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "serve/http/exchange.h"
#include "serve/http/http.h"
#include "serve/http/message.h"

enum { HTTP_SCRATCH = 64 << 10 };

// Times of connections that no option changes.
enum {
    LINGER_MS = 2000,         // after the last answer, for the client to read it
    LINGER_DRAINING_MS = 300, // the same while the server ends
    CUT_MS = 1000,            // between the cut hooks and the end
    CUT_FAST_MS = 200,        // the same after a second stop
    PROBE_MS = 2,             // to the first look whether a client that is not read is connected
    PROBE_MAX_MS = 1000,      // between further looks
    PROBE_WRITE_MS = 2000,    // between writes to a client that has finished sending
    KEEPALIVE_IDLE_S = 30,    // of TCP
    KEEPALIVE_INTERVAL_S = 10,
    KEEPALIVE_COUNT = 3,
};

enum conn_phase {
    CONN_HEAD,   // between requests (idle when nothing has come), or inside a head
    CONN_BODY,   // inside a body
    CONN_RUN,    // an exchange is with the handler
    CONN_LINGER, // the last answer is written; input is discarded, so that the client can read
};

struct conn {
    struct http *h;
    struct conn *prev, *next; // of all
    struct conn *next_dirty, *next_dead;
    int fd;
    enum conn_phase phase;
    struct event read, write;
    struct event *probe; // looks whether the client is there while nothing is read
    int probe_ms;
    double probed; // ms: when it last began to look
    struct str in; // received, not yet used from in_at on
    size_t in_at, in_seen;
    struct evbuffer *out;
    struct exchange *x;          // from CONN_BODY to the end of the answer
    struct http_chunked chunked; // of the body being received
    double since, progress;      // ms: of the phase; the last byte that the client took
    double until;                // ms: when the body is too late, if nothing more of it comes
    struct http_memory waiting;  // a long answer that the client has not taken yet
    bool dirty, dead, broken, paused;
    bool eof, halved;      // the client will send no more: all is read, or seen ahead
    bool last, used, full; // close after what is written; had a request; backlog was high
    bool blank;            // an empty line came before the request
    bool local;            // a Unix socket
    char peer[64];
};

struct exchange {
    struct http *h;
    struct conn *c; // NULL: the client has disconnected
    struct exchange *prev, *next;
    struct http_head head;
    struct str body;
    struct http_memory memory; // of the body
    struct str fields;         // further headers of the answer
    struct exchange_hooks hooks;
    void *arg;
    char peer[64];
    bool framed;               // the head has been read as a whole
    bool handed;               // belongs to the handler
    bool own_line;             // the handler logs its end
    int status;                // of the answer; 0: none yet
    char reason[160];          // of a refusal
    double arrived;            // ms
    bool begun, chunked, keep; // answer: head written, in chunks, connection stays
    int zeros;                 // written ahead of the next chunk's size
};

struct http_events {
    void (*input)(struct conn *c);  // bytes have come, or there is room for another request
    void (*finish)(struct conn *c); // the client has closed its side; again while it is answered
    void (*disconnected)(struct conn *c);
    void (*space)(struct conn *c); // a high backlog has fallen
    void (*late)(struct conn *c);  // a time limit has passed
};

struct http_timer { // of http_every
    struct http_timer *next;
    struct event *event;
    void (*fn)(void *);
    void *arg;
};

enum { HTTP_LISTENERS = 16, HTTP_SIGNALS = 4 };

struct http {
    struct http_options o;
    const struct http_events *events;
    struct event_base *base;
    struct event *listeners[HTTP_LISTENERS];
    char address[HTTP_LISTENERS][160];
    int n_listeners;
    bool paused; // no descriptors were left
    uint64_t unix_device, unix_inode;
    struct event *wake, *flush, *sweep, *deadline, *signals[HTTP_SIGNALS];
    int wake_fd;
    struct conn *conns, *dirty, *dead;
    struct exchange *exchanges;
    struct http_counts counts; // but body_bytes
    atomic_size_t held;        // by all holds
    struct http_timer *timers;
    char *scratch; // HTTP_SCRATCH bytes
    time_t date_at;
    char date[40];
    atomic_int stops; // calls of http_stop
    int stops_seen;
    int inputs; // since others had their turn
    bool cut, ran, flushing;
    pthread_mutex_t lock;                 // of the three below
    struct http_task *tasks, **last_task; // in the order of posting
    bool closed;                          // http_run has returned
};

// loop.c
void http_run_tasks(struct http *h); // what is posted until now; what that posts comes next time

// conn.c
// Takes over fd. NULL when out of memory (fd is closed then).
struct conn *conn_create(struct http *h, int fd, const struct sockaddr *peer, socklen_t len);
size_t conn_pending(const struct conn *c); // received and not yet used
void conn_used(struct conn *c, size_t n);  // takes n bytes off what was received
void conn_write(struct conn *c, const void *bytes, size_t n);
void conn_break(struct conn *c); // reports a disconnect, but not before the caller has returned
size_t conn_backlog(const struct conn *c);
void conn_mark(struct conn *c);  // has it serviced before the loop waits again
void conn_flush(struct http *h); // services what is marked, frees what is closed
void conn_enter(struct conn *c, enum conn_phase phase);
void conn_watch_reads(struct conn *c); // reads again if it was paused and there is room
void conn_probe(struct conn *c);       // begins to look whether the client is connected
bool conn_may_be_disconnected(const struct conn *c); // the client has closed its side
bool conn_is_disconnected(const struct conn *c);     // whatever is still to be read
void conn_close(struct conn *c); // now; its memory goes with the next conn_flush
void conn_abort(struct conn *c); // the same, after what the kernel takes of earlier answers

// exchange.c
extern const struct http_events http_exchange_events;
void exchange_free(struct exchange *x);

// guard.c
struct guard_refusal {
    int status; // 0: may pass
    const char *reason;
};
struct guard_refusal guard_check(const struct http *h, const struct http_head *head, bool local);
// Headers of CORS that an answer to this request gets.
void guard_answer(const struct http *h, const struct http_head *head, struct str *fields);
// The same for an OPTIONS request to a path that takes these methods.
void guard_preflight(const struct http *h, const struct http_head *head, const char *methods,
                     struct str *fields);

#endif
