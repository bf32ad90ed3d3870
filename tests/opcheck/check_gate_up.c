// SPDX-License-Identifier: Apache-2.0
// linear_gate_up over every weight type, activation and bias.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck/families.h"

enum { GROUP = 32 };

// Relative error of a device: twice that of a matrix (check_linear.c), since both go in.
static const double DEVICE_ERROR = 0x1p-9;

// One gated layer. q: a Q8_0 matrix that reads the result, so that both forms of a CPU's activation
// are seen.
struct gated {
    struct matrix gate, up, q;
    int64_t n;
    float *in;            // [n][k]
    bool both;            // run q as well
    const float *bias[2]; // [m] of gate and up, or NULL
    enum activation activation;
};

// act = activation(in Wg^T, in Wu^T); q_out: what q makes of it.
static void run_gate_up(struct check *c, struct exec *x, const struct gated *l, float *act,
                        float *q_out) {
    const struct ops *o = exec_ops(x);
    int64_t k = l->gate.t.ne[0], m = l->gate.t.ne[1], n = l->n;
    struct weight *wg = matrix_pack(x, &l->gate), *wu = matrix_pack(x, &l->up);
    struct act *a = act_new(x, n, k), *b = act_new(x, n, m);
    struct buffers r;
    buffers_open(&r, c, x);
    o->to_act(x, buffers_in(&r, l->in, (size_t)(n * k) * sizeof *l->in), n, k, a);
    struct gate_up w = {.gate = wg, .up = wu, .activation = l->activation};
    w.gate_bias = l->bias[0] ? buffers_in(&r, l->bias[0], (size_t)m * sizeof(float)) : NULL;
    w.up_bias = l->bias[1] ? buffers_in(&r, l->bias[1], (size_t)m * sizeof(float)) : NULL;
    o->linear_gate_up(x, &w, a, n, b);
    read_act(x, b, n, m, act);
    if (l->both) {
        struct weight *wq = matrix_pack(x, &l->q);
        float *to = buffers_io(&r, q_out, (size_t)(n * l->q.t.ne[1]) * sizeof *q_out);
        o->linear(x, &(struct linear_job){.w = wq, .out = to}, 1, b, n);
        o->weight_destroy(x, wq);
    }
    buffers_close(&r);
    o->act_destroy(x, a);
    o->act_destroy(x, b);
    o->weight_destroy(x, wg);
    o->weight_destroy(x, wu);
}

static double activated(enum activation a, double g, double u) {
    const double root = 0.79788456080286536; // sqrt(2 / pi)
    if (a == ACTIVATION_GELU_TANH)
        return 0.5 * g * (1 + tanh(root * (g + 0.044715 * g * g * g))) * u;
    if (a == ACTIVATION_SWIGLU_CLAMPED) {
        g = fmin(g, 7);
        return g / (1 + exp(-1.702 * g)) * (fmax(-7, fmin(u, 7)) + 1);
    }
    return g / (1 + exp(-g)) * u;
}

// The same in doubles.
static void gate_up_double(const struct gated *l, float *out) {
    const struct quant_format *f = l->gate.f;
    int64_t k = l->gate.t.ne[0], m = l->gate.t.ne[1], row = quant_row_bytes(f, k);
    float *g = malloc((size_t)k * sizeof *g), *u = malloc((size_t)k * sizeof *u);
    for (int64_t j = 0; j < m; j++) {
        f->dequantize((const char *)l->gate.t.data + j * row, g, k);
        f->dequantize((const char *)l->up.t.data + j * row, u, k);
        for (int64_t i = 0; i < l->n; i++) {
            double a = l->bias[0] ? (double)l->bias[0][j] : 0;
            double b = l->bias[1] ? (double)l->bias[1][j] : 0;
            for (int64_t t = 0; t < k; t++) {
                a += (double)g[t] * (double)l->in[i * k + t];
                b += (double)u[t] * (double)l->in[i * k + t];
            }
            out[i * m + j] = (float)activated(l->activation, a, b);
        }
    }
    free(g);
    free(u);
}

// Inputs that make sums of some 7, where activations are steep but sums are not so large that what
// they are rounded by is.
static float steep_scale(const struct matrix *m, int64_t k) {
    float *row = malloc((size_t)k * sizeof *row);
    double squares = 0;
    m->f->dequantize(m->t.data, row, k);
    for (int64_t i = 0; i < k; i++)
        squares += (double)row[i] * (double)row[i];
    free(row);
    return (float)(12 / sqrt(squares + 1e-6));
}

// form: 0 is SiLU without biases, the others go through all that there is. Widths 48, and 16 of the
// others, are seen with many rows on a device.
static void gate_up_case(struct check *c, uint32_t type, int64_t m, int form, struct tally *t,
                         bool *guards) {
    enum { ROWS = 24, MANY = 260 };
    const struct quant_format *f = quant_format(type);
    const bool many = c->device && m == (form ? 16 : 48);
    int64_t k = random_k(&c->rng, f), n = many ? MANY : between(&c->rng, 1, 20);
    struct gated l = {.gate = matrix_new(&c->rng, type, k, m),
                      .up = matrix_new(&c->rng, type, k, m),
                      .q = matrix_new(&c->rng, TYPE_Q8_0, m / GROUP * GROUP, ROWS),
                      .n = n,
                      .in = malloc((size_t)(n * k) * sizeof(float)),
                      .both = m % GROUP == 0 && !c->device,
                      .activation = (enum activation)(form % 3)};
    float *bias = malloc((size_t)(2 * m) * sizeof *bias);
    fill_random(&c->rng, bias, 2 * m, 2);
    l.bias[0] = form / 3 % 2 ? bias : NULL;
    l.bias[1] = form / 6 ? bias + m : NULL;
    struct guarded act[2] = {guarded_new(n * m), guarded_new(n * m)};
    struct guarded out[2] = {guarded_new(n * ROWS), guarded_new(n * ROWS)};
    fill_random(&c->rng, l.in, n * k, form && c->device ? steep_scale(&l.gate, k) : 1);
    for (int e = 0; e < 2; e++) {
        if (!l.both)
            memset(out[e].p, 0, (size_t)(n * ROWS) * sizeof(float));
        if (e == 0 && c->device)
            gate_up_double(&l, act[0].p);
        else
            run_gate_up(c, e ? c->exec : c->spec, &l, act[e].p, out[e].p);
    }
    tally_add(t, act[0].p, act[1].p, n * m);
    tally_add(t, out[0].p, out[1].p, n * ROWS);
    for (int e = 0; e < 2; e++)
        *guards = guarded_free(&act[e]) && guarded_free(&out[e]) && *guards;
    free(bias);
    free(l.in);
    matrix_free(&l.gate);
    matrix_free(&l.up);
    matrix_free(&l.q);
}

// Other activations, and biases: levels against each other, and plain numbers against doubles.
static void check_forms(struct check *c) {
    enum { FORMS = 12, K = 96, M = 100, N = 21 };
    static const int widths[] = {100, 64, 16};
    static float in[N * K], bias[2 * M], got[N * M], want[N * M];
    struct tally levels = {0}, exact = {0};
    bool guards = true;
    for (int form = 1; form < FORMS; form++) {
        struct ops_needs needs = {.activation = (enum activation)(form % 3), .bias = form >= 3};
        if (!check_takes(c, &needs, "linear_gate_up"))
            continue;
        for (int t = form; t < TYPES; t += c->device ? 1 : 3)
            gate_up_case(c, weight_types[t], widths[t % 3], form, &levels, &guards);
        struct gated l = {.gate = matrix_new(&c->rng, TYPE_F32, K, M),
                          .up = matrix_new(&c->rng, TYPE_F32, K, M),
                          .n = N,
                          .in = in,
                          .activation = needs.activation};
        l.bias[0] = form / 3 % 2 ? bias : NULL;
        l.bias[1] = form / 6 ? bias + M : NULL;
        fill_random(&c->rng, in, N * K, 2); // sums of some 7, so that limits are met
        fill_random(&c->rng, bias, 2 * M, 3);
        run_gate_up(c, c->exec, &l, got, NULL);
        gate_up_double(&l, want);
        tally_add(&exact, want, got, N * M);
        matrix_free(&l.gate);
        matrix_free(&l.up);
    }
    // Steeper activations make more of what inputs are rounded by: 3.5e-3 seen on an H200.
    report_tally(c, &levels, guards, 3 * DEVICE_ERROR, "linear_gate_up", "activations, biases");
    double max = c->device ? DEVICE_ERROR : 1e-6;
    report(c, exact.error <= max, "linear_gate_up / double", "activations, biases",
           "relative error %.1e (max %.1e)", exact.error, max);
}

void check_gate_up(struct check *c) {
    static const int widths[] = {32, 48, 64, 100, 224};
    struct tally d = {0};
    bool guards = true;
    if (!CHECK_HAS(c, linear_gate_up))
        return;
    for (int t = 0; t < TYPES; t++)
        for (int s = 0; s < 5; s++)
            gate_up_case(c, weight_types[t], widths[s], 0, &d, &guards);
    report_tally(c, &d, guards, DEVICE_ERROR, "linear_gate_up", "all types");
    check_forms(c);
}

// What a feed-forward layer makes of the first n rows: its activation and then the down matrix's
// outputs, the activation read only after them, so that kernels may make it on the way.
static void run_chain(struct check *c, const struct gated *l, int64_t n, float *act, float *out) {
    const struct ops *o = exec_ops(c->exec);
    const int64_t k = l->gate.t.ne[0], m = l->gate.t.ne[1];
    struct weight *wg = matrix_pack(c->exec, &l->gate), *wu = matrix_pack(c->exec, &l->up);
    struct weight *wq = matrix_pack(c->exec, &l->q);
    struct act *a = act_new(c->exec, n, k), *b = act_new(c->exec, n, m);
    struct buffers r;
    buffers_open(&r, c, c->exec);
    float *in = buffers_in(&r, l->in, (size_t)(n * k) * sizeof *l->in);
    float *to = buffers_io(&r, out, (size_t)(n * l->q.t.ne[1]) * sizeof *out);
    struct gate_up w = {.gate = wg, .up = wu, .activation = l->activation};
    o->to_act(c->exec, in, n, k, a);
    o->linear_gate_up(c->exec, &w, a, n, b);
    o->linear(c->exec, &(struct linear_job){.w = wq, .out = to}, 1, b, n);
    read_act(c->exec, b, n, m, act);
    buffers_close(&r);
    o->act_destroy(c->exec, a);
    o->act_destroy(c->exec, b);
    o->weight_destroy(c->exec, wg);
    o->weight_destroy(c->exec, wu);
    o->weight_destroy(c->exec, wq);
}

// Bits of rows that pass a whole feed-forward layer: many at once, and few, where no launch of its
// own may make the activation's fp16. Rows have very different magnitudes, so that one row's power
// of two would not do for another; the activation's width leaves parts and stages uneven.
void check_feed_forward_rule(struct check *c) {
    enum { OUT = 336, ALL = 160 };
    static const uint32_t some[] = {TYPE_Q4_K, TYPE_Q6_K, TYPE_Q5_K, TYPE_Q8_0, TYPE_F16};
    static const int64_t few[] = {1, 5, 8, 9, 15, 16, 17, 23, 24, 25, 32, 47, 64};
    int64_t acts = 0, outs = 0, seen = 0;
    if (!c->device || !CHECK_HAS(c, linear_gate_up))
        return;
    for (int t = 0; t < (int)(sizeof some / sizeof *some); t++) {
        const bool chunked = some[t] != TYPE_Q8_0 && some[t] != TYPE_F16; // k of whole chunks
        const int64_t k = 512, m = chunked ? 1280 : 1120; // of the pair one part, of down two
        struct gated l = {.gate = matrix_new(&c->rng, some[t], k, m),
                          .up = matrix_new(&c->rng, some[t], k, m),
                          .q = {.f = NULL},
                          .in = malloc((size_t)(ALL * k) * sizeof(float))};
        l.q = matrix_new(&c->rng, some[t], m, OUT);
        float *act[2], *out[2];
        for (int i = 0; i < 2; i++) {
            act[i] = malloc((size_t)(ALL * m) * sizeof(float));
            out[i] = calloc((size_t)(ALL * OUT), sizeof(float));
        }
        fill_random(&c->rng, l.in, ALL * k, 2);
        for (int64_t i = 0; i < ALL * k; i++)
            l.in[i] = ldexpf(l.in[i], (int)(i / k * 5 % 13) - 6);
        run_chain(c, &l, ALL, act[0], out[0]);
        for (int i = 0; i < (int)(sizeof few / sizeof *few); i++) {
            memset(out[1], 0, (size_t)(ALL * OUT) * sizeof(float));
            run_chain(c, &l, few[i], act[1], out[1]);
            acts += bit_differences(act[0], act[1], few[i] * m);
            outs += bit_differences(out[0], out[1], few[i] * OUT);
            seen += few[i] * (m + OUT);
        }
        for (int i = 0; i < 2; i++) {
            free(act[i]);
            free(out[i]);
        }
        free(l.in);
        matrix_free(&l.gate);
        matrix_free(&l.up);
        matrix_free(&l.q);
    }
    report(c, acts + outs == 0, "feed forward: rule E1", "n = 1..64 of 160",
           "%lld activations, %lld outputs of %lld values differ", (long long)acts, (long long)outs,
           (long long)seen);
}

// Bits of rows that a device makes in one call of l's n rows and in calls of `piece`, of the
// activation and of what q makes of it, if it is requested; how many differ.
static int64_t against_pieces(struct check *c, const struct gated *l, int64_t piece) {
    const int64_t k = l->gate.t.ne[0], m = l->gate.t.ne[1], out = l->both ? l->q.t.ne[1] : 1;
    float *act[2], *to[2];
    int64_t worst = 0;
    for (int i = 0; i < 2; i++) {
        const int64_t rows = i ? piece : l->n;
        act[i] = malloc((size_t)(rows * m) * sizeof *act[i]);
        to[i] = calloc((size_t)(rows * out), sizeof *to[i]);
    }
    run_gate_up(c, c->exec, l, act[0], to[0]);
    for (int64_t at = 0; at < l->n; at += piece) {
        struct gated some = *l;
        some.n = l->n - at < piece ? l->n - at : piece;
        some.in = l->in + at * k;
        memset(to[1], 0, (size_t)(piece * out) * sizeof *to[1]);
        run_gate_up(c, c->exec, &some, act[1], to[1]);
        worst += bit_differences(act[0] + at * m, act[1], some.n * m);
        worst += l->both ? bit_differences(to[0] + at * out, to[1], some.n * out) : 0;
    }
    for (int i = 0; i < 2; i++) {
        free(act[i]);
        free(to[i]);
    }
    return worst;
}

// A device's kernel for very many rows with several tiles a block, against fewer rows. The first
// pair is so short that its tiles are done in no time; the last one has more rows than the kernel
// takes through all outputs at once (three such bands and a bit), of different magnitudes, and an
// activation with padding, which the matrix after it multiplies.
static void check_many_tiles(struct check *c) {
    static const struct {
        uint32_t type;
        int64_t k, m, n;
        bool both;
    } shapes[] = {{TYPE_Q8_0, 64, 4352, 1150, false},
                  {TYPE_Q4_K, 512, 4352, 1150, false},
                  {TYPE_Q8_0, 2048, 1120, 6200, true}};
    int64_t worst = 0, seen = 0;
    for (int t = 0; t < (int)(sizeof shapes / sizeof *shapes); t++) {
        const int64_t k = shapes[t].k, m = shapes[t].m, n = shapes[t].n;
        struct gated l = {.gate = matrix_new(&c->rng, shapes[t].type, k, m),
                          .up = matrix_new(&c->rng, shapes[t].type, k, m),
                          .q = {.f = quant_format(shapes[t].type)},
                          .n = n,
                          .in = random_floats(&c->rng, n * k, 2),
                          .both = shapes[t].both};
        if (l.both)
            l.q = matrix_new(&c->rng, shapes[t].type, m, 64);
        for (int64_t i = 0; l.both && i < n * k; i++)
            l.in[i] = ldexpf(l.in[i], (int)(i / k * 5 % 13) - 6);
        worst += against_pieces(c, &l, 500);
        seen += n * (m + (l.both ? 64 : 0));
        free(l.in);
        matrix_free(&l.gate);
        matrix_free(&l.up);
        if (l.both)
            matrix_free(&l.q);
    }
    report(c, worst == 0, "linear_gate_up: rule E1", "n = 500, 1150, 6200; several tiles",
           "%lld of %lld values differ", (long long)worst, (long long)seen);
}

// Bits of a gated layer's row: in a large call and in smaller ones. Both its matrices have 300
// outputs, and k one part or several. On a device the other activations follow, whose matrices are
// multiplied each on its own.
void check_gate_up_rule(struct check *c) {
    enum { M = 300, PIECE = 140 };
    const int64_t rows = c->device ? 1100 : c->brief ? 80 : 300;
    static const uint32_t some[] = {TYPE_Q4_K,  TYPE_Q5_K, TYPE_Q6_K,  TYPE_Q8_0,
                                    TYPE_Q4_0,  TYPE_F16,  TYPE_F32,   TYPE_Q2_K,
                                    TYPE_IQ2_S, TYPE_Q5_1, TYPE_NVFP4, TYPE_IQ3_XXS};
    const int types = c->device ? 12 : 7; // a CPU has few forms
    int64_t worst = 0, seen = 0;
    if (!CHECK_HAS(c, linear_gate_up))
        return;
    for (int i = 0; i < (types + 1) * (c->device ? 2 : 1); i++) {
        const int t = i % (types + 1);
        uint32_t gate = some[t % types], up = some[t < types ? t : 2]; // the last of two types
        int64_t k = c->device && t % 2 ? 2048 : 512;
        struct gated l = {.gate = matrix_new(&c->rng, gate, k, M),
                          .up = matrix_new(&c->rng, up, k, M),
                          .q = {.f = quant_format(gate)},
                          .n = rows,
                          .in = malloc((size_t)(rows * k) * sizeof(float)),
                          .activation = (enum activation)(i > types ? 1 + t % 2 : 0)};
        size_t bytes = (size_t)(rows * M) * sizeof(float);
        float *all = malloc(bytes), *piece = malloc(bytes);
        fill_random(&c->rng, l.in, rows * k, 2);
        float *in = l.in;
        run_gate_up(c, c->exec, &l, all, NULL);
        for (int64_t at = 0; at < rows; at += l.n) {
            l.n = c->device && !at ? 300 : between(&c->rng, 1, PIECE);
            l.n = l.n < rows - at ? l.n : rows - at;
            l.in = in + at * k;
            run_gate_up(c, at % 2 ? c->other : c->exec, &l, piece, NULL);
            worst += bit_differences(all + at * M, piece, l.n * M);
            seen += l.n * M;
        }
        free(in);
        free(all);
        free(piece);
        matrix_free(&l.gate);
        matrix_free(&l.up);
    }
    report(c, worst == 0, "linear_gate_up: rule E1", "n = 1..140, all; other exec",
           "%lld of %lld values differ", (long long)worst, (long long)seen);
    if (c->device && !c->brief)
        check_many_tiles(c);
}
