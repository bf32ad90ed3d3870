// SPDX-License-Identifier: Apache-2.0
// Budgets chosen by the step against all fixed ones, on simulated devices and drafts: passes cost
// what a formula says, guesses are right as often as a rate says, and the chooser knows neither.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "spec/budget.h"

enum { DEPTH = 15, K = 8, MOST = 63, STEPS = 2500 };

// A device and a draft.
struct world {
    const char *name;
    double base, row; // ms of a pass: base + row * rows, rows rounded up to `tile`
    int tile;
    double draft;      // ms
    double right[3];   // chance that the best, second, third candidate of a depth is the truth
    double confidence; // power of the chances that the draft states: 1 is honest, 0.3 too sure
    double mood;       // by up to this much all that it states of a position is wrong, as a power
    double deep;       // ms more for each guess that one draft makes in a row
};

static double draft_ms(const struct world *w, int depth) {
    return w->draft + w->deep * depth;
}

static double pass_ms(const struct world *w, int rows) {
    return w->base + w->row * ((rows + w->tile - 1) / w->tile * w->tile);
}

// The truth behind the root at position `pos`, and what the draft makes of it.
static void draft_at(const struct world *w, int64_t pos, int depth, struct proposal *p,
                     int32_t *ids, float *logp) {
    *p = (struct proposal){.depth = depth, .k = K, .ids = ids, .logp = logp};
    for (int d = 0; d < depth; d++) {
        uint64_t h = rng_hash(7, (uint64_t)(pos + d), 0, 0);
        double u = rng_unit(h), sum = 0;
        double power = w->confidence * exp(w->mood * (2 * rng_unit(rng_mix(h)) - 1));
        int rank = K;
        for (int r = 2; r >= 0; r--)
            sum += w->right[r];
        for (int r = 2; r >= 0; r--) {
            if (u < sum)
                rank = r;
            sum -= w->right[r];
        }
        for (int r = 0; r < K; r++) { // token 0 is the truth
            double stated = r < 3 ? w->right[r] : 0.001;
            ids[d * K + r] = r == rank ? 0 : r + 1;
            logp[d * K + r] = (float)(power * log(fmax(stated, 1e-4)));
        }
    }
}

static void walk_truth(const struct ddtree *t, struct walk *out) {
    int node = 0;
    *out = (struct walk){.end = END_NONE};
    do {
        out->path[out->count] = node;
        out->chosen[out->count++] = 0;
        node = ddtree_child(t, node, 0);
    } while (node >= 0);
}

// Tokens per millisecond of a text that begins at position `from`, with a fixed number of nodes
// (-1: never drafted) of drafts of a fixed depth, or with a chooser.
static double rate_at(const struct world *w, int nodes, int depth, struct budget *b, int64_t from,
                      int steps) {
    int32_t ids[DEPTH * K];
    float logp[DEPTH * K];
    struct tree_options o = {.budget = MOST, .k = K, .max_depth = DEPTH};
    double ms = 0;
    int64_t pos = from;
    for (int s = 0; s < steps; s++) {
        bool drafts = b ? budget_drafts(b) : nodes >= 0;
        struct ddtree t;
        struct walk walk;
        struct proposal p = {0};
        if (b && drafts && w->deep > 0)
            depth = budget_depth(b);
        if (drafts)
            draft_at(w, pos, depth, &p, ids, logp);
        ddtree_build(&t, 1, &p, &o);
        if (b)
            t.n = 1 + budget_nodes(b, &t);
        else if (drafts && t.n > 1 + nodes)
            t.n = 1 + nodes;
        walk_truth(&t, &walk);
        double draft = drafts ? draft_ms(w, depth) : 0, pass = pass_ms(w, t.n);
        if (b)
            budget_note(b, &t, &walk, draft, pass);
        ms += draft + pass;
        pos += walk.count;
    }
    return (double)(pos - from) / ms;
}

static double rate_of(const struct world *w, int nodes, struct budget *b, int64_t from, int steps) {
    return rate_at(w, nodes, DEPTH, b, from, steps);
}

static double rate(const struct world *w, int nodes, struct budget *b) {
    return rate_of(w, nodes, b, 0, STEPS);
}

static struct budget *chooser(const struct world *w) {
    struct budget *b;
    assert_int_equal(budget_create(&b, 1 + MOST, NULL), 0);
    assert_false(budget_ready(b));
    for (int i = 0, rows; (rows = budget_rows(b, i)); i++)
        budget_measured(b, rows, pass_ms(w, rows));
    assert_int_equal(budget_depth(b), 0);
    for (int i = 0, depth; w->deep > 0 && (depth = budget_draft_depth(DEPTH, i)); i++)
        budget_draft_measured(b, depth, draft_ms(w, depth));
    assert_true(budget_ready(b));
    return b;
}

static void chosen_against_fixed(void **state) {
    static const struct world worlds[] = {
        {"GPU, good draft", 8, 0.08, 8, 1.2, {0.80, 0.08, 0.03}, 1, 0, 0},
        {"GPU, good draft, too sure", 8, 0.08, 8, 1.2, {0.80, 0.08, 0.03}, 0.3, 0, 0},
        {"GPU, fair draft", 8, 0.08, 8, 1.2, {0.50, 0.15, 0.08}, 1, 0, 0},
        {"GPU, poor draft", 8, 0.08, 8, 1.2, {0.20, 0.10, 0.05}, 1, 0, 0},
        {"GPU, useless draft", 8, 0.08, 8, 1.2, {0.01, 0.01, 0.01}, 1, 0, 0},
        {"GPU, useless draft, too sure", 8, 0.08, 8, 1.2, {0.01, 0.01, 0.01}, 0.1, 0, 0},
        {"CPU, good draft", 0.5, 0.1, 1, 0.25, {0.85, 0.05, 0.02}, 1, 0, 0},
        {"CPU, fair draft", 0.5, 0.1, 1, 0.25, {0.55, 0.15, 0.08}, 1, 0, 0},
        {"CPU, poor draft", 0.5, 0.1, 1, 0.25, {0.25, 0.10, 0.05}, 2, 0, 0},
        {"CPU, useless draft", 0.5, 0.1, 1, 0.25, {0.02, 0.01, 0.01}, 1, 0, 0},
        {"rows for nothing", 5, 0.001, 1, 0.5, {0.60, 0.15, 0.05}, 1, 0, 0},
        {"rows at full price", 0.1, 1, 1, 0.05, {0.80, 0.05, 0.02}, 1, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        const struct world *w = &worlds[i];
        double plain = rate(w, -1, NULL), best = plain;
        int at = -1;
        for (int nodes = 0; nodes <= MOST; nodes++) {
            double r = rate(w, nodes, NULL);
            if (r > best) {
                best = r;
                at = nodes;
            }
        }
        struct budget *b = chooser(w);
        double got = rate(w, 0, b);
        print_message("%-30s plain %7.3f  best fixed %7.3f (%2d nodes)  chosen %7.3f  %5.1f %%\n",
                      w->name, plain, best, at, got, 100 * got / best);
        assert_true(got > 0.97 * best);
        assert_true(got > 0.98 * plain);
        budget_destroy(b);
    }
}

// Short texts, each with a chooser that knows nothing yet.
static void learns_soon(void **state) {
    enum { TEXTS = 40, SHORT = 65 };
    static const struct {
        struct world w;
        double least;
    } c[] = {
        {{"good draft", 8, 0.08, 8, 1.2, {0.80, 0.08, 0.03}, 1, 0, 0}, 0.96},
        {{"good draft, too sure", 8, 0.08, 8, 1.2, {0.80, 0.08, 0.03}, 0.3, 0, 0}, 0.96},
        {{"good draft, not sure", 8, 0.08, 8, 1.2, {0.80, 0.08, 0.03}, 2.5, 0, 0}, 0.93},
        {{"fair draft", 8, 0.08, 8, 1.2, {0.50, 0.15, 0.08}, 1, 0, 0}, 0.96},
        {{"useless draft, too sure", 8, 0.08, 8, 1.2, {0.01, 0.01, 0.01}, 0.3, 0, 0}, 0.95},
        {{"CPU, useless draft", 0.5, 0.1, 1, 0.25, {0.02, 0.01, 0.01}, 1, 0, 0}, 0.91},
    };
    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        double best = 0, got = 0;
        for (int nodes = -1; nodes <= MOST; nodes++) {
            double sum = 0;
            for (int64_t t = 0; t < TEXTS; t++)
                sum += rate_of(&c[i].w, nodes, NULL, 100000 * t, SHORT);
            best = fmax(best, sum);
        }
        for (int64_t t = 0; t < TEXTS; t++) {
            struct budget *b = chooser(&c[i].w);
            got += rate_of(&c[i].w, 0, b, 100000 * t, SHORT);
            budget_destroy(b);
        }
        print_message("%d steps, %-25s %5.1f %%\n", SHORT, c[i].w.name, 100 * got / best);
        assert_true(got > c[i].least * best);
    }
}

// A draft is asked for as many guesses as the walks are long: where few are right, whole drafts
// take their time in vain, and where many are, short ones end too soon.
static void depth_of_drafts(void **state) {
    static const struct world worlds[] = {
        {"short walks", 0.42, 0.06, 1, 0.15, {0.55, 0.12, 0.05}, 1, 0, 0.02},
        {"middling walks", 0.42, 0.06, 1, 0.15, {0.75, 0.08, 0.03}, 1, 0, 0.02},
        {"long walks", 0.42, 0.06, 1, 0.15, {0.94, 0.02, 0.01}, 1, 0, 0.02},
        {"depth for nothing", 8, 0.08, 8, 1.2, {0.55, 0.12, 0.05}, 1, 0, 1e-3},
    };
    (void)state;
    assert_int_equal(budget_draft_depth(DEPTH, 0), DEPTH);
    assert_int_equal(budget_draft_depth(DEPTH, 1), 7);
    assert_int_equal(budget_draft_depth(DEPTH, 2), 3);
    assert_int_equal(budget_draft_depth(DEPTH, 3), 0);
    assert_int_equal(budget_draft_depth(2, 1), 0);
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        const struct world *w = &worlds[i];
        double best[3] = {0}, most = 0;
        for (int d = 0; d < 3; d++)
            for (int nodes = 0; nodes <= 31; nodes += nodes < 8 ? 1 : 4)
                best[d] =
                    fmax(best[d], rate_at(w, nodes, budget_draft_depth(DEPTH, d), NULL, 0, STEPS));
        most = fmax(fmax(best[0], best[1]), best[2]);
        struct budget *b = chooser(w);
        double got = rate(w, 0, b);
        print_message("%-18s depth 15, 7, 3: %.3f %.3f %.3f  chosen %.3f  %5.1f %%\n", w->name,
                      best[0], best[1], best[2], got, 100 * got / most);
        assert_true(got > 0.95 * most);
        budget_destroy(b);
    }
}

// A text on which guessing never pays, and one where it does so late, both short, each behind a
// text of another kind that the chooser has seen: what is lost is bounded, and the turn is found.
static void never_and_late(void **state) {
    enum { TEXTS = 40, SHORT = 96 };
    struct world bad = {"", 0.42, 0.06, 1, 0.15, {0.02, 0.01, 0.01}, 1, 0, 0.02}, good = bad;
    good.right[0] = 0.8;
    double best = 0, never = 0, late = 0, plain = rate_of(&bad, -1, NULL, 0, SHORT);
    struct budget *b = chooser(&bad);
    (void)state;
    for (int nodes = 0; nodes <= 31; nodes += nodes < 8 ? 1 : 4)
        best = fmax(best, rate_of(&good, nodes, NULL, 0, 10 * SHORT));
    for (int64_t t = 0; t < TEXTS; t++) {
        budget_begin(b);
        never += rate_of(&bad, 0, b, 100000 * t, SHORT) / plain / (double)TEXTS;
        budget_begin(b);
        rate_of(&bad, 0, b, 100000 * t, SHORT / 2);
        late += rate_of(&good, 0, b, 100000 * t + SHORT / 2, SHORT) / best / (double)TEXTS;
    }
    print_message("never: %.1f %% of plain, late: %.1f %% of the best\n", 100 * never, 100 * late);
    assert_true(never > 0.95);
    assert_true(late > 0.8);
    budget_destroy(b);
}

// A draft that is useless for a while and then good is found again.
static void comes_back(void **state) {
    struct world bad = {"", 8, 0.08, 8, 1.2, {0.01, 0.01, 0.01}, 1, 0, 0}, good = bad;
    good.right[0] = 0.8;
    (void)state;
    struct budget *b = chooser(&bad);
    rate(&bad, 0, b);
    double got = rate(&good, 0, b), best = 0;
    for (int nodes = 0; nodes <= MOST; nodes++)
        best = fmax(best, rate(&good, nodes, NULL));
    print_message("after a bad time: %.1f %% of the best fixed budget\n", 100 * got / best);
    assert_true(got > 0.85 * best);
    budget_destroy(b);
}

// Scores that mean little make no worse choices than no scores: a node's place is then what tells.
static void scores_that_mean_nothing(void **state) {
    struct world w = {"", 8, 0.08, 8, 1.2, {0.80, 0.08, 0.03}, 1, 2, 0};
    struct budget *b = chooser(&w);
    double got = rate(&w, 0, b), best = 0;
    (void)state;
    for (int nodes = 0; nodes <= MOST; nodes++)
        best = fmax(best, rate(&w, nodes, NULL));
    print_message("scores that mean nothing: %.1f %% of the best fixed budget\n", 100 * got / best);
    assert_true(got > 0.97 * best);
    budget_destroy(b);
}

// One chooser for texts of 65 steps in turn: what one of them taught must not spoil the next.
static void texts_in_turn(void **state) {
    enum { TEXTS = 12, SHORT = 65 };
    static const double right[] = {0.85, 0, 0.5, 0.2};
    struct world w = {"", 8, 0.08, 8, 1.2, {0, 0.08, 0.03}, 1, 1, 0};
    struct budget *b = chooser(&w);
    (void)state;
    for (int64_t t = 0; t < TEXTS; t++) {
        double best = 0;
        w.right[0] = right[t % 4];
        w.right[1] = w.right[2] = right[t % 4] / 12;
        for (int nodes = -1; nodes <= MOST; nodes++)
            best = fmax(best, rate_of(&w, nodes, NULL, 100000 * t, SHORT));
        budget_begin(b);
        double got = rate_of(&w, 0, b, 100000 * t, SHORT);
        print_message("best candidate right %.2f: %5.1f %%\n", right[t % 4], 100 * got / best);
        assert_true(got > 0.9 * best);
    }
    budget_destroy(b);
}

static void passes_between_and_beyond(void **state) {
    struct budget *b;
    (void)state;
    assert_int_equal(budget_create(&b, 40, NULL), 0);
    static const int rows[] = {1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 40, 0};
    for (int i = 0; i < 12; i++)
        assert_int_equal(budget_rows(b, i), rows[i]);
    budget_measured(b, 1, 10);
    budget_measured(b, 4, 99); // out of order: not taken
    budget_measured(b, 2, 11);
    budget_measured(b, 4, 13);
    assert_true(fabs(budget_pass_ms(b, 1) - 10) < 1e-9);
    assert_true(fabs(budget_pass_ms(b, 3) - 13) < 1e-9);
    assert_true(fabs(budget_pass_ms(b, 8) - 17) < 1e-9); // goes on as it did
    budget_destroy(b);
    assert_true(budget_create(&b, 0, NULL) < 0);
    assert_true(budget_create(&b, TREE_MAX_ROWS + 1, NULL) < 0);
}

// Unmeasured, a chooser keeps a moderate tree and never rests.
static void without_measurements(void **state) {
    struct world w = {"", 8, 0.08, 8, 1.2, {0.5, 0.1, 0.1}, 1, 0, 0};
    struct budget *b;
    int32_t ids[DEPTH * K];
    float logp[DEPTH * K];
    struct ddtree t;
    struct walk walk;
    struct proposal p;
    struct tree_options o = {.budget = MOST, .k = K, .max_depth = DEPTH};
    (void)state;
    assert_int_equal(budget_create(&b, 1 + MOST, NULL), 0);
    for (int i = 0; i < 100; i++) {
        assert_true(budget_drafts(b));
        draft_at(&w, i, DEPTH, &p, ids, logp);
        ddtree_build(&t, 1, &p, &o);
        assert_int_equal(budget_nodes(b, &t), 16);
        t.n = 17;
        walk_truth(&t, &walk);
        budget_note(b, &t, &walk, 1, 100);
    }
    budget_destroy(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chosen_against_fixed), cmocka_unit_test(learns_soon),
        cmocka_unit_test(comes_back),           cmocka_unit_test(passes_between_and_beyond),
        cmocka_unit_test(without_measurements), cmocka_unit_test(scores_that_mean_nothing),
        cmocka_unit_test(texts_in_turn),        cmocka_unit_test(depth_of_drafts),
        cmocka_unit_test(never_and_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
