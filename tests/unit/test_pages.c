// SPDX-License-Identifier: Apache-2.0
// Slabs for weights: pieces are aligned, zero, apart from each other, and freed in any order.
#include "test.h"

#include <stdint.h>
#include <string.h>

#include "base/rng.h"
#include "ops/cpu/pages.h"

enum { PIECES = 60 };

static void check_zero_and_fill(unsigned char *p, size_t bytes, int with) {
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 64, 0);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(p[i], 0);
    memset(p, with, bytes);
}

// Sizes from a byte to more than a slab; what was written stays until its piece is freed.
static void test_pieces(void **state) {
    (void)state;
    struct page_slab *pages = NULL;
    unsigned char *piece[PIECES];
    size_t bytes[PIECES];
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < PIECES; i++) {
            uint64_t r = rng_hash(7, (uint64_t)i, (uint64_t)turn, 0);
            bytes[i] = i == 20 ? (size_t)40 << 20 : 1 + r % (1 << (r >> 32) % 23);
            piece[i] = pages_alloc(&pages, bytes[i]);
            check_zero_and_fill(piece[i], bytes[i], i + 1);
        }
        for (int at = 0; at < PIECES; at++) {
            int i = at * 37 % PIECES; // a permutation: 37 and 60 have no common factor
            assert_int_equal(piece[i][0], i + 1);
            assert_int_equal(piece[i][bytes[i] - 1], i + 1);
            pages_free(&pages, piece[i]);
        }
        assert_null(pages);
    }
}

static void test_nothing(void **state) {
    (void)state;
    struct page_slab *pages = NULL;
    pages_free(&pages, NULL);
    assert_null(pages_alloc(&pages, SIZE_MAX));
    assert_null(pages_alloc(&pages, SIZE_MAX - 63));
    void *empty = pages_alloc(&pages, 0);
    assert_non_null(empty);
    pages_free(&pages, empty);
    assert_null(pages);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
