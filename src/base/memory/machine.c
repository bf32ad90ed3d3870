// SPDX-License-Identifier: Apache-2.0
// How much memory this machine has; see machine.h.
#include "base/memory/machine.h"

#include <stdio.h>
#include <unistd.h>

int64_t machine_memory(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
    int64_t all = pages > 0 && page > 0 ? (int64_t)pages * page : 0;
    FILE *f = fopen("/sys/fs/cgroup/memory.max", "re"); // "max" without a limit
    long long limit = 0;
    int got = f ? fscanf(f, "%lld", &limit) : 0;
    if (f)
        fclose(f);
    return got == 1 && limit > 0 && (all == 0 || limit < all) ? (int64_t)limit : all;
}
