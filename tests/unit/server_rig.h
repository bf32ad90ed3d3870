// SPDX-License-Identifier: Apache-2.0
// A server with the bundled pair in a thread of its own, for tests over real HTTP, and a client
// that sends requests and parses answers. Whatever should not happen fails the running test.
#ifndef COPPICE_TESTS_UNIT_SERVER_RIG_H
#define COPPICE_TESTS_UNIT_SERVER_RIG_H

#include "base/json/json.h"
#include "http_peer.h"
#include "serve/server.h"

struct server_rig {
    struct server *v;
    pthread_t thread;
    int rc; // of server_run
    struct err err;
    struct peer_server peer; // its port, for http_peer.h
    struct str log;
    pthread_mutex_t lock; // of log
};

// o: what differs from a server on a free port with the bundled pair. Waits until it is ready.
void server_rig_start(struct server_rig *r, struct server_options o);
void server_rig_stop(
    struct server_rig *r); // stops, joins, destroys; server_run must have succeeded

// A connection whose reads give up after two minutes.
int server_rig_connect(struct server_rig *r);
// POST, or GET without a body; the status. out: the body, NULL to drop it.
int server_rig_ask(struct server_rig *r, const char *path, const char *body, struct str *out);
// The same of a body of JSON, for the caller to free.
struct json *server_rig_json(struct server_rig *r, const char *path, const char *body, int status);
// POST of an object with these members, whose answer is for the caller to read; room: bytes that
// the connection may hold unread, 0: as usual.
int server_rig_open(struct server_rig *r, const char *path, const char *members, int room);
// From here on the engine, which is idle, stands still in a pass as soon as it has given that many
// more tokens: what it runs then cannot end, nor can what comes later begin, until server_rig_go.
void server_rig_hold(struct server_rig *r, int64_t tokens);
void server_rig_held(struct server_rig *r); // waits until it stands still
void server_rig_go(struct server_rig *r);
// A value of /metrics.
double server_rig_metric(struct server_rig *r, const char *name);
// Waits until the log holds text.
void server_rig_logged(struct server_rig *r, const char *text);
// Waits until text has come n times in what fd has not read yet, 64 KB at most.
void server_rig_comes(int fd, const char *text, int n);
// Waits, PATIENCE at most as all of these, until the engine has no request.
void server_rig_idle(struct server_rig *r);

// A value by its place: "choices.0.message.content". NULL: absent or null.
const struct json *server_rig_at(const struct json *v, const char *place);
const char *server_rig_text(const struct json *v, const char *place); // fails where it is no string
int64_t server_rig_int(const struct json *v, const char *place);

// A streamed answer put together, one choice at most.
struct rig_stream {
    struct str text, reasoning;
    struct json *last;  // the chunk with a finish_reason
    struct json *usage; // the chunk without choices
    struct json *error; // the chunk with an error
    char finish[16];
    int chunks;
    bool role, done; // began with a role; ended in [DONE]
};
// From the body of an event stream. Fails where it is none.
void rig_stream_read(struct rig_stream *s, const struct str *body);
void rig_stream_fini(struct rig_stream *s);

#endif
