// SPDX-License-Identifier: Apache-2.0
// One connection: bytes in, bytes out, and how it ends. It handles phases, not HTTP. Nothing is
// written while a caller is inside: writes gather in a buffer and leave in one system call before
// the loop waits again, so a step's chunks make one packet. A connection without a request holds no
// buffer.
#include "serve/http/impl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/num.h"

enum {
    AHEAD = 64 << 10, // bytes of further requests that are read while one runs
    VECTORS = 16,
    INPUTS = 32,   // of connections, before what other threads have posted has its turn
    SERVICES = 32, // of connections with input, before the loop looks at the others
};

static void name_peer(char *out, size_t size, const struct sockaddr *a) {
    char text[INET6_ADDRSTRLEN] = "?";
    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)a;
        inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
        snprintf(out, size, "%s:%d", text, ntohs(in->sin_port));
    } else if (a->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const void *)a;
        inet_ntop(AF_INET6, &in->sin6_addr, text, sizeof text);
        snprintf(out, size, "[%s]:%d", text, ntohs(in->sin6_port));
    } else {
        snprintf(out, size, "unix");
    }
}

// Tokens leave at once; and the kernel notices a machine that has vanished after a
// minute, also while nothing is written.
static void set_up_tcp(int fd) {
    int one = 1, idle = KEEPALIVE_IDLE_S, interval = KEEPALIVE_INTERVAL_S, count = KEEPALIVE_COUNT;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

static void on_readable(evutil_socket_t fd, short what, void *arg);
static void on_probe(evutil_socket_t fd, short what, void *arg);
static void on_writable(evutil_socket_t fd, short what, void *arg);

struct conn *conn_create(struct http *h, int fd, const struct sockaddr *peer, socklen_t len) {
    struct conn *c = calloc(1, sizeof *c);
    struct evbuffer *out = c ? evbuffer_new() : NULL;
    if (!out) {
        free(c);
        close(fd);
        return NULL;
    }
    *c = (struct conn){.h = h, .fd = fd, .out = out, .next = h->conns, .waiting.h = h};
    if (c->next)
        c->next->prev = c;
    h->conns = c;
    h->counts.connections++;
    c->local = len < sizeof(struct sockaddr_in) || peer->sa_family == AF_UNIX;
    if (c->local)
        snprintf(c->peer, sizeof c->peer, "unix");
    else
        name_peer(c->peer, sizeof c->peer, peer);
    if (!c->local)
        set_up_tcp(fd);
    event_assign(&c->read, h->base, fd, EV_READ | EV_PERSIST, on_readable, c);
    event_assign(&c->write, h->base, fd, EV_WRITE, on_writable, c);
    conn_enter(c, CONN_HEAD);
    if (event_add(&c->read, NULL))
        conn_close(c);
    return c;
}

size_t conn_pending(const struct conn *c) {
    return c->in.len - c->in_at;
}

void conn_used(struct conn *c, size_t n) {
    c->in_at += n;
    c->in_seen = 0;
    if (c->in_at == c->in.len) {
        str_fini(&c->in);
        c->in_at = 0;
    }
}

size_t conn_backlog(const struct conn *c) {
    return evbuffer_get_length(c->out);
}

void conn_enter(struct conn *c, enum conn_phase phase) {
    c->phase = phase;
    c->since = clock_ms();
}

void http_memory_set(struct http_memory *memory, size_t bytes) {
    if (!memory->h)
        return;
    atomic_fetch_add(&memory->h->held, bytes - memory->bytes); // modulo 2^64 where it shrinks
    memory->bytes = bytes;
}

void http_memory_release(struct http_memory *memory) {
    http_memory_set(memory, 0);
}

bool http_crowded(const struct http *h) {
    return atomic_load(&h->held) > h->o.bodies_bytes;
}

// Pieces of a stream are bounded and do not count.
static void count_waiting(struct conn *c) {
    size_t n = conn_backlog(c);
    http_memory_set(&c->waiting, n > EXCHANGE_FULL ? n : 0);
}

// What is marked while marks are being serviced waits until the loop has looked at the others.
static void wake_flush(struct http *h) {
    static const struct timeval now = {0, 0};
    if (h->flushing)
        event_add(h->flush, &now);
    else
        event_active(h->flush, EV_TIMEOUT, 0);
}

void conn_mark(struct conn *c) {
    if (c->dirty || c->dead)
        return;
    c->dirty = true;
    c->next_dirty = c->h->dirty;
    c->h->dirty = c;
    wake_flush(c->h);
}

void conn_break(struct conn *c) {
    c->broken = true;
    conn_mark(c);
}

void conn_write(struct conn *c, const void *bytes, size_t n) {
    if (c->dead || c->broken || n == 0)
        return;
    if (conn_backlog(c) == 0)
        c->progress = clock_ms();
    if (evbuffer_add(c->out, bytes, n)) { // half an answer is worse than none
        conn_break(c);
        return;
    }
    c->full |= conn_backlog(c) > EXCHANGE_FULL;
    count_waiting(c);
    conn_mark(c);
}

// While a client waits for its answer, what it sends beyond some room stays in the kernel.
// (libevent's EV_CLOSED would tell when it closes, but not of a reset, with which the loop would
// then spin.)
static void pause_reads(struct conn *c) {
    c->paused = true;
    event_del(&c->read);
    conn_probe(c);
}

void conn_watch_reads(struct conn *c) {
    bool lacks = c->phase == CONN_HEAD && !c->dirty && !c->full; // a head that is not whole
    if (!c->paused || c->dead || c->eof || (conn_pending(c) >= AHEAD && !lacks))
        return;
    c->paused = false;
    if (event_add(&c->read, NULL))
        conn_break(c);
}

static void see_client_end(struct conn *c) {
    c->eof = true;
    event_del(&c->read);
    if (c->phase == CONN_LINGER)
        conn_close(c);
    else
        c->h->events->finish(c);
}

static void take_input(struct conn *c, const char *bytes, size_t n) {
    if (c->phase == CONN_LINGER || (c->phase == CONN_HEAD && c->last))
        return;
    if (c->in_at) { // what is left of the last one moves to the front
        memmove(c->in.data, c->in.data + c->in_at, conn_pending(c));
        c->in.len = conn_pending(c);
        c->in_at = 0;
    }
    str_append(&c->in, bytes, n);
    if (c->in.failed) {
        c->h->events->disconnected(c);
        return;
    }
    c->h->events->input(c);
    bool later = c->phase == CONN_RUN || c->full || c->dirty;
    if (!c->dead && !c->eof && later && conn_pending(c) >= AHEAD)
        pause_reads(c);
}

// Streams go on however many clients speak at once: from time to time, what other threads have
// posted is run and leaves, which may free connections.
static void give_others_turn(struct http *h) {
    if (++h->inputs < INPUTS)
        return;
    h->inputs = 0;
    http_run_tasks(h);
    conn_flush(h);
}

static void on_readable(evutil_socket_t fd, short what, void *arg) {
    struct conn *c = arg;
    struct http *h = c->h;
    (void)what;
    if (c->dead)
        return;
    ssize_t n = recv(fd, h->scratch, HTTP_SCRATCH, 0);
    if (n > 0)
        take_input(c, h->scratch, (size_t)n);
    else if (n == 0)
        see_client_end(c);
    else if (errno != EAGAIN && errno != EINTR)
        h->events->disconnected(c);
    give_others_turn(h);
}

// Hands to the kernel what it takes; false when the connection is broken.
static bool send_backlog(struct conn *c) {
    struct evbuffer_iovec v[VECTORS];
    while (conn_backlog(c)) {
        int n = evbuffer_peek(c->out, -1, NULL, v, VECTORS);
        struct msghdr m = {.msg_iov = (struct iovec *)v, .msg_iovlen = (size_t)min_i32(n, VECTORS)};
        ssize_t sent = sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return errno == EAGAIN && event_add(&c->write, NULL) == 0;
        evbuffer_drain(c->out, (size_t)sent);
        count_waiting(c);
        c->progress = clock_ms();
    }
    return true;
}

// After the last answer: the client gets time to read it before the connection is closed for good.
static void linger(struct conn *c) {
    if (c->eof || shutdown(c->fd, SHUT_WR)) {
        conn_close(c);
        return;
    }
    conn_used(c, conn_pending(c));
    conn_enter(c, CONN_LINGER);
    conn_watch_reads(c);
}

static void send_answers(struct conn *c) {
    if (c->broken || !send_backlog(c)) {
        c->h->events->disconnected(c);
        return;
    }
    if (c->full && conn_backlog(c) <= EXCHANGE_FULL / 4) {
        c->full = false;
        c->h->events->space(c);
    }
    if (!c->dead && c->last && conn_backlog(c) == 0 && c->phase == CONN_HEAD)
        linger(c);
}

static void on_writable(evutil_socket_t fd, short what, void *arg) {
    struct conn *c = arg;
    (void)fd;
    (void)what;
    if (!c->dead)
        send_answers(c);
}

// Looks after a connection that is not read. A closed client and one that has finished sending look
// the same (FIN), and one that finishes now may close later without a further word. What tells them
// apart is the answer to a write: `finish` makes one that means nothing, and again from time to
// time while the answer is being made; if the client has disconnected, its system resets the
// connection.
static void on_probe(evutil_socket_t fd, short what, void *arg) {
    struct conn *c = arg;
    struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
    (void)fd;
    (void)what;
    if (c->dead || !(c->paused || c->eof))
        return;
    bool ready = poll(&p, 1, 0) > 0, runs = c->phase == CONN_RUN;
    if (ready && p.revents & (POLLERR | POLLHUP)) {
        c->h->events->disconnected(c);
    } else if (ready && !c->eof && !c->halved && runs) {
        c->halved = true; // but what it has sent before is still to be read
        c->h->events->finish(c);
    } else if ((c->eof || c->halved) && runs && clock_ms() - c->probed >= PROBE_WRITE_MS) {
        c->h->events->finish(c);
    } else {
        c->probe_ms = min_i32(2 * c->probe_ms, PROBE_MAX_MS);
        struct timeval wait = {c->probe_ms / 1000, c->probe_ms % 1000 * 1000};
        event_add(c->probe, &wait);
    }
}

void conn_probe(struct conn *c) {
    if (!c->probe)
        c->probe = evtimer_new(c->h->base, on_probe, c);
    c->probe_ms = PROBE_MS;
    c->probed = clock_ms();
    struct timeval wait = {0, PROBE_MS * 1000};
    if (c->probe)
        event_add(c->probe, &wait);
}

bool conn_may_be_disconnected(const struct conn *c) {
    struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
    return c->dead || c->eof || c->halved || poll(&p, 1, 0) > 0;
}

bool conn_is_disconnected(const struct conn *c) {
    struct pollfd p = {.fd = c->fd};
    return poll(&p, 1, 0) > 0;
}

void conn_close(struct conn *c) {
    if (c->dead)
        return;
    c->dead = true;
    event_del(&c->read);
    event_del(&c->write);
    if (c->probe)
        event_free(c->probe);
    c->probe = NULL;
    close(c->fd);
    if (c->prev)
        c->prev->next = c->next;
    else
        c->h->conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    c->h->counts.connections--;
    // prev and next stay for who walks the list.
    c->next_dead = c->h->dead;
    c->h->dead = c;
    wake_flush(c->h);
}

static void service_conn(struct conn *c) {
    c->dirty = false;
    if (!c->dead && c->phase == CONN_HEAD)
        c->h->events->input(c);
    if (!c->dead)
        send_answers(c);
    if (!c->dead)
        conn_watch_reads(c);
}

static void free_closed(struct http *h) {
    struct conn **at = &h->dead;
    while (*at) {
        struct conn *c = *at;
        if (c->dirty) { // still in that list, for the next time
            at = &c->next_dead;
            continue;
        }
        *at = c->next_dead;
        http_memory_release(&c->waiting);
        evbuffer_free(c->out);
        str_fini(&c->in);
        free(c);
    }
}

// What has no time now comes before what is marked again in between, and after what will be.
static void keep_marked(struct http *h, struct conn *list) {
    struct conn **end = &list;
    while (*end)
        end = &(*end)->next_dirty;
    *end = h->dirty;
    h->dirty = list;
}

void conn_flush(struct http *h) {
    struct conn *list = h->dirty;
    int inputs = 0;
    h->dirty = NULL;
    h->flushing = true;
    while (list && inputs < SERVICES) {
        struct conn *c = list;
        list = c->next_dirty;
        inputs += !c->dead && c->phase == CONN_HEAD && conn_pending(c) > 0;
        service_conn(c);
    }
    if (list) {
        keep_marked(h, list);
        wake_flush(h);
    }
    h->flushing = false;
    free_closed(h);
}

void conn_abort(struct conn *c) {
    if (!c->dead)
        send_backlog(c);
    conn_close(c);
}
