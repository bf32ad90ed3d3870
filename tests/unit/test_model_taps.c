// SPDX-License-Identifier: Apache-2.0
// What readers of a model are given: the hidden state after the output norm is the norm of the last
// layer's output, to the bit, for rows of every kind; it depends on the tokens alone, however they
// were grouped; and reading changes nothing. Taps that a model does not have are refused.
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "ops/exec.h"
#include "support/tap_reader.h"
#include "support/tiny_rig.h"
#include "unit/test.h"

enum { LONG = 150, TREE = 24 };

static const int32_t normed_only[] = {MODEL_TAP_NORMED};

struct taps {
    struct tiny_rig r;
    struct tap_reader last, normed;
    const float *weight; // of the output norm, in the file
    float *want;         // [D]
};

static void open_taps(struct taps *t, const struct tiny_shape *shape) {
    const int32_t last = shape->layers - 1;
    tiny_rig_open(&t->r, shape, NULL, NULL, "auto", 2);
    assert_int_equal(tap_reader_open(&t->last, t->r.m, "last", &last, 1, &t->r.e), 0);
    assert_int_equal(tap_reader_open(&t->normed, t->r.m, "normed", normed_only, 1, &t->r.e), 0);
    const struct tensor *w = gguf_tensor(t->r.g, "output_norm.weight");
    assert_non_null(w);
    t->weight = w->data;
    t->want = calloc((size_t)t->normed.width, sizeof *t->want);
    assert_non_null(t->want);
}

static void close_taps(struct taps *t) {
    free(t->want);
    tap_reader_close(&t->normed);
    tap_reader_close(&t->last);
    tiny_rig_close(&t->r);
}

static void check_rows(struct taps *t, int64_t n) {
    const int64_t dim = t->normed.width;
    const float eps = model_params_of(t->r.m)->eps;
    for (int64_t i = 0; i < n; i++) {
        const float *h = tap_reader_row(&t->last, i), *got = tap_reader_row(&t->normed, i);
        double sum = 0;
        for (int64_t j = 0; j < dim; j++)
            sum += (double)h[j] * h[j];
        double factor = 1 / sqrt(sum / (double)dim + eps);
        for (int64_t j = 0; j < dim; j++)
            if (!(fabs(got[j] - h[j] * factor * t->weight[j]) <= 1e-5 * (1 + fabs(got[j]))))
                fail_msg("row %d, value %d is %g", (int)i, (int)j, (double)got[j]);
        exec_ops(t->r.x)->norm(
            t->r.x, &(struct norm_args){
                        .in = h, .w = t->weight, .eps = eps, .n = 1, .k = dim, .out = t->want});
        assert_memory_equal(got, t->want, (size_t)dim * sizeof *got);
    }
}

// A chain, a tree, and a piece of a prompt of one sequence beside a tree of another.
static void check_form(const struct tiny_shape *shape) {
    static struct taps t;
    int32_t tokens[LONG];
    open_taps(&t, shape);
    struct tiny_rig *r = &t.r;
    struct sequence *s[2] = {tiny_rig_sequence(r), tiny_rig_sequence(r)};
    tiny_rig_tokens(r, 8, tokens, LONG);
    tiny_rig_prompt(r, s[0], tokens, 70, 70, NULL, NULL);
    check_rows(&t, 70);
    tiny_rig_tree(r, s[0], 3, TREE, 8);
    assert_int_equal(model_forward(r->m, &r->f, s, 1, &r->e), 0);
    check_rows(&t, TREE);
    forest_reset(&r->f);
    forest_chain(&r->f, 0, sequence_len(s[0]), tokens + 70, 20, true);
    int32_t root = forest_root(&r->f, 1, 0, tokens[0], true);
    for (int i = 0; i < 5; i++)
        forest_add(&r->f, i < 3 ? root : root + i - 2, tokens[1 + i], true);
    assert_int_equal(model_forward(r->m, &r->f, s, 2, &r->e), 0);
    check_rows(&t, 26);
    sequence_destroy(s[0]);
    sequence_destroy(s[1]);
    close_taps(&t);
}

static void rows_of_every_kind(void **state) {
    (void)state;
    static const enum tiny_form forms[] = {TINY_FORM_QWEN3, TINY_FORM_GEMMA4, TINY_FORM_GLM,
                                           TINY_FORM_DEEPSEEK};
    struct tiny_shape shape = tiny_shape_default();
    check_form(&shape);
    for (int i = 0; i < 4; i++) {
        shape = tiny_shape_plain();
        shape.form = forms[i];
        if (i == 1)
            shape.kv_heads = 1;
        if (i >= 2) {
            shape.rope_dims = shape.head_dim / 2;
            tiny_shape_experts(&shape);
        }
        check_form(&shape);
    }
}

// Appends tokens[first .. LONG) by trees in which they are one path, of 1 to 6 rows.
static void grow_by_trees(struct tiny_rig *r, struct sequence *s, const int32_t *tokens) {
    struct rng g = {5};
    for (int64_t at = sequence_len(s); at < LONG;) {
        int32_t path[6];
        struct model_path p = {.rows = path, .count = 1 + rng_below(&g, 6)};
        p.count = p.count < LONG - at ? p.count : LONG - at;
        forest_reset(&r->f);
        path[0] = forest_root(&r->f, 0, at, tokens[at], false);
        for (int64_t i = 1; i < p.count; i++) {
            if (rng_below(&g, 2)) // one that is not taken stands before
                forest_add(&r->f, path[i - 1], (tokens[at + i] + 1) % r->shape.vocab, false);
            path[i] = forest_add(&r->f, path[i - 1], tokens[at + i], false);
        }
        assert_int_equal(model_forward(r->m, &r->f, &s, 1, &r->e), 0);
        assert_int_equal(model_commit(r->m, &s, &p, 1, &r->e), 0);
        at += p.count;
    }
}

static void it_depends_on_tokens_alone(void **state) {
    (void)state;
    static struct taps t;
    static const int64_t chunks[] = {1, 64, 7};
    struct tiny_shape shape = tiny_shape_default();
    struct sequence *s[4];
    int32_t tokens[LONG];
    open_taps(&t, &shape);
    tiny_rig_tokens(&t.r, 9, tokens, LONG);
    for (int i = 0; i < 4; i++) {
        s[i] = tiny_rig_sequence(&t.r);
        if (i < 3)
            tiny_rig_prompt(&t.r, s[i], tokens, LONG, chunks[i], NULL, NULL);
        else
            grow_by_trees(&t.r, s[i], tokens);
        assert_int_equal(sequence_len(s[i]), LONG);
        assert_memory_equal(tap_reader_seen(&t.normed, s[i]), tap_reader_seen(&t.normed, s[0]),
                            LONG * sizeof(uint64_t));
    }
    const uint64_t *seen = tap_reader_seen(&t.normed, s[0]);
    for (int i = 1; i < LONG; i++)
        assert_true(seen[i] != seen[i - 1]);
    for (int i = 0; i < 4; i++)
        sequence_destroy(s[i]);
    close_taps(&t);
}

static void reading_changes_nothing(void **state) {
    (void)state;
    static struct taps t;
    static float logits[2][(LONG + TREE) * TINY_VOCAB];
    struct tiny_shape shape = tiny_shape_default();
    int32_t tokens[LONG];
    for (int i = 0; i < 2; i++) {
        if (i)
            open_taps(&t, &shape);
        else
            tiny_rig_open(&t.r, &shape, NULL, NULL, "auto", 2);
        struct sequence *s = tiny_rig_sequence(&t.r);
        tiny_rig_tokens(&t.r, 10, tokens, LONG);
        tiny_rig_prompt(&t.r, s, tokens, LONG, 50, logits[i], NULL);
        tiny_rig_tree(&t.r, s, 4, TREE, 8);
        assert_int_equal(model_forward(t.r.m, &t.r.f, &s, 1, &t.r.e), 0);
        tiny_rig_logits(&t.r, 0, TREE, logits[i] + LONG * TINY_VOCAB);
        sequence_destroy(s);
        if (i)
            close_taps(&t);
        else
            tiny_rig_close(&t.r);
    }
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
}

static void taps_that_are_not_there(void **state) {
    (void)state;
    static const int32_t bad[][2] = {{4, 0}, {-2, 0}, {0, MODEL_TAP_NORMED}, {MODEL_TAP_NORMED, 0}};
    struct tiny_shape shape = tiny_shape_default();
    struct tap_reader t = {0};
    struct tiny_rig r;
    tiny_rig_open(&r, &shape, NULL, NULL, "auto", 1);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(tap_reader_open(&t, r.m, "reader", bad[i], 2, &r.e), ERR_USAGE);
        assert_non_null(strstr(r.e.text, "layers 0 to 3"));
    }
    const struct ops *all = r.x->ops;
    struct ops some = *all;
    some.norm = NULL;
    r.x->ops = &some;
    assert_int_equal(tap_reader_open(&t, r.m, "reader", normed_only, 1, &r.e), ERR_UNSUPPORTED);
    assert_non_null(strstr(r.e.text, "norm"));
    r.x->ops = all;
    assert_int_equal(tap_reader_open(&t, r.m, "reader", normed_only, 1, &r.e), 0);
    tap_reader_close(&t);
    tiny_rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_every_kind),
        cmocka_unit_test(it_depends_on_tokens_alone),
        cmocka_unit_test(reading_changes_nothing),
        cmocka_unit_test(taps_that_are_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
