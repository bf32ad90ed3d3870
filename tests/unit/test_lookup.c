// SPDX-License-Identifier: Apache-2.0
// The lookup index against a search of the whole list, over lists that grow, are cut back and take
// other turns.
#include "base/rng.h"
#include "spec/draft/lookup.h"
#include "unit/test.h"

enum { CAP = 200 };

// The longest repetition of the end of t[0..n), the most recent of equal ones; its place or -1.
static int brute_match(const int32_t *t, int n, int *length) {
    int best = -1;
    *length = 0;
    for (int end = n - 2; end >= 0; end--) {
        int m = 0;
        while (m < LOOKUP_MAX_MATCH && end - m >= 0 && t[end - m] == t[n - 1 - m])
            m++;
        if (m > *length) {
            *length = m;
            best = end;
        }
    }
    if (*length < LOOKUP_MIN_MATCH)
        *length = 0;
    return *length ? best : -1;
}

static void check_find(const struct lookup *l, const int32_t *t, int n, int max) {
    int32_t got[40], want[40], length, match;
    int place = brute_match(t, n, &length);
    int count = lookup_find(l, max, got, &match);
    assert_int_equal(match, length);
    assert_int_equal(count, place < 0 ? 0 : max);
    for (int d = 0; d < count; d++) {
        int from = place + 1 + d;
        want[d] = from < n ? t[from] : want[from - n];
        assert_int_equal(got[d], want[d]);
    }
}

static void test_random_lists(void **state) {
    (void)state;
    struct rng g = {11};
    int matches = 0;
    for (int round = 0; round < 60; round++) {
        struct lookup *l;
        assert_int_equal(lookup_create(&l, CAP, NULL), 0);
        int32_t t[CAP];
        int n = 0;
        uint32_t vocab = 2 + rng_below(&g, 30);
        for (int step = 0; step < 100; step++) {
            if (n > 0 && rng_below(&g, 8) == 0)
                n = (int)rng_below(&g, (uint32_t)n); // cut back
            int add = 1 + (int)rng_below(&g, 9);
            if (n + add > CAP)
                n = 0;
            bool copy = n > 20 && rng_below(&g, 3);
            int from = copy ? (int)rng_below(&g, (uint32_t)(n - 10)) : 0;
            for (int i = 0; i < add; i++, n++)
                t[n] = copy ? t[from + i] : (int32_t)rng_below(&g, vocab);
            lookup_update(l, t, n - 1, t[n - 1]);
            int length;
            matches += brute_match(t, n, &length) >= 0;
            check_find(l, t, n, 1 + (int)rng_below(&g, 32));
        }
        lookup_destroy(l);
    }
    assert_in_range(matches, 2000, 5900);
}

static void test_overlap(void **state) {
    (void)state;
    struct lookup *l;
    assert_int_equal(lookup_create(&l, CAP, NULL), 0);
    const int32_t t[] = {1, 2, 3, 1, 2, 3};
    lookup_update(l, t, 5, 3);
    int32_t out[8];
    int match;
    assert_int_equal(lookup_find(l, 8, out, &match), 8);
    assert_int_equal(match, 3);
    const int32_t want[] = {1, 2, 3, 1, 2, 3, 1, 2};
    assert_memory_equal(out, want, sizeof want);
    lookup_update(l, t, 0, 9);
    assert_int_equal(lookup_find(l, 8, out, &match), 0);
    assert_int_equal(match, 0);
    lookup_destroy(l);
}

// A list beyond the room must not write after it.
static void test_full(void **state) {
    (void)state;
    struct lookup *l;
    assert_int_equal(lookup_create(&l, 4, NULL), 0);
    const int32_t t[] = {5, 6, 5, 6, 5, 6, 5, 6};
    lookup_update(l, t, 7, 6);
    int32_t out[4];
    int match;
    assert_int_equal(lookup_find(l, 2, out, &match), 2);
    lookup_destroy(l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_lists),
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
