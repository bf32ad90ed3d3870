// SPDX-License-Identifier: Apache-2.0
// A client of one other HTTP server, in the loop of ours: requests go out, heads and bytes of
// answers come back as they arrive. It does not depend on an API: what is sent and what is made of
// an answer is the caller's. libcurl is used here and nowhere else; a build without it has
// upstream_absent.c.
//
// Loop thread only. Callbacks come from the loop, never from inside a call into this module.
#ifndef COPPICE_SERVE_RELAY_UPSTREAM_H
#define COPPICE_SERVE_RELAY_UPSTREAM_H

#include "serve/http/http.h"
#include "serve/http/message.h"
#include "serve/request/error.h"

struct upstream;      // the client
struct upstream_call; // one request on its way

struct upstream_options {
    const char *base; // "http://host:8000", with a path or /v1 where there is one; also https
    const char *key;  // sent as a bearer token; NULL: none
    int connect_ms;   // until a connection stands; 0: 10 s
    int silent_ms;    // without a byte of an answer; 0: 600 s
};

// ERR_USAGE: the base is no such address, or holds a key, which belongs elsewhere; ERR_UNSUPPORTED:
// built without libcurl; ERR_MEMORY.
int upstream_create(struct upstream **out, struct http *h, const struct upstream_options *o,
                    struct err *e);
// Before http_destroy; calls that have not ended are cancelled. NULL is allowed.
void upstream_destroy(struct upstream *u);
const char *upstream_name(const struct upstream *u); // the address without /v1, for sentences
bool upstream_has_key(const struct upstream *u);

struct upstream_request {
    const char *method;
    const char *path;                // after the base, as it goes out: "/v1/models?limit=3"
    const struct http_field *fields; // [n_fields]
    size_t n_fields;
    const char *body; // [n_body] must stay valid until the call has ended; NULL: none
    size_t n_body;
};

enum upstream_take {
    UPSTREAM_MORE,
    UPSTREAM_PAUSE, // these bytes are passed again after upstream_resume
    UPSTREAM_STOP,  // no more is wanted: the call fails
};

struct upstream_events {
    // The head of the answer has come. It is valid until the call has ended.
    void (*head)(void *arg, const struct http_head *head);
    enum upstream_take (*body)(void *arg, const char *bytes, size_t n);
    // The call has ended and is freed. why: NULL when the answer is whole, else 502 (cannot be
    // reached, broke off) or 504 (took too long) with a sentence.
    void (*end)(void *arg, const struct api_error *why);
};

// Begins a request. ERR_MEMORY.
int upstream_start(struct upstream *u, const struct upstream_request *r,
                   const struct upstream_events *events, void *arg, struct upstream_call **out,
                   struct err *e);
void upstream_resume(struct upstream_call *c);
// Ends it without a callback, and the connection with it. NULL is allowed.
void upstream_cancel(struct upstream_call *c);

#endif
