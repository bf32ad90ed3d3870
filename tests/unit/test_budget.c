// SPDX-License-Identifier: Apache-2.0
// Budgets chosen by the step against all fixed ones, on simulated devices and drafts. The chooser
// knows neither.
//
//     test_budget                  all tests
//     test_budget --figures        the same; figures are printed, and none is too low
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/sim_budget.h"

static const struct sim_guess oracles[] = {
    {"errors 0.05", .errors = 0.05}, {"errors 0.08", .errors = 0.08},
    {"errors 0.12", .errors = 0.12}, {"errors 0.25", .errors = 0.25},
    {"errors 0.5", .errors = 0.5},
};
enum { ORACLES = sizeof oracles / sizeof *oracles };
static const struct sim_guess useless = {"useless", -1, {0.002, 0.002, 0.002}, 0.3, 1, NULL};

static bool only_figures; // of any height

// A figure by its name; it must be above `min`.
static void figure(double value, double min, const char *device, const char *name,
                   const char *part) {
    print_message("%s, %s%s%s: %.5f\n", device, name, *part ? ", " : "", part, value);
    assert_true(only_figures || value > min);
}

static void forget(struct sim_run *r) {
    budget_destroy(r->budget);
    price_destroy(r->price);
    r->budget = NULL;
    r->price = NULL;
}

static void fresh(struct sim_run *r) {
    assert_int_equal(budget_create(&r->budget, NULL), 0);
    assert_int_equal(price_create(&r->price, r->device->kind, &r->device->experts, NULL, NULL), 0);
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

// The simulations are plain arithmetic, which the other tests go through as well; under a sanitizer
// they would take a minute.
#ifdef COPPICE_CHECKED
enum { CHECKED = 1 };
#else
enum { CHECKED = 0 };
#endif
enum { STEP = CHECKED && !TEST_LONG ? 3 : 1 }; // from one simulated device to the next

static void a_good_draft_is_used_at_once(void **state) {
    enum { SESSIONS = 24 };
    (void)state;
    if (CHECKED)
        skip();
    for (int d = 0; d < sim_n_devices; d++)
        for (int g = 0; g <= ORACLES; g++) {
            const struct sim_guess *guess = g < ORACLES ? &oracles[g] : &useless;
            struct score s = replies(&sim_devices[d], guess, SESSIONS);
            double first = s.got[0] / s.best[0], later = s.got[1] / s.best[1];
            bool gpu = sim_devices[d].kind == PRICE_GPU, plain = guess == &useless;
            figure(first, plain ? gpu ? 0.975 : 0.965 : sim_devices[d].min[0], sim_devices[d].name,
                   guess->name, "first reply");
            figure(later, plain ? 0.975 : sim_devices[d].min[1], sim_devices[d].name, guess->name,
                   "later ones");
        }
}

// Drafts whose probabilities are honest, too sure or not sure enough, or mean little: later replies
// against the best fixed number of nodes.
static void scores_of_all_kinds(void **state) {
    static const struct sim_guess kinds[] = {
        {"honest", -1, {0.80, 0.08, 0.03}, 1, 0, NULL},
        {"too sure", -1, {0.80, 0.08, 0.03}, 0.3, 0, NULL},
        {"not sure", -1, {0.80, 0.08, 0.03}, 2.5, 0, NULL},
        {"moody", -1, {0.60, 0.15, 0.08}, 1, 1, NULL},
        {"poor", -1, {0.25, 0.10, 0.05}, 1, 0.5, NULL},
    };
    (void)state;
    for (int d = 0; d < sim_n_devices; d += 3)
        for (size_t g = 0; g < sizeof kinds / sizeof *kinds; g++) {
            struct score s = replies(&sim_devices[d], &kinds[g], 12);
            double first = s.got[0] / s.best[0], later = s.got[1] / s.best[1];
            figure(first, 0.93, sim_devices[d].name, kinds[g].name, "first reply");
            figure(later, 0.97, sim_devices[d].name, kinds[g].name, "later ones");
        }
}

// One chooser for texts on which guessing pays and others: what one taught must not harm the next.
static void texts_in_turn(void **state) {
    enum { TEXTS = 12, SESSIONS = 10 };
    static const int kind[TEXTS] = {1, -1, 3, -1, 0, 4, -1, 2, -1, 1, -1, 3};
    (void)state;
    if (CHECKED)
        skip();
    for (int d = 0; d < sim_n_devices; d++) {
        double worst[2] = {9, 9};
        struct sim_run r = {.device = &sim_devices[d], .tokens = 128};
        double ms[TEXTS] = {0};
        for (int i = 0; i < SESSIONS; i++) {
            fresh(&r);
            for (int j = 0; j < TEXTS; j++) {
                r.guess = kind[j] < 0 ? &useless : &oracles[kind[j]];
                r.from = 1000 * (TEXTS * i + j);
                budget_begin(r.budget, NULL);
                ms[j] += sim_time(&r, NULL);
            }
            forget(&r);
        }
        for (int j = 0; j < TEXTS; j++) {
            int nodes;
            r.guess = kind[j] < 0 ? &useless : &oracles[kind[j]];
            r.from = 1000 * j;
            double best = sim_best_fixed(&r, SESSIONS, 1000 * TEXTS, &nodes);
            double part = SESSIONS * (double)r.tokens / ms[j] / best;
            worst[kind[j] < 0] = fmin(worst[kind[j] < 0], part);
        }
        figure(worst[0], 0.9, r.device->name, "texts in turn", "worst good one");
        figure(worst[1], 0.96, r.device->name, "texts in turn", "worst useless one");
    }
}

// A draft that is useless for 40 to 110 tokens, then good: it is found again. One such number alone
// would tell how well the trial at a certain step falls.
static void a_draft_that_pays_late_is_found(void **state) {
    enum { SESSIONS = 24, TOKENS = 192 };
    (void)state;
    for (int d = 0; d < sim_n_devices; d += STEP) {
        struct sim_run r = {.device = &sim_devices[d], .guess = &oracles[2], .tokens = 128};
        double ms = 0;
        int nodes;
        double best = sim_best_fixed(&r, SESSIONS, 1000, &nodes);
        for (int i = 0; i < SESSIONS; i++) {
            fresh(&r);
            r.noise = (uint64_t)i;
            r.guess = &useless;
            r.tokens = 40 + i % 8 * 10;
            r.from = 1000 * i;
            sim_time(&r, NULL);
            r.guess = &oracles[2];
            r.from += r.tokens;
            r.tokens = TOKENS;
            ms += sim_time(&r, NULL);
            forget(&r);
        }
        double part = SESSIONS * TOKENS / ms / best;
        figure(part, 0.5, r.device->name, "good after useless tokens", "");
    }
}

// Long texts converge to the best fixed number of nodes or above.
static void long_texts(void **state) {
    enum { SESSIONS = 4, TOKENS = 12 * 128 };
    (void)state;
    for (int d = 0; d < sim_n_devices; d += STEP)
        for (int g = 0; g < ORACLES; g += 2) {
            struct sim_run r = {.device = &sim_devices[d], .guess = &oracles[g], .tokens = 128};
            int nodes;
            double best = sim_best_fixed(&r, SESSIONS * 12, 128, &nodes), ms = 0;
            r.tokens = TOKENS;
            for (int i = 0; i < SESSIONS; i++) {
                fresh(&r);
                r.noise = (uint64_t)i;
                r.from = i * TOKENS;
                ms += sim_time(&r, NULL);
                forget(&r);
            }
            double part = SESSIONS * TOKENS / ms / best;
            figure(part, 0.96, r.device->name, r.guess->name, "long text");
        }
}

static void tree_of(struct ddtree *t, int nodes, double step) {
    *t = (struct ddtree){.n = 1 + nodes, .parent = {-1}};
    for (int i = 1; i <= nodes; i++) {
        t->parent[i] = i - 1;
        t->depth[i] = i;
        t->score[i] = step * i;
        t->token[i] = 0;
    }
}

// Lets a member's guesses be right `right` deep, again and again.
static void teach(struct price *p, struct budget *b, int right) {
    for (int i = 0; i < 40; i++) {
        struct ddtree t;
        struct walk w = {.count = 1 + right};
        struct budget_member m = {.budget = b, .drafts = true, .asks = 1, .tree = &t, .walk = &w};
        struct budget_step s = {.price = p,
                                .members = &m,
                                .n = 1,
                                .max_rows = 64,
                                .draft = {{SIM_DEPTH, SIM_DEPTH, sim_devices[0].draft[0]}},
                                .pass_ms = sim_pass_ms(&sim_devices[0], 11, 1)};
        tree_of(&t, 10, -0.2);
        for (int j = 0; j <= right; j++)
            w.path[j] = j;
        budget_note(&s);
    }
}

// Rows go where guesses are right; many members leave fewer to each, down to none; a pass has no
// more rows than it may.
static void shares_rows(void **state) {
    enum { N = 16 };
    struct ddtree t[N];
    struct budget_member m[N];
    struct sim_run r[N];
    int alone = 0, sum = 0;
    (void)state;
    for (int i = 0; i < N; i++) {
        r[i] = (struct sim_run){.device = &sim_devices[0]};
        fresh(&r[i]);
        if (i < N / 2) // the others verify some nodes whatever is predicted of them
            teach(r[0].price, r[i].budget, i < 2 ? 10 : i < 4 ? 2 : 1);
        tree_of(&t[i], 15, -0.2);
        m[i] =
            (struct budget_member){.budget = r[i].budget, .drafts = true, .asks = 1, .tree = &t[i]};
    }
    struct budget_step s = {.price = r[0].price,
                            .members = m,
                            .n = 1,
                            .max_rows = 128,
                            .draft = {{SIM_DEPTH, SIM_DEPTH, 0}}};
    budget_share(&s);
    alone = m[0].nodes;
    assert_true(alone >= 10);
    s.n = 4;
    budget_share(&s);
    assert_true(m[0].nodes > 2 * m[2].nodes && m[1].nodes > 2 * m[3].nodes);
    for (int n = 1; n <= N; n++) { // whatever the room, it is kept
        s.n = n;
        for (s.max_rows = n; s.max_rows < 40; s.max_rows += 3) {
            budget_share(&s);
            sum = n;
            for (int i = 0; i < n; i++) {
                assert_true(m[i].nodes >= 0 && m[i].nodes < t[i].n);
                sum += m[i].nodes;
            }
            assert_true(sum <= s.max_rows);
        }
    }
    s.max_rows = 128;
    s.n = 1;
    s.other_rows = 100; // rows after the knee cost more
    s.other_seqs = 1;
    budget_share(&s);
    assert_true(m[0].nodes <= alone);
    for (int i = 0; i < N; i++)
        forget(&r[i]);
}

// A member that has lost all its credit rests alone; where no member drafts there is no depth.
static void shares_a_draft(void **state) {
    struct sim_run r[2];
    struct ddtree root = {.n = 1, .parent = {-1}};
    struct budget_member m[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        r[i] = (struct sim_run){.device = &sim_devices[0]};
        fresh(&r[i]);
        teach(r[0].price, r[i].budget, i == 0 ? 10 : 0);
        m[i] =
            (struct budget_member){.budget = r[i].budget, .drafts = true, .asks = 1, .tree = &root};
    }
    struct budget_step s = {.price = r[0].price,
                            .members = m,
                            .n = 2,
                            .max_rows = 64,
                            .draft = {{.max_depth = SIM_DEPTH}}};
    budget_drafts(&s);
    assert_true(m[0].drafts);
    assert_false(m[1].drafts);
    assert_int_equal(s.draft[0].depth, SIM_DEPTH);
    m[0].drafts = m[1].drafts = false; // no room for guesses
    budget_drafts(&s);
    assert_int_equal(s.draft[0].depth, 0);
    budget_share(&s);
    assert_int_equal(m[0].nodes + m[1].nodes, 0);
    forget(&r[0]);
    forget(&r[1]);
}

// How deep a draft with a pass for each depth is asked to guess: the dearer a pass and the worse
// its guesses, the less deep.
static void depth_by_price(void **state) {
    static const double shares[] = {0.005, 0.05, 0.15, 0.6};
    struct ddtree root = {.n = 1, .parent = {-1}};
    int most = 6;
    (void)state;
    for (int right = 5; right > 0; right /= 2) {
        int before = 0;
        for (int i = 0; i < 4; i++) {
            const struct price_drafts draft = {1, {{6, shares[i]}}};
            struct sim_run r = {.device = &sim_devices[0]};
            struct budget_member m = {.drafts = true, .asks = 1, .tree = &root};
            fresh(&r);
            teach(r.price, r.budget, right);
            price_destroy(r.price); // it knows the draft of another kind
            assert_int_equal(price_create(&r.price, PRICE_GPU, NULL, &draft, NULL), 0);
            price_note_pass(r.price, 1, 1, sim_pass_ms(r.device, 1, 1));
            m.budget = r.budget;
            struct budget_step s = {.price = r.price,
                                    .members = &m,
                                    .n = 1,
                                    .max_rows = 64,
                                    .draft = {{.max_depth = 6}}};
            budget_drafts(&s);
            assert_true(s.draft[0].depth >= 1 && s.draft[0].depth <= (i ? before : most));
            before = s.draft[0].depth;
            most = i ? most : s.draft[0].depth;
            forget(&r);
        }
        assert_int_equal(before, 1); // a pass that takes half of the target's
    }
    assert_in_range(most, 2, 4); // of two guesses one is right
}

// Members side by side: useless guesses cost next to nothing, although members try them at
// different times; good ones are used, also those of some members among others.
static void pays_in_batches(void **state) {
    enum { N = 8, REPLIES = 160, BUNDLED = 3 };
    static const struct batch {
        const char *name;
        int good; // members with good guesses
    } batches[] = {{"all useless", 0}, {"half good", N / 2}, {"all good", N}};
    (void)state;
    if (CHECKED)
        skip();
    for (int d = 0; d < sim_n_devices; d++)
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
            struct sim_run r[N];
            for (int i = 0; i < N; i++) {
                r[i] =
                    (struct sim_run){.device = &sim_devices[d], .tokens = 128, .from = 100000 * i};
                r[i].guess = i < batches[b].good ? &oracles[1] : &useless;
                fresh(&r[i]);
            }
            double plain = N / sim_pass_ms(&sim_devices[d], N, N), got = sim_batch(r, N, REPLIES);
            // On the bundled pair eight rows take the time of guesses.
            figure(got / plain, d == BUNDLED || batches[b].good == 0 ? 0.98 : 1.25,
                   sim_devices[d].name, "eight members", batches[b].name);
            for (int i = 0; i < N; i++)
                forget(&r[i]);
        }
}

// A member that joins may begin with what another has learnt.
static void takes_over(void **state) {
    struct sim_run r[3];
    struct ddtree t;
    int nodes[3];
    (void)state;
    tree_of(&t, 15, -0.5);
    for (int i = 0; i < 3; i++) {
        r[i] = (struct sim_run){.device = &sim_devices[0]};
        fresh(&r[i]);
        if (i == 0)
            teach(r[0].price, r[0].budget, 10);
        budget_begin(r[i].budget, i == 1 ? r[0].budget : NULL);
        struct budget_member m = {.budget = r[i].budget, .drafts = true, .asks = 1, .tree = &t};
        struct budget_step s = {.price = r[0].price,
                                .members = &m,
                                .n = 1,
                                .max_rows = 64,
                                .draft = {{SIM_DEPTH, SIM_DEPTH, 0}}};
        budget_share(&s);
        nodes[i] = m.nodes;
    }
    assert_int_equal(nodes[0], nodes[1]);
    assert_true(nodes[1] > nodes[2]);
    for (int i = 0; i < 3; i++)
        forget(&r[i]);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_draft_is_used_at_once),
        cmocka_unit_test(scores_of_all_kinds),
        cmocka_unit_test(texts_in_turn),
        cmocka_unit_test(a_draft_that_pays_late_is_found),
        cmocka_unit_test(long_texts),
        cmocka_unit_test(shares_rows),
        cmocka_unit_test(shares_a_draft),
        cmocka_unit_test(depth_by_price),
        cmocka_unit_test(takes_over),
        cmocka_unit_test(pays_in_batches),
    };
    (void)argv;
    only_figures = argc > 1;

    return cmocka_run_group_tests(tests, NULL, NULL);
}
