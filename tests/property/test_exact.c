// SPDX-License-Identifier: Apache-2.0
// The exactness test on this CPU: test_exact [--cases N] [--part K/N] [--only CASE]
// Part K of N runs that part of the cases.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "property/exact.h"

static int parse(int argc, char **argv, struct exact_options *o) {
    int part = 1, parts = 1;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--cases") == 0)
            o->cases = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--only") == 0)
            o->only = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--part") != 0 || sscanf(argv[i + 1], "%d/%d", &part, &parts) != 2)
            return 2;
    }
    if (argc % 2 == 0 || part < 1 || part > parts || o->cases < parts)
        return 2;
    o->first = o->cases / parts * (part - 1);
    o->cases /= parts;
    return 0;
}

int main(int argc, char **argv) {
    struct exact_options o = {.cases = PROPERTY_CASES, .only = -1};
    struct exact_result r;
    struct err e = {0};
    if (parse(argc, argv, &o)) {
        fprintf(stderr, "usage: test_exact [--cases N] [--part K/N] [--only CASE]\n");
        return 2;
    }
    int rc = exact_run(&o, &r, &e);
    if (rc || r.failed)
        fprintf(stderr, "%d of %d cases failed: %s\n", r.failed, o.cases, e.text);
    return rc || r.failed || r.rare;
}
