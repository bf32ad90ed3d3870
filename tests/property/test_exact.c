// SPDX-License-Identifier: Apache-2.0
// The exactness test on this CPU: test_exact [--cases N] [--only CASE]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "property/exact.h"

#ifndef PROPERTY_CASES
#define PROPERTY_CASES 1000
#endif

static int parse(int argc, char **argv, struct exact_options *o) {
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--cases") == 0)
            o->cases = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--only") == 0)
            o->only = atoi(argv[i + 1]);
        else
            return 2;
    }
    return argc % 2 == 1 && o->cases > 0 ? 0 : 2;
}

int main(int argc, char **argv) {
    struct exact_options o = {.cases = PROPERTY_CASES, .only = -1};
    struct exact_result r;
    struct err e = {0};
    if (parse(argc, argv, &o)) {
        fprintf(stderr, "usage: test_exact [--cases N] [--only CASE]\n");
        return 2;
    }
    int rc = exact_run(&o, &r, &e);
    if (rc || r.failed)
        fprintf(stderr, "%d of %d cases failed: %s\n", r.failed, o.cases, e.text);
    return rc || r.failed || r.rare;
}
