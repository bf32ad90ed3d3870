// SPDX-License-Identifier: Apache-2.0
// Runs every op check at every level of this machine. `--time [level [threads]]`
// prints microseconds instead.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "opcheck.h"

typedef void check_fn(struct check *c);

struct family {
    check_fn *level, *rule, *exact, *time; // against scalar, rule E, against doubles, timings
};

static const struct family families[] = {
    {check_linear, check_linear_rule, check_linear_double, check_linear_time},
    {check_gdn, check_gdn_rule, check_gdn_double, check_gdn_time},
    {check_attend, check_attend_rule, check_attend_double, check_attend_time},
    {check_rows, check_rows_rule, check_rows_double, NULL},
    {check_sample, check_sample_rule, check_sample_double, check_sample_time},
};
enum { FAMILIES = sizeof families / sizeof families[0] };

static int run_level(const char *level, bool timing, int threads) {
    struct check c = {.level = level, .time = timing, .rng = {20261121}};
    struct err e;
    if (exec_create_cpu(&c.exec, level, threads, &e)) {
        printf("skip   %-7s %s\n", level, e.text);
        return 0;
    }
    if (exec_create_cpu(&c.spec, "scalar", 1, &e))
        return 1;
    for (int i = 0; i < FAMILIES; i++) {
        if (timing && families[i].time)
            families[i].time(&c);
        if (timing)
            continue;
        if (strcmp(level, "scalar"))
            families[i].level(&c);
        families[i].rule(&c);
        families[i].exact(&c);
    }
    exec_destroy(c.exec);
    exec_destroy(c.spec);
    return c.failures;
}

static void scalar_level(void **state) {
    (void)state;
    assert_int_equal(run_level("scalar", false, 2), 0);
}

static void avx2_level(void **state) {
    (void)state;
    assert_int_equal(run_level("avx2", false, 2), 0);
}

static void avx512_level(void **state) {
    (void)state;
    assert_int_equal(run_level("avx512", false, 2), 0);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "--time")) {
        const char *levels[] = {"scalar", "avx2", "avx512"};
        for (int i = 0; i < 3; i++)
            if (argc == 2 || !strcmp(argv[2], levels[i]))
                run_level(levels[i], true, argc > 3 ? atoi(argv[3]) : 0);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalar_level),
        cmocka_unit_test(avx2_level),
        cmocka_unit_test(avx512_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
