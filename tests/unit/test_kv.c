// SPDX-License-Identifier: Apache-2.0
// Pages: sharing, copy on write, dropping after windows, limits. A model of plain arrays is run
// besides random operations; every position must read back what was written for that owner.
#include <stdlib.h>

#include "base/rng.h"
#include "formats/quant/quant.h"
#include "state/kv.h"
#include "unit/test.h"

enum { OWNERS = 4, LIMIT = 700 };

struct world {
    struct exec *x;
    struct kv_pool *pool;
    struct kv kv[OWNERS];
    uint32_t value[OWNERS][LIMIT]; // what each owner wrote at each position
    uint32_t stamp;
};

static void world_init(struct world *w, int64_t window, int64_t limit) {
    struct kv_layout l;
    memset(w, 0, sizeof *w);
    assert_int_equal(exec_create_cpu(&w->x, "scalar", 1, NULL), 0);
    struct kv_shape one = {1, 1, 32, 32, false, KV_F32, KV_F32};
    assert_int_equal(kv_layout_init(&l, &one, NULL), 0);
    assert_int_equal(kv_pool_create(&w->pool, w->x, &l, limit, NULL), 0);
    for (int i = 0; i < OWNERS; i++)
        kv_init(&w->kv[i], w->pool, window);
}

static void world_fini(struct world *w) {
    for (int i = 0; i < OWNERS; i++)
        kv_fini(&w->kv[i]);
    assert_int_equal(kv_pool_used(w->pool), 0);
    kv_pool_destroy(w->pool);
    exec_destroy(w->x);
}

static unsigned char *cell(const struct kv *k, int64_t pos) {
    struct kv_slot s = kv_slot_at(k, pos);
    return s.page + (size_t)s.slot * 128;
}

static uint32_t read_cell(const struct kv *k, int64_t pos) {
    uint32_t v;
    memcpy(&v, cell(k, pos), sizeof v);
    return v;
}

static int extend(struct world *w, int i, int64_t n) {
    struct kv *k = &w->kv[i];
    int code = kv_reserve(k, n, NULL);
    for (int64_t p = k->len; !code && p < k->len + n; p++) {
        w->value[i][p] = ++w->stamp;
        memcpy(cell(k, p), &w->stamp, sizeof w->stamp);
    }
    if (!code)
        kv_advance(k, n);
    return code;
}

// Every position that may still be read holds what its owner wrote.
static void verify(const struct world *w) {
    for (int i = 0; i < OWNERS; i++) {
        const struct kv *k = &w->kv[i];
        int64_t from = k->window && k->len > k->window ? k->len - k->window : 0;
        for (int64_t p = from; p < k->len; p++)
            assert_int_equal(read_cell(k, p), w->value[i][p]);
        struct kv_view v = kv_view_of(k);
        assert_int_equal(v.len, k->len);
        assert_ptr_equal(v.pages, k->pages);
    }
}

static void step(struct world *w, struct rng *g) {
    int i = (int)rng_below(g, OWNERS), j = (int)rng_below(g, OWNERS);
    struct kv *k = &w->kv[i];
    int64_t n = 1 + rng_below(g, 90);
    switch (rng_below(g, 5)) {
    case 0:
    case 1:
        if (k->len + n <= LIMIT)
            assert_int_equal(extend(w, i, n), 0);
        break;
    case 2: // as deep as a sequence may be cut: to the last multiple of 32
        kv_truncate(k, k->window ? k->len / 32 * 32 : k->len * 3 / 4);
        break;
    case 3:
        kv_pool_trim(w->pool, rng_below(g, 3));
        break;
    default:
        if (i == j)
            break;
        n = k->len / 32 * 32;
        assert_int_equal(kv_share(&w->kv[j], k, n, NULL), 0);
        memcpy(w->value[j], w->value[i], (size_t)n * sizeof **w->value);
    }
}

static void test_random(void **state) {
    (void)state;
    static const int64_t windows[] = {0, 24, 64, 100};
    static struct world w;
    for (int i = 0; i < 4; i++) {
        struct rng g = {rng_mix((uint64_t)i)};
        world_init(&w, windows[i], 0);
        for (int s = 0; s < 3000; s++) {
            step(&w, &g);
            if (s % 16 == 0)
                verify(&w);
        }
        world_fini(&w);
    }
}

// How many pages are held is part of the contract: sharing costs none, a window bounds them.
static void test_pages(void **state) {
    (void)state;
    static struct world w;
    world_init(&w, 0, 0);
    assert_int_equal(extend(&w, 0, 200), 0);
    assert_int_equal(kv_pool_used(w.pool), 4);
    assert_int_equal(kv_share(&w.kv[1], &w.kv[0], 200, NULL), 0);
    assert_int_equal(kv_pool_used(w.pool), 4);
    assert_int_equal(extend(&w, 1, 1), 0); // copies the last page only
    assert_int_equal(kv_pool_used(w.pool), 5);
    assert_ptr_equal(w.kv[0].pages[2], w.kv[1].pages[2]);
    assert_ptr_not_equal(w.kv[0].pages[3], w.kv[1].pages[3]);
    assert_int_equal(extend(&w, 0, 1), 0); // now alone on its page: no further copy
    assert_int_equal(kv_pool_used(w.pool), 5);
    kv_truncate(&w.kv[0], 128);
    assert_int_equal(kv_pool_used(w.pool), 4); // the copy of page 3 stays, its original goes
    assert_int_equal(kv_share(&w.kv[1], &w.kv[0], 64, NULL), 0);
    assert_int_equal(kv_pool_used(w.pool), 2);
    assert_int_equal(kv_pool_allocated(w.pool), 5);
    world_fini(&w);
    world_init(&w, 100, 0);
    for (int i = 0; i < 60; i++) {
        assert_int_equal(extend(&w, 0, 11), 0);
        assert_true(kv_pool_used(w.pool) <= 5); // 100 + 64 + part of two pages
    }
    assert_null(w.kv[0].pages[0]);
    assert_non_null(w.kv[0].pages[(660 - 100 - 64) / 64]);
    world_fini(&w);
}

static void test_limit(void **state) {
    (void)state;
    static struct world w;
    world_init(&w, 0, 3);
    assert_int_equal(extend(&w, 0, 128), 0);
    assert_int_equal(extend(&w, 0, 65), ERR_LIMIT); // needs two more; one exists
    assert_int_equal(w.kv[0].len, 128);
    assert_int_equal(kv_pool_used(w.pool), 2); // the one that there was has been given back
    verify(&w);
    assert_int_equal(extend(&w, 0, 64), 0);
    assert_int_equal(kv_share(&w.kv[1], &w.kv[0], 190, NULL), 0);
    memcpy(w.value[1], w.value[0], sizeof w.value[0]);
    assert_int_equal(extend(&w, 1, 1), ERR_LIMIT); // no page for the copy
    assert_int_equal(w.kv[1].len, 190);
    assert_int_equal(kv_pool_used(w.pool), 3);
    verify(&w);
    kv_truncate(&w.kv[0], 0);
    assert_int_equal(extend(&w, 1, 1), 0);
    kv_truncate(&w.kv[1], 70);
    assert_int_equal(kv_share(&w.kv[0], &w.kv[1], 70, NULL), 0);
    memcpy(w.value[0], w.value[1], sizeof w.value[1]);
    assert_int_equal(extend(&w, 0, 64), ERR_LIMIT); // there is a new page, and none for the copy
    assert_int_equal(kv_pool_used(w.pool), 2);
    assert_ptr_equal(w.kv[0].pages[1], w.kv[1].pages[1]);
    verify(&w);
    world_fini(&w);
}

// Free pages go back but for those that are kept, and numbers are used again.
static void test_trim(void **state) {
    (void)state;
    static struct world w;
    const int64_t page = 64 * 128 * 2;
    world_init(&w, 0, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(extend(&w, i, 64 * (i + 1)), 0);
    assert_int_equal(kv_pool_free_bytes(w.pool), 0);
    kv_truncate(&w.kv[0], 0);
    kv_truncate(&w.kv[2], 60);
    assert_int_equal(kv_pool_free_bytes(w.pool), 3 * page);
    assert_int_equal(kv_pool_trim(w.pool, 5), 0);
    assert_int_equal(kv_pool_trim(w.pool, 1), 2 * page);
    assert_int_equal(kv_pool_allocated(w.pool), 4);
    assert_int_equal(kv_pool_free_bytes(w.pool), page);
    verify(&w);
    kv_pool_limit(w.pool, 6);
    assert_int_equal(extend(&w, 3, 64 * 3), 0); // the one that was kept, and two numbers again
    assert_int_equal(kv_pool_allocated(w.pool), 6);
    assert_int_equal(extend(&w, 0, 1), ERR_LIMIT);
    verify(&w);
    kv_truncate(&w.kv[3], 0);
    assert_int_equal(kv_pool_trim(w.pool, 0), 3 * page);
    kv_pool_limit(w.pool, 2); // below what is used: nothing new
    assert_int_equal(extend(&w, 0, 1), ERR_LIMIT);
    verify(&w);
    kv_pool_limit(w.pool, 0);
    assert_int_equal(extend(&w, 0, 400), 0);
    for (int64_t p = 0; p < 400; p++) // pages begin zeroed, the bytes after the mark too
        assert_int_equal(cell(&w.kv[0], p)[100], 0);
    verify(&w);
    world_fini(&w);
}

// On any way of reservations and cuts a sequence holds no more pages than plans count, and no fewer
// than what it keeps; some ways need all that is counted.
static void test_needs(void **state) {
    (void)state;
    static const int64_t windows[] = {0, 1, 24, 64, 65, 127, 200},
                         steps[] = {1, 2, 33, 64, 130, 300};
    static struct world w;
    for (int c = 0; c < 7 * 6; c++) {
        const int64_t step = steps[c % 6];
        struct rng g = {rng_mix((uint64_t)c)};
        struct kv_needs needs = {0};
        int64_t max = 0, furthest = 0;
        world_init(&w, windows[c / 6], 0);
        struct kv *k = &w.kv[0];
        kv_needs_add(&needs, kv_pool_layout(w.pool), k->window, 0);
        const int64_t page = needs.of[0].page_bytes,
                      bound = kv_needs_max(&needs, LIMIT, step) / page;
        for (int i = 0; i < 4000; i++) {
            int64_t n = rng_below(&g, 3) ? step : 1 + rng_below(&g, (uint32_t)step);
            if (k->len + n > LIMIT || rng_below(&g, 20) == 0)
                kv_truncate(k, k->len + n > LIMIT ? 0 : k->len / 32 * 32);
            assert_int_equal(kv_reserve(k, n, NULL), 0);
            max = kv_pool_used(w.pool) > max ? kv_pool_used(w.pool) : max;
            assert_true(kv_pool_used(w.pool) * page <= kv_needs_max(&needs, k->len + n, step));
            kv_advance(k, n);
            furthest = k->len > furthest || k->len <= n ? k->len : furthest;
            if (k->len == furthest) // none was dropped further on
                assert_true(kv_pool_used(w.pool) * page >= kv_needs_kept(&needs, k->len));
        }
        assert_int_equal(max, bound);
        assert_int_equal(kv_needs_per_1k(&needs), k->window ? 0 : 16 * page);
        assert_int_equal(kv_needs_windows(&needs, LIMIT, step), k->window ? bound * page : 0);
        world_fini(&w);
    }
}

// Two pools of different pages share a budget; what one does not use is given to the other.
static void test_budget(void **state) {
    (void)state;
    struct kv_budget b = {0};
    struct exec *x = NULL;
    struct kv_pool *pool[2] = {NULL, NULL};
    struct kv kv[2];
    struct err e = {0};
    int64_t page[2];
    assert_int_equal(exec_create_cpu(&x, "scalar", 1, NULL), 0);
    for (int i = 0; i < 2; i++) {
        struct kv_shape s = {.n_layers = 1 + i, .n_heads = 1, .dk = 64, .dv = 64};
        struct kv_layout l;
        s.codec_k = s.codec_v = KV_F16;
        assert_int_equal(kv_layout_init(&l, &s, NULL), 0);
        page[i] = l.page_bytes;
        assert_int_equal(kv_pool_create(&pool[i], x, &l, 0, NULL), 0);
        kv_pool_join(pool[i], i ? &b : NULL);
        kv_pool_join(pool[i], i ? NULL : &b);
        kv_init(&kv[i], pool[i], 0);
    }
    b.limit = 2 * page[0] + page[1];
    assert_int_equal(kv_reserve(&kv[0], 128, &e), 0);
    assert_int_equal(kv_reserve(&kv[1], 64, &e), 0);
    assert_int_equal(b.held, b.limit);
    kv_advance(&kv[0], 128);
    kv_advance(&kv[1], 64);
    assert_int_equal(kv_reserve(&kv[0], 1, &e), ERR_LIMIT);
    assert_int_equal(kv_reserve(&kv[1], 1, &e), ERR_LIMIT);
    assert_int_equal(b.held, b.limit);
    kv_truncate(&kv[0], 0); // two small free pages make room for a large one
    assert_int_equal(kv_budget_free_bytes(&b), 2 * page[0]);
    assert_int_equal(kv_reserve(&kv[1], 1, &e), 0);
    assert_int_equal(b.held, 2 * page[1]);
    kv_truncate(&kv[1], 0);
    assert_int_equal(kv_budget_trim(&b), 2 * page[1]);
    assert_int_equal(b.held, 0);
    assert_int_equal(kv_reserve(&kv[0], 64, &e), 0);
    for (int i = 0; i < 2; i++) {
        kv_fini(&kv[i]);
        kv_pool_destroy(pool[i]);
    }
    assert_int_equal(b.held, 0);
    assert_null(b.pools);
    exec_destroy(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_needs), cmocka_unit_test(test_budget), cmocka_unit_test(test_random),
        cmocka_unit_test(test_pages), cmocka_unit_test(test_limit),  cmocka_unit_test(test_trim),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
