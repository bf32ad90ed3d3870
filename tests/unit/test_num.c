// SPDX-License-Identifier: Apache-2.0
// Small arithmetic: both ends of each function's range.
#include "test.h"

#include "base/num.h"

static void picks_and_clamps(void **state) {
    (void)state;
    assert_int_equal(min_i32(INT32_MIN, 3), INT32_MIN);
    assert_int_equal(max_i32(INT32_MIN, 3), 3);
    assert_true(min_i64(INT64_MIN, INT64_MAX) == INT64_MIN);
    assert_true(max_i64(INT64_MIN, INT64_MAX) == INT64_MAX);
    assert_true(min_size(0, SIZE_MAX) == 0 && max_size(0, SIZE_MAX) == SIZE_MAX);
    for (int v = -4; v <= 4; v++)
        assert_int_equal(clamp_i32(v, -2, 3), v < -2 ? -2 : v > 3 ? 3 : v);
    for (size_t v = 0; v < 6; v++)
        assert_true(clamp_size(v, 2, 4) == (v < 2 ? 2 : v > 4 ? 4 : v));
}

static void rounds_up(void **state) {
    (void)state;
    for (int64_t size = 1; size <= 9; size++)
        for (int64_t n = 0; n <= 40; n++) {
            int64_t blocks = 0;
            while (blocks * size < n)
                blocks++;
            assert_int_equal(ceil_div(n, size), blocks);
            assert_int_equal(ceil_div_i32((int32_t)n, (int32_t)size), blocks);
            assert_int_equal(round_up(n, size), blocks * size);
            assert_int_equal(round_up_size((size_t)n, (size_t)size), blocks * size);
        }
    assert_true(ceil_div(INT64_MAX - 63, 64) == INT64_MAX / 64);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(picks_and_clamps),
        cmocka_unit_test(rounds_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
