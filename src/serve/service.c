// SPDX-License-Identifier: Apache-2.0
// What handlers share; see service.h.
#include "serve/service.h"

#include <stdio.h>

#include "base/rng.h"

static const char json_type[] = "application/json; charset=utf-8";

void service_json(struct exchange *x, int status, struct json_writer *w) {
    static const char no_memory[] =
        "{\"error\":{\"message\":\"no memory for the answer\",\"type\":\"server_error\","
        "\"param\":null,\"code\":null}}";
    if (w->out.failed || !w->out.data)
        exchange_reply(x, 500, json_type, no_memory, sizeof no_memory - 1);
    else
        exchange_reply(x, status, json_type, w->out.data, w->out.len);
    str_fini(&w->out);
    *w = (struct json_writer){0};
}

// Requests of Anthropic's clients say so by their path, or in a header where the path is shared.
static enum api_error_format form_of(const struct exchange *x) {
    if (exchange_request_header(x, "anthropic-version"))
        return API_ANTHROPIC;
    return api_error_format_of(exchange_path(x));
}

void service_refuse_named(struct exchange *x, const struct api_error *why, const char *id) {
    struct json_writer w = {0};
    char seconds[16];
    enum api_error_format format = form_of(x);
    api_error_write(&w, why, format, id);
    if (why->repeats)
        exchange_header(x, "x-should-retry", "false");
    if (why->retry_after > 0) {
        snprintf(seconds, sizeof seconds, "%d", why->retry_after);
        exchange_header(x, "Retry-After", seconds);
    }
    service_json(x, api_error_status(why, format), &w);
}

void service_refuse(struct exchange *x, const struct api_error *why) {
    char id[RANDOM_ID];
    random_id(id, "req_");
    if (form_of(x) == API_ANTHROPIC)
        exchange_header(x, "request-id", id);
    service_refuse_named(x, why, id);
}

bool service_ready(struct service *s, struct api_error *why) {
    struct err e = {0};
    enum engine_state state = engine_state(s->engine, &e);
    if (state == ENGINE_FAILED) {
        api_fail(why, 500, "engine_failed", "the engine has failed: %.400s", e.text);
        why->repeats = true;
    } else if (http_draining(s->http) || state == ENGINE_STOPPED) {
        api_fail(why, 503, "shutting_down", "the server is shutting down");
    } else if (!s->ready) {
        api_fail(why, 503, "loading", "the model is still being loaded: ask again in a moment");
        why->retry_after = 1;
    } else {
        return true;
    }
    return false;
}
