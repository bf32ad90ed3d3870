// SPDX-License-Identifier: Apache-2.0
// A question that long work asks from time to time: does anyone still wait for the result? Work
// over text (tokenizing, templates, schemas) takes one as an argument, asks it once per bounded
// number of steps, and returns ERR_CANCELLED when the answer is true.
#ifndef COPPICE_BASE_GONE_H
#define COPPICE_BASE_GONE_H

#include <stdbool.h>

struct gone {
    bool (*ask)(const void *arg); // true once nobody waits any more, and from then on; any thread
    const void *arg;
};

// NULL: somebody always waits.
static inline bool gone_check(const struct gone *g) {
    return g && g->ask && g->ask(g->arg);
}

#endif
