// SPDX-License-Identifier: Apache-2.0
// The scan for special tokens against brute force: at every place the longest, from the left.
#include "test.h"

#include "base/rng.h"
#include "base/str.h"
#include "text/tokenizer/special.h"

#define MAX_TOKENS 12

struct word {
    char text[8];
    bool always, guarded;
};

// "begin-end:id" of each hit.
static void show(struct str *out, size_t begin, size_t end, int id) {
    str_printf(out, "%zu-%zu:%d ", begin, end, id);
}

static void naive(const struct word *words, int count, const char *s, size_t n, bool all,
                  struct str *out) {
    for (size_t at = 0; at < n;) {
        size_t longest = 0;
        int id = -1;
        for (int i = 0; i < count; i++) {
            size_t length = strlen(words[i].text);
            if ((all || words[i].always) && length > longest && length <= n - at &&
                memcmp(s + at, words[i].text, length) == 0) {
                longest = length;
                id = i;
            }
        }
        if (id >= 0)
            show(out, at, at + longest, id);
        at += id >= 0 ? longest : 1;
    }
}

static void check(const struct word *words, int count, const char *s, size_t n, bool all) {
    struct special special = {0};
    struct special_hits hits = {0};
    struct str got = {0}, want = {0};
    struct err e = {0};
    for (int i = 0; i < count; i++)
        assert_int_equal(
            special_add(&special, words[i].text, strlen(words[i].text), i, words[i].always, &e), 0);
    assert_int_equal(special_finish(&special, &e), 0);
    assert_int_equal(special_scan(&special, s, n, all, &hits, &e), 0);
    for (size_t i = 0; i < hits.count; i++)
        show(&got, hits.hit[i].begin, hits.hit[i].end, hits.hit[i].id);
    naive(words, count, s, n, all, &want);
    assert_string_equal(got.data ? got.data : "", want.data ? want.data : "");
    str_fini(&got);
    str_fini(&want);
    special_hits_fini(&hits);
    special_fini(&special);
}

static int random_words(struct rng *r, struct word *words, int round) {
    int count = 0;
    for (int i = 0; i < MAX_TOKENS; i++) {
        char text[8] = {0};
        for (uint32_t k = 1 + rng_below(r, 6); k > 0; k--)
            text[k - 1] = (char)('a' + rng_below(r, 2 + (uint32_t)(round % 2)));
        bool known = false;
        for (int k = 0; k < count; k++)
            known = known || strcmp(words[k].text, text) == 0;
        if (known)
            continue;
        memcpy(words[count].text, text, sizeof text);
        words[count++].always = rng_below(r, 2);
    }
    return count;
}

static void test_like_brute_force(void **state) {
    (void)state;
    struct rng r = {3};
    for (int round = 0; round < 3000; round++) {
        struct word words[MAX_TOKENS] = {0};
        int count = random_words(&r, words, round);
        char s[60];
        size_t n = rng_below(&r, sizeof s);
        for (size_t i = 0; i < n; i++)
            s[i] = (char)('a' + rng_below(&r, 3));
        check(words, 1 + (int)rng_below(&r, (uint32_t)count), s, n, rng_below(&r, 2));
    }
}

// What stands at `at`, by the rules of the header: -1 for nothing.
static int naive_at(const struct word *words, int count, const char *s, size_t n,
                    const struct special_span *span, size_t at, size_t *length) {
    int best[2] = {-1, -1}; // in the span, and user-defined anywhere
    size_t longest[2] = {0};
    for (int i = 0; i < count; i++) {
        size_t len = strlen(words[i].text);
        bool stands = len <= n - at && memcmp(s + at, words[i].text, len) == 0;
        bool fits[2] = {span->all && at + len <= span->end, words[i].always};
        for (int k = 0; k < 2; k++)
            if (stands && fits[k] && len > longest[k]) {
                best[k] = i;
                longest[k] = len;
            }
    }
    bool other = best[1] >= 0 && longest[1] > longest[0] && !words[best[1]].guarded;
    *length = longest[other];
    return best[other];
}

static void test_spans_like_brute_force(void **state) {
    (void)state;
    struct rng r = {5};
    for (int round = 0; round < 3000; round++) {
        struct word words[MAX_TOKENS] = {0};
        int count = random_words(&r, words, round);
        struct special special = {0};
        struct special_hits hits = {0};
        struct special_span spans[4];
        int32_t guarded[MAX_TOKENS];
        size_t n_spans = 0, n_guarded = 0, n = rng_below(&r, 60), end = 0;
        char s[60];
        struct str got = {0}, want = {0};
        for (size_t i = 0; i < n; i++)
            s[i] = (char)('a' + rng_below(&r, 3));
        while (n_spans < 4 && end < n) {
            end = n_spans == 3 ? n : end + 1 + rng_below(&r, (uint32_t)(n - end));
            spans[n_spans++] = (struct special_span){end, rng_below(&r, 2)};
        }
        for (int i = 0; i < count; i++) {
            words[i].guarded = words[i].always && rng_below(&r, 3) == 0;
            if (words[i].guarded)
                guarded[n_guarded++] = i;
            assert_int_equal(special_add(&special, words[i].text, strlen(words[i].text), i,
                                         words[i].always, NULL),
                             0);
        }
        assert_int_equal(special_finish(&special, NULL), 0);
        const struct special_where w = {spans, n_spans, guarded, n_guarded};
        assert_int_equal(special_scan_spans(&special, s, n, &w, &hits, NULL), 0);
        for (size_t i = 0; i < hits.count; i++)
            show(&got, hits.hit[i].begin, hits.hit[i].end, hits.hit[i].id);
        for (size_t at = 0, k = 0, length; at < n; at += length) {
            while (spans[k].end <= at)
                k++;
            int id = naive_at(words, count, s, n, &spans[k], at, &length);
            if (id >= 0)
                show(&want, at, at + length, id);
            else
                length = 1;
        }
        assert_string_equal(got.data ? got.data : "", want.data ? want.data : "");
        str_fini(&got);
        str_fini(&want);
        special_hits_fini(&hits);
        special_fini(&special);
    }
}

static void test_named_cases(void **state) {
    (void)state;
    static const struct word words[] = {
        {"<br>", true, false}, {"<br><br", false, false}, {"r><b", false, false}};
    const char *s = "<br><br><br>";
    check(words, 3, s, strlen(s), true);
    check(words, 3, s, strlen(s), false);
    check(words, 3, "<br", 3, true);
    check(words, 3, "", 0, true);
}

static void test_no_tokens(void **state) {
    (void)state;
    struct special special = {0};
    struct special_hits hits = {0};
    assert_int_equal(special_finish(&special, NULL), 0);
    assert_int_equal(special_scan(&special, "abc", 3, true, &hits, NULL), 0);
    assert_int_equal(hits.count, 0);
    special_fini(&special);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_like_brute_force),
        cmocka_unit_test(test_spans_like_brute_force),
        cmocka_unit_test(test_named_cases),
        cmocka_unit_test(test_no_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
