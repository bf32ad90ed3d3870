// SPDX-License-Identifier: Apache-2.0
// Map: every key is found with its value, strangers are not.
#include "test.h"

#include <stdio.h>

#include "base/map.h"

enum { N = 20000 };

static void finds_what_was_inserted(void **state) {
    (void)state;
    static char keys[N][12];
    struct map m = {0};
    uint32_t value = 99;
    assert_false(map_find(&m, "0", 1, &value));
    for (uint32_t i = 0; i < N; i++) {
        int len = snprintf(keys[i], sizeof keys[i], "%u", i);
        assert_int_equal(map_insert(&m, keys[i], (size_t)len, i * 3), 1);
    }
    assert_int_equal(m.count, N);
    assert_int_equal(m.cap & (m.cap - 1), 0);
    for (uint32_t i = 0; i < N; i++) {
        assert_true(map_find(&m, keys[i], strlen(keys[i]), &value));
        assert_int_equal(value, i * 3);
    }
    assert_false(map_find(&m, "20000", 5, &value));
    assert_false(map_find(&m, "01", 2, &value));
    map_fini(&m);
    assert_false(map_find(&m, "1", 1, &value));
}

static void a_second_insert_changes_nothing(void **state) {
    (void)state;
    struct map m = {0};
    uint32_t value = 0;
    assert_int_equal(map_insert(&m, "a\0b", 3, 1), 1);
    assert_int_equal(map_insert(&m, "a\0b", 3, 2), 0);
    assert_int_equal(map_insert(&m, "a\0c", 3, 3), 1);
    assert_int_equal(map_insert(&m, "", 0, 4), 1);
    assert_true(map_find(&m, "a\0b", 3, &value));
    assert_int_equal(value, 1);
    assert_true(map_find(&m, "", 0, &value));
    assert_int_equal(value, 4);
    assert_int_equal(m.count, 3);
    map_fini(&m);
}

static void seeds_differ_between_maps(void **state) {
    (void)state;
    struct map a = {0}, b = {0};
    assert_int_equal(map_insert(&a, "x", 1, 0), 1);
    assert_int_equal(map_insert(&b, "x", 1, 0), 1);
    assert_true(a.seed != b.seed);
    map_fini(&a);
    map_fini(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_was_inserted),
        cmocka_unit_test(a_second_insert_changes_nothing),
        cmocka_unit_test(seeds_differ_between_maps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
