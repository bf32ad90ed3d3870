// SPDX-License-Identifier: Apache-2.0
// Rotary angles against numbers from published configurations, the bounds of attention's forms, and
// models that check their backend before they read weights.
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "models/draft/dflash/dflash.h"
#include "models/model.h"
#include "ops/exec.h"
#include "support/tiny_gguf.h"

static void near(double got, double want, double by) {
    if (!(fabs(got - want) <= by))
        fail_msg("%.9g is not within %g of %.9g", got, by, want);
}

// How much of its own angle a pair keeps: 1 before YaRN's ramp, 0 after it.
static double kept(const struct rope *r, int pair) {
    double angle[OPS_HEAD_MAX / 2];
    rope_angles(r, angle);
    double own = pow((double)r->base, -2.0 * pair / r->dims), slow = own / (double)r->factor;
    return (angle[pair] - slow) / (own - slow);
}

// gpt-oss: the ramp lies between pairs 8.09 and 17.40, and from 8 to 18 when rounded; DeepSeek V3:
// from 10 to 23; Kimi K2, with both betas 1: from 19 to 20.
static void test_yarn(void **state) {
    (void)state;
    struct rope oss = {.dims = 64,
                       .base = 150000,
                       .factor = 32,
                       .ramp = 1,
                       .beta_fast = 32,
                       .beta_slow = 1,
                       .trained = 4096,
                       .exact_ramp = true};
    near(kept(&oss, 8), 1, 1e-9);
    near(kept(&oss, 9), 1 - (9 - 8.09) / (17.40 - 8.09), 2e-3);
    near(kept(&oss, 17), 1 - (17 - 8.09) / (17.40 - 8.09), 2e-3);
    near(kept(&oss, 18), 0, 1e-9);
    oss.exact_ramp = false;
    near(kept(&oss, 13), 0.5, 1e-9);
    struct rope deep = {.dims = 64,
                        .base = 10000,
                        .factor = 40,
                        .ramp = 1,
                        .beta_fast = 32,
                        .beta_slow = 1,
                        .trained = 4096};
    near(kept(&deep, 10), 1, 1e-9);
    near(kept(&deep, 15), 1 - 5.0 / 13, 1e-9);
    near(kept(&deep, 23), 0, 1e-9);
    struct rope kimi = deep;
    kimi.base = 50000;
    kimi.beta_fast = 1;
    near(kept(&kimi, 19), 1, 1e-9);
    near(kept(&kimi, 20), 0, 1e-9);
}

// Without YaRN the angles are powers of the base, divided by factors.
static void test_factors(void **state) {
    (void)state;
    const float by[4] = {1, 2, 8, 1e30f};
    struct rope r = {.dims = 8, .base = 10000, .factors = by};
    double angle[OPS_HEAD_MAX / 2];
    rope_angles(&r, angle);
    near(angle[0], 1, 0);
    near(angle[1], 0.05, 1e-12);
    near(angle[2], 0.00125, 1e-12);
    near(angle[3], 0, 1e-30);
    const float same[4] = {1, 2, 8, 1e30f}, other[4] = {1, 2, 9, 1e30f};
    struct rope s = r;
    s.factors = same;
    assert_true(rope_same(&r, &s));
    s.factors = other;
    assert_false(rope_same(&r, &s));
    s.factors = NULL;
    assert_false(rope_same(&r, &s));
}

static void refuse(const struct ops_needs *n, const char *part) {
    struct err e = {0};
    assert_int_equal(exec_takes(NULL, n, &e), ERR_UNSUPPORTED);
    if (!strstr(e.text, part))
        fail_msg("'%s' lacks '%s'", e.text, part);
}

static void test_bounds(void **state) {
    (void)state;
    struct attend_args a = {.shape = {.n_heads = 4, .n_kv = 2, .dk = 64, .dv = 64}};
    struct qk_args q = {.dk = 64, .rope = {.dims = 64, .base = 1e4f}};
    const struct ops_needs needs = {.qk = &q, .attend = &a};
    assert_int_equal(exec_takes(NULL, &needs, NULL), 0);
    a.shape.n_kv = 3;
    refuse(&needs, "4 query heads over 3 kv heads");
    a.shape.n_kv = 2;
    a.shape.dv = OPS_HEAD_MAX + 1;
    refuse(&needs, "64 and 513 values");
    a.shape.dv = 64;
    q.rope.first = 2;
    refuse(&needs, "64 values from number 2 on");
    q.rope = (struct rope){.dims = 33, .base = 1e4f};
    refuse(&needs, "33 values");
    q.rope = (struct rope){.dims = 64, .base = 1e4f, .pairs = 2};
    refuse(&needs, "not kind 2");
    q.rope = (struct rope){.dims = 64};
    refuse(&needs, "base of 0");
    q.rope = (struct rope){.dims = 64, .base = 1e4f, .factor = 4, .ramp = 1};
    refuse(&needs, "YaRN");
}

static int refuses_windows, called;

static int takes(const struct exec *x, const struct ops_needs *n, struct err *e) {
    (void)x;
    if (!n->qk || !n->attend)
        return 0;
    called++;
    assert_int_equal(n->attend->layout->s.codec_v, KV_Q8_0);
    if (!refuses_windows || n->attend->shape.window)
        return err_set(e, ERR_UNSUPPORTED, "no kernel for anything");
    return 0;
}

static void test_models_check_cancel(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_draft_shape draft = tiny_draft_default(&shape);
    struct model_options o = model_options_default();
    struct dflash_options d = dflash_options_default();
    char path[64], draft_path[64];
    struct gguf *g;
    struct exec *x;
    struct model *m;
    struct dflash *guesses;
    struct err e = {0};
    draft.window = 24;
    o.codec_v = d.codec_v = KV_Q8_0;
    snprintf(path, sizeof path, "/tmp/coppice-attention-%d-t.gguf", (int)getpid());
    snprintf(draft_path, sizeof draft_path, "/tmp/coppice-attention-%d-d.gguf", (int)getpid());
    assert_int_equal(tiny_target_write(&shape, path, &e), 0);
    assert_int_equal(tiny_draft_write(&shape, &draft, draft_path, &e), 0);
    assert_int_equal(gguf_open(&g, path, &e), 0);
    assert_int_equal(exec_create_cpu(&x, "auto", 1, &e), 0);
    x->takes = takes;
    assert_int_equal(model_load(&m, x, g, &o, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "no kernel for anything"));
    assert_int_equal(called, 1);
    refuses_windows = 1;
    assert_int_equal(model_load(&m, x, g, &o, &e), 0);
    assert_int_equal(dflash_load(&guesses, m, draft_path, &d, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "no kernel for anything"));
    model_destroy(m);
    exec_destroy(x);
    gguf_close(g);
    unlink(path);
    unlink(draft_path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_yarn),
        cmocka_unit_test(test_factors),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_models_check_cancel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
