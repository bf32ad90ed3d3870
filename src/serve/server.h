// SPDX-License-Identifier: Apache-2.0
// The server: one engine, one loop of connections, a few text workers, and the OpenAI interface
// over them (docs/server-api.md). It is created, run until it is told to stop, and destroyed; it
// prints nothing.
#ifndef COPPICE_SERVE_SERVER_H
#define COPPICE_SERVE_SERVER_H

#include "compress/prefill.h"
#include "engine/loop/engine.h"
#include "serve/http/http.h"

struct server;

// What is pointed at must live as long as the server.
struct server_options {
    struct engine_options engine; // `changed` is the server's
    struct http_options http;     // handler, refuse, arg and open paths are the server's
    const char *name;             // the model's name for clients; NULL: its file's
    const char *warm_file;        // a conversation to be read at the start; NULL: none
    const char *template_file;    // a chat template in place of the model's own; NULL: none
    // How long prompts are compressed, and by what; the mode is not off only with a compressor,
    // which is used in one thread.
    struct prefill_options prefill;
    struct compressor *compressor; // NULL: none
    int text_threads;              // that render and tokenise; 0: 2
    int alive_ms; // a stream without words for so long gets an empty chunk; 0: 5000
    // NULL, or told once, in the loop thread, what requests get that do not say: how to guess, by
    // the draft model where there is one, and sampling as the model's file has it in
    // general.sampling.*, else at temperature 1. It may change both.
    void (*defaults)(void *arg, const struct session *s, struct request *r);
    void *defaults_arg;
    // One line for each request, with its end, in the loop thread; NULL: none.
    void (*log)(void *arg, const char *line, size_t n);
    void *log_arg;
    bool log_json, log_prompts;
    // NULL, or told once in the loop thread that the model is loaded, or why it is not.
    void (*loaded)(void *arg, struct server *v, const struct err *failure);
    void *loaded_arg;
};

struct server_options server_options_default(void);

// Opens the model's file for what it says, starts loading it, and binds the address. Requests are
// answered once server_run runs, with 503 until the model is there.
int server_create(struct server **out, const struct server_options *o, struct err *e);
// Serves until server_stop, a signal (http_options.signals) or a failure of the engine, which is
// the error then.
int server_run(struct server *v, struct err *e);
void server_stop(struct server *v);    // any thread and signal handlers; see http_stop
void server_destroy(struct server *v); // NULL is allowed

struct engine *server_engine(struct server *v);
const char *server_address(const struct server *v, size_t i); // as http_address
const char *server_model(const struct server *v);             // its name for clients

#endif
