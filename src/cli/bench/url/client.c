// SPDX-License-Identifier: Apache-2.0
// Connections of `bench --url`; see client.h.
#include "cli/bench/url/client.h"

#include <errno.h>
#include <fcntl.h>
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
#include "base/vec.h"

enum { EVENTS = 256, BUFFER = 64 << 10, SWEEP_MS = 100 };

struct connection {
    int fd;
    int64_t place;          // in the client's list
    struct url_call *call;  // NULL: idle
    struct addrinfo *tried; // the address that it connects to; NULL: it is connected
    bool used;              // it has served an answer
    bool writing;           // epoll tells when it can be written
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
    const struct addrinfo want = {.ai_socktype = SOCK_STREAM};
    struct url_client *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c)
        return err_set(e, ERR_MEMORY, "no memory for a client");
    c->done = done;
    c->arg = arg;
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    const char *host = strcasecmp(t->host, "localhost") == 0 ? NULL : t->host; // RFC 6761, 6.3
    int code = getaddrinfo(host, t->port, &want, &c->addresses);
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

static bool watch(struct url_client *c, struct connection *k, int how, bool writing) {
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
            watch(c, k, EPOLL_CTL_ADD, true))
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
static void fail(struct url_client *c, struct connection *k, enum url_outcome outcome,
                 const char *message) {
    struct url_call *call = k->call;
    disconnect(c, k);
    fail_call(c, call, outcome, message);
}

// The server had closed an idle connection: the call gets a new one.
static void again(struct url_client *c, struct connection *k) {
    struct url_call *call = k->call;
    disconnect(c, k);
    if (!connect_call(c, call))
        fail_call(c, call, URL_CONNECT, strerror(errno));
}

static bool unanswered(const struct connection *k) {
    return k->used && !k->call->reply.http.status && !k->call->reply.http.line.len;
}

// The connection ended, by errno `why` or (0) in order.
static void lost(struct url_client *c, struct connection *k, int why) {
    if (!k->call) {
        disconnect(c, k);
    } else if (unanswered(k)) {
        again(c, k);
    } else if (why) {
        fail(c, k, URL_CLOSED, strerror(why));
    } else {
        struct url_call *call = k->call;
        disconnect(c, k);
        url_reply_close(&call->reply, clock_ms());
        c->done(c->arg, call);
    }
}

static void write_call(struct url_client *c, struct connection *k) {
    struct url_call *call = k->call;
    while (call->sent < call->out.len) {
        ssize_t n =
            send(k->fd, call->out.data + call->sent, call->out.len - call->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
            lost(c, k, errno);
            return;
        }
        if (n < 0)
            break;
        call->sent += (size_t)n;
    }
    bool more = call->sent < call->out.len;
    if (more != k->writing && !watch(c, k, EPOLL_CTL_MOD, more))
        fail(c, k, URL_CONNECT, strerror(errno));
}

void url_client_start(struct url_client *c, struct url_call *call) {
    call->sent = 0;
    for (int64_t i = c->n - 1; c->idle && i >= 0; i--)
        if (!c->all[i]->call) {
            c->idle--;
            c->all[i]->call = call;
            write_call(c, c->all[i]);
            return;
        }
    if (!connect_call(c, call))
        fail_call(c, call, URL_CONNECT, strerror(errno));
}

// The address answered, or another one is tried.
static void connected(struct url_client *c, struct connection *k) {
    int why = 0;
    socklen_t size = sizeof why;
    getsockopt(k->fd, SOL_SOCKET, SO_ERROR, &why, &size);
    if (!why) {
        c->first = k->tried;
        k->tried = NULL;
        write_call(c, k);
        return;
    }
    close(k->fd);
    if (open_socket(c, k, k->tried->ai_next))
        return;
    k->fd = -1;
    fail(c, k, URL_CONNECT, strerror(why));
}

static void read_reply(struct url_client *c, struct connection *k) {
    ssize_t n = recv(k->fd, c->buffer, sizeof c->buffer, 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    struct url_call *call = k->call;
    if (n <= 0 || !call) { // what comes without a request is no answer
        lost(c, k, n < 0 ? errno : 0);
        return;
    }
    if (!url_reply_push(&call->reply, c->buffer, (size_t)n, clock_ms()))
        return;
    k->call = NULL;
    k->used = true;
    c->idle++;
    if (call->reply.http.close || call->sent < call->out.len)
        disconnect(c, k);
    c->done(c->arg, call);
}

static void handle(struct url_client *c, struct connection *k, uint32_t events) {
    if (k->tried)
        connected(c, k);
    else if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        read_reply(c, k);
    else if (k->call)
        write_call(c, k);
}

void url_client_drop(struct url_client *c) {
    for (int64_t i = c->n - 1; i >= 0; i--)
        if (c->all[i]->call)
            fail(c, c->all[i], URL_CLOSED, "the client stopped");
}

// Ends the calls whose time is up.
static void sweep(struct url_client *c, double now) {
    c->swept = now;
    for (int64_t i = c->n - 1; i >= 0; i--)
        if (c->all[i]->call && c->all[i]->call->deadline < now)
            fail(c, c->all[i], URL_TIMEOUT, "the answer took longer than --timeout");
}

int url_client_wait(struct url_client *c, double ms, struct err *e) {
    struct epoll_event events[EVENTS];
    double most = fmax(0, fmin(ms, SWEEP_MS)); // its fraction is spent polling
    int n = epoll_wait(c->epoll, events, EVENTS, (int)most);
    if (n < 0 && errno != EINTR)
        return err_set(e, ERR_IO, "cannot wait for connections: %s", strerror(errno));
    for (int i = 0; i < n; i++)
        handle(c, events[i].data.ptr, events[i].events);
    double now = clock_ms();
    if (now - c->swept >= (double)SWEEP_MS)
        sweep(c, now);
    return 0;
}
