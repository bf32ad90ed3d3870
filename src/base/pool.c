// SPDX-License-Identifier: Apache-2.0
// A thread pool for one range job at a time; see pool.h.
//
// The pieces of a job form one share for each thread, a run of neighbours, and a thread takes its
// own before those of others: what it has written in one job it mostly reads in the next.
//
// A share is published by storing one 64-bit ticket: (end << 32 | next). A thread claims a piece by
// adding 1 to the ticket; the claim holds when next < end. A held claim keeps the job alive (the
// caller waits until all pieces are done), so the claimer may read the job's fields; a thread
// without a claim reads none. Workers that come too late are not waited for: on a busy machine the
// caller simply does the rest itself. A late add on an exhausted ticket is harmless, for at most
// one per thread can happen and the next job overwrites it. Workers wait for the number of the job
// to change: they spin for SPIN_NS, then sleep on a condition; so does a caller that waits for the
// last piece.
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/num.h"

enum { THREADS_MAX = 256, SPIN_NS = 40000, CLOCK_EVERY = 64, CACHE_LINE = 64 };
static const int64_t PIECES_MAX = 1 << 20;

// A thread and its share; that of the caller has no thread.
struct worker {
    _Alignas(CACHE_LINE) _Atomic uint64_t ticket;
    struct pool *pool;
    pthread_t thread;
    int index;
};

struct pool {
    _Alignas(CACHE_LINE) _Atomic uint32_t job; // changes with every job, and to stop
    _Atomic bool stop;
    _Alignas(CACHE_LINE) _Atomic int64_t done; // pieces finished
    _Atomic int sleepers;                      // workers on `work`
    _Atomic bool caller_waits;                 // the caller is on `finished`
    // The job; written while no piece is claimable or running.
    _Alignas(CACHE_LINE) pool_fn *fn;
    void *arg;
    int64_t n, step, pieces; // items; items per piece
    pthread_mutex_t lock;
    pthread_cond_t work, finished;
    int threads, started;
    struct worker workers[]; // [threads]
};

static inline void cpu_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool claimable(uint64_t ticket) {
    return (uint32_t)ticket < (uint32_t)(ticket >> 32);
}

// Claims and runs pieces of one share until none is left; returns how many it ran.
static int64_t run_share(struct pool *p, struct worker *share, int worker) {
    int64_t ran = 0;
    while (claimable(atomic_load_explicit(&share->ticket, memory_order_relaxed))) {
        uint64_t t = atomic_fetch_add_explicit(&share->ticket, 1, memory_order_acquire);
        if (!claimable(t))
            break;
        int64_t begin = (int64_t)(uint32_t)t * p->step;
        int64_t end = p->n - begin > p->step ? begin + p->step : p->n;
        p->fn(p->arg, begin, end, worker);
        ran++;
    }
    return ran;
}

// A worker's own share, then those of the others. Pieces that it ran are reported at once, since
// the job may end with them.
static void work(struct pool *p, int worker) {
    for (int i = 0; i < p->threads; i++) {
        int64_t ran = run_share(p, &p->workers[(worker + i) % p->threads], worker);
        if (!ran)
            continue;
        int64_t pieces = p->pieces;
        if (atomic_fetch_add(&p->done, ran) + ran == pieces && atomic_load(&p->caller_waits)) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->finished);
            pthread_mutex_unlock(&p->lock);
        }
    }
}

static void sleep_for_work(struct pool *p, uint32_t last) {
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleepers, 1);
    while (atomic_load(&p->job) == last)
        pthread_cond_wait(&p->work, &p->lock);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *arg) {
    struct worker *w = arg;
    struct pool *p = w->pool;
    uint32_t last = 0;
    while (!atomic_load(&p->stop)) {
        int64_t until = 0;
        for (int i = 1; atomic_load_explicit(&p->job, memory_order_relaxed) == last; i++) {
            cpu_relax();
            if (i % CLOCK_EVERY)
                continue;
            int64_t now = now_ns();
            until = until ? until : now + SPIN_NS;
            if (now > until)
                sleep_for_work(p, last);
        }
        last = atomic_load(&p->job);
        work(p, w->index);
    }
    return NULL;
}

static void wait_finished(struct pool *p, int64_t pieces) {
    int64_t until = 0;
    for (int i = 1; atomic_load(&p->done) != pieces; i++) {
        cpu_relax();
        if (i % CLOCK_EVERY)
            continue;
        int64_t now = now_ns();
        until = until ? until : now + SPIN_NS;
        if (now < until)
            continue;
        pthread_mutex_lock(&p->lock);
        // An exchange: under QEMU on x86 a load may pass ARM's store before it (stlr, ldar).
        (void)atomic_exchange(&p->caller_waits, true);
        while (atomic_load(&p->done) != pieces)
            pthread_cond_wait(&p->finished, &p->lock);
        atomic_store(&p->caller_waits, false);
        pthread_mutex_unlock(&p->lock);
    }
}

// Shares of `pieces` pieces, the first of them larger by one where they do not come out even.
static void publish(struct pool *p, int64_t pieces) {
    int64_t each = pieces / p->threads, more = pieces % p->threads, at = 0;
    p->pieces = pieces;
    atomic_store_explicit(&p->done, 0, memory_order_relaxed);
    for (int i = 0; i < p->threads; i++) {
        int64_t end = at + each + (i < more);
        atomic_store_explicit(&p->workers[i].ticket, (uint64_t)end << 32 | (uint64_t)at,
                              memory_order_release);
        at = end;
    }
    atomic_fetch_add(&p->job, 1);
    if (atomic_load(&p->sleepers)) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->work);
        pthread_mutex_unlock(&p->lock);
    }
}

void pool_run(struct pool *p, int64_t n, int64_t grain, pool_fn *fn, void *arg) {
    if (n <= 0)
        return;
    grain = max_i64(grain, 1);
    if (p->threads == 1 || n <= grain) {
        fn(arg, 0, n, 0);
        return;
    }
    int64_t pieces = (n - 1) / grain + 1, each = (pieces - 1) / PIECES_MAX + 1;
    p->step = grain * each;
    p->n = n;
    p->fn = fn;
    p->arg = arg;
    pieces = (n - 1) / p->step + 1;
    publish(p, pieces);
    int64_t mine = 0;
    for (int i = 0; i < p->threads; i++)
        mine += run_share(p, &p->workers[i], 0);
    if (atomic_fetch_add(&p->done, mine) + mine != pieces)
        wait_finished(p, pieces);
}

// CPUs that a control group's quota leaves us, or a large number without one.
static int quota_cpus(void) {
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    long quota = 0, period = 0;
    int got = f ? fscanf(f, "%ld %ld", &quota, &period) : 0;
    if (f)
        fclose(f);
    if (got != 2 || quota <= 0 || period <= 0)
        return THREADS_MAX;
    long cpus = ceil_div(quota, period);
    return (int)min_i64(cpus, THREADS_MAX);
}

static int usable_cpus(void) {
    cpu_set_t set;
    int cpus = THREADS_MAX, quota = quota_cpus();
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        cpus = CPU_COUNT(&set);
    cpus = min_i32(cpus, quota);
    return max_i32(cpus, 1);
}

int pool_thread_start(pthread_t *thread, void *(*run)(void *), void *arg) {
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF};
    sigset_t others, before;
    sigfillset(&others);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        sigdelset(&others, own[i]);
    pthread_sigmask(SIG_SETMASK, &others, &before);
    int rc = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

int pool_create(struct pool **out, int threads, struct err *e) {
    *out = NULL;
    if (threads < 0 || threads > THREADS_MAX)
        return err_set(e, ERR_USAGE, "cannot use %d threads; choose 1 to %d, or 0 for all CPUs",
                       threads, THREADS_MAX);
    if (threads == 0)
        threads = usable_cpus();
    size_t bytes = sizeof(struct pool) + (size_t)threads * sizeof(struct worker);
    bytes = (bytes + CACHE_LINE - 1) & ~(size_t)(CACHE_LINE - 1);
    struct pool *p = aligned_alloc(CACHE_LINE, bytes);
    if (!p)
        return err_set(e, ERR_MEMORY, "out of memory for %d threads", threads);
    memset(p, 0, bytes);
    p->threads = threads;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->finished, NULL);
    for (int i = 1; i < threads; i++) {
        p->workers[i].pool = p;
        p->workers[i].index = i;
        int rc = pool_thread_start(&p->workers[i].thread, worker_main, &p->workers[i]);
        if (rc) {
            pool_destroy(p);
            return err_set(e, ERR_MEMORY, "cannot start thread %d of %d (%s); ask for fewer", i + 1,
                           threads, strerror(rc));
        }
        p->started++;
    }
    *out = p;
    return 0;
}

int pool_threads(const struct pool *p) {
    return p->threads;
}

void pool_destroy(struct pool *p) {
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->stop, true);
    atomic_fetch_add(&p->job, 1);
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (int i = 1; i <= p->started; i++)
        pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->finished);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
