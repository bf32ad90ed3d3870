// SPDX-License-Identifier: Apache-2.0
// Free ranges: against a plain map of bytes over random takes and gives, nothing is handed out
// twice, the lowest fit is found, and what is given back joins up again.
#include "test.h"

#include "base/memory/slabs.h"
#include "base/rng.h"

enum { SIZE = 512, HELD = 64 };

static void takes_the_lowest_fit(void **state) {
    (void)state;
    struct ranges r;
    size_t a, b, c, d;
    assert_int_equal(ranges_init(&r, 100), 0);
    assert_true(ranges_all_free(&r));
    assert_int_equal(ranges_take(&r, 40, &a), 0);
    assert_int_equal(ranges_take(&r, 40, &b), 0);
    assert_int_equal(ranges_take(&r, 20, &c), 0);
    assert_int_equal(ranges_take(&r, 1, &d), -1);
    assert_int_equal(ranges_give(&r, a, 40), 0);
    assert_int_equal(ranges_give(&r, c, 20), 0);
    assert_int_equal(ranges_take(&r, 41, &d), -1); // 60 are free, in two pieces
    assert_int_equal(ranges_take(&r, 20, &d), 0);
    assert_int_equal(d, 0);
    assert_int_equal(ranges_give(&r, b, 40), 0);
    assert_int_equal(ranges_give(&r, d, 20), 0);
    assert_true(ranges_all_free(&r));
    ranges_fini(&r);
    assert_int_equal(ranges_init(&r, 0), 0);
    assert_true(ranges_all_free(&r));
    assert_int_equal(ranges_take(&r, 1, &d), -1);
    ranges_fini(&r);
}

// The lowest place for `bytes` in the map, -1 when there is none.
static long lowest(const unsigned char *used, size_t bytes) {
    size_t run = 0;
    for (size_t i = 0; i < SIZE; i++) {
        run = used[i] ? 0 : run + 1;
        if (run == bytes)
            return (long)(i + 1 - bytes);
    }
    return -1;
}

static void agrees_with_a_map_of_bytes(void **state) {
    (void)state;
    struct ranges r;
    struct rng random = {5};
    struct range held[HELD];
    size_t n = 0, at = 0;
    unsigned char used[SIZE] = {0};
    assert_int_equal(ranges_init(&r, SIZE), 0);
    for (int step = 0; step < 20000; step++) {
        size_t bytes = 1 + rng_below(&random, 40);
        if (n < HELD && rng_below(&random, 2)) {
            long want = lowest(used, bytes);
            assert_int_equal(ranges_take(&r, bytes, &at), want < 0 ? -1 : 0);
            if (want < 0)
                continue;
            assert_int_equal(at, want);
            memset(used + at, 1, bytes);
            held[n++] = (struct range){at, at + bytes};
        } else if (n > 0) {
            size_t i = rng_below(&random, (uint32_t)n);
            struct range v = held[i];
            held[i] = held[--n];
            memset(used + v.begin, 0, v.end - v.begin);
            assert_int_equal(ranges_give(&r, v.begin, v.end - v.begin), 0);
        }
        for (size_t i = 1; i < r.n; i++)
            assert_true(r.free[i - 1].end < r.free[i].begin);
    }
    while (n > 0) {
        n--;
        assert_int_equal(ranges_give(&r, held[n].begin, held[n].end - held[n].begin), 0);
    }
    assert_true(ranges_all_free(&r));
    ranges_fini(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_the_lowest_fit),
        cmocka_unit_test(agrees_with_a_map_of_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
