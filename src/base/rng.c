// SPDX-License-Identifier: Apache-2.0
// Names and seeds from the system; see rng.h.
#include "base/rng.h"

#include <stdio.h>
#include <sys/random.h>

uint64_t random_seed(void) {
    uint64_t v = 0;
    while (getrandom(&v, sizeof v, 0) != (ssize_t)sizeof v) // interrupted before it was seeded
        continue;
    return v;
}

void random_id(char out[RANDOM_ID], const char *prefix) {
    snprintf(out, RANDOM_ID, "%.12s%016llx%08x", prefix, (unsigned long long)random_seed(),
             (unsigned)random_seed());
}
