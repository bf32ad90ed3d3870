// SPDX-License-Identifier: Apache-2.0
// linear and gather_rows over every weight type; linear_gate_up is in check_gate_up.c.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck/families.h"

enum { GROUP = 32 };

// Relative errors of a device: 2^-11 each for weight and activation when all errors agree, 3e-4 on
// average over many outputs; a few outputs whose terms cancel lie above that (what rounding allows
// each of them is checked together with it). Embedding rows are weights,
// the scale of which may be rounded to 11 bits as well.
static const double DEVICE_ERROR = 0x1p-10, DEVICE_GATHER = 0x1p-11;

// out = in W^T on one exec, in the job's form: with add, with a bias (host).
static void run_biased(struct check *c, struct exec *x, const struct matrix *m, const float *in,
                       int64_t n, float *out, const struct linear_job *form) {
    const struct ops *o = exec_ops(x);
    struct weight *w = matrix_pack(x, m);
    struct act *a = act_new(x, n, m->t.ne[0]);
    struct buffers r;
    buffers_open(&r, c, x);
    o->to_act(x, buffers_in(&r, in, (size_t)(n * m->t.ne[0]) * sizeof *in), n, m->t.ne[0], a);
    float *to = buffers_io(&r, out, (size_t)(n * m->t.ne[1]) * sizeof *out);
    const float *bias = form->bias;
    if (bias)
        bias = buffers_in(&r, bias, (size_t)m->t.ne[1] * sizeof *bias);
    struct linear_job job = {.w = w, .out = to, .add = form->add, .bias = bias};
    o->linear(x, &job, 1, a, n);
    buffers_close(&r);
    o->act_destroy(x, a);
    o->weight_destroy(x, w);
}

static void run_linear(struct check *c, struct exec *x, const struct matrix *m, const float *in,
                       int64_t n, float *out, bool add) {
    run_biased(c, x, m, in, n, out, &(struct linear_job){.add = add});
}

static bool has_linear(struct check *c) {
    bool weights = CHECK_HAS(c, weight_create), linear = CHECK_HAS(c, linear);
    return CHECK_HAS(c, to_act) && weights && linear; // each absence is reported
}

// Levels of a CPU against each other. A device rounds activations otherwise: see
// check_linear_double.
void check_linear(struct check *c) {
    static const int counts[] = {1, 2, 3, 5, 8, 16, 17, 33};
    if (c->device)
        return;
    for (int t = 0; t < TYPES; t++) {
        struct tally d = {0};
        bool guards = true;
        const struct quant_format *f = quant_format(weight_types[t]);
        for (int s = 0; s < 8; s++) {
            int64_t k = random_k(&c->rng, f), m = between(&c->rng, 1, 70), n = counts[s];
            struct matrix w = matrix_new(&c->rng, weight_types[t], k, m);
            float *in = malloc((size_t)(n * k) * sizeof *in);
            fill_random(&c->rng, in, n * k, 3);
            for (int64_t i = 0; i < n * k && s % 3 == 2; i++)
                in[i] *= 0x1p-120f; // products around the smallest normal number
            for (int64_t i = 0; i < n * k && s % 3 == 1; i++)
                in[i] = i / k % 2 ? -1 : 1; // largest codes, whose partial sums are the largest
            struct guarded a = guarded_new(n * m), b = guarded_new(n * m);
            run_linear(c, c->spec, &w, in, n, a.p, false);
            run_linear(c, c->exec, &w, in, n, b.p, false);
            tally_add(&d, a.p, b.p, n * m);
            run_linear(c, c->spec, &w, in, n, a.p, true);
            run_linear(c, c->exec, &w, in, n, b.p, true);
            tally_add(&d, a.p, b.p, n * m);
            guards = guarded_free(&a) && guarded_free(&b) && guards;
            free(in);
            matrix_free(&w);
        }
        report_tally(c, &d, guards, 0, "linear", f->name);
    }
}

// Embedding rows are the decoder's own values; a device may round them as its weights.
static void check_gather(struct check *c) {
    struct tally d = {0};
    bool guards = true;
    if (!CHECK_HAS(c, gather_rows))
        return;
    for (int t = 0; t < TYPES; t++) {
        const struct quant_format *f = quant_format(weight_types[t]);
        int64_t k = random_k(&c->rng, f), m = 50;
        struct matrix w = matrix_new(&c->rng, weight_types[t], k, m);
        struct weight *p = matrix_pack(c->exec, &w);
        int32_t ids[7];
        float *row = malloc((size_t)k * sizeof *row);
        struct guarded out = guarded_new(7 * k);
        struct buffers r;
        for (int i = 0; i < 7; i++)
            ids[i] = (int32_t)rng_below(&c->rng, (uint32_t)m);
        buffers_open(&r, c, c->exec);
        exec_ops(c->exec)->gather_rows(c->exec, p, ids, 7,
                                       buffers_io(&r, out.p, (size_t)(7 * k) * sizeof(float)));
        buffers_close(&r);
        for (int i = 0; i < 7; i++) {
            f->dequantize((const char *)w.t.data + ids[i] * quant_row_bytes(f, k), row, k);
            tally_add(&d, row, out.p + i * k, k);
        }
        guards = guarded_free(&out) && guards;
        exec_ops(c->exec)->weight_destroy(c->exec, p);
        free(row);
        matrix_free(&w);
    }
    report_tally(c, &d, guards, DEVICE_GATHER, "gather_rows", "all types");
}

// Several matrices of different types that read the same rows, in one call: the bits that each has
// on its own. out[i]: [n][m of matrix i]; every second one is added to.
static void run_together(struct check *c, const struct matrix *m, int count, const float *in,
                         int64_t n, float *const *out) {
    const struct ops *o = exec_ops(c->exec);
    int64_t k = m[0].t.ne[0];
    struct linear_job jobs[8];
    struct weight *w[8];
    struct act *a = act_new(c->exec, n, k);
    struct buffers r;
    buffers_open(&r, c, c->exec);
    o->to_act(c->exec, buffers_in(&r, in, (size_t)(n * k) * sizeof *in), n, k, a);
    for (int i = 0; i < count; i++) {
        w[i] = matrix_pack(c->exec, &m[i]);
        float *to = buffers_io(&r, out[i], (size_t)(n * m[i].t.ne[1]) * sizeof *out[i]);
        jobs[i] = (struct linear_job){.w = w[i], .out = to, .add = i % 2 == 1};
    }
    o->linear(c->exec, jobs, count, a, n);
    buffers_close(&r);
    o->act_destroy(c->exec, a);
    for (int i = 0; i < count; i++)
        o->weight_destroy(c->exec, w[i]);
}

static void check_several(struct check *c) {
    static const uint32_t forms[] = {TYPE_Q6_K, TYPE_Q4_K, TYPE_Q8_0, TYPE_Q5_K,
                                     TYPE_Q4_0, TYPE_Q2_K, TYPE_Q3_K, TYPE_IQ3_S};
    static const int counts[] = {1, 8, 9, 16, 24, 25, 32, 33, 130};
    enum { FORMS = 8, ON_CPU = 5, MOST = 330 };
    const int count = c->device ? FORMS : ON_CPU; // a CPU has few forms, and takes fewer jobs
    int64_t worst = 0, seen = 0;
    for (size_t s = 0; s < sizeof counts / sizeof counts[0]; s += c->brief ? 3 : 1) {
        int64_t k = s % 2 ? 1280 : 4352, n = counts[s];
        struct matrix m[FORMS];
        float *in = malloc((size_t)(n * k) * sizeof *in), *alone[FORMS], *both[FORMS];
        fill_random(&c->rng, in, n * k, 2);
        for (int i = 0; i < count; i++) {
            m[i] = matrix_new(&c->rng, forms[i], k, between(&c->rng, 1, MOST));
            int64_t values = n * m[i].t.ne[1];
            alone[i] = malloc((size_t)values * sizeof *alone[i]);
            both[i] = malloc((size_t)values * sizeof *both[i]);
            fill_random(&c->rng, alone[i], values, 1);
            memcpy(both[i], alone[i], (size_t)values * sizeof *both[i]);
            run_linear(c, c->exec, &m[i], in, n, alone[i], i % 2 == 1);
        }
        run_together(c, m, count, in, n, both);
        for (int i = 0; i < count; i++) {
            worst += bit_differences(alone[i], both[i], n * m[i].t.ne[1]);
            seen += n * m[i].t.ne[1];
            free(alone[i]);
            free(both[i]);
            matrix_free(&m[i]);
        }
        free(in);
    }
    report(c, worst == 0, "linear: rule E1", "several types in one call",
           "%lld of %lld values differ", (long long)worst, (long long)seen);
}

// A bias is one more addition after everything else.
static void check_bias(struct check *c) {
    enum { M = 83, N = 37 };
    int64_t differ = 0;
    if (!check_takes(c, &(struct ops_needs){.bias = true}, "linear"))
        return;
    for (int t = 0; t < TYPES; t++) {
        int64_t k = random_k(&c->rng, quant_format(weight_types[t]));
        struct matrix m = matrix_new(&c->rng, weight_types[t], k, M);
        float *in = malloc((size_t)(N * k) * sizeof *in), bias[M], out[2][N * M];
        fill_random(&c->rng, in, N * k, 2);
        fill_random(&c->rng, bias, M, 2);
        fill_random(&c->rng, out[0], N * M, 2);
        memcpy(out[1], out[0], sizeof out[1]);
        run_linear(c, c->exec, &m, in, N, out[0], t % 2);
        run_biased(c, c->exec, &m, in, N, out[1], &(struct linear_job){.add = t % 2, .bias = bias});
        for (int i = 0; i < N * M; i++)
            out[0][i] += bias[i % M];
        differ += bit_differences(out[0], out[1], N * M);
        free(in);
        matrix_free(&m);
    }
    report(c, differ == 0, "linear: bias", "all types", "%lld values differ", (long long)differ);
}

// A device's kernels for very many rows with several tiles a block, against fewer rows.
static void check_many_tiles(struct check *c) {
    enum { PIECE = 500 };
    static const struct {
        uint32_t type;
        int64_t k, m, n;
        bool add;
    } cases[] = {{TYPE_Q4_K, 1280, 4352, 1700, true},
                 {TYPE_Q6_K, 1024, 8448, 1150, false},
                 {TYPE_Q4_K, 1024, 8448, 1150, true},
                 {TYPE_Q5_K, 1024, 5632, 768, true}};
    int64_t worst = 0, seen = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int64_t k = cases[i].k, m = cases[i].m, n = cases[i].n;
        struct matrix w = matrix_new(&c->rng, cases[i].type, k, m);
        float *in = random_floats(&c->rng, n * k, 2), *all = random_floats(&c->rng, n * m, 2);
        float *some = malloc((size_t)(n * m) * sizeof *some);
        memcpy(some, all, (size_t)(n * m) * sizeof *some);
        run_linear(c, c->exec, &w, in, n, all, cases[i].add);
        for (int64_t at = 0; at < n; at += PIECE)
            run_linear(c, c->exec, &w, in + at * k, n - at < PIECE ? n - at : PIECE, some + at * m,
                       cases[i].add);
        worst += bit_differences(all, some, n * m);
        seen += n * m;
        free(in);
        free(all);
        free(some);
        matrix_free(&w);
    }
    report(c, worst == 0, "linear: rule E1", "n = 500, 768 to 1700; many tiles",
           "%lld of %lld values differ", (long long)worst, (long long)seen);
}

// Bits of a row: alone, among 16, among 300 and more, in another slot, with other threads or the
// other path.
void check_linear_rule(struct check *c) {
    int64_t worst = 0, seen = 0;
    if (!has_linear(c))
        return;
    for (int t = 0; t < TYPES; t++) {
        const struct quant_format *f = quant_format(weight_types[t]);
        // On a device, long enough to be cut into parts that are not of one length.
        // Every fourth type is short, so that there is one part.
        int64_t k = f->block == 256 ? 512 : 320;
        if (c->device && t % 4)
            k = f->block == 256 ? 4352 : 4160;
        // Rows of outputs that lie on 16 bytes, and others.
        int64_t m = t % 2 ? 340 : 83, n = c->device ? 800 : c->brief ? 60 : 300;
        const int64_t max = c->device ? 70 : 19;
        const bool add = t % 3 == 2;
        struct matrix w = matrix_new(&c->rng, weight_types[t], k, m);
        float *in = malloc((size_t)(n * k) * sizeof *in), *old = malloc((size_t)(n * m) * 4);
        float *all = malloc((size_t)(n * m) * sizeof *all), *some = malloc((size_t)(n * m) * 4);
        fill_random(&c->rng, in, n * k, 2);
        fill_random(&c->rng, old, n * m, 2);
        memcpy(all, old, (size_t)(n * m) * sizeof *all);
        memcpy(some, old, (size_t)(n * m) * sizeof *some);
        run_linear(c, c->exec, &w, in, n, all, add);
        run_linear(c, c->other, &w, in, n, some, add);
        worst += bit_differences(all, some, n * m);
        for (int64_t at = 0; at < n;) {
            int64_t piece = c->device && !at ? 300 : between(&c->rng, 1, max);
            piece = piece < n - at ? piece : n - at;
            memcpy(some, old + at * m, (size_t)(piece * m) * sizeof *some);
            run_linear(c, at % 2 ? c->other : c->exec, &w, in + at * k, piece, some, add);
            worst += bit_differences(all + at * m, some, piece * m);
            seen += piece * m;
            at += piece;
        }
        free(in);
        free(old);
        free(all);
        free(some);
        matrix_free(&w);
    }
    report(c, worst == 0, "linear: rule E1",
           c->device  ? "n = 1..70, 300, 800; other exec"
           : c->brief ? "n = 1..19, 60; other exec"
                      : "n = 1..19, 300; other exec",
           "%lld of %lld values differ", (long long)worst, (long long)seen);
    check_several(c);
    if (c->device && !c->brief)
        check_many_tiles(c);
    check_bias(c);
    check_gate_up_rule(c);
    check_feed_forward_rule(c);
    check_gather(c);
}

// What the int8 form makes of a block of 32: its scale, and the values it stands for.
static float rounded_block(const float *x, double *y) {
    float max = 0;
    for (int i = 0; i < GROUP; i++)
        max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
    float d = max / 127.0f, inverse = max > 0 ? 127.0f / max : 0;
    for (int i = 0; i < GROUP; i++)
        y[i] = (double)d * nearbyint((double)(x[i] * inverse));
    return d;
}

// What the activations of a type stand for, and by how much they may be off.
static double rounded_value(int type, float x, double *off) {
    *off = type == TYPE_BF16 ? fabs((double)x) * 0x1p-8 : 0;
    return (double)(type == TYPE_BF16 ? bf16_to_f32(f32_to_bf16(x)) : x);
}

// Errors of one output against doubles: beyond the f32 arithmetic, and beyond the bound of int8 or
// bf16.
static void output_errors(const float *w, const float *x, int64_t k, const struct quant_format *f,
                          double out, double *own, double *bound) {
    double exact = 0, rounded = 0, size = 0, allowed = 0;
    for (int64_t i = 0; i < k; i += GROUP) {
        double y[GROUP], off[GROUP];
        int64_t n = k - i < GROUP ? k - i : GROUP;
        float d = f->block == 1 ? 0 : rounded_block(x + i, y);
        for (int64_t j = 0; j < n; j++)
            if (f->block == 1)
                y[j] = rounded_value(f->type, x[i + j], &off[j]);
            else
                off[j] = (double)d * 0.5001;
        for (int64_t j = 0; j < n; j++) {
            exact += (double)w[i + j] * (double)x[i + j];
            rounded += (double)w[i + j] * y[j];
            size += fabs((double)w[i + j] * y[j]);
            allowed += fabs((double)w[i + j]) * off[j];
        }
    }
    *own = fabs(out - rounded) / (size + 1e-30);
    *bound = fabs(out - exact) / (allowed + 4e-6 * size + 1e-30);
}

// One shape of one type on a CPU: own rounding, and the error that int8 activations may have.
static void double_on_cpu(struct check *c, const struct matrix *w, const float *in, int64_t n) {
    int64_t k = w->t.ne[0], m = w->t.ne[1];
    float *row = malloc((size_t)k * sizeof *row);
    struct guarded out = guarded_new(n * m);
    double own = 0, bound = 0;
    run_linear(c, c->exec, w, in, n, out.p, false);
    for (int64_t j = 0; j < m; j++) {
        w->f->dequantize((const char *)w->t.data + j * quant_row_bytes(w->f, k), row, k);
        for (int64_t i = 0; i < n; i++) {
            double a, b;
            output_errors(row, in + i * k, k, w->f, (double)out.p[i * m + j], &a, &b);
            own = a > own ? a : own;
            bound = b > bound ? b : bound;
        }
    }
    bool guards = guarded_free(&out);
    report(c, own < 3e-6 && bound <= 1 && guards, "linear / double", w->f->name,
           "relative error %.1e (max 3e-6), %.2f of the bound", own, bound);
    free(row);
}

// The same on a device: weights and activations have 11 bits each, weights far below the largest of
// the matrix an absolute rounding, and the sum is f32. add: on top of what the output held.
static void double_on_device(struct check *c, const struct matrix *w, const float *in, int64_t n,
                             struct tally *d, double *bound) {
    int64_t k = w->t.ne[0], m = w->t.ne[1], bytes = quant_row_bytes(w->f, k);
    bool add = rng_below(&c->rng, 2);
    float *all = malloc((size_t)(k * m) * sizeof *all), *want = calloc((size_t)(n * m), 4), max = 0;
    struct guarded out = guarded_new(n * m);
    for (int64_t j = 0; j < m; j++)
        w->f->dequantize((const char *)w->t.data + j * bytes, all + j * k, k);
    for (int64_t i = 0; i < k * m; i++)
        max = fmaxf(max, fabsf(all[i]));
    for (int64_t i = 0; i < n * m && add; i++)
        out.p[i] = want[i] = unit_random(&c->rng);
    run_linear(c, c->exec, w, in, n, out.p, add);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++) {
            double sum = 0, size = fabs((double)want[i * m + j]), inputs = 0;
            for (int64_t t = 0; t < k; t++) {
                double p = (double)all[j * k + t] * (double)in[i * k + t];
                sum += p;
                size += fabs(p);
                inputs += fabs((double)in[i * k + t]);
            }
            want[i * m + j] += (float)sum;
            double e = fabs((double)out.p[i * m + j] - (double)want[i * m + j]);
            e /= (0x1p-10 + 1e-5) * size + 0x1p-25 * (double)max * inputs + 1e-30;
            *bound = e > *bound || isnan(e) ? e : *bound;
        }
    tally_add(d, want, out.p, n * m);
    if (!guarded_free(&out))
        d->error = INFINITY;
    free(all);
    free(want);
}

// As many rows as --chunk takes, more than a launch has in its second dimension.
static void check_max_rows(struct check *c) {
    enum { N = 1 << 16, K = 32, M = 17 };
    struct tally d = {0};
    struct matrix w = matrix_new(&c->rng, TYPE_F16, K, M);
    float *in = random_floats(&c->rng, N * K, 2), *want = calloc(N * M, sizeof *want);
    struct guarded got = guarded_new(N * M);
    run_linear(c, c->spec, &w, in, N, want, false);
    run_linear(c, c->exec, &w, in, N, got.p, false);
    tally_add(&d, want, got.p, N * M);
    report_tally(c, &d, guarded_free(&got), DEVICE_ERROR, "linear", "65,536 rows");
    free(in);
    free(want);
    matrix_free(&w);
}

void check_linear_double(struct check *c) {
    static const int counts[] = {1, 7, 9, 24, 70, 130, 260};
    if (!has_linear(c))
        return;
    for (int t = 0; t < TYPES; t++) {
        const struct quant_format *f = quant_format(weight_types[t]);
        struct tally d = {0};
        double bound = 0;
        for (int s = 0; s < (c->device ? 7 : 1); s++) {
            int64_t k = random_k(&c->rng, f), m = c->device ? between(&c->rng, 1, 300) : 37;
            int64_t n = c->device ? counts[s] : 9;
            struct matrix w = matrix_new(&c->rng, weight_types[t], k, m);
            float *in = malloc((size_t)(n * k) * sizeof *in);
            fill_random(&c->rng, in, n * k, 3);
            if (c->device)
                double_on_device(c, &w, in, n, &d, &bound);
            else
                double_on_cpu(c, &w, in, n);
            free(in);
            matrix_free(&w);
        }
        if (c->device)
            report(c, d.error <= DEVICE_ERROR && bound <= 1, "linear / double", f->name,
                   "relative error %.1e (max %.1e), %.2f of the fp16 bound", d.error, DEVICE_ERROR,
                   bound);
    }
    check_gate_up(c);
    if (c->device && !c->brief)
        check_max_rows(c);
}

struct linear_call {
    struct exec *x;
    struct weight *w[16]; // taken in turn: more than a cache holds
    int n_weights;
    struct act *a;
    int64_t n;
    float *out;
};

static void linear_turn(void *arg, int turn) {
    const struct linear_call *t = arg;
    struct linear_job job = {.w = t->w[turn % t->n_weights], .out = t->out};
    exec_ops(t->x)->linear(t->x, &job, 1, t->a, t->n);
}

static void time_type(struct check *c, const struct quant_format *f, int64_t k, int64_t m) {
    enum { MOST = 512 };
    static const int counts[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, MOST};
    struct linear_call call = {.x = c->exec};
    struct matrix w = matrix_new(&c->rng, (uint32_t)f->type, k, m);
    struct buffers r;
    float *in = malloc((size_t)(MOST * k) * sizeof *in);
    while (call.n_weights == 0 ||
           (c->device && call.n_weights < 16 && call.n_weights * w.t.bytes < (int64_t)256 << 20))
        call.w[call.n_weights++] = matrix_pack(c->exec, &w);
    call.a = act_new(c->exec, MOST, k);
    fill_random(&c->rng, in, MOST * k, 1);
    buffers_open(&r, c, c->exec);
    call.out = buffers_own(&r, NULL, (size_t)(MOST * m) * sizeof *call.out);
    exec_ops(c->exec)->to_act(c->exec, buffers_own(&r, in, (size_t)(MOST * k) * sizeof *in), MOST,
                              k, call.a);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        char shape[64];
        call.n = counts[i];
        if (call.n > 64 && !c->device)
            break;
        double us = time_call(c, linear_turn, &call);
        snprintf(shape, sizeof shape, "%s %lldx%lld n=%d", f->name, (long long)k, (long long)m,
                 counts[i]);
        report_time(c, "linear", shape, us, (double)(w.t.bytes + call.n * (2 * k + 4 * m)));
    }
    buffers_close(&r);
    exec_ops(c->exec)->act_destroy(c->exec, call.a);
    for (int i = 0; i < call.n_weights; i++)
        exec_ops(c->exec)->weight_destroy(c->exec, call.w[i]);
    free(in);
    matrix_free(&w);
}

void check_linear_time(struct check *c) {
    if (!has_linear(c))
        return;
    for (int t = 0; t < TYPES; t++)
        time_type(c, quant_format(weight_types[t]), c->device ? 5120 : 1024,
                  c->device ? 17408 : 4096);
}
