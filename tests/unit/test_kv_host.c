// SPDX-License-Identifier: Apache-2.0
// Pages in host memory: random operations of several owners on a pool whose device share is small,
// with copies that come as late as they may. Each layer of each position must read, by the tables
// that a pass would use, what was written for that owner.
#include "state/host/kv_host.h"

#include <stdlib.h>

#include "base/rng.h"
#include "support/copies.h"
#include "unit/test.h"

enum { OWNERS = 4, LIMIT = 900, LAYERS = 5, ROW = 32 * 4, PAGES = LIMIT / KV_PAGE + 1 };

struct world {
    struct exec *x;
    struct kv_host *host;
    struct kv_layout layout;
    struct kv_pool *pool;
    struct kv_budget budget;
    struct kv kv[OWNERS];
    uint32_t value[OWNERS][LIMIT]; // what each owner wrote at each position
    uint32_t stamp;
    int64_t streamed, refused;
};

static void world_init(struct world *w, int layers, int64_t share, int64_t host_pages) {
    const struct kv_shape shape = {layers, 1, 32, 32, false, KV_F32, KV_F32};
    memset(w, 0, sizeof *w);
    assert_int_equal(exec_create_cpu(&w->x, "scalar", 1, NULL), 0);
    assert_int_equal(kv_layout_init(&w->layout, &shape, NULL), 0);
    assert_int_equal(kv_pool_create(&w->pool, w->x, &w->layout, 0, NULL), 0);
    w->budget.limit = share * w->layout.page_bytes;
    kv_pool_join(w->pool, &w->budget);
    assert_int_equal(kv_host_create(&w->host, w->x, host_pages * w->layout.page_bytes, NULL), 0);
    assert_int_equal(kv_pool_use_host(w->pool, w->host, NULL), 0);
    for (int i = 0; i < OWNERS; i++)
        kv_init(&w->kv[i], w->pool, 0);
}

static void world_fini(struct world *w) {
    for (int i = 0; i < OWNERS; i++)
        kv_fini(&w->kv[i]);
    assert_int_equal(kv_pool_used(w->pool), 0);
    assert_int_equal(kv_host_stats_of(w->host).pages, 0);
    assert_int_equal(kv_host_stats_of(w->host).page_bytes, 0);
    assert_int_equal(kv_pool_free_bytes(w->pool),
                     kv_pool_allocated(w->pool) * w->layout.page_bytes);
    assert_int_equal(w->budget.held, kv_pool_free_bytes(w->pool)); // no staging is left
    kv_pool_destroy(w->pool);
    assert_int_equal(kv_host_stats_of(w->host).held, 0);
    kv_host_destroy(w->host);
    exec_destroy(w->x);
}

static uint32_t *cell(const struct world *w, unsigned char *page, int64_t pos, int layer) {
    struct kv_row r = kv_row_at(&w->layout, &w->layout.k, page, layer, 0, (int)(pos % KV_PAGE));
    return (uint32_t *)(void *)r.codes;
}

// What is written for a layer.
static uint32_t mark(uint32_t stamp, int layer) {
    return stamp * 8 + (uint32_t)layer;
}

static int extend(struct world *w, int i, int64_t n) {
    struct kv *k = &w->kv[i];
    int rc = kv_reserve(k, n, NULL);
    for (int64_t p = k->len; !rc && p < k->len + n; p++) {
        w->value[i][p] = ++w->stamp;
        for (int l = 0; l < w->layout.s.n_layers; l++)
            *cell(w, kv_slot_at(k, p).page, p, l) = mark(w->stamp, l);
    }
    if (!rc)
        kv_advance(k, n);
    return rc;
}

static void share(struct world *w, int to, int from, int64_t n) {
    assert_int_equal(kv_share(&w->kv[to], &w->kv[from], n, NULL), 0);
    memcpy(w->value[to], w->value[from], (size_t)n * sizeof **w->value);
}

// A pass over some owners, bit i of `who`.
static void read_all(struct world *w, unsigned who) {
    struct kv_view views[OWNERS];
    int64_t n_pages[OWNERS];
    int owner[OWNERS], n = 0;
    for (int i = 0; i < OWNERS; i++) {
        if (!(who >> i & 1))
            continue;
        kv_bring_back(&w->kv[i]);
        owner[n++] = i;
    }
    for (int i = 0; i < n; i++) {
        kv_place(&w->kv[owner[i]]);
        views[i] = kv_view_of(&w->kv[owner[i]]);
        n_pages[i] = w->kv[owner[i]].n_pages;
    }
    struct kv_view places[OWNERS];
    unsigned char *tables[OWNERS * PAGES];
    struct kv_stream s = {.views = places, .tables = tables, .n_pages = n_pages, .room = PAGES};
    w->streamed += kv_stream_begin(&s, w->pool, views, n);
    for (int l = 0; l < w->layout.s.n_layers; l++) {
        const struct kv_view *now = kv_stream_layer(&s, l);
        for (int i = 0; i < n; i++) {
            for (int64_t p = 0; p < views[i].len; p++) {
                unsigned char *page = now[i].pages[p / KV_PAGE];
                assert_int_equal(*cell(w, page, p, l), mark(w->value[owner[i]][p], l));
            }
        }
    }
}

static void step(struct world *w, struct rng *g) {
    int i = (int)rng_below(g, OWNERS), j = (int)rng_below(g, OWNERS);
    struct kv *k = &w->kv[i];
    int64_t n = 1 + rng_below(g, 150), len = k->len, pages = k->n_pages;
    switch (rng_below(g, 6)) {
    case 0:
    case 1:
    case 2:
        if (len + n > LIMIT || extend(w, i, n) == 0)
            break;
        w->refused++;
        assert_int_equal(k->len, len);
        assert_int_equal(k->n_pages, pages);
        kv_truncate(k, len / 2);
        break;
    case 3:
        kv_truncate(k, len * rng_below(g, 5) / 4);
        break;
    case 4:
        kv_pool_trim(w->pool, rng_below(g, 3));
        break;
    default:
        if (i != j)
            share(w, j, i, rng_below(g, (uint32_t)len + 1));
    }
}

static void run_random(int layers, int64_t share_pages, int64_t host_pages, uint64_t seed) {
    static struct world w;
    struct rng g = {rng_mix(seed)};
    world_init(&w, layers, share_pages, host_pages);
    for (int s = 0; s < 1500; s++) {
        step(&w, &g);
        if (s % 4 == 0)
            read_all(&w, rng_below(&g, 1 << OWNERS));
        assert_true(w.budget.held <= w.budget.limit);
        assert_true(kv_host_stats_of(w.host).held <= kv_host_stats_of(w.host).limit);
    }
    assert_true(w.streamed > 50);
    assert_true(w.refused > 0);
    assert_true(kv_host_stats_of(w.host).brought_back > 0);
    world_fini(&w);
}

static void test_random(void **state) {
    (void)state;
    static const struct {
        int layers;
        int64_t share, host;
    } cases[] = {{LAYERS, 8, 12}, {4, 9, 8}, {6, 7, 30}};
    struct late_copies how = {.seed = 5};
    const struct copy_backend late = copies_late(&how);
    for (uint64_t i = 0; i < 9; i++) {
        how.chance = i % 3 == 2 ? 3 : 0;
        cpu_copies = i < 3 ? NULL : &late;
        run_random(cases[i % 3].layers, cases[i % 3].share, cases[i % 3].host, i);
    }
    cpu_copies = NULL;
}

// What moves, and what that leaves: of five layers two pages share the staging of one.
static void test_places(void **state) {
    (void)state;
    static struct world w;
    world_init(&w, LAYERS, 4, 100);
    assert_int_equal(extend(&w, 0, 256), 0);
    assert_int_equal(kv_host_stats_of(w.host).pages, 0); // nothing moves while there is room
    assert_int_equal(kv_host_stats_of(w.host).held, 0);
    assert_int_equal(extend(&w, 0, 1), 0);
    assert_int_equal(kv_host_stats_of(w.host).pages, 2);
    assert_int_equal(kv_pool_allocated(w.pool), 4);
    assert_int_equal(kv_pool_used(w.pool), 5);
    kv_place(&w.kv[0]);
    for (int64_t i = 0; i < 5; i++) // the first pages go first
        assert_int_equal((uintptr_t)w.kv[0].pages[i] & 1, i < 2);
    share(&w, 1, 0, 100); // page 1 is full, and shared up to its middle
    read_all(&w, 3);
    assert_int_equal(extend(&w, 1, 1), 0); // written to: a copy of its own on the device
    assert_int_equal((uintptr_t)w.kv[1].pages[1] & 1, 0);
    read_all(&w, 3);
    kv_truncate(&w.kv[1], 0);
    kv_truncate(&w.kv[0], 70); // page 1 is not full any more, and is written to in place
    assert_int_equal(extend(&w, 0, 1), 0);
    read_all(&w, 1);
    kv_bring_back(&w.kv[0]);
    assert_int_equal(kv_host_stats_of(w.host).pages, 0);
    assert_true(kv_host_stats_of(w.host).brought_back > 0);
    kv_truncate(&w.kv[0], 0);
    world_fini(&w);
}

// Pages that are being copied stay where they are.
static void test_still(void **state) {
    (void)state;
    static struct world w;
    world_init(&w, LAYERS, 4, 100);
    assert_int_equal(extend(&w, 0, 256), 0);
    share(&w, 1, 0, 256);
    kv_stay(&w.kv[1]);
    kv_stay(&w.kv[1]);
    assert_int_equal(extend(&w, 0, 1), ERR_LIMIT);
    assert_int_equal(kv_host_stats_of(w.host).pages, 0);
    kv_truncate(&w.kv[1], 64);
    const unsigned char *first = kv_page_data(&w.kv[1], 0);
    assert_int_equal(extend(&w, 0, 1), 0);
    assert_int_equal(kv_host_stats_of(w.host).pages, 2);
    assert_ptr_equal(kv_page_data(&w.kv[1], 0), first);
    read_all(&w, 3);
    kv_truncate(&w.kv[1], 0);
    world_fini(&w);
}

// Host memory that holds no page goes back, and is taken again.
static void test_trim(void **state) {
    (void)state;
    static struct world w;
    world_init(&w, LAYERS, 6, 100);
    for (int j = 0; j < 10; j++)
        assert_int_equal(extend(&w, 0, 60), 0);
    const int64_t held = kv_host_stats_of(w.host).held;
    assert_true(held > 0);
    kv_budget_trim_host(&w.budget);
    read_all(&w, 1);
    kv_truncate(&w.kv[0], 128);
    kv_bring_back(&w.kv[0]);
    assert_int_equal(kv_host_stats_of(w.host).pages, 0);
    kv_budget_trim_host(&w.budget);
    assert_int_equal(kv_host_stats_of(w.host).held, 0);
    read_all(&w, 1);
    for (int j = 0; j < 8; j++)
        assert_int_equal(extend(&w, 0, 59), 0);
    assert_true(kv_host_stats_of(w.host).held > 0);
    read_all(&w, 1);
    world_fini(&w);
}

// No gain with so few layers: pages stay.
static void test_few_layers(void **state) {
    (void)state;
    static struct world w;
    world_init(&w, 3, 4, 100);
    assert_int_equal(extend(&w, 0, 256), 0);
    assert_int_equal(extend(&w, 0, 1), ERR_LIMIT);
    world_fini(&w);
}

// A pool without places finds room where another one of the budget gives pages up.
static void test_other_pool(void **state) {
    (void)state;
    static struct world w;
    const struct kv_shape shape = {1, 1, 32, 32, false, KV_F32, KV_F32};
    struct kv_layout l;
    struct kv_pool *pool;
    struct kv k;
    world_init(&w, LAYERS, 6, 100);
    assert_int_equal(kv_layout_init(&l, &shape, NULL), 0);
    assert_int_equal(kv_pool_create(&pool, w.x, &l, 3, NULL), 0);
    kv_pool_join(pool, &w.budget);
    kv_init(&k, pool, 0);
    assert_int_equal(extend(&w, 0, 384), 0);
    assert_int_equal(kv_reserve(&k, 192, NULL), 0);
    assert_int_equal(kv_host_stats_of(w.host).pages, 2);
    assert_int_equal(kv_reserve(&k, 193, NULL), ERR_LIMIT); // its own limit: nothing moves for it
    assert_int_equal(kv_host_stats_of(w.host).pages, 2);
    read_all(&w, 1);
    kv_fini(&k);
    kv_pool_destroy(pool);
    world_fini(&w);
}

// Host memory that cannot be had, and copies that fail: pages stay, and others go on.
static void *no_host(struct exec *x, size_t bytes) {
    (void)x;
    (void)bytes;
    return NULL;
}

static void test_failures(void **state) {
    (void)state;
    static struct world w;
    struct late_copies how = {.seed = 5};
    struct copy_backend late = copies_late(&how);
    for (int i = 0; i < 2; i++) {
        how.fail = i == 1;
        if (i == 0)
            late.host_alloc = no_host;
        else
            late = copies_late(&how);
        cpu_copies = &late;
        world_init(&w, LAYERS, 4, 100);
        assert_int_equal(extend(&w, 0, 256), 0);
        assert_int_equal(extend(&w, 0, 1), ERR_LIMIT);
        assert_int_equal(kv_host_stats_of(w.host).pages, 0);
        read_all(&w, 1);
        how.fail = false;
        assert_int_equal(extend(&w, 0, 1), i == 0 ? ERR_LIMIT : 0);
        read_all(&w, 1);
        world_fini(&w);
    }
    cpu_copies = NULL;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),  cmocka_unit_test(test_places),
        cmocka_unit_test(test_still),   cmocka_unit_test(test_few_layers),
        cmocka_unit_test(test_trim),    cmocka_unit_test(test_other_pool),
        cmocka_unit_test(test_failures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
