// SPDX-License-Identifier: Apache-2.0
// One rank: its reduction is one linear layer that adds, bit for bit; a pass adds into the residual
// stream there and nowhere else; more ranks are refused.
#include "test.h"

#include "models/ranks.h"
#include "ops/exec.h"
#include "support/tiny_rig.h"

static void only_one_rank_can_be(void **state) {
    (void)state;
    struct ranks r = {0};
    struct err e = {0};
    assert_int_equal(ranks_init(&r, 1, 0, &e), 0);
    assert_int_equal(r.n, 1);
    assert_int_equal(ranks_init(&r, 2, 0, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "2 devices"));
    assert_int_equal(ranks_init(&r, 1, 1, &e), ERR_USAGE);
    assert_int_equal(ranks_init(&r, 0, 0, &e), ERR_USAGE);
}

static void a_model_refuses_more_ranks(void **state) {
    (void)state;
    struct tiny_rig r;
    struct tiny_shape s = tiny_shape_default();
    struct err e = {0};
    struct model *m = NULL;
    tiny_rig_open(&r, &s, NULL, NULL, "auto", 1);
    struct model_options o = model_options_default();
    o.ranks = 2;
    assert_int_equal(model_load(&m, r.x, r.g, &o, &e), ERR_UNSUPPORTED);
    assert_null(m);
    tiny_rig_close(&r);
}

// A table in front of the exec's own that counts linear layers.
static const struct ops *real;
static struct {
    int layers, adding;
} seen;

static void count_linear(struct exec *x, const struct linear_job *jobs, int n_jobs,
                         const struct act *in, int64_t n) {
    seen.layers += n_jobs;
    for (int i = 0; i < n_jobs; i++)
        seen.adding += jobs[i].add;
    real->linear(x, jobs, n_jobs, in, n);
}

static void each_layer_reduces_twice(void **state) {
    (void)state;
    struct tiny_rig r;
    struct tiny_shape s = tiny_shape_default();
    int32_t tokens[5];
    float logits[512];
    tiny_rig_open(&r, &s, NULL, NULL, "auto", 1);
    struct sequence *q = tiny_rig_sequence(&r);
    tiny_rig_tokens(&r, 3, tokens, 5);
    struct ops counting = *exec_ops(r.x);
    real = r.x->ops;
    counting.linear = count_linear;
    r.x->ops = &counting;
    seen.layers = seen.adding = 0;
    tiny_rig_prompt(&r, q, tokens, 5, 8, NULL, logits);
    r.x->ops = real;
    assert_int_equal(seen.adding, 2 * s.layers);
    // q, k, v or u, z, alpha, beta; the block's end; down; and the head.
    int full = s.layers / s.interval;
    assert_int_equal(seen.layers, 5 * full + 6 * (s.layers - full) + 1);
    sequence_destroy(q);
    tiny_rig_close(&r);
}

static void one_rank_reduces_as_a_layer_that_adds(void **state) {
    (void)state;
    enum { K = 64, M = 32, N = 3 };
    static float values[M * K], in[N * K], bias[M], a[N * M], b[N * M];
    struct exec *x = NULL;
    struct weight *w = NULL;
    struct act *act = NULL;
    struct err e = {0};
    for (int i = 0; i < M * K; i++)
        values[i] = (float)(i % 37) / 19.0f - 0.9f;
    for (int i = 0; i < N * K; i++)
        in[i] = (float)(i % 29) / 7.0f - 2.0f;
    for (int i = 0; i < M; i++)
        bias[i] = (float)i;
    for (int i = 0; i < N * M; i++)
        a[i] = b[i] = (float)i / 3.0f;
    struct tensor t = {.n_dims = 2, .ne = {K, M, 1, 1}, .data = values, .bytes = sizeof values};
    assert_int_equal(exec_create_cpu(&x, "auto", 1, &e), 0);
    assert_int_equal(exec_ops(x)->weight_create(x, &t, &w, &e), 0);
    assert_int_equal(exec_ops(x)->act_create(x, N, K, &act, &e), 0);
    exec_ops(x)->to_act(x, in, N, K, act);
    struct linear_job job = {.w = w, .out = a, .add = true, .bias = bias};
    exec_ops(x)->linear(x, &job, 1, act, N);
    linear_reduce(&ranks_one, x, &(struct linear_job){.w = w, .out = b, .add = true, .bias = bias},
                  act, N);
    assert_memory_equal(a, b, sizeof a);
    assert_true(a[5] != 5.0f / 3.0f);
    exec_ops(x)->act_destroy(x, act);
    exec_ops(x)->weight_destroy(x, w);
    exec_destroy(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_one_rank_can_be),
        cmocka_unit_test(a_model_refuses_more_ranks),
        cmocka_unit_test(each_layer_reduces_twice),
        cmocka_unit_test(one_rank_reduces_as_a_layer_that_adds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
