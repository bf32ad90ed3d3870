// SPDX-License-Identifier: Apache-2.0
// Pool: every item runs exactly once, for all shapes and thread counts, after pauses that put the
// workers to sleep, and with far more threads than CPUs. Prints the cost of a call.
#include "test.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/pool.h"
#include "base/rng.h"
#include "support/wait.h"

enum { ITEMS = 5000 };

struct job {
    _Atomic int seen[ITEMS];
    _Atomic int64_t calls, bad;
    int64_t n, grain;
    int threads;
};

static void count(void *arg, int64_t begin, int64_t end, int worker) {
    struct job *j = arg;
    atomic_fetch_add(&j->calls, 1);
    if (begin % j->grain || begin >= end || end > j->n || worker < 0 || worker >= j->threads)
        atomic_fetch_add(&j->bad, 1);
    for (int64_t i = begin; i < end; i++)
        atomic_fetch_add_explicit(&j->seen[i], 1, memory_order_relaxed);
}

static void run_checked(struct pool *p, struct job *j, int64_t n, int64_t grain) {
    memset(j, 0, sizeof *j);
    j->n = n;
    j->grain = grain;
    j->threads = pool_threads(p);
    pool_run(p, n, grain, count, j);
    assert_int_equal(j->bad, 0);
    for (int64_t i = 0; i < ITEMS; i++)
        assert_int_equal(j->seen[i], i < n);
}

static void every_item_runs_once(void **state) {
    (void)state;
    static struct job j;
    static const int threads[] = {1, 2, 3, 8, 33};
    struct rng r = {3};
    struct err e = {0};
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
        struct pool *p;
        assert_int_equal(pool_create(&p, threads[t], &e), 0);
        assert_int_equal(pool_threads(p), threads[t]);
        for (int i = 0; i < 200; i++) {
            run_checked(p, &j, rng_below(&r, ITEMS + 1), 1 + rng_below(&r, 700));
            if (i % 40 == 0)
                usleep(2000); // longer than the workers spin
        }
        run_checked(p, &j, 0, 1);
        run_checked(p, &j, ITEMS, 1);
        pool_destroy(p);
    }
}

static void add_range(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    atomic_fetch_add((_Atomic int64_t *)arg, end - begin);
}

static void huge_ranges_are_covered(void **state) {
    (void)state;
    struct pool *p;
    struct err e = {0};
    _Atomic int64_t sum = 0;
    assert_int_equal(pool_create(&p, 3, &e), 0);
    pool_run(p, INT64_C(5000000000000), 7, add_range, &sum);
    assert_true(sum == INT64_C(5000000000000));
    pool_destroy(p);
}

static void bad_thread_counts_are_refused(void **state) {
    (void)state;
    struct pool *p = NULL;
    struct err e = {0};
    assert_int_equal(pool_create(&p, -1, &e), ERR_USAGE);
    assert_int_equal(pool_create(&p, 257, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "257"));
    assert_null(p);
    assert_int_equal(pool_create(&p, 0, &e), 0);
    assert_in_range(pool_threads(p), 1, 256);
    pool_destroy(p);
    pool_destroy(NULL);
}

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void report_the_cost_of_a_call(void **state) {
    (void)state;
    const int calls = 20000;
    struct pool *p;
    struct err e = {0};
    _Atomic int64_t sum = 0;
    assert_int_equal(pool_create(&p, 2, &e), 0);
    double start = now_us();
    for (int i = 0; i < calls; i++)
        pool_run(p, 2, 1, add_range, &sum);
    double each = (now_us() - start) / calls;
    assert_int_equal(sum, 2 * calls);
    printf("pool_run with 2 threads: %.2f us a call\n", each);
    pool_destroy(p);
}

struct masks {
    atomic_int begun, open;
};

// Counts the threads, other than the caller, that a signal can reach; each takes one item.
static void look_at_mask(void *arg, int64_t begin, int64_t end, int worker) {
    struct masks *m = arg;
    sigset_t mask;
    (void)begin, (void)end;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    if (worker > 0 && !(sigismember(&mask, SIGUSR1) && sigismember(&mask, SIGTERM)))
        atomic_fetch_add(&m->open, 1);
    atomic_fetch_add(&m->begun, 1);
    WAIT_UNTIL(atomic_load(&m->begun) == 4);
}

// Signals wait for the caller, which may block them for a moment: a worker that took one would
// leave a system call of the caller's asleep.
static void workers_take_no_signals(void **state) {
    (void)state;
    struct pool *p = NULL;
    struct masks m = {0};
    assert_int_equal(pool_create(&p, 4, NULL), 0);
    pool_run(p, 4, 1, look_at_mask, &m);
    assert_int_equal(m.begun, 4);
    assert_int_equal(m.open, 0);
    pool_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_runs_once),          cmocka_unit_test(huge_ranges_are_covered),
        cmocka_unit_test(bad_thread_counts_are_refused), cmocka_unit_test(workers_take_no_signals),
        cmocka_unit_test(report_the_cost_of_a_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
