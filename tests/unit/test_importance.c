// SPDX-License-Identifier: Apache-2.0
// Sums of squares of what matrices are multiplied by, on every CPU level: what is summed, and that
// the results of the ops stay as they are.
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ops/observe/importance.h"

enum { K = 96, M = 40, N = 21 };

static float matrix[M * K], input[N * K];

static void fill(void) {
    for (int i = 0; i < M * K; i++)
        matrix[i] = sinf((float)i) * 0.1f;
    for (int i = 0; i < N * K; i++)
        input[i] = cosf((float)i * 0.7f) * (float)(1 + i % K % 5);
}

static struct weight *weight_named(struct exec *x, const char *name) {
    struct tensor t = {.name = name, .type = 0, .n_dims = 2, .ne = {K, M, 1, 1}};
    struct weight *w = NULL;
    struct err e = {0};
    t.bytes = sizeof matrix;
    t.data = matrix;
    if (exec_ops(x)->weight_create(x, &t, &w, &e))
        fail_msg("%s", e.text);
    return w;
}

// Two matrices by one call, one of them again with fewer rows, two by the gated op, and one whose
// name is not that of a layer.
static void run_ops(struct exec *x, float *out) {
    static const char *const names[] = {"blk.0.a.weight", "blk.0.b.weight", "blk.1.gate.weight",
                                        "blk.1.up.weight", "output.weight"};
    const struct ops *o = exec_ops(x);
    struct weight *w[5];
    struct act *in = NULL, *gated = NULL;
    struct err e = {0};
    for (int i = 0; i < 5; i++)
        w[i] = weight_named(x, names[i]);
    assert_int_equal(o->act_create(x, N, K, &in, &e), 0);
    assert_int_equal(o->act_create(x, N, M, &gated, &e), 0);
    o->to_act(x, input, N, K, in);
    struct linear_job jobs[2] = {{.w = w[0], .out = out}, {.w = w[1], .out = out + N * M}};
    o->linear(x, jobs, 2, in, N);
    jobs[1] = (struct linear_job){.w = w[4], .out = out + 2 * N * M};
    o->linear(x, &jobs[1], 1, in, N);
    o->linear_gate_up(x, &(struct gate_up){.gate = w[2], .up = w[3]}, in, N, gated);
    o->to_act(x, input + K, 2, K, in);
    o->linear(x, jobs, 1, in, 2);
    for (int i = 0; i < 5; i++)
        o->weight_destroy(x, w[i]);
    o->act_destroy(x, in);
    o->act_destroy(x, gated);
}

static double expected(int column, int first, int rows) {
    double sum = 0;
    for (int i = first; i < first + rows; i++)
        sum += (double)input[i * K + column] * (double)input[i * K + column];
    return sum;
}

static void check_sum(const struct imatrix_sum *s, const char *name, bool again) {
    assert_string_equal(s->name, name);
    assert_int_equal(s->columns, K);
    assert_int_equal(s->rows, N + (again ? 2 : 0));
    for (int k = 0; k < K; k++) {
        double want = expected(k, 0, N) + (again ? expected(k, 1, 2) : 0);
        if (!(fabs(s->squares[k] - want) <= 1e-9 * want))
            fail_msg("%s, column %d: %g, not %g", name, k, s->squares[k], want);
    }
}

static void sums_what_matrices_read(void **state) {
    (void)state;
    static const char *const levels[] = {"scalar", "avx2",    "avx512", "amx",
                                         "neon",   "dotprod", "i8mm"};
    static float plain[3 * N * M], summed[3 * N * M];
    fill();
    for (int l = 0; l < (int)(sizeof levels / sizeof levels[0]); l++) {
        struct exec *x = NULL;
        struct err e = {0};
        size_t n;
        if (exec_create_cpu(&x, levels[l], 2, &e))
            continue; // this machine lacks the level
        assert_null(importance_sums(x, &n));
        assert_int_equal(n, 0);
        run_ops(x, plain);
        assert_int_equal(importance_prepare(x, &e), 0);
        run_ops(x, summed);
        assert_memory_equal(plain, summed, sizeof plain);
        const struct imatrix_sum *s = importance_sums(x, &n);
        assert_int_equal(n, 4);
        check_sum(&s[0], "blk.0.a.weight", true);
        check_sum(&s[1], "blk.0.b.weight", false);
        check_sum(&s[2], "blk.1.gate.weight", false);
        check_sum(&s[3], "blk.1.up.weight", false);
        exec_destroy(x);
    }
}

// Of experts: what each of them reads, by both ops.
static void sums_by_expert(void **state) {
    (void)state;
    enum { EXPERTS = 4, ROWS = 5, USED = 2, WIDTH = M / EXPERTS };
    static const int32_t ids[ROWS * USED] = {0, 3, 3, 1, 0, 1, 1, 3, 0, 3}; // none takes 2
    static float out[ROWS * USED * WIDTH];
    struct exec *x = NULL;
    struct act *in = NULL;
    struct weight *w = NULL;
    struct err e = {0};
    size_t n;
    fill();
    assert_int_equal(exec_create_cpu(&x, "auto", 2, &e), 0);
    assert_int_equal(importance_prepare(x, &e), 0);
    const struct ops *o = exec_ops(x);
    struct tensor t = {.name = "blk.0.up_exps.weight",
                       .n_dims = 3,
                       .ne = {K, WIDTH, EXPERTS, 1},
                       .bytes = sizeof matrix,
                       .data = matrix};
    assert_int_equal(o->weight_create(x, &t, &w, &e), 0);
    assert_int_equal(o->act_create(x, ROWS * USED, K, &in, &e), 0);
    o->to_act(x, input, ROWS * USED, K, in);
    struct moe_linear_args a = {.w = w, .list = {ROWS, USED, ids}, .in = in, .out = out};
    o->moe_linear(x, &a); // entry i reads row i / USED
    a.entries = true;
    o->moe_linear(x, &a); // and now row i
    const struct imatrix_sum *s = importance_sums(x, &n);
    assert_int_equal(n, 1);
    assert_int_equal(s->experts, EXPERTS);
    for (int expert = 0; expert < EXPERTS; expert++) {
        int64_t count = 0;
        for (int i = 0; i < ROWS * USED; i++)
            count += 2 * (ids[i] == expert);
        assert_int_equal(s->counts[expert], count);
    }
    for (int i = 0; i < EXPERTS * K; i++) {
        double want = 0, got = s->squares[i];
        for (int j = 0; j < ROWS * USED; j++)
            if (ids[j] == i / K)
                want += expected(i % K, j / USED, 1) + expected(i % K, j, 1);
        if (!(fabs(got - want) <= 1e-9 * want))
            fail_msg("expert %d, column %d: %g, not %g", i / K, i % K, got, want);
    }
    o->weight_destroy(x, w);
    o->act_destroy(x, in);
    exec_destroy(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_what_matrices_read),
                                       cmocka_unit_test(sums_by_expert)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
