// SPDX-License-Identifier: Apache-2.0
// What the files of the relay share; nobody else includes it. From below: body.c changes what
// is sent, request.c takes one request there and its answer back, relay.c is the server.
#ifndef COPPICE_SERVE_RELAY_IMPL_H
#define COPPICE_SERVE_RELAY_IMPL_H

#include <stdatomic.h>

#include "serve/metrics.h"
#include "serve/random_id.h"
#include "serve/relay/raw.h"
#include "serve/relay/relay.h"
#include "serve/request_log.h"
#include "serve/workers.h"

// How requests that were passed on ended.
enum relay_end {
    RELAY_ANSWERED,  // whatever the upstream said
    RELAY_CANCELLED, // the client had gone
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
    struct str out; // scratch
};

// One request on its way.
struct relayed {
    struct relay *r;
    struct relayed *prev, *next;
    struct exchange *x;
    struct upstream_call *call;
    char id[RANDOM_ID], path[128], peer[64];
    const char *method;    // of static storage
    double arrived, first; // ms; 0: no byte has come
    bool text;             // asks for text: what comes back is JSON or a stream
    struct json *json;     // the body, while workers have it
    struct http_hold hold; // of the memory of that, or of what is sent in its place
    struct prefill_report compression;
    struct str body; // to be sent in place of what came; empty: that as it is
    bool raw;        // the body is a completion's, the answer is to be a chat's
    struct relay_raw_stream chunks;
    atomic_bool gone; // the client has gone
    bool preparing;   // a worker has it, and `error` with it
    bool cut;         // the server ends
    struct http_task handed;
    struct api_error error;

    int status;                      // of the answer; 0: no head yet
    char type[128];                  // of its body
    bool streaming, events, between; // sent as it comes; of events; its last byte ends an event
    bool odd;                        // no answer that clients of this path could read
    struct str answer;
    uint32_t tail; // the last four bytes of a stream
};

// Takes a request over.
void relayed_start(struct relay *r, struct exchange *x);
// Frees all, after workers and loop have ended.
void relayed_free_all(struct relay *r);

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

#endif
