// SPDX-License-Identifier: Apache-2.0
// What the files of the relay share; no other file includes it: body.c changes what is sent and
// what comes back, relay.c takes requests there and answers back, and is the server.
#ifndef COPPICE_SERVE_RELAY_IMPL_H
#define COPPICE_SERVE_RELAY_IMPL_H

#include <stdatomic.h>

#include "base/rng.h"
#include "serve/http/exchange.h"
#include "serve/http/sse.h"
#include "serve/metrics.h"
#include "serve/relay/relay.h"
#include "serve/workers.h"

// How requests that were passed on ended.
enum relay_end {
    RELAY_ANSWERED,  // whatever the upstream said
    RELAY_CANCELLED, // the client disconnected
    RELAY_FAILED,    // the upstream could not be reached, broke off or gave no answer of its kind
    RELAY_LATE,      // it took too long
    RELAY_REFUSED,   // not sent
    RELAY_ENDS,
};

struct relay {
    struct relay_options o;
    struct http *http;
    struct upstream *upstream;
    struct workers *workers;
    struct workers *shorteners;    // one thread that compresses; NULL: none
    struct metrics metrics;        // of compression
    struct relayed *all;           // in progress
    struct histogram first, whole; // seconds to the first byte, to the end
    uint64_t ends[RELAY_ENDS];
    int64_t open;
};

// Events of a stream. Zeroed is valid and at the begin.
struct relay_raw_stream {
    struct sse_reader reader;
    struct str *out; // of the call in progress
    bool spoke;      // the role has been written
};

// One request on its way.
struct relayed {
    struct relay *r;
    struct relayed *prev, *next;
    struct exchange *x;
    struct upstream_call *call;
    char id[RANDOM_ID], path[128], peer[64];
    const char *method;        // of static storage
    double arrived, first;     // ms; 0: no byte has come
    bool text;                 // requests text: what comes back is JSON or a stream
    struct json *json;         // the body, while workers have it
    struct http_memory memory; // of the memory of that, or of what is sent in its place
    struct prefill_report compression;
    struct str body; // to be sent in place of what came; empty: that as it is
    bool raw;        // the body is a completion's, the answer is to be a chat's
    struct relay_raw_stream chunks;
    atomic_bool disconnected; // the client
    bool preparing;           // a worker has it, and `error` with it
    bool cut;                 // the server ends
    struct http_task handed;
    struct api_error error;

    int status;                      // of the answer; 0: no head yet
    char type[128];                  // of its body
    bool streaming, events, between; // sent as it comes; of events; its last byte ends an event
    bool odd;                        // no answer that clients of this path could read
    struct str answer;
    uint32_t tail; // the last four bytes of a stream
};

// Whether bodies of this path are read before they are sent.
bool relay_body_wanted(const struct relay *r, const struct relayed *q);
// Text worker: reads the body. True where its prompt may have to be compressed; why not is noted.
bool relay_body_read(struct relayed *q);
// The thread that compresses: then makes q->body where something stays away. False with q->error
// filled.
bool relay_body_shorten(struct relayed *q);
// Makes q->body where something else is to be changed, and frees what was read. What cannot be read
// goes on as it is, for the upstream to refuse. False likewise.
bool relay_body_make(struct relayed *q);

// Compressed chats as raw prompts: the body of a chat request as one of /v1/completions, rendered
// by the target's chat template, and answers of completions in the shape of chat completions, whole
// or event by event. A raw prompt cannot say which of its marks the template wrote: what a message
// spells as a control token is one for the upstream.

// Whether a request can go so: nothing in it has a meaning in chats alone (log-probabilities, forms
// of the answer, audio, a conversation that ends in the assistant's words).
bool relay_raw_fits(const struct json *body);
// The body of the completion, with these messages in place of the request's: `prompt`, the other
// members as they were spelt, max_completion_tokens as max_tokens; what only a template reads goes
// into the template. model: NULL: as the request names it. Errors of chat_render, ERR_MEMORY.
int relay_raw_body(const struct chat_template *t, const struct json *body,
                   const struct json *messages, const char *model, struct str *out, struct err *e);

// A whole answer, or *out empty where it is no completion (an error, say): it is then as it should
// be. False: no memory.
bool relay_raw_answer(const char *text, size_t n, struct str *out);

// Appends to out what these bytes make of the stream: lines that hold a chunk are written anew, all
// others stay as they are but for their ends, which are LF. False: no memory, or a line too long.
bool relay_raw_push(struct relay_raw_stream *s, const char *bytes, size_t n, struct str *out);
void relay_raw_fini(struct relay_raw_stream *s);

#endif
