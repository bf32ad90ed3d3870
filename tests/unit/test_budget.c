// SPDX-License-Identifier: Apache-2.0
// Budgets chosen by the step against all fixed ones, on simulated devices and drafts. The chooser
// knows neither.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "unit/sim_budget.h"

static const struct sim_guess oracles[] = {
    {"errors 0.05", .errors = 0.05}, {"errors 0.08", .errors = 0.08},
    {"errors 0.12", .errors = 0.12}, {"errors 0.25", .errors = 0.25},
    {"errors 0.5", .errors = 0.5},
};
enum { ORACLES = sizeof oracles / sizeof *oracles };
static const struct sim_guess useless = {"useless", -1, {0.002, 0.002, 0.002}, 0.3, 1};

static void forget(struct sim_run *r) {
    budget_destroy(r->budget);
    price_destroy(r->price);
    r->budget = NULL;
    r->price = NULL;
}

static void fresh(struct sim_run *r) {
    assert_int_equal(budget_create(&r->budget, NULL), 0);
    assert_int_equal(price_create(&r->price, r->device->kind, NULL), 0);
}

// Replies of 128 tokens from nothing (the first), and those that follow: tokens per millisecond of
// the best fixed number of nodes and of chosen ones.
struct score {
    double best[2], got[2];
    int nodes;
};

static struct score replies(const struct sim_device *d, const struct sim_guess *g, int sessions) {
    enum { FOLLOW = 5, TOKENS = 128 };
    struct sim_run r = {.device = d, .guess = g, .tokens = TOKENS};
    struct score s = {0};
    double ms[2] = {0};
    int64_t stride = 1000, next = stride * sessions;
    s.best[0] = sim_best_fixed(&r, sessions, stride, &s.nodes);
    r.from = next;
    s.best[1] = sim_best_fixed(&r, sessions * FOLLOW, stride, &s.nodes);
    for (int i = 0; i < sessions; i++) {
        fresh(&r);
        r.noise = (uint64_t)i;
        r.from = i * stride;
        ms[0] += sim_time(&r, NULL);
        for (int j = 0; j < FOLLOW; j++) {
            r.from = next + (i * FOLLOW + j) * stride;
            budget_begin(r.budget, NULL);
            ms[1] += sim_time(&r, NULL);
        }
        forget(&r);
    }
    s.got[0] = sessions * TOKENS / ms[0];
    s.got[1] = sessions * FOLLOW * TOKENS / ms[1];
    return s;
}

static void good_at_once(void **state) {
    enum { SESSIONS = 20 };
    (void)state;
    for (int d = 0; d < sim_n_devices; d++)
        for (int g = 0; g <= ORACLES; g++) {
            const struct sim_guess *guess = g < ORACLES ? &oracles[g] : &useless;
            struct score s = replies(&sim_devices[d], guess, SESSIONS);
            double first = s.got[0] / s.best[0], later = s.got[1] / s.best[1];
            print_message("%-18s %-12s %5.2f x plain with %2d nodes; chosen, first reply %5.1f %%, "
                          "later %5.1f %%\n",
                          sim_devices[d].name, guess->name,
                          s.best[1] * sim_pass_ms(&sim_devices[d], 1, 1), s.nodes, 100 * first,
                          100 * later);
            assert_true(first > 0.85);
            assert_true(later > 0.95);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
