// SPDX-License-Identifier: Apache-2.0
// See workers.h: a ring for each class under one lock and one condition.
#include "serve/workers.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS_MAX = 256, QUEUE_MAX = 1 << 20, LONG_NICE = 10 };
enum { SHORT, MEDIUM, LONG, CLASSES };

struct job {
    void (*fn)(void *);
    void *arg;
};

struct ring {
    struct job *jobs; // [cap of the workers]
    int first, n;
};

struct thread {
    struct workers *w;
    pthread_t id;
    int from, to; // classes that it takes, the lowest one first
};

struct workers {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct ring rings[CLASSES];
    int cap, n; // jobs in all rings together
    bool ending;
    struct thread *threads;
    int n_threads;
};

static struct ring *next_ring(const struct thread *t) {
    for (int i = t->from; i <= t->to; i++)
        if (t->w->rings[i].n)
            return &t->w->rings[i];
    return NULL;
}

static void *work(void *arg) {
    struct thread *t = arg;
    struct workers *w = t->w;
    struct ring *r;
    if (t->from == LONG) // of this thread alone; where the system refuses, nothing is lost
        (void)!setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), LONG_NICE);
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!(r = next_ring(t)) && !w->ending)
            pthread_cond_wait(&w->changed, &w->lock);
        if (!r)
            break;
        struct job job = r->jobs[r->first];
        r->first = (r->first + 1) % w->cap;
        r->n--;
        w->n--;
        pthread_mutex_unlock(&w->lock);
        job.fn(job.arg);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

// Every class must have a thread.
static bool begin_threads(struct workers *w, int threads) {
    int all = threads + (threads + 1) / 2;
    for (int i = 0; i < all; i++) {
        struct thread *t = &w->threads[i];
        *t = (struct thread){w, .from = SHORT, .to = MEDIUM};
        if (i % 3 == 1) // one in three, and of two others at least one takes what is longer
            t->from = t->to = LONG;
        else if (i == 2)
            t->to = SHORT;
        if (pthread_create(&t->id, NULL, work, t))
            break;
        w->n_threads++;
    }
    return w->n_threads >= 2;
}

int workers_create(struct workers **out, int threads, int queue, struct err *e) {
    *out = NULL;
    if (threads < 1 || threads > THREADS_MAX || queue < 1 || queue > QUEUE_MAX)
        return err_set(e, ERR_USAGE, "%d workers with a queue of %d; there may be 1 to %d and %d",
                       threads, queue, THREADS_MAX, QUEUE_MAX);
    struct workers *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(e, ERR_MEMORY, "out of memory for workers");
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    w->cap = queue;
    bool ok = (w->threads = calloc(2 * (size_t)threads, sizeof *w->threads)) != NULL;
    for (int i = 0; i < CLASSES; i++)
        ok = (w->rings[i].jobs = calloc((size_t)queue, sizeof(struct job))) && ok;
    int rc = ok ? 0 : err_set(e, ERR_MEMORY, "out of memory for a queue of %d jobs", queue);
    if (!rc && !begin_threads(w, threads))
        rc = err_set(e, ERR_MEMORY, "the system gives no thread for a worker");
    if (rc)
        workers_destroy(w);
    else
        *out = w;
    return rc;
}

int workers_run(struct workers *w, size_t bytes, void (*fn)(void *), void *arg, struct err *e) {
    int class = bytes <= WORKERS_SHORT ? SHORT : bytes < WORKERS_LONG ? MEDIUM : LONG;
    struct ring *r = &w->rings[class];
    pthread_mutex_lock(&w->lock);
    bool room = w->n < w->cap && !w->ending;
    if (room) {
        r->jobs[(r->first + r->n++) % w->cap] = (struct job){fn, arg};
        w->n++;
    }
    pthread_mutex_unlock(&w->lock);
    if (!room)
        return err_set(e, ERR_LIMIT, "%d jobs wait already; try again later", w->cap);
    pthread_cond_broadcast(&w->changed); // who sleeps may not be one that takes this class
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
        pthread_join(w->threads[i].id, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    for (int i = 0; i < CLASSES; i++)
        free(w->rings[i].jobs);
    free(w->threads);
    free(w);
}
