// SPDX-License-Identifier: Apache-2.0
// Runs GPU suites and prints a table; the last line is "N passed, N failed". The exit status is 1
// after a failure and 77 when there was nothing to run on.
//
//   gpu_tests [--levels cuda:mma,cuda:wgmma] [--only FAMILY] [--cases N] [--first N] [--seed N]
//             [--data tests] [--model FILE] [--time] [--brief] [--delay] [SUITE ...]
//
// --delay holds each launch that may begin early in its wait while what it may not have read is
// kept back (watch.h). Levels with ":separate" are the ones to watch: memory is as small as it can
// be.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/suites.h"
#include "gpu/watch.h"
#include "opcheck/opcheck.h"
#include "support/device.h"

enum { NOTHING_TO_RUN_ON = 77 };

static const struct suite {
    const char *name;
    gpu_suite_fn *run;
} suites[] = {
    {"opcheck", suite_opcheck}, {"golden", suite_golden},   {"property", suite_property},
    {"score", suite_score},     {"compare", suite_compare}, {"lies", suite_lies},
    {"lending", suite_lending}, {"sigmoid", suite_sigmoid},
};
enum { SUITES = sizeof suites / sizeof suites[0] };

void gpu_line(struct gpu_counts *n, bool ok, const char *level, const char *suite, const char *what,
              const char *format, ...) {
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    n->passed += ok;
    n->failed += !ok;
    printf("%-6s %-10s %-9s %-40s %s\n", ok ? "ok" : "FAIL", level, suite, what, text);
    fflush(stdout);
}

void suite_opcheck(const char *level, const struct gpu_options *o, struct gpu_counts *n) {
    struct opcheck_options c = {
        .timing = o->timing, .brief = o->brief, .only = o->only, .seed = o->seed};
    n->failed += opcheck_level(level, &c, &n->passed, &n->failed) != 0;
}

struct arguments {
    struct gpu_options o;
    const char *levels;
    const char *suites[SUITES];
    int n_suites;
    bool delay;
};

static bool take_option(struct arguments *a, const char *name, const char *value) {
    if (!value)
        return false;
    if (!strcmp(name, "--levels"))
        a->levels = value;
    else if (!strcmp(name, "--only"))
        a->o.only = value;
    else if (!strcmp(name, "--data"))
        a->o.data = value;
    else if (!strcmp(name, "--model"))
        a->o.model = value;
    else if (!strcmp(name, "--cases"))
        a->o.cases = atoi(value);
    else if (!strcmp(name, "--first"))
        a->o.first = atoi(value);
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
        } else if (!strcmp(argv[i], "--brief")) {
            a->o.brief = true;
        } else if (!strcmp(argv[i], "--delay")) {
            a->delay = true;
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

// What the watch has found in a suite.
static void add_watched(const char *level, const char *suite, struct gpu_counts *n) {
    const char *text;
    if (!watch_on() || !strcmp(suite, "lies"))
        return;
    const struct watch_counts c = watch_take(&text);
    gpu_line(
        n, c.beside > 0 && !c.read && !c.wrote && !c.let, level, suite, "launches say what they do",
        "%lld launches, %lld held, %lld of them beside others, %lld leave other bits each time: "
        "%lld read early, %lld wrote early, %lld let ahead unsaid%s%s",
        (long long)c.launches, (long long)c.early, (long long)c.beside, (long long)c.loose,
        (long long)c.read, (long long)c.wrote, (long long)c.let, text[0] ? ": " : "", text);
}

// All wanted suites on one level, if this machine has it.
static void run_level(const struct arguments *a, const char *level, struct gpu_counts *n) {
    struct exec *x = NULL;
    struct err e;
    int rc = device_open(&x, level, 0, &e);
    if (x)
        exec_destroy(x);
    if (rc == ERR_UNSUPPORTED) {
        printf("skip   %-10s %s\n", level, e.text);
        n->skipped++;
    } else if (rc) {
        gpu_line(n, false, level, "open", "", "%s", e.text);
    }
    for (int i = 0; i < SUITES && !rc; i++)
        if (wanted(a, suites[i].name)) {
            suites[i].run(level, &a->o, n);
            add_watched(level, suites[i].name, n);
        }
}

int main(int argc, char **argv) {
    struct arguments a = {.levels = "cuda:small,cuda:mma,cuda:wgmma",
                          .o = {.cases = 300, .data = TEST_DATA}};
    struct gpu_counts n = {0};
    struct err e;
    struct exec *x = NULL;
    if (!parse(&a, argc, argv)) {
        fprintf(stderr, "usage: gpu_tests [--levels LIST] [--only FAMILY] [--cases N] [--first N] "
                        "[--seed N] [--data DIR] [--model FILE] [--time] [--brief] [--delay] "
                        "[SUITE ...]\n");
        return 2;
    }
    if (strstr(a.levels, "cuda") && device_open(&x, "cuda", 0, &e)) {
        printf("%s\n", e.text);
        return NOTHING_TO_RUN_ON;
    }
    if (x)
        exec_destroy(x);
    if (a.delay && !watch_begin((int64_t)2 << 30)) {
        printf("this device has no launches that begin early, or too little memory\n");
        return NOTHING_TO_RUN_ON;
    }
    char levels[256];
    snprintf(levels, sizeof levels, "%s", a.levels);
    for (char *at = levels, *name; (name = strsep(&at, ","));)
        run_level(&a, name, &n);
    printf("%d passed, %d failed\n", n.passed, n.failed);
    return n.failed || (!n.passed && !a.o.timing);
}
