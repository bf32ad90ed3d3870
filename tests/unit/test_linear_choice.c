// SPDX-License-Identifier: Apache-2.0
// The choice among the linear families, for every number of rows, form, path and device, against
// conditions that are written out family by family.
#include "test.h"

#include "ops/linear_choice.h"

enum { ROWS = 4096 };

static bool unpacks(const struct linear_call *c) {
    return c->form != WEIGHT_FLOAT;
}

static bool few(const struct linear_call *c) {
    return c->path == CUDA_PATH_WGMMA ? c->n <= 128 : c->path == CUDA_PATH_MMA && c->n <= 32;
}

static bool streams(const struct linear_call *c) {
    switch (c->form) {
    case WEIGHT_Q2_K:
    case WEIGHT_LEVELS8:
    case WEIGHT_LEVELS16:
    case WEIGHT_NVFP4:
    case WEIGHT_Q5_1:
        return false;
    case WEIGHT_HALF:
    case WEIGHT_FLOAT:
        if (c->path == CUDA_PATH_WGMMA)
            return c->n <= 64;
    }
    return c->path == CUDA_PATH_MMA && c->n > 32 && c->n <= 64;
}

static bool many(const struct linear_call *c) {
    return c->path == CUDA_PATH_WGMMA && c->n >= 96;
}

static bool allowed(const struct linear_call *c, enum linear_family f) {
    return !(c->without >> f & 1);
}

static enum linear_family expected(const struct linear_call *c) {
    if (few(c) && allowed(c, LINEAR_FEW))
        return LINEAR_FEW;
    const bool very_many =
        c->path == CUDA_PATH_MMA ? c->n >= 512 : many(c) && c->clusters && c->n >= 768;
    if (very_many && unpacks(c) && allowed(c, LINEAR_UNPACKED))
        return LINEAR_UNPACKED;
    if (streams(c) && allowed(c, LINEAR_STREAM))
        return LINEAR_STREAM;
    if (many(c))
        return c->form == WEIGHT_FLOAT ? LINEAR_WGMMA : LINEAR_GEMM;
    return LINEAR_TILES;
}

// Every case of one path and device; which families served, as bits.
static unsigned check_device(struct linear_call c) {
    static const unsigned without[] = {0, 1u << LINEAR_FEW, 1u << LINEAR_FEW | 1u << LINEAR_STREAM,
                                       1u << LINEAR_FEW | 1u << LINEAR_STREAM |
                                           1u << LINEAR_UNPACKED};
    unsigned seen = 0;
    for (c.form = 0; c.form < WEIGHT_FORMS; c.form++)
        for (int w = 0; w < 4; w++)
            for (c.n = 1; c.n <= ROWS; c.n++) {
                c.without = without[w];
                enum linear_family f = linear_choose(&c);
                assert_int_equal(f, expected(&c));
                seen |= 1u << f;
            }
    return seen;
}

static void every_call_is_served_as_expected(void **state) {
    (void)state;
    unsigned seen = 0;
    for (int i = 0; i < CUDA_PATHS * 2; i++) {
        struct linear_call c = {.path = (enum cuda_path)(i / 2), .clusters = i & 1};
        seen |= check_device(c);
    }
    assert_int_equal(seen, (1 << LINEAR_FAMILIES) - 1);
}

static void slices_are_of_few_rows_and_of_eights(void **state) {
    (void)state;
    for (int64_t n = 1; n <= ROWS; n++)
        for (int streams = 0; streams < 2; streams++) {
            assert_int_equal(linear_slice(CUDA_PATH_SMALL, streams, n), n < 128 ? n : 128);
            assert_int_equal(linear_slice(CUDA_PATH_WGMMA, streams, n), n);
            const int64_t max = streams ? 64 : 32, slices = (n + max - 1) / max;
            const int64_t slice = linear_slice(CUDA_PATH_MMA, streams, n);
            if (n <= max || n > 128)
                assert_int_equal(slice, n);
            else
                assert_true(slice <= max && slice % 8 == 0 && slices * slice >= n &&
                            slices * (slice - 8) < n);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_is_served_as_expected),
        cmocka_unit_test(slices_are_of_few_rows_and_of_eights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
