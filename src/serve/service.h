// SPDX-License-Identifier: Apache-2.0
// What the handlers of all paths share: the options, the engine, the connections, the model's words
// and limits, counts, the requests in progress. It belongs to the loop thread; text workers read
// what never changes once the model is there.
#ifndef COPPICE_SERVE_SERVICE_H
#define COPPICE_SERVE_SERVICE_H

#include "compress/prefill.h"
#include "engine/loop/engine.h"
#include "serve/http/exchange.h"
#include "serve/http/http.h"
#include "serve/keep/file.h"
#include "serve/keep/setup.h"
#include "serve/metrics.h"
#include "serve/reply/store.h"
#include "serve/request/error.h"
#include "serve/request/params.h"
#include "serve/request_log.h"
#include "serve/workers.h"
#include "state/view.h"
#include "text/chat/chat.h"

struct server;
// What is pointed at must stay valid as long as the server.
struct server_options {
    struct engine_options engine; // `changed` is the server's
    struct http_options http;     // handler, refuse, arg and open paths are the server's
    const char *name;             // the model's name for clients; NULL: its file's
    const char *warm_file;        // a conversation to be read at the start; NULL: none
    const char *template_file;    // a chat template in place of the model's own; NULL: none
    const char *tool_format;      // as chat_template_set_tool_format; NULL: "auto"
    // How long prompts are compressed, and by what; the mode is not off only with a compressor,
    // which is used in one thread.
    struct prefill_options prefill;
    struct compressor *compressor; // NULL: none
    int text_threads;              // that render and tokenise; 0: 2
    int alive_ms; // a stream without words for so long gets an empty chunk; 0: 5000
    // NULL, or called once, in the loop thread, with what requests get that do not say: how to
    // guess, by the draft model where there is one, and sampling as the model's file has it in
    // general.sampling.*, else as llama-server takes it. It may change both.
    void (*defaults)(void *arg, const struct session *s, struct request *r);
    void *defaults_arg;
    struct request_log log; // of each request, with its end, in the loop thread
    bool log_prompts;
    const char *build;     // labels of coppice_build_info; NULL: /metrics does not have it
    const char *keep_file; // answered requests are kept there (keep/file.h); NULL: nowhere
    int64_t keep_bytes;    // with the older one
    bool keep_hashes;      // on a GPU with the hash over logits, which a CPU's have
    // NULL, or called once in the loop thread when the model is loaded, or with why it is not.
    void (*loaded)(void *arg, struct server *v, const struct err *failure);
    void *loaded_arg;
};

struct completion;
struct warmup;
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
    uint64_t seed;   // of hashes that clients must not be able to predict

    // Of the model: set once, in the loop thread, when it has been loaded, and then never changed.
    bool ready;
    const struct tokenizer *tokenizer; // NULL: the file has none
    struct chat_template *chat;        // NULL: chat_error says why
    struct err chat_error;
    struct tool_constraints *tool_constraints; // NULL: no tokenizer, no template
    struct params_limits limits;
    const char *drafts[PRICE_DRAFTS];  // what the drafts are called; NULL after the last
    struct request defaults;           // without prompt
    int64_t n_ctx;                     // tokens of a request, prompt and reply together
    int64_t n_ctx_train;               // that the model was trained for
    const char *kv_type_k, *kv_type_v; // codecs of keys and of values
    struct view_rule view;             // of replies

    struct keep_file *kept;    // NULL: nothing is kept
    struct keep_setup kept_by; // what its lines say of the model, once that is loaded
    bool keep_hashes;          // of all answers
    bool keep_fails;           // the newest line could not be written, which has been said

    struct metrics metrics;
    struct completion *completions; // in progress
    struct warmup *warm;            // texts that are read ahead
    struct response_store responses;
    struct str out;          // scratch of the loop thread
    struct json_writer json; // likewise
};

// Answers a request, now or later. rest: what follows a path that ends in a slash.
typedef void service_handler(struct service *s, struct exchange *x, const char *rest);

// Answers an exchange with a JSON body, and empties the writer.
void service_json(struct exchange *x, int status, struct json_writer *w);
// Answers with an error in the form that the client reads, and headers about retries.
void service_refuse(struct exchange *x, const struct api_error *why);
// The same of a request that has a name, which clients know already.
void service_refuse_named(struct exchange *x, const struct api_error *why, const char *id);
// False with `why` filled while requests cannot be taken: loading, failed, ending.
bool service_ready(struct service *s, struct api_error *why);

#endif
