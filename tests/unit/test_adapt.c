// SPDX-License-Identifier: Apache-2.0
// Keep ratios by session: which way and how far they go, bounds, and which session is forgotten.
#include <math.h>

#include "compress/prefill.h"
#include "unit/test.h"

static double after(double accepted, int times) {
    static struct adapt a;
    a = (struct adapt){0};
    for (int i = 0; i < times; i++)
        adapt_note(&a, 1, accepted);
    return adapt_keep(&a, 1);
}

static void near(double got, double want) {
    assert_true(fabs(got - want) < 1e-9);
}

static void test_steps(void **state) {
    (void)state;
    static const double cases[][2] = {{0.5, 0.11},  {0.72, 0.105}, {0.75, 0.10}, {0.80, 0.10},
                                      {0.85, 0.10}, {0.88, 0.095}, {0.95, 0.09}, {-3, 0.11},
                                      {NAN, 0.11},  {7, 0.09}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        near(after(cases[i][0], 1), cases[i][1]);
    near(after(0, 100), 0.20);
    near(after(1, 100), 0.025);
    near(after(0, 0), 0.10);
}

static void test_mean(void **state) {
    (void)state;
    static struct adapt a;
    adapt_note(&a, 1, 1);   // 1: 0.09
    adapt_note(&a, 1, 0.5); // 0.85: stays
    near(adapt_keep(&a, 1), 0.09);
    adapt_note(&a, 1, 0); // 0.595: 0.10
    near(adapt_keep(&a, 1), 0.10);
    near(adapt_keep(&a, 2), 0.10);
}

static void test_forgets(void **state) {
    (void)state;
    static struct adapt a;
    for (uint64_t i = 0; i < ADAPT_SESSIONS + 1; i++) {
        adapt_note(&a, adapt_id((const char *)&i, sizeof i), 0);
        adapt_keep(&a, adapt_id("\0\0\0\0\0\0\0", 8)); // stays in use
    }
    for (uint64_t i = 0; i < 3; i++) // the second is forgotten
        near(adapt_keep(&a, adapt_id((const char *)&i, sizeof i)), i == 1 ? 0.10 : 0.11);
}

static void test_share(void **state) {
    (void)state;
    near(adapt_share(40, 10), 0.75); // accept length 4
    near(adapt_share(10, 10), 0);
    near(adapt_share(0, 0), -1);
    near(adapt_share(5, 0), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_mean),
        cmocka_unit_test(test_forgets),
        cmocka_unit_test(test_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
