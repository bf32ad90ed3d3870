// SPDX-License-Identifier: Apache-2.0
// Norms, activation form, row copies, and the elementary functions below them.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck.h"
#include "ops/rowmath.h"

// Both forms of an activation: f32 by the identity, int8 by a Q8_0 matrix with a one per row.
static void read_forms(struct exec *x, const struct act *act, int64_t n, int64_t k, float *f,
                       float *q) {
    const struct quant_format *f8 = quant_format(TYPE_Q8_0);
    int64_t k8 = k / 32 * 32;
    float *one = calloc((size_t)(k * k), sizeof *one);
    unsigned char *packed = malloc((size_t)(quant_row_bytes(f8, k8) * k8) + 1);
    for (int64_t i = 0; i < k8; i++)
        one[i * k8 + i] = 1;
    f8->quantize(one, packed, k8 * k8);
    struct tensor t8 = {
        .name = "q", .type = TYPE_Q8_0, .n_dims = 2, .ne = {k8, k8, 1, 1}, .data = packed};
    struct weight *w;
    struct err e;
    if (k8 == k) {
        if (exec_ops(x)->weight_create(x, &t8, &w, &e))
            abort();
        exec_ops(x)->linear(x, &(struct linear_job){w, q, false}, 1, act, n);
        exec_ops(x)->weight_destroy(x, w);
    }
    memset(one, 0, (size_t)(k * k) * sizeof *one);
    for (int64_t i = 0; i < k; i++)
        one[i * k + i] = 1;
    struct tensor t = {.name = "f", .type = TYPE_F32, .n_dims = 2, .ne = {k, k, 1, 1}, .data = one};
    if (exec_ops(x)->weight_create(x, &t, &w, &e))
        abort();
    exec_ops(x)->linear(x, &(struct linear_job){w, f, false}, 1, act, n);
    exec_ops(x)->weight_destroy(x, w);
    free(one);
    free(packed);
}

enum norm { PLAIN, NORM, GATED, NORMS };

struct norm_case {
    enum norm kind;
    int64_t n;
    int heads, dim;
    float *in, *z, *w;
};

static void norm_case_init(struct norm_case *c, struct rng *r, enum norm kind) {
    static const int dims[] = {32, 64, 96, 128, 20, 200};
    c->kind = kind;
    c->n = between(r, 1, 40);
    c->heads = kind == GATED ? (int)between(r, 1, 5) : 1;
    c->dim = dims[rng_below(r, 6)];
    int64_t k = (int64_t)c->heads * c->dim;
    c->in = malloc((size_t)(c->n * k) * 4);
    c->z = malloc((size_t)(c->n * k) * 4);
    c->w = malloc((size_t)c->dim * 4);
    fill_random(r, c->in, c->n * k, 5);
    fill_random(r, c->z, c->n * k, 5);
    fill_random(r, c->w, c->dim, 2);
    if (c->n > 2) // a row of zeros, and one of very large and very small numbers
        memset(c->in, 0, (size_t)k * 4);
    for (int64_t i = 0; c->n > 2 && i < k; i++)
        c->in[k + i] *= i % 3 ? 1e-20f : 1e15f;
}

static void norm_case_fini(struct norm_case *c) {
    free(c->in);
    free(c->z);
    free(c->w);
}

static void run_norm(const struct norm_case *c, struct exec *x, float *f, float *q) {
    const struct ops *o = exec_ops(x);
    int64_t k = (int64_t)c->heads * c->dim;
    struct act *a;
    struct err e;
    if (o->act_create(x, c->n, k, &a, &e))
        abort();
    if (c->kind == PLAIN)
        o->to_act(x, c->in, c->n, k, a);
    else if (c->kind == NORM)
        o->norm_to_act(x, c->in, c->w, 1e-6f, c->n, k, a);
    else
        o->gated_norm_to_act(x, &(struct gated_norm_args){.in = c->in,
                                                          .z = c->z,
                                                          .w = c->w,
                                                          .eps = 1e-6f,
                                                          .n = c->n,
                                                          .heads = c->heads,
                                                          .dv = c->dim,
                                                          .out = a});
    read_forms(x, a, c->n, k, f, q);
    o->act_destroy(x, a);
}

static const char *const norm_names[] = {"to_act", "norm_to_act", "gated_norm_to_act"};

void check_rows(struct check *c) {
    for (int kind = 0; kind < NORMS; kind++) {
        int64_t diff = 0;
        bool guards = true;
        for (int i = 0; i < 12; i++) {
            struct norm_case w;
            norm_case_init(&w, &c->rng, (enum norm)kind);
            int64_t n = w.n * w.heads * w.dim;
            struct guarded f[2], q[2];
            for (int e = 0; e < 2; e++) {
                f[e] = guarded_new(n);
                q[e] = guarded_new(n);
                memset(q[e].p, 0, (size_t)n * 4);
                run_norm(&w, e ? c->exec : c->spec, f[e].p, q[e].p);
            }
            diff += bit_differences(f[0].p, f[1].p, n) + bit_differences(q[0].p, q[1].p, n);
            for (int e = 0; e < 2; e++)
                guards = guarded_free(&f[e]) && guarded_free(&q[e]) && guards;
            norm_case_fini(&w);
        }
        report(c, diff == 0 && guards, norm_names[kind], "12 shapes", "%lld values differ (exact)",
               (long long)diff);
    }
}

// Bits of a row among others and alone.
void check_rows_rule(struct check *c) {
    int64_t diff = 0;
    for (int kind = 0; kind < NORMS; kind++)
        for (int i = 0; i < 6; i++) {
            struct norm_case w;
            norm_case_init(&w, &c->rng, (enum norm)kind);
            int64_t k = (int64_t)w.heads * w.dim, n = w.n * k;
            float *f = calloc((size_t)n, 4), *q = calloc((size_t)n, 4);
            float *f1 = calloc((size_t)k, 4), *q1 = calloc((size_t)k, 4);
            run_norm(&w, c->exec, f, q);
            for (int64_t row = 0; row < w.n; row += 3) {
                struct norm_case one = w;
                one.n = 1;
                one.in += row * k;
                one.z += row * k;
                run_norm(&one, c->exec, f1, q1);
                diff += bit_differences(f + row * k, f1, k) + bit_differences(q + row * k, q1, k);
            }
            free(f);
            free(q);
            free(f1);
            free(q1);
            norm_case_fini(&w);
        }
    report(c, diff == 0, "norms: rule E1", "rows alone", "%lld values differ", (long long)diff);
}

static double norm_error(const struct norm_case *c, const float *got) {
    double worst = 0;
    for (int64_t h = 0; h < c->n * c->heads; h++) {
        const float *x = c->in + h * c->dim, *z = c->z + h * c->dim;
        double sum = 0;
        for (int i = 0; i < c->dim; i++)
            sum += (double)x[i] * (double)x[i];
        for (int i = 0; i < c->dim; i++) {
            double y = (double)x[i];
            if (c->kind != PLAIN)
                y *= (double)c->w[i] / sqrt(sum / c->dim + (double)1e-6f);
            if (c->kind == GATED)
                y *= (double)z[i] / (1 + exp(-(double)z[i]));
            double e = fabs((double)got[h * c->dim + i] - y) / (fabs(y) + 1e-30);
            worst = e > worst ? e : worst;
        }
    }
    return worst;
}

static void check_functions(struct check *c) {
    double e = 0, l = 0, g = 0;
    for (int i = 0; i < 200000; i++) {
        float x = unit_random(&c->rng) * 59.9f, u = rng_unit(rng_next(&c->rng));
        double d = fabs((double)row_exp(x) / exp((double)x) - 1);
        e = d > e ? d : e;
        d = fabs((double)row_log(u) / log((double)u) - 1);
        l = d > l ? d : l;
        uint64_t seed = rng_next(&c->rng), pos = rng_next(&c->rng) >> 40,
                 id = rng_next(&c->rng) >> 44;
        double want = -log(-log((double)rng_unit(rng_hash(seed, pos, id, 0))));
        d = fabs((double)row_gumbel(rng_mix(rng_mix(seed) ^ pos), (int64_t)id) - want);
        d /= 1 + fabs(want);
        g = d > g ? d : g;
    }
    bool edges = row_exp(-INFINITY) == 0 && row_exp(-61) == 0 && row_exp(80) > 5e34f &&
                 row_exp(0) == 1 && row_exp(500) > 1e38f && row_log(1) == 0;
    report(c, e < 2.4e-7 && l < 3.6e-7 && g < 1e-6 && edges, "exp, log, Gumbel", "200000 arguments",
           "relative %.1e %.1e %.1e (max 2.4e-7 3.6e-7 1e-6)", e, l, g);
}

void check_rows_double(struct check *c) {
    for (int kind = 0; kind < NORMS; kind++) {
        double worst = 0;
        for (int i = 0; i < 8; i++) {
            struct norm_case w;
            norm_case_init(&w, &c->rng, (enum norm)kind);
            int64_t n = w.n * w.heads * w.dim;
            float *f = calloc((size_t)n, 4), *q = calloc((size_t)n, 4);
            run_norm(&w, c->exec, f, q);
            double e = norm_error(&w, f);
            worst = e > worst ? e : worst;
            free(f);
            free(q);
            norm_case_fini(&w);
        }
        char name[40];
        snprintf(name, sizeof name, "%s / double", norm_names[kind]);
        report(c, worst < 2e-6, name, "8 shapes", "relative %.1e (max 2e-6)", worst);
    }
    check_functions(c);
    unsigned char src[60], dst[100] = {0};
    static const int32_t index[4] = {3, 0, 0, 5};
    for (int i = 0; i < 60; i++)
        src[i] = (unsigned char)i;
    exec_ops(c->exec)->copy_rows(c->exec, dst, 20, src, index, 4, 10);
    bool ok = true;
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 20; j++)
            ok = ok && dst[i * 20 + j] == (j < 10 ? index[i] * 10 + j : 0);
    report(c, ok, "copy_rows", "4 rows of 10 bytes", "%s", ok ? "as asked" : "wrong bytes");
}
