// SPDX-License-Identifier: Apache-2.0
// SHA-256: the examples that NIST gives, a million letters, and the same hash however bytes come.
#include "test.h"

#include <stdlib.h>

#include "base/sha256.h"

static void expect(const char *text, size_t n, const char *wanted) {
    struct sha256 h;
    char hex[65];
    sha256_begin(&h);
    sha256_add(&h, text, n);
    sha256_end(&h, hex);
    assert_string_equal(hex, wanted);
}

static void gives_known_values(void **state) {
    (void)state;
    expect("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
           "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    char *many = malloc(1000000);
    memset(many, 'a', 1000000);
    expect(many, 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(many);
}

static void takes_every_length_in_any_pieces(void **state) {
    (void)state;
    char bytes[200], whole[65], pieces[65];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 37);
    for (size_t n = 0; n <= sizeof bytes; n++)
        for (size_t piece = 1; piece < 130; piece += 9) {
            struct sha256 a, b;
            sha256_begin(&a);
            sha256_begin(&b);
            sha256_add(&a, bytes, n);
            for (size_t i = 0; i < n; i += piece)
                sha256_add(&b, bytes + i, n - i < piece ? n - i : piece);
            sha256_end(&a, whole);
            sha256_end(&b, pieces);
            assert_string_equal(whole, pieces);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_known_values),
        cmocka_unit_test(takes_every_length_in_any_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
