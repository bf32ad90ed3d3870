// SPDX-License-Identifier: Apache-2.0
// Experts beyond the card without a GPU: shares of memory, slots, and choices of who makes room,
// with owners and places that always agree, and all that a pass needs resident after each choice.
#include "test.h"

#include <string.h>

#include "base/rng.h"
#include "ops/experts/pool.h"
#include "support/expert_tables.h"

enum { LAYERS = 5, EXPERTS = RIG_EXPERTS, LIMIT = LAYERS * EXPERTS };

static void open_rig(struct expert_rig *r, int64_t slots) {
    open_expert_rig(r, LAYERS, slots);
}

static void check_tables(const struct expert_rig *r) {
    check_expert_tables(&r->p);
}

static struct expert_classes two_classes(void) {
    struct expert_classes c = {0};
    struct err e;
    for (int i = 0; i < 40; i++)
        assert_int_equal(expert_classes_add(&c, 256, i % 4 ? 1800000 : 2100000, &e), !!(i % 4));
    return c;
}

static void counts_classes(void **state) {
    (void)state;
    struct expert_classes c = two_classes();
    assert_int_equal(c.n, 2);
    assert_int_equal(c.c[0].layers, 10);
    assert_int_equal(c.c[1].layers, 30);
    assert_int_equal(expert_classes_layers(&c), 40);
    assert_int_equal(expert_classes_find(&c, 1800000), 1);
    assert_int_equal(expert_classes_find(&c, 5), -1);
    assert_true(expert_classes_all(&c) == 256LL * (10 * 2100000LL + 30 * 1800000LL));
    assert_true(expert_classes_min(&c) == 256LL * 3900000LL);
    struct err e;
    int rc = 0;
    for (int i = 0; rc >= 0 && i < EXPERT_CLASSES; i++)
        rc = expert_classes_add(&c, 256, i + 1, &e);
    assert_int_equal(rc, ERR_UNSUPPORTED);
}

static void shares_bytes(void **state) {
    (void)state;
    struct rng r = {5};
    struct err e;
    for (int i = 0; i < 500; i++) {
        struct expert_classes c = two_classes();
        int64_t min = expert_classes_min(&c), all = expert_classes_all(&c);
        int64_t bytes = min + (int64_t)rng_below(&r, 1 << 20) * ((all - min) >> 20);
        assert_int_equal(expert_classes_share(&c, bytes, &e), 0);
        int64_t held = expert_classes_held(&c);
        assert_true(held <= bytes && held > bytes - 4000000);
        assert_true(c.c[0].slots >= 256 && c.c[1].slots >= 256);
    }
    struct expert_classes c = two_classes();
    assert_int_equal(expert_classes_share(&c, INT64_MAX / 4, &e), 0);
    assert_true(expert_classes_held(&c) == expert_classes_all(&c));
    assert_true(expert_classes_share_of(&c) == 1);
    assert_int_equal(expert_classes_share(&c, expert_classes_min(&c), &e), 0);
    assert_true(expert_classes_held(&c) == expert_classes_min(&c));
    assert_int_equal(expert_classes_share(&c, expert_classes_min(&c) - 1, &e), ERR_MEMORY);
    assert_non_null(strstr(e.text, "the experts of one layer take 952 MiB and 952 MiB are left"));
}

static void counts_slots_a_layer(void **state) {
    (void)state;
    struct expert_classes c = two_classes();
    struct err e;
    assert_int_equal(expert_classes_per_layer(&c, 128, &e), 0);
    assert_int_equal(c.c[0].slots, 1280);
    assert_int_equal(c.c[1].slots, 3840);
    assert_true(expert_classes_share_of(&c) == 0.5);
    assert_int_equal(expert_classes_per_layer(&c, 1000, &e), 0);
    assert_true(expert_classes_share_of(&c) == 1);
    assert_int_equal(expert_classes_per_layer(&c, 25, &e), ERR_USAGE); // 10 layers, 256 experts
    assert_non_null(strstr(e.text, "use --spark-slots 26 or more"));
    assert_int_equal(expert_classes_per_layer(&c, 26, &e), 0);
}

static void fills_with_the_hottest(void **state) {
    (void)state;
    struct expert_rig r;
    struct err e;
    open_rig(&r, 20);
    r.uses[3 * EXPERTS + 7] = 100;
    r.uses[1 * EXPERTS + 11] = 200;
    assert_int_equal(expert_pool_fill(&r.p, &e), 0);
    check_tables(&r);
    assert_int_equal(r.owner[0], 1 * EXPERTS + 11);
    assert_int_equal(r.owner[1], 3 * EXPERTS + 7);
    for (int i = 0; i < 18; i++) // the others are equally cold: the first experts of all layers
        assert_int_equal(r.owner[2 + i], i % LAYERS * EXPERTS + i / LAYERS);
    open_rig(&r, LIMIT + 3);
    int32_t more[LIMIT + 3] = {0};
    r.p.owner = more;
    assert_int_equal(expert_pool_fill(&r.p, &e), 0);
    assert_int_equal(more[LIMIT + 2], -1);
}

static void the_coldest_are_evicted(void **state) {
    (void)state;
    struct expert_rig r;
    struct err e;
    open_rig(&r, EXPERTS);
    for (int i = 0; i < EXPERTS; i++)
        r.uses[i] = 1000u * (uint32_t)(1 + (i * 5) % EXPERTS); // of layer 0, all different
    assert_int_equal(expert_pool_fill(&r.p, &e), 0);
    const int32_t ids[2][3] = {{4, 9, 2}, {9, 0, 4}};
    assert_int_equal(expert_pool_choose(&r.p, 1, ids[0], 2, 3, r.moves), 4);
    check_tables(&r);
    const int32_t coldest[4] = {0, 5, 10, 3}; // 1000, 2000, 3000, 4000 of layer 0
    const int32_t missing[4] = {0, 2, 4, 9};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(r.moves[i].expert, missing[i]);
        assert_int_equal(r.place[EXPERTS + missing[i]], r.moves[i].slot);
        assert_int_equal(r.place[coldest[i]], -1);
    }
    assert_int_equal(r.uses[EXPERTS + 9], 2 * EXPERT_USE);
    assert_int_equal(r.rows[1], 2);
    assert_int_equal(expert_pool_choose(&r.p, 1, ids[0], 2, 3, r.moves), 0);
    assert_int_equal(r.uses[EXPERTS + 9], 4 * EXPERT_USE);
}

static void uses_are_halved(void **state) {
    (void)state;
    struct expert_rig r;
    struct err e;
    open_rig(&r, EXPERTS);
    assert_int_equal(expert_pool_fill(&r.p, &e), 0);
    static int32_t ids[EXPERT_HALF / 4];
    for (int i = 0; i < 3; i++)
        expert_pool_choose(&r.p, 0, ids, EXPERT_HALF / 4, 1, r.moves);
    assert_int_equal(r.uses[0], 3 * EXPERT_HALF / 4 * EXPERT_USE);
    expert_pool_choose(&r.p, 0, ids, EXPERT_HALF / 4, 1, r.moves);
    assert_int_equal(r.uses[0], EXPERT_HALF * EXPERT_USE / 2);
    assert_int_equal(r.rows[0], 0);
}

// Four different experts; skewed: nearly always of the first five.
static void choose_four(struct rng *r, bool skewed, int32_t *ids) {
    for (int k = 0; k < 4; k++) {
        bool low = skewed && rng_below(r, 16);
        ids[k] = (int32_t)rng_below(r, low ? 5 : EXPERTS);
        for (int j = 0; j < k; j++)
            if (ids[j] == ids[k]) {
                k--; // once more
                break;
            }
    }
}

// Prompts that need every expert of every layer, in layer order: what was brought for a layer makes
// room for the next one, and the others stay, so that about as much is missing as does not fit.
static void prompts_keep_what_fits(void **state) {
    (void)state;
    struct rng r = {23};
    struct expert_rig g;
    struct err e;
    int32_t ids[600];
    int64_t moved = 0;
    open_rig(&g, 2 * LIMIT / 3);
    assert_int_equal(expert_pool_fill(&g.p, &e), 0);
    for (int chunk = 0; chunk < 12; chunk++)
        for (int layer = 0; layer < LAYERS; layer++) {
            for (int i = 0; i < 600; i++) // a third are chosen half as often
                ids[i] = i < EXPERTS ? i : (int32_t)rng_below(&r, rng_below(&r, 2) ? 8 : EXPERTS);
            int n = expert_pool_choose(&g.p, layer, ids, 150, 4, g.moves);
            check_tables(&g);
            moved += chunk >= 2 ? n : 0;
        }
    int64_t asked = 10 * LIMIT, beyond = asked / 3;
    assert_true(moved >= beyond && moved < beyond * 5 / 3);
}

// Random passes over random pools: what a layer needs is there after its choice, moves are what
// changed, and with skewed choices few are missing once the pool is warm.
static void random_passes(void **state) {
    (void)state;
    struct rng r = {11};
    struct err e;
    int64_t late = 0, chosen = 0;
    for (int round = 0; round < 60; round++) {
        struct expert_rig g;
        bool skewed = round % 2;
        open_rig(&g, EXPERTS + (int64_t)rng_below(&r, skewed ? 30 : LIMIT - EXPERTS + 1));
        if (skewed)
            g.p.slots = 30;
        assert_int_equal(expert_pool_fill(&g.p, &e), 0);
        for (int step = 0; step < 400; step++) {
            int32_t ids[8 * 4];
            int64_t n = 1 + rng_below(&r, 8);
            int layer = step % LAYERS;
            for (int64_t i = 0; i < n; i++)
                choose_four(&r, skewed, ids + i * 4);
            int32_t before[LIMIT];
            memcpy(before, g.place, sizeof before);
            int moved = expert_pool_choose(&g.p, layer, ids, n, 4, g.moves);
            check_tables(&g);
            int came = 0;
            for (int i = 0; i < LIMIT; i++)
                came += before[i] < 0 && g.place[i] >= 0;
            assert_int_equal(came, moved);
            for (int64_t i = 0; i < n * 4; i++)
                assert_true(g.place[layer * EXPERTS + ids[i]] >= 0);
            if (skewed && step >= 200) {
                late += moved;
                chosen++;
            }
        }
    }
    assert_true(late < chosen); // less than one of 5 or more for each pass
}

// Ahead of a layer: its coldest neighbours are evicted, none that is needed now, none of its own,
// and no more than a half.
static void brings_ahead(void **state) {
    (void)state;
    struct expert_rig r;
    struct err e;
    struct rng g = {11};
    for (int round = 0; round < 400; round++) {
        int32_t ids[8 * EXPERTS], before[LIMIT];
        uint32_t uses[LIMIT];
        open_rig(&r, EXPERTS + (int64_t)rng_below(&g, LIMIT - EXPERTS));
        for (int i = 0; i < LIMIT; i++)
            r.uses[i] = rng_below(&g, 5000);
        assert_int_equal(expert_pool_fill(&r.p, &e), 0);
        int range = 1 + (int)rng_below(&g, EXPERTS), layer = (int)rng_below(&g, LAYERS - 1);
        for (int i = 0; i < 8 * EXPERTS; i++)
            ids[i] = (int32_t)rng_below(&g, (uint32_t)range);
        expert_pool_choose(&r.p, layer, ids, 8 * EXPERTS / 2, 2, r.moves);
        memcpy(before, r.place, sizeof before);
        memcpy(uses, r.uses, sizeof uses);
        const struct expert_now now = {layer, ids, 8 * EXPERTS};
        int n = expert_pool_ahead(&r.p, layer + 1, &now, r.moves), missing = 0, spare = 0;
        check_tables(&r);
        assert_memory_equal(uses, r.uses, sizeof uses);
        bool needed[LIMIT] = {false};
        for (int i = 0; i < 8 * EXPERTS; i++)
            needed[layer * EXPERTS + ids[i]] = true;
        for (int i = 0; i < LIMIT; i++) {
            bool own = i / EXPERTS == layer + 1;
            missing += own && before[i] < 0;
            spare += !own && !needed[i] && before[i] >= 0;
            if (needed[i] || (own && before[i] >= 0))
                assert_int_equal(r.place[i], before[i]);
        }
        for (int64_t s = 0; s < r.p.slots; s++) { // those that no layer had
            bool had = false;
            for (int i = 0; i < LIMIT; i++)
                had = had || before[i] == s;
            spare += !had;
        }
        int max = expert_pool_max_ahead(EXPERTS);
        max = missing < max ? missing : max;
        assert_int_equal(n, spare < max ? spare : max);
        for (int i = 0; i < n; i++)
            assert_int_equal(r.place[(layer + 1) * EXPERTS + r.moves[i].expert], r.moves[i].slot);
    }
    assert_int_equal(expert_pool_many(8 * EXPERTS - 1, EXPERTS), 0);
    assert_int_equal(expert_pool_many(8 * EXPERTS, EXPERTS), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_classes),
        cmocka_unit_test(shares_bytes),
        cmocka_unit_test(counts_slots_a_layer),
        cmocka_unit_test(fills_with_the_hottest),
        cmocka_unit_test(the_coldest_are_evicted),
        cmocka_unit_test(uses_are_halved),
        cmocka_unit_test(brings_ahead),
        cmocka_unit_test(prompts_keep_what_fits),
        cmocka_unit_test(random_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
