// SPDX-License-Identifier: Apache-2.0
// The hash is XXH64: known values of short texts and of every length class, and no dependence on
// the alignment of its input.
#include "test.h"

#include "base/hash.h"

static void gives_known_values(void **state) {
    (void)state;
    assert_true(hash_bytes("", 0, 0) == 0xEF46DB3751D8E999u);
    assert_true(hash_bytes("a", 1, 0) == 0xD24EC4F1A98C6E5Bu);
    assert_true(hash_bytes("abc", 3, 0) == 0x44BC2CF5AD770999u);
    assert_true(hash_bytes("a", 1, 0) != hash_bytes("a", 1, 1));
}

// The specification's test buffer: bytes of a multiplicative generator.
static void fill(unsigned char *p, int n) {
    uint64_t v = 2654435761u;
    for (int i = 0; i < n; i++, v *= 11400714785074694797u)
        p[i] = (unsigned char)(v >> 56);
}

static void takes_every_length_from_any_address(void **state) {
    (void)state;
    unsigned char buffer[222], moved[230];
    fill(buffer, sizeof buffer);
    uint64_t seen[sizeof buffer + 1];
    for (size_t n = 0; n <= sizeof buffer; n++) {
        seen[n] = hash_bytes(buffer, n, 7);
        for (size_t piece = 1; piece < 70; piece += 3) {
            struct hash h;
            hash_begin(&h, 7);
            for (size_t i = 0; i < n; i += piece)
                hash_add(&h, buffer + i, n - i < piece ? n - i : piece);
            assert_true(hash_end(&h) == seen[n]);
        }
        for (size_t shift = 1; shift < 8; shift += 3) {
            memcpy(moved + shift, buffer, n);
            assert_true(hash_bytes(moved + shift, n, 7) == seen[n]);
        }
        for (size_t i = 0; i < n; i++)
            assert_true(seen[i] != seen[n]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_known_values),
        cmocka_unit_test(takes_every_length_from_any_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
