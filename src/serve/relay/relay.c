// SPDX-License-Identifier: Apache-2.0
// The server that passes requests on: what it answers itself, and its begin and end; see relay.h.
#include "serve/relay/relay.h"

#include <stdlib.h>
#include <string.h>

#include "serve/api/api.h"
#include "serve/relay/impl.h"

enum { WORKER_QUEUE = 4096 };

static void refuse_path(struct exchange *x, const char *path) {
    struct api_error why;
    struct json_writer w = {0};
    api_fail(&why, 404, NULL,
             "there is nothing at %.300s: this server passes on what is under /v1/, and has "
             "/health and /metrics",
             path);
    api_error_write(&w, &why, API_OPENAI, NULL);
    exchange_header(x, "x-should-retry", "false");
    service_json(x, 404, &w);
}

static void health(const struct relay *r, struct exchange *x) {
    struct json_writer w = {0};
    jw_begin(&w, '{');
    jw_key_str(&w, "status", http_draining(r->http) ? "shutting down" : "ok");
    jw_key_str(&w, "upstream", upstream_name(r->upstream));
    jw_end(&w, '}');
    service_json(x, http_draining(r->http) ? 503 : 200, &w);
}

static void metrics(struct relay *r, struct exchange *x) {
    static const char *const ends[] = {"end=\"answered\"", "end=\"cancelled\"", "end=\"failed\"",
                                       "end=\"late\"", "end=\"refused\""};
    struct str out = {0};
    metrics_histogram(&out, "coppice_first_byte_seconds",
                      "Time from the arrival of a request to the first byte of the upstream's "
                      "answer.",
                      &r->first);
    metrics_histogram(&out, "coppice_request_seconds",
                      "Time from the arrival of a request to the end of its answer.", &r->whole);
    metrics_head(&out, "coppice_requests_total", "counter", "Requests that have ended, by how.");
    for (int i = 0; i < RELAY_ENDS; i++)
        metrics_value(&out, "coppice_requests_total", ends[i], (double)r->ends[i]);
    metrics_head(&out, "coppice_requests_open", "gauge", "Requests that are on their way.");
    metrics_value(&out, "coppice_requests_open", "", (double)r->open);
    metrics_write_compression(&r->metrics, &out);
    exchange_reply(x, out.failed ? 503 : 200, "text/plain; version=0.0.4; charset=utf-8",
                   out.data ? out.data : "", out.len);
    str_fini(&out);
}

// A path that another server would take for one outside of /v1/.
static bool climbs(const char *path) {
    return strstr(path, "/../") || strstr(path, "/./") || strstr(path, "//") ||
           strchr(path, '\\') || (strlen(path) > 2 && !strcmp(path + strlen(path) - 3, "/.."));
}

static bool is_own(const char *path) {
    return !strcmp(path, "/health") || !strcmp(path, "/v1/health") || !strcmp(path, "/metrics");
}

// What the upstream takes is not known here.
static void methods(void *arg, const char *path, struct str *out) {
    (void)arg;
    if (is_own(path))
        str_puts(out, "GET, HEAD");
    else if (strncmp(path, "/v1/", 4) == 0 && !climbs(path))
        str_puts(out, "GET, HEAD, POST, PUT, PATCH, DELETE");
}

static void handle(void *arg, struct exchange *x) {
    struct relay *r = arg;
    const char *path = exchange_path(x);
    bool get = !strcmp(exchange_method(x), "GET");
    if (get && (!strcmp(path, "/health") || !strcmp(path, "/v1/health")))
        health(r, x);
    else if (get && !strcmp(path, "/metrics"))
        metrics(r, x);
    else if (strncmp(path, "/v1/", 4) != 0 || climbs(path))
        refuse_path(x, path);
    else
        relayed_start(r, x);
}

static const char *refuse(void *arg, const struct http_refusal *why, struct str *body) {
    (void)arg;
    return api_refusal(why, body);
}

static void ended(void *arg, const struct http_ended *e) {
    struct relay *r = arg;
    struct str line = {0};
    if (!r->o.log)
        return;
    request_log_ended(&line, e, r->o.log_json);
    if (!line.failed)
        r->o.log(r->o.log_arg, line.data, line.len);
    str_fini(&line);
}

static int start(struct relay *r, struct err *e) {
    static const char *const open_paths[] = {"/health", "/v1/health"};
    struct http_options *h = &r->o.http;
    h->handler = handle;
    h->refuse = refuse;
    h->ended = ended;
    h->methods = methods;
    h->arg = r;
    h->open_paths = open_paths;
    h->n_open_paths = sizeof open_paths / sizeof open_paths[0];
    metrics_init(&r->metrics);
    r->first = r->whole = r->metrics.whole;
    int rc = http_create(&r->http, h, e);
    if (!rc)
        rc = upstream_create(&r->upstream, r->http, &r->o.upstream, e);
    if (!rc)
        rc = http_listen(r->http, e);
    if (!rc && r->o.compressor)
        rc = workers_create(&r->shorteners, 1, WORKER_QUEUE, e);
    return rc ? rc
              : workers_create(&r->workers, r->o.text_threads > 0 ? r->o.text_threads : 2,
                               WORKER_QUEUE, e);
}

int relay_create(struct relay **out, const struct relay_options *o, struct err *e) {
    struct relay *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r)
        return err_set(e, ERR_MEMORY, "no memory for a server");
    r->o = *o;
    int rc = start(r, e);
    if (rc)
        relay_destroy(r);
    else
        *out = r;
    return rc;
}

int relay_run(struct relay *r, struct err *e) {
    return http_run(r->http, e);
}

void relay_stop(struct relay *r) {
    http_stop(r->http);
}

void relay_destroy(struct relay *r) {
    if (!r)
        return;
    workers_destroy(r->workers); // they hand over to the next
    workers_destroy(r->shorteners);
    relayed_free_all(r);
    upstream_destroy(r->upstream);
    if (r->http)
        http_destroy(r->http);
    str_fini(&r->out);
    free(r);
}

const char *relay_address(const struct relay *r, size_t i) {
    return http_address(r->http, i);
}

const char *relay_upstream(const struct relay *r) {
    return upstream_name(r->upstream);
}
