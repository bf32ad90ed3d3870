// SPDX-License-Identifier: Apache-2.0
// linear, linear_gate_up and gather_rows over every weight type.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck.h"

static const uint32_t types[] = {
    TYPE_F32,  TYPE_F16,    TYPE_BF16,   TYPE_Q8_0,  TYPE_Q4_0,  TYPE_Q4_1,
    TYPE_Q5_0, TYPE_Q5_1,   TYPE_Q2_K,   TYPE_Q3_K,  TYPE_Q4_K,  TYPE_Q5_K,
    TYPE_Q6_K, TYPE_IQ4_NL, TYPE_IQ4_XS, TYPE_MXFP4, TYPE_NVFP4,
};
enum { TYPES = sizeof types / sizeof types[0], GROUP = 32 };

struct matrix {
    struct tensor t;
    const struct quant_format *f;
};

static struct matrix matrix_new(struct rng *r, uint32_t type, int64_t k, int64_t m) {
    const struct quant_format *f = quant_format(type);
    int64_t bytes = quant_row_bytes(f, k) * m;
    unsigned char *data = malloc((size_t)bytes + 1);
    if (!data)
        abort();
    data++; // tensors are only byte-aligned
    fill_quant(r, f, data, k * m);
    return (struct matrix){{.name = "test",
                            .type = type,
                            .n_dims = 2,
                            .ne = {k, m, 1, 1},
                            .bytes = bytes,
                            .data = data},
                           f};
}

static void matrix_free(struct matrix *m) {
    free((unsigned char *)m->t.data - 1);
}

static struct weight *pack(struct exec *x, const struct matrix *m) {
    struct weight *w = NULL;
    struct err e;
    if (exec_ops(x)->weight_create(x, &m->t, &w, &e)) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
    return w;
}

static struct act *act_new(struct exec *x, int64_t n, int64_t k) {
    struct act *a = NULL;
    struct err e;
    if (exec_ops(x)->act_create(x, n, k, &a, &e)) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
    return a;
}

// out = in W^T on one exec.
static void run_linear(struct exec *x, const struct matrix *m, const float *in, int64_t n,
                       float *out, bool add) {
    const struct ops *o = exec_ops(x);
    struct weight *w = pack(x, m);
    struct act *a = act_new(x, n, m->t.ne[0]);
    o->to_act(x, in, n, m->t.ne[0], a);
    o->linear(x, &(struct linear_job){w, out, add}, 1, a, n);
    o->act_destroy(x, a);
    o->weight_destroy(x, w);
}

static int64_t random_k(struct rng *r, const struct quant_format *f) {
    int64_t block = f->block == 1 ? 1 : f->block < GROUP ? GROUP : f->block;
    int64_t most = block == 256 ? 4 : block == 1 ? 200 : 12;
    return block * between(r, 1, most);
}

void check_linear(struct check *c) {
    static const int counts[] = {1, 2, 3, 5, 8, 16, 17, 33};
    for (int t = 0; t < TYPES; t++) {
        int64_t worst = 0;
        bool guards = true;
        const struct quant_format *f = quant_format(types[t]);
        for (int s = 0; s < 8; s++) {
            int64_t k = random_k(&c->rng, f), m = between(&c->rng, 1, 70), n = counts[s];
            struct matrix w = matrix_new(&c->rng, types[t], k, m);
            float *in = malloc((size_t)(n * k) * sizeof *in);
            fill_random(&c->rng, in, n * k, 3);
            struct guarded a = guarded_new(n * m), b = guarded_new(n * m);
            run_linear(c->spec, &w, in, n, a.p, false);
            run_linear(c->exec, &w, in, n, b.p, false);
            worst += bit_differences(a.p, b.p, n * m);
            run_linear(c->spec, &w, in, n, a.p, true);
            run_linear(c->exec, &w, in, n, b.p, true);
            worst += bit_differences(a.p, b.p, n * m);
            guards = guarded_free(&a) && guarded_free(&b) && guards;
            free(in);
            matrix_free(&w);
        }
        report(c, worst == 0 && guards, "linear", f->name, "%lld values differ (exact)%s",
               (long long)worst, guards ? "" : ", guards broken");
    }
}

static int64_t gate_up_differences(struct check *c, uint32_t type, int64_t m, bool *guards) {
    const struct quant_format *f = quant_format(type);
    int64_t k = random_k(&c->rng, f), n = between(&c->rng, 1, 20), rows = 24;
    struct matrix g = matrix_new(&c->rng, type, k, m), u = matrix_new(&c->rng, type, k, m);
    struct matrix d = matrix_new(&c->rng, TYPE_F32, m, rows);
    struct matrix q = matrix_new(&c->rng, TYPE_Q8_0, m / GROUP * GROUP, rows);
    float *in = malloc((size_t)(n * k) * sizeof *in);
    fill_random(&c->rng, in, n * k, 1);
    struct guarded out[2][2];
    for (int e = 0; e < 2; e++) {
        struct exec *x = e ? c->exec : c->spec;
        const struct ops *o = exec_ops(x);
        struct weight *wg = pack(x, &g), *wu = pack(x, &u), *wd = pack(x, &d), *wq = pack(x, &q);
        struct act *a = act_new(x, n, k), *b = act_new(x, n, m);
        for (int j = 0; j < 2; j++)
            out[e][j] = guarded_new(n * rows);
        o->to_act(x, in, n, k, a);
        o->linear_gate_up(x, wg, wu, a, n, b);
        struct linear_job jobs[2] = {{wd, out[e][0].p, false}, {wq, out[e][1].p, false}};
        o->linear(x, jobs, m % GROUP ? 1 : 2, b, n); // both forms of the activation
        if (m % GROUP)
            memset(out[e][1].p, 0, (size_t)(n * rows) * sizeof(float));
        o->act_destroy(x, a);
        o->act_destroy(x, b);
        o->weight_destroy(x, wg);
        o->weight_destroy(x, wu);
        o->weight_destroy(x, wd);
        o->weight_destroy(x, wq);
    }
    int64_t diff = 0;
    for (int j = 0; j < 2; j++) {
        diff += bit_differences(out[0][j].p, out[1][j].p, n * rows);
        *guards = guarded_free(&out[0][j]) && guarded_free(&out[1][j]) && *guards;
    }
    free(in);
    matrix_free(&g);
    matrix_free(&u);
    matrix_free(&d);
    matrix_free(&q);
    return diff;
}

static void check_gate_up(struct check *c) {
    static const int widths[] = {32, 48, 64, 100, 224};
    int64_t diff = 0;
    bool guards = true;
    for (int t = 0; t < TYPES; t++)
        for (int s = 0; s < 5; s++)
            diff += gate_up_differences(c, types[t], widths[s], &guards);
    report(c, diff == 0 && guards, "linear_gate_up", "all types", "%lld values differ (exact)",
           (long long)diff);
}

// Embedding rows are the decoder's own values.
static void check_gather(struct check *c) {
    int64_t diff = 0;
    for (int t = 0; t < TYPES; t++) {
        const struct quant_format *f = quant_format(types[t]);
        int64_t k = random_k(&c->rng, f), m = 50;
        struct matrix w = matrix_new(&c->rng, types[t], k, m);
        struct weight *p = pack(c->exec, &w);
        int32_t ids[7];
        float *row = malloc((size_t)k * sizeof *row);
        struct guarded out = guarded_new(7 * k);
        for (int i = 0; i < 7; i++)
            ids[i] = (int32_t)rng_below(&c->rng, (uint32_t)m);
        exec_ops(c->exec)->gather_rows(c->exec, p, ids, 7, out.p);
        for (int i = 0; i < 7; i++) {
            f->dequantize((const char *)w.t.data + ids[i] * quant_row_bytes(f, k), row, k);
            diff += bit_differences(row, out.p + i * k, k);
        }
        diff += !guarded_free(&out);
        exec_ops(c->exec)->weight_destroy(c->exec, p);
        free(row);
        matrix_free(&w);
    }
    report(c, diff == 0, "gather_rows", "all types", "%lld values differ (exact)", (long long)diff);
}

// Bits of a row: alone, among 16, among 300, in another slot, with other threads.
void check_linear_rule(struct check *c) {
    struct exec *three = NULL;
    struct err e;
    if (exec_create_cpu(&three, c->level, 3, &e))
        abort();
    int64_t worst = 0, seen = 0;
    for (int t = 0; t < TYPES; t++) {
        const struct quant_format *f = quant_format(types[t]);
        int64_t k = f->block == 256 ? 512 : 320, m = 83, n = 300;
        struct matrix w = matrix_new(&c->rng, types[t], k, m);
        float *in = malloc((size_t)(n * k) * sizeof *in);
        float *all = malloc((size_t)(n * m) * sizeof *all), *some = malloc((size_t)(n * m) * 4);
        fill_random(&c->rng, in, n * k, 2);
        run_linear(c->exec, &w, in, n, all, false);
        run_linear(three, &w, in, n, some, false);
        worst += bit_differences(all, some, n * m);
        for (int64_t at = 0; at < n;) {
            int64_t piece = between(&c->rng, 1, 19);
            piece = piece < n - at ? piece : n - at;
            run_linear(at % 2 ? three : c->exec, &w, in + at * k, piece, some, false);
            worst += bit_differences(all + at * m, some, piece * m);
            seen += piece * m;
            at += piece;
        }
        free(in);
        free(all);
        free(some);
        matrix_free(&w);
    }
    exec_destroy(three);
    report(c, worst == 0, "linear: rule E1", "n = 1..19, 300; threads",
           "%lld of %lld values differ", (long long)worst, (long long)seen);
    check_gate_up(c);
    check_gather(c);
}

// What the int8 form makes of a block of 32: its scale, and the values it stands for.
static float rounded_block(const float *x, double *y) {
    float most = 0;
    for (int i = 0; i < GROUP; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    float d = most / 127.0f, inverse = most > 0 ? 127.0f / most : 0;
    for (int i = 0; i < GROUP; i++)
        y[i] = (double)d * nearbyint((double)(x[i] * inverse));
    return d;
}

// Errors of one output against doubles: beyond the f32 arithmetic, and beyond the int8 bound.
static void output_errors(const float *w, const float *x, int64_t k, bool numbers, double out,
                          double *own, double *bound) {
    double exact = 0, rounded = 0, size = 0, allowed = 0;
    for (int64_t i = 0; i < k; i += GROUP) {
        double y[GROUP];
        int64_t n = k - i < GROUP ? k - i : GROUP;
        float d = 0;
        if (numbers)
            for (int64_t j = 0; j < n; j++)
                y[j] = (double)x[i + j];
        else
            d = rounded_block(x + i, y);
        for (int64_t j = 0; j < n; j++) {
            exact += (double)w[i + j] * (double)x[i + j];
            rounded += (double)w[i + j] * y[j];
            size += fabs((double)w[i + j] * y[j]);
            allowed += fabs((double)w[i + j]) * (double)d * 0.5001;
        }
    }
    *own = fabs(out - rounded) / (size + 1e-30);
    *bound = fabs(out - exact) / (allowed + 4e-6 * size + 1e-30);
}

void check_linear_double(struct check *c) {
    for (int t = 0; t < TYPES; t++) {
        const struct quant_format *f = quant_format(types[t]);
        int64_t k = random_k(&c->rng, f), m = 37, n = 9;
        struct matrix w = matrix_new(&c->rng, types[t], k, m);
        float *in = malloc((size_t)(n * k) * sizeof *in), *row = malloc((size_t)k * sizeof *row);
        struct guarded out = guarded_new(n * m);
        fill_random(&c->rng, in, n * k, 3);
        run_linear(c->exec, &w, in, n, out.p, false);
        double own = 0, bound = 0;
        for (int64_t j = 0; j < m; j++) {
            f->dequantize((const char *)w.t.data + j * quant_row_bytes(f, k), row, k);
            for (int64_t i = 0; i < n; i++) {
                double a, b;
                output_errors(row, in + i * k, k, f->block == 1, (double)out.p[i * m + j], &a, &b);
                own = a > own ? a : own;
                bound = b > bound ? b : bound;
            }
        }
        bool guards = guarded_free(&out);
        report(c, own < 3e-6 && bound <= 1 && guards, "linear / double", f->name,
               "relative error %.1e (max 3e-6), %.2f of the int8 bound", own, bound);
        free(in);
        free(row);
        matrix_free(&w);
    }
}

// Microseconds of the fastest of several runs.
static double time_linear(struct exec *x, struct weight *w, struct act *a, int64_t n, float *out) {
    double best = 1e30, until = now_us() + 60e3;
    for (int i = 0; i < 5 || (now_us() < until && i < 200); i++) {
        double t = now_us();
        exec_ops(x)->linear(x, &(struct linear_job){w, out, false}, 1, a, n);
        t = now_us() - t;
        best = t < best ? t : best;
    }
    return best;
}

void check_linear_time(struct check *c) {
    static const int counts[] = {1, 2, 4, 8, 16, 64};
    int64_t k = 1024, m = 4096;
    for (int t = 0; t < TYPES; t++) {
        const struct quant_format *f = quant_format(types[t]);
        struct matrix w = matrix_new(&c->rng, types[t], k, m);
        struct weight *p = pack(c->exec, &w);
        struct act *a = act_new(c->exec, 64, k);
        float *in = malloc(64 * (size_t)k * sizeof *in),
              *out = malloc(64 * (size_t)m * sizeof *out);
        fill_random(&c->rng, in, 64 * k, 1);
        exec_ops(c->exec)->to_act(c->exec, in, 64, k, a);
        double one = 0;
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            double us = time_linear(c->exec, p, a, counts[i], out);
            one = i ? one : us;
            char shape[64];
            snprintf(shape, sizeof shape, "%s %lldx%lld n=%d", f->name, (long long)k, (long long)m,
                     counts[i]);
            report(c, true, "time linear", shape, "%9.1f us %7.4f ns/weight %6.2f x n=1", us,
                   us * 1e3 / (double)(k * m), us / one);
        }
        free(in);
        free(out);
        exec_ops(c->exec)->act_destroy(c->exec, a);
        exec_ops(c->exec)->weight_destroy(c->exec, p);
        matrix_free(&w);
    }
}
