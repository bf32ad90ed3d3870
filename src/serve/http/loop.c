// SPDX-License-Identifier: Apache-2.0
// What others have in the loop of the HTTP server: tasks from other threads, timers, descriptors;
// see http.h.
#include <stdlib.h>
#include <unistd.h>

#include "serve/http/http.h"
#include "serve/http/impl.h"

struct http_watch {
    struct http *h;
    struct event *event;
    int fd;
    http_ready_fn *fn;
    void *arg;
};

struct http_alarm {
    struct event *event;
    void (*fn)(void *);
    void *arg;
};

int http_post_task(struct http *h, struct http_task *t) {
    uint64_t one = 1;
    t->next = NULL;
    pthread_mutex_lock(&h->lock);
    bool closed = h->closed, first = !closed && !h->tasks;
    if (!closed) {
        *(first ? &h->tasks : h->last_task) = t;
        h->last_task = &t->next;
    }
    pthread_mutex_unlock(&h->lock);
    if (first && write(h->wake_fd, &one, sizeof one) < 0)
        return 0; // the counter is full, so the loop is awake
    return closed ? ERR_STATE : 0;
}

int http_post(struct http *h, void (*fn)(void *), void *arg) {
    struct http_task *t = malloc(sizeof *t);
    if (!t)
        return ERR_MEMORY;
    *t = (struct http_task){.fn = fn, .arg = arg, .owned = true};
    int rc = http_post_task(h, t);
    if (rc)
        free(t);
    return rc;
}

void http_run_tasks(struct http *h) {
    pthread_mutex_lock(&h->lock);
    struct http_task *t = h->tasks;
    h->tasks = NULL;
    pthread_mutex_unlock(&h->lock);
    while (t) {
        struct http_task now = *t;
        if (now.owned)
            free(t);
        t = now.next;
        now.fn(now.arg); // which may free its task
    }
}

static void on_ready(evutil_socket_t fd, short what, void *arg) {
    struct http_watch *w = arg;
    w->fn(w->arg, fd, what & EV_READ, what & EV_WRITE);
}

struct http_watch *http_watch_begin(struct http *h, int fd, http_ready_fn *fn, void *arg) {
    struct http_watch *w = calloc(1, sizeof *w);
    if (w)
        *w = (struct http_watch){.h = h, .fd = fd, .fn = fn, .arg = arg};
    return w;
}

int http_watch_for(struct http_watch *w, bool read, bool write) {
    if (w->event)
        event_free(w->event);
    w->event = NULL;
    if (!read && !write)
        return 0;
    short what = (short)(EV_PERSIST | (read ? EV_READ : 0) | (write ? EV_WRITE : 0));
    w->event = event_new(w->h->base, w->fd, what, on_ready, w);
    return w->event && !event_add(w->event, NULL) ? 0 : ERR_MEMORY;
}

void http_watch_end(struct http_watch *w) {
    if (w && w->event)
        event_free(w->event);
    free(w);
}

static void on_alarm(evutil_socket_t fd, short what, void *arg) {
    struct http_alarm *a = arg;
    (void)fd, (void)what;
    a->fn(a->arg);
}

struct http_alarm *http_alarm_create(struct http *h, void (*fn)(void *), void *arg) {
    struct http_alarm *a = calloc(1, sizeof *a);
    if (a)
        *a = (struct http_alarm){.event = evtimer_new(h->base, on_alarm, a), .fn = fn, .arg = arg};
    if (a && a->event)
        return a;
    free(a);
    return NULL;
}

void http_alarm_set(struct http_alarm *a, int64_t ms) {
    struct timeval t = {ms / 1000, ms % 1000 * 1000};
    if (ms < 0)
        evtimer_del(a->event);
    else
        evtimer_add(a->event, &t);
}

void http_alarm_destroy(struct http_alarm *a) {
    if (a && a->event)
        event_free(a->event);
    free(a);
}

static void on_timer(evutil_socket_t fd, short what, void *arg) {
    struct http_timer *t = arg;
    (void)fd;
    (void)what;
    t->fn(t->arg);
}

int http_every(struct http *h, int period_ms, void (*fn)(void *), void *arg, struct err *e) {
    struct http_timer *t = calloc(1, sizeof *t);
    struct timeval period = {period_ms / 1000, period_ms % 1000 * 1000};
    if (t)
        t->event = event_new(h->base, -1, EV_PERSIST, on_timer, t);
    if (!t || !t->event || event_add(t->event, &period)) {
        if (t && t->event)
            event_free(t->event);
        free(t);
        return err_set(e, ERR_MEMORY, "out of memory for a timer");
    }
    t->fn = fn;
    t->arg = arg;
    t->next = h->timers;
    h->timers = t;
    return 0;
}
