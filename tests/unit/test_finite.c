// SPDX-License-Identifier: Apache-2.0
// Every half is judged as its conversion to f32 is; one that is no number is found wherever it
// lies, also where memory is not aligned.
#include <math.h>
#include <string.h>

#include "formats/quant/finite.h"
#include "formats/quant/quant.h"
#include "unit/test.h"

enum { MANY = 10000 };

static void halves_are_judged_as_floats(void **state) {
    (void)state;
    for (uint32_t i = 0; i <= UINT16_MAX; i++) {
        uint16_t h = (uint16_t)i;
        assert_int_equal(finite_f16(&h, 1), isfinite(f16_to_f32(h)) != 0);
        assert_int_equal(finite_bf16(&h, 1), isfinite(bf16_to_f32(h)) != 0);
    }
    static const float some[] = {0, -0.0F, 1e-45F, 3e38F, -3e38F, INFINITY, -INFINITY, NAN};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        assert_int_equal(finite_f32(&some[i], 1), isfinite(some[i]) != 0);
}

// One bad value among n good ones, at every place of some and at the last places of many.
static void find_at(int64_t n, int64_t at) {
    static unsigned char bytes[4 * MANY + 4];
    static const uint16_t half = 0xfc00, brain = 0x7fc0;
    static const float none = NAN;
    for (int off = 0; off < 4; off++) {
        memset(bytes, 0x11, sizeof bytes);
        assert_true(finite_f16(bytes + off, n) && finite_bf16(bytes + off, n));
        assert_true(finite_f32(bytes + off, n));
        memcpy(bytes + off + 2 * at, &half, sizeof half);
        assert_false(finite_f16(bytes + off, n));
        memcpy(bytes + off + 2 * at, &brain, sizeof brain);
        assert_false(finite_bf16(bytes + off, n));
        assert_true(finite_bf16(bytes + off, at)); // what lies after does not count
        memset(bytes, 0x11, sizeof bytes);
        memcpy(bytes + off + 4 * at, &none, sizeof none);
        assert_false(finite_f32(bytes + off, n));
        assert_true(finite_f32(bytes + off, at));
    }
}

static void one_that_is_none_is_found(void **state) {
    (void)state;
    for (int64_t n = 1; n < 40; n++)
        for (int64_t at = 0; at < n; at++)
            find_at(n, at);
    for (int64_t at = 4090; at < 4103; at++)
        find_at(MANY, at);
    find_at(MANY, 0);
    find_at(MANY, MANY - 1);
    assert_true(finite_f32("", 0) && finite_f16("", 0) && finite_bf16("", 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_are_judged_as_floats),
        cmocka_unit_test(one_that_is_none_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
