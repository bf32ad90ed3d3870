// SPDX-License-Identifier: Apache-2.0
// Slabs that are parked, over pages of this process that are taken away and given back: addresses
// stay, contents come back, what was not kept stays, and memory that is gone is an answer.
#include "base/memory/slabs.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/rng.h"
#include "unit/test.h"

enum { MIB = 1 << 20, WORK = 0, WEIGHTS = 1 };

struct store {
    int64_t backed, reserved, host; // bytes of each
    int64_t max;                    // bytes of memory that there is
    bool no_host;
};

static void *reserve(void *arg, size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    ((struct store *)arg)->reserved += (int64_t)bytes;
    return p;
}

static void release(void *arg, void *p, size_t bytes) {
    assert_int_equal(munmap(p, bytes), 0);
    ((struct store *)arg)->reserved -= (int64_t)bytes;
}

static bool back(void *arg, void *p, size_t bytes) {
    struct store *t = arg;
    if ((int64_t)bytes > t->max - t->backed)
        return false;
    t->backed += (int64_t)bytes;
    return mprotect(p, bytes, PROT_READ | PROT_WRITE) == 0;
}

static void strip(void *arg, void *p, size_t bytes) {
    ((struct store *)arg)->backed -= (int64_t)bytes;
    assert_int_equal(madvise(p, bytes, MADV_DONTNEED), 0); // what was there is zeros from now on
    assert_int_equal(mprotect(p, bytes, PROT_NONE), 0);
}

static void *host_take(void *arg, size_t bytes) {
    struct store *t = arg;
    if (t->no_host)
        return NULL;
    t->host++;
    return malloc(bytes);
}

static void host_give(void *arg, void *p) {
    ((struct store *)arg)->host--;
    free(p);
}

static bool copy(void *arg, void *to, const void *from, size_t bytes) {
    (void)arg;
    memcpy(to, from, bytes);
    return true;
}

static void *plain_take(void *arg, size_t bytes) {
    (void)arg;
    return aligned_alloc(4096, bytes);
}

static void plain_give(void *arg, void *p) {
    (void)arg;
    free(p);
}

struct rig {
    struct store store;
    struct slabs slabs;
    struct parked k;
    struct err e;
};

static void rig_open(struct rig *g) {
    *g = (struct rig){.store = {.max = 1 << 30}};
    g->slabs.source.take = plain_take;
    g->slabs.source.give = plain_give;
    const struct parked_source from = {reserve, release, back,      strip,   host_take, host_give,
                                       copy,    copy,    &g->store, 2 * MIB, 4 * MIB};
    parked_init(&g->k, &g->slabs, &from);
}

static void rig_close(struct rig *g) {
    slabs_fini(&g->slabs);
    parked_fini(&g->k);
    assert_int_equal(g->store.backed, 0);
    assert_int_equal(g->store.reserved, 0);
    assert_int_equal(g->store.host, 0);
}

static unsigned char *filled(struct rig *g, int arena, size_t bytes, uint64_t seed) {
    unsigned char *p = slabs_take(&g->slabs, arena, bytes);
    struct rng r = {seed};
    assert_non_null(p);
    for (size_t i = 0; i < bytes; i++)
        p[i] = (unsigned char)rng_below(&r, 256);
    return p;
}

static void is_filled(const unsigned char *p, size_t bytes, uint64_t seed) {
    struct rng r = {seed};
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != (unsigned char)rng_below(&r, 256))
            fail_msg("byte %zu is another", i);
}

static void contents_are_restored(void **state) {
    struct rig g;
    unsigned char *w[5], *work, *late;
    (void)state;
    rig_open(&g);
    for (int i = 0; i < 5; i++)
        w[i] = filled(&g, WEIGHTS, 20 * MIB + 77, 10 + (uint64_t)i);
    work = filled(&g, WORK, 3 * MIB, 3);
    parked_finish(&g.k);
    late = filled(&g, WEIGHTS, 40 * MIB, 4); // of the plain source
    int64_t held = g.slabs.held, backed = g.store.backed;
    assert_int_equal(parked_keep(&g.k, WEIGHTS, 50 * MIB, &g.e), 0);
    int64_t kept = parked_kept(&g.k);
    assert_in_range(kept, 50 * MIB, 75 * MIB);
    assert_int_equal(parked_keep(&g.k, WEIGHTS, 50 * MIB, &g.e), 0); // is kept already
    assert_int_equal(parked_kept(&g.k), kept);
    for (int round = 0; round < 3; round++) {
        parked_leave(&g.k);
        parked_leave(&g.k);
        assert_int_equal(g.slabs.held, held - kept);
        assert_int_equal(g.store.backed, backed - kept);
        is_filled(work, 3 * MIB, 3);
        assert_int_equal(parked_return(&g.k, &g.e), 0);
        assert_int_equal(g.slabs.held, held);
        for (int i = 0; i < 5; i++)
            is_filled(w[i], 20 * MIB + 77, 10 + (uint64_t)i);
    }
    is_filled(late, 40 * MIB, 4);
    slabs_give(&g.slabs, w[0]);
    slabs_trim(&g.slabs);
    rig_close(&g);
}

static void refusals(void **state) {
    struct rig g;
    (void)state;
    rig_open(&g);
    (void)filled(&g, WEIGHTS, 30 * MIB, 1);
    (void)filled(&g, WORK, 30 * MIB, 2);
    assert_int_equal(parked_keep(&g.k, WEIGHTS, 40 * MIB, &g.e), ERR_MEMORY);
    assert_non_null(strstr(g.e.text, "weights take 30 MiB"));
    rig_close(&g);
    rig_open(&g);
    unsigned char *p = filled(&g, WEIGHTS, 30 * MIB, 1);
    g.store.no_host = true;
    assert_int_equal(parked_keep(&g.k, WEIGHTS, 30 * MIB, &g.e), ERR_MEMORY);
    g.store.no_host = false;
    assert_int_equal(parked_keep(&g.k, WEIGHTS, 30 * MIB, &g.e), 0);
    parked_leave(&g.k);
    g.store.max = 20 * MIB; // somebody has taken it
    assert_int_equal(parked_return(&g.k, &g.e), ERR_MEMORY);
    assert_non_null(strstr(g.e.text, "do not come back"));
    g.store.max = 1 << 30;
    assert_int_equal(parked_return(&g.k, &g.e), 0);
    is_filled(p, 30 * MIB, 1);
    parked_leave(&g.k);
    rig_close(&g); // also while it is away
}

// Parts of a slab: whole pieces inside go, all else stays, and what was there is lost.
static void parts(void **state) {
    struct rig g;
    (void)state;
    rig_open(&g);
    unsigned char *p = filled(&g, WEIGHTS, 30 * MIB, 1);
    unsigned char *q = filled(&g, WORK, 30 * MIB, 2);
    int64_t held = g.slabs.held, backed = g.store.backed;
    assert_int_equal(parked_open(&g.k, p + 5 * MIB, 2 * MIB), 0); // less than a piece
    for (int round = 0; round < 3; round++) {
        assert_int_equal(parked_open(&g.k, p + 5 * MIB, 16 * MIB), 12 * MIB); // 8 to 20
        assert_int_equal(parked_open(&g.k, p + 25 * MIB, 5 * MIB), 0);        // one at a time
        assert_int_equal(g.slabs.held, held - 12 * MIB);
        assert_int_equal(g.store.backed, backed - 12 * MIB);
        is_filled(p, 8 * MIB, 1);
        is_filled(q, 30 * MIB, 2);
        assert_int_equal(parked_close(&g.k, &g.e), 0);
        assert_int_equal(g.slabs.held, held);
        assert_int_equal(g.store.backed, backed);
        assert_int_equal(p[10 * MIB], 0);
    }
    assert_int_equal(parked_open(&g.k, q + 20 * MIB, 10 * MIB), 10 * MIB); // to the end
    g.store.max = g.store.backed + 9 * MIB; // somebody has taken some
    assert_int_equal(parked_close(&g.k, &g.e), ERR_MEMORY);
    assert_non_null(strstr(g.e.text, "10 MiB of memory that slots of experts had lent"));
    g.store.max = 1 << 30;
    assert_int_equal(parked_open(&g.k, p, 30 * MIB), 30 * MIB);
    assert_int_equal(parked_close(&g.k, &g.e), 0);
    assert_int_equal(parked_open(&g.k, q + 3 * MIB, 10 * MIB), 8 * MIB);
    rig_close(&g); // also while a part is away
    assert_int_equal(g.slabs.held, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(contents_are_restored),
                                       cmocka_unit_test(refusals), cmocka_unit_test(parts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
