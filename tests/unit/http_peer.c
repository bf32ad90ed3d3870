// SPDX-License-Identifier: Apache-2.0
// See http_peer.h.
#include "http_peer.h"

#include "test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

struct flood {
    struct peer_server *s;
    struct exchange *x;
    size_t written;
};

static void on_gone(void *arg) {
    struct peer_server *s = arg;
    s->gone++;
}

static void on_drain(void *arg) {
    struct peer_server *s = arg;
    s->drained++;
}

static void on_cut(void *arg) {
    struct peer_server *s = arg;
    int i = s->cut++;
    if (!s->answer_when_cut || i >= s->n_held || exchange_disconnected(s->held[i]))
        return;
    if (s->begin_held) {
        exchange_write(s->held[i], "last words", 10);
        exchange_end(s->held[i]);
    } else {
        exchange_reply(s->held[i], 503, "text/plain", "cut", 3);
    }
    s->held[i] = NULL;
}

static void hold(struct peer_server *s, struct exchange *x) {
    static const struct exchange_hooks hooks = {
        .disconnected = on_gone, .drain = on_drain, .cut = on_cut};
    exchange_watch(x, &hooks, s);
    if (s->begin_held)
        exchange_begin(x, 200, "text/plain");
    s->held[s->n_held] = x;
    s->n_held++;
}

static void pour(void *arg) {
    static const char block[4096] = {'x'};
    struct flood *f = arg;
    f->s->writable++;
    while (f->written < FLOOD && exchange_backlog(f->x) <= EXCHANGE_FULL) {
        exchange_write(f->x, block, sizeof block);
        f->written += sizeof block;
        if (exchange_backlog(f->x) > f->s->peak)
            f->s->peak = exchange_backlog(f->x);
    }
    if (f->written < FLOOD)
        return;
    exchange_end(f->x);
    free(f);
}

static void end_flood(void *arg) {
    struct flood *f = arg;
    f->s->gone++;
    exchange_abort(f->x);
    free(f);
}

static void flood(struct peer_server *s, struct exchange *x) {
    static const struct exchange_hooks hooks = {.disconnected = end_flood, .writable = pour};
    struct flood *f = calloc(1, sizeof *f);
    assert_non_null(f);
    *f = (struct flood){s, x, 0};
    exchange_watch(x, &hooks, f);
    exchange_begin(x, 200, "application/octet-stream");
    pour(f);
}

static void echo(struct exchange *x) {
    struct str out = {0};
    size_t n;
    const char *body = exchange_body(x, &n);
    str_printf(&out, "%s %s?%s %s: ", exchange_method(x), exchange_path(x), exchange_query(x),
               exchange_request_header(x, "X-Test") ? exchange_request_header(x, "X-Test") : "-");
    str_append(&out, body, n);
    exchange_header(x, "X-Answer", "one\r\ntwo: three");
    exchange_reply(x, 200, "text/plain", out.data, out.len);
    str_fini(&out);
}

static void on_posted(void *arg) {
    struct peer_server *s = arg;
    s->before_posted = s->handled - s->at_post;
}

static void handle(void *arg, struct exchange *x) {
    struct peer_server *s = arg;
    const char *path = exchange_path(x);
    s->handled++;
    if (strcmp(path, "/hello") == 0) {
        exchange_reply(x, 200, "text/plain", "hello", 5);
    } else if (strcmp(path, "/stream") == 0) {
        exchange_begin(x, 200, "text/event-stream");
        for (int i = 0; i < 3; i++)
            exchange_write(x, "data: x\n\n", 9);
        exchange_end(x);
    } else if (strcmp(path, "/post") == 0) {
        s->at_post = s->handled;
        http_post(s->http, on_posted, s);
        exchange_reply(x, 204, NULL, NULL, 0);
    } else if (strcmp(path, "/hold") == 0) {
        hold(s, x);
    } else if (strcmp(path, "/flood") == 0) {
        flood(s, x);
    } else if (strcmp(path, "/nudge") == 0) {
        WAIT_UNTIL(s->sent >= 1);
        s->nudged = s->handled;
        peer_send(s->other, "GET /mark HTTP/1.1\r\nHost: localhost\r\n\r\n");
        exchange_reply(x, 200, "text/plain", "", 0);
    } else {
        if (strcmp(path, "/mark") == 0)
            s->marked = s->handled - s->nudged;
        echo(x);
    }
}

static void *run(void *arg) {
    struct peer_server *s = arg;
    struct err e = {0};
    s->rc = http_run(s->http, &e);
    return NULL;
}

void peer_start(struct peer_server *s, struct http_options o) {
    struct err e = {0};
    *s = (struct peer_server){.before_posted = -1};
    o.host = o.host || o.unix_path ? o.host : "127.0.0.1";
    o.handler = handle;
    o.arg = s;
    assert_int_equal(http_create(&s->http, &o, &e), 0);
    if (http_listen(s->http, &e))
        fail_msg("%s", e.text);
    const char *colon = strrchr(http_address(s->http, 0), ':');
    s->port = atoi(colon + 1);
    assert_int_equal(pthread_create(&s->thread, NULL, run, s), 0);
}

void peer_join(struct peer_server *s) {
    WAIT_JOIN(s->thread, NULL);
    assert_int_equal(s->rc, 0);
    http_destroy(s->http);
}

void peer_stop(struct peer_server *s) {
    http_stop(s->http);
    http_stop(s->http);
    peer_join(s);
}

int peer_connect(const struct peer_server *s) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s->port)};
    struct timeval limit = {.tv_sec = PATIENCE / 1000};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

void peer_send_bytes(int fd, const void *bytes, size_t n) {
    for (const char *p = bytes; n > 0;) {
        ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return; // refused early: the answer says why
        p += sent;
        n -= (size_t)sent;
    }
}

void peer_send(int fd, const char *text) {
    peer_send_bytes(fd, text, strlen(text));
}

int peer_read_all(int fd, struct str *out, int ms) {
    char buffer[65536];
    double end = peer_now() + ms;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int left = (int)(end - peer_now());
        if (left <= 0 || poll(&p, 1, left) <= 0)
            return 1;
        ssize_t n = recv(fd, buffer, sizeof buffer, 0);
        if (n <= 0)
            return n == 0 ? 0 : -1;
        if (out)
            str_append(out, buffer, (size_t)n);
    }
}

static bool read_line(int fd, struct str *line) {
    char c;
    str_clear(line);
    while (recv(fd, &c, 1, 0) == 1) {
        str_putc(line, c);
        if (c == '\n')
            return true;
    }
    return false;
}

static bool read_bytes(int fd, struct str *body, size_t n) {
    char buffer[4096];
    while (n > 0) {
        ssize_t got = recv(fd, buffer, n < sizeof buffer ? n : sizeof buffer, 0);
        if (got <= 0)
            return false;
        str_append(body, buffer, (size_t)got);
        n -= (size_t)got;
    }
    return true;
}

static void read_chunks(int fd, struct str *body, struct str *line) {
    while (read_line(fd, line)) {
        size_t n = strtoul(line->data, NULL, 16);
        if (!read_bytes(fd, body, n) || !read_line(fd, line) || n == 0)
            return;
    }
}

int peer_answer(int fd, struct str *head, struct str *body) {
    struct str line = {0};
    long length = 0;
    int status = 0;
    bool chunked = false;
    str_clear(head);
    str_clear(body);
    while (read_line(fd, &line) && strcmp(line.data, "\r\n") != 0) {
        if (head->len == 0)
            status = atoi(line.data + 9);
        if (strncmp(line.data, "Content-Length: ", 16) == 0)
            length = atol(line.data + 16);
        chunked |= strncmp(line.data, "Transfer-Encoding: chunked", 26) == 0;
        str_append(head, line.data, line.len);
    }
    if (chunked)
        read_chunks(fd, body, &line);
    else
        read_bytes(fd, body, (size_t)length);
    str_fini(&line);
    return status;
}

int peer_ask(const struct peer_server *s, const char *text, struct str *out) {
    struct str mine = {0};
    int fd = peer_connect(s);
    out = out ? out : &mine;
    str_clear(out);
    peer_send(fd, text);
    shutdown(fd, SHUT_WR);
    peer_read_all(fd, out, PATIENCE);
    close(fd);
    int status = out->len > 12 ? atoi(out->data + 9) : 0;
    str_fini(&mine);
    return status;
}

void peer_tell_counts(void *arg) {
    struct peer_server *s = arg;
    s->counts = http_counts(s->http);
    s->posted++;
}

struct http_counts peer_counts(struct peer_server *s) {
    int before = s->posted;
    assert_int_equal(http_post(s->http, peer_tell_counts, s), 0);
    WAIT_UNTIL(s->posted > before);
    return s->counts;
}

double peer_now(void) {
    return clock_ms();
}
