// SPDX-License-Identifier: Apache-2.0
// A scorer's memory on a device with a limit: it is reserved before anything is loaded, a pair
// besides it is planned in what is left, what does not fit is refused with what would, and given
// back it is free again. The device is a CPU with a limit.
#include <stdio.h>
#include <unistd.h>

#include "engine/session/scorer_reservation.h"
#include "engine/session/session.h"
#include "support/tiny_gguf.h"
#include "test.h"

enum { TOKENS = 16384 };

static char path[64], target[64];

static int setup(void **state) {
    (void)state;
    const struct tiny_shape plain = tiny_shape_plain(), pair = tiny_shape_default();
    snprintf(path, sizeof path, "/tmp/test_scorer_reservation.%d.gguf", (int)getpid());
    snprintf(target, sizeof target, "/tmp/test_scorer_reservation.%d-t.gguf", (int)getpid());
    return tiny_target_write(&plain, path, NULL) || tiny_target_write(&pair, target, NULL);
}

static int teardown(void **state) {
    (void)state;
    return remove(path) || remove(target);
}

struct rig {
    struct runtime *r;
    struct runtime_device *d;
    struct score_plan p;
    struct reservation *c;
    struct err e;
};

static int open_with(struct rig *g, int64_t limit) {
    const struct device_options o = {.name = "cpu", .threads = 1, .memory_limit = limit};
    const struct score_options so = score_options_default();
    *g = (struct rig){0};
    assert_int_equal(runtime_create(&g->r, &g->e), 0);
    assert_int_equal(runtime_device(g->r, &o, &g->d, &g->e), 0);
    return scorer_reserve(g->d, path, &so, TOKENS, &g->p, &g->c, &g->e);
}

static void close_rig(struct rig *g) {
    runtime_release(g->d, g->c);
    runtime_destroy(g->r);
}

static int64_t needed(void) {
    struct rig g;
    assert_int_equal(open_with(&g, 0), 0);
    assert_null(g.c); // no limit is known
    int64_t bytes = g.p.total + g.p.own;
    assert_true(g.p.weights > 0 && g.p.total > g.p.weights);
    close_rig(&g);
    return bytes;
}

static void test_reservation(void **state) {
    (void)state;
    struct rig g;
    int64_t need = needed(), more = 64 << 20;
    assert_int_equal(open_with(&g, need + more), 0);
    assert_non_null(g.c);
    assert_int_equal(reservations_total(runtime_reservations(g.d)), need);
    assert_int_equal(runtime_available(g.d), more);
    struct session_options o = session_options_default();
    struct memory_plan with_scorer = {0}, alone = {0};
    o.runtime = g.r;
    o.device = "cpu";
    o.model = target;
    assert_int_equal(session_measure(&o, &with_scorer, &g.e), 0);
    assert_int_equal(with_scorer.available, more);
    o.vram_limit = 320;
    o.park = 1; // then something is left
    assert_int_equal(session_measure(&o, &with_scorer, &g.e), 0);
    assert_int_equal(with_scorer.available, more - 10);
    o.vram_limit = o.park = 0;
    runtime_release(g.d, g.c);
    g.c = NULL;
    assert_int_equal(session_measure(&o, &alone, &g.e), 0);
    assert_true(alone.available > more);
    close_rig(&g);
}

static void refused(int64_t limit, const char *words) {
    struct rig g;
    assert_int_equal(open_with(&g, limit), ERR_MEMORY);
    assert_null(g.c);
    if (!strstr(g.e.text, words))
        fail_msg("'%s' lacks '%s'", g.e.text, words);
    assert_int_equal(reservations_total(runtime_reservations(g.d)), 0);
    close_rig(&g);
}

static void test_refused(void **state) {
    (void)state;
    int64_t need = needed();
    struct rig g;
    refused(need - 1, "enough for 12288 tokens");
    refused(1000, "weights take");
    assert_int_equal(open_with(&g, need), 0); // to the byte
    close_rig(&g);
    // What a pair has taken is reported.
    assert_int_equal(open_with(&g, need + (64 << 20)), 0);
    struct reservation *second;
    struct score_plan p;
    const struct score_options so = score_options_default();
    assert_int_equal(scorer_reserve(g.d, path, &so, 100 * TOKENS, &p, &second, &g.e), ERR_MEMORY);
    assert_non_null(strstr(g.e.text, "test_scorer_reservation"));
    assert_int_equal(scorer_reserve(g.d, target, &so, TOKENS, &p, &second, &g.e), ERR_UNSUPPORTED);
    assert_non_null(strstr(g.e.text, target));
    close_rig(&g);
}

// Where both fit together nothing is parked; else as much as a text takes, or all weights.
static void test_share(void **state) {
    const struct score_plan p = {.weights = 900, .chunk = 100, .own = 50, .total = 2900};
    struct scorer_share y;
    (void)state;
    assert_int_equal(scorer_stays(&p), 1050);
    assert_int_equal(scorer_takes(&p), 1900);
    assert_true(scorer_share(&p, 24000, 0, &y));
    assert_int_equal(y.park, 0);
    assert_int_equal(y.limit, 24000 - 2950);
    assert_true(scorer_share(&p, 18000, 16000, &y));
    assert_int_equal(y.park, 1900);
    assert_int_equal(y.limit, 18000 - 1050);
    // While a text is scored: what the target does not park, and all of the scorer.
    assert_int_equal(y.limit - y.park + scorer_stays(&p) + scorer_takes(&p), 18000);
    assert_true(scorer_share(&p, 4000, 500, &y));
    assert_int_equal(y.park, 500);
    assert_int_equal(y.limit, 4000 - 2950 + 500);
    assert_false(scorer_share(&p, 2000, 500, &y));
}

// Slots of experts make room before weights do, and the target has all but what the scorer keeps.
static void test_share_slots(void **state) {
    const struct score_plan p = {.weights = 900, .chunk = 100, .own = 50, .total = 2900};
    struct scorer_share y;
    (void)state;
    assert_true(scorer_share_slots(&p, 18000, 5000, 0, &y));
    assert_int_equal(y.lend, 1900);
    assert_int_equal(y.park, 0);
    assert_int_equal(y.limit, 18000 - 1050);
    assert_true(scorer_share_slots(&p, 18000, 1500, 400, &y));
    assert_int_equal(y.lend, 1500);
    assert_int_equal(y.park, 400);
    assert_int_equal(y.limit - y.lend - y.park + scorer_stays(&p) + scorer_takes(&p), 18000);
    assert_false(scorer_share_slots(&p, 18000, 1500, 399, &y));
    assert_true(scorer_share_slots(&p, 18000, -5, 1900, &y)); // no slots to give: as it was
    assert_int_equal(y.lend, 0);
    assert_false(scorer_share_slots(&p, 1000, 5000, 0, &y)); // nothing is left for the target
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reservation),
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_share_slots),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
