// SPDX-License-Identifier: Apache-2.0
// See wait.h.
#include "support/wait.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "unit/test.h"

// A clock that no test puts in place of the system's.
static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

enum { FIRST_PAUSE_US = 50, LAST_PAUSE_US = 1000 };

// The program ends here, since what it still waits for would hold the next test up.
_Noreturn void wait_fail(const char *what, const char *file, int line) {
    print_error("%s:%d: after %d seconds still not: %s\n", file, line, PATIENCE / 1000, what);
    fflush(NULL);
    abort();
}

void wait_more(struct wait *w, const char *what, const char *file, int line) {
    double now = now_ms();
    if (w->end <= 0) {
        w->end = now + PATIENCE;
        w->pause_us = FIRST_PAUSE_US;
    }
    if (now > w->end)
        wait_fail(what, file, line);
    usleep((useconds_t)w->pause_us);
    w->pause_us = w->pause_us < LAST_PAUSE_US / 2 ? 2 * w->pause_us : LAST_PAUSE_US;
}

void wait_join(pthread_t thread, void **result, const char *what, const char *file, int line) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE / 1000;
    if (pthread_timedjoin_np(thread, result, &until))
        wait_fail(what, file, line);
}
