// SPDX-License-Identifier: Apache-2.0
// Views: what they leave out and where they change, and that attention over one is attention over
// the whole text under the same mask, by a plain computation in double precision.
#include "state/view.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "ops/cpu/cpu.h"
#include "unit/test.h"

static void test_rule(void **state) {
    (void)state;
    static const struct {
        int64_t tokens, window;
    } good[] = {{0, 0}, {64, 64}, {65, 128}, {2048, 2048}, {VIEW_MAX_WINDOW, VIEW_MAX_WINDOW}};
    static const int64_t bad[] = {-1, 1, 63, VIEW_MAX_WINDOW + 1};
    struct view_rule r;
    struct err e = {0};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        const struct view_options o = {.window = good[i].tokens};
        assert_int_equal(view_rule_make(&r, &o, NULL), 0);
        assert_int_equal(r.window, good[i].window);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct view_options o = {.window = bad[i]};
        assert_int_equal(view_rule_make(&r, &o, &e), ERR_USAGE);
        assert_non_null(strstr(e.text, "is not within 64 to 1048576"));
    }
}

static void test_pool(void **state) {
    (void)state;
    static const struct {
        struct view_options o;
        const char *sentence;
    } bad[] = {{{.pool = 447}, "a pool of 447 tokens is not within 448"},
               {{.pool = -1}, "a pool of -1 tokens"},
               {{.pool = VIEW_MAX_WINDOW + 1}, "to 1048576"},
               {{.pool = 448, .window = 64}, "give one of them"},
               {{.pool = 448, .policy = "fifo"}, "'fifo' is no policy of --kv-pool"}};
    static const struct view_options scorer = {.pool = 448, .policy = "scorer"};
    struct view_rule r, w;
    struct err e = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(view_rule_make(&r, &bad[i].o, &e), ERR_USAGE);
        assert_non_null(strstr(e.text, bad[i].sentence));
    }
    assert_int_equal(view_rule_make(&r, &(struct view_options){.pool = 449, .policy = "lru"}, &e),
                     0);
    assert_int_equal(r.pool, 512);
    assert_string_equal(view_policy(&r), "lru");
    assert_int_equal(view_rule_make(&w, &(struct view_options){.window = 384}, &e), 0);
    assert_int_equal(r.window, w.window);
    assert_int_equal(view_most_pages(&r, 10000) * KV_PAGE, r.pool);
    assert_int_equal(view_rule_make(&r, &scorer, &e), ERR_UNSUPPORTED);
    assert_int_equal(view_rule_make(&r, &(struct view_options){.pool = 1000}, &e), 0);
    assert_string_equal(view_policy(&r), "qk");
    assert_int_equal(r.window, VIEW_TAIL);
    assert_int_equal(r.chosen, 10);
    assert_int_equal(view_most_pages(&r, 10000) * KV_PAGE, r.pool);
    assert_int_equal(view_skipped(&r, 1023), 0);
    assert_int_equal(view_skipped(&r, 1024), 1);
    assert_false(view_rule_same(&r, &w));
}

// The best of some scores, where equal ones go to the lower page, and what a failed device leaves.
static void test_pick(void **state) {
    (void)state;
    enum { N = 40, RUNS = 200 };
    struct rng g = {3};
    for (int run = 0; run < RUNS; run++) {
        const struct view_rule r = {.window = VIEW_TAIL, .chosen = 1 + rng_below(&g, N - 1)};
        struct view_candidate order[N];
        double score[N];
        int32_t pages[N];
        for (int i = 0; i < N; i++)
            score[i] = run % 20 == 0 && rng_below(&g, 2) ? (double)NAN : rng_below(&g, 12);
        view_pick(&r, score, N, order, pages);
        for (int i = 0; i < N; i++) {
            int better = 0; // those that go before page i + 1
            bool in = false;
            for (int j = 0; j < N; j++)
                better += score[j] > score[i] || (isnan(score[i]) && !isnan(score[j])) ||
                          ((score[j] == score[i] || (isnan(score[j]) && isnan(score[i]))) && j < i);
            for (int j = 0; j < r.chosen; j++)
                in = in || pages[j] == i + 1;
            assert_true(in == (better < r.chosen));
        }
        for (int j = 1; j < r.chosen; j++)
            assert_true(pages[j] > pages[j - 1]);
    }
}

// Lists follow each other, are cut, copied, and begin anew elsewhere.
static void test_choices(void **state) {
    (void)state;
    const struct view_rule r = {.window = VIEW_TAIL, .chosen = 2};
    struct view_choices c = {0}, copy;
    for (int32_t page = 9; page < 14; page++) {
        assert_int_equal(view_choices_reserve(&c, &r, page, NULL), 0);
        view_choices_add(&c, &r, page, (const int32_t[]){1, page});
    }
    assert_null(view_choices_at(&c, &r, 8));
    assert_null(view_choices_at(&c, &r, 14));
    assert_int_equal(view_choices_at(&c, &r, 12)[1], 12);
    assert_int_equal(view_choices_copy(&copy, &c, &r, 11, NULL), 0);
    assert_int_equal(copy.n, 3);
    assert_int_equal(view_choices_at(&copy, &r, 11)[1], 11);
    view_choices_fini(&copy);
    view_choices_cut(&c, 10);
    assert_int_equal(c.n, 2);
    assert_int_equal(view_choices_reserve(&c, &r, 30, NULL), 0);
    view_choices_add(&c, &r, 30, (const int32_t[]){4, 5});
    assert_null(view_choices_at(&c, &r, 10));
    assert_int_equal(view_choices_at(&c, &r, 30)[0], 4);
    view_choices_cut(&c, -1);
    assert_int_equal(view_choices_copy(&copy, &c, &r, 30, NULL), 0);
    assert_true(c.n == 0 && copy.n == 0 && !copy.pages);
    view_choices_fini(&c);
}

static const int32_t some[] = {2, 5}; // pages that were chosen

// Whether the row at pos of a reply sees the key at `key`, by the words of view.h.
static bool sees(const struct view_rule *r, int64_t pos, int64_t key) {
    const int64_t page = pos / KV_PAGE * KV_PAGE;
    bool chosen = false;
    for (int64_t i = 0; i < r->chosen; i++)
        chosen = chosen || key / KV_PAGE == some[i];
    return key <= pos && (!r->window || key < VIEW_SINKS || key >= page - r->window || chosen);
}

// Between two ends all rows see the same pages; at an end some may not.
static void test_ends(void **state) {
    (void)state;
    const struct view_rule none = {0}, r = {.window = 128};
    assert_int_equal(view_end(&none, 50, 7), INT64_MAX);
    assert_int_equal(view_skipped(&none, 100000), 0);
    assert_int_equal(view_end(&r, 50, 0), 50);
    assert_int_equal(view_end(&r, 50, 49), 50);
    for (int64_t pos = 50; pos < 700; pos++) {
        const int64_t skipped = view_skipped(&r, pos), end = view_end(&r, 50, pos);
        int64_t hidden = 0;
        assert_int_equal(end % KV_PAGE, 0);
        assert_true(end > pos && end <= pos + KV_PAGE);
        assert_int_equal(view_skipped(&r, end - 1), skipped);
        for (int64_t key = 0; key <= pos; key++)
            hidden += !sees(&r, pos, key);
        assert_int_equal(hidden, skipped * KV_PAGE);
    }
    assert_int_equal(view_most_pages(&r, 10000), 4);
    assert_int_equal(view_most_pages(&r, 100), 2);
    assert_int_equal(view_most_pages(&none, 10000), 0);
}

// A text of random keys and values in a layer of one head, and rows of a chain after it.
enum { DIM = 32, HEADS = 2, LEN = 709, CHAIN = 3 };

struct text {
    struct exec *x;
    struct kv_layout layout;
    struct kv_pool *pool;
    struct kv kv;
    float k[LEN + CHAIN][DIM], v[LEN + CHAIN][DIM], q[CHAIN][HEADS][DIM];
};

static void put(const struct text *t, int64_t pos) {
    struct kv_slot s = kv_slot_at(&t->kv, pos);
    memcpy(kv_row_at(&t->layout, &t->layout.k, s.page, 0, 0, s.slot).codes, t->k[pos],
           sizeof t->k[pos]);
    memcpy(kv_row_at(&t->layout, &t->layout.v, s.page, 0, 0, s.slot).codes, t->v[pos],
           sizeof t->v[pos]);
}

static void text_init(struct text *t, const char *level) {
    const struct kv_shape one = {1, 1, DIM, DIM, false, KV_F32, KV_F32};
    const struct exec_limits limits = {.rows = CHAIN,
                                       .seqs = 1,
                                       .context = LEN + CHAIN,
                                       .tree = CHAIN,
                                       .n_heads = HEADS,
                                       .head_dim = DIM};
    struct rng g = {11};
    float *const all[] = {&t->k[0][0], &t->v[0][0], &t->q[0][0][0]};
    const size_t n[] = {sizeof t->k / sizeof(float), sizeof t->v / sizeof(float),
                        sizeof t->q / sizeof(float)};
    for (int a = 0; a < 3; a++)
        for (size_t i = 0; i < n[a]; i++)
            all[a][i] = rng_unit(rng_next(&g)) * 2 - 1;
    assert_int_equal(exec_create_cpu(&t->x, level, 1, NULL), 0);
    assert_int_equal(exec_reserve(t->x, &limits, NULL), 0);
    assert_int_equal(kv_layout_init(&t->layout, &one, NULL), 0);
    assert_int_equal(kv_pool_create(&t->pool, t->x, &t->layout, 0, NULL), 0);
    kv_init(&t->kv, t->pool, 0);
    assert_int_equal(kv_reserve(&t->kv, LEN + CHAIN, NULL), 0);
    for (int64_t i = 0; i < LEN + CHAIN; i++)
        put(t, i);
    kv_advance(&t->kv, LEN);
}

// The head of a row by the definition, over the keys that the rule lets it see.
static double plain(const struct text *t, const struct view_rule *r, int row, int head, int dim) {
    double score[LEN + CHAIN], max = -INFINITY, sum = 0, out = 0;
    const int64_t pos = LEN + row;
    for (int64_t i = 0; i <= pos; i++) {
        score[i] = 0;
        for (int d = 0; d < DIM; d++)
            score[i] += (double)t->q[row][head][d] * (double)t->k[i][d];
        if (sees(r, pos, i))
            max = fmax(max, score[i]);
    }
    for (int64_t i = 0; i <= pos; i++) {
        const double w = sees(r, pos, i) ? exp(score[i] - max) : 0;
        sum += w;
        out += w * (double)t->v[i][dim];
    }
    return out / sum;
}

static void run(struct text *t, const struct view_rule *r, struct act *out) {
    const int64_t skipped = view_skipped(r, LEN);
    unsigned char *table[LEN / KV_PAGE + 2];
    struct kv_view view = view_of(&t->kv, skipped, some, r->chosen, table);
    struct kv_slot store[CHAIN];
    int32_t token[CHAIN] = {0}, parent[CHAIN], seq[CHAIN] = {0};
    int64_t pos[CHAIN];
    for (int i = 0; i < CHAIN; i++) {
        parent[i] = i - 1;
        pos[i] = LEN + i - skipped * KV_PAGE;
        store[i] = kv_slot_at(&t->kv, LEN + i);
    }
    const struct rows rows = {CHAIN, token, parent, seq, pos, 0};
    const struct attend_args a = {
        .shape =
            {.n_heads = HEADS, .n_kv = 1, .dk = DIM, .dv = DIM, .scale = 1, .mask = ATTEND_PATH},
        .q = &t->q[0][0][0],
        .layout = &t->layout,
        .seqs = &view,
        .store = store,
        .out = out};
    exec_ops(t->x)->attend(t->x, &a, &rows);
}

static void test_attention(void **state) {
    (void)state;
    static const char *const levels[] = {"scalar", "auto"};
    static const int64_t windows[] = {0, 64, 192, 512, 1024};
    for (size_t l = 0; l < 2; l++) {
        struct text *t = calloc(1, sizeof *t);
        text_init(t, levels[l]);
        struct act *act;
        assert_int_equal(exec_ops(t->x)->act_create(t->x, CHAIN, (int64_t)HEADS * DIM, &act, NULL),
                         0);
        for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
            const struct view_rule r = {.window = windows[w], .chosen = windows[w] == 192 ? 2 : 0};
            run(t, &r, act);
            for (int i = 0; i < CHAIN * HEADS * DIM; i++) {
                const int row = i / (HEADS * DIM), head = i / DIM % HEADS;
                assert_float_equal(act->x[row * act->stride + i % (HEADS * DIM)],
                                   plain(t, &r, row, head, i % DIM), 1e-5);
            }
        }
        exec_ops(t->x)->act_destroy(t->x, act);
        kv_fini(&t->kv);
        kv_pool_destroy(t->pool);
        exec_destroy(t->x);
        free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rule), cmocka_unit_test(test_pool),
        cmocka_unit_test(test_pick), cmocka_unit_test(test_choices),
        cmocka_unit_test(test_ends), cmocka_unit_test(test_attention)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
