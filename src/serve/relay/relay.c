// SPDX-License-Identifier: Apache-2.0
// The server that passes requests on; see relay.h. First one request through it, in the loop thread
// but for the reading of its body; then what the server answers itself, its begin and its end. An
// answer in JSON is kept until it is whole, so that an upstream that breaks off becomes one
// sentence and not half an object; streams and all else are handed on as they come, and held back
// at the upstream where the client takes no more.
#include "serve/relay/relay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "serve/api/api.h"
#include "serve/http/message.h"
#include "serve/relay/impl.h"

enum { WORKER_QUEUE = 4096, ANSWER_KEPT = 64 << 20, FIELDS_SENT = HTTP_FIELDS_MAX + 1 };

static void unlink_relayed(struct relayed *q) {
    if (q->prev)
        q->prev->next = q->next;
    else
        q->r->all = q->next;
    if (q->next)
        q->next->prev = q->prev;
    q->r->open--;
}

static void free_relayed(struct relayed *q) {
    unlink_relayed(q);
    upstream_cancel(q->call);
    json_free(q->json);
    str_fini(&q->body);
    str_fini(&q->answer);
    relay_raw_fini(&q->chunks);
    http_memory_release(&q->memory);
    free(q);
}

static void free_all_relayed(struct relay *r) {
    while (r->all)
        free_relayed(r->all);
}

static void record_end(struct relayed *q, enum relay_end end, int status, const char *error) {
    struct relay *r = q->r;
    struct request_record line = {.id = q->id,
                                  .method = q->method,
                                  .path = q->path,
                                  .peer = q->peer,
                                  .status = status,
                                  .error = error,
                                  .totals = {.compression = q->compression},
                                  .total_ms = clock_ms() - q->arrived};
    r->ends[end]++;
    metrics_add_compression(&r->metrics, &q->compression);
    histogram_add(&r->whole, line.total_ms / 1e3, 1);
    request_log_write(&r->o.log, &line);
}

static void write_relayed_error(struct relayed *q, const struct api_error *why) {
    struct json_writer w = {0};
    api_error_write(&w, why, API_OPENAI, NULL);
    const char *text = w.out.data && !w.out.failed ? w.out.data : "{\"error\":{}}";
    if (q->streaming) {
        struct str event = {0};
        str_printf(&event, "data: %s\n\n", text);
        if (!event.failed)
            exchange_write(q->x, event.data, event.len);
        str_fini(&event);
        exchange_end(q->x);
    } else {
        char seconds[16];
        exchange_drop_headers(q->x); // those of an answer that has broken off
        exchange_header(q->x, "x-request-id", q->id);
        snprintf(seconds, sizeof seconds, "%d", why->retry_after);
        if (why->retry_after > 0)
            exchange_header(q->x, "Retry-After", seconds);
        exchange_reply(q->x, why->status, "application/json; charset=utf-8", text, strlen(text));
    }
    str_fini(&w.out);
}

// Ends it with a sentence, in whatever form is still possible: an event after whole events, or a
// connection that breaks inside of something.
static void fail_relayed(struct relayed *q, const struct api_error *why, enum relay_end end) {
    struct refusal_note note;
    record_end(q, end, why->status, request_log_refusal(&note, why, false));
    if (q->streaming && !(q->events && q->between))
        exchange_abort(q->x);
    else
        write_relayed_error(q, why);
    free_relayed(q);
}

// The bytes to the upstream and back to the client; a name that ends in * stands for all that
// begin so. Everything else is of one hop (RFC 9110, 7.6.1), made anew by each sender, or means
// the server that it was said by or to: cookies, policies, where else it is, what proxies believe.
static const char *const to_upstream[] = {"accept",           "accept-language",
                                          "anthropic-*",      "api-key",
                                          "authorization",    "content-encoding",
                                          "content-language", "content-type",
                                          "http-referer",     "idempotency-key",
                                          "openai-*",         "priority",
                                          "traceparent",      "tracestate",
                                          "user-agent",       "via",
                                          "x-api-key",        "x-client-request-id",
                                          "x-request-id",     "x-stainless-*",
                                          "x-title",          NULL};
static const char *const to_client[] = {"anthropic-ratelimit-*",
                                        "cache-control",
                                        "content-disposition",
                                        "content-encoding",
                                        "content-language",
                                        "etag",
                                        "expires",
                                        "last-modified",
                                        "openai-model",
                                        "openai-processing-ms",
                                        "openai-version",
                                        "ratelimit",
                                        "ratelimit-*",
                                        "request-id",
                                        "retry-after",
                                        "retry-after-ms",
                                        "vary",
                                        "x-coppice-*",
                                        "x-ignored-fields",
                                        "x-ratelimit-*",
                                        "x-request-id",
                                        "x-should-retry",
                                        NULL};

static bool is_in_field_list(const char *name, const char *const *list) {
    for (; *list; list++) {
        size_t n = strlen(*list) - 1;
        if ((*list)[n] == '*' ? !strncasecmp(name, *list, n) : !strcasecmp(name, *list))
            return true;
    }
    return false;
}

// Whether a field of the name Connection says that this one is of one hop.
static bool is_listed(const char *name, const struct http_field *fields, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!strcasecmp(fields[i].name, "connection") && http_has_word(fields[i].value, name))
            return true;
    return false;
}

static bool is_request_field(const struct relayed *q, const char *name) {
    const struct relay *r = q->r;
    bool key = !strcasecmp(name, "authorization") || !strcasecmp(name, "x-api-key") ||
               !strcasecmp(name, "api-key");
    return is_in_field_list(name, to_upstream) &&
           !(key && (r->o.http.n_keys > 0 || upstream_has_key(r->upstream)));
}

// The fields of the request that go on, into fields[FIELDS_SENT], and a mark of this hop.
static size_t copy_request_fields(const struct relayed *q, struct http_field *fields) {
    struct http_field all[HTTP_FIELDS_MAX];
    const char *name, *value;
    size_t n = 0, kept = 0;
    for (; n < HTTP_FIELDS_MAX && exchange_request_field(q->x, n, &name, &value); n++)
        all[n] = (struct http_field){name, value};
    for (size_t i = 0; i < n; i++)
        if (is_request_field(q, all[i].name) && !is_listed(all[i].name, all, n))
            fields[kept++] = all[i];
    fields[kept++] = (struct http_field){"Via", "1.1 coppice"};
    return kept;
}

// The timings of an answer of our own.
static void say_compression(struct relayed *q) {
    struct json_writer w = {0};
    prefill_report_write(&w, &q->compression);
    if (w.out.data && !w.out.failed)
        exchange_header(q->x, "x-coppice-compression", w.out.data);
    str_fini(&w.out);
}

static void copy_fields(struct relayed *q, const struct http_field *fields, size_t n) {
    bool named = false;
    for (size_t i = 0; i < n; i++) {
        const char *name = fields[i].name;
        if (!is_in_field_list(name, to_client) || is_listed(name, fields, n))
            continue;
        named |= !strcasecmp(name, "x-request-id");
        exchange_header(q->x, name, fields[i].value);
    }
    if (!named)
        exchange_header(q->x, "x-request-id", q->id);
    if (q->compression.tried)
        say_compression(q);
}

static void begin_stream(struct relayed *q) {
    q->streaming = q->between = true;
    exchange_begin(q->x, q->status, q->type[0] ? q->type : NULL);
    if (q->answer.len)
        exchange_write(q->x, q->answer.data, q->answer.len);
    str_fini(&q->answer);
}

static void on_head(void *arg, const struct http_head *head) {
    struct relayed *q = arg;
    const char *type = http_head_field(head, "content-type");
    int status = q->status = head->status;
    type = type ? type : "";
    q->first = clock_ms();
    histogram_add(&q->r->first, (q->first - q->arrived) / 1e3, 1);
    snprintf(q->type, sizeof q->type, "%s", type);
    bool json = strcasestr(type, "json") != NULL;
    q->events = !strncasecmp(type, "text/event-stream", 17);
    q->odd = (status >= 300 && status < 400) || !strncasecmp(type, "text/html", 9) ||
             (q->text && !json && !q->events);
    if (q->odd)
        return;
    copy_fields(q, head->fields, head->n_fields);
    if (!json && status != 204)
        begin_stream(q);
}

// Whether the stream so far ends after an empty line.
static void see_tail(struct relayed *q, const char *bytes, size_t n) {
    for (size_t i = n > 4 ? n - 4 : 0; i < n; i++)
        q->tail = q->tail << 8 | (unsigned char)bytes[i];
    q->between =
        (q->tail & 0xFFFF) == 0x0A0A || q->tail == 0x0D0A0D0A || (q->tail & 0xFFFF) == 0x0D0D;
}

// Chunks of a completion as those of a chat.
static enum upstream_take hand_on_chunks(struct relayed *q, const char *bytes, size_t n) {
    struct str out = {0};
    bool ok = relay_raw_push(&q->chunks, bytes, n, &out);
    if (ok && out.len) {
        exchange_write(q->x, out.data, out.len);
        see_tail(q, out.data, out.len);
    }
    str_fini(&out);
    return ok ? UPSTREAM_MORE : UPSTREAM_STOP;
}

// A whole answer of a completion as a chat's; what is none stays.
static void convert_answer_to_chat(struct relayed *q) {
    struct str out = {0};
    if (relay_raw_answer(q->answer.data ? q->answer.data : "", q->answer.len, &out) && out.len) {
        str_fini(&q->answer);
        q->answer = out;
    } else {
        str_fini(&out);
    }
}

static enum upstream_take on_body(void *arg, const char *bytes, size_t n) {
    struct relayed *q = arg;
    if (q->odd) // what it is about is in the head
        return UPSTREAM_MORE;
    if (!q->streaming) {
        str_append(&q->answer, bytes, n);
        if (q->answer.failed)
            return UPSTREAM_STOP;
        if (q->answer.len > ANSWER_KEPT)
            begin_stream(q);
        return UPSTREAM_MORE;
    }
    if (exchange_backlog(q->x) > EXCHANGE_FULL)
        return UPSTREAM_PAUSE;
    if (q->raw && q->events)
        return hand_on_chunks(q, bytes, n);
    exchange_write(q->x, bytes, n);
    see_tail(q, bytes, n);
    return UPSTREAM_MORE;
}

static void explain_odd(const struct relayed *q, struct api_error *why) {
    const char *name = upstream_name(q->r->upstream);
    int status = q->status == 504 ? 504 : 502;
    if (q->status >= 300 && q->status < 400)
        api_fail(why, status, "upstream_failed",
                 "the upstream %.200s answered with status %d, which points elsewhere: give the "
                 "address that it points to",
                 name, q->status);
    else
        api_fail(why, status, "upstream_failed",
                 "the upstream %.200s answered with status %d and %.80s in place of JSON: is there "
                 "an OpenAI server at this address?",
                 name, q->status, q->type[0] ? q->type : "a body of no type");
}

static void on_end(void *arg, const struct api_error *why) {
    struct relayed *q = arg;
    struct api_error odd;
    q->call = NULL;
    if (why) {
        fail_relayed(q, why, why->status == 504 ? RELAY_LATE : RELAY_FAILED);
        return;
    }
    if (q->odd) {
        explain_odd(q, &odd);
        fail_relayed(q, &odd, RELAY_FAILED);
        return;
    }
    record_end(q, RELAY_ANSWERED, q->status, NULL);
    if (q->raw && !q->streaming)
        convert_answer_to_chat(q);
    if (q->streaming)
        exchange_end(q->x);
    else
        exchange_reply(q->x, q->status, q->type[0] ? q->type : NULL,
                       q->answer.data ? q->answer.data : "", q->answer.len);
    free_relayed(q);
}

// The path as it was sent, as far as that matters: what would be read otherwise is escaped again.
static void put_path(struct str *out, const struct exchange *x, bool raw) {
    if (raw) {
        str_puts(out, "/v1/completions");
        return;
    }
    for (const char *p = exchange_path(x); *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (c <= ' ' || c >= 0x7F || strchr("%?#\"<>\\^`{|}", c))
            str_printf(out, "%%%02X", c);
        else
            str_putc(out, *p);
    }
    if (*exchange_query(x))
        str_printf(out, "?%s", exchange_query(x));
}

static void send_upstream(struct relayed *q) {
    static const struct upstream_events events = {.head = on_head, .body = on_body, .end = on_end};
    struct http_field fields[FIELDS_SENT];
    struct upstream_request u = {.method = exchange_method(q->x), .fields = fields};
    struct str path = {0};
    struct err e = {0};
    u.n_fields = copy_request_fields(q, fields);
    put_path(&path, q->x, q->raw);
    u.path = path.data;
    u.body = q->body.len ? q->body.data : exchange_body(q->x, &u.n_body);
    if (q->body.len) {
        u.n_body = q->body.len;
        exchange_drop_body(q->x);
    }
    if (u.n_body == 0 && !strcmp(u.method, "GET"))
        u.body = NULL;
    int rc = path.failed ? err_set(&e, ERR_MEMORY, "no memory for a path")
                         : upstream_start(q->r->upstream, &u, &events, q, &q->call, &e);
    str_fini(&path);
    if (rc) {
        api_error_of(&q->error, &e);
        fail_relayed(q, &q->error, RELAY_REFUSED);
    }
}

static void end_disconnected(struct relayed *q) {
    record_end(q, RELAY_CANCELLED, 499, "the client disconnected");
    exchange_abort(q->x);
    free_relayed(q);
}

static void end_cut(struct relayed *q) {
    api_fail(&q->error, 503, "shutting_down", "the server is shutting down");
    fail_relayed(q, &q->error, RELAY_REFUSED);
}

static void on_prepared(void *arg) {
    struct relayed *q = arg;
    q->preparing = false;
    if (q->disconnected)
        end_disconnected(q);
    else if (q->cut)
        end_cut(q);
    else if (q->error.status)
        fail_relayed(q, &q->error, RELAY_REFUSED);
    else
        send_upstream(q);
}

// Once the body is what is to be sent, or q->error says why not.
static void hand_body_over(struct relayed *q, bool ok) {
    if (ok)
        relay_body_make(q);
    q->handed = (struct http_task){.fn = on_prepared, .arg = q};
    (void)http_post_task(q->r->http, &q->handed); // else the loop has ended, and frees it
}

// The thread that compresses.
static void compress_body(void *arg) {
    struct relayed *q = arg;
    hand_body_over(q, !atomic_load(&q->disconnected) && relay_body_shorten(q));
}

// Text worker.
static void prepare_body(void *arg) {
    struct relayed *q = arg;
    struct err e = {0};
    if (!atomic_load(&q->disconnected) && relay_body_read(q)) {
        if (!workers_run(q->r->shorteners, 0, compress_body, q, &e))
            return;
        api_fail(&q->error, 429, "queue_full", "%s", e.text);
        q->error.retry_after = 1;
    }
    hand_body_over(q, !q->error.status);
}

static void on_disconnected(void *arg) {
    struct relayed *q = arg;
    atomic_store(&q->disconnected, true);
    if (!q->preparing)
        end_disconnected(q);
}

static void on_writable(void *arg) {
    struct relayed *q = arg;
    if (q->call)
        upstream_resume(q->call);
}

static void on_cut(void *arg) {
    struct relayed *q = arg;
    q->cut = true;
    if (!q->preparing) // else on_prepared ends it
        end_cut(q);
}

static bool asks_for_text(const struct exchange *x) {
    const char *path = exchange_path(x);
    return !strcmp(exchange_method(x), "POST") &&
           (!strcmp(path, "/v1/chat/completions") || !strcmp(path, "/v1/completions"));
}

static void start_relayed(struct relay *r, struct exchange *x) {
    static const struct exchange_hooks hooks = {
        .disconnected = on_disconnected, .writable = on_writable, .cut = on_cut};
    struct relayed *q = calloc(1, sizeof *q);
    struct err e = {0};
    if (!q) {
        exchange_reply(x, 503, NULL, NULL, 0);
        return;
    }
    *q = (struct relayed){
        .r = r, .next = r->all, .x = x, .memory.h = r->http, .arrived = clock_ms()};
    if (q->next)
        q->next->prev = q;
    r->all = q;
    r->open++;
    random_id(q->id, "relay-");
    snprintf(q->path, sizeof q->path, "%s", exchange_path(x));
    snprintf(q->peer, sizeof q->peer, "%s", exchange_peer(x));
    q->text = asks_for_text(x);
    q->method = exchange_method(x);
    exchange_own_line(x, true);
    exchange_watch(x, &hooks, q);
    if (!relay_body_wanted(r, q)) {
        send_upstream(q);
        return;
    }
    q->preparing = true;
    size_t n;
    (void)exchange_body(x, &n);
    if (workers_run(r->workers, n, prepare_body, q, &e)) {
        q->preparing = false;
        api_fail(&q->error, 429, "queue_full", "%s", e.text);
        q->error.retry_after = 1;
        fail_relayed(q, &q->error, RELAY_REFUSED);
    }
}

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

static void answer_health(const struct relay *r, struct exchange *x) {
    struct json_writer w = {0};
    jw_begin(&w, '{');
    jw_key_str(&w, "status", http_draining(r->http) ? "shutting down" : "ok");
    jw_key_str(&w, "upstream", upstream_name(r->upstream));
    jw_end(&w, '}');
    service_json(x, http_draining(r->http) ? 503 : 200, &w);
}

static void answer_metrics(struct relay *r, struct exchange *x) {
    static const char *const ends[] = {"end=\"answered\"", "end=\"cancelled\"", "end=\"failed\"",
                                       "end=\"late\"", "end=\"refused\""};
    struct str out = {0};
    metrics_write_build(&out, r->o.build);
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
static bool climbs_out(const char *path) {
    return strstr(path, "/../") || strstr(path, "/./") || strstr(path, "//") ||
           strchr(path, '\\') || (strlen(path) > 2 && !strcmp(path + strlen(path) - 3, "/.."));
}

static bool is_own_path(const char *path) {
    return !strcmp(path, "/health") || !strcmp(path, "/v1/health") || !strcmp(path, "/metrics");
}

// What the upstream takes is not known here.
static void list_methods(void *arg, const char *path, struct str *out) {
    (void)arg;
    if (is_own_path(path))
        str_puts(out, "GET, HEAD");
    else if (strncmp(path, "/v1/", 4) == 0 && !climbs_out(path))
        str_puts(out, "GET, HEAD, POST, PUT, PATCH, DELETE");
}

static void handle_exchange(void *arg, struct exchange *x) {
    struct relay *r = arg;
    const char *path = exchange_path(x);
    bool get = !strcmp(exchange_method(x), "GET");
    if (get && (!strcmp(path, "/health") || !strcmp(path, "/v1/health")))
        answer_health(r, x);
    else if (get && !strcmp(path, "/metrics"))
        answer_metrics(r, x);
    else if (strncmp(path, "/v1/", 4) != 0 || climbs_out(path))
        refuse_path(x, path);
    else
        start_relayed(r, x);
}

static const char *write_refusal(void *arg, const struct http_refusal *why, struct str *body) {
    (void)arg;
    return api_refusal(why, body);
}

static void log_ended(void *arg, const struct http_ended *e) {
    struct relay *r = arg;
    request_log_ended(&r->o.log, e);
}

static int start_relay(struct relay *r, struct err *e) {
    static const char *const open_paths[] = {"/health", "/v1/health"};
    struct http_options *h = &r->o.http;
    h->handler = handle_exchange;
    h->refuse = write_refusal;
    h->ended = log_ended;
    h->methods = list_methods;
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
    int rc = start_relay(r, e);
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
    free_all_relayed(r);
    upstream_destroy(r->upstream);
    if (r->http)
        http_destroy(r->http);
    free(r);
}

const char *relay_address(const struct relay *r, size_t i) {
    return http_address(r->http, i);
}

const char *relay_upstream(const struct relay *r) {
    return upstream_name(r->upstream);
}
