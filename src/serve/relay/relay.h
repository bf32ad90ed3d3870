// SPDX-License-Identifier: Apache-2.0
// A server without a model: it passes requests on to another OpenAI server and answers back, byte
// for byte as they come. It is created, run until it is stopped, and destroyed; it prints
// nothing.
//
// Everything under /v1/ goes to the upstream; /health and /metrics are answered here. Keys that
// this server requires end here: a client's own key goes on only where neither this server requires
// one nor the upstream's has been given.
#ifndef COPPICE_SERVE_RELAY_RELAY_H
#define COPPICE_SERVE_RELAY_RELAY_H

#include "compress/prefill.h"
#include "serve/http/http.h"
#include "serve/relay/upstream.h"
#include "serve/request_log.h"
#include "text/chat/chat.h"

struct relay;

// What is pointed at must stay valid as long as the server.
struct relay_options {
    struct http_options http; // handler, refuse, arg and open paths are the server's
    struct upstream_options upstream;
    const char *model; // in place of the one that requests for text name; NULL: as they name it
    int text_threads;  // that read bodies; 0: 2
    // How long prompts are compressed, and by what, which is used in one thread. The threshold is
    // in tokens of the scorer. Messages go out as messages, with what stays of their texts.
    struct prefill_options prefill;
    struct compressor *compressor; // NULL: none
    // NULL, or by what compressed chats are rendered, to go to /v1/completions as raw prompts;
    // answers come back in the shape of chats (body.c).
    const struct chat_template *raw;
    struct request_log log; // of each request, with its end, in the loop thread
    const char *build;      // labels of coppice_build_info; NULL: /metrics does not have it
};

// Binds the address. Errors of http_create, http_listen and upstream_create.
int relay_create(struct relay **out, const struct relay_options *o, struct err *e);
// Serves until relay_stop or a signal (http_options.signals).
int relay_run(struct relay *r, struct err *e);
void relay_stop(struct relay *r);    // any thread and signal handlers; see http_stop
void relay_destroy(struct relay *r); // NULL is allowed

const char *relay_address(const struct relay *r, size_t i); // as http_address
const char *relay_upstream(const struct relay *r);          // its address

#endif
