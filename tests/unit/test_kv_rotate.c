// SPDX-License-Identifier: Apache-2.0
// The rotation of heads: groups, the same as signs and a sum for each value in doubles, back again,
// lengths and products that stay.
#include "test.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "ops/kv/rotate.h"

enum { N = 256 };

static void fill(float *x, uint64_t key) {
    for (int i = 0; i < N; i++)
        x[i] = 4 * rng_unit(rng_hash(key, (uint64_t)i, 0, 0)) - 2;
}

static void test_groups(void **state) {
    (void)state;
    static const int cases[][3] = {{64, 0, 64},   {128, 0, 128}, {256, 0, 128},  {96, 0, 32},
                                   {80, 0, 16},   {192, 0, 64},  {576, 512, 64}, {96, 64, 32},
                                   {512, 0, 128}, {160, 0, 32}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(kv_rotate_group(cases[i][0], cases[i][1]), cases[i][2]);
}

// The sign that value i gets, read from where a single one goes: all sums of a group have it.
static double sign_of(int i, int group) {
    float x[N] = {0};
    x[i] = 1;
    kv_rotate(x, N, group);
    return x[i / group * group] > 0 ? 1 : -1;
}

static void test_transform(void **state) {
    (void)state;
    for (int group = 32; group <= KV_ROTATE_MAX; group *= 2) {
        float x[N], y[N];
        int minus = 0;
        fill(x, 3);
        memcpy(y, x, sizeof y);
        kv_rotate(y, N, group);
        for (int i = 0; i < N; i++) {
            double want = 0;
            for (int j = 0; j < group; j++) {
                int at = i / group * group + j;
                int odd = __builtin_popcount((unsigned)(i % group & j)) % 2;
                want += (odd ? -1 : 1) * sign_of(at, group) * (double)x[at];
            }
            assert_true(fabs(want / sqrt(group) - (double)y[i]) < 1e-5);
            minus += sign_of(i, group) < 0;
        }
        assert_true(minus > N / 3 && minus < N * 2 / 3);
    }
}

static void test_back(void **state) {
    (void)state;
    for (int group = 32; group <= KV_ROTATE_MAX; group *= 2) {
        float x[N], y[N], z[N];
        double before = 0, after = 0;
        fill(x, 5);
        fill(z, 6);
        for (int i = 0; i < N; i++)
            before += (double)x[i] * (double)z[i];
        memcpy(y, x, sizeof y);
        kv_rotate(y, N, group);
        kv_rotate(z, N, group);
        for (int i = 0; i < N; i++)
            after += (double)y[i] * (double)z[i];
        assert_true(fabs(before - after) < 1e-3);
        kv_rotate_back(y, N, group);
        for (int i = 0; i < N; i++)
            assert_true(fabsf(x[i] - y[i]) < 2e-6f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_transform),
        cmocka_unit_test(test_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
