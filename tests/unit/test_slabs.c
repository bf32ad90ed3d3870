// SPDX-License-Identifier: Apache-2.0
// Random blocks of several arenas: they never overlap, an arena's slabs hold nothing of another's,
// what is given back comes whole, and limits and failing sources are answers.
#include "base/memory/slabs.h"

#include <stdlib.h>

#include "base/rng.h"
#include "unit/test.h"

enum { ROUNDS = 4000, HELD = 200, MIB = 1 << 20 };

struct store {
    int64_t out;  // slabs given and not returned
    int64_t left; // takes until one fails; 0: none does; -1: all do
};

static void *store_take(void *arg, size_t bytes) {
    struct store *t = arg;
    if (t->left < 0 || (t->left > 0 && --t->left == 0))
        return NULL;
    t->out++;
    return aligned_alloc(SLABS_ALIGN, (bytes + SLABS_ALIGN - 1) / SLABS_ALIGN * SLABS_ALIGN);
}

static void store_give(void *arg, void *p) {
    ((struct store *)arg)->out--;
    free(p);
}

// Addresses without memory, for blocks that are not touched.
static void *address_take(void *arg, size_t bytes) {
    int64_t *next = arg;
    unsigned char *base = NULL;
    *next += (int64_t)bytes;
    return base + *next;
}

static void address_give(void *arg, void *p) {
    (void)arg;
    (void)p;
}

static struct slabs slabs_of(struct store *t, int64_t limit, bool separate) {
    return (struct slabs){
        .source = {store_take, store_give, t}, .limit = limit, .separate = separate};
}

struct piece {
    unsigned char *p;
    size_t bytes;
    int arena;
    unsigned char mark;
};

static bool marked(const struct piece *b) {
    return b->p[0] == b->mark && b->p[b->bytes - 1] == b->mark && b->p[b->bytes / 2] == b->mark;
}

// No slab holds blocks of two arenas, and the sums are those of the blocks.
static void check(const struct slabs *s, const struct piece *held, int n) {
    int64_t used[SLABS_ARENAS] = {0}, all = 0;
    for (int i = 0; i < n; i++)
        used[held[i].arena] +=
            (int64_t)(held[i].bytes + SLABS_ALIGN - 1) / SLABS_ALIGN * SLABS_ALIGN;
    for (int64_t i = 0; i < s->n_blocks; i++) {
        const struct slab_block *b = &s->blocks[i];
        for (int j = 0; j < n; j++)
            if (held[j].p == b->p)
                assert_int_equal(s->slabs[b->slab].arena, held[j].arena);
    }
    for (int a = 0; a < SLABS_ARENAS; a++) {
        if (!s->separate)
            assert_int_equal(s->used[a], used[a]);
        assert_true(slabs_held(s, a) >= used[a] || s->separate);
        assert_true(slabs_free_bytes(s, a) <= slabs_held(s, a) - (s->separate ? 0 : used[a]));
        all += slabs_held(s, a);
    }
    assert_int_equal(all, s->held);
    assert_true(s->peak >= s->held);
}

static void test_random(void **state) {
    (void)state;
    for (int separate = 0; separate < 2; separate++) {
        struct store t = {0};
        struct slabs s = slabs_of(&t, 0, separate);
        struct piece held[HELD];
        struct rng r = {rng_mix(5)};
        int n = 0;
        for (int i = 0; i < ROUNDS; i++) {
            if (n < HELD && rng_below(&r, 5) < (n < 120 ? 4 : 2)) {
                struct piece b = {.bytes = 1 + rng_below(&r, 40000),
                                  .arena = (int)rng_below(&r, SLABS_ARENAS),
                                  .mark = (unsigned char)rng_below(&r, 256)};
                b.p = slabs_take(&s, b.arena, b.bytes);
                assert_non_null(b.p);
                assert_int_equal((uintptr_t)b.p % SLABS_ALIGN, 0);
                memset(b.p, b.mark, b.bytes);
                held[n++] = b;
            } else if (n) {
                int at = (int)rng_below(&r, (uint32_t)n);
                assert_true(marked(&held[at]));
                slabs_give(&s, held[at].p);
                held[at] = held[--n];
            }
            if (i % 500 == 0)
                check(&s, held, n);
            if (i % 700 == 0)
                slabs_trim(&s);
        }
        for (int i = 0; i < n; i++)
            assert_true(marked(&held[i]));
        slabs_give(&s, NULL);
        slabs_fini(&s);
        assert_int_equal(t.out, 0);
    }
}

// States that are freed make no room for pages, and go back whole.
static void test_arenas(void **state) {
    (void)state;
    enum { STATES = 1, PAGES = 2 };
    struct store t = {0};
    struct slabs s = slabs_of(&t, 0, false);
    void *state_block[4], *page[64];
    for (int i = 0; i < 4; i++)
        state_block[i] = slabs_take(&s, STATES, 8 * MIB);
    for (int i = 0; i < 64; i++) {
        if (i % 16 == 0)
            slabs_give(&s, state_block[i / 16]);
        page[i] = slabs_take(&s, PAGES, MIB);
        assert_non_null(page[i]);
    }
    assert_int_equal(s.used[STATES], 0);
    assert_int_equal(slabs_free_bytes(&s, STATES), 32 * MIB);
    assert_int_equal(slabs_held(&s, PAGES), 64 * MIB);
    assert_int_equal(slabs_free_bytes(&s, PAGES), 0);
    slabs_trim(&s);
    assert_int_equal(slabs_held(&s, STATES), 0);
    assert_int_equal(s.held, 64 * MIB);
    assert_int_equal(s.peak, 96 * MIB);
    slabs_give(&s, page[0]);
    assert_int_equal(slabs_free_bytes(&s, PAGES), 0); // others lie in its slab
    for (int i = 1; i < 16; i++)
        slabs_give(&s, page[i]);
    assert_int_equal(slabs_free_bytes(&s, PAGES), 16 * MIB);
    slabs_fini(&s);
    assert_int_equal(t.out, 0);
}

static void test_limit(void **state) {
    (void)state;
    struct store t = {0};
    struct slabs s = slabs_of(&t, 20 * MIB, false);
    void *a = slabs_take(&s, 0, 15 * MIB), *b = slabs_take(&s, 1, 3 * MIB);
    assert_non_null(a);
    assert_non_null(b); // both in slabs as small as needed
    assert_int_equal(s.held, 20 * MIB);
    assert_null(slabs_take(&s, 2, MIB));
    slabs_give(&s, a);
    assert_non_null(slabs_take(&s, 2, MIB)); // the empty slab of another arena went for it
    assert_int_equal(slabs_held(&s, 0), 0);
    assert_null(slabs_take(&s, 2, SIZE_MAX - 5));
    slabs_fini(&s);
    s = slabs_of(&t, 0, false);
    t.left = 1;
    assert_non_null(slabs_take(&s, 0, MIB)); // the smaller slab is tried
    t.left = -1;
    assert_null(slabs_take(&s, 0, 16 * (size_t)MIB));
    assert_int_equal(s.n_blocks, 1);
    slabs_fini(&s);
    assert_int_equal(t.out, 0);
}

// Blocks of all arenas that are planned to fill a limit do, but for what slabs_vain says.
static void test_filled(void **state) {
    (void)state;
    for (int64_t limit = 200 * MIB; limit <= 2000 * (int64_t)MIB; limit += 150 * MIB) {
        int64_t left = limit - slabs_vain(), next = 0;
        struct slabs s = {.source = {address_take, address_give, &next}, .limit = limit};
        for (int n = 0; left >= 700 << 10; n++) {
            const int64_t bytes = n < SLABS_ARENAS ? 700 << 10 : 64 << 10;
            assert_non_null(slabs_take(&s, n < SLABS_ARENAS ? n : 2, (size_t)bytes));
            left -= bytes;
        }
        assert_true(s.held <= limit);
        slabs_fini(&s);
    }
}

// As pages are planned: blocks of one size, whatever it is, and what lies after them in slabs.
static void test_filled_by_one_size(void **state) {
    (void)state;
    struct rng r = {3};
    for (int i = 0; i < 200; i++) {
        int64_t block = 512 * (int64_t)(1 + rng_below(&r, i % 2 ? 200000 : 4000)), next = 0;
        int64_t planned = (200 + (int64_t)rng_below(&r, 12000)) * MIB / block * block;
        struct slabs s = {.source = {address_take, address_give, &next}};
        s.limit = planned + slabs_vain_filled(planned, block) + slabs_vain() / SLABS_ARENAS;
        for (int64_t at = 0; at < planned; at += block)
            assert_non_null(slabs_take(&s, 3, (size_t)block));
        assert_true(s.held <= s.limit);
        if (block % (2 * MIB) == 0)
            assert_int_equal(slabs_vain_filled(planned, block), 0);
        slabs_fini(&s);
    }
}

// As experts' slots are planned: one block first, of all that the arenas after it leave.
static void test_filled_before_others(void **state) {
    (void)state;
    for (int64_t large = 300 * MIB; large <= 9000 * (int64_t)MIB; large += 333 * MIB) {
        const int64_t planned[SLABS_ARENAS] = {large, large / 2, 3 * MIB, 0, 40 * MIB};
        int64_t rest = slabs_vain();
        for (int a = 0; a < 4; a++)
            rest += planned[a] + slabs_vain_beyond(planned[a]);
        int64_t next = 0;
        struct slabs s = {.source = {address_take, address_give, &next},
                          .limit = rest + planned[4]};
        assert_non_null(slabs_take(&s, 4, (size_t)planned[4]));
        for (int a = 0; a < 4; a++)
            for (int64_t at = 0; at < planned[a]; at += MIB)
                assert_non_null(slabs_take(&s, a, MIB));
        slabs_fini(&s);
    }
    assert_int_equal(slabs_vain_beyond(0), 0);
    assert_int_equal(slabs_vain_beyond(1024 * (int64_t)MIB), 16 * MIB);
    assert_int_equal(slabs_vain_beyond(INT64_MAX), 240 * MIB);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_filled),
        cmocka_unit_test(test_filled_before_others),
        cmocka_unit_test(test_filled_by_one_size),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_arenas),
        cmocka_unit_test(test_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
