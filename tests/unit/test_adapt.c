// SPDX-License-Identifier: Apache-2.0
// Keep ratios by session: which way and how far they go, bounds, and which session is forgotten.
#include <math.h>
#include <stdio.h>

#include "compress/adapt.h"
#include "unit/test.h"

static double after(double accepted, int times) {
    static struct adapt a;
    a = (struct adapt){0};
    for (int i = 0; i < times; i++)
        adapt_note(&a, "s", 1, accepted);
    return adapt_keep(&a, "s", 1);
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
    adapt_note(&a, "s", 1, 1);   // 1: 0.09
    adapt_note(&a, "s", 1, 0.5); // 0.85: stays
    near(adapt_keep(&a, "s", 1), 0.09);
    adapt_note(&a, "s", 1, 0); // 0.595: 0.10
    near(adapt_keep(&a, "s", 1), 0.10);
    near(adapt_keep(&a, "t", 1), 0.10);
}

static void test_forgets(void **state) {
    (void)state;
    static struct adapt a;
    char name[16];
    for (int i = 0; i < ADAPT_SESSIONS + 1; i++) {
        size_t n = (size_t)snprintf(name, sizeof name, "%d", i);
        adapt_note(&a, name, n, 0);
        adapt_keep(&a, "0", 1); // stays in use
    }
    near(adapt_keep(&a, "0", 1), 0.11);
    near(adapt_keep(&a, "1", 1), 0.10); // forgotten
    near(adapt_keep(&a, "2", 1), 0.11);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_mean),
        cmocka_unit_test(test_forgets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
