// SPDX-License-Identifier: Apache-2.0
// A recurrent layer's ops in a row, from the projections to the gated norm, as a model queues them.
// A device may leave work of one to the next (sums of a projection's parts); that must show in no
// bit and in no output that an op promises. So the row is run once as it is, and once with a wait
// after every op.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck/families.h"

enum { MATRICES = 4, ARRAYS = 8, MOST_ROWS = 70 };

struct layer {
    struct gdn_shape shape;
    int64_t k, len;
    struct matrix w[MATRICES]; // of u, z, a and b
    float *in;                 // [rows][k]
    float *conv_w, *ssm_a, *dt_bias, *norm;
    struct gdn_state state; // host
    struct forest f;
};

// What one run leaves: u, k, g, d, z, a, b, and the act.
struct outcome {
    float *p[ARRAYS];
    int64_t n[ARRAYS];
};

static void layer_init(struct layer *l, struct rng *r) {
    static const uint32_t types[] = {TYPE_Q4_K, TYPE_Q6_K, TYPE_Q8_0};
    int nk = 2, nv = 2 * (int)between(r, 1, 4), d = rng_below(r, 3) ? 128 : 64;
    struct gdn_shape s = {nk, nv, d, d, 2 * nk * d + nv * d};
    const int64_t m[MATRICES] = {s.channels, nv * d, nv, nv};
    l->shape = s;
    l->k = 256 * between(r, 1, 11); // several parts from four units of 256 on
    l->len = between(r, 0, 200);
    for (int i = 0; i < MATRICES; i++)
        l->w[i] = matrix_new(r, types[rng_below(r, 3)], l->k, m[i]);
    l->in = random_floats(r, MOST_ROWS * l->k, 1);
    l->conv_w = random_floats(r, s.channels * GDN_CONV, 1);
    l->dt_bias = random_floats(r, nv, 1);
    l->norm = random_floats(r, d, 1);
    l->ssm_a = random_floats(r, nv, 0.1f);
    l->state = (struct gdn_state){.s_lo = random_floats(r, nv * d * d, 0.3f),
                                  .s_hi = random_floats(r, nv * d * d, 0.3f),
                                  .log_k = random_floats(r, GDN_RING * nk * d, 0.1f),
                                  .log_d = random_floats(r, GDN_RING * nv * d, 0.3f),
                                  .log_g = random_floats(r, GDN_RING * nv, 0.05f),
                                  .conv = random_floats(r, (GDN_CONV - 1) * s.channels, 1)};
    for (int i = 0; i < nv; i++)
        l->ssm_a[i] = -fabsf(l->ssm_a[i]);
    for (int i = 0; i < GDN_RING * nv; i++)
        l->state.log_g[i] = -fabsf(l->state.log_g[i]);
    forest_clear(&l->f);
    if (rng_below(r, 3))
        forest_grow(&l->f, r, TREE, 0, l->len, (int)between(r, 1, MOST_ROWS));
    else
        forest_grow(&l->f, r, CHAIN, 0, l->len, (int)between(r, 1, GDN_BLOCK));
}

static void layer_fini(struct layer *l) {
    const struct gdn_state *s = &l->state;
    float *all[] = {l->in,   l->conv_w, l->ssm_a, l->dt_bias, l->norm, s->s_lo,
                    s->s_hi, s->log_k,  s->log_d, s->log_g,   s->conv};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    for (int i = 0; i < MATRICES; i++)
        matrix_free(&l->w[i]);
}

static float *give(struct buffers *r, const float *host, int64_t n) {
    return buffers_in(r, host, (size_t)n * sizeof *host);
}

static struct gdn_state give_state(struct buffers *r, const struct layer *l) {
    const struct gdn_shape *h = &l->shape;
    int64_t base = (int64_t)h->n_v * h->dk * h->dv;
    return (struct gdn_state){.s_lo = give(r, l->state.s_lo, base),
                              .s_hi = give(r, l->state.s_hi, base),
                              .log_k = give(r, l->state.log_k, GDN_RING * h->n_k * h->dk),
                              .log_d = give(r, l->state.log_d, GDN_RING * h->n_v * h->dv),
                              .log_g = give(r, l->state.log_g, GDN_RING * h->n_v),
                              .conv = give(r, l->state.conv, (GDN_CONV - 1) * h->channels)};
}

// What the ops write, on the device, in the order of an outcome; q, v, beta and out besides.
struct written {
    struct gdn_rows rows;
    float *z, *a, *b, *out;
};

static struct written written_new(struct buffers *r, const struct layer *l, struct outcome *o) {
    const struct gdn_shape *h = &l->shape;
    int64_t n = l->f.rows.n, k = n * h->n_k * h->dk, v = n * h->n_v * h->dv, g = n * h->n_v;
    const int64_t sizes[ARRAYS] = {n * h->channels, k, g, v, v, g, g, v};
    float *at[ARRAYS];
    for (int i = 0; i < ARRAYS; i++) {
        o->n[i] = sizes[i];
        o->p[i] = malloc((size_t)sizes[i] * sizeof(float));
        if (!o->p[i])
            abort();
        at[i] = i + 1 < ARRAYS ? buffers_io(r, o->p[i], (size_t)sizes[i] * sizeof(float)) : NULL;
    }
    struct gdn_rows rows = {at[0],
                            buffers_own(r, NULL, (size_t)k * sizeof(float)),
                            at[1],
                            buffers_own(r, NULL, (size_t)v * sizeof(float)),
                            buffers_own(r, NULL, (size_t)g * sizeof(float)),
                            at[2],
                            at[3]};
    return (struct written){rows, at[4], at[5], at[6],
                            buffers_own(r, NULL, (size_t)v * sizeof(float))};
}

struct device_layer {
    struct weight *w[MATRICES];
    struct act *in, *out;
};

static struct device_layer device_layer_new(struct exec *x, const struct layer *l) {
    const struct ops *o = exec_ops(x);
    struct device_layer d;
    struct err e;
    int64_t n = l->f.rows.n;
    int rc = o->act_create(x, n, l->k, &d.in, &e);
    if (!rc)
        rc = o->act_create(x, n, (int64_t)l->shape.n_v * l->shape.dv, &d.out, &e);
    for (int i = 0; !rc && i < MATRICES; i++)
        rc = o->weight_create(x, &l->w[i].t, &d.w[i], &e);
    if (rc) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
    return d;
}

static void device_layer_fini(struct exec *x, struct device_layer *d) {
    const struct ops *o = exec_ops(x);
    for (int i = 0; i < MATRICES; i++)
        o->weight_destroy(x, d->w[i]);
    o->act_destroy(x, d->in);
    o->act_destroy(x, d->out);
}

static void pause_if(struct exec *x, bool waits) {
    struct err e;
    if (waits)
        exec_status(x, &e); // a fault is reported at the family's end
}

static void run_layer(struct check *c, const struct layer *l, bool waits, struct outcome *out) {
    struct exec *x = c->exec;
    const struct ops *o = exec_ops(x);
    const struct gdn_shape *h = &l->shape;
    int64_t n = l->f.rows.n;
    struct buffers r;
    buffers_open(&r, c, x);
    struct device_layer d = device_layer_new(x, l);
    struct written w = written_new(&r, l, out);
    struct gdn_state state = give_state(&r, l);
    const struct gdn_state *seqs[1] = {&state};
    struct gdn_conv_args conv = {*h,
                                 w.a,
                                 w.b,
                                 give(&r, l->conv_w, h->channels * GDN_CONV),
                                 give(&r, l->ssm_a, h->n_v),
                                 give(&r, l->dt_bias, h->n_v),
                                 seqs,
                                 w.rows};
    struct gdn_run run = {0, n, 0};
    struct gdn_args rule = {*h, &run, 1, seqs, &l->len, w.rows, w.out};
    struct gated_norm_args norm = {w.out, w.z,  give(&r, l->norm, h->dv), 1e-6f, n, h->n_v,
                                   h->dv, d.out};
    struct linear_job jobs[MATRICES] = {{.w = d.w[0], .out = w.rows.u},
                                        {.w = d.w[1], .out = w.z},
                                        {.w = d.w[2], .out = w.a},
                                        {.w = d.w[3], .out = w.b}};
    o->to_act(x, give(&r, l->in, n * l->k), n, l->k, d.in);
    pause_if(x, waits);
    o->linear(x, jobs, MATRICES, d.in, n);
    pause_if(x, waits);
    o->gdn_gates_conv(x, &conv, &l->f.rows);
    pause_if(x, waits);
    o->gdn(x, &rule, &l->f.rows);
    pause_if(x, waits);
    o->gated_norm_to_act(x, &norm);
    read_act(x, d.out, n, (int64_t)h->n_v * h->dv, out->p[ARRAYS - 1]);
    buffers_close(&r);
    device_layer_fini(x, &d);
}

// Values that differ, or are no numbers, in all arrays of two outcomes, which are freed.
static int64_t compare(struct outcome *a, struct outcome *b) {
    int64_t differ = 0;
    for (int i = 0; i < ARRAYS; i++) {
        differ += bit_differences(a->p[i], b->p[i], a->n[i]);
        for (int64_t j = 0; j < a->n[i]; j++)
            differ += !isfinite(a->p[i][j]);
        free(a->p[i]);
        free(b->p[i]);
    }
    return differ;
}

void check_gdn_layer_rule(struct check *c) {
    for (int i = 0; c->device && check_has_gdn(c) && i < 12; i++) {
        struct layer l;
        struct outcome at_once, apart;
        char text[64];
        layer_init(&l, &c->rng);
        snprintf(text, sizeof text, "%d/%d heads of %d, k %d, %d rows", l.shape.n_k, l.shape.n_v,
                 l.shape.dk, (int)l.k, (int)l.f.rows.n);
        run_layer(c, &l, false, &at_once);
        run_layer(c, &l, true, &apart);
        int64_t differ = compare(&at_once, &apart);
        report(c, differ == 0, "gdn: layer", text, "%lld values differ from op by op",
               (long long)differ);
        layer_fini(&l);
    }
}
