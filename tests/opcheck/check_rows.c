// SPDX-License-Identifier: Apache-2.0
// Norms, activation form, row copies, and the elementary functions below them.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck/families.h"
#include "ops/rowmath.h"

// Both forms of an activation: f32, and on a CPU int8 by a Q8_0 matrix with a one per row.
static void read_forms(struct check *c, struct exec *x, const struct act *act, int64_t n, int64_t k,
                       float *f, float *q) {
    const struct quant_format *f8 = quant_format(TYPE_Q8_0);
    read_act(x, act, n, k, f);
    if (k % 32 || (x == c->exec && c->device))
        return;
    float *one = calloc((size_t)(k * k), sizeof *one);
    unsigned char *packed = malloc((size_t)(quant_row_bytes(f8, k) * k));
    for (int64_t i = 0; i < k; i++)
        one[i * k + i] = 1;
    f8->quantize(one, packed, k * k);
    struct tensor t = {
        .name = "q", .type = TYPE_Q8_0, .n_dims = 2, .ne = {k, k, 1, 1}, .data = packed};
    struct weight *w;
    struct err e;
    if (exec_ops(x)->weight_create(x, &t, &w, &e))
        abort();
    exec_ops(x)->linear(x, &(struct linear_job){.w = w, .out = q}, 1, act, n);
    exec_ops(x)->weight_destroy(x, w);
    free(one);
    free(packed);
}

// Relative error of fp16 activations against f32: 11 bits, so 2^-11 at most and 2e-4 on average
// over a long uniform row. Some rows here are short.
static const double DEVICE_ACT = 0x1p-11;

enum norm { PLAIN, NORM, GATED, WIDE, NORMS }; // WIDE: f32 comes out

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

static struct act *new_act(struct exec *x, int64_t n, int64_t k) {
    struct act *a;
    struct err e;
    if (exec_ops(x)->act_create(x, n, k, &a, &e))
        abort();
    return a;
}

static void call_norm(const struct norm_case *c, struct exec *x, const float *in, const float *z,
                      const float *w, struct act *a) {
    const struct ops *o = exec_ops(x);
    int64_t k = (int64_t)c->heads * c->dim;
    if (c->kind == PLAIN)
        o->to_act(x, in, c->n, k, a);
    else if (c->kind == NORM)
        o->norm_to_act(x, in, w, 1e-6f, c->n, k, a);
    else
        o->gated_norm_to_act(x, &(struct gated_norm_args){.in = in,
                                                          .z = z,
                                                          .w = w,
                                                          .eps = 1e-6f,
                                                          .n = c->n,
                                                          .heads = c->heads,
                                                          .dv = c->dim,
                                                          .out = a});
}

static void run_norm(struct check *c, const struct norm_case *w, struct exec *x, float *f,
                     float *q) {
    int64_t k = (int64_t)w->heads * w->dim;
    size_t bytes = (size_t)(w->n * k) * sizeof *w->in;
    struct buffers r;
    buffers_open(&r, c, x);
    if (w->kind == WIDE) {
        struct norm_args wide = {.eps = 1e-6f, .n = w->n, .k = k};
        wide.in = buffers_in(&r, w->in, bytes);
        wide.w = buffers_in(&r, w->w, (size_t)w->dim * sizeof *w->w);
        wide.out = buffers_io(&r, f, bytes);
        exec_ops(x)->norm(x, &wide);
        buffers_close(&r);
        return;
    }
    struct act *a = new_act(x, w->n, k);
    call_norm(w, x, buffers_in(&r, w->in, bytes), buffers_in(&r, w->z, bytes),
              buffers_in(&r, w->w, (size_t)w->dim * sizeof *w->w), a);
    read_forms(c, x, a, w->n, k, f, q);
    buffers_close(&r);
    exec_ops(x)->act_destroy(x, a);
}

static const char *const norm_names[] = {"to_act", "norm_to_act", "gated_norm_to_act", "norm"};

static bool has_norms(struct check *c) {
    const bool plain = CHECK_HAS(c, to_act), norm = CHECK_HAS(c, norm_to_act);
    const bool gated = CHECK_HAS(c, gated_norm_to_act); // each says so where it is missing
    const bool wide = CHECK_HAS(c, norm);
    return plain && norm && gated && wide;
}

void check_rows(struct check *c) {
    if (!has_norms(c))
        return;
    for (int kind = 0; kind < NORMS; kind++) {
        struct tally t = {0};
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
                run_norm(c, &w, e ? c->exec : c->spec, f[e].p, q[e].p);
            }
            tally_add(&t, f[0].p, f[1].p, n);
            if (!c->device)
                tally_add(&t, q[0].p, q[1].p, n);
            for (int e = 0; e < 2; e++)
                guards = guarded_free(&f[e]) && guarded_free(&q[e]) && guards;
            norm_case_fini(&w);
        }
        report_tally(c, &t, guards, DEVICE_ACT, norm_names[kind], "12 shapes");
    }
}

// Rows from `first` on, as f32; out: [n][k].
static void run_wide(struct check *c, const struct norm_case *w, int64_t first, int64_t n,
                     float *out) {
    const int64_t k = (int64_t)w->heads * w->dim;
    const size_t bytes = (size_t)(n * k) * sizeof *w->in;
    struct norm_case part = *w;
    struct buffers r;
    buffers_open(&r, c, c->exec);
    struct act *a = new_act(c->exec, n, k);
    part.n = n;
    call_norm(&part, c->exec, buffers_in(&r, w->in + first * k, bytes),
              buffers_in(&r, w->z + first * k, bytes),
              buffers_in(&r, w->w, (size_t)w->dim * sizeof *w->w), a);
    read_act(c->exec, a, n, k, out);
    buffers_close(&r);
    exec_ops(c->exec)->act_destroy(c->exec, a);
}

// Bits of a row among others and alone, in the widths of large models, for which a device has other
// launches: by how many rows there are, and how wide they are.
static void check_wide_rows(struct check *c) {
    static const struct {
        enum norm kind;
        int heads, dim;
    } shapes[] = {{PLAIN, 1, 17408}, {PLAIN, 1, 8200}, {NORM, 1, 5120},
                  {NORM, 1, 9216},   {GATED, 48, 128}, {PLAIN, 1, 28672}};
    static const int64_t rows[] = {2, 23, 33, 64, 65, 520};
    int64_t differ = 0, seen = 0;
    for (size_t i = 0; i < 6 * 6; i++) {
        const int64_t n = rows[i % 6], k = (int64_t)shapes[i / 6].heads * shapes[i / 6].dim;
        if (!c->device && n > 64)
            continue;
        struct norm_case w = {shapes[i / 6].kind,
                              n,
                              shapes[i / 6].heads,
                              shapes[i / 6].dim,
                              random_floats(&c->rng, n * k, 5),
                              random_floats(&c->rng, n * k, 5),
                              random_floats(&c->rng, shapes[i / 6].dim, 2)};
        float *all = calloc((size_t)(n * k), sizeof *all), *one = calloc((size_t)k, sizeof *one);
        run_wide(c, &w, 0, n, all);
        for (int64_t row = 0; row < n; row += n / 2 - (n > 2)) {
            run_wide(c, &w, row, 1, one);
            differ += bit_differences(all + row * k, one, k);
            seen++;
        }
        free(all);
        free(one);
        norm_case_fini(&w);
    }
    report(c, differ == 0, "norms: rule E1", "wide rows alone", "%lld values differ in %lld rows",
           (long long)differ, (long long)seen);
}

// Bits of a row among others and alone.
void check_rows_rule(struct check *c) {
    int64_t diff = 0;
    if (!has_norms(c))
        return;
    for (int kind = 0; kind < NORMS; kind++)
        for (int i = 0; i < 6; i++) {
            struct norm_case w;
            norm_case_init(&w, &c->rng, (enum norm)kind);
            int64_t k = (int64_t)w.heads * w.dim, n = w.n * k;
            float *f = calloc((size_t)n, 4), *q = calloc((size_t)n, 4);
            float *f1 = calloc((size_t)k, 4), *q1 = calloc((size_t)k, 4);
            run_norm(c, &w, c->exec, f, q);
            for (int64_t row = 0; row < w.n; row += 3) {
                struct norm_case one = w;
                one.n = 1;
                one.in += row * k;
                one.z += row * k;
                run_norm(c, &one, c->exec, f1, q1);
                diff += bit_differences(f + row * k, f1, k) + bit_differences(q + row * k, q1, k);
            }
            free(f);
            free(q);
            free(f1);
            free(q1);
            norm_case_fini(&w);
        }
    report(c, diff == 0, "norms: rule E1", "rows alone", "%lld values differ", (long long)diff);
    check_wide_rows(c);
}

// The right value of one head.
static void norm_head(const struct norm_case *c, int64_t h, double *y) {
    const float *x = c->in + h * c->dim, *z = c->z + h * c->dim;
    double sum = 0;
    for (int i = 0; i < c->dim; i++)
        sum += (double)x[i] * (double)x[i];
    for (int i = 0; i < c->dim; i++) {
        y[i] = (double)x[i];
        if (c->kind != PLAIN)
            y[i] *= (double)c->w[i] / sqrt(sum / c->dim + (double)1e-6f);
        if (c->kind == GATED)
            y[i] *= (double)z[i] / (1 + exp(-(double)z[i]));
    }
}

// Worst relative error of a value. A device keeps 11 bits and, of values far below the largest of
// their row, an absolute 2^-39 of that: errors within these count as nothing.
static double norm_error(const struct norm_case *c, bool device, const float *got) {
    double worst = 0, *y = malloc((size_t)(c->heads * c->dim) * sizeof *y);
    for (int64_t row = 0; row < c->n; row++) {
        double max = 0;
        int64_t k = (int64_t)c->heads * c->dim;
        for (int h = 0; h < c->heads; h++)
            norm_head(c, row * c->heads + h, y + h * c->dim);
        for (int64_t i = 0; i < k; i++)
            max = fabs(y[i]) > max ? fabs(y[i]) : max;
        for (int64_t i = 0; i < k; i++) {
            double e = fabs((double)got[row * k + i] - y[i]);
            if (device)
                e = fmax(0, e - fmax(0x1p-11 * fabs(y[i]), 0x1p-39 * max));
            e /= fabs(y[i]) + (device ? 0x1p-30 * max : 0) + 1e-30;
            worst = e > worst || isnan(e) ? e : worst;
        }
    }
    free(y);
    return worst;
}

// norm with each of its choices is what the plain one and a few additions make.
static void check_norm_forms(struct check *c) {
    enum { N = 7, K = 700 };
    static float in[N * K], w[K], ones[K], plain[N * K], got[N * K], want[N * K];
    int64_t differ = 0;
    for (int form = 1; form < 8; form++) { // bits: no w, add, in place
        bool add = form & 2, place = form & 4;
        struct buffers r;
        fill_random(&c->rng, in, N * K, 3);
        fill_random(&c->rng, w, K, 2);
        for (int i = 0; i < K; i++)
            ones[i] = form & 1 ? 1 : w[i];
        for (int i = 0; i < N * K; i++)
            got[i] = place ? in[i] : unit_random(&c->rng);
        memcpy(want, got, sizeof want);
        buffers_open(&r, c, c->exec);
        struct norm_args a = {.eps = 1e-5f, .n = N, .k = K};
        a.in = buffers_in(&r, in, sizeof in);
        a.w = buffers_in(&r, ones, sizeof ones);
        a.out = buffers_io(&r, plain, sizeof plain);
        exec_ops(c->exec)->norm(c->exec, &a);
        a.out = buffers_io(&r, got, sizeof got);
        a.in = place ? a.out : a.in;
        a.w = form & 1 ? NULL : a.w;
        a.add = add;
        exec_ops(c->exec)->norm(c->exec, &a);
        buffers_close(&r);
        for (int i = 0; i < N * K; i++)
            want[i] = add ? want[i] + plain[i] : plain[i];
        differ += bit_differences(want, got, N * K);
    }
    report(c, differ == 0, "norm", "no weights, added, in place", "%lld values differ",
           (long long)differ);
}

// The two sides of an activation at single values: a wrong constant drowns in the norm of a layer.
static void check_activations(struct check *c) {
    double gelu = 0, clamped = 0;
    for (int i = 0; i < 100000; i++) {
        float g = unit_random(&c->rng) * 12, u = unit_random(&c->rng) * 12;
        double x = (double)g, y = fmin(x, 7), v = fmax(-7, fmin((double)u, 7));
        double want = 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
        gelu = fmax(gelu, fabs((double)row_gelu_tanh(g) - want) / (fabs(x) + 1e-30));
        want = y / (1 + exp(-1.702 * y)) * (v + 1);
        clamped = fmax(clamped, fabs((double)row_swiglu_clamped(g, u) - want) /
                                    (fabs(y) * (fabs(v) + 1) + 1e-30));
    }
    report(c, gelu < 5e-7 && clamped < 5e-7, "GELU, clamped SwiGLU", "100000 arguments",
           "relative %.1e %.1e (max 5e-7)", gelu, clamped);
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

static void check_copy_rows(struct check *c) {
    enum { ROWS = 40, COPIES = 57 };
    bool ok = true;
    if (!CHECK_HAS(c, copy_rows))
        return;
    for (int t = 0; t < 8; t++) {
        static const int sizes[] = {10, 16, 4, 1, 256, 20, 4096, 34};
        size_t row = (size_t)sizes[t], stride = row + (t % 3 ? 0 : 2 * row);
        unsigned char *src = malloc(ROWS * row), *dst = malloc(COPIES * stride);
        int32_t index[COPIES];
        for (size_t i = 0; i < ROWS * row; i++)
            src[i] = (unsigned char)rng_next(&c->rng);
        memset(dst, 0x5A, COPIES * stride);
        for (int i = 0; i < COPIES; i++)
            index[i] = (int32_t)rng_below(&c->rng, ROWS);
        struct buffers r;
        buffers_open(&r, c, c->exec);
        void *to = buffers_io(&r, dst, COPIES * stride);
        const void *from = buffers_in(&r, src, ROWS * row);
        exec_ops(c->exec)->copy_rows(c->exec, to, stride, from, index, COPIES, row);
        buffers_close(&r);
        for (size_t i = 0; i < COPIES; i++)
            for (size_t j = 0; j < stride; j++)
                ok =
                    ok && dst[i * stride + j] == (j < row ? src[(size_t)index[i] * row + j] : 0x5A);
        free(src);
        free(dst);
    }
    report(c, ok, "copy_rows", "57 rows of 1 to 4096 bytes", "%s", ok ? "as asked" : "wrong bytes");
}

void check_rows_double(struct check *c) {
    for (int kind = 0; kind < NORMS && has_norms(c); kind++) {
        double worst = 0;
        for (int i = 0; i < 8; i++) {
            struct norm_case w;
            norm_case_init(&w, &c->rng, (enum norm)kind);
            int64_t n = w.n * w.heads * w.dim;
            float *f = calloc((size_t)n, 4), *q = calloc((size_t)n, 4);
            run_norm(c, &w, c->exec, f, q);
            double e = norm_error(&w, c->device, f);
            worst = e > worst || isnan(e) ? e : worst;
            free(f);
            free(q);
            norm_case_fini(&w);
        }
        char name[40];
        snprintf(name, sizeof name, "%s / double", norm_names[kind]);
        report(c, worst < 2e-6, name, "8 shapes", "relative %.1e (max 2e-6)%s", worst,
               c->device ? " beyond 11 bits" : "");
    }
    if (CHECK_HAS(c, norm))
        check_norm_forms(c);
    if (!c->device)
        check_functions(c);
    if (!c->device)
        check_activations(c);
    check_copy_rows(c);
}

struct norm_call {
    struct norm_case w;
    struct exec *x;
    float *in, *z, *weight;
    struct act *a;
    int64_t sets; // inputs taken in turn
};

static void norm_turn(void *arg, int turn) {
    const struct norm_call *t = arg;
    int64_t at = turn % t->sets * t->w.n * t->w.heads * t->w.dim;
    call_norm(&t->w, t->x, t->in + at, t->z + at, t->weight, t->a);
}

void check_rows_time(struct check *c) {
    static const int counts[] = {1, 24, 512};
    if (!has_norms(c))
        return;
    for (int kind = 0; kind < WIDE; kind++)
        for (int i = 0; i < 3; i++) {
            struct norm_call t = {.x = c->exec, .sets = 4};
            t.w = (struct norm_case){.kind = (enum norm)kind, .n = counts[i], .heads = 1};
            t.w.heads = kind == GATED ? 48 : 1;
            t.w.dim = kind == GATED ? 128 : 5120;
            int64_t k = (int64_t)t.w.heads * t.w.dim, n = t.sets * t.w.n * k;
            float *host = malloc((size_t)n * sizeof *host);
            struct buffers r;
            char shape[64];
            fill_random(&c->rng, host, n, 2);
            buffers_open(&r, c, c->exec);
            t.in = buffers_own(&r, host, (size_t)n * sizeof *host);
            t.z = buffers_own(&r, host, (size_t)n * sizeof *host);
            t.weight = buffers_own(&r, host, (size_t)t.w.dim * sizeof *host);
            t.a = new_act(c->exec, t.w.n, k);
            double us = time_call(c, norm_turn, &t);
            snprintf(shape, sizeof shape, "%lld rows of %lld", (long long)t.w.n, (long long)k);
            report_time(c, norm_names[kind], shape, us,
                        (double)(t.w.n * k) * (kind == GATED ? 10 : 6));
            exec_ops(c->exec)->act_destroy(c->exec, t.a);
            buffers_close(&r);
            free(host);
        }
}
