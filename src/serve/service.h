// SPDX-License-Identifier: Apache-2.0
// What the handlers of all paths share: the engine, the connections, the model's words and limits,
// counts, the requests in progress. It belongs to the loop thread; text workers read what never
// changes once the model is there.
#ifndef COPPICE_SERVE_SERVICE_H
#define COPPICE_SERVE_SERVICE_H

#include "compress/adapt.h"
#include "engine/loop/engine.h"
#include "serve/api/error.h"
#include "serve/http/http.h"
#include "serve/metrics.h"
#include "serve/reply/store.h"
#include "serve/request/params.h"
#include "serve/request_log.h"
#include "serve/server.h"
#include "serve/workers.h"
#include "text/chat/chat.h"

struct completion;
struct warm;
struct tool_constraints;

struct service {
    const struct server_options *o;
    struct http *http;
    struct engine *engine;
    struct workers *workers;
    struct workers *shorteners; // one thread that compresses prompts; NULL: none does
    struct adapt adapt;         // of that thread
    char *model;                // its name for clients
    char arch[64], quantization[16];
    int64_t started; // seconds since 1970
    uint64_t seed;   // of hashes that strangers must not foresee

    // Of the model: set once, in the loop thread, when it has been loaded, and then never changed.
    bool ready;
    const struct tokenizer *tokenizer; // NULL: the file has none
    struct chat_template *chat;        // NULL: chat_error says why
    struct err chat_error;
    struct tool_constraints *tool_constraints; // NULL: no tokenizer, no template
    struct params_limits limits;
    struct request defaults; // without prompt
    int64_t n_ctx;           // tokens of a request, prompt and reply together
    int64_t n_ctx_train;     // that the model was trained for

    struct metrics metrics;
    struct completion *completions; // in progress
    struct warm *warm;              // texts that are read ahead
    struct response_store responses;
    struct str out;          // scratch of the loop thread
    struct json_writer json; // likewise
};

// Answers a request, now or later. rest: what follows a path that ends in a slash.
typedef void service_handler(struct service *s, struct exchange *x, const char *rest);

// Answers an exchange with a JSON body, and empties the writer.
void service_json(struct exchange *x, int status, struct json_writer *w);
// Answers with an error in the form that the client reads, and headers that tell it of retries.
void service_refuse(struct exchange *x, const struct api_error *why);
// The same of a request that has a name, of which clients have been told already.
void service_refuse_named(struct exchange *x, const struct api_error *why, const char *id);
// False with `why` filled while requests cannot be taken: loading, failed, ending.
bool service_ready(struct service *s, struct api_error *why);
void service_log(struct service *s, const struct request_record *r);
// The same of a request that has no more to say.
void service_log_ended(struct service *s, const struct http_ended *r);

#endif
