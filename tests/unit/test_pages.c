// SPDX-License-Identifier: Apache-2.0
// Large pages: pieces of slabs for weights are aligned, zero, apart from each other, and freed in
// any order, and so are pages of keys and values of the CPU's exec.
#include "test.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "ops/cpu/pages.h"
#include "ops/ops.h"

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

static void test_map(void **state) {
    (void)state;
    void *p = pages_map(1);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % (2 << 20), 0);
    free(p);
    assert_null(pages_map(SIZE_MAX));
}

// Blocks that were written are zero when they come again, and other arenas' lie elsewhere.
static void test_keys_and_values(void **state) {
    (void)state;
    enum { BYTES = 147456 };
    struct exec *x;
    unsigned char *piece[PIECES], *work;
    assert_int_equal(exec_create_cpu(&x, "scalar", 1, NULL), 0);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < PIECES; i++) {
            piece[i] = exec_alloc(x, ARENA_PAGES, BYTES);
            check_zero_and_fill(piece[i], BYTES, i + 1);
        }
        work = exec_alloc(x, ARENA_WORK, BYTES);
        check_zero_and_fill(work, BYTES, 255);
        for (int at = 0; at < PIECES; at++) {
            int i = at * 37 % PIECES;
            assert_int_equal(piece[i][0], i + 1);
            assert_int_equal(piece[i][BYTES - 1], i + 1);
            exec_ops(x)->free(x, piece[i]);
        }
        exec_ops(x)->free(x, work);
    }
    assert_null(exec_alloc(x, ARENA_PAGES, SIZE_MAX));
    exec_destroy(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_keys_and_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
