// SPDX-License-Identifier: Apache-2.0
// From bytes to exchanges: where a head ends, what its limits are, whether it may pass, its body,
// and then the handler; and what becomes of the exchange when the client goes. A request is refused
// as early as possible: before its body when the head says enough.
#include "serve/http/impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

enum {
    STEPS = 16, // requests of one connection before others have their turn
    ZEROS = 8,  // a size of 16 digits is what every client reads
    BODY_BYTES_PER_S = 4096,
    SMALL_BODY = 64 << 10, // bytes, as many as a head may have: such bodies are never refused
    IDLE_PART = 10,        // of body_ms: then a body that does not come gives way to others
};

static void refuse(struct conn *c, int status, const char *reason) {
    struct http *h = c->h;
    struct exchange *x = c->x ? c->x : exchange_create(c);
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
        refuse(c, methods.failed ? 503 : 404,
               methods.failed ? "out of memory for the answer" : "there is nothing at this path");
        return;
    }
    guard_preflight(c->h, &x->head, methods.data, &x->fields);
    str_fini(&methods);
    exchange_reply(x, 204, NULL, NULL, 0);
}

static void on_lost(struct conn *c) {
    struct exchange *x = c->x;
    conn_close(c);
    if (x)
        exchange_lose(x);
}

// A request whose client is gone already is not begun: clients that send and reset would otherwise
// fill the queues of others.
static void run(struct conn *c) {
    struct exchange *x = c->x;
    struct http *h = c->h;
    if (conn_reset(c)) {
        on_lost(c);
        return;
    }
    conn_enter(c, CONN_RUN);
    h->counts.requests++;
    str_trim(&x->body);
    http_hold_set(&x->hold, x->body.cap);
    if (strcmp(x->head.method, "OPTIONS") == 0) {
        answer_options(c);
        return;
    }
    x->handed = true;
    h->o.handler(h->o.arg, x);
}

// Of the bodies that do not come, the largest one but that of c; NULL: all come.
static struct conn *find_idle(const struct conn *c) {
    const struct http_options *o = &c->h->o;
    struct conn *found = NULL;
    double late = clock_ms() + o->body_ms - (double)o->body_ms / IDLE_PART;
    for (struct conn *k = c->h->conns; k; k = k->next)
        if (k != c && !k->dead && k->phase == CONN_BODY && k->until < late &&
            (!found || k->x->hold.bytes > found->x->hold.bytes))
            found = k;
    return found;
}

// Counts what a body takes now. Where there is too much of all, those that do not come give way.
// False: it must be refused.
static bool count_body(struct conn *c) {
    const struct exchange *x = c->x;
    const struct http *h = c->h;
    struct conn *idle;
    http_hold_set(&c->x->hold, x->body.cap);
    while (http_crowded(h) && (idle = find_idle(c)))
        refuse(idle, 408, "the body stopped coming while others waited for its memory; try again");
    return x->body.len <= SMALL_BODY || !http_crowded(h);
}

// Time for the next bytes: as long as they keep the pace, it is always the same.
static void give_time(struct conn *c, size_t n) {
    double more = c->until + 1e3 * (double)n / (double)BODY_BYTES_PER_S;
    c->until = fmin(more, clock_ms() + c->h->o.body_ms);
}

static void take_body(struct conn *c) {
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
    give_time(c, x->body.len - before);
    if (rc)
        refuse(c, status, e.text);
    else if (!count_body(c))
        refuse(c, 503, "the bodies of all requests together take too much memory; try again later");
    else if (x->head.chunked ? c->chunked.done : x->body.len == (size_t)x->head.length)
        run(c);
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
static void begin(struct conn *c) {
    struct exchange *x = c->x;
    const struct http *h = c->h;
    x->framed = true;
    c->last |= may_have_hidden_body(&x->head);
    struct guard_refusal g = guard_check(h, &x->head, c->local);
    if (g.status) {
        refuse(c, g.status, g.reason);
        return;
    }
    if (x->head.length > 0 && (uint64_t)x->head.length > h->o.body_bytes) {
        struct err e = {0};
        err_set(&e, ERR_LIMIT, "the request's body is larger than %zu bytes", h->o.body_bytes);
        refuse(c, 413, e.text);
        return;
    }
    if (x->head.length <= 0 && !x->head.chunked) {
        run(c);
        return;
    }
    conn_enter(c, CONN_BODY);
    c->until = c->since + h->o.body_ms;
    c->chunked = (struct http_chunked){.body = &x->body, .limit = h->o.body_bytes};
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (x->head.expects_continue && conn_pending(c) == 0)
        conn_write(c, go_on, sizeof go_on - 1);
}

static void take_head(struct conn *c) {
    // An empty line before a request is passed over, as RFC 9112 asks; one, since each would give
    // a connection that asks for nothing its whole time again.
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
        refuse(c, 431, e.text);
        return;
    }
    if (!end)
        return;
    struct exchange *x = exchange_create(c);
    struct err e = {0};
    int status = 500;
    int rc = x ? http_head_parse(&x->head, bytes, end, &status, &e) : ERR_MEMORY;
    conn_used(c, end);
    c->blank = false;
    if (rc)
        refuse(c, status, x ? e.text : "out of memory for a request");
    else
        begin(c);
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
            take_head(c);
        else if (phase == CONN_BODY)
            take_body(c);
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
            on_lost(c);
        else
            on_input(c);
        return;
    }
    // The write that shows whether somebody is there, see conn.c. An answer in chunks gets a
    // leading zero of its next chunk's size, one that has not begun an interim answer. HTTP/1.0 has
    // neither: there the next real write tells, or the kernel, which looks after idle connections.
    // Where the client has not taken what was written before, that is still on its way to tell.
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    bool asks = !c->local && conn_backlog(c) == 0;
    if (asks && !x->begun && x->head.minor > 0)
        conn_write(c, interim, sizeof interim - 1);
    else if (asks && x->chunked && !x->head.bodiless && x->zeros++ < ZEROS)
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
        on_lost(c);
    else if (c->phase == CONN_BODY || (c->phase == CONN_HEAD && conn_pending(c) > 0))
        refuse(c, 408, "the request came too slowly");
    else
        conn_close(c);
}

const struct http_events http_request_events = {on_input, on_finish, on_lost, on_space, on_late};
