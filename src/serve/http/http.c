// SPDX-License-Identifier: Apache-2.0
// The HTTP server: accepting, time limits, and the end. All connections are looked at once a tick
// (up to a second) for what has lasted too long, which costs less than a timer for each and has no
// state to keep.
#include "serve/http/http.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/num.h"
#include "serve/http/impl.h"

enum {
    SPARE_DESCRIPTORS = 64, // for files, the loop and listeners
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

// The soft limit of descriptors goes up to the hard one; returns how many connections they leave.
static int raise_descriptors(void) {
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r))
        return 1024 - SPARE_DESCRIPTORS;
    rlim_t before = r.rlim_cur;
    r.rlim_cur = r.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &r))
        r.rlim_cur = before;
    int64_t n = r.rlim_cur > 1 << 20 ? 1 << 20 : (int64_t)r.rlim_cur;
    return (int)max_i64(n - SPARE_DESCRIPTORS, 1);
}

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

// What asks a program to end, by whatever way. A terminal that closes sends SIGHUP, which nohup has
// had ignored.
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
    set_defaults(&h->o, raise_descriptors());
    pthread_mutex_init(&h->lock, NULL);
    if (!make_events(h)) {
        http_destroy(h);
        return err_set(e, ERR_MEMORY, "out of memory or descriptors for the HTTP server");
    }
    *out = h;
    return 0;
}

static int tick_ms(const struct http *h) {
    int least = min_i32(min_i32(h->o.head_ms, h->o.body_ms), min_i32(h->o.idle_ms, h->o.stall_ms));
    return h->stops_seen ? 50 : clamp_i32(least / 4, 10, 1000);
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

// No descriptor is left for what wants to connect; it waits in the kernel until the next tick.
static void on_accept_failed(struct http *h) {
    close_idlest(h);
    listen_pause(h, true);
    if (!evtimer_pending(h->sweep, NULL))
        set_timer(h->sweep, tick_ms(h));
}

int http_listen(struct http *h, struct err *e) {
    return listen_all(h, on_accept, on_accept_failed, e);
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
        listen_pause(h, false);
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

// Tells every exchange that it must end; what is written then has wait_ms to leave.
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
    listen_end(h);
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
    listen_end(h);
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
