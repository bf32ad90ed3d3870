// SPDX-License-Identifier: Apache-2.0
// Workers: order, the bound of the queue, and that all that waits is run before the end.
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>

#include "serve/workers.h"
#include "support/wait.h"

struct gate {
    pthread_mutex_t lock;
    atomic_int ran, wrong;
};

struct numbered {
    struct gate *gate;
    int number;
};

static void in_order(void *arg) {
    struct numbered *n = arg;
    pthread_mutex_lock(&n->gate->lock);
    if (atomic_fetch_add(&n->gate->ran, 1) != n->number)
        n->gate->wrong++;
    pthread_mutex_unlock(&n->gate->lock);
}

static void one_worker_keeps_the_order(void **state) {
    (void)state;
    struct gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct numbered jobs[64];
    struct workers *w;
    struct err e = {0};
    assert_int_equal(workers_create(&w, 1, 64, &e), 0);
    for (int i = 0; i < 64; i++) {
        jobs[i] = (struct numbered){&gate, i};
        assert_int_equal(workers_run(w, 0, in_order, &jobs[i], &e), 0);
    }
    workers_destroy(w); // runs what waits
    assert_int_equal(gate.ran, 64);
    assert_int_equal(gate.wrong, 0);
}

static void a_full_queue_refuses(void **state) {
    (void)state;
    struct gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct numbered jobs[8];
    struct workers *w;
    struct err e = {0};
    int taken = 0;
    pthread_mutex_lock(&gate.lock); // no job gets on
    assert_int_equal(workers_create(&w, 2, 3, &e), 0);
    for (int i = 0; i < 8; i++) {
        jobs[i] = (struct numbered){&gate, i};
        taken += workers_run(w, 0, in_order, &jobs[i], &e) == 0;
    }
    assert_in_range(taken, 3, 5); // three wait, and each worker may have one
    assert_in_range(workers_waiting(w), 1, 3);
    assert_int_equal(e.code, ERR_LIMIT);
    pthread_mutex_unlock(&gate.lock);
    workers_destroy(w);
    assert_int_equal(gate.ran, taken);
}

// Long jobs that do not end and more of them that wait, then medium ones likewise: a short one runs
// all the same.
static void short_work_does_not_wait(void **state) {
    (void)state;
    enum { HELD = 20 };
    static const size_t sizes[] = {WORKERS_LONG, WORKERS_LONG - 1};
    struct gate held = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct gate free = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct numbered jobs[2 * HELD], quick[4];
    struct workers *w;
    struct err e = {0};
    pthread_mutex_lock(&held.lock);
    assert_int_equal(workers_create(&w, 2, 64, &e), 0);
    for (int i = 0; i < 2 * HELD; i++) {
        jobs[i] = (struct numbered){&held, i};
        assert_int_equal(workers_run(w, sizes[i / HELD], in_order, &jobs[i], &e), 0);
    }
    for (int i = 0; i < 4; i++) {
        quick[i] = (struct numbered){&free, i};
        assert_int_equal(workers_run(w, WORKERS_SHORT, in_order, &quick[i], &e), 0);
        WAIT_UNTIL(free.ran > i);
    }
    assert_int_equal(free.wrong, 0);
    assert_int_equal(held.ran, 0);
    pthread_mutex_unlock(&held.lock);
    workers_destroy(w);
    assert_int_equal(held.ran, 2 * HELD);
}

// Jobs that turn out to be long and do not end: short ones, of which there is one thread, run all
// the same, no more long ones go on than there are threads for them, and of too many some are
// refused.
struct slow {
    struct gate *gate;
    struct workers *w;
    atomic_int begun, on, max, refused;
};

static void step_aside(void *arg) {
    struct slow *s = arg;
    struct err e = {0};
    s->begun++;
    int rc = workers_step_aside(s->w, 0, &e);
    s->refused += rc == ERR_LIMIT;
    if (rc)
        return;
    assert_int_equal(workers_step_aside(s->w, 0, &e), 0); // once is enough
    int on = ++s->on;
    s->max = on > s->max ? on : s->max;
    pthread_mutex_lock(&s->gate->lock);
    s->gate->ran++;
    s->on--;
    pthread_mutex_unlock(&s->gate->lock);
}

static void long_work_moves_to_another_thread(void **state) {
    (void)state;
    enum { LONG = WORKERS_ASIDE + 3, SHORT = 4 };
    struct gate held = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct gate free = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct slow slow = {.gate = &held};
    struct numbered quick[SHORT], last = {&held, LONG - 3};
    struct err e = {0};
    pthread_mutex_lock(&held.lock);
    assert_int_equal(workers_create(&slow.w, 1, 2 * LONG, &e), 0);
    assert_int_equal(workers_step_aside(slow.w, 0, &e), 0); // no worker: nothing
    for (int i = 0; i < LONG; i++)
        assert_int_equal(workers_run(slow.w, 0, step_aside, &slow, &e), 0);
    for (int i = 0; i < SHORT; i++) {
        quick[i] = (struct numbered){&free, i};
        assert_int_equal(workers_run(slow.w, 0, in_order, &quick[i], &e), 0);
    }
    WAIT_UNTIL(free.ran == SHORT);
    assert_int_equal(free.wrong, 0);
    assert_int_equal(slow.begun, LONG);
    assert_int_equal(slow.refused, 3);
    assert_int_equal(workers_run(slow.w, WORKERS_LONG, in_order, &last, &e), 0);
    pthread_mutex_unlock(&held.lock);
    workers_destroy(slow.w);
    assert_int_equal(held.ran, LONG - 3 + 1);
    assert_int_equal(slow.max, 1);
}

// A long job that has stepped aside has its turn before long ones that came later.
struct aside {
    struct workers *w;
    struct numbered n;
};

static void step_aside_in_order(void *arg) {
    struct aside *a = arg;
    assert_int_equal(workers_step_aside(a->w, 0, NULL), 0);
    in_order(&a->n);
}

static void long_work_is_run_in_turns(void **state) {
    (void)state;
    enum { LATER = 4 };
    struct gate held = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct gate free = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct numbered first = {&held, 0}, quick = {&free, 0}, later[LATER];
    struct aside aside = {.n = {&held, 1}};
    struct err e = {0};
    pthread_mutex_lock(&held.lock);
    assert_int_equal(workers_create(&aside.w, 1, LATER, &e), 0);
    assert_int_equal(workers_run(aside.w, WORKERS_LONG, in_order, &first, &e), 0);
    WAIT_UNTIL(workers_waiting(aside.w) == 0); // it runs
    assert_int_equal(workers_run(aside.w, 0, step_aside_in_order, &aside, &e), 0);
    assert_int_equal(workers_run(aside.w, 0, in_order, &quick, &e), 0);
    WAIT_UNTIL(free.ran == 1 && workers_waiting(aside.w) == 0); // the other one has stepped aside
    for (int i = 0; i < LATER; i++) {
        later[i] = (struct numbered){&held, 2 + i};
        assert_int_equal(workers_run(aside.w, WORKERS_LONG, in_order, &later[i], &e), 0);
    }
    pthread_mutex_unlock(&held.lock);
    workers_destroy(aside.w);
    assert_int_equal(held.ran, 2 + LATER);
    assert_int_equal(held.wrong, 0);
}

static void nonsense_is_refused(void **state) {
    (void)state;
    struct workers *w;
    struct err e = {0};
    assert_int_equal(workers_create(&w, 0, 1, &e), ERR_USAGE);
    assert_int_equal(workers_create(&w, 1, 0, &e), ERR_USAGE);
    assert_null(w);
    workers_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_worker_keeps_the_order),
        cmocka_unit_test(a_full_queue_refuses),
        cmocka_unit_test(short_work_does_not_wait),
        cmocka_unit_test(long_work_moves_to_another_thread),
        cmocka_unit_test(long_work_is_run_in_turns),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
