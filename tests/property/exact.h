// SPDX-License-Identifier: Apache-2.0
// The exactness test (rule E) as a function, for CPUs and devices. It prints what happened and each
// case that failed.
#ifndef COPPICE_TESTS_PROPERTY_EXACT_H
#define COPPICE_TESTS_PROPERTY_EXACT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct exact_options {
    const char *level; // NULL: the best kernels of this CPU, at times the scalar ones; or "cuda..."
    int first, cases;  // numbers of the random cases
    int only;          // this one alone; -1: all
    bool brief;        // few tokens of models that take little memory, for what makes passes slow
};

struct exact_result {
    int64_t cases;     // that were run to the end of plain decoding
    int failed;        // whose output changed
    int64_t loans;     // of slots of experts to passes of many rows, on a device
    int lending, lent; // pairs that can lend some, and those that did
    int rare;          // events that occurred too seldom to count
};

// A failed case leaves its sentence in e. Returns an error when a model cannot be made or loaded.
int exact_run(const struct exact_options *o, struct exact_result *out, struct err *e);

#endif
