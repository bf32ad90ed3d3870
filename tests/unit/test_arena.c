// SPDX-License-Identifier: Apache-2.0
// Arena: alignment, zeroing, no overlap, overflow, release.
#include "test.h"

#include "base/memory/arena.h"
#include "base/rng.h"

static void blocks_are_aligned_zeroed_and_apart(void **state) {
    (void)state;
    struct arena a = {0};
    struct rng r = {7};
    enum { N = 400 };
    unsigned char *block[N];
    size_t size[N];
    for (int i = 0; i < N; i++) {
        size[i] = i % 50 == 49 ? 300000u : rng_below(&r, 3000);
        block[i] = arena_alloc(&a, size[i]);
        assert_non_null(block[i]);
        assert_int_equal((uintptr_t)block[i] % 64, 0);
        for (size_t k = 0; k < size[i]; k++)
            assert_int_equal(block[i][k], 0);
        memset(block[i], i % 251 + 1, size[i]);
    }
    for (int i = 0; i < N; i++)
        for (size_t k = 0; k < size[i]; k++)
            assert_int_equal(block[i][k], i % 251 + 1);
    assert_true(a.total >= 8u * 300000u);
    arena_fini(&a);
    assert_null(a.head);
    assert_int_equal(a.total, 0);
}

static void a_large_block_keeps_the_current_chunk(void **state) {
    (void)state;
    struct arena a = {0};
    char *first = arena_alloc(&a, 64);
    assert_non_null(arena_alloc(&a, 1 << 21));
    char *second = arena_alloc(&a, 64);
    assert_ptr_equal(first + 64, second);
    arena_fini(&a);
}

static void impossible_sizes_fail(void **state) {
    (void)state;
    struct arena a = {0};
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_null(arena_alloc(&a, SIZE_MAX / 2 - 3));
    assert_null(arena_array(&a, SIZE_MAX / 4, 8));
    assert_null(arena_strndup(&a, "x", SIZE_MAX));
    assert_non_null(arena_array(&a, 0, 8));
    arena_fini(&a);
}

static void strings_are_copied_and_ended(void **state) {
    (void)state;
    struct arena a = {0};
    char text[] = "ab\0cd";
    char *copy = arena_strndup(&a, text, 5);
    text[0] = 'x';
    assert_memory_equal(copy, "ab\0cd\0", 6);
    assert_string_equal(arena_strndup(&a, NULL, 0), "");
    arena_fini(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_aligned_zeroed_and_apart),
        cmocka_unit_test(a_large_block_keeps_the_current_chunk),
        cmocka_unit_test(impossible_sizes_fail),
        cmocka_unit_test(strings_are_copied_and_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
