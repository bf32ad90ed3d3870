// SPDX-License-Identifier: Apache-2.0
// Ops that treat values one by one: scaling with a soft cap, and activations of two arrays.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck/families.h"
#include "opcheck/opcheck.h"

enum { N = 7, K = 1120, GATE = K + 32, UP = 3 * K }; // rows, values, strides

static bool has_values(struct check *c) {
    const bool scale = CHECK_HAS(c, scale), activate = CHECK_HAS(c, activate);
    return scale && activate;
}

// x, which is [N][K], scaled by 3 and capped in place.
static void run_scale(struct check *c, struct exec *x, float *v, float cap) {
    struct buffers r;
    buffers_open(&r, c, x);
    float *on = buffers_io(&r, v, (size_t)N * K * sizeof *v);
    exec_ops(x)->scale(x, &(struct scale_args){on, (int64_t)N * K, 3, cap});
    buffers_close(&r);
}

// Rows first .. first + n - 1 of gate [N][GATE] and up [N][UP].
struct activate_case {
    const float *gate, *up;
    int first, n;
    enum activation activation;
};

static void run_activate(struct check *c, struct exec *x, const struct activate_case *w,
                         float *out) {
    struct buffers r;
    buffers_open(&r, c, x);
    const float *gate = buffers_in(&r, w->gate, (size_t)N * GATE * sizeof *gate);
    const float *up = buffers_in(&r, w->up, (size_t)N * UP * sizeof *up);
    struct act *act = act_new(x, w->n, K);
    exec_ops(x)->activate(x, &(struct activate_args){.gate = gate + (int64_t)w->first * GATE,
                                                     .up = up + (int64_t)w->first * UP,
                                                     .gate_stride = GATE,
                                                     .up_stride = UP,
                                                     .n = w->n,
                                                     .k = K,
                                                     .activation = w->activation,
                                                     .out = act});
    read_act(x, act, w->n, K, out);
    exec_ops(x)->act_destroy(x, act);
    buffers_close(&r);
}

void check_values(struct check *c) {
    if (!has_values(c))
        return;
    for (int capped = 0; capped < 2; capped++) {
        struct tally t = {0};
        float *a = random_floats(&c->rng, N * K, 20), *b = malloc(N * K * sizeof *b);
        if (!b)
            abort();
        memcpy(b, a, N * K * sizeof *b);
        run_scale(c, c->spec, a, capped ? 30 : 0);
        run_scale(c, c->exec, b, capped ? 30 : 0);
        tally_add(&t, a, b, N * K);
        report_tally(c, &t, true, 1e-6, "scale", capped ? "with a cap" : "without a cap");
        free(a);
        free(b);
    }
    float *gate = random_floats(&c->rng, N * GATE, 9), *up = random_floats(&c->rng, N * UP, 9);
    float *a = calloc(N * K, sizeof *a), *b = calloc(N * K, sizeof *b);
    struct tally t = {0};
    for (int i = 0; a && b && i < 3; i++) {
        struct activate_case w = {gate, up, 0, N, (enum activation)i};
        run_activate(c, c->spec, &w, a);
        run_activate(c, c->exec, &w, b);
        tally_add(&t, a, b, N * K);
    }
    report_tally(c, &t, a && b, 1e-3, "activate", "three activations");
    free(gate);
    free(up);
    free(a);
    free(b);
}

// Bits of a row among others and alone.
void check_values_rule(struct check *c) {
    if (!has_values(c))
        return;
    float *gate = random_floats(&c->rng, N * GATE, 9), *up = random_floats(&c->rng, N * UP, 9);
    float *all = calloc(N * K, sizeof *all), *one = calloc(K, sizeof *one);
    int64_t diff = all && one ? 0 : 1;
    run_activate(c, c->exec, &(struct activate_case){gate, up, 0, N, ACTIVATION_GELU_TANH}, all);
    for (int i = 0; i < N; i++) {
        run_activate(c, c->exec, &(struct activate_case){gate, up, i, 1, ACTIVATION_GELU_TANH},
                     one);
        diff += bit_differences(all + (int64_t)i * K, one, K);
    }
    report(c, diff == 0, "activate: rule E1", "rows alone", "%lld values differ", (long long)diff);
    free(gate);
    free(up);
    free(all);
    free(one);
}

void check_values_double(struct check *c) {
    if (!has_values(c))
        return;
    float *v = random_floats(&c->rng, N * K, 20), *want = malloc(N * K * sizeof *want);
    for (int i = 0; want && i < N * K; i++)
        want[i] = (float)(30 * tanh(3 * (double)v[i] / 30));
    run_scale(c, c->exec, v, 30);
    double worst = want ? relative_error(v, want, N * K) : INFINITY;
    report(c, worst < 1e-6, "scale / double", "with a cap", "relative error %.1e (max 1e-6)",
           worst);
    free(v);
    free(want);
}
