// SPDX-License-Identifier: Apache-2.0
// See workers.h: a ring under one lock and one condition.
#include "serve/workers.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

enum { THREADS_MAX = 256, QUEUE_MAX = 1 << 20 };

struct job {
    void (*fn)(void *);
    void *arg;
};

struct workers {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct job *ring; // [cap]
    int cap, first, n;
    bool ending;
    pthread_t *threads;
    int n_threads;
};

static void *work(void *arg) {
    struct workers *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->n == 0 && !w->ending)
            pthread_cond_wait(&w->changed, &w->lock);
        if (w->n == 0)
            break;
        struct job job = w->ring[w->first];
        w->first = (w->first + 1) % w->cap;
        w->n--;
        pthread_mutex_unlock(&w->lock);
        job.fn(job.arg);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int workers_create(struct workers **out, int threads, int queue, struct err *e) {
    *out = NULL;
    if (threads < 1 || threads > THREADS_MAX || queue < 1 || queue > QUEUE_MAX)
        return err_set(e, ERR_USAGE, "%d workers with a queue of %d; there may be 1 to %d and %d",
                       threads, queue, THREADS_MAX, QUEUE_MAX);
    struct workers *w = calloc(1, sizeof *w);
    struct job *ring = calloc((size_t)queue, sizeof *ring);
    pthread_t *ids = calloc((size_t)threads, sizeof *ids);
    if (!w || !ring || !ids) {
        free(w);
        free(ring);
        free(ids);
        return err_set(e, ERR_MEMORY, "out of memory for a queue of %d jobs", queue);
    }
    *w = (struct workers){.ring = ring, .cap = queue, .threads = ids};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    while (w->n_threads < threads && !pthread_create(&ids[w->n_threads], NULL, work, w))
        w->n_threads++;
    if (w->n_threads == 0) {
        workers_destroy(w);
        return err_set(e, ERR_MEMORY, "the system gives no thread for a worker");
    }
    *out = w;
    return 0;
}

int workers_run(struct workers *w, void (*fn)(void *), void *arg, struct err *e) {
    pthread_mutex_lock(&w->lock);
    bool room = w->n < w->cap;
    if (room)
        w->ring[(w->first + w->n++) % w->cap] = (struct job){fn, arg};
    pthread_mutex_unlock(&w->lock);
    if (!room)
        return err_set(e, ERR_LIMIT, "%d jobs wait already; try again later", w->cap);
    pthread_cond_signal(&w->changed);
    return 0;
}

int workers_waiting(struct workers *w) {
    pthread_mutex_lock(&w->lock);
    int n = w->n;
    pthread_mutex_unlock(&w->lock);
    return n;
}

void workers_destroy(struct workers *w) {
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->ending = true;
    pthread_mutex_unlock(&w->lock);
    pthread_cond_broadcast(&w->changed);
    for (int i = 0; i < w->n_threads; i++)
        pthread_join(w->threads[i], NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w->ring);
    free(w->threads);
    free(w);
}
