// SPDX-License-Identifier: Apache-2.0
// Exchanges: what a handler reads of a request, and the answer, whole or in chunks. An exchange
// that has been handed over outlives its connection, so a handler never holds a pointer to nothing.
#include "serve/http/impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"

struct exchange *exchange_create(struct conn *c) {
    struct exchange *x = calloc(1, sizeof *x);
    if (!x)
        return NULL;
    *x = (struct exchange){
        .h = c->h, .c = c, .next = c->h->exchanges, .hold.h = c->h, .arrived = clock_ms()};
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
    http_hold_end(&x->hold);
}

void exchange_take_body(struct exchange *x, struct str *body, struct http_hold *hold) {
    *body = x->body;
    *hold = x->hold;
    x->body = (struct str){0};
    x->hold.bytes = 0;
}

void exchange_own_line(struct exchange *x, bool own) {
    x->own_line = own;
}

static void tell_end(const struct exchange *x) {
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
    tell_end(x);
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

void exchange_lose(struct exchange *x) {
    x->c->x = NULL;
    x->c = NULL;
    if (!x->handed)
        exchange_free(x);
    else if (x->hooks.gone)
        x->hooks.gone(x->arg);
}

const char *exchange_method(const struct exchange *x) {
    return x->head.method;
}

bool exchange_wants_head(const struct exchange *x) {
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

static const char *phrase(int status) {
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

static const char *date(struct http *h) {
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
static void write_head(struct exchange *x, int status, const char *type, int64_t length) {
    struct conn *c = x->c;
    struct str out = {0};
    x->begun = true;
    x->status = status;
    x->chunked = length < 0 && x->head.minor > 0;
    bool no_more = c->eof && conn_pending(c) == 0;
    x->keep = x->head.keep_alive && !c->last && !no_more && !x->h->stops_seen &&
              (length >= 0 || x->chunked);
    str_printf(&out, "HTTP/1.1 %d %s\r\nDate: %s\r\n", status, phrase(status), date(x->h));
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
static void give_back(struct exchange *x) {
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
        write_head(x, status, type, -1);
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
    give_back(x);
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
        write_head(x, status, type, (int64_t)n);
        if (!x->head.bodiless)
            conn_write(x->c, body, n);
    }
    give_back(x);
}

bool exchange_gone(const struct exchange *x) {
    return !x->c;
}

bool exchange_left(const struct exchange *x) {
    return !x->c || conn_left(x->c);
}

size_t exchange_backlog(const struct exchange *x) {
    return x->c ? conn_backlog(x->c) : 0;
}
