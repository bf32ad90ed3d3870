// SPDX-License-Identifier: Apache-2.0
// Slots that are lent, without a GPU: where they lie, which make room for how much, that the
// hottest experts stay and the fewest slots are never touched, that all of it comes back and fills
// again, and for which prompts a loan brings fewer bytes.
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "ops/experts/pool.h"
#include "support/expert_tables.h"

enum { LAYERS = RIG_LAYERS, EXPERTS = RIG_EXPERTS, LIMIT = RIG_MAX };

// Filled with the hottest.
static void open_rig(struct expert_rig *r, int64_t slots, struct rng *g) {
    struct err e;
    open_expert_rig(r, LAYERS, slots);
    for (int i = 0; g && i < LIMIT; i++)
        r->uses[i] = rng_below(g, 100000);
    assert_int_equal(expert_pool_fill(&r->p, &e), 0);
}

static void check_tables(const struct expert_rig *r) {
    check_expert_tables(&r->p);
}

static uint64_t part_of(const struct expert_rig *r, int32_t owner) {
    return expert_part(r->uses[owner], r->total[owner / EXPERTS], EXPERTS);
}

// Experts change places, and some go.
static void shuffle(struct expert_rig *r, struct rng *g) {
    for (int64_t i = 0; i < r->p.slots; i++) {
        int64_t j = rng_below(g, (uint32_t)(i + 1));
        int32_t other = r->owner[j];
        r->owner[j] = rng_below(g, 5) ? r->owner[i] : -1;
        r->owner[i] = i == j ? r->owner[j] : other;
    }
    for (int i = 0; i < LIMIT; i++)
        r->place[i] = -1;
    for (int64_t s = 0; s < r->p.slots; s++)
        if (r->owner[s] >= 0)
            r->place[r->owner[s]] = (int32_t)s;
}

// Random pools, some of whose slots are free: an expert that stays is at least as hot as one that
// left, and was moved from where it was; slots that come back are free.
static void the_hottest_stay(void **state) {
    (void)state;
    struct rng g = {7};
    int64_t moved = 0, gone = 0;
    for (int round = 0; round < 500; round++) {
        struct expert_rig r;
        int64_t slots = EXPERTS + (int64_t)rng_below(&g, LIMIT - EXPERTS + 1);
        open_rig(&r, slots, &g);
        if (rng_below(&g, 2))
            shuffle(&r, &g);
        check_tables(&r);
        int32_t before[LIMIT], old_owner[LIMIT];
        memcpy(before, r.place, sizeof before);
        memcpy(old_owner, r.owner, sizeof old_owner);
        int64_t keep = EXPERTS + (int64_t)rng_below(&g, (uint32_t)(slots - EXPERTS + 1));
        struct expert_shift moves[LIMIT];
        struct err e;
        int n = expert_pool_lend(&r.p, keep, moves, &e);
        assert_true(n >= 0);
        assert_int_equal(r.p.slots, keep);
        check_tables(&r);
        uint64_t coldest = UINT64_MAX, hottest = 0;
        for (int i = 0; i < LIMIT; i++) {
            if (r.place[i] >= 0) {
                assert_true(before[i] >= 0);
                coldest = part_of(&r, i) < coldest ? part_of(&r, i) : coldest;
            } else if (before[i] >= 0) {
                hottest = part_of(&r, i) > hottest ? part_of(&r, i) : hottest;
                gone++;
            }
        }
        assert_true(coldest >= hottest);
        bool shifted[LIMIT] = {false};
        for (int i = 0; i < n; i++) {
            assert_true(moves[i].from >= keep && moves[i].to < keep);
            assert_int_equal(r.owner[moves[i].to], old_owner[moves[i].from]);
            shifted[moves[i].to] = true;
        }
        for (int64_t s = 0; s < keep; s++)
            if (!shifted[s] && r.owner[s] >= 0)
                assert_int_equal(r.owner[s], old_owner[s]);
        moved += n;
        expert_pool_back(&r.p, slots);
        check_tables(&r);
        for (int64_t s = keep; s < slots; s++)
            assert_int_equal(r.owner[s], -1);
    }
    assert_true(moved > 1000 && gone > 5000);
}

// What was lent fills with what is missing, and only then does anybody make room.
static void fills_again(void **state) {
    (void)state;
    struct expert_rig r;
    struct expert_shift shifts[LIMIT];
    struct err e;
    int32_t ids[EXPERTS];
    open_rig(&r, 3 * EXPERTS, NULL);
    assert_int_equal(expert_pool_lend(&r.p, EXPERTS, shifts, &e), 0); // those in front stay
    for (int i = 0; i < EXPERTS; i++)
        ids[i] = i;
    for (int layer = 0; layer < LAYERS; layer++) { // the fewest slots still run any pass
        (void)expert_pool_choose(&r.p, layer, ids, 1, EXPERTS, r.moves);
        for (int i = 0; i < EXPERTS; i++)
            assert_in_range(r.place[layer * EXPERTS + i], 0, EXPERTS - 1);
    }
    expert_pool_back(&r.p, 3 * EXPERTS);
    assert_int_equal(expert_pool_choose(&r.p, 0, ids, 1, EXPERTS, r.moves), EXPERTS);
    assert_int_equal(expert_pool_choose(&r.p, 1, ids, 1, EXPERTS, r.moves), EXPERTS);
    check_tables(&r);
    for (int i = 0; i < EXPERTS; i++) // the last layer's have not been disturbed
        assert_in_range(r.place[(LAYERS - 1) * EXPERTS + i], 0, EXPERTS - 1);
    assert_true(expert_pool_choose(&r.p, 2, ids, 1, EXPERTS, r.moves) == EXPERTS);
}

static struct expert_classes classes(struct rng *g, int n) {
    struct expert_classes c = {.n = n, .experts = EXPERTS};
    for (int i = 0; i < n; i++) {
        int layers = 1 + (int)rng_below(g, 9);
        c.c[i] = (struct expert_class){256 * (4 + rng_below(g, 40)), layers, 0};
        c.c[i].slots = EXPERTS + (int64_t)rng_below(g, (uint32_t)((layers - 1) * EXPERTS + 1));
    }
    return c;
}

// Slots and the room, none on another.
static void check_layout(const struct expert_layout *l, const struct expert_classes *c,
                         const struct expert_loan *o) {
    static unsigned char used[1 << 20]; // a byte for each 256
    assert_true(l->bytes / 256 < (int64_t)sizeof used);
    memset(used, 0, sizeof used);
    assert_true(o->start >= 0 && o->start + o->bytes <= l->bytes && o->start % LOAN_ALIGN == 0);
    memset(used + o->start / 256, 1, (size_t)(o->bytes / 256));
    for (int i = 0; i < c->n; i++)
        for (int64_t s = 0; s < o->keep[i]; s++) {
            int64_t at = l->at[i].first + s * l->at[i].step;
            assert_true(at >= 0 && at + c->c[i].record <= l->bytes && at % 256 == 0);
            assert_true(at >= expert_layout_low(l, c, i));
            for (int64_t k = at / 256; k < (at + c->c[i].record) / 256; k++)
                assert_int_equal(used[k]++, 0);
        }
}

static void lends_what_is_requested(void **state) {
    (void)state;
    struct rng g = {19};
    int lent = 0, refused = 0;
    for (int round = 0; round < 600; round++) {
        struct expert_classes c = classes(&g, 1 + (int)rng_below(&g, 4));
        struct expert_layout l;
        struct expert_loan o;
        struct err e = {0};
        int64_t room = rng_below(&g, 3) ? (int64_t)rng_below(&g, 200000) : 0;
        expert_layout_of(&l, &c, room);
        int64_t max = expert_layout_max(&l, &c), held = expert_classes_held(&c);
        assert_true(l.bytes >= held + room && l.bytes < held + room + 3 * LOAN_ALIGN);
        assert_int_equal(expert_layout_lend(&l, &c, room, &o, &e), 0);
        assert_int_equal(o.slots, 0);
        check_layout(&l, &c, &o);
        int64_t bytes = (int64_t)rng_below(&g, (uint32_t)(max + max / 8 + 1));
        int rc = expert_layout_lend(&l, &c, bytes, &o, &e);
        assert_int_equal(rc, bytes > max ? ERR_MEMORY : 0);
        if (rc) {
            assert_non_null(strstr(e.text, "in the place of experts' slots are wanted"));
            refused++;
            continue;
        }
        check_layout(&l, &c, &o);
        assert_true(o.bytes >= bytes);
        int64_t largest = 0, slots = 0, given = 0;
        for (int i = 0; i < c.n; i++) {
            assert_true(o.keep[i] >= EXPERTS && o.keep[i] <= c.c[i].slots);
            largest = c.c[i].record > largest ? c.c[i].record : largest;
            slots += c.c[i].slots - o.keep[i];
            given += (c.c[i].slots - o.keep[i]) * c.c[i].record;
        }
        assert_int_equal(o.slots, slots);
        assert_int_equal(o.slot_bytes, given);
        // Not much more than that: of each side less than a slot too many, and alignment.
        assert_true(bytes <= room || o.bytes < bytes + 3 * largest + 2 * LOAN_ALIGN);
        lent += slots > 0;
    }
    assert_true(lent > 200 && refused > 20);
}

// A class of one layer has no slot to spare, and neither has a pool of the fewest.
static void keeps_the_fewest(void **state) {
    (void)state;
    struct expert_classes c = {.n = 2, .experts = EXPERTS};
    struct expert_layout l;
    struct expert_loan o;
    struct err e = {0};
    c.c[0] = (struct expert_class){1024, 1, EXPERTS};
    c.c[1] = (struct expert_class){2048, 3, EXPERTS};
    expert_layout_of(&l, &c, 4096);
    assert_int_equal(l.lower, -1);
    assert_int_equal(expert_layout_max(&l, &c), 4096);
    assert_int_equal(expert_layout_lend(&l, &c, 4096, &o, &e), 0);
    assert_int_equal(expert_layout_lend(&l, &c, 4097, &o, &e), ERR_MEMORY);
    c.c[1].slots++;
    expert_layout_of(&l, &c, 4096);
    assert_int_equal(l.lower, 1);
    assert_int_equal(expert_layout_max(&l, &c), 4096 + 2048);
    assert_int_equal(expert_layout_lend(&l, &c, 4097, &o, &e), 0);
    assert_int_equal(o.keep[1], EXPERTS);
    assert_int_equal(o.keep[0], EXPERTS);
}

static void long_prompts_are_worth_it(void **state) {
    (void)state;
    struct expert_classes c = {.n = 1, .experts = 100};
    c.c[0] = (struct expert_class){1 << 20, 10, 500}; // 500 of 1,000 MiB are resident
    const struct expert_passes way[3] = {{4608, 40 << 20}, {8448, 140 << 20}, {9000, 140 << 20}};
    assert_int_equal(expert_loan_choose(&c, 3072, way, 2, 3072), -1); // one pass as it is
    assert_int_equal(expert_loan_choose(&c, 3072, way, 2, 4096), 0);  // 540 + 40 of 1,000
    assert_int_equal(expert_loan_choose(&c, 3072, way, 2, 8448), 1);  // 640 + 140 of 1,500
    assert_int_equal(expert_loan_choose(&c, 3072, way, 2, 9000), 0);  // two passes either way
    assert_int_equal(expert_loan_choose(&c, 3072, way, 3, 9000), 2);
    assert_int_equal(expert_loan_choose(&c, 3072, way, 3, 8448), 1); // the first of equal ones
    assert_int_equal(expert_loan_choose(&c, 3072, way, 0, 1 << 20), -1);
    c.c[0].slots = 980; // so little is missing that what is lent costs more
    assert_int_equal(expert_loan_choose(&c, 3072, way, 3, 4096), -1);
    assert_int_equal(expert_loan_choose(&c, 3072, way, 3, 1 << 20), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_hottest_stay),          cmocka_unit_test(fills_again),
        cmocka_unit_test(lends_what_is_requested),   cmocka_unit_test(keeps_the_fewest),
        cmocka_unit_test(long_prompts_are_worth_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
