// SPDX-License-Identifier: Apache-2.0
// Cancellation of long work: whether its result is still needed. Work over text (tokenizing,
// templates, schemas) takes a check as an argument, calls it once per bounded number of steps, and
// returns ERR_CANCELLED when it is true.
#ifndef COPPICE_BASE_CANCEL_H
#define COPPICE_BASE_CANCEL_H

#include <stdbool.h>

struct cancel_check {
    bool (*ask)(const void *arg); // true once it is not, for good; any thread
    const void *arg;
};

// NULL: never cancelled.
static inline bool cancel_requested(const struct cancel_check *g) {
    return g && g->ask && g->ask(g->arg);
}

#endif
