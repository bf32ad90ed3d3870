// SPDX-License-Identifier: Apache-2.0
// Waits of tests for what other threads and programs do. None is without an end: where it has not
// come after PATIENCE, the test's program is aborted with the text of what was waited for.
#ifndef COPPICE_TESTS_SUPPORT_WAIT_H
#define COPPICE_TESTS_SUPPORT_WAIT_H

#include <pthread.h>

enum { PATIENCE = 120000 }; // ms; a loaded machine may take long

struct wait {
    double end;   // ms; 0: not begun
    int pause_us; // before the next look
};

// Looks at a condition until it holds; any thread.
#define WAIT_UNTIL(condition)                                                                      \
    do {                                                                                           \
        struct wait wait_ = {0};                                                                   \
        while (!(condition))                                                                       \
            wait_more(&wait_, #condition, __FILE__, __LINE__);                                     \
    } while (0)

// pthread_join.
#define WAIT_JOIN(thread, result) wait_join(thread, result, #thread, __FILE__, __LINE__)

// Sleeps for a moment, longer from time to time.
void wait_more(struct wait *w, const char *what, const char *file, int line);
void wait_join(pthread_t thread, void **result, const char *what, const char *file, int line);
_Noreturn void wait_fail(const char *what, const char *file, int line);

#endif
