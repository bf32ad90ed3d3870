// SPDX-License-Identifier: Apache-2.0
// What guesses that repeat the text cost and bring, on simulated devices: recorded replies of a
// published model (tests/budget/record_replies.py) run through the real index, trees and budgets.
// Only the times of passes are made up, so every figure is the same on any machine.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spec/draft/lookup.h"
#include "unit/sim_budget.h"
#include "unit/test.h"

enum { TEXTS = 64, IDS = 1024, MEMBERS = 16, NOISES = 3 };

struct text {
    char id[32], how[32]; // how: temperature/seed
    int prompt, n;        // tokens of the prompt; all
    int32_t ids[IDS];
};

struct texts {
    struct text t[TEXTS];
    int n;
};

static const char fixture[] = TEST_DATA "/fixtures/lookup/smollm2.txt";

static void read_texts(struct texts *s, const char *path) {
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (s->n = 0; s->n < TEXTS; s->n++) {
        struct text *t = &s->t[s->n];
        int reply, got = fscanf(f, " %31s %31s %d %d", t->id, t->how, &t->prompt, &reply);
        if (got == EOF)
            break;
        assert_int_equal(got, 4);
        t->n = t->prompt + reply;
        assert_true(t->prompt > 0 && reply > 1 && t->n <= IDS);
        for (int i = 0; i < t->n; i++)
            assert_int_equal(fscanf(f, "%d", &t->ids[i]), 1);
    }
    fclose(f);
    assert_true(s->n > 0);
}

// One member: its text, and how far it is.
struct reply {
    const struct text *text;
    struct lookup *index;
    struct budget *budget;
    int at; // the root
    int32_t guess[TREE_MAX_DEPTH], choice[TREE_MAX_ROWS];
    struct ddtree tree;
    struct walk walk;
};

static void begin(struct reply *r, const struct text *t) {
    r->text = t;
    r->at = t->prompt;
    lookup_destroy(r->index);
    r->index = NULL;
    assert_int_equal(lookup_create(&r->index, IDS, NULL), 0);
}

static int left_of(const struct reply *r) {
    return r->text->n - 1 - r->at;
}

static void guess(struct reply *r, bool drafts) {
    struct proposal p = {0};
    struct tree_options o = {.budget = SIM_MAX, .k = 1, .max_depth = TREE_MAX_DEPTH};
    int match, room = left_of(r) - 1 < TREE_MAX_DEPTH ? left_of(r) - 1 : TREE_MAX_DEPTH;
    const int32_t *ids = r->text->ids;
    if (drafts) {
        lookup_update(r->index, ids, r->at, ids[r->at]);
        int n = lookup_find(r->index, room, r->guess, &match);
        if (n)
            p.chains[p.n_chains++] = (struct draft_chain){r->guess, n, lookup_logp(match)};
    }
    assert_int_equal(ddtree_build(&r->tree, ids[r->at], &p, &o, NULL), 0);
}

static void follow(struct reply *r) {
    struct walk_limits l = {.tokens_left = left_of(r), .context_left = left_of(r)};
    for (int i = 0; i < r->tree.n; i++)
        r->choice[i] = r->text->ids[r->at + 1 + r->tree.depth[i]];
    walk_tree(&r->tree, r->choice, &l, &r->walk);
}

// A step of n members; its milliseconds without noise.
static double step(const struct sim_device *d, struct price *price, struct reply *const *r, int n,
                   uint64_t *noise) {
    struct budget_member m[MEMBERS];
    struct budget_step s = {.price = price,
                            .members = m,
                            .n = n,
                            .max_rows = 512,
                            .draft = {{.max_depth = TREE_MAX_DEPTH}}};
    int rows = 0;
    for (int i = 0; i < n; i++)
        m[i] = (struct budget_member){.budget = r[i]->budget,
                                      .drafts = left_of(r[i]) > 1,
                                      .free = true,
                                      .tree = &r[i]->tree,
                                      .walk = &r[i]->walk};
    budget_drafts(&s);
    for (int i = 0; i < n; i++)
        guess(r[i], m[i].drafts);
    budget_share(&s);
    for (int i = 0; i < n; i++) {
        r[i]->tree.n = 1 + m[i].nodes;
        rows += r[i]->tree.n;
        follow(r[i]);
    }
    double ms = sim_pass_ms(d, rows, n);
    s.pass_ms = sim_noisy(d, ms, noise, !price_ready(price));
    budget_note(&s);
    return ms;
}

// Milliseconds of replies one after the other, each with its own in ms[].
static void alone(const struct sim_device *d, const struct texts *s, const int *which, int n,
                  uint64_t seed, double *ms) {
    struct reply r = {0}, *one = &r;
    struct price *price;
    assert_int_equal(price_create(&price, d->kind, &d->experts, NULL, NULL), 0);
    assert_int_equal(budget_create(&r.budget, NULL), 0);
    for (int i = 0; i < n; i++) {
        begin(&r, &s->t[which[i]]);
        budget_begin(r.budget, NULL);
        for (ms[i] = 0; left_of(&r) > 0; r.at += r.walk.count)
            ms[i] += step(d, price, &one, 1, &seed);
    }
    lookup_destroy(r.index);
    budget_destroy(r.budget);
    price_destroy(price);
}

static double plain_ms(const struct sim_device *d, const struct text *t) {
    return (t->n - 1 - t->prompt) * sim_pass_ms(d, 1, 1);
}

// Each text on a device that knows nothing yet, with the mean of some noises: times plain decoding.
static double speed_up(const struct sim_device *d, const struct texts *s, int i) {
    double sum = 0, ms;
    for (uint64_t seed = 0; seed < NOISES; seed++) {
        alone(d, s, &i, 1, seed, &ms);
        sum += ms;
    }
    return NOISES * plain_ms(d, &s->t[i]) / sum;
}

// What a text is: chat at 0.8, chat at 0, repeated, edited.
enum kind { WARM, COLD, REPEATED, EDITED, KINDS };

static enum kind kind_of(const struct text *t) {
    if (!strncmp(t->id, "chat", 4))
        return strncmp(t->how, "0/", 2) ? WARM : COLD;
    return strncmp(t->id, "rew", 3) ? EDITED : REPEATED;
}

// Of a kind of texts: the slowest, and the geometric mean.
struct summary {
    double worst, mean;
    int n;
};

static void add(struct summary *s, double speed_up) {
    s->worst = s->n ? fmin(s->worst, speed_up) : speed_up;
    s->mean = exp((log(s->n ? s->mean : 1) * s->n + log(speed_up)) / (s->n + 1));
    s->n++;
}

static void put(const struct sim_device *d, const char *what, const struct summary s[KINDS]) {
    static const char *const names[] = {"chat at 0.8", "chat at 0", "repeated", "edited"};
    for (int k = 0; k < KINDS; k++)
        if (s[k].n)
            print_message("%s, %s, %s: worst %.3f, mean %.3f\n", d->name, what, names[k],
                          s[k].worst, s[k].mean);
}

// CPUs whose draft is never run. Two threads of an Intel Xeon with AVX-512, SmolLM2-135M, passes of
// an oracle that is never right (2026-11-29); an H200's are those of "GPU, small model" but for
// their scale.
#define NO_DRAFT .kind = PRICE_CPU, .draft = {12, 8, 6}, .member = 0.7, .first = 1.3
#define SMOLLM                                                                                     \
    .curve = {{1, 6.6},   {2, 7.3},   {4, 9.6},   {8, 12.4},                                       \
              {12, 15.8}, {16, 17.2}, {24, 23.5}, {33, 32}},                                       \
    .seq = 0.3
static const struct sim_device more_devices[] = {
    {.name = "CPU, 135M Q4_1", NO_DRAFT, SMOLLM, .noise = 0.04, .disturbed = 0.02},
    {.name = "CPU where rows are dear",
     NO_DRAFT,
     .curve = {{1, 10}, {2, 12.5}, {4, 17}, {8, 26}, {16, 45}, {64, 165}},
     .seq = 1,
     .noise = 0.04,
     .disturbed = 0.02},
    // Where arithmetic bounds passes rows pay only where they are right.
    {.name = "CPU bound by arithmetic",
     NO_DRAFT,
     .curve = {{1, 10}, {2, 18}, {64, 514}, {128, 1026}},
     .seq = 1,
     .noise = 0.04,
     .disturbed = 0.02},
    // Other programs run too, and times mean little.
    {.name = "CPU with much other work", NO_DRAFT, SMOLLM, .noise = 0.5, .disturbed = 0.2}};
enum { MORE_DEVICES = sizeof more_devices / sizeof *more_devices };

static const struct sim_device *device(int i) {
    return i < sim_n_devices ? &sim_devices[i] : &more_devices[i - sim_n_devices];
}

// Guesses are worth it where text repeats itself, from the first reply on a machine on, and where
// it does not, no reply takes 1 % longer. Where every row takes as long as a pass, short replies
// take up to 3 % longer until that is known.
static void replies_of_a_model(void **state) {
    static struct texts s;
    (void)state;
    read_texts(&s, fixture);
    for (int i = 0; i < sim_n_devices + MORE_DEVICES; i++) {
        const struct sim_device *d = device(i);
        struct summary first[KINDS] = {0}, later[KINDS] = {0};
        double ms[TEXTS];
        int all[TEXTS];
        for (int t = 0; t < s.n; t++) {
            all[t] = t;
            add(&first[kind_of(&s.t[t])], speed_up(d, &s, t));
        }
        alone(d, &s, all, s.n, 1, ms);
        for (int t = 0; t < s.n; t++)
            add(&later[kind_of(&s.t[t])], plain_ms(d, &s.t[t]) / ms[t]);
        put(d, "first reply", first);
        put(d, "in turn", later);
        assert_int_equal(first[WARM].n, 24);
        bool bound = i == sim_n_devices + 2, dear = i > sim_n_devices;
        double least = bound ? 0.965 : 0.99;
        assert_true(first[WARM].worst > least && later[WARM].worst > 0.99);
        assert_true(first[COLD].worst > least && later[COLD].worst > 0.99);
        assert_true(first[COLD].mean > (bound ? 1 : 1.05) && later[COLD].mean > (bound ? 1 : 1.05));
        assert_true(first[REPEATED].mean > (bound ? 1 : dear ? 1.6 : 2));
        assert_true(first[EDITED].mean > (bound ? 0.99 : 1.3));
    }
}

// A text whose guesses are never right: pairs of tokens come back, or whole runs, and go on
// otherwise each time.
static void misleading(struct text *t, int run, int n) {
    *t = (struct text){.id = "misleading", .how = "-", .prompt = run + 1, .n = n};
    for (int i = 0; i < n; i++)
        t->ids[i] = i % (run + 1) < run ? i % (run + 1) : 1000 + i;
}

static void wrong_guesses_cost_little(void **state) {
    static struct texts s;
    static const int runs[] = {2, 5, 16};
    (void)state;
    for (int i = 0; i < sim_n_devices + MORE_DEVICES; i++)
        for (int r = 0; r < 3; r++)
            for (int n = 100; n <= 1000; n *= 10) {
                misleading(&s.t[0], runs[r], n);
                // Of a run all guesses but the last are right.
                double got = speed_up(device(i), &s, 0);
                print_message("%s, runs of %d, %d tokens: %.3f\n", device(i)->name, runs[r], n,
                              got);
                assert_true(got > (i == sim_n_devices + 2 ? 0.975 : 0.99));
            }
}

// After 300 tokens without a right guess a text begins to repeat itself: it is noticed within a few
// tokens.
static void copying_is_noticed(void **state) {
    enum { VAIN = 300, COPY = 128 };
    static struct texts s;
    (void)state;
    struct text *t = &s.t[0];
    misleading(t, 2, 3 + VAIN + 2 * COPY);
    for (int i = 0; i < COPY; i++) {
        t->ids[i] = 5000 + i; // the prompt
        t->ids[COPY + VAIN + i] = 5000 + i;
    }
    t->prompt = COPY;
    t->n = COPY + VAIN + COPY;
    for (int i = 0; i < sim_n_devices + MORE_DEVICES; i++) {
        const struct sim_device *d = device(i);
        double saved = 1 - 1 / speed_up(d, &s, 0); // of all tokens, of which COPY can be
        double part = saved * (COPY + VAIN) / COPY;
        print_message("%s, of the time of copied tokens is saved: %.3f\n", d->name, part);
        assert_true(part > (i == sim_n_devices + 2 ? 0.1 : 0.5)); // of a fifth where rows are dear
    }
}

// Texts side by side, members leaving at their ends: times plain decoding of the same passes.
static double crowd(const struct sim_device *d, const struct texts *s, int n) {
    struct reply r[MEMBERS] = {0}, *in[MEMBERS];
    struct price *price;
    uint64_t noise = 1;
    double ms = 0, plain = 0;
    assert_int_equal(price_create(&price, d->kind, &d->experts, NULL, NULL), 0);
    for (int i = 0; i < n; i++) {
        assert_int_equal(budget_create(&r[i].budget, NULL), 0);
        begin(&r[i], &s->t[i]);
    }
    for (int left = n; left > 0;) {
        left = 0;
        for (int i = 0; i < n; i++)
            if (left_of(&r[i]) > 0)
                in[left++] = &r[i];
        ms += left ? step(d, price, in, left, &noise) : 0;
        for (int i = 0; i < left; i++) {
            in[i]->at += in[i]->walk.count;
            plain += in[i]->walk.count * sim_pass_ms(d, left, left) / left;
        }
    }
    for (int i = 0; i < n; i++) {
        lookup_destroy(r[i].index);
        budget_destroy(r[i].budget);
    }
    price_destroy(price);
    return plain / ms;
}

// Many members at a time: rows of guesses are dear where passes are full, and each member's are
// paid from what they bring.
static void crowds(void **state) {
    static struct texts s;
    (void)state;
    read_texts(&s, fixture);
    for (int i = 0; i < sim_n_devices + MORE_DEVICES; i++)
        for (int n = 4; n <= MEMBERS; n *= 2) {
            double got = crowd(device(i), &s, n);
            print_message("%s, %d members at 0.8: %.3f\n", device(i)->name, n, got);
            assert_true(got > 0.99);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replies_of_a_model),
        cmocka_unit_test(wrong_guesses_cost_little),
        cmocka_unit_test(copying_is_noticed),
        cmocka_unit_test(crowds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
