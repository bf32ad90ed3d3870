// SPDX-License-Identifier: Apache-2.0
// Scheduling by a simulated clock: a device of known prices, which the scheduler has to learn, runs
// what it decides. A running request's steps stay within the gap while a long prompt is read, short
// prompts overtake long ones, and long ones are read all the same when short ones keep coming.
#include <math.h>

#include "base/num.h"
#include "base/rng.h"
#include "engine/loop/scheduler.h"
#include "unit/test.h"

// A simulated machine: what a pass of that many rows takes, with noise.
struct machine {
    double first, row; // milliseconds of one row, and of each further one at the begin,
    double grow;       // which takes so much more, as a part, at token 16384
    double noise;
    struct rng g;
};

static double pass_ms(struct machine *m, int64_t rows, int64_t done) {
    double off = 2 * (double)rng_below(&m->g, 1001) / 1000 - 1;
    double row = m->row * (1 + m->grow * (double)done / 16384);
    return (m->first + row * (double)(rows - 1)) * (1 + m->noise * off);
}

static struct price *new_price(enum price_kind kind) {
    struct price *p = NULL;
    assert_int_equal(price_create(&p, kind, NULL, NULL, NULL), 0);
    return p;
}

// Reads a prompt of n tokens together with `decoding` members; the longest pass after the first
// ones, by which the price is learnt. *passes: how many it took.
static double read_together(struct machine *m, enum price_kind kind, int64_t n, int decoding,
                            double gap, int *passes) {
    struct price *p = new_price(kind);
    double worst = 0;
    int64_t done = 0, known = 0;
    for (*passes = 0; done < n; ++*passes) {
        struct pass_frame f = {.price = p,
                               .decoding = decoding,
                               .prompts = 1,
                               .max = 3072,
                               .known = known,
                               .gap_ms = gap};
        int64_t rows = min_i64(schedule_rows(&f), n - done);
        double ms = pass_ms(m, decoding + rows, done);
        price_note_pass(p, decoding + rows, decoding + 1, ms);
        assert_in_range(rows, 1, 3072);
        if (*passes >= 1)
            worst = fmax(worst, ms);
        done += rows;
        known = max_i64(known, decoding + rows);
    }
    price_destroy(p);
    return worst;
}

static void gaps_are_bounded(void **state) {
    (void)state;
    static const struct {
        struct machine m;
        enum price_kind kind;
        int decoding;
        double gap;
    } cases[] = {
        {{20, 0.05, 0, 0.03, {1}}, PRICE_GPU, 1, 100},
        {{20, 0.05, 1, 0.03, {2}}, PRICE_GPU, 64, 100},
        {{30, 0.2, 2, 0.05, {3}}, PRICE_GPU, 8, 100},
        {{5, 0.02, 0.5, 0.02, {4}}, PRICE_GPU, 1, 50},
        {{2, 1.5, 1, 0.05, {5}}, PRICE_CPU, 1, 100},
        {{1, 0.4, 2, 0.1, {6}}, PRICE_CPU, 8, 100},
        {{0.5, 0.3, 0, 0.05, {7}}, PRICE_CPU, 4, 40},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct machine m = cases[i].m;
        int passes;
        double worst =
            read_together(&m, cases[i].kind, 16384, cases[i].decoding, cases[i].gap, &passes);
        assert_true(worst <= 1.2 * cases[i].gap);
        // And most of the time is used.
        double max = 16384 * m.row * (1 + m.grow / 2) / (0.85 * cases[i].gap - m.first);
        assert_true(passes <= 1.35 * max + 10);
    }
}

// Where a step alone takes longer than the gap, prompts are read in small pieces all the same;
// where no member decodes, in large ones.
static void a_pass_always_reads_some_prompt_tokens(void **state) {
    (void)state;
    struct price *p = new_price(PRICE_CPU);
    struct pass_frame f = {
        .price = p, .decoding = 4, .prompts = 1, .max = 512, .known = 512, .gap_ms = 100};
    assert_int_equal(schedule_rows(&f), SCHEDULE_FIRST);
    price_note_pass(p, 4, 4, 500);
    assert_int_equal(schedule_rows(&f), SCHEDULE_MIN);
    f.decoding = 0;
    assert_in_range(schedule_rows(&f), SCHEDULE_MIN, 100); // slow as it is
    for (int i = 0; i < 20; i++)
        price_note_pass(p, 64, 1, 10);
    assert_int_equal(schedule_rows(&f), 512);
    f.max = 5;
    assert_int_equal(schedule_rows(&f), 5);
    f.decoding = 4;
    assert_int_equal(schedule_rows(&f), 5);
    price_destroy(p);
    assert_true(schedule_gap(0, 10) == SCHEDULE_GAP);
    assert_true(schedule_gap(0, 50) == 200);
    assert_true(schedule_gap(70, 50) == 70);
}

// Passes of more than a tile are whole tiles, all rows counted; smaller ones are as they were.
static void tiles_are_filled(void **state) {
    (void)state;
    struct price *p = new_price(PRICE_GPU);
    price_note_pass(p, 512, 1, 50);
    for (int decoding = 0; decoding < 40; decoding += 13) {
        struct pass_frame f = {.price = p,
                               .decoding = decoding,
                               .guesses = decoding ? 7.5 : 0,
                               .prompts = 1,
                               .max = 3000,
                               .known = 3000,
                               .gap_ms = 100};
        int64_t any = schedule_rows(&f), others = decoding + (int64_t)f.guesses;
        f.tile = 256;
        int64_t whole = schedule_rows(&f);
        assert_int_equal((others + whole) % 256, 0);
        assert_in_range(any - whole, 0, 255);
        f.max = 200 - others;
        assert_int_equal(schedule_rows(&f), f.max);
        f.max = 3000;
        f.guesses = 250 - decoding; // what they fill would not hold a prompt's row any more
        f.gap_ms = 1;
        assert_int_equal(schedule_rows(&f), decoding ? SCHEDULE_MIN : 3250 / 256 * 256 - 250);
    }
    price_destroy(p);
}

static void short_prompts_first(void **state) {
    (void)state;
    struct prompt_slice t[4] = {{.left = 10000}, {.left = 40}, {.left = 0}, {.left = 300}};
    assert_int_equal(schedule_prompts(t, 4, 256, 1), 2);
    assert_int_equal(t[1].rows, 40);
    assert_int_equal(t[1].order, 0);
    assert_int_equal(t[3].rows, 216);
    assert_int_equal(t[3].order, 1);
    assert_int_equal(t[0].rows + t[2].rows, 0);
    t[0].waited_ms = 25000; // it counts as shorter than either by now
    assert_int_equal(schedule_prompts(t, 4, 256, 1), 1);
    assert_int_equal(t[0].rows, 256);
    assert_int_equal(schedule_prompts(t, 4, 0, 1), 0);
    assert_int_equal(schedule_prompts(t, 4, 100000, 0), 3);
    assert_int_equal(t[0].rows + t[1].rows + t[3].rows, 10340);
}

// Short prompts that come as fast as the machine can read: a long one is overtaken by some, and
// read in a bounded time.
static void long_prompts_do_not_starve(void **state) {
    (void)state;
    enum { SHORT = 200, ROWS = 256 };
    struct prompt_slice t[64] = {{.left = 8192}};
    double came[64] = {0}, now = 0;
    int n = 1, passed = 0;
    while (t[0].left > 0 && now < 1e6) {
        while (n < 64 && n < (int64_t)now / SHORT + 1) { // one each time that it takes to read one
            came[n] = now;
            t[n++] = (struct prompt_slice){.left = SHORT};
        }
        for (int i = 0; i < n; i++)
            t[i].waited_ms = now - came[i];
        (void)schedule_prompts(t, n, ROWS, 1);
        for (int i = 0; i < n; i++)
            t[i].left -= t[i].rows;
        for (int i = n - 1; i > 0; i--) {
            if (t[i].left > 0)
                continue;
            passed++;
            n--;
            t[i] = t[n];
            came[i] = came[n];
        }
        now += (double)ROWS;
    }
    assert_true(passed >= 20);
    assert_true(now < 8 * 8192);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gaps_are_bounded),
        cmocka_unit_test(a_pass_always_reads_some_prompt_tokens),
        cmocka_unit_test(tiles_are_filled),
        cmocka_unit_test(short_prompts_first),
        cmocka_unit_test(long_prompts_do_not_starve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
