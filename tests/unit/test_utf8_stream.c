// SPDX-License-Identifier: Apache-2.0
// Streaming UTF-8: however the bytes are cut, the output equals the repair of the whole, every
// prefix of it is well-formed, and nothing is held longer than needed.
#include "test.h"

#include "base/rng.h"
#include "base/utf8.h"
#include "text/tokenizer/utf8_stream.h"

static void check(struct rng *r, const char *s, size_t n) {
    struct utf8_stream stream = {0};
    struct str got = {0}, want = {0};
    for (size_t at = 0; at < n;) {
        size_t step = 1 + rng_below(r, 5);
        step = step < n - at ? step : n - at;
        utf8_stream_push(&stream, s + at, step, &got);
        at += step;
        assert_true(utf8_valid(got.data ? got.data : "", got.len));
        assert_in_range(stream.n_held, 0, 3);
        if (stream.n_held > 0) {
            uint32_t code; // what is held is an incomplete character, not a broken one
            assert_int_equal(utf8_decode((const char *)stream.held, (size_t)stream.n_held, &code),
                             0);
        }
    }
    utf8_stream_end(&stream, &got);
    assert_int_equal(stream.n_held, 0);
    utf8_sanitise(&want, s, n);
    assert_int_equal(got.len, want.len);
    if (n > 0)
        assert_memory_equal(got.data, want.data, got.len);
    str_fini(&got);
    str_fini(&want);
}

static void test_well_formed(void **state) {
    (void)state;
    struct rng r = {1};
    static const char text[] = "aé中🦙\u0301\U0010FFFF\uFFFD z";
    for (int round = 0; round < 2000; round++)
        check(&r, text, sizeof text);
}

static void test_broken(void **state) {
    (void)state;
    // Leads, continuations and the bytes next to every limit of the validity table.
    static const unsigned char bytes[] = {'a',  0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF,
                                          0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE,
                                          0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF};
    struct rng r = {2};
    char s[24];
    for (int round = 0; round < 50000; round++) {
        size_t n = rng_below(&r, sizeof s);
        for (size_t i = 0; i < n; i++)
            s[i] = (char)bytes[rng_below(&r, sizeof bytes)];
        check(&r, s, n);
    }
}

static void test_at_once(void **state) {
    (void)state;
    struct utf8_stream stream = {0};
    struct str out = {0};
    utf8_stream_push(&stream, "\xF0\x9F\xA6", 3, &out); // may become a character
    assert_int_equal(out.len, 0);
    utf8_stream_push(&stream, "A", 1, &out); // it does not
    assert_string_equal(out.data, "\uFFFDA");
    str_clear(&out);
    utf8_stream_push(&stream, "\xFF", 1, &out); // can never be valid
    assert_string_equal(out.data, "\uFFFD");
    str_clear(&out);
    utf8_stream_push(&stream, "\xE4\xBD", 2, &out);
    utf8_stream_push(&stream, "\xA0\xE5", 2, &out); // ends one and begins another
    assert_string_equal(out.data, "你");
    utf8_stream_end(&stream, &out);
    assert_string_equal(out.data, "你\uFFFD");
    str_fini(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_well_formed),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
