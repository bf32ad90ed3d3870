// SPDX-License-Identifier: Apache-2.0
// What a client sends, through a real connection: bytes go into one end of a pair of sockets, whose
// other end is a connection of the server. Every input is sent whole, and again cut in two: where
// the kernel cuts the bytes must change no answer. Afterwards nothing may be left of the
// connection.
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve/http/impl.h"

enum { INPUT_MAX = 64 << 10, ROUNDS_MAX = 1000 };

static struct http *server;
static struct exchange *held; // answered when the loop has nothing else to do
static size_t handled;

static void drop_held(void *arg) {
    (void)arg;
    exchange_abort(held);
    held = NULL;
}

// What a handler may do with an exchange, by the first letter of the path.
static void handle(void *arg, struct exchange *x) {
    static const struct exchange_hooks hooks = {.disconnected = drop_held};
    size_t n;
    const char *body = exchange_body(x, &n), *path = exchange_path(x);
    (void)arg;
    handled++;
    FUZZ_CHECK(body[n] == '\0' && *exchange_method(x) && exchange_query(x));
    FUZZ_CHECK(!exchange_disconnected(x));
    exchange_request_header(x, "Accept");
    exchange_header(x, "x-path", path);
    if (path[0] == '/' && path[1] == 's') {
        exchange_begin(x, 200, "text/event-stream");
        exchange_write(x, body, n);
        exchange_write(x, "data\n\n", 6);
        exchange_end(x);
    } else if (path[0] == '/' && path[1] == 'h') {
        FUZZ_CHECK(!held);
        held = x;
        exchange_watch(x, &hooks, NULL);
    } else if (path[0] == '/' && path[1] == 'a') {
        exchange_abort(x);
    } else {
        exchange_reply(x, 200, "text/plain", body, n);
    }
}

void fuzz_setup(void) {
    static const char *const origins[] = {"loopback"};
    struct http_options o = {.handler = handle,
                             .origins = origins,
                             .n_origins = 1,
                             .head_bytes = 2048,
                             .body_bytes = 4096,
                             .bodies_bytes = 5000};
    struct err e = {0};
    FUZZ_CHECK(http_create(&server, &o, &e) == 0);
}

static void collect(int fd, struct str *answers) {
    char buffer[4096];
    for (ssize_t n; (n = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT)) > 0;)
        str_append(answers, buffer, (size_t)n);
}

// Lets the loop do what there is to do, and answers what is held when there is nothing more.
static void settle(int fd, struct str *answers) {
    bool more = true;
    for (int i = 0; i < 4 || more; i++) {
        FUZZ_CHECK(i < ROUNDS_MAX);
        size_t before = answers->len;
        event_base_loop(server->base, EVLOOP_NONBLOCK);
        collect(fd, answers);
        more = held || answers->len > before;
        if (held && i > 2) {
            struct exchange *x = held;
            held = NULL;
            exchange_reply(x, 200, "text/plain", "held", 4);
        }
    }
}

// Length of what stands at s and may differ from run to run: the date, interim answers, whether the
// connection ends, which depends on when the client's end is seen.
static size_t varying(const char *s, size_t n) {
    static const char *const texts[] = {"HTTP/1.1 100 Continue\r\n\r\n", "Connection: close\r\n"};
    static const char date[] = "Date: Sun, 22 Nov 2026 19:00:00 GMT\r\n";
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (n >= strlen(texts[i]) && memcmp(s, texts[i], strlen(texts[i])) == 0)
            return strlen(texts[i]);
    return n >= sizeof date - 1 && memcmp(s, date, 6) == 0 ? sizeof date - 1 : 0;
}

static void normalise(struct str *s) {
    size_t to = 0;
    for (size_t i = 0, skip; i < s->len; i += skip) {
        skip = varying(s->data + i, s->len - i);
        if (skip == 0) {
            s->data[to++] = s->data[i];
            skip = 1;
        }
    }
    s->len = to;
}

// One client that sends data, first the bytes before `cut`, and then closes its side.
static void run(const uint8_t *data, size_t size, size_t cut, struct str *answers) {
    int pair[2];
    const struct sockaddr nobody = {.sa_family = AF_INET6}; // the guard of a network's client
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
    struct conn *c = conn_create(server, pair[0], &nobody, 0);
    if (c) {
        c->local = false;
        FUZZ_CHECK(send(pair[1], data, cut, MSG_NOSIGNAL) == (ssize_t)cut);
        settle(pair[1], answers);
        send(pair[1], data + cut, size - cut, MSG_NOSIGNAL); // refused when the end has been said
        shutdown(pair[1], SHUT_WR);
        settle(pair[1], answers);
    }
    close(pair[1]);
    while (server->conns)
        server->events->disconnected(server->conns);
    event_base_loop(server->base, EVLOOP_NONBLOCK);
    FUZZ_CHECK(!held && !server->exchanges && !server->dead && server->held == 0);
}

void fuzz_one(const uint8_t *data, size_t size, bool fragile) {
    struct str whole = {0}, parts = {0};
    size = size < INPUT_MAX ? size : INPUT_MAX;
    run(data, size, size, &whole);
    size_t first = handled;
    run(data, size, size > 2 ? data[size / 2] % size : 0, &parts);
    if (!fragile && !whole.failed && !parts.failed) {
        FUZZ_CHECK(handled - first == first);
        normalise(&whole);
        normalise(&parts);
        FUZZ_CHECK(whole.len == parts.len);
        FUZZ_CHECK(whole.len == 0 || memcmp(whole.data, parts.data, whole.len) == 0);
        FUZZ_CHECK(whole.len == 0 || memcmp(whole.data, "HTTP/1.1 ", 9) == 0);
    }
    handled = 0;
    str_fini(&whole);
    str_fini(&parts);
}
