// SPDX-License-Identifier: Apache-2.0
// The page as it is linked in: all of the file and nothing else, and headers that belong to it.
#include "serve/page/page.h"

#include <stdio.h>
#include <stdlib.h>

#include "unit/test.h"

static void page_is_the_file_byte_for_byte(void **state) {
    (void)state;
    struct page page = page_get();
    FILE *f = fopen(SOURCE_ROOT "/src/serve/page/page.html", "rb");
    assert_non_null(f);
    char *bytes = malloc(page.size + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, page.size + 1, f), page.size);
    fclose(f);
    assert_memory_equal(bytes, page.html, page.size);
    free(bytes);
}

// The policy that the header carries is the one in the page, with one more rule at its end.
static void policy_is_that_of_the_page(void **state) {
    (void)state;
    struct page page = page_get();
    static const char before[] = "http-equiv=\"Content-Security-Policy\" content=\"";
    const char *in_page = memmem(page.html, page.size, before, sizeof before - 1);
    assert_non_null(in_page);
    in_page += sizeof before - 1;
    const char *end = strstr(page.policy, "; frame-ancestors 'none'");
    assert_non_null(end);
    assert_memory_equal(in_page, page.policy, (size_t)(end - page.policy));
    assert_int_equal(in_page[end - page.policy], '"');
    assert_null(strstr(page.policy, "unsafe"));
}

static void etag_is_a_quoted_string(void **state) {
    (void)state;
    const char *etag = page_get().etag;
    assert_int_equal(strlen(etag), 34);
    assert_int_equal(etag[0], '"');
    assert_int_equal(etag[33], '"');
    assert_int_equal(strspn(etag + 1, "0123456789abcdef"), 32);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_is_the_file_byte_for_byte),
        cmocka_unit_test(policy_is_that_of_the_page),
        cmocka_unit_test(etag_is_a_quoted_string),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
