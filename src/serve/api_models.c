// SPDX-License-Identifier: Apache-2.0
// The one model that is served, as clients list models; see api_models.h.
#include "serve/api_models.h"

#include <string.h>

// Servers have three names for the context; clients read one of them.
static void put_model(const struct service *s, struct json_writer *w) {
    jw_begin(w, '{');
    jw_key_str(w, "id", s->model);
    jw_key_str(w, "object", "model");
    jw_key_int(w, "created", s->started);
    jw_key_str(w, "owned_by", "coppice");
    if (s->ready) {
        jw_key_int(w, "context_length", s->n_ctx);
        jw_key_int(w, "max_context_length", s->n_ctx);
        jw_key_int(w, "max_model_len", s->n_ctx);
        jw_key(w, "meta");
        jw_begin(w, '{');
        jw_key_int(w, "n_vocab", s->limits.vocab);
        jw_key_int(w, "n_ctx_train", s->n_ctx_train);
        jw_end(w, '}');
    }
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

static void list(struct service *s, struct exchange *x, put_fn *put) {
    struct json_writer w = {0};
    jw_begin(&w, '{');
    jw_key_str(&w, "object", "list");
    jw_key(&w, "data");
    jw_begin(&w, '[');
    put(s, &w);
    jw_end(&w, ']');
    jw_end(&w, '}');
    service_json(x, 200, &w);
}

static void one(struct service *s, struct exchange *x, const char *id, put_fn *put) {
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
    list(s, x, put_model);
}

void api_model(struct service *s, struct exchange *x, const char *id) {
    one(s, x, id, put_model);
}

void api_lmstudio_models(struct service *s, struct exchange *x, const char *rest) {
    (void)rest;
    list(s, x, put_lmstudio);
}

void api_lmstudio_model(struct service *s, struct exchange *x, const char *id) {
    one(s, x, id, put_lmstudio);
}
