// SPDX-License-Identifier: Apache-2.0
// Runs GPU suites and prints a table; the last line is "N passed, N failed". The exit status is 1
// after a failure and 77 when there was nothing to run on.
//
//   gpu_tests [--levels cuda:mma,cuda:wgmma] [--only FAMILY] [--cases N] [--seed N] [--time]
//             [SUITE ...]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/suites.h"
#include "opcheck/opcheck.h"
#include "ops/ops.h"

enum { NOTHING_TO_RUN_ON = 77 };

static const struct suite {
    const char *name;
    gpu_suite_fn *run;
} suites[] = {
    {"opcheck", suite_opcheck},
};
enum { SUITES = sizeof suites / sizeof suites[0] };

void suite_opcheck(const char *level, const struct gpu_options *o, struct gpu_counts *n) {
    struct opcheck_options c = {.timing = o->timing, .only = o->only, .seed = o->seed};
    int rc = opcheck_level(level, &c, &n->passed, &n->failed);
    n->skipped += rc == ERR_UNSUPPORTED;
    n->failed += rc && rc != ERR_UNSUPPORTED;
}

struct arguments {
    struct gpu_options o;
    const char *levels;
    const char *suites[SUITES];
    int n_suites;
};

static bool take_option(struct arguments *a, const char *name, const char *value) {
    if (!value)
        return false;
    if (!strcmp(name, "--levels"))
        a->levels = value;
    else if (!strcmp(name, "--only"))
        a->o.only = value;
    else if (!strcmp(name, "--cases"))
        a->o.cases = atoi(value);
    else if (!strcmp(name, "--seed"))
        a->o.seed = strtoull(value, NULL, 0);
    else
        return false;
    return true;
}

static bool parse(struct arguments *a, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--time")) {
            a->o.timing = true;
        } else if (argv[i][0] == '-') {
            if (!take_option(a, argv[i], argv[i + 1]))
                return false;
            i++;
        } else if (a->n_suites < SUITES) {
            a->suites[a->n_suites++] = argv[i];
        } else {
            return false;
        }
    }
    return true;
}

static bool wanted(const struct arguments *a, const char *suite) {
    for (int i = 0; i < a->n_suites; i++)
        if (!strcmp(a->suites[i], suite))
            return true;
    return a->n_suites == 0;
}

static void run_levels(const struct arguments *a, const struct suite *s, struct gpu_counts *n) {
    char levels[256];
    snprintf(levels, sizeof levels, "%s", a->levels);
    for (char *at = levels, *name; (name = strsep(&at, ","));)
        s->run(name, &a->o, n);
}

int main(int argc, char **argv) {
    struct arguments a = {.levels = "cuda:small,cuda:mma,cuda:wgmma", .o = {.cases = 300}};
    struct gpu_counts n = {0};
    struct err e;
    struct exec *x = NULL;
    if (!parse(&a, argc, argv)) {
        fprintf(stderr, "usage: gpu_tests [--levels LIST] [--only FAMILY] [--cases N] [--seed N] "
                        "[--time] [SUITE ...]\n");
        return 2;
    }
    if (strstr(a.levels, "cuda") && exec_create_cuda(&x, &(struct cuda_options){0}, &e)) {
        printf("%s\n", e.text);
        return NOTHING_TO_RUN_ON;
    }
    if (x)
        exec_destroy(x);
    for (int i = 0; i < SUITES; i++)
        if (wanted(&a, suites[i].name))
            run_levels(&a, &suites[i], &n);
    printf("%d passed, %d failed\n", n.passed, n.failed);
    return n.failed || !n.passed;
}
