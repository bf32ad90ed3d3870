// SPDX-License-Identifier: Apache-2.0
// Which of several drafts are asked, on simulated texts and devices: those whose difference beside
// the others pays for their time, for each member of a step by itself; one that does not is tried
// again seldom, and found when it begins to pay.
#include <stdlib.h>

#include "base/rng.h"
#include "spec/tree/mix.h"
#include "unit/sim_budget.h"
#include "unit/test.h"

enum { DEPTH = 6, K = 2, MEMBERS = 2 };

// A text: the chance that each draft's guess of a position is right. Drafts with one `share` are
// right of the same positions, as far as they are; others of positions of their own.
struct text {
    double right[PRICE_DRAFTS];
    int share[PRICE_DRAFTS];
};

struct scene {
    struct price *price;
    struct budget *budget[MEMBERS];
    int n; // members
    const struct text *text[MEMBERS];
    double draft_ms[PRICE_DRAFTS];
    const struct sim_device *device;
    int64_t pos[MEMBERS];
    int asked[MEMBERS][PRICE_DRAFTS], drafted[MEMBERS]; // steps
    int fixed;                                          // drafts that are asked always; 0: chosen
    double ms, tokens;
};

static void open_scene(struct scene *s, int n, double a, double b, double c) {
    const struct price_drafts drafts = {.n = PRICE_DRAFTS};
    *s = (struct scene){.n = n, .draft_ms = {a, b, c}, .device = &sim_devices[0]};
    assert_int_equal(price_create(&s->price, PRICE_GPU, NULL, &drafts, NULL), 0);
    for (int i = 0; i < n; i++)
        assert_int_equal(budget_create(&s->budget[i], NULL), 0);
}

static void close_scene(struct scene *s) {
    price_destroy(s->price);
    for (int i = 0; i < s->n; i++)
        budget_destroy(s->budget[i]);
}

static bool is_right(const struct text *t, int draft, int64_t pos) {
    uint64_t h = rng_hash(5, (uint64_t)pos, (uint64_t)t->share[draft], 0);
    return rng_unit(h) < t->right[draft];
}

// The member's tree of what it asked: the truth is token 0 everywhere.
static void grow(const struct scene *s, int who, unsigned asks, struct mix *m, struct ddtree *t) {
    static int32_t ids[PRICE_DRAFTS][DEPTH * K];
    static float logp[PRICE_DRAFTS][DEPTH * K];
    struct proposal p[PRICE_DRAFTS], all;
    struct mix_part part[PRICE_DRAFTS];
    struct tree_options o = {.budget = 20, .k = K, .max_depth = DEPTH};
    int n = 0;
    for (int d = 0; d < PRICE_DRAFTS; d++) {
        if (!(asks >> d & 1))
            continue;
        for (int i = 0; i < DEPTH; i++)
            for (int r = 0; r < K; r++) {
                bool right = is_right(s->text[who], d, s->pos[who] + i) && r == 0;
                ids[d][i * K + r] = right ? 0 : 1 + d * K + r;
                logp[d][i * K + r] = r ? -2.3f : -0.3f;
            }
        p[d] = (struct proposal){.depth = DEPTH, .k = K, .ids = ids[d], .logp = logp[d]};
        part[n++] = (struct mix_part){&p[d], 1, d};
    }
    *t = (struct ddtree){.n = 1, .parent = {-1}};
    if (!n)
        return;
    mix_offer(m, part, n, &all);
    assert_int_equal(ddtree_build(t, 9, &all, &o, NULL), 0);
}

static void one_step(struct scene *s, struct mix *mix) {
    static const int32_t truth[TREE_MAX_ROWS];
    const struct walk_limits l = {.tokens_left = 1 << 20, .context_left = 1 << 20};
    struct budget_member m[MEMBERS];
    struct ddtree t[MEMBERS];
    struct walk w[MEMBERS];
    struct budget_step b = {.price = s->price, .members = m, .n = s->n, .max_rows = 64};
    int rows = 0, asking[PRICE_DRAFTS] = {0};
    for (int d = 0; d < PRICE_DRAFTS; d++)
        b.draft[d].max_depth = DEPTH;
    for (int i = 0; i < s->n; i++)
        m[i] = (struct budget_member){.budget = s->budget[i],
                                      .drafts = true,
                                      .may = s->fixed ? (unsigned)s->fixed : 7,
                                      .tree = &t[i],
                                      .walk = &w[i]};
    budget_drafts(&b);
    for (int i = 0; i < s->n; i++) {
        grow(s, i, m[i].asks, mix, &t[i]);
        s->drafted[i] += m[i].asks != 0;
        for (int d = 0; d < PRICE_DRAFTS; d++) {
            const bool asks = m[i].asks >> d & 1;
            asking[d] += asks;
            s->asked[i][d] += asks;
        }
    }
    budget_share(&b);
    for (int i = 0; i < s->n; i++) {
        t[i].n = 1 + m[i].nodes;
        rows += t[i].n;
        walk_tree(&t[i], truth, &l, &w[i]);
        s->pos[i] += w[i].count;
        s->tokens += w[i].count;
    }
    for (int d = 0; d < PRICE_DRAFTS; d++) {
        b.draft[d].ms = asking[d] ? s->draft_ms[d] * (1 + 0.2 * (asking[d] - 1)) : 0;
        s->ms += b.draft[d].ms;
    }
    b.pass_ms = sim_pass_ms(s->device, rows, s->n);
    s->ms += b.pass_ms;
    budget_note(&b);
}

static void run(struct scene *s, int steps) {
    struct mix *mix = malloc(mix_bytes());
    for (int i = 0; i < MEMBERS; i++) {
        s->drafted[i] = 0;
        for (int d = 0; d < PRICE_DRAFTS; d++)
            s->asked[i][d] = 0;
    }
    s->ms = s->tokens = 0;
    for (int i = 0; i < steps; i++)
        one_step(s, mix);
    free(mix);
}

static double part(const struct scene *s, int who, int draft) {
    return (double)s->asked[who][draft] / (double)(s->drafted[who] ? s->drafted[who] : 1);
}

// Tokens per millisecond of `steps` with a fixed set of drafts.
static double fixed_rate(const struct scene *like, int drafts, int steps) {
    struct scene s;
    open_scene(&s, like->n, like->draft_ms[0], like->draft_ms[1], like->draft_ms[2]);
    s.fixed = drafts;
    for (int i = 0; i < s.n; i++)
        s.text[i] = like->text[i];
    run(&s, steps);
    close_scene(&s);
    return s.tokens / s.ms;
}

// What guesses right what another does, too, is asked seldom, and so is what is never right; what
// is right where the others are not is asked with them. The whole is about as fast as the best set.
static void asks_what_pays(void **state) {
    (void)state;
    static const struct {
        struct text text;
        double ms[PRICE_DRAFTS];
        int best; // set of drafts
    } cases[] = {
        {{{0.7, 0.7, 0}, {0, 0, 0}}, {0.5, 1.2, 0.5}, 1},    // the second is dearer, no better
        {{{0.3, 0.9, 0}, {0, 0, 0}}, {0.5, 1.2, 0.5}, 2},    // it is much better
        {{{0.55, 0.55, 0}, {0, 1, 0}}, {0.3, 0.3, 0.5}, 3},  // each is right where it is alone
        {{{0.5, 0.5, 0.5}, {0, 1, 2}}, {0.2, 0.2, 0.2}, 7},  // all three are
        {{{0.8, 0.85, 0.8}, {0, 0, 0}}, {0.5, 2.5, 3.0}, 1}, // hardly better, and much dearer
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct scene s;
        open_scene(&s, 1, cases[c].ms[0], cases[c].ms[1], cases[c].ms[2]);
        s.text[0] = &cases[c].text;
        run(&s, 150);
        run(&s, 600);
        for (int d = 0; d < PRICE_DRAFTS; d++) {
            if (cases[c].best >> d & 1)
                assert_true(part(&s, 0, d) > 0.8);
            else
                assert_true(part(&s, 0, d) < 0.15);
        }
        double best = 0;
        for (int set = 1; set < 8; set++) {
            double rate = fixed_rate(&s, set, 750);
            best = rate > best ? rate : best;
        }
        assert_true(s.tokens / s.ms > 0.97 * best);
        close_scene(&s);
    }
}

// Members of one step ask what is right for their own texts.
static void each_its_own(void **state) {
    (void)state;
    static const struct text a = {{0.85, 0.1, 0}, {0, 1, 2}}, b = {{0.1, 0.85, 0}, {0, 1, 2}};
    struct scene s;
    open_scene(&s, 2, 1.2, 1.2, 1.2);
    s.text[0] = &a;
    s.text[1] = &b;
    run(&s, 150);
    run(&s, 400);
    assert_true(part(&s, 0, 0) > 0.8 && part(&s, 0, 1) < 0.3 && part(&s, 0, 2) < 0.15);
    assert_true(part(&s, 1, 1) > 0.8 && part(&s, 1, 0) < 0.3 && part(&s, 1, 2) < 0.15);
    close_scene(&s);
}

// A draft that begins to be right is found, and one that was never worth it costs little until
// then.
static void found_again(void **state) {
    (void)state;
    static const struct text before = {{0.5, 0.05, 0}, {0, 1, 2}},
                             after = {{0.1, 0.9, 0}, {0, 1, 2}};
    struct scene s;
    open_scene(&s, 1, 0.8, 0.8, 0.8);
    s.text[0] = &before;
    run(&s, 150);
    run(&s, 500);
    assert_true(part(&s, 0, 1) < 0.1 && part(&s, 0, 2) < 0.1);
    budget_begin(s.budget[0], NULL);
    s.text[0] = &after;
    run(&s, 100);
    run(&s, 100);
    assert_true(part(&s, 0, 1) > 0.8);
    close_scene(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asks_what_pays),
        cmocka_unit_test(each_its_own),
        cmocka_unit_test(found_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
