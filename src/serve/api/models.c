// SPDX-License-Identifier: Apache-2.0
// The one model that is served, as clients list models; see handlers.h.
#include "serve/api/handlers.h"

#include <string.h>
#include <time.h>

// One object for the clients of both interfaces, which read different members of it. Servers have
// several names for the context; clients read one of them.
static void put_model(const struct service *s, struct json_writer *w) {
    char day[32] = "";
    struct tm t;
    time_t started = (time_t)s->started;
    if (gmtime_r(&started, &t))
        strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%SZ", &t);
    jw_begin(w, '{');
    jw_key_str(w, "id", s->model);
    jw_key_str(w, "object", "model");
    jw_key_int(w, "created", s->started);
    jw_key_str(w, "owned_by", "coppice");
    jw_key_str(w, "type", "model");
    jw_key_str(w, "display_name", s->model);
    jw_key_str(w, "created_at", day);
    jw_key_str(w, "lifecycle", "active");
    if (s->ready) {
        jw_key_int(w, "context_length", s->n_ctx);
        jw_key_int(w, "max_context_length", s->n_ctx);
        jw_key_int(w, "max_model_len", s->n_ctx);
        jw_key_int(w, "max_input_tokens", s->n_ctx);
        jw_key_int(w, "max_tokens", s->n_ctx);
        jw_key_begin(w, "meta", '{');
        jw_key_int(w, "n_vocab", s->limits.vocab);
        jw_key_int(w, "n_ctx_train", s->n_ctx_train);
        jw_end(w, '}');
    }
    jw_end(w, '}');
}

static void put_efforts(struct json_writer *w) {
    static const char *const efforts[][2] = {{"none", "No thinking"},
                                             {"low", "A little thinking"},
                                             {"medium", "Some thinking"},
                                             {"high", "As much thinking as it takes"}};
    jw_key_begin(w, "supported_reasoning_levels", '[');
    for (size_t i = 0; i < sizeof efforts / sizeof efforts[0]; i++) {
        jw_begin(w, '{');
        jw_key_str(w, "effort", efforts[i][0]);
        jw_key_str(w, "description", efforts[i][1]);
        jw_end(w, '}');
    }
    jw_end(w, ']');
}

// The members that Codex cannot do without, and those that keep it within what is served here: it
// takes the instructions for its own where the user gives none.
static void put_codex(const struct service *s, struct json_writer *w) {
    jw_begin(w, '{');
    jw_key_str(w, "slug", s->model);
    jw_key_str(w, "display_name", s->model);
    jw_key_str(w, "description", "A model on this machine.");
    put_efforts(w);
    jw_key_str(w, "shell_type", "shell_command");
    jw_key_str(w, "visibility", "list");
    jw_key_bool(w, "supported_in_api", true);
    jw_key_int(w, "priority", 0);
    jw_key_str(
        w, "base_instructions",
        "You are a coding agent in the user's terminal. Look at files and run commands with "
        "the tools that you have, change what the task needs and nothing else, check that it "
        "works, and say shortly what you did.");
    jw_key_bool(w, "supports_reasoning_summaries", true);
    jw_key_bool(w, "support_verbosity", false);
    jw_key_begin(w, "truncation_policy", '{');
    jw_key_str(w, "mode", "bytes");
    jw_key_int(w, "limit", 10000);
    jw_end(w, '}');
    jw_key_bool(w, "supports_parallel_tool_calls", true);
    if (s->ready)
        jw_key_int(w, "context_window", s->n_ctx);
    jw_key_begin(w, "experimental_supported_tools", '[');
    jw_end(w, ']');
    jw_key_begin(w, "input_modalities", '[');
    jw_cstr(w, "text");
    jw_end(w, ']');
    jw_end(w, '}');
}

static void put_lmstudio(const struct service *s, struct json_writer *w) {
    jw_begin(w, '{');
    jw_key_str(w, "id", s->model);
    jw_key_str(w, "object", "model");
    jw_key_str(w, "type", "llm");
    jw_key_str(w, "publisher", "coppice");
    jw_key_str(w, "arch", s->arch);
    jw_key_str(w, "compatibility_type", "gguf");
    jw_key_str(w, "quantization", s->quantization);
    jw_key_str(w, "state", s->ready ? "loaded" : "not-loaded");
    jw_key_int(w, "max_context_length", s->ready ? s->n_ctx_train : 0);
    if (s->ready)
        jw_key_int(w, "loaded_context_length", s->n_ctx);
    jw_end(w, '}');
}

typedef void put_fn(const struct service *s, struct json_writer *w);

static void put_array(const struct service *s, struct json_writer *w, const char *key,
                      put_fn *put) {
    jw_key_begin(w, key, '[');
    if (put)
        put(s, w);
    jw_end(w, ']');
}

// Whether the query is for something else than the one model: pages that begin after an id or end
// before one, models of the past.
static bool asks_for_others(const char *query) {
    return strstr(query, "after_id=") || strstr(query, "before_id=") ||
           (strstr(query, "lifecycle") && !strstr(query, "active"));
}

static void put_model_list(struct service *s, struct exchange *x, put_fn *put) {
    struct json_writer w = {0};
    bool none = put == put_model && asks_for_others(exchange_query(x));
    jw_begin(&w, '{');
    jw_key_str(&w, "object", "list");
    put_array(s, &w, "data", none ? NULL : put);
    if (put == put_model) {
        jw_key_bool(&w, "has_more", false);
        jw_key_str(&w, "first_id", none ? NULL : s->model);
        jw_key_str(&w, "last_id", none ? NULL : s->model);
    }
    if (put == put_model && strstr(exchange_query(x), "client_version="))
        put_array(s, &w, "models", put_codex);
    jw_end(&w, '}');
    service_json(x, 200, &w);
}

static void put_one_model(struct service *s, struct exchange *x, const char *id, put_fn *put) {
    struct json_writer w = {0};
    struct api_error why = {0};
    if (strcmp(id, s->model) != 0) {
        api_fail(&why, 404, "model_not_found", "the model '%.200s' is not served here: '%.200s' is",
                 id, s->model);
        service_refuse(x, &why);
        return;
    }
    put(s, &w);
    service_json(x, 200, &w);
}

void api_models(struct service *s, struct exchange *x, const char *rest) {
    (void)rest;
    put_model_list(s, x, put_model);
}

void api_model(struct service *s, struct exchange *x, const char *id) {
    put_one_model(s, x, id, put_model);
}

void api_lmstudio_models(struct service *s, struct exchange *x, const char *rest) {
    (void)rest;
    put_model_list(s, x, put_lmstudio);
}

void api_lmstudio_model(struct service *s, struct exchange *x, const char *id) {
    put_one_model(s, x, id, put_lmstudio);
}
