// SPDX-License-Identifier: Apache-2.0
// What launches may read early, against a model with each launch which may still run and each
// cell of memory that it may write: on random sequences of launches, and on those of a layer.
#include "test.h"

#include "base/rng.h"
#include "ops/launch_order.h"

enum { KINDS = 7, PLACES = 3, CELLS = KINDS + PLACES + 1, LIMIT = 64, SEQUENCES = 4000 };

struct launch {
    struct launch_says says;
    bool early;
};

static const char place[PLACES]; // their addresses are what places are distinguished by

// Cells of kinds; of pages, a cell for each of the places and one for all others.
static unsigned cells_of(unsigned kinds) {
    unsigned cells = kinds & ((1u << KINDS) - 1);
    return kinds & MEMORY_PAGES ? cells | ((1u << (PLACES + 1)) - 1) << KINDS : cells;
}

static unsigned cell_at(const void *p) {
    return p ? 1u << (KINDS + (int)((const char *)p - place)) : 0;
}

static unsigned written(const struct launch_says *s) {
    return cells_of(s->writes) | (s->writes & MEMORY_FRESH ? cell_at(s->places) : 0);
}

static unsigned read_early(const struct launch_says *s) {
    return cells_of(s->early) & ~cell_at(s->places);
}

// Cells that may be written while launch n reads early: by the one in front, and by those in front
// of it as far as each one lets the next begin ahead, and has begun so itself.
static unsigned unfinished(const struct launch *l, int n) {
    unsigned cells = 0;
    for (int i = n - 1; i >= 0; i--) {
        cells |= written(&l[i].says);
        if (!l[i].early || !l[i].says.ahead)
            break;
    }
    return cells;
}

static struct launch_says random_says(struct rng *r) {
    struct launch_says s = {0};
    const uint64_t v = rng_next(r);
    s.early = (unsigned)(v & v >> 9) & (MEMORY_ALL & ~(unsigned)MEMORY_FRESH);
    s.writes = (unsigned)(v >> 20 & v >> 30 & v >> 40) & MEMORY_ALL;
    s.ahead = v >> 50 & 1;
    if (s.writes & MEMORY_FRESH || v >> 51 & 1)
        s.places = &place[(v >> 52) % PLACES];
    return s;
}

static void nothing_unfinished_is_read(void **state) {
    (void)state;
    struct rng r = {5};
    int taken = 0, refused = 0, needless = 0;
    for (int i = 0; i < SEQUENCES; i++) {
        struct launch l[LIMIT];
        struct launch_order o = {0};
        for (int n = 0; n < LIMIT; n++) {
            l[n].says = random_says(&r);
            const bool may = launch_order_may(&o, &l[n].says);
            const bool sound = !(read_early(&l[n].says) & unfinished(l, n));
            assert_true(sound || !may);
            taken += may;
            refused += !sound;
            needless += sound && !may;
            l[n].early = may;
            launch_order_add(&o, &l[n].says, may);
        }
    }
    assert_true(taken > 50000 && refused > 50000);
    assert_true(needless < taken / 50); // only where places of two launches are open at once
}

static void unknown_launches_do_not_delay_weights(void **state) {
    (void)state;
    const struct launch_says unknown = LAUNCH_UNKNOWN,
                             reader = {MEMORY_WEIGHTS, 0, false, NULL, false};
    struct launch_order o = {0};
    launch_order_add(&o, &unknown, true);
    assert_true(launch_order_may(&o, &reader));
    for (unsigned kind = MEMORY_SUMS; kind <= MEMORY_PAGES; kind *= 2) {
        const struct launch_says s = {kind, 0, false, NULL, false};
        assert_false(launch_order_may(&o, &s));
    }
    launch_order_stop(&o);
    assert_false(launch_order_may(&o, &reader));
    launch_order_add(&o, &reader, false);
    assert_true(launch_order_may(&o, &reader));
    launch_order_forget(&o);
    const struct launch_says rows = {MEMORY_ROWS, 0, false, NULL, false};
    assert_false(launch_order_may(&o, &rows));
}

// Products, a convolution that lets the rule begin ahead, the rule, and the gated norm.
static void a_recurrent_layer_reads_early(void **state) {
    (void)state;
    const struct launch_says products = {MEMORY_WEIGHTS, MEMORY_SUMS, false, NULL, false};
    const struct launch_says conv = {MEMORY_STATES, MEMORY_ROWS, true, NULL, true};
    const struct launch_says rule = {MEMORY_STATES, MEMORY_DELTAS, false, NULL, true};
    const struct launch_says norm = {MEMORY_ROWS | MEMORY_SUMS, MEMORY_ACTS, true, NULL, false};
    const struct launch_says commit = {0, MEMORY_STATES, false, NULL, false};
    const struct launch_says *all[] = {&products, &conv, &rule, &norm, &products};
    struct launch_order o = {0};
    for (int i = 0; i < 5; i++) {
        assert_true(launch_order_may(&o, all[i]));
        if (i == 2) // the convolution still runs, and the products may
            assert_false(launch_order_may(&o, &norm));
        launch_order_add(&o, all[i], true);
    }
    launch_order_add(&o, &commit, true);
    assert_false(launch_order_may(&o, &conv));
}

// Attention reads committed positions concurrently with the store of its own rows, and not of
// others.
static void addresses_distinguish_stores(void **state) {
    (void)state;
    const struct launch_says store = {0, MEMORY_ROWS | MEMORY_FRESH, true, &place[0], false};
    const struct launch_says second = {0, MEMORY_FRESH, true, &place[1], false};
    const struct launch_says same = {MEMORY_PAGES, MEMORY_SUMS, false, &place[0], false};
    const struct launch_says other = {MEMORY_PAGES, MEMORY_SUMS, false, &place[1], false};
    struct launch_order o = {0};
    launch_order_add(&o, &store, true);
    assert_true(launch_order_may(&o, &same));
    assert_false(launch_order_may(&o, &other));
    launch_order_add(&o, &second, true);
    assert_false(launch_order_may(&o, &same));
    assert_false(launch_order_may(&o, &other));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_unfinished_is_read),
        cmocka_unit_test(unknown_launches_do_not_delay_weights),
        cmocka_unit_test(a_recurrent_layer_reads_early),
        cmocka_unit_test(addresses_distinguish_stores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
