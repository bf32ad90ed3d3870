// SPDX-License-Identifier: Apache-2.0
// The server: one engine, one loop of connections, a few text workers, and the OpenAI interface
// over them (docs/server-api.md). It is created, run until it is stopped, and destroyed; it
// prints nothing.
#ifndef COPPICE_SERVE_SERVER_H
#define COPPICE_SERVE_SERVER_H

#include "serve/service.h"

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
// As chat_template_tool_format once the model is loaded; *lost as chat_template_loses_tools.
const char *server_tool_format(const struct server *v, bool *lost);
// How requests are sampled that do not say; *advised: the model's file says something of it. Once
// it is loaded.
const struct sample_params *server_sampling(const struct server *v, bool *advised);
int64_t server_cache_ram(const struct server *v); // bytes that the prefix cache may take

#endif
