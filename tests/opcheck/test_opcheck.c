// SPDX-License-Identifier: Apache-2.0
// Runs every op check at every CPU level of this machine. `--time [level [threads [family]]]`
// prints microseconds instead; `--only family` checks one. Under sanitizers shapes are fewer.
// Devices have a program of their own (tests/gpu).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "opcheck/opcheck.h"

static const char *const levels[] = {"scalar", "avx2", "avx512", "amx", "neon", "dotprod", "i8mm"};
enum { LEVELS = sizeof levels / sizeof levels[0] };

static const char *only; // a family, or NULL

#ifdef OPCHECK_BRIEF // a sanitizer's build
static const bool brief = true;
#else
static const bool brief = false;
#endif

static void one_level(void **state) {
    int passed = 0, failed = 0;
    const struct opcheck_options o = {.threads = 2, .brief = brief, .only = only};
    int rc = opcheck_level(*state, &o, &passed, &failed);
    if (rc == ERR_UNSUPPORTED)
        skip();
    assert_int_equal(rc, 0);
    assert_int_equal(failed, 0);
    assert_true(passed > 0);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "--time")) {
        struct opcheck_options o = {.timing = true,
                                    .threads = argc > 3 ? atoi(argv[3]) : 0,
                                    .only = argc > 4 ? argv[4] : NULL};
        int passed = 0, failed = 0;
        for (int i = 0; i < LEVELS; i++)
            if (argc == 2 || !strcmp(argv[2], levels[i]))
                opcheck_level(levels[i], &o, &passed, &failed);
        return failed != 0;
    }
    if (argc > 2 && !strcmp(argv[1], "--only"))
        only = argv[2];
    struct CMUnitTest tests[LEVELS];
    for (int i = 0; i < LEVELS; i++)
        tests[i] = (struct CMUnitTest)cmocka_unit_test_prestate(one_level, (void *)levels[i]);
    return cmocka_run_group_tests_name("opcheck", tests, NULL, NULL);
}
