// SPDX-License-Identifier: Apache-2.0
// Exchanges: from bytes to requests (where a head ends, what its limits are, whether it may pass,
// its body, and then the handler), and the answer, whole or in chunks. A request is refused as
// early as possible: before its body when the head says enough. An exchange that has been handed
// over outlives its connection, so a handler never holds a pointer to nothing.
#include "serve/http/exchange.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "serve/http/impl.h"

enum {
    STEPS = 16,            // requests of one connection before others have their turn
    ZEROS = 8,             // a size of 16 digits is what every client reads
    SMALL_BODY = 64 << 10, // bytes, as many as a head may have: such bodies are never refused
    IDLE_PART = 10,        // of body_ms: then a body that does not come is dropped for others
};

static struct exchange *create_exchange(struct conn *c) {
    struct exchange *x = calloc(1, sizeof *x);
    if (!x)
        return NULL;
    *x = (struct exchange){
        .h = c->h, .c = c, .next = c->h->exchanges, .memory.h = c->h, .arrived = clock_ms()};
    x->head = (struct http_head){.method = "", .path = "", .query = "", .length = -1};
    memcpy(x->peer, c->peer, sizeof x->peer);
    if (x->next)
        x->next->prev = x;
    c->h->exchanges = x;
    c->h->counts.exchanges++;
    c->x = x;
    return x;
}

void exchange_drop_body(struct exchange *x) {
    str_fini(&x->body);
    http_memory_release(&x->memory);
}

void exchange_take_body(struct exchange *x, struct str *body, struct http_memory *memory) {
    *body = x->body;
    *memory = x->memory;
    x->body = (struct str){0};
    x->memory.bytes = 0;
}

void exchange_own_line(struct exchange *x, bool own) {
    x->own_line = own;
}

static void report_end(const struct exchange *x) {
    const struct http_options *o = &x->h->o;
    if (!o->ended || x->own_line)
        return;
    o->ended(o->arg, &(struct http_ended){.method = x->head.bodiless ? "HEAD" : x->head.method,
                                          .path = x->head.path,
                                          .peer = x->peer,
                                          .status = x->status ? x->status : 499,
                                          .reason = x->reason[0] ? x->reason : NULL,
                                          .ms = clock_ms() - x->arrived});
}

void exchange_free(struct exchange *x) {
    struct http *h = x->h;
    report_end(x);
    if (x->prev)
        x->prev->next = x->next;
    else
        h->exchanges = x->next;
    if (x->next)
        x->next->prev = x->prev;
    h->counts.exchanges--;
    exchange_drop_body(x);
    if (x->c)
        x->c->x = NULL;
    http_head_fini(&x->head);
    str_fini(&x->fields);
    free(x);
}

static void disconnect_exchange(struct exchange *x) {
    x->c->x = NULL;
    x->c = NULL;
    if (!x->handed)
        exchange_free(x);
    else if (x->hooks.disconnected)
        x->hooks.disconnected(x->arg);
}

const char *exchange_method(const struct exchange *x) {
    return x->head.method;
}

bool exchange_is_head(const struct exchange *x) {
    return x->head.bodiless;
}

const char *exchange_path(const struct exchange *x) {
    return x->head.path;
}

const char *exchange_query(const struct exchange *x) {
    return x->head.query;
}

const char *exchange_request_header(const struct exchange *x, const char *name) {
    for (size_t i = 0; i < x->head.n_fields; i++)
        if (strcasecmp(x->head.fields[i].name, name) == 0)
            return x->head.fields[i].value;
    return NULL;
}

bool exchange_request_field(const struct exchange *x, size_t i, const char **name,
                            const char **value) {
    if (i >= x->head.n_fields)
        return false;
    *name = x->head.fields[i].name;
    *value = x->head.fields[i].value;
    return true;
}

const char *exchange_body(const struct exchange *x, size_t *n) {
    *n = x->body.len;
    return x->body.data ? x->body.data : "";
}

const char *exchange_peer(const struct exchange *x) {
    return x->peer;
}

void exchange_watch(struct exchange *x, const struct exchange_hooks *hooks, void *arg) {
    x->hooks = *hooks;
    x->arg = arg;
}

static void put_clean(struct str *out, const char *text) {
    for (const char *p = text; *p; p++)
        str_putc(out, (unsigned char)*p < ' ' || *p == 0x7F ? ' ' : *p);
}

void exchange_header(struct exchange *x, const char *name, const char *value) {
    put_clean(&x->fields, name);
    str_puts(&x->fields, ": ");
    put_clean(&x->fields, value);
    str_puts(&x->fields, "\r\n");
}

void exchange_drop_headers(struct exchange *x) {
    str_clear(&x->fields);
}

static const char *status_phrase(int status) {
    static const struct {
        int status;
        const char *phrase;
    } table[] = {{100, "Continue"},
                 {200, "OK"},
                 {201, "Created"},
                 {202, "Accepted"},
                 {204, "No Content"},
                 {304, "Not Modified"},
                 {400, "Bad Request"},
                 {401, "Unauthorized"},
                 {403, "Forbidden"},
                 {404, "Not Found"},
                 {405, "Method Not Allowed"},
                 {408, "Request Timeout"},
                 {409, "Conflict"},
                 {413, "Content Too Large"},
                 {415, "Unsupported Media Type"},
                 {417, "Expectation Failed"},
                 {422, "Unprocessable Content"},
                 {429, "Too Many Requests"},
                 {431, "Request Header Fields Too Large"},
                 {500, "Internal Server Error"},
                 {501, "Not Implemented"},
                 {502, "Bad Gateway"},
                 {503, "Service Unavailable"},
                 {504, "Gateway Timeout"},
                 {505, "HTTP Version Not Supported"},
                 {529, "Overloaded"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].status == status)
            return table[i].phrase;
    return "Status";
}

static const char *date_header(struct http *h) {
    time_t now = time(NULL);
    if (now !=
        h->date_at) { // names of days and months by hand: those of the C library are a locale's
        static const char days[] = "SunMonTueWedThuFriSat";
        static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
        struct tm t;
        gmtime_r(&now, &t);
        snprintf(h->date, sizeof h->date, "%.3s, %02d %.3s %d %02d:%02d:%02d GMT",
                 days + 3 * t.tm_wday, t.tm_mday, months + 3 * t.tm_mon, t.tm_year + 1900,
                 t.tm_hour, t.tm_min, t.tm_sec);
        h->date_at = now;
    }
    return h->date;
}

// length: of the body; -1: in chunks, or until the connection closes.
static void write_answer_head(struct exchange *x, int status, const char *type, int64_t length) {
    struct conn *c = x->c;
    struct str out = {0};
    x->begun = true;
    x->status = status;
    x->chunked = length < 0 && x->head.minor > 0;
    bool no_more = c->eof && conn_pending(c) == 0;
    x->keep = x->head.keep_alive && !c->last && !no_more && !x->h->stops_seen &&
              (length >= 0 || x->chunked);
    str_printf(&out, "HTTP/1.1 %d %s\r\nDate: %s\r\n", status, status_phrase(status),
               date_header(x->h));
    if (type)
        str_printf(&out, "Content-Type: %s\r\n", type);
    if (x->chunked)
        str_puts(&out, "Transfer-Encoding: chunked\r\n");
    else if (length >= 0 && status != 204 && status != 304)
        str_printf(&out, "Content-Length: %lld\r\n", (long long)length);
    if (!x->keep)
        str_puts(&out, "Connection: close\r\n");
    else if (x->head.minor == 0)
        str_puts(&out, "Connection: keep-alive\r\n");
    if (x->fields.len)
        str_append(&out, x->fields.data, x->fields.len);
    guard_answer(x->h, &x->head, &out);
    str_puts(&out, "\r\n");
    if (out.failed || x->fields.failed)
        conn_break(c);
    else
        conn_write(c, out.data, out.len);
    str_fini(&out);
}

// The answer is complete: the connection is for the next request, or ends.
static void give_exchange_back(struct exchange *x) {
    struct conn *c = x->c;
    bool keep = x->keep;
    exchange_free(x);
    if (!c || c->dead)
        return;
    c->last |= !keep;
    c->used = true;
    conn_enter(c, CONN_HEAD);
    conn_mark(c);
}

void exchange_begin(struct exchange *x, int status, const char *type) {
    if (x->c && !x->begun)
        write_answer_head(x, status, type, -1);
}

void exchange_write(struct exchange *x, const void *bytes, size_t n) {
    char size[20];
    if (!x->c || !x->begun || n == 0 || x->head.bodiless)
        return;
    x->zeros = 0;
    if (x->chunked)
        conn_write(x->c, size, (size_t)snprintf(size, sizeof size, "%zx\r\n", n));
    conn_write(x->c, bytes, n);
    if (x->chunked)
        conn_write(x->c, "\r\n", 2);
}

void exchange_end(struct exchange *x) {
    if (x->c && x->begun && x->chunked && !x->head.bodiless)
        conn_write(x->c, "0\r\n\r\n", 5);
    if (x->c && !x->begun) { // an answer that never began is no answer
        exchange_abort(x);
        return;
    }
    give_exchange_back(x);
}

void exchange_abort(struct exchange *x) {
    struct conn *c = x->c;
    exchange_free(x);
    if (c)
        conn_abort(c);
}

void exchange_reply(struct exchange *x, int status, const char *type, const void *body, size_t n) {
    if (x->begun) { // too late for another answer
        exchange_end(x);
        return;
    }
    if (x->c) {
        write_answer_head(x, status, type, (int64_t)n);
        if (!x->head.bodiless)
            conn_write(x->c, body, n);
    }
    give_exchange_back(x);
}

bool exchange_disconnected(const struct exchange *x) {
    return !x->c;
}

bool exchange_may_be_disconnected(const struct exchange *x) {
    return !x->c || conn_may_be_disconnected(x->c);
}

size_t exchange_backlog(const struct exchange *x) {
    return x->c ? conn_backlog(x->c) : 0;
}

static void refuse_request(struct conn *c, int status, const char *reason) {
    struct http *h = c->h;
    struct exchange *x = c->x ? c->x : create_exchange(c);
    if (!x) {
        conn_close(c);
        return;
    }
    struct http_refusal r = {status, reason, x->head.method, x->head.path, c->peer};
    struct str body = {0};
    const char *type = "text/plain; charset=utf-8";
    if (h->o.refuse)
        type = h->o.refuse(h->o.arg, &r, &body);
    else
        str_printf(&body, "%s\n", reason);
    snprintf(x->reason, sizeof x->reason, "%s", reason);
    if (status == 401)
        exchange_header(x, "WWW-Authenticate", "Bearer");
    h->counts.refused++;
    // What follows a request that was not read to its end is no request. Whether it has a body is
    // known only when its head has been read as a whole.
    c->last |= !x->framed || x->head.length > 0 || x->head.chunked;
    exchange_reply(x, status, type, body.data, body.failed ? 0 : body.len);
    str_fini(&body);
}

// Says what a path takes, and to a page what it may send there.
static void answer_options(struct conn *c) {
    struct exchange *x = c->x;
    const struct http_options *o = &c->h->o;
    struct str methods = {0};
    if (o->methods && strcmp(x->head.path, "*") != 0)
        o->methods(o->arg, x->head.path, &methods);
    else
        str_puts(&methods, "GET, HEAD, POST, DELETE");
    if (methods.len == 0) {
        refuse_request(c, methods.failed ? 503 : 404,
                       methods.failed ? "out of memory for the answer"
                                      : "there is nothing at this path");
        return;
    }
    guard_preflight(c->h, &x->head, methods.data, &x->fields);
    str_fini(&methods);
    exchange_reply(x, 204, NULL, NULL, 0);
}

static void on_disconnected(struct conn *c) {
    struct exchange *x = c->x;
    conn_close(c);
    if (x)
        disconnect_exchange(x);
}

// A request whose client has disconnected already is not begun: clients that send and reset would
// otherwise fill the queues of others.
static void run_handler(struct conn *c) {
    struct exchange *x = c->x;
    struct http *h = c->h;
    if (conn_is_disconnected(c)) {
        on_disconnected(c);
        return;
    }
    conn_enter(c, CONN_RUN);
    h->counts.requests++;
    str_trim(&x->body);
    http_memory_set(&x->memory, x->body.cap);
    if (strcmp(x->head.method, "OPTIONS") == 0) {
        answer_options(c);
        return;
    }
    x->handed = true;
    h->o.handler(h->o.arg, x);
}

// Of the bodies that do not come, the largest one except that of c; NULL: all come.
static struct conn *find_idle_body(const struct conn *c) {
    const struct http_options *o = &c->h->o;
    struct conn *found = NULL;
    double late = clock_ms() + o->body_ms - (double)o->body_ms / IDLE_PART;
    for (struct conn *k = c->h->conns; k; k = k->next)
        if (k != c && !k->dead && k->phase == CONN_BODY && k->until < late &&
            (!found || k->x->memory.bytes > found->x->memory.bytes))
            found = k;
    return found;
}

// Counts what a body takes now. Where there is too much of all, those that do not come are refused.
// False: so must this one.
static bool count_body_memory(struct conn *c) {
    const struct exchange *x = c->x;
    const struct http *h = c->h;
    struct conn *idle;
    http_memory_set(&c->x->memory, x->body.cap);
    while (http_crowded(h) && (idle = find_idle_body(c)))
        refuse_request(idle, 408,
                       "the body stopped coming while others waited for its memory; try again");
    return x->body.len <= SMALL_BODY || !http_crowded(h);
}

// Time for the next bytes: as long as they keep the pace, it is always the same.
static void extend_body_time(struct conn *c, size_t n) {
    double more = c->until + 1e3 * (double)n / (double)HTTP_BODY_PACE;
    c->until = fmin(more, clock_ms() + c->h->o.body_ms);
}

static void receive_body(struct conn *c) {
    struct exchange *x = c->x;
    size_t n = conn_pending(c), before = x->body.len, used = n;
    const char *bytes = c->in.data + c->in_at;
    int status = 0, rc = 0;
    struct err e = {0};
    if (!x->head.chunked) {
        used = n < (size_t)x->head.length - before ? n : (size_t)x->head.length - before;
        str_append(&x->body, bytes, used);
        if (x->body.failed) {
            status = 503;
            rc = err_set(&e, ERR_MEMORY, "out of memory for the body of a request");
        }
    } else {
        rc = http_chunked_take(&c->chunked, bytes, n, &used, &status, &e);
    }
    conn_used(c, used);
    extend_body_time(c, x->body.len - before);
    if (rc)
        refuse_request(c, status, e.text);
    else if (!count_body_memory(c))
        refuse_request(c, 503,
                       "the bodies of all requests together take too much memory; try again later");
    else if (x->head.chunked ? c->chunked.done : x->body.len == (size_t)x->head.length)
        run_handler(c);
}

// A body that nothing announces would be read as the next request.
static bool may_have_hidden_body(const struct http_head *head) {
    static const char *const with[] = {"POST", "PUT", "PATCH", "QUERY"};
    bool found = false;
    for (size_t i = 0; i < sizeof with / sizeof *with; i++)
        found |= strcmp(head->method, with[i]) == 0;
    return found && head->length < 0 && !head->chunked;
}

// The head has been read: what it alone can be refused for, then the body.
static void begin_request(struct conn *c) {
    struct exchange *x = c->x;
    const struct http *h = c->h;
    x->framed = true;
    c->last |= may_have_hidden_body(&x->head);
    struct guard_refusal g = guard_check(h, &x->head, c->local);
    if (g.status) {
        refuse_request(c, g.status, g.reason);
        return;
    }
    if (x->head.length > 0 && (uint64_t)x->head.length > h->o.body_bytes) {
        struct err e = {0};
        err_set(&e, ERR_LIMIT, "the request's body is larger than %zu bytes", h->o.body_bytes);
        refuse_request(c, 413, e.text);
        return;
    }
    if (x->head.length <= 0 && !x->head.chunked) {
        run_handler(c);
        return;
    }
    conn_enter(c, CONN_BODY);
    c->until = c->since + h->o.body_ms;
    c->chunked = (struct http_chunked){.body = &x->body, .limit = h->o.body_bytes};
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (x->head.expects_continue && conn_pending(c) == 0)
        conn_write(c, go_on, sizeof go_on - 1);
}

static void receive_head(struct conn *c) {
    // An empty line before a request is passed over, as RFC 9112 requires; one, since each would
    // give a connection that requests nothing its whole time again.
    if (!c->blank && conn_pending(c) >= 2 && memcmp(c->in.data + c->in_at, "\r\n", 2) == 0) {
        conn_used(c, 2);
        c->blank = true;
    }
    size_t n = conn_pending(c);
    const char *bytes = n ? c->in.data + c->in_at : "";
    if (n && c->in_seen == 0)
        c->since = clock_ms();
    size_t end = http_head_end(bytes, n, c->in_seen);
    c->in_seen = n;
    if (end ? end > c->h->o.head_bytes : n > c->h->o.head_bytes) {
        struct err e = {0};
        err_set(&e, ERR_LIMIT, "the request's headers are larger than %zu bytes",
                c->h->o.head_bytes);
        refuse_request(c, 431, e.text);
        return;
    }
    if (!end)
        return;
    struct exchange *x = create_exchange(c);
    struct err e = {0};
    int status = 500;
    int rc = x ? http_head_parse(&x->head, bytes, end, &status, &e) : ERR_MEMORY;
    conn_used(c, end);
    c->blank = false;
    if (rc)
        refuse_request(c, status, x ? e.text : "out of memory for a request");
    else
        begin_request(c);
}

// Goes on as long as a request begins, ends or is answered; a client that does not take its answers
// gets no further ones, and one that sends many requests at once waits for the others' turns.
static void on_input(struct conn *c) {
    for (int steps = 0;; steps++) {
        size_t before = conn_pending(c);
        enum conn_phase phase = c->phase;
        if (c->dead || c->last || before == 0 || c->full)
            break;
        if (steps >= STEPS && phase == CONN_HEAD) {
            conn_mark(c);
            return;
        }
        if (phase == CONN_HEAD)
            receive_head(c);
        else if (phase == CONN_BODY)
            receive_body(c);
        if (!c->dead && conn_pending(c) == before && c->phase == phase)
            break;
    }
    if (!c->dead && c->eof && c->phase == CONN_HEAD && !c->last && !c->full) {
        c->last = true; // nothing complete is left, and nothing will come
        conn_mark(c);
    }
}

static void on_finish(struct conn *c) {
    struct exchange *x = c->x;
    if (c->phase != CONN_RUN || !x) {
        if (c->phase == CONN_BODY)
            on_disconnected(c);
        else
            on_input(c);
        return;
    }
    // The write that shows whether the client is connected, see on_probe in conn.c. An answer in
    // chunks gets a leading zero of its next chunk's size, one that has not begun an interim
    // answer. HTTP/1.0 has neither: there the next real write shows it, or the kernel, which looks
    // after idle connections. Where the client has not taken what was written before, that is still
    // on its way to tell.
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    bool probes = !c->local && conn_backlog(c) == 0;
    if (probes && !x->begun && x->head.minor > 0)
        conn_write(c, interim, sizeof interim - 1);
    else if (probes && x->chunked && !x->head.bodiless && x->zeros++ < ZEROS)
        conn_write(c, "0", 1);
    conn_probe(c);
}

static void on_space(struct conn *c) {
    struct exchange *x = c->x;
    if (x && x->handed && x->hooks.writable)
        x->hooks.writable(x->arg);
    else if (!x)
        conn_mark(c);
}

// A request that comes too slowly gets an answer; all else that is late is just closed.
static void on_late(struct conn *c) {
    if (conn_backlog(c) > 0)
        on_disconnected(c);
    else if (c->phase == CONN_BODY || (c->phase == CONN_HEAD && conn_pending(c) > 0))
        refuse_request(c, 408, "the request came too slowly");
    else
        conn_close(c);
}

const struct http_events http_exchange_events = {on_input, on_finish, on_disconnected, on_space,
                                                 on_late};
