// SPDX-License-Identifier: Apache-2.0
// The HTTP server: where it listens (every address of a host name, and a path), time limits, and
// the end. All connections are looked at once a tick (up to a second) for what has lasted too long,
// which costs less than a timer for each and has no state to keep. A dead socket file that an
// earlier server left is replaced, a living one is not.
#include "serve/http/http.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/num.h"
#include "serve/http/impl.h"

enum {
    RESERVED_DESCRIPTORS = 64, // for files, the loop and listeners
    BACKLOG = 4096,            // of a listener
    ACCEPTS = 16,              // of one listener before others have their turn
    GRACE_MAX_S = 1000000
};

static void set_timer(struct event *ev, int ms) {
    struct timeval t = {ms / 1000, ms % 1000 * 1000};
    event_add(ev, &t);
}

static void on_wake(evutil_socket_t fd, short what, void *arg);
static void on_flush(evutil_socket_t fd, short what, void *arg);
static void on_sweep(evutil_socket_t fd, short what, void *arg);
static void on_deadline(evutil_socket_t fd, short what, void *arg);
static void on_signal(evutil_socket_t fd, short what, void *arg);

static void set_defaults(struct http_options *o, int descriptors) {
    o->head_bytes = o->head_bytes ? o->head_bytes : 64 << 10;
    o->body_bytes = o->body_bytes ? o->body_bytes : 64 << 20;
    o->bodies_bytes = o->bodies_bytes ? o->bodies_bytes : 1 << 30;
    o->connections = o->connections > 0 ? min_i32(o->connections, descriptors) : descriptors;
    o->head_ms = o->head_ms > 0 ? o->head_ms : HTTP_HEAD_MS;
    o->body_ms = o->body_ms > 0 ? o->body_ms : HTTP_BODY_MS;
    o->idle_ms = o->idle_ms > 0 ? o->idle_ms : HTTP_IDLE_MS;
    o->stall_ms = o->stall_ms > 0 ? o->stall_ms : HTTP_STALL_MS;
    o->grace_s = o->grace_s == 0 ? HTTP_GRACE_S : fmin(fmax(o->grace_s, 0), GRACE_MAX_S);
}

// What requests a program to end, by whatever way. A terminal that closes sends SIGHUP, which nohup
// has had ignored.
static bool make_signals(struct http *h) {
    static const int ending[HTTP_SIGNALS] = {SIGTERM, SIGINT, SIGQUIT, SIGHUP};
    struct sigaction before;
    for (int i = 0; i < HTTP_SIGNALS; i++) {
        if (ending[i] == SIGHUP && !sigaction(SIGHUP, NULL, &before) &&
            before.sa_handler == SIG_IGN)
            continue;
        h->signals[i] = evsignal_new(h->base, ending[i], on_signal, h);
        if (!h->signals[i] || event_add(h->signals[i], NULL))
            return false;
    }
    return true;
}

static bool make_events(struct http *h) {
    struct event_config *config = event_config_new();
    // No lock: the loop is entered by one thread, others reach it through a descriptor.
    if (config && !event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK))
        h->base = event_base_new_with_config(config);
    if (config)
        event_config_free(config);
    h->scratch = malloc(HTTP_SCRATCH);
    h->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (!h->base || !h->scratch || h->wake_fd < 0)
        return false;
    h->wake = event_new(h->base, h->wake_fd, EV_READ | EV_PERSIST, on_wake, h);
    h->flush = evtimer_new(h->base, on_flush, h);
    h->sweep = evtimer_new(h->base, on_sweep, h);
    h->deadline = evtimer_new(h->base, on_deadline, h);
    return h->wake && h->flush && h->sweep && h->deadline && event_add(h->wake, NULL) == 0 &&
           (!h->o.signals || make_signals(h));
}

int http_create(struct http **out, const struct http_options *o, struct err *e) {
    *out = NULL;
    if (!o->handler)
        return err_set(e, ERR_USAGE, "an HTTP server needs a handler");
    for (size_t i = 0; i < o->n_keys; i++)
        if (!*o->keys[i])
            return err_set(e, ERR_USAGE, "an API key is empty");
    struct http *h = calloc(1, sizeof *h);
    if (!h)
        return err_set(e, ERR_MEMORY, "out of memory for the HTTP server");
    h->o = *o;
    h->events = &http_exchange_events;
    h->wake_fd = -1;
    set_defaults(&h->o, max_i32(file_raise_limit() - RESERVED_DESCRIPTORS, 1));
    pthread_mutex_init(&h->lock, NULL);
    if (!make_events(h)) {
        http_destroy(h);
        return err_set(e, ERR_MEMORY, "out of memory or descriptors for the HTTP server");
    }
    *out = h;
    return 0;
}

static void pause_listeners(struct http *h, bool pause) {
    h->paused = pause;
    for (int i = 0; i < h->n_listeners; i++)
        pause ? event_del(h->listeners[i]) : event_add(h->listeners[i], NULL);
}

static void end_listeners(struct http *h) {
    struct stat s;
    for (int i = 0; i < h->n_listeners; i++) {
        int fd = event_get_fd(h->listeners[i]);
        event_free(h->listeners[i]);
        close(fd);
    }
    h->n_listeners = 0;
    // Another server may have taken the path over by now; then it is not ours to remove.
    if (h->unix_inode && stat(h->o.unix_path, &s) == 0 && s.st_dev == h->unix_device &&
        s.st_ino == h->unix_inode)
        unlink(h->o.unix_path);
    h->unix_inode = 0;
}

static int tick_ms(const struct http *h) {
    int min = min_i32(min_i32(h->o.head_ms, h->o.body_ms), min_i32(h->o.idle_ms, h->o.stall_ms));
    return h->stops_seen ? 50 : clamp_i32(min / 4, 10, 1000);
}

// Where all connections are in use, the one that has been idle longest makes room.
static void close_idlest(struct http *h) {
    struct conn *oldest = NULL;
    for (struct conn *c = h->conns; c; c = c->next)
        if (c->phase == CONN_HEAD && conn_pending(c) == 0 && (!oldest || c->since < oldest->since))
            oldest = c;
    if (oldest)
        conn_close(oldest);
}

static void on_accept(struct http *h, int fd, const struct sockaddr *peer, socklen_t n) {
    h->counts.accepted++;
    if (h->counts.connections >= h->o.connections)
        close_idlest(h);
    if (h->counts.connections >= h->o.connections) {
        close(fd);
        return;
    }
    conn_create(h, fd, peer, n);
    if (!evtimer_pending(h->sweep, NULL))
        set_timer(h->sweep, tick_ms(h));
}

// No descriptor is left for new connections; it waits in the kernel until the next tick.
static void on_accept_failed(struct http *h) {
    close_idlest(h);
    pause_listeners(h, true);
    if (!evtimer_pending(h->sweep, NULL))
        set_timer(h->sweep, tick_ms(h));
}

static bool is_loopback_address(const struct sockaddr *a) {
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

// libevent's own listener accepts as long as clients connect, which may be for ever.
static void on_connecting(evutil_socket_t listener, short what, void *arg) {
    struct http *h = arg;
    (void)what;
    for (int i = 0; i < ACCEPTS && !h->paused; i++) {
        struct sockaddr_storage peer = {0};
        socklen_t n = sizeof peer;
        int fd = accept4(listener, (struct sockaddr *)&peer, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
            on_accept(h, fd, (struct sockaddr *)&peer, n);
        else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            on_accept_failed(h);
        else if (errno != ECONNABORTED && errno != EINTR) // one client's trouble
            return;
    }
}

static int add_listener(struct http *h, int fd, struct err *e) {
    struct event *l = event_new(h->base, fd, EV_READ | EV_PERSIST, on_connecting, h);
    if (!l || event_add(l, NULL)) {
        if (l)
            event_free(l);
        close(fd);
        return err_set(e, ERR_MEMORY, "out of memory for a listening socket");
    }
    h->listeners[h->n_listeners++] = l;
    return 0;
}

// A listening socket on a, NULL-free; -1 with errno.
static int open_tcp(const struct addrinfo *a) {
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (a->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static void set_port(struct sockaddr *a, int port) {
    if (a->sa_family == AF_INET)
        ((struct sockaddr_in *)(void *)a)->sin_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in6 *)(void *)a)->sin6_port = htons((uint16_t)port);
}

// Writes the address that fd has got and returns its port.
static int note_address(struct http *h, int fd) {
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof a;
    char host[64] = "?", port[16] = "0";
    getsockname(fd, (struct sockaddr *)&a, &len);
    getnameinfo((struct sockaddr *)&a, len, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    bool six = a.ss_family == AF_INET6;
    snprintf(h->address[h->n_listeners], sizeof *h->address, "http://%s%s%s:%s", six ? "[" : "",
             host, six ? "]" : "", port);
    return ntohs(six ? ((struct sockaddr_in6 *)(void *)&a)->sin6_port
                     : ((struct sockaddr_in *)(void *)&a)->sin_port);
}

static int resolve_host(const struct http *h, struct addrinfo **found, struct err *e) {
    char host[256], port[16];
    size_t n = strlen(h->o.host);
    bool bracketed = n > 2 && h->o.host[0] == '[' && h->o.host[n - 1] == ']';
    if (n >= sizeof host || n == 0)
        return err_set(e, ERR_USAGE, "the host to listen on is %s",
                       n ? "too long a name" : "empty");
    if (h->o.port < 0 || h->o.port > 65535)
        return err_set(e, ERR_USAGE, "%d is no port; ports are 0 (any free one) to 65535",
                       h->o.port);
    snprintf(host, sizeof host, "%.*s", (int)(bracketed ? n - 2 : n), h->o.host + bracketed);
    snprintf(port, sizeof port, "%d", h->o.port);
    bool own = strcasecmp(host, "localhost") == 0; // whatever the system knows (RFC 6761, 6.3)
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV | (own ? 0 : AI_PASSIVE)};
    int code = getaddrinfo(own ? NULL : host, port, &hints, found);
    if (code)
        return err_set(e, ERR_IO, "cannot find the address of '%s': %s", host, gai_strerror(code));
    for (struct addrinfo *a = *found; a; a = a->ai_next)
        if (!is_loopback_address(a->ai_addr) && h->o.n_keys == 0 && !h->o.any_host) {
            freeaddrinfo(*found);
            return err_set(
                e, ERR_USAGE,
                "'%s' can be reached from other machines, and without a key anybody there "
                "could use this server; give it a key (--api-key-file), or let anybody in "
                "(--public)",
                host);
        }
    return 0;
}

static int listen_tcp(struct http *h, struct err *e) {
    struct addrinfo *found = NULL;
    int rc = resolve_host(h, &found, e), port = h->o.port, why = 0, bound = 0;
    if (rc)
        return rc;
    int max = HTTP_LISTENERS - 1; // one is left for a path
    for (struct addrinfo *a = found; a && !rc && h->n_listeners < max; a = a->ai_next) {
        if (a->ai_family != AF_INET && a->ai_family != AF_INET6)
            continue;
        set_port(a->ai_addr, port);
        int fd = open_tcp(a);
        if (fd < 0 && errno == EADDRINUSE)
            rc = err_set(e, ERR_IO, "cannot listen on %s port %d: another program does", h->o.host,
                         port);
        if (fd < 0) {
            why = errno;
            continue;
        }
        bound++;
        port = note_address(h, fd);
        rc = add_listener(h, fd, e);
    }
    freeaddrinfo(found);
    if (!rc && bound == 0)
        rc = err_set(e, ERR_IO, "cannot listen on %s port %d: %s", h->o.host, port, strerror(why));
    return rc;
}

// Makes the path free where a server that is gone has left its socket.
static int clear_path(const struct sockaddr_un *a, struct err *e) {
    struct stat s;
    if (lstat(a->sun_path, &s))
        return 0;
    if (!S_ISSOCK(s.st_mode))
        return err_set(e, ERR_USAGE, "%s exists and is no socket; choose another path",
                       a->sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_set(e, ERR_IO, "cannot make a socket: %s", strerror(errno));
    int failed = connect(fd, (const struct sockaddr *)a, sizeof *a), why = errno;
    close(fd);
    if (!failed || why != ECONNREFUSED)
        return err_set(e, ERR_STATE, "another program listens on %s", a->sun_path);
    if (unlink(a->sun_path))
        return err_set(e, ERR_IO, "cannot replace %s: %s", a->sun_path, strerror(errno));
    return 0;
}

static int listen_unix(struct http *h, struct err *e) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(h->o.unix_path) >= sizeof a.sun_path || !*h->o.unix_path)
        return err_set(e, ERR_USAGE, "the path of a socket has 1 to %zu bytes",
                       sizeof a.sun_path - 1);
    memcpy(a.sun_path, h->o.unix_path, strlen(h->o.unix_path));
    int rc = clear_path(&a, e);
    if (rc)
        return rc;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    // The mode is set before anybody can connect, which needs listen.
    if (fd < 0 || fchmod(fd, 0600) || bind(fd, (const struct sockaddr *)&a, sizeof a) ||
        chmod(a.sun_path, 0600) || listen(fd, BACKLOG)) {
        rc = err_set(e, ERR_IO, "cannot listen on %s: %s", a.sun_path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return rc;
    }
    struct stat s;
    if (stat(a.sun_path, &s) == 0) {
        h->unix_device = s.st_dev;
        h->unix_inode = s.st_ino;
    }
    snprintf(h->address[h->n_listeners], sizeof *h->address, "unix:%s", a.sun_path);
    return add_listener(h, fd, e);
}

int http_listen(struct http *h, struct err *e) {
    if (!h->o.host && !h->o.unix_path)
        return err_set(e, ERR_USAGE, "neither a host nor the path of a socket to listen on");
    int rc = h->o.host ? listen_tcp(h, e) : 0;
    if (!rc && h->o.unix_path)
        rc = listen_unix(h, e);
    if (rc)
        end_listeners(h);
    return rc;
}

const char *http_address(const struct http *h, size_t i) {
    return i < (size_t)h->n_listeners ? h->address[i] : NULL;
}

static void on_flush(evutil_socket_t fd, short what, void *arg) {
    (void)fd;
    (void)what;
    conn_flush(arg);
}

static bool overdue(const struct conn *c, double now) {
    const struct http_options *o = &c->h->o;
    double spent = now - c->since;
    if (conn_backlog(c) > 0 && now - c->progress > o->stall_ms)
        return true;
    switch (c->phase) {
    case CONN_HEAD: // one that does not take its answers is for stall_ms
        return !c->full && spent > (conn_pending(c) == 0 && c->used ? o->idle_ms : o->head_ms);
    case CONN_BODY:
        return now > c->until;
    case CONN_RUN:
        return false;
    case CONN_LINGER:
        return spent > (c->h->stops_seen ? LINGER_DRAINING_MS : LINGER_MS);
    }
    return false;
}

static void on_sweep(evutil_socket_t fd, short what, void *arg) {
    struct http *h = arg;
    double now = clock_ms();
    (void)fd;
    (void)what;
    for (struct conn *c = h->conns; c; c = c->next)
        if (!c->dead && overdue(c, now))
            h->events->late(c);
    if (h->paused && !h->stops_seen)
        pause_listeners(h, false);
    if (h->conns)
        set_timer(h->sweep, tick_ms(h));
    else if (h->stops_seen)
        event_base_loopbreak(h->base);
}

void http_stop(struct http *h) {
    uint64_t one = 1;
    int before = errno;
    atomic_fetch_add(&h->stops, 1);
    if (write(h->wake_fd, &one, sizeof one) < 0)
        errno = before; // see http_post
    errno = before;
}

static void on_signal(evutil_socket_t fd, short what, void *arg) {
    (void)fd;
    (void)what;
    http_stop(arg);
}

bool http_draining(const struct http *h) {
    return h->stops_seen > 0;
}

// Asks every exchange to end; what is written then has wait_ms to leave.
static void cut_exchanges(struct http *h, int wait_ms) {
    h->cut = true;
    for (struct conn *c = h->conns; c; c = c->next)
        if (c->x && c->x->handed && c->x->hooks.cut)
            c->x->hooks.cut(c->x->arg);
    for (struct conn *c = h->conns; c; c = c->next)
        if (!c->dead && c->phase != CONN_RUN && conn_backlog(c) == 0)
            conn_close(c);
    set_timer(h->deadline, wait_ms);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg) {
    struct http *h = arg;
    (void)fd;
    (void)what;
    if (!h->cut)
        cut_exchanges(h, CUT_MS);
    else
        event_base_loopbreak(h->base);
}

static void begin_drain(struct http *h) {
    end_listeners(h);
    for (struct conn *c = h->conns; c; c = c->next)
        if (!c->dead && c->phase == CONN_HEAD && conn_pending(c) == 0 && conn_backlog(c) == 0)
            conn_close(c);
    for (struct conn *c = h->conns; c; c = c->next)
        if (c->x && c->x->handed && c->x->hooks.drain)
            c->x->hooks.drain(c->x->arg);
    set_timer(h->deadline, (int)(1e3 * h->o.grace_s));
    set_timer(h->sweep, 0);
}

static void see_stops(struct http *h) {
    int stops = atomic_load(&h->stops);
    if (stops > 0 && h->stops_seen == 0) {
        h->stops_seen = 1;
        begin_drain(h);
    }
    if (stops > 1 && !h->cut)
        cut_exchanges(h, CUT_FAST_MS);
    h->stops_seen = stops;
}

static void on_wake(evutil_socket_t fd, short what, void *arg) {
    struct http *h = arg;
    uint64_t count;
    (void)what;
    if (read(fd, &count, sizeof count) < 0)
        count = 0; // nothing to read: another wake-up has taken it
    see_stops(h);
    http_run_tasks(h);
}

// After the loop: connections go, and what was posted until now is run a last time.
static void close_all(struct http *h) {
    end_listeners(h);
    while (h->conns)
        h->events->disconnected(h->conns);
    conn_flush(h);
    pthread_mutex_lock(&h->lock);
    h->closed = true;
    pthread_mutex_unlock(&h->lock);
    http_run_tasks(h);
}

int http_run(struct http *h, struct err *e) {
    if (h->ran)
        return err_set(e, ERR_STATE, "an HTTP server runs only once");
    h->ran = true;
    see_stops(h); // one that came before
    int failed = event_base_loop(h->base, EVLOOP_NO_EXIT_ON_EMPTY);
    close_all(h);
    return failed < 0 ? err_set(e, ERR_IO, "the event loop of the HTTP server failed") : 0;
}

struct http_counts http_counts(const struct http *h) {
    struct http_counts counts = h->counts;
    counts.body_bytes = (int64_t)atomic_load(&h->held);
    return counts;
}

static void drop_event(struct event *ev) {
    if (ev)
        event_free(ev);
}

void http_destroy(struct http *h) {
    if (!h)
        return;
    if (h->base)
        close_all(h);
    while (h->exchanges)
        exchange_free(h->exchanges);
    while (h->timers) {
        struct http_timer *t = h->timers;
        h->timers = t->next;
        event_free(t->event);
        free(t);
    }
    struct event *const events[] = {h->wake, h->flush, h->sweep, h->deadline};
    for (int i = 0; i < HTTP_SIGNALS; i++)
        drop_event(h->signals[i]);
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        drop_event(events[i]);
    if (h->base)
        event_base_free(h->base);
    if (h->wake_fd >= 0)
        close(h->wake_fd);
    free(h->scratch);
    pthread_mutex_destroy(&h->lock);
    free(h);
}
