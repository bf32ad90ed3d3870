// SPDX-License-Identifier: Apache-2.0
// See workers.h: a ring for each class under one lock and one condition. No more jobs of the
// longest class run at once than there are threads for it, those that have stepped aside among
// them; these and those that wait in the ring have one order, in which they came or stepped aside.
#include "serve/workers.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/pool.h"

enum { THREADS_MAX = 256, QUEUE_MAX = 1 << 20, LONG_NICE = 10 };
enum { SHORT, MEDIUM, LONG, CLASSES };

struct job {
    void (*fn)(void *);
    void *arg;
    uint64_t turn;
};

struct ring {
    struct job *jobs; // [cap of the workers]
    int first, n;
};

struct thread {
    struct workers *w;
    struct thread *next;
    pthread_t id;
    int from, to; // classes that it takes, the lowest one first
    bool aside;   // its job has stepped aside: the thread ends with it
    bool waits;   // for its turn,
    uint64_t turn;
    bool over;
    double since; // processor time of it when its job began, in milliseconds
};

static _Thread_local struct thread *own_thread; // NULL: this thread is no worker

struct workers {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct ring rings[CLASSES];
    int cap, n; // jobs in all rings together
    bool ending;
    struct thread *threads; // list
    int aside;              // jobs that have stepped aside
    int slow, max_slow;     // jobs of the longest class, or aside, that run; at most
    uint64_t turns;         // given so far
};

static double processor_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

// Whether it is a turn's time: one of the longest class or aside may run, and none has an earlier
// one.
static bool is_time(const struct workers *w, uint64_t turn) {
    const struct ring *r = &w->rings[LONG];
    bool time = w->slow < w->max_slow && (!r->n || r->jobs[r->first].turn >= turn);
    for (const struct thread *t = w->threads; t && time; t = t->next)
        time = !t->waits || t->turn >= turn;
    return time;
}

static struct ring *next_ring(const struct thread *t) {
    struct ring *r = &t->w->rings[LONG];
    if (t->from == LONG)
        return r->n && is_time(t->w, r->jobs[r->first].turn) ? r : NULL;
    for (int i = t->from; i <= t->to; i++)
        if (t->w->rings[i].n)
            return &t->w->rings[i];
    return NULL;
}

// One more of the longest class or aside runs; another one may have its turn now.
static void run_slow(struct workers *w) {
    w->slow++;
    pthread_cond_broadcast(&w->changed);
}

// Of this thread alone; where the system refuses, nothing is lost.
static void lower_priority(void) {
    (void)!setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), LONG_NICE);
}

// Nothing is left for it, nor will be.
static bool is_done(const struct thread *t) {
    return t->w->ending && (t->from != LONG || t->w->rings[LONG].n == 0);
}

static void *work(void *arg) {
    struct thread *t = own_thread = arg;
    struct workers *w = t->w;
    struct ring *r;
    if (t->from == LONG)
        lower_priority();
    pthread_mutex_lock(&w->lock);
    while (!t->aside) {
        while (!(r = next_ring(t)) && !is_done(t))
            pthread_cond_wait(&w->changed, &w->lock);
        if (!r)
            break;
        struct job job = r->jobs[r->first];
        r->first = (r->first + 1) % w->cap;
        r->n--;
        w->n--;
        if (t->from == LONG)
            run_slow(w);
        pthread_mutex_unlock(&w->lock);
        t->since = processor_ms();
        job.fn(job.arg);
        pthread_mutex_lock(&w->lock);
        w->slow -= t->from == LONG || t->aside;
        if (t->from == LONG || t->aside)
            pthread_cond_broadcast(&w->changed);
    }
    w->aside -= t->aside;
    t->over = true;
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

// Joins the threads that have ended. The lock is held, which they do not take any more.
static void reap(struct workers *w) {
    for (struct thread **at = &w->threads; *at;) {
        struct thread *t = *at;
        if (!t->over) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        pthread_join(t->id, NULL);
        free(t);
    }
}

// One more thread for these classes; the lock is held. false: the system gives none.
static bool begin_thread(struct workers *w, int from, int to) {
    struct thread *t = malloc(sizeof *t);
    if (!t)
        return false;
    *t = (struct thread){.w = w, .next = w->threads, .from = from, .to = to};
    if (pool_thread_start(&t->id, work, t)) {
        free(t);
        return false;
    }
    w->threads = t;
    return true;
}

// Every class must have a thread.
static bool begin_threads(struct workers *w, int threads) {
    int all = threads + (threads + 1) / 2, n = 0;
    bool ok = true;
    pthread_mutex_lock(&w->lock);
    for (; ok && n < all; n += ok) {
        bool slow = n % 3 == 1; // one in three, and of two others at least one takes what is longer
        ok = begin_thread(w, slow ? LONG : SHORT, slow ? LONG : n == 2 ? SHORT : MEDIUM);
        w->max_slow += ok && slow;
    }
    pthread_mutex_unlock(&w->lock);
    return n >= 2;
}

int workers_step_aside(struct workers *w, double ms, struct err *e) {
    struct thread *t = own_thread;
    int rc = 0;
    if (!t || t->w != w || t->from == LONG || t->aside || processor_ms() - t->since < ms)
        return 0;
    pthread_mutex_lock(&w->lock);
    reap(w);
    if (w->aside == WORKERS_ASIDE)
        rc = err_set(e, ERR_LIMIT, "%d long jobs wait already; try again later", w->aside);
    else if (begin_thread(w, t->from, t->to)) { // else it goes on as it is
        t->aside = true;
        w->aside++;
        lower_priority();
        t->turn = w->turns++;
        t->waits = true;
        while (!is_time(w, t->turn))
            pthread_cond_wait(&w->changed, &w->lock);
        t->waits = false;
        run_slow(w);
    }
    pthread_mutex_unlock(&w->lock);
    return rc;
}

void workers_mark(struct workers *w) {
    if (own_thread && own_thread->w == w)
        own_thread->since = processor_ms();
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
    bool ok = true;
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
        r->jobs[(r->first + r->n++) % w->cap] = (struct job){fn, arg, w->turns++};
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

// Takes a thread out of the list; those that still run may add others.
static struct thread *first_thread(struct workers *w) {
    pthread_mutex_lock(&w->lock);
    struct thread *t = w->threads;
    w->threads = t ? t->next : NULL;
    pthread_mutex_unlock(&w->lock);
    return t;
}

void workers_destroy(struct workers *w) {
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->ending = true;
    pthread_mutex_unlock(&w->lock);
    pthread_cond_broadcast(&w->changed);
    for (struct thread *t; (t = first_thread(w));) {
        pthread_join(t->id, NULL);
        free(t);
    }
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    for (int i = 0; i < CLASSES; i++)
        free(w->rings[i].jobs);
    free(w);
}
