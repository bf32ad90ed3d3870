// SPDX-License-Identifier: Apache-2.0
// Arrays that grow: contents stay, the capacity doubles, and a size that no memory can have is an
// error that changes nothing.
#include <stdlib.h>

#include "test.h"

#include "base/vec.h"

static void pushes_are_kept(void **state) {
    (void)state;
    int32_t *v = NULL;
    int64_t cap = 0, n = 0, grown = 0;
    for (; n < 10000; n++) {
        int64_t before = cap;
        assert_int_equal(vec_reserve(&v, &cap, n + 1, sizeof *v, NULL), 0);
        assert_true(cap > n && (cap == before || cap >= 2 * before));
        grown += cap != before;
        v[n] = (int32_t)(7 * n);
    }
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(v[i], 7 * i);
    assert_true(grown <= 11);
    free(v);
}

static void one_call_makes_room_for_many(void **state) {
    (void)state;
    char *v = NULL;
    int64_t cap = 0;
    assert_int_equal(vec_reserve(&v, &cap, 0, sizeof *v, NULL), 0);
    assert_null(v);
    assert_int_equal(vec_reserve(&v, &cap, 100000, sizeof *v, NULL), 0);
    assert_true(cap >= 100000);
    memset(v, 1, 100000);
    free(v);
}

static void sizes_that_overflow_are_refused(void **state) {
    (void)state;
    static const int64_t many[] = {INT64_MAX, INT64_MAX / 8, (int64_t)1 << 61};
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
        double *v = NULL;
        int64_t cap = 0;
        struct err e = {0};
        assert_int_equal(vec_reserve(&v, &cap, 3, sizeof *v, &e), 0);
        double *old = v;
        int64_t had = cap;
        v[2] = 5;
        assert_int_equal(vec_reserve(&v, &cap, many[i], sizeof *v, &e), ERR_MEMORY);
        assert_non_null(strstr(e.text, "no memory"));
        assert_ptr_equal(v, old);
        assert_int_equal(cap, had);
        assert_true(v[2] == 5);
        free(v);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pushes_are_kept),
        cmocka_unit_test(one_call_makes_room_for_many),
        cmocka_unit_test(sizes_that_overflow_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
