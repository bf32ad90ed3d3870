// SPDX-License-Identifier: Apache-2.0
// Connections of `bench --url`: one thread, non-blocking sockets and epoll hold as many streams as
// there are descriptors. A connection that its answer left open serves the next request. An answer
// goes from the bytes of its connection to a struct url_result: when its texts came, what the usage
// and the timings say, how it ended; one that is no stream is kept whole.
#ifndef COPPICE_CLI_BENCH_URL_CLIENT_H
#define COPPICE_CLI_BENCH_URL_CLIENT_H

#include "cli/bench/url/stats.h"
#include "serve/http/message.h"
#include "serve/http/sse.h"

enum url_endpoint { URL_CHAT, URL_COMPLETIONS };

// Where requests go; texts end in NUL.
struct url_target {
    char host[256], port[8];
    char authority[272]; // as the Host header has it
    char base[256];      // what stands before /chat/completions, as in /v1
};
// Reads http://HOST[:PORT][/BASE], BASE being v1 when it is missing; an endpoint's own path may
// stand after it. ERR_USAGE, and ERR_UNSUPPORTED for https.
int url_target_read(struct url_target *t, const char *url, struct err *e);

// One answer of an OpenAI server.
struct url_reply {
    struct str head; // as far as it has come
    int status;      // 0 until the head has been read
    bool event_stream, chunked;
    bool close;   // the connection cannot be used again
    bool over;    // the whole answer has come
    int64_t left; // of the body; -1: until the connection ends, or in chunks
    struct http_chunked chunks;
    struct str piece; // what the newest chunks carried
    struct sse_reader events;
    struct str data; // of the event so far, if it has any
    bool has_data;
    struct str body;           // of an answer that is no stream, at most 1 MiB
    struct url_result *result; // caller's
    struct url_times *gaps;    // caller's; grows by the times between texts
    double now;
    bool streamed; // a stream was requested, and anything else is an error
    bool finished; // a finish_reason came
    bool ended;    // [DONE] came
};

// A reply for a request that starts now, or was due then.
void url_reply_init(struct url_reply *r, bool streamed, double start, struct url_result *result,
                    struct url_times *gaps);

// Bytes that came at `now`. True when the reply is over: r->result says how.
bool url_reply_push(struct url_reply *r, const char *bytes, size_t n, double now);
// The connection has ended.
void url_reply_close(struct url_reply *r, double now);
void url_reply_fini(struct url_reply *r);

// One request; the caller fills in reply, out and deadline and keeps it until it is done.
struct url_call {
    struct url_reply reply;
    struct str out; // the whole request
    size_t sent;
    double deadline; // of the clock
    int64_t id;      // caller's
};

// The head of a request with a body of n bytes (0: GET). key: NULL for none.
void url_call_head(struct str *out, const struct url_target *t, const char *path, const char *key,
                   size_t n);

struct url_client;
typedef void url_done_fn(void *arg, struct url_call *call);
// Resolves the host. ERR_IO: it has no address; ERR_MEMORY.
int url_client_create(struct url_client **out, const struct url_target *t, url_done_fn *done,
                      void *arg, struct err *e);
// Begins a call. It is done at once, with done called before this returns, where no socket can be
// had.
void url_client_start(struct url_client *c, struct url_call *call);
// Waits at most ms milliseconds for the network and calls done for every call that is over; done
// must not begin another one.
// ERR_IO: the system refuses to wait.
int url_client_wait(struct url_client *c, double ms, struct err *e);
// Ends all calls in progress; each is done.
void url_client_drop(struct url_client *c);
// No call may be in progress.
void url_client_destroy(struct url_client *c);

#endif
