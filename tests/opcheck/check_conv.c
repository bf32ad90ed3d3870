// SPDX-License-Identifier: Apache-2.0
// The convolution along the rows of blocks: alone, and with what stands around it between two
// sublayers of a DFlash2 draft. There a device may leave the parts of a linear layer's sums to it;
// that must show in no bit and in no output that an op promises, so the ops are run once as they
// are, and once with a wait after each.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck/families.h"
#include "opcheck/opcheck.h"

// Blocks of BLOCK rows of K values; own kernels lie in rows that are wider.
enum { K = 1120, BLOCK = 5, BLOCKS = 3, ROWS = BLOCK * BLOCKS, TAPS = 3, OWN = 300 };

struct conv_case {
    const float *in, *base, *own; // [ROWS][K], [TAPS][K], [ROWS][OWN]
    int first, n;                 // rows of it, whole blocks
    int taps, group;
    bool add;
};

static void run_conv(struct check *c, struct exec *x, const struct conv_case *w, float *out) {
    struct buffers r;
    buffers_open(&r, c, x);
    const float *in = buffers_in(&r, w->in, (size_t)ROWS * K * sizeof *in);
    const float *base = buffers_in(&r, w->base, (size_t)TAPS * K * sizeof *base);
    const float *own = buffers_in(&r, w->own, (size_t)ROWS * OWN * sizeof *own);
    float *to = buffers_io(&r, out, (size_t)w->n * K * sizeof *out);
    exec_ops(x)->block_conv(x, &(struct block_conv_args){.in = in + (int64_t)w->first * K,
                                                         .base = base,
                                                         .own = own + (int64_t)w->first * OWN,
                                                         .own_stride = OWN,
                                                         .n = w->n,
                                                         .dim = K,
                                                         .block = BLOCK,
                                                         .taps = w->taps,
                                                         .group = w->group,
                                                         .out = to,
                                                         .add = w->add});
    buffers_close(&r);
}

// The sum in double.
static double conv_value(const struct conv_case *w, int i, int at) {
    double sum = 0;
    for (int o = 0; o < w->taps && o <= i % BLOCK; o++)
        sum += ((double)w->base[o * K + at] +
                (double)w->own[i * OWN + o * (K / w->group) + at / w->group]) *
               (double)w->in[(i - o) * K + at];
    return sum;
}

static void check_alone(struct check *c) {
    static const struct {
        int taps, group;
        bool add;
    } forms[] = {{2, 16, false}, {3, 112, true}, {1, 32, false}};
    float *in = random_floats(&c->rng, ROWS * K, 2), *base = random_floats(&c->rng, TAPS * K, 1);
    float *own = random_floats(&c->rng, ROWS * OWN, 1), *old = random_floats(&c->rng, ROWS * K, 1);
    float *a = calloc(ROWS * K, sizeof *a), *b = calloc(ROWS * K, sizeof *b);
    struct tally t = {0};
    double worst = 0;
    int64_t diff = a && b ? 0 : 1;
    for (size_t i = 0; !diff && i < sizeof forms / sizeof *forms; i++) {
        struct conv_case w = {in, base, own, 0, ROWS, forms[i].taps, forms[i].group, forms[i].add};
        memcpy(a, old, ROWS * K * sizeof *a);
        memcpy(b, old, ROWS * K * sizeof *b);
        run_conv(c, c->spec, &w, a);
        run_conv(c, c->exec, &w, b);
        tally_add(&t, a, b, ROWS * K);
        for (int j = 0; j < ROWS * K; j++)
            a[j] = (float)(conv_value(&w, j / K, j % K) + (w.add ? (double)old[j] : 0));
        worst = fmax(worst, relative_error(b, a, ROWS * K));
        // The bits of a block are the same without those around it.
        memcpy(a, old + BLOCK * K, BLOCK * K * sizeof *a);
        w.first = w.n = BLOCK;
        run_conv(c, c->exec, &w, a);
        diff += bit_differences(b + BLOCK * K, a, BLOCK * K);
    }
    report_tally(c, &t, a && b, 1e-6, "block_conv", "three forms");
    report(c, worst < 1e-6 && diff == 0, "block_conv / double", "three forms",
           "relative error %.1e (max 1e-6), %lld values of a block alone differ", worst,
           (long long)diff);
    free(in);
    free(base);
    free(own);
    free(old);
    free(a);
    free(b);
}

// From the output of a sublayer to the input of the next one's matrices.
enum { MATRICES = 2, ARRAYS = 5, MOST_ROWS = 80 };

struct turn {
    int64_t inner, dim, n; // values of a row in front of the sublayer's last matrix, after it; rows
    int block, taps, group;
    struct matrix w[MATRICES];            // inner -> dim; dim -> all kernels of a row
    float *in, *h, *norm, *base, *before; // before: the kernels at the sublayer's begin
};

static int64_t turn_width(const struct turn *t) {
    return 2 * t->taps * (t->dim / t->group);
}

static void turn_init(struct turn *t, struct rng *r) {
    static const uint32_t types[] = {TYPE_Q4_K, TYPE_Q6_K, TYPE_Q8_0};
    t->inner = 256 * between(r, 1, 11); // several parts from four units of 256 on
    t->dim = 256 * between(r, 1, 11);
    t->block = (int)between(r, 1, 16);
    t->n = t->block * between(r, 1, MOST_ROWS / t->block);
    t->taps = (int)between(r, 1, 3);
    static const int groups[] = {4, 16, 64}; // of 4 with 3 taps: more kernels than values in a row
    t->group = groups[rng_below(r, 3)];
    t->w[0] = matrix_new(r, types[rng_below(r, 3)], t->inner, t->dim);
    t->w[1] = matrix_new(r, types[rng_below(r, 3)], t->dim, turn_width(t));
    t->in = random_floats(r, t->n * t->inner, 1);
    t->h = random_floats(r, t->n * t->dim, 2);
    t->norm = random_floats(r, t->dim, 1);
    t->base = random_floats(r, 2 * t->taps * t->dim, 1);
    t->before = random_floats(r, t->n * turn_width(t), 1);
}

static void turn_fini(struct turn *t) {
    float *all[] = {t->in, t->h, t->norm, t->base, t->before};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    for (int i = 0; i < MATRICES; i++)
        matrix_free(&t->w[i]);
}

// The sublayer's output, h, its norm, the kernels, and the rows for the next matrices.
struct outcome {
    float *p[ARRAYS];
    int64_t n[ARRAYS];
};

static void pause_if(struct exec *x, bool waits) {
    struct err e;
    if (waits)
        exec_status(x, &e); // a fault is reported at the family's end
}

// Its host arrays, and those of the device; the last one is read by read_act.
static void outcome_new(struct buffers *r, const struct turn *t, struct outcome *out, float **at) {
    const int64_t rows = t->n * t->dim;
    const int64_t sizes[ARRAYS] = {rows, rows, rows, t->n * turn_width(t), rows};
    const float *const begin[ARRAYS] = {NULL, t->h, NULL, t->before, NULL};
    for (int i = 0; i < ARRAYS; i++) {
        const size_t bytes = (size_t)sizes[i] * sizeof(float);
        out->n[i] = sizes[i];
        out->p[i] = calloc(1, bytes);
        if (!out->p[i])
            abort();
        if (begin[i])
            memcpy(out->p[i], begin[i], bytes);
        at[i] = i + 1 < ARRAYS ? buffers_io(r, out->p[i], bytes) : NULL;
    }
}

static void run_turn(struct check *c, struct exec *x, const struct turn *t, bool waits,
                     struct outcome *out) {
    const struct ops *o = exec_ops(x);
    const int64_t n = t->n, dim = t->dim, width = turn_width(t);
    struct weight *w[MATRICES] = {matrix_pack(x, &t->w[0]), matrix_pack(x, &t->w[1])};
    struct act *in = act_new(x, n, t->inner), *act = act_new(x, n, dim);
    struct buffers r;
    float *at[ARRAYS];
    buffers_open(&r, c, x);
    outcome_new(&r, t, out, at);
    const float *base = buffers_in(&r, t->base, (size_t)(2 * t->taps * dim) * sizeof *base);
    struct block_conv_args conv = {.in = at[0],
                                   .base = base + t->taps * dim,
                                   .own = at[3] + width / 2,
                                   .own_stride = width,
                                   .n = n,
                                   .dim = dim,
                                   .block = t->block,
                                   .taps = t->taps,
                                   .group = t->group,
                                   .out = at[1],
                                   .add = true};
    o->to_act(x, buffers_in(&r, t->in, (size_t)(n * t->inner) * sizeof *t->in), n, t->inner, in);
    o->linear(x, &(struct linear_job){.w = w[0], .out = at[0]}, 1, in, n);
    pause_if(x, waits);
    o->norm(x, &(struct norm_args){.in = at[1],
                                   .w = buffers_in(&r, t->norm, (size_t)dim * sizeof *t->norm),
                                   .eps = 1e-6f,
                                   .n = n,
                                   .k = dim,
                                   .out = at[2],
                                   .act = act,
                                   .conv = &conv});
    pause_if(x, waits);
    o->linear(x, &(struct linear_job){.w = w[1], .out = at[3]}, 1, act, n);
    pause_if(x, waits);
    conv.in = at[2];
    conv.base = base;
    conv.own = at[3];
    conv.out = NULL;
    conv.act = act;
    conv.add = false;
    o->block_conv(x, &conv);
    read_act(x, act, n, dim, out->p[ARRAYS - 1]);
    buffers_close(&r);
    o->act_destroy(x, in);
    o->act_destroy(x, act);
    for (int i = 0; i < MATRICES; i++)
        o->weight_destroy(x, w[i]);
}

static int64_t differences(const struct outcome *a, const struct outcome *b) {
    int64_t differ = 0;
    for (int i = 0; i < ARRAYS; i++)
        differ += bit_differences(a->p[i], b->p[i], a->n[i]);
    return differ;
}

static void outcome_free(struct outcome *o) {
    for (int i = 0; i < ARRAYS; i++)
        free(o->p[i]);
}

static bool has_conv(struct check *c) {
    const bool conv = CHECK_HAS(c, block_conv), norm = CHECK_HAS(c, norm);
    return conv && norm;
}

void check_conv(struct check *c) {
    if (!has_conv(c))
        return;
    check_alone(c);
    struct tally tally = {0};
    for (int i = 0; i < 6; i++) {
        struct turn t;
        struct outcome spec, got;
        turn_init(&t, &c->rng);
        run_turn(c, c->spec, &t, false, &spec);
        run_turn(c, c->exec, &t, false, &got);
        for (int j = 0; j < ARRAYS; j++)
            tally_add(&tally, spec.p[j], got.p[j], spec.n[j]);
        outcome_free(&spec);
        outcome_free(&got);
        turn_fini(&t);
    }
    report_tally(c, &tally, true, 2e-2, "block_conv: turn", "six of random shapes");
}

void check_conv_rule(struct check *c) {
    for (int i = 0; c->device && has_conv(c) && i < 12; i++) {
        struct turn t;
        struct outcome at_once, apart;
        char text[64];
        turn_init(&t, &c->rng);
        snprintf(text, sizeof text, "%d to %d, %d rows, block %d, %d taps", (int)t.inner,
                 (int)t.dim, (int)t.n, t.block, t.taps);
        run_turn(c, c->exec, &t, false, &at_once);
        run_turn(c, c->exec, &t, true, &apart);
        int64_t differ = differences(&at_once, &apart);
        report(c, differ == 0, "block_conv: turn", text, "%lld values differ from op by op",
               (long long)differ);
        outcome_free(&at_once);
        outcome_free(&apart);
        turn_fini(&t);
    }
}
