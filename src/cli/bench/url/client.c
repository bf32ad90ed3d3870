// SPDX-License-Identifier: Apache-2.0
// Connections of `bench --url` and the answers that they bring; see client.h. What counts as text
// is any piece of a choice that a user would see: content, reasoning, a call's arguments, the text
// of a completion.
#include "cli/bench/url/client.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/num.h"
#include "base/vec.h"

enum {
    EVENTS = 256,
    BUFFER = 64 << 10,
    SWEEP_MS = 100,
    BODY_MAX = 1 << 20,
    HEAD_MAX = 64 << 10,
    EVENT_MAX = 16 << 20
};

void url_reply_init(struct url_reply *r, bool streamed, double start, struct url_result *result,
                    struct url_times *gaps) {
    *r = (struct url_reply){.result = result, .gaps = gaps, .streamed = streamed};
    url_result_init(result, start);
}

void url_reply_fini(struct url_reply *r) {
    str_fini(&r->head);
    str_fini(&r->piece);
    sse_reader_fini(&r->events);
    str_fini(&r->data);
    str_fini(&r->body);
}

// Ends the reply with an error of the client's own.
static void url_reply_fail(struct url_reply *r, enum url_outcome outcome, double now,
                           const char *message) {
    r->result->outcome = outcome;
    r->result->status = r->status;
    r->result->end = now;
    snprintf(r->result->message, sizeof r->result->message, "%.199s", message);
}

static bool is_filled(const struct json *v) {
    size_t n = 0;
    return json_str(v, &n) && n > 0;
}

static bool has_text(const struct json *choice) {
    const struct json *delta = json_get(choice, "delta");
    return is_filled(json_get(choice, "text")) || is_filled(json_get(delta, "content")) ||
           is_filled(json_get(delta, "reasoning_content")) ||
           is_filled(json_get(delta, "reasoning")) || json_len(json_get(delta, "tool_calls")) > 0;
}

static int note_text(struct url_reply *r, struct err *e) {
    struct url_result *q = r->result;
    if (q->events++ == 0) {
        q->first = q->last = r->now;
        return 0;
    }
    double gap = r->now - q->last;
    q->largest_gap = fmax(q->largest_gap, gap);
    q->last = r->now;
    return url_times_add(r->gaps, gap, e);
}

static void note_usage(struct url_result *q, const struct json *v) {
    const struct json *usage = json_get(v, "usage"), *times = json_get(v, "timings");
    if (json_kind_of(usage) == JSON_OBJECT) {
        q->input_tokens = json_int(json_get(usage, "prompt_tokens"), q->input_tokens);
        q->output_tokens = json_int(json_get(usage, "completion_tokens"), q->output_tokens);
        q->cached_tokens = json_int(
            json_get(json_get(usage, "prompt_tokens_details"), "cached_tokens"), q->cached_tokens);
    }
    if (json_kind_of(times) == JSON_OBJECT) {
        double prompt = json_num(json_get(times, "prompt_ms"), -1);
        double queue = json_num(json_get(times, "queue_ms"), 0);
        if (prompt >= 0)
            q->server_ms = prompt + queue;
    }
}

// The message of {"error": {"message": ...}} or {"error": "..."}, cut to `size`; false when there
// is no error in it.
static bool error_of(const struct json *v, char *out, size_t size) {
    const struct json *error = json_get(v, "error");
    if (json_kind_of(error) == JSON_NULL)
        return false;
    const char *s = json_str(error, NULL);
    if (!s)
        s = json_str(json_get(error, "message"), NULL);
    snprintf(out, size, "%s", s ? s : "without a message");
    return true;
}

// One event. An error in it is ERR_STATE.
static int read_event(struct url_reply *r, const char *data, size_t n, struct err *e) {
    if (r->ended)
        return 0;
    if (n == 6 && memcmp(data, "[DONE]", 6) == 0) {
        r->ended = true;
        return 0;
    }
    struct json *v = NULL;
    char message[160];
    int rc = json_parse(&v, data, n, e);
    if (rc)
        return err_prefix(e, "an event");
    if (error_of(v, message, sizeof message))
        rc = err_set(e, ERR_STATE, "%s", message);
    const struct json *choices = json_get(v, "choices");
    bool text = false;
    for (size_t i = 0; i < json_len(choices); i++) {
        const struct json *choice = json_at(choices, i);
        text = text || has_text(choice);
        r->finished = r->finished || is_filled(json_get(choice, "finish_reason"));
    }
    if (!rc && text)
        rc = note_text(r, e);
    note_usage(r->result, v);
    json_free(v);
    return rc;
}

// A line of the stream: the data of the event so far grows, or the event ends.
static int read_event_line(void *arg, const char *line, size_t n, struct err *e) {
    struct url_reply *r = arg;
    const char *data = sse_data(line, n);
    if (n == 0) {
        int rc = r->has_data ? read_event(r, r->data.data, r->data.len, e) : 0;
        r->has_data = false;
        str_clear(&r->data);
        return rc;
    }
    if (!data)
        return 0;
    if (r->has_data)
        str_putc(&r->data, '\n');
    str_append(&r->data, data, (size_t)(line + n - data));
    r->has_data = true;
    if (r->data.len > EVENT_MAX)
        return err_set(e, ERR_LIMIT, "an event of the answer is over %d bytes", EVENT_MAX);
    return r->data.failed ? err_set(e, ERR_MEMORY, "no memory for an event") : 0;
}

// A part of the body.
static int read_content(struct url_reply *r, const char *bytes, size_t n, struct err *e) {
    if (r->status == 200 && r->event_stream)
        return sse_read(&r->events, bytes, n, read_event_line, r, e);
    if (r->body.len + n > BODY_MAX)
        return err_set(e, ERR_LIMIT, "the answer is over %d bytes", BODY_MAX);
    str_append(&r->body, bytes, n);
    return r->body.failed ? err_set(e, ERR_MEMORY, "no memory for the answer") : 0;
}

// The head has been read: how the body ends is known now.
static void begin_body(struct url_reply *r, const struct http_head *h) {
    const char *type = http_head_field(h, "content-type");
    r->status = h->status;
    r->event_stream = type && strncasecmp(type, "text/event-stream", 17) == 0;
    r->chunked = h->chunked;
    r->left = h->status == 204 || h->status == 304 ? 0 : h->chunked ? -1 : h->length;
    r->close = !h->keep_alive || (r->left < 0 && !r->chunked);
    r->over = r->left == 0;
    r->chunks = (struct http_chunked){.body = &r->piece, .limit = SIZE_MAX};
}

// Takes bytes of heads off the n; *used: how many. Heads of interim answers (1xx) go by.
static int read_head(struct url_reply *r, const char *bytes, size_t n, size_t *used,
                     struct err *e) {
    static const char name[] = "HTTP/";
    size_t before = r->head.len;
    str_append(&r->head, bytes, n);
    if (r->head.failed)
        return err_set(e, ERR_MEMORY, "no memory for a header");
    size_t all = r->head.len, end = http_head_end(r->head.data, all, before);
    *used = end ? end - before : n;
    if (memcmp(r->head.data, name, all < 5 ? all : 5) != 0)
        return err_set(e, ERR_FORMAT, "the answer begins with '%.*s', which is not HTTP/1.1",
                       (int)strcspn(r->head.data, "\r\n"), r->head.data);
    if (!end && all > HEAD_MAX)
        return err_set(e, ERR_FORMAT, "the answer has headers of over %d bytes", HEAD_MAX);
    struct http_head h = {0};
    int rc = end ? http_head_parse_response(&h, r->head.data, end, e) : 0;
    if (!rc && h.status >= 200)
        begin_body(r, &h);
    if (end)
        str_clear(&r->head);
    http_head_fini(&h);
    return rc;
}

static int read_chunks(struct url_reply *r, const char *bytes, size_t n, size_t *used,
                       struct err *e) {
    int status;
    str_clear(&r->piece);
    int rc = http_chunked_take(&r->chunks, bytes, n, used, &status, e);
    r->over = r->chunks.done;
    return rc || !r->piece.len ? rc : read_content(r, r->piece.data, r->piece.len, e);
}

static int read_answer(struct url_reply *r, const char *bytes, size_t n, struct err *e) {
    int rc = 0;
    for (size_t at = 0, used = 0; !rc && at < n; at += used) {
        if (r->over)
            return err_set(e, ERR_FORMAT, "bytes follow the end of the answer");
        if (!r->status) {
            rc = read_head(r, bytes + at, n - at, &used, e);
        } else if (r->chunked) {
            rc = read_chunks(r, bytes + at, n - at, &used, e);
        } else {
            used = r->left < 0 ? n - at : min_size((size_t)r->left, n - at);
            r->left -= r->left < 0 ? 0 : (int64_t)used;
            r->over = r->left == 0;
            rc = read_content(r, bytes + at, used, e);
        }
    }
    return rc;
}

// What a body says that is no stream: an error's message, else its beginning.
static void body_message(const struct url_reply *r, char *out, size_t size) {
    struct json *v = NULL;
    const char *text = r->body.data ? r->body.data : "";
    if (json_parse(&v, text, r->body.len, NULL) || !error_of(v, out, size))
        snprintf(out, size, "%.*s", (int)strcspn(text, "\r\n"), text);
    json_free(v);
}

// The whole answer is here.
static void complete_reply(struct url_reply *r) {
    char message[160];
    if (r->status != 200) {
        body_message(r, message, sizeof message);
        url_reply_fail(r, URL_STATUS, r->now, message);
    } else if (r->streamed && !r->event_stream) {
        url_reply_fail(r, URL_FORMAT, r->now, "the answer is not a stream of events");
    } else if (r->streamed && !r->ended && !r->finished) {
        url_reply_fail(r, URL_CLOSED, r->now,
                       "the stream ended without a finish_reason and without [DONE]");
    } else {
        r->result->outcome = URL_DONE;
        r->result->status = r->status;
        r->result->end = r->now;
    }
}

bool url_reply_push(struct url_reply *r, const char *bytes, size_t n, double now) {
    struct err e = {0};
    r->now = now;
    int rc = read_answer(r, bytes, n, &e);
    if (rc) {
        r->close = true;
        url_reply_fail(r, rc == ERR_STATE ? URL_ERROR : URL_FORMAT, now, e.text);
        return true;
    }
    if (r->over)
        complete_reply(r);
    return r->over;
}

void url_reply_close(struct url_reply *r, double now) {
    r->now = now;
    if (r->over || r->ended || (r->status && !r->chunked && r->left < 0))
        complete_reply(r);
    else
        url_reply_fail(r, URL_CLOSED, now,
                       r->status || r->head.len
                           ? "the connection was closed in the middle of the answer"
                           : "the connection was closed without an answer");
}

struct connection {
    int fd;
    int64_t place;          // in the client's list
    struct url_call *call;  // NULL: idle
    struct addrinfo *tried; // the address that it connects to; NULL: it is connected
    bool used;              // it has served an answer
    bool writing;           // epoll reports when it can be written
};

struct url_client {
    int epoll;
    struct addrinfo *addresses, *first; // the first one to try: the last that worked
    url_done_fn *done;
    void *arg;
    struct connection **all; // [n]
    int64_t n, cap;
    int64_t idle; // how many of them
    double swept; // when deadlines were looked at
    char buffer[BUFFER];
};

int url_target_read(struct url_target *t, const char *url, struct err *e) {
    static const char *const paths[] = {"/chat/completions", "/completions"};
    char name[256] = "", rest[256] = "";
    *t = (struct url_target){.port = "80"};
    if (strncmp(url, "https://", 8) == 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "--url '%.200s': https is not supported; name the server itself, or a "
                       "local proxy that adds TLS",
                       url);
    int n = sscanf(url, "http://%255[^/?#]%255s", name, rest);
    char *host = name, *port = name[0] == '[' ? strchr(name, ']') : strrchr(name, ':');
    snprintf(t->authority, sizeof t->authority, "%s", name);
    if (name[0] == '[' && port) { // an IPv6 address
        host++;
        *port++ = 0;
        port = *port ? port : NULL;
    }
    if (port) {
        *port++ = 0;
        snprintf(t->port, sizeof t->port, "%s", port);
    }
    if (n < 1 || !*host || (port && strspn(port, "0123456789") != strlen(port)) ||
        strchr(rest, '?') || strchr(name, '@') || (port && (!*port || strlen(port) > 5)))
        return err_set(e, ERR_USAGE, "--url '%.200s' is not of the form http://HOST[:PORT][/BASE]",
                       url);
    snprintf(t->host, sizeof t->host, "%s", host);
    size_t len = strlen(rest);
    while (len && rest[len - 1] == '/')
        rest[--len] = 0;
    for (int i = 0; i < 2; i++) {
        size_t tail = strlen(paths[i]);
        if (len >= tail && strcmp(rest + len - tail, paths[i]) == 0)
            rest[len -= tail] = 0;
    }
    snprintf(t->base, sizeof t->base, "%s", len ? rest : "/v1");
    return 0;
}

void url_call_head(struct str *out, const struct url_target *t, const char *path, const char *key,
                   size_t n) {
    str_printf(out, "%s %s%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: coppice-bench\r\n",
               n ? "POST" : "GET", t->base, path, t->authority);
    if (key)
        str_printf(out, "Authorization: Bearer %s\r\n", key);
    if (n)
        str_printf(out,
                   "Accept: text/event-stream\r\nContent-Type: application/json\r\n"
                   "Content-Length: %zu\r\n",
                   n);
    str_puts(out, "\r\n");
}

int url_client_create(struct url_client **out, const struct url_target *t, url_done_fn *done,
                      void *arg, struct err *e) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct url_client *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c)
        return err_set(e, ERR_MEMORY, "no memory for a client");
    c->done = done;
    c->arg = arg;
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    const char *host = strcasecmp(t->host, "localhost") == 0 ? NULL : t->host; // RFC 6761, 6.3
    int code = getaddrinfo(host, t->port, &hints, &c->addresses);
    int rc = 0;
    if (code)
        rc = err_set(e, ERR_IO, "no address for '%s': %s", t->host, gai_strerror(code));
    else if (c->epoll < 0)
        rc = err_set(e, ERR_IO, "no epoll: %s", strerror(errno));
    c->first = c->addresses;
    if (rc)
        url_client_destroy(c);
    else
        *out = c;
    return rc;
}

static void disconnect(struct url_client *c, struct connection *k) {
    c->idle -= !k->call;
    close(k->fd);
    c->all[k->place] = c->all[--c->n];
    c->all[k->place]->place = k->place;
    free(k);
}

void url_client_destroy(struct url_client *c) {
    if (!c)
        return;
    while (c->n)
        disconnect(c, c->all[0]);
    free(c->all);
    if (c->addresses)
        freeaddrinfo(c->addresses);
    if (c->epoll >= 0)
        close(c->epoll);
    free(c);
}

static bool watch_socket(struct url_client *c, struct connection *k, int how, bool writing) {
    struct epoll_event v = {.events = EPOLLIN | (writing ? (unsigned)EPOLLOUT : 0), .data.ptr = k};
    k->writing = writing;
    return epoll_ctl(c->epoll, how, k->fd, &v) == 0;
}

// A socket on its way to one of the addresses from a->... on; false: none takes it.
static bool open_socket(struct url_client *c, struct connection *k, struct addrinfo *a) {
    static const int one = 1;
    for (; a; a = a->ai_next) {
        k->fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (k->fd < 0)
            continue;
        k->tried = a;
        setsockopt(k->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if ((connect(k->fd, a->ai_addr, a->ai_addrlen) == 0 || errno == EINPROGRESS) &&
            watch_socket(c, k, EPOLL_CTL_ADD, true))
            return true;
        int why = errno;
        close(k->fd);
        errno = why;
    }
    return false;
}

static bool connect_call(struct url_client *c, struct url_call *call) {
    struct connection *k = calloc(1, sizeof *k);
    call->sent = 0;
    if (!k || vec_reserve(&c->all, &c->cap, c->n + 1, sizeof(struct connection *), NULL) ||
        !open_socket(c, k, c->first)) {
        free(k);
        return false;
    }
    k->call = call;
    k->place = c->n;
    c->all[c->n++] = k;
    return true;
}

static void fail_call(struct url_client *c, struct url_call *call, enum url_outcome outcome,
                      const char *message) {
    url_reply_fail(&call->reply, outcome, clock_ms(), message);
    c->done(c->arg, call);
}

// Ends a connection and its call.
static void fail_connection(struct url_client *c, struct connection *k, enum url_outcome outcome,
                            const char *message) {
    struct url_call *call = k->call;
    disconnect(c, k);
    fail_call(c, call, outcome, message);
}

// The server had closed an idle connection: the call gets a new one.
static void retry_call(struct url_client *c, struct connection *k) {
    struct url_call *call = k->call;
    disconnect(c, k);
    if (!connect_call(c, call))
        fail_call(c, call, URL_CONNECT, strerror(errno));
}

static bool is_unanswered(const struct connection *k) {
    return k->used && !k->call->reply.status && !k->call->reply.head.len;
}

// The connection ended, by errno `why` or (0) in order.
static void end_connection(struct url_client *c, struct connection *k, int why) {
    if (!k->call) {
        disconnect(c, k);
    } else if (is_unanswered(k)) {
        retry_call(c, k);
    } else if (why) {
        fail_connection(c, k, URL_CLOSED, strerror(why));
    } else {
        struct url_call *call = k->call;
        disconnect(c, k);
        url_reply_close(&call->reply, clock_ms());
        c->done(c->arg, call);
    }
}

static void send_call(struct url_client *c, struct connection *k) {
    struct url_call *call = k->call;
    while (call->sent < call->out.len) {
        ssize_t n =
            send(k->fd, call->out.data + call->sent, call->out.len - call->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
            end_connection(c, k, errno);
            return;
        }
        if (n < 0)
            break;
        call->sent += (size_t)n;
    }
    bool more = call->sent < call->out.len;
    if (more != k->writing && !watch_socket(c, k, EPOLL_CTL_MOD, more))
        fail_connection(c, k, URL_CONNECT, strerror(errno));
}

void url_client_start(struct url_client *c, struct url_call *call) {
    call->sent = 0;
    for (int64_t i = c->n - 1; c->idle && i >= 0; i--)
        if (!c->all[i]->call) {
            c->idle--;
            c->all[i]->call = call;
            send_call(c, c->all[i]);
            return;
        }
    if (!connect_call(c, call))
        fail_call(c, call, URL_CONNECT, strerror(errno));
}

// The address answered, or another one is tried.
static void finish_connect(struct url_client *c, struct connection *k) {
    int why = 0;
    socklen_t size = sizeof why;
    getsockopt(k->fd, SOL_SOCKET, SO_ERROR, &why, &size);
    if (!why) {
        c->first = k->tried;
        k->tried = NULL;
        send_call(c, k);
        return;
    }
    close(k->fd);
    if (open_socket(c, k, k->tried->ai_next))
        return;
    k->fd = -1;
    fail_connection(c, k, URL_CONNECT, strerror(why));
}

static void receive_reply(struct url_client *c, struct connection *k) {
    ssize_t n = recv(k->fd, c->buffer, sizeof c->buffer, 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    struct url_call *call = k->call;
    if (n <= 0 || !call) { // what comes without a request is no answer
        end_connection(c, k, n < 0 ? errno : 0);
        return;
    }
    if (!url_reply_push(&call->reply, c->buffer, (size_t)n, clock_ms()))
        return;
    k->call = NULL;
    k->used = true;
    c->idle++;
    if (call->reply.close || call->sent < call->out.len)
        disconnect(c, k);
    c->done(c->arg, call);
}

static void handle_events(struct url_client *c, struct connection *k, uint32_t events) {
    if (k->tried)
        finish_connect(c, k);
    else if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        receive_reply(c, k);
    else if (k->call)
        send_call(c, k);
}

void url_client_drop(struct url_client *c) {
    for (int64_t i = c->n - 1; i >= 0; i--)
        if (c->all[i]->call)
            fail_connection(c, c->all[i], URL_CLOSED, "the client stopped");
}

// Ends the calls whose time is up.
static void end_late_calls(struct url_client *c, double now) {
    c->swept = now;
    for (int64_t i = c->n - 1; i >= 0; i--)
        if (c->all[i]->call && c->all[i]->call->deadline < now)
            fail_connection(c, c->all[i], URL_TIMEOUT, "the answer took longer than --timeout");
}

int url_client_wait(struct url_client *c, double ms, struct err *e) {
    struct epoll_event events[EVENTS];
    double max = fmax(0, fmin(ms, SWEEP_MS)); // its fraction is spent polling
    int n = epoll_wait(c->epoll, events, EVENTS, (int)max);
    if (n < 0 && errno != EINTR)
        return err_set(e, ERR_IO, "cannot wait for connections: %s", strerror(errno));
    for (int i = 0; i < n; i++)
        handle_events(c, events[i].data.ptr, events[i].events);
    double now = clock_ms();
    if (now - c->swept >= (double)SWEEP_MS)
        end_late_calls(c, now);
    return 0;
}
