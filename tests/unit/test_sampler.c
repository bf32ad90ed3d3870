// SPDX-License-Identifier: Apache-2.0
// Sample rows: positions, seeds, and the penalty window of every tree row against a plain count
// over the written-out token list; refused parameters.
#include <math.h>

#include "base/rng.h"
#include "spec/sampler.h"
#include "unit/test.h"

enum { VOCAB = 12, ROWS = 24 };

struct tree {
    int32_t token[ROWS], parent[ROWS], depth[ROWS];
    int n;
};

static void random_tree(struct tree *t, struct rng *g) {
    t->n = 1 + (int)rng_below(g, ROWS);
    for (int i = 0; i < t->n; i++) {
        t->token[i] = (int32_t)rng_below(g, VOCAB);
        t->parent[i] = i ? (int32_t)rng_below(g, (uint32_t)i) : -1;
        t->depth[i] = i ? t->depth[t->parent[i]] + 1 : 0;
    }
}

// The committed tokens and the path of row i, oldest first.
static int64_t written_out(const struct tree *t, int i, const int32_t *committed, int64_t len,
                           int32_t *out) {
    memcpy(out, committed, (size_t)len * sizeof *out);
    int64_t n = len + t->depth[i] + 1;
    int64_t at = n;
    for (int r = i; r >= 0; r = t->parent[r])
        out[--at] = t->token[r];
    assert_int_equal(at, len);
    return n;
}

static void check_row(const struct sample_row *row, const int32_t *list, int64_t n,
                      int64_t window) {
    assert_int_equal(row->pos, n);
    int32_t count[VOCAB] = {0}, distinct = 0;
    for (int64_t j = n > window ? n - window : 0; j < n; j++)
        distinct += count[list[j]]++ == 0;
    assert_int_equal(row->n_seen, distinct);
    for (int32_t j = 0; j < row->n_seen; j++) {
        assert_int_equal(row->seen_count[j], count[row->seen[j]]);
        assert_true(count[row->seen[j]] > 0);
        count[row->seen[j]] = 0; // each token once
    }
}

// Row i in slot i.
static const struct sample_row *all_rows(struct sampler *s, const struct sampler_batch *b) {
    const struct sample_row *first = sampler_row(s, b, 0, 0);
    for (int i = 1; i < b->n; i++)
        assert_ptr_equal(sampler_row(s, b, i, i), first + i);
    return first;
}

static void test_windows(void **state) {
    (void)state;
    struct rng g = {5};
    for (int i = 0; i < 400; i++) {
        struct sample_params p;
        sample_params_init(&p);
        p.repeat = 1.5;
        p.temperature = 0.7;
        static const int64_t windows[] = {1, 2, 5, 16, 64, 500};
        p.window = windows[rng_below(&g, 6)];
        struct sampler *s;
        assert_int_equal(sampler_create(&s, &p, ROWS, VOCAB, NULL), 0);
        for (int again = 0; again < 3; again++) {
            struct tree t;
            random_tree(&t, &g);
            int32_t committed[90], list[200];
            int64_t len = rng_below(&g, 90);
            for (int64_t j = 0; j < len; j++)
                committed[j] = (int32_t)rng_below(&g, VOCAB);
            struct sampler_batch b = {t.token, t.parent, t.n, committed, len};
            const struct sample_row *rows = all_rows(s, &b);
            for (int r = 0; r < t.n; r++) {
                int64_t n = written_out(&t, r, committed, len, list);
                check_row(&rows[r], list, n, p.window);
                assert_true(rows[r].temperature == 0.7f && rows[r].repeat == 1.5f);
                assert_int_equal(rows[r].seed, rows[0].seed);
            }
        }
        sampler_destroy(s);
    }
}

static void test_no_penalties(void **state) {
    (void)state;
    struct sample_params p;
    sample_params_init(&p);
    struct sampler *s;
    assert_int_equal(sampler_create(&s, &p, ROWS, VOCAB, NULL), 0);
    const int32_t token[] = {1, 2}, parent[] = {-1, 0}, committed[] = {3, 4, 5};
    struct sampler_batch b = {token, parent, 2, committed, 3};
    const struct sample_row *rows = all_rows(s, &b);
    assert_int_equal(rows[0].n_seen, 0);
    assert_int_equal(rows[0].pos, 4);
    assert_int_equal(rows[1].pos, 5);
    assert_null(sampler_noise(s, 4, 3)); // greedy: there is no noise
    sampler_destroy(s);
}

// The noise rows must carry the position, seed and temperature of the target's own draws.
static void test_noise(void **state) {
    (void)state;
    struct sample_params p;
    sample_params_init(&p);
    p.temperature = 0.8;
    p.seed = 42;
    p.frequency = 0.5;
    struct sampler *s, *other;
    assert_int_equal(sampler_create(&s, &p, ROWS, VOCAB, NULL), 0);
    p.choice = 1;
    assert_int_equal(sampler_create(&other, &p, ROWS, VOCAB, NULL), 0);
    const int32_t token[] = {1, 2}, parent[] = {-1, 0}, committed[] = {3, 4, 5};
    struct sampler_batch b = {token, parent, 2, committed, 3};
    const struct sample_row *noise = sampler_noise(s, 4, 5);
    const struct sample_row *rows = all_rows(s, &b);
    for (int d = 0; d < 5; d++)
        assert_int_equal(noise[d].pos, 4 + d);
    assert_int_equal(noise[1].pos, rows[1].pos);
    assert_int_equal(noise[1].seed, rows[1].seed);
    assert_true(noise[1].temperature == rows[1].temperature);
    assert_int_equal(noise[1].n_seen, 0);
    assert_true(noise[1].frequency == 0);
    assert_int_not_equal(sampler_row(other, &b, 0, 0)->seed, rows[0].seed);
    sampler_destroy(s);
    sampler_destroy(other);
}

// Biases reach every row, in the order of their tokens whatever order they came in, and no noise.
static void test_biases(void **state) {
    (void)state;
    struct logit_bias given[3] = {{7, -INFINITY}, {2, 1.5f}, {11, -100}};
    struct sample_params p;
    struct sampler *s;
    struct tree t = {.n = 1, .parent = {-1}};
    const struct sampler_batch b = {.token = t.token, .parent = t.parent, .n = 1};
    sample_params_init(&p);
    p.temperature = 1;
    p.bias = given;
    p.n_bias = 3;
    assert_int_equal(sampler_create(&s, &p, ROWS, VOCAB, NULL), 0);
    memset(given, 0, sizeof given); // they need not stay
    const struct sample_row *row = sampler_row(s, &b, 0, 3);
    assert_int_equal(row->n_bias, 3);
    assert_int_equal(row->bias[0].id, 2);
    assert_true(row->bias[0].bias == 1.5f);
    assert_int_equal(row->bias[1].id, 7);
    assert_true(row->bias[1].bias == -INFINITY);
    assert_int_equal(row->bias[2].id, 11);
    assert_false(row->given);
    assert_int_equal(sampler_noise(s, 0, 1)->n_bias, 0);
    sampler_destroy(s);
}

static const struct logit_bias *bias_of(const struct sample_row *r, int32_t id) {
    for (int i = 0; i < r->n_bias; i++)
        if (r->bias[i].id == id)
            return &r->bias[i];
    return NULL;
}

// Late tokens are forbidden at positions below theirs and nowhere else; where a mask leaves nothing
// but what is forbidden, it goes first.
static void test_late_tokens(void **state) {
    (void)state;
    const struct logit_bias given[2] = {{7, -INFINITY}, {2, 1.5f}};
    const int32_t late[3] = {9, 2, 9}, committed[3] = {1, 2, 3};
    struct sample_params p;
    struct sampler *s;
    struct tree t = {.n = 1, .parent = {-1}};
    struct sampler_batch b = {.token = t.token, .parent = t.parent, .n = 1, .committed = committed};
    sample_params_init(&p);
    p.bias = given;
    p.n_bias = 2;
    p.late = late;
    p.n_late = 3;
    p.from = 3;
    assert_int_equal(sampler_create(&s, &p, ROWS, VOCAB, NULL), 0);
    struct sample_row row = *sampler_row(s, &b, 0, 0); // position 1
    assert_int_equal(row.n_bias, 3);
    for (int i = 1; i < row.n_bias; i++)
        assert_true(row.bias[i].id > row.bias[i - 1].id);
    assert_true(bias_of(&row, 9)->bias == -INFINITY && bias_of(&row, 2)->bias == -INFINITY);
    const uint32_t all = UINT32_MAX, ends = 1u << 9 | 1u << 2, seven = 1u << 7;
    row.allow = &all;
    sampler_yield(s, &row);
    assert_int_equal(row.n_bias, 3);
    row.allow = &ends;
    sampler_yield(s, &row);
    assert_int_equal(row.n_bias, 2);
    assert_true(bias_of(&row, 2)->bias == 1.5f);
    row.allow = &seven;
    sampler_yield(s, &row);
    assert_int_equal(row.n_bias, 0);
    b.len = 2;
    row = *sampler_row(s, &b, 0, 0); // position 3
    assert_int_equal(row.n_bias, 2);
    assert_null(bias_of(&row, 9));
    sampler_destroy(s);
    p.late = (const int32_t[]){VOCAB};
    p.n_late = 1;
    assert_int_equal(sample_params_check(&p, VOCAB, NULL), ERR_MISMATCH);
}

static void refuse_bias(struct logit_bias a, struct logit_bias b, int rc, const char *part) {
    const struct logit_bias both[2] = {a, b};
    struct sample_params p;
    struct sampler *s = NULL;
    struct err e = {0};
    sample_params_init(&p);
    p.bias = both;
    p.n_bias = 2;
    assert_int_equal(sampler_create(&s, &p, ROWS, VOCAB, &e), rc);
    assert_null(s);
    assert_non_null(strstr(e.text, part));
}

static void test_refused_biases(void **state) {
    (void)state;
    const struct logit_bias fine = {3, 1};
    refuse_bias(fine, (struct logit_bias){VOCAB, 1}, ERR_MISMATCH, "token id 12");
    refuse_bias((struct logit_bias){-1, 1}, fine, ERR_MISMATCH, "token id -1");
    refuse_bias(fine, (struct logit_bias){4, NAN}, ERR_USAGE, "token 4");
    refuse_bias(fine, (struct logit_bias){4, INFINITY}, ERR_USAGE, "logit bias inf");
    refuse_bias(fine, (struct logit_bias){4, -10001}, ERR_USAGE, "-10001");
    refuse_bias(fine, (struct logit_bias){3, 2}, ERR_USAGE, "token 3 has more than one");
    struct sample_params p;
    sample_params_init(&p);
    p.n_bias = SAMPLER_MAX_BIAS + 1;
    assert_int_equal(sample_params_check(&p, VOCAB, NULL), ERR_USAGE);
    struct logit_bias all[VOCAB];
    for (int i = 0; i < VOCAB; i++)
        all[i] = (struct logit_bias){i, -INFINITY};
    p.bias = all;
    p.n_bias = VOCAB;
    assert_int_equal(sample_params_check(&p, VOCAB, NULL), ERR_USAGE);
    p.n_bias = VOCAB - 1;
    assert_int_equal(sample_params_check(&p, VOCAB, NULL), 0);
}

static void refuse(struct sample_params p, const char *part) {
    struct err e = {0};
    struct sampler *s = NULL;
    assert_int_equal(sampler_create(&s, &p, ROWS, VOCAB, &e), ERR_USAGE);
    assert_null(s);
    assert_non_null(strstr(e.text, part));
}

static void test_refused(void **state) {
    (void)state;
    struct sample_params p;
    sample_params_init(&p);
    assert_int_equal(sample_params_check(&p, VOCAB, NULL), 0);
    struct sample_params bad = p;
    bad.temperature = -1;
    refuse(bad, "temperature -1");
    bad.temperature = NAN;
    refuse(bad, "temperature");
    bad = p, bad.top_k = -5;
    refuse(bad, "top-k -5");
    bad = p, bad.top_p = 0;
    refuse(bad, "top-p 0");
    bad = p, bad.top_p = 1.5;
    refuse(bad, "top-p 1.5");
    bad = p, bad.min_p = 2;
    refuse(bad, "min-p 2");
    bad = p, bad.repeat = 0;
    refuse(bad, "repetition penalty 0");
    bad = p, bad.presence = INFINITY;
    refuse(bad, "presence");
    bad = p, bad.window = SAMPLER_MAX_WINDOW + 1;
    refuse(bad, "window 4097");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows),        cmocka_unit_test(test_no_penalties),
        cmocka_unit_test(test_noise),          cmocka_unit_test(test_refused),
        cmocka_unit_test(test_biases),         cmocka_unit_test(test_late_tokens),
        cmocka_unit_test(test_refused_biases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
