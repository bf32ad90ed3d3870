// SPDX-License-Identifier: Apache-2.0
// Runs every op check at every CPU level of this machine. `--time [level [threads [family]]]`
// prints microseconds instead; `--only family` checks one, `--part level` one level. Under
// sanitizers, and at the scalar level, shapes are fewer. Devices have a program of their own
// (tests/gpu).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "opcheck/opcheck.h"

static const char *const levels[] = {"scalar", "avx2", "avx512", "amx", "neon", "dotprod", "i8mm"};
enum { LEVELS = sizeof levels / sizeof levels[0] };

static const char *only; // a family, or NULL

static void one_level(void **state) {
    int passed = 0, failed = 0;
    // The scalar level has one loop for all shapes, and takes longest.
    const bool plain = !strcmp(*state, "scalar");
    const struct opcheck_options o = {
        .threads = 2, .brief = TEST_BRIEF || (plain && !TEST_LONG), .only = only};
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
    const char *part = argc > 2 && !strcmp(argv[1], "--part") ? argv[2] : NULL;
    struct CMUnitTest tests[LEVELS];
    size_t n = 0;
    for (int i = 0; i < LEVELS; i++)
        if (!part || !strcmp(part, levels[i]))
            tests[n++] = (struct CMUnitTest)cmocka_unit_test_prestate(one_level, (void *)levels[i]);
    if (n == 0) {
        fprintf(stderr, "test_opcheck: there is no level '%s'\n", part);
        return 2;
    }
    return _cmocka_run_group_tests("opcheck", tests, n, NULL, NULL);
}
