// SPDX-License-Identifier: Apache-2.0
// Byte-pair merges against a naive transcription of the rule over texts, on both sides of the
// border between the short and the long form, and the odd vocabularies.
#include "test.h"

#include "base/rng.h"
#include "base/str.h"
#include "text/tokenizer/bpe.h"

#define MAX_TEXT   8
#define MAX_TOKENS 300
#define MAX_MERGES 64

// A vocabulary over letters: every token and merge part is a text of at most MAX_TEXT bytes.
struct model {
    char tokens[MAX_TOKENS][MAX_TEXT + 1];
    char left[MAX_MERGES][MAX_TEXT + 1], right[MAX_MERGES][MAX_TEXT + 1];
    int n_tokens, n_merges;
};

static void build(struct bpe *b, const struct model *m) {
    struct err e = {0};
    int rc = bpe_init(b, (uint32_t)m->n_tokens, (uint32_t)m->n_merges, &e);
    for (int i = 0; i < m->n_tokens && !rc; i++)
        rc = bpe_add_token(b, (uint32_t)i, m->tokens[i], strlen(m->tokens[i]), &e);
    for (int i = 0; i < m->n_merges && !rc; i++)
        rc = bpe_add_merge(b, m->left[i], strlen(m->left[i]), m->right[i], strlen(m->right[i]), &e);
    if (rc || bpe_finish(b, &e))
        fail_msg("%s", e.text);
}

static int find_token(const struct model *m, const char *text, size_t n) {
    for (int i = 0; i < m->n_tokens; i++)
        if (strlen(m->tokens[i]) == n && memcmp(m->tokens[i], text, n) == 0)
            return i;
    return -1;
}

static int rank_of(const struct model *m, const char *s, size_t cut, size_t n) {
    for (int i = 0; i < m->n_merges; i++)
        if (strlen(m->left[i]) == cut && strlen(m->right[i]) == n - cut &&
            memcmp(m->left[i], s, cut) == 0 && memcmp(m->right[i], s + cut, n - cut) == 0)
            return i;
    return INT32_MAX;
}

// The rule as written: begin[] are the borders of the symbols of s.
static void naive(const struct model *m, const char *s, size_t n, struct token_list *out) {
    size_t begin[1024], count = n;
    for (size_t i = 0; i <= n; i++)
        begin[i] = i;
    for (;;) {
        size_t best = 0;
        int best_rank = INT32_MAX;
        for (size_t i = 0; i + 1 < count; i++) {
            int rank = rank_of(m, s + begin[i], begin[i + 1] - begin[i], begin[i + 2] - begin[i]);
            if (rank < best_rank) {
                best_rank = rank;
                best = i;
            }
        }
        if (best_rank == INT32_MAX)
            break;
        memmove(begin + best + 1, begin + best + 2, (count - best - 1) * sizeof *begin);
        count--;
    }
    for (size_t i = 0; i < count; i++) {
        int id = find_token(m, s + begin[i], begin[i + 1] - begin[i]);
        for (size_t k = begin[i]; id < 0 && k < begin[i + 1]; k++)
            token_list_push(out, find_token(m, s + k, 1), NULL);
        if (id >= 0)
            token_list_push(out, id, NULL);
    }
}

static void random_model(struct rng *r, struct model *m, int letters) {
    *m = (struct model){0};
    for (int i = 0; i < letters; i++)
        m->tokens[m->n_tokens++][0] = (char)('a' + i);
    char known[MAX_MERGES + 26][MAX_TEXT + 1] = {0};
    int n_known = 0;
    for (int i = 0; i < letters; i++)
        known[n_known++][0] = (char)('a' + i);
    for (int i = 0; i < MAX_MERGES; i++) {
        const char *a = known[rng_below(r, (uint32_t)n_known)];
        const char *b = known[rng_below(r, (uint32_t)n_known)];
        if (strlen(a) + strlen(b) > MAX_TEXT)
            continue;
        strcpy(m->left[m->n_merges], a);
        strcpy(m->right[m->n_merges], b);
        m->n_merges++;
        char both[2 * MAX_TEXT + 1];
        strcpy(both, a);
        strcat(both, b);
        strcpy(known[n_known++], both);
        // One merge in five leads to a text that is no token.
        if (rng_below(r, 5) > 0 && find_token(m, both, strlen(both)) < 0)
            strcpy(m->tokens[m->n_tokens++], both);
    }
}

static void check_same(const struct model *m, const struct bpe *b, struct bpe_work *w,
                       const char *s, size_t n) {
    struct token_list got = {0}, want = {0};
    struct err e = {0};
    naive(m, s, n, &want);
    assert_int_equal(bpe_encode(b, w, s, n, &got, &e), 0);
    assert_int_equal(got.count, want.count);
    for (size_t i = 0; i < got.count; i++)
        assert_int_equal(got.ids[i], want.ids[i]);
    token_list_fini(&got);
    token_list_fini(&want);
}

static void test_like_the_rule(void **state) {
    (void)state;
    struct rng r = {11};
    static struct model m;
    struct bpe_work w = {0};
    char text[200];
    for (int round = 0; round < 300; round++) {
        int letters = 1 + (int)rng_below(&r, 4);
        random_model(&r, &m, letters);
        struct bpe b = {0};
        build(&b, &m);
        for (int k = 0; k < 20; k++) {
            size_t n = k < 10 ? 1 + rng_below(&r, 40) : 1 + rng_below(&r, sizeof text);
            for (size_t i = 0; i < n; i++)
                text[i] = (char)('a' + rng_below(&r, (uint32_t)letters));
            check_same(&m, &b, &w, text, n);
        }
        bpe_fini(&b);
    }
    bpe_work_fini(&w);
}

static void expect(const struct bpe *b, const char *s, const char *want) {
    struct token_list got = {0};
    struct bpe_work w = {0};
    struct str shown = {0};
    struct err e = {0};
    assert_int_equal(bpe_encode(b, &w, s, strlen(s), &got, &e), 0);
    for (size_t i = 0; i < got.count; i++)
        str_printf(&shown, "%s%d", i ? " " : "", got.ids[i]);
    assert_string_equal(shown.len ? shown.data : "", want);
    str_fini(&shown);
    token_list_fini(&got);
    bpe_work_fini(&w);
}

static void test_ties_and_duplicates(void **state) {
    (void)state;
    // "a b" comes twice: its first rank, 0, counts, so it goes before "b c".
    static const struct model m = {.tokens = {"a", "b", "c", "ab", "bc", "aa"},
                                   .n_tokens = 6,
                                   .left = {"a", "b", "a", "a"},
                                   .right = {"b", "c", "b", "a"},
                                   .n_merges = 4};
    struct bpe b = {0};
    build(&b, &m);
    expect(&b, "abc", "3 2");
    expect(&b, "aaa", "5 0"); // leftmost first
    expect(&b, "bcab", "4 3");
    expect(&b, "", "");
    bpe_fini(&b);
}

static void test_unknown_parts(void **state) {
    (void)state;
    // "xy" is no token, but merges lead through it to "xyz"; "xyx" is given as its bytes.
    static const struct model m = {.tokens = {"x", "y", "z", "xyz"},
                                   .n_tokens = 4,
                                   .left = {"x", "xy", "q"},
                                   .right = {"y", "z", "r"},
                                   .n_merges = 3};
    struct bpe b = {0};
    build(&b, &m);
    expect(&b, "xyz", "3");
    expect(&b, "xyx", "0 1 0");
    bpe_fini(&b);
}

static void test_missing_bytes(void **state) {
    (void)state;
    static const struct model m = {.tokens = {"a", "b"}, .n_tokens = 2};
    struct bpe b = {0};
    struct bpe_work w = {0};
    struct token_list out = {0};
    struct err e = {0};
    build(&b, &m);
    assert_int_equal(bpe_encode(&b, &w, "ac", 2, &out, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "0x63"));
    b.unknown = 1;
    out.count = 0;
    assert_int_equal(bpe_encode(&b, &w, "acc", 3, &out, &e), 0);
    assert_int_equal(out.count, 3);
    assert_int_equal(out.ids[1], 1);
    token_list_fini(&out);
    bpe_fini(&b);
}

static void test_whole_pieces(void **state) {
    (void)state;
    static const struct model m = {.tokens = {"a", "b", "aba"}, .n_tokens = 3};
    struct bpe b = {0};
    build(&b, &m);
    expect(&b, "aba", "0 1 0"); // no merge leads to it
    b.whole_pieces = true;
    expect(&b, "aba", "2");
    expect(&b, "abab", "0 1 0 1");
    bpe_fini(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_like_the_rule), cmocka_unit_test(test_ties_and_duplicates),
        cmocka_unit_test(test_unknown_parts), cmocka_unit_test(test_missing_bytes),
        cmocka_unit_test(test_whole_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
