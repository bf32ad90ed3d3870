// SPDX-License-Identifier: Apache-2.0
// Paths to handlers; see api.h.
#include "serve/api/api.h"

#include <string.h>
#include <strings.h>

#include "serve/api/handlers.h"
#include "serve/completion/lifecycle.h"
#include "serve/page/page.h"

static void watch_trees(struct service *s, struct exchange *x, const char *rest) {
    static const char end[] = "/trees";
    struct api_error why = {0};
    char id[RANDOM_ID] = "";
    size_t n = strlen(rest), tail = sizeof end - 1;
    if (n > tail && n - tail < sizeof id && !strcmp(rest + n - tail, end))
        memcpy(id, rest, n - tail);
    if (id[0] && completion_watch(s, x, id))
        return;
    api_fail(&why, 404, NULL,
             "no request of that id keeps trees: it must have asked for coppice.trees, not be "
             "watched already, and not have ended long ago");
    service_refuse(x, &why);
}

static void page(struct service *s, struct exchange *x, const char *rest) {
    struct page p = page_get();
    const char *had = exchange_request_header(x, "if-none-match");
    (void)s, (void)rest;
    exchange_header(x, "Content-Security-Policy", p.policy);
    exchange_header(x, "X-Content-Type-Options", "nosniff");
    exchange_header(x, "Referrer-Policy", "no-referrer");
    exchange_header(x, "Cache-Control", "no-cache");
    exchange_header(x, "ETag", p.etag);
    if (had && !strcmp(had, p.etag))
        exchange_reply(x, 304, NULL, NULL, 0);
    else
        exchange_reply(x, 200, "text/html; charset=utf-8", p.html, p.size);
}

static service_handler openapi;

const struct route api_routes[] = {
    {"POST", "/v1/chat/completions", .dialect = &api_chat_dialect,
     .summary = "The answer to a conversation.", .body = ENDPOINT_CHAT, .answer = "ChatCompletion"},
    {"POST", "/chat/completions", .dialect = &api_chat_dialect},
    {"POST", "/v1/responses", .dialect = &api_responses_dialect,
     .summary = "The answer to items of a conversation.", .body = ENDPOINT_RESPONSES,
     .answer = "Response"},
    {"POST", "/responses", .dialect = &api_responses_dialect},
    {"POST", "/v1/responses/input_tokens", .work = text_input_tokens,
     .summary = "The tokens of its prompt.", .body = ENDPOINT_INPUT_TOKENS,
     .answer = "InputTokens"},
    {"GET", "/v1/responses/", api_response_get,
     "A kept response, or with /input_items after the id what it answered.", .answer = "Object",
     .rest = "{response_id}"},
    {"DELETE", "/v1/responses/", api_response_delete, "Keeps a response no longer.",
     .answer = "Object", .rest = "{response_id}"},
    {"POST", "/v1/responses/", .handle = api_response_cancel, .rest = "{response_id}/cancel"},
    {"POST", "/v1/responses/compact", .handle = api_responses_compact},
    {"POST", "/v1/completions", .dialect = &api_completions_dialect,
     .summary = "The continuation of a text.", .body = ENDPOINT_COMPLETIONS,
     .answer = "Completion"},
    {"POST", "/v1/messages", .dialect = &api_messages_dialect,
     .summary = "The answer to a conversation, for Anthropic's clients.",
     .body = ENDPOINT_ANTHROPIC, .answer = "AnthropicMessage"},
    {"POST", "/v1/messages/count_tokens", .work = text_count_tokens,
     .summary = "The tokens of its prompt.", .body = ENDPOINT_COUNT, .answer = "TokenCount"},
    {"GET", "/v1/models", api_models, "The models that are served.", .answer = "Models"},
    {"GET", "/models", .handle = api_models},
    {"GET", "/v1/models/", api_model, "One of them.", .answer = "Model", .rest = "{model}"},
    {"POST", "/v1/tokenize", .work = text_tokenize, .summary = "Text to token ids.",
     .body = ENDPOINT_TOKENIZE, .answer = "Tokens"},
    {"POST", "/tokenize", .work = text_tokenize, .body = ENDPOINT_TOKENIZE},
    {"POST", "/v1/detokenize", .work = text_detokenize, .summary = "Token ids to text.",
     .body = ENDPOINT_DETOKENIZE, .answer = "Text"},
    {"POST", "/detokenize", .work = text_detokenize, .body = ENDPOINT_DETOKENIZE},
    {"GET", "/tokenizer_info", api_tokenizer_info,
     "Marks and chat template of the tokenizer, as vLLM's clients ask.", .answer = "Object"},
    {"POST", "/apply-template", .work = text_apply_template,
     .summary = "The prompt that a conversation becomes.", .body = ENDPOINT_TEMPLATE,
     .answer = "Prompt"},
    {"GET", "/health", api_health, "Whether requests are answered.", .answer = "Health"},
    {"GET", "/v1/health", .handle = api_health},
    {"GET", "/props", api_props, "Defaults and limits.", .answer = "Object"},
    {"GET", "/slots", api_slots, "What each request in progress is at.", .answer = "Slots"},
    {"GET", "/metrics", api_metrics, "Counts and histograms for Prometheus.", .type = "text/plain"},
    {"GET", "/api/v0/models", api_lmstudio_models, "The models, as LM Studio's clients ask.",
     .answer = "LoadedModels"},
    {"GET", "/api/v0/models/", api_lmstudio_model, "One of them.", .answer = "LoadedModel",
     .rest = "{model}"},
    {"GET", "/v1/streams/", watch_trees, "Trees of guesses of a request with coppice.trees.",
     .type = "text/event-stream", .rest = "{id}/trees"},
    {"GET", "/openapi.json", openapi, "This document.", .answer = "Object"},
    {"GET", "/", page, "The page.", .type = "text/html"},
};
const size_t api_routes_count = sizeof api_routes / sizeof api_routes[0];

static void openapi(struct service *s, struct exchange *x, const char *rest) {
    struct json_writer w = {0};
    (void)s, (void)rest;
    openapi_write(&w.out, api_routes, api_routes_count);
    service_json(x, 200, &w);
}

static bool takes_rest(const struct route *r) {
    size_t n = strlen(r->path);
    return n > 1 && r->path[n - 1] == '/';
}

// Whether a route has this very path; those that take a rest have nothing to do with it then.
static bool is_exact(const char *path) {
    bool found = false;
    for (size_t i = 0; i < api_routes_count; i++)
        found |= !takes_rest(&api_routes[i]) && !strcmp(api_routes[i].path, path);
    return found;
}

// The rest of the path after the route, "" when that is all; NULL: another path. exact: of
// is_exact.
static const char *match_route(const struct route *r, const char *path, bool exact) {
    size_t n = strlen(r->path);
    if (strncmp(path, r->path, n) != 0)
        return NULL;
    bool open = takes_rest(r);
    if (open && exact)
        return NULL;
    const char *tail = r->rest ? strchr(r->rest, '}') + 1 : "";
    size_t m = strlen(path + n), t = strlen(tail);
    if (t && (m <= t || strcmp(path + n + m - t, tail) != 0))
        return NULL;
    return (open ? path[n] != 0 : path[n] == 0) ? path + n : NULL;
}

// A body that is packed would only be found to be no JSON.
static bool is_packed(const struct exchange *x, struct api_error *why) {
    const char *coding = exchange_request_header(x, "content-encoding");
    if (!coding || !coding[0] || !strcasecmp(coding, "identity"))
        return false;
    api_fail(why, 415, NULL,
             "the body comes with Content-Encoding %.40s, and bodies are read without any here",
             coding);
    why->repeats = true;
    return true;
}

void api_methods(const char *path, struct str *methods) {
    bool exact = is_exact(path);
    for (size_t i = 0; i < api_routes_count; i++) {
        const struct route *r = &api_routes[i];
        if (match_route(r, path, exact))
            str_printf(methods, "%s%s%s", methods->len ? ", " : "", r->method,
                       !strcmp(r->method, "GET") ? ", HEAD" : "");
    }
}

// The answer where no route takes the request.
static void refuse_route(struct exchange *x, const char *method, const char *path) {
    struct str allowed = {0};
    struct api_error why = {0};
    api_methods(path, &allowed);
    if (allowed.len) {
        api_fail(&why, 405, NULL, "%.20s is not allowed for %.200s: use %s", method, path,
                 allowed.data);
        str_puts(&allowed, ", OPTIONS");
        exchange_header(x, "Allow", allowed.data ? allowed.data : "");
    } else {
        api_fail(&why, 404, NULL, "there is nothing at %.300s; docs/server-api.md lists the paths",
                 path);
    }
    str_fini(&allowed);
    service_refuse(x, &why);
}

void api_handle(struct service *s, struct exchange *x) {
    const char *path = exchange_path(x), *method = exchange_method(x);
    bool exact = is_exact(path);
    struct api_error why = {0};
    for (size_t i = 0; i < api_routes_count; i++) {
        const char *rest = match_route(&api_routes[i], path, exact);
        if (rest && !strcmp(method, api_routes[i].method)) {
            if (!strcmp(method, "POST") && is_packed(x, &why))
                service_refuse(x, &why);
            else if (api_routes[i].dialect)
                completion_start(s, x, api_routes[i].dialect);
            else if (api_routes[i].work)
                text_start(s, x, api_routes[i].body, api_routes[i].work);
            else
                api_routes[i].handle(s, x, rest);
            return;
        }
    }
    refuse_route(x, method, path);
}

const char *api_refusal(const struct http_refusal *r, struct str *body) {
    struct json_writer w = {0};
    struct api_error why;
    api_fail(&why, r->status, r->status == 401 ? "invalid_api_key" : NULL, "%s", r->reason);
    api_error_write(&w, &why, api_error_format_of(r->path), NULL);
    if (w.out.data)
        str_append(body, w.out.data, w.out.len);
    body->failed |= w.out.failed;
    str_fini(&w.out);
    return "application/json; charset=utf-8";
}
