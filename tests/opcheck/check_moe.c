// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts: the router against a sort in doubles, and layers of experts against plain
// linear layers with the matrices of single experts, to the bit.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck/families.h"

// Random rows of logits and the rules by which experts are chosen.
struct route {
    struct moe_route_args a; // pointers: host
    float *logits, *bias, *scale, *weights;
    int32_t *ids;
};

static void route_init(struct route *t, struct rng *r, int64_t n) {
    static const int counts[] = {1, 5, 8, 32, 64, 257, 512};
    static const int groups[] = {1, 5, 4, 8, 16, 1, 64};
    int kind = (int)rng_below(r, 7), e = counts[kind], used_groups = 1;
    struct moe_route_args *a = &t->a;
    *a = (struct moe_route_args){.n = n, .experts = e, .scale = 1};
    a->score = (enum route_score)rng_below(r, 3);
    if (rng_below(r, 2)) {
        a->groups = groups[kind];
        used_groups = a->groups_used = (int)between(r, 1, a->groups);
    }
    int max = a->groups ? e / a->groups * used_groups : e;
    a->used = (int)between(r, 1, max < 12 ? max : 12);
    a->group_best = rng_below(r, 2);
    a->normalise = rng_below(r, 2);
    if (rng_below(r, 2))
        a->scale = 2.5f;
    t->logits = malloc((size_t)(n * e) * sizeof *t->logits);
    t->bias = malloc((size_t)e * sizeof *t->bias);
    t->scale = malloc((size_t)e * sizeof *t->scale);
    t->ids = malloc((size_t)(n * a->used) * sizeof *t->ids);
    t->weights = malloc((size_t)(n * a->used) * sizeof *t->weights);
    fill_random(r, t->logits, n * e, 4);
    fill_random(r, t->bias, e, 0.2f);
    fill_random(r, t->scale, e, 2);
    if (rng_below(r, 2)) { // many equal ones
        for (int64_t i = 0; i < n * e; i++)
            t->logits[i] = rintf(t->logits[i]);
        for (int i = 0; i < e; i++)
            t->bias[i] = rintf(t->bias[i] * 10) / 8;
    }
    a->logits = t->logits;
    a->bias = rng_below(r, 2) ? t->bias : NULL;
    a->expert_scale = rng_below(r, 3) ? NULL : t->scale;
}

static void route_fini(struct route *t) {
    free(t->logits);
    free(t->bias);
    free(t->scale);
    free(t->ids);
    free(t->weights);
}

// Rows [first, first + n) of a case on one exec; results go to the same rows of ids and weights.
static void run_route(struct check *c, struct exec *x, const struct route *t, int64_t first,
                      int64_t n, int32_t *ids, float *weights) {
    struct moe_route_args a = t->a;
    size_t row = (size_t)a.used * sizeof(float), each = (size_t)a.experts * sizeof(float);
    struct buffers r;
    buffers_open(&r, c, x);
    a.n = n;
    a.logits = buffers_in(&r, t->logits + first * a.experts, (size_t)n * each);
    a.bias = a.bias ? buffers_in(&r, a.bias, each) : NULL;
    a.expert_scale = a.expert_scale ? buffers_in(&r, a.expert_scale, each) : NULL;
    a.ids = buffers_io(&r, ids + first * a.used, (size_t)n * row);
    a.weights = buffers_io(&r, weights + first * a.used, (size_t)n * row);
    exec_ops(x)->moe_route(x, &a);
    buffers_close(&r);
}

struct ranked {
    double by;
    int id;
};

static int by_rank(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->by != y->by)
        return x->by > y->by ? -1 : 1;
    return x->id - y->id;
}

// Sorts; *close: another order of the first `used` is as good within rounding, the values not
// being the same.
static void rank_all(struct ranked *v, int n, int used, bool *close) {
    qsort(v, (size_t)n, sizeof *v, by_rank);
    for (int i = 0; i < used && i + 1 < n; i++)
        *close = *close || (v[i].by != v[i + 1].by && v[i].by - v[i + 1].by < 1e-6);
}

// What each expert counts for in the choice, minus infinity outside the best groups.
static void candidates(const struct moe_route_args *a, const double *p, struct ranked *v,
                       bool *close) {
    struct ranked group[64], in[512];
    bool open[64] = {false};
    int groups = a->groups > 1 ? a->groups : 1, size = a->experts / groups;
    for (int i = 0; i < a->experts; i++)
        v[i] = (struct ranked){p[i] + (a->bias ? (double)a->bias[i] : 0), i};
    if (groups == 1)
        return;
    for (int g = 0; g < groups; g++) {
        memcpy(in, v + g * size, (size_t)size * sizeof *in);
        qsort(in, (size_t)size, sizeof *in, by_rank);
        group[g] = (struct ranked){in[0].by, g};
        if (!a->group_best && size > 1)
            group[g].by += in[1].by;
    }
    rank_all(group, groups, a->groups_used, close);
    for (int g = 0; g < a->groups_used; g++)
        open[group[g].id] = true;
    for (int i = 0; i < a->experts; i++)
        if (!open[i / size])
            v[i].by = -INFINITY;
}

static void softmax_double(double *p, int n) {
    double max = p[0], sum = 0;
    for (int i = 1; i < n; i++)
        max = fmax(max, p[i]);
    for (int i = 0; i < n; i++)
        sum += p[i] = exp(p[i] - max);
    for (int i = 0; i < n; i++)
        p[i] /= sum;
}

// One row in doubles. Returns false when floats may choose otherwise.
static bool route_double(const struct moe_route_args *a, const float *logits, int32_t *ids,
                         double *w) {
    double p[512], sum = 0;
    struct ranked v[512];
    bool close = false;
    for (int i = 0; i < a->experts; i++)
        p[i] = (double)logits[i];
    if (a->score == ROUTE_SOFTMAX)
        softmax_double(p, a->experts);
    for (int i = 0; i < a->experts && a->score == ROUTE_SIGMOID; i++)
        p[i] = 1 / (1 + exp(-p[i]));
    candidates(a, p, v, &close);
    rank_all(v, a->experts, a->used, &close);
    for (int i = 0; i < a->used; i++) {
        ids[i] = v[i].id;
        w[i] = p[v[i].id];
    }
    if (a->score == ROUTE_SOFTMAX_CHOSEN)
        softmax_double(w, a->used);
    for (int i = 0; i < a->used; i++)
        sum += w[i];
    for (int i = 0; i < a->used; i++) {
        w[i] *= (double)a->scale / (a->normalise ? sum : 1);
        w[i] *= a->expert_scale ? (double)a->expert_scale[ids[i]] : 1;
    }
    return !close;
}

static void check_route_double(struct check *c) {
    enum { CASES = 150 };
    int wrong = 0, skipped = 0;
    double worst = 0;
    for (int i = 0; i < CASES; i++) {
        struct route t;
        int32_t ids[12];
        double w[12];
        route_init(&t, &c->rng, 1);
        run_route(c, c->exec, &t, 0, 1, t.ids, t.weights);
        bool clear = route_double(&t.a, t.logits, ids, w);
        skipped += !clear;
        wrong += clear && memcmp(ids, t.ids, (size_t)t.a.used * sizeof *ids) != 0;
        for (int j = 0; j < t.a.used && clear; j++) {
            double e = fabs((double)t.weights[j] - w[j]) / (fabs(w[j]) + 1e-30);
            worst = e > worst || isnan(e) ? e : worst;
        }
        route_fini(&t);
    }
    report(c, wrong == 0 && skipped < CASES / 8 && worst < 3e-6, "moe_route / sort", "150 rows",
           "%d wrong, %d too close to call, weights off by %.1e (max 3e-6)", wrong, skipped, worst);
}

// A row of logits that are no numbers still gets experts that exist, each once.
static void check_route_nan(struct check *c) {
    enum { E = 8, USED = 3 };
    float logits[2 * E], weights[2 * USED];
    int32_t ids[2 * USED] = {0};
    struct route t = {.a = {.n = 2, .experts = E, .used = USED, .score = ROUTE_SIGMOID, .scale = 1},
                      .logits = logits};
    for (int i = 0; i < 2 * E; i++)
        logits[i] = i == E + 5 ? 1 : NAN;
    run_route(c, c->exec, &t, 0, 2, ids, weights);
    const int32_t want[2 * USED] = {0, 1, 2, 5, 0, 1};
    report(c, !memcmp(ids, want, sizeof want), "moe_route", "no numbers", "experts %d %d %d, %d",
           ids[0], ids[1], ids[2], ids[3]);
}

enum { BATCHES = 8 }; // of random routers, at every level

// Rows together on one exec and in pieces on another: the bits of what differs.
static int64_t route_differences(struct check *c, struct exec *x, struct exec *y, int64_t max) {
    enum { N = 37 };
    struct route t;
    route_init(&t, &c->rng, N);
    int64_t values = N * t.a.used;
    int32_t *ids = malloc((size_t)values * sizeof *ids);
    float *weights = malloc((size_t)values * sizeof *weights);
    run_route(c, x, &t, 0, N, t.ids, t.weights);
    for (int64_t at = 0, n; at < N; at += n) {
        n = between(&c->rng, 1, max);
        n = n < N - at ? n : N - at;
        run_route(c, y, &t, at, n, ids, weights);
    }
    int64_t differ = bit_differences(t.weights, weights, values);
    for (int64_t i = 0; i < values; i++)
        differ += t.ids[i] != ids[i];
    free(ids);
    free(weights);
    route_fini(&t);
    return differ;
}

// One layer of experts: gate and up, an activation, down.
struct experts {
    struct matrix gate, up, down; // [k -> f], [f -> m] of each expert
    int64_t n, experts;
    int used;
    enum activation activation;
    float *in, *bias; // [n][k]; [experts][f] twice and [experts][m], or NULL
    float *weights;   // [n][used]
    int32_t *ids;
};

static struct matrix experts_matrix(struct rng *r, uint32_t type, int64_t k, int64_t m,
                                    int64_t experts) {
    struct matrix all = matrix_new(r, type, k, m * experts);
    all.t.n_dims = 3;
    all.t.ne[1] = m;
    all.t.ne[2] = experts;
    return all;
}

static struct matrix one_expert(const struct matrix *all, int64_t expert) {
    struct matrix one = *all;
    one.t.n_dims = 2;
    one.t.bytes /= all->t.ne[2];
    one.t.ne[2] = 1;
    one.t.data = (const unsigned char *)all->t.data + expert * one.t.bytes;
    return one;
}

struct sizes {
    int64_t k, f, m;
};

static void experts_sized(struct experts *l, struct rng *r, uint32_t type, struct sizes s,
                          int64_t n, int used) {
    int64_t k = s.k, width = s.f, m = s.m;
    *l = (struct experts){.n = n, .used = used, .experts = used + between(r, 0, 6)};
    l->gate = experts_matrix(r, type, k, width, l->experts);
    l->up = experts_matrix(r, type, k, width, l->experts);
    l->down = experts_matrix(r, type, width, m, l->experts);
    l->activation = (enum activation)rng_below(r, 3);
    l->in = malloc((size_t)(n * k) * sizeof *l->in);
    l->weights = malloc((size_t)(n * used) * sizeof *l->weights);
    l->ids = malloc((size_t)(n * used) * sizeof *l->ids);
    fill_random(r, l->in, n * k, 2);
    fill_random(r, l->weights, n * used, 1);
    for (int64_t i = 0; i < n * used; i++) { // a row's experts differ
        int64_t row = i / used * used;
        l->ids[i] = (int32_t)rng_below(r, (uint32_t)l->experts);
        for (int64_t j = row; j < i; j++)
            if (l->ids[j] == l->ids[i]) {
                l->ids[i] = (int32_t)((l->ids[i] + 1) % l->experts);
                j = row - 1;
            }
    }
    if (rng_below(r, 2)) {
        l->bias = malloc((size_t)(l->experts * (2 * width + m)) * sizeof *l->bias);
        fill_random(r, l->bias, l->experts * (2 * width + m), 1);
    }
}

static void experts_init(struct experts *l, struct check *c, uint32_t type, int64_t n, int used) {
    const struct quant_format *f = quant_format(type);
    struct sizes s = {random_k(&c->rng, f), random_k(&c->rng, f), between(&c->rng, 1, 180)};
    if (c->brief && f->block == 256) { // rows of more blocks are a matter of linear layers
        s.k = s.k < 512 ? s.k : 512;
        s.f = 256;
    }
    experts_sized(l, &c->rng, type, s, n, used);
}

static void experts_fini(struct experts *l) {
    matrix_free(&l->gate);
    matrix_free(&l->up);
    matrix_free(&l->down);
    free(l->in);
    free(l->bias);
    free(l->weights);
    free(l->ids);
}

// What rows [first, first + n) come to: wide, [n * used][f], of the gate alone; deep, [n *
// used][m], before they are combined; out, [n][m], which they are added to.
struct outcome {
    float *wide, *deep, *out;
};

static void run_experts(struct check *c, struct exec *x, const struct experts *l, int64_t first,
                        int64_t n, const struct outcome *o) {
    const struct ops *ops = exec_ops(x);
    int64_t k = l->gate.t.ne[0], f = l->gate.t.ne[1], m = l->down.t.ne[1], entries = n * l->used;
    struct act *in = act_new(x, n, k), *mid = act_new(x, entries, f);
    struct weight *w[3] = {matrix_pack(x, &l->gate), matrix_pack(x, &l->up),
                           matrix_pack(x, &l->down)};
    struct buffers r;
    buffers_open(&r, c, x);
    const float *bias = NULL;
    if (l->bias)
        bias = buffers_in(&r, l->bias, (size_t)(l->experts * (2 * f + m)) * sizeof *bias);
    struct moe_list list = {n, l->used,
                            buffers_in(&r, l->ids + first * l->used, (size_t)entries * 4)};
    struct gate_up both = {.gate = w[0], .up = w[1], .activation = l->activation};
    both.gate_bias = bias;
    both.up_bias = bias ? bias + l->experts * f : NULL;
    const float *host = l->in + first * k;
    ops->to_act(x, buffers_in(&r, host, (size_t)(n * k) * sizeof *host), n, k, in);
    struct moe_linear_args one = {.w = w[0], .list = list, .in = in};
    one.out = buffers_io(&r, o->wide, (size_t)(entries * f) * sizeof(float));
    ops->moe_linear(x, &one);
    ops->moe_gate_up(x, &both, &list, in, mid);
    struct moe_linear_args down = {.w = w[2], .list = list, .in = mid, .entries = true};
    down.bias = bias ? bias + 2 * l->experts * f : NULL;
    down.out = buffers_io(&r, o->deep, (size_t)(entries * m) * sizeof(float));
    ops->moe_linear(x, &down);
    struct moe_combine_args sum = {.in = down.out, .n = n, .m = m, .used = l->used, .add = true};
    sum.weights = buffers_in(&r, l->weights + first * l->used, (size_t)entries * sizeof(float));
    sum.out = buffers_io(&r, o->out, (size_t)(n * m) * sizeof(float));
    ops->moe_combine(x, &sum);
    buffers_close(&r);
    ops->act_destroy(x, in);
    ops->act_destroy(x, mid);
    for (int i = 0; i < 3; i++)
        ops->weight_destroy(x, w[i]);
}

// The same of one entry by the plain ops, with its expert's matrices: wide [f], deep [m].
static void run_plain(struct check *c, const struct experts *l, int64_t entry, float *wide,
                      float *deep) {
    struct exec *x = c->exec;
    const struct ops *ops = exec_ops(x);
    int64_t k = l->gate.t.ne[0], f = l->gate.t.ne[1], m = l->down.t.ne[1], e = l->ids[entry];
    const struct matrix *all[3] = {&l->gate, &l->up, &l->down};
    struct act *in = act_new(x, 1, k), *mid = act_new(x, 1, f);
    struct weight *w[3];
    struct buffers r;
    buffers_open(&r, c, x);
    for (int i = 0; i < 3; i++) {
        struct matrix one = one_expert(all[i], e);
        w[i] = matrix_pack(x, &one);
    }
    const float *bias[3] = {NULL, NULL, NULL}, *from = l->bias, *row = l->in + entry / l->used * k;
    for (int i = 0; i < 3 && from; i++) {
        int64_t width = i < 2 ? f : m;
        bias[i] = buffers_in(&r, from + e * width, (size_t)width * sizeof *from);
        from += l->experts * width;
    }
    ops->to_act(x, buffers_in(&r, row, (size_t)k * sizeof *row), 1, k, in);
    struct linear_job one = {.w = w[0], .out = buffers_io(&r, wide, (size_t)f * sizeof *wide)};
    ops->linear(x, &one, 1, in, 1);
    ops->linear_gate_up(x, &(struct gate_up){w[0], w[1], bias[0], bias[1], l->activation}, in, 1,
                        mid);
    struct linear_job down = {.w = w[2], .bias = bias[2]};
    down.out = buffers_io(&r, deep, (size_t)m * sizeof *deep);
    ops->linear(x, &down, 1, mid, 1);
    buffers_close(&r);
    ops->act_destroy(x, in);
    ops->act_destroy(x, mid);
    for (int i = 0; i < 3; i++)
        ops->weight_destroy(x, w[i]);
}

static struct outcome outcome_new(const struct experts *l) {
    int64_t f = l->gate.t.ne[1], m = l->down.t.ne[1], entries = l->n * l->used;
    struct outcome o = {malloc((size_t)(entries * f) * sizeof(float)),
                        malloc((size_t)(entries * m) * sizeof(float)),
                        malloc((size_t)(l->n * m) * sizeof(float))};
    for (int64_t i = 0; i < l->n * m; i++)
        o.out[i] = (float)(i % 5) - 2;
    return o;
}

static void outcome_free(struct outcome *o) {
    free(o->wide);
    free(o->deep);
    free(o->out);
}

static int64_t outcome_differences(const struct experts *l, const struct outcome *a,
                                   const struct outcome *b) {
    int64_t f = l->gate.t.ne[1], m = l->down.t.ne[1], entries = l->n * l->used;
    return bit_differences(a->wide, b->wide, entries * f) +
           bit_differences(a->deep, b->deep, entries * m) +
           bit_differences(a->out, b->out, l->n * m);
}

// Rows together on x, in pieces of up to `max` on y.
static int64_t layer_differences(struct check *c, const struct experts *l, struct exec *x,
                                 struct exec *y, int64_t max) {
    int64_t f = l->gate.t.ne[1], m = l->down.t.ne[1];
    struct outcome all = outcome_new(l), some = outcome_new(l);
    run_experts(c, x, l, 0, l->n, &all);
    for (int64_t at = 0, n; at < l->n; at += n) {
        n = between(&c->rng, 1, max);
        n = n < l->n - at ? n : l->n - at;
        struct outcome part = {some.wide + at * l->used * f, some.deep + at * l->used * m,
                               some.out + at * m};
        run_experts(c, y, l, at, n, &part);
    }
    int64_t differ = outcome_differences(l, &all, &some);
    outcome_free(&all);
    outcome_free(&some);
    return differ;
}

static bool has_experts(struct check *c) {
    const struct ops_needs needs = {.experts = true};
    if (!check_takes(c, &needs, "moe"))
        return false;
    const bool route = CHECK_HAS(c, moe_route), pair = CHECK_HAS(c, moe_gate_up);
    const bool linear = CHECK_HAS(c, moe_linear), sum = CHECK_HAS(c, moe_combine);
    return route && pair && linear && sum;
}

void check_moe(struct check *c) {
    int64_t routes = 0, layers = 0;
    if (c->device || !has_experts(c))
        return;
    for (int i = 0; i < BATCHES; i++)
        routes += route_differences(c, c->spec, c->exec, 37);
    for (int t = 0; t < TYPES; t++) {
        struct experts l;
        experts_init(&l, c, weight_types[t], between(&c->rng, 1, 60), 1 + t % 4);
        layers += layer_differences(c, &l, c->spec, c->exec, l.n);
        experts_fini(&l);
    }
    report(c, routes == 0, "moe_route", "batches", "%lld differ (exact)", (long long)routes);
    report(c, layers == 0, "moe_gate_up, linear, combine", "all types", "%lld differ (exact)",
           (long long)layers);
}

void check_moe_rule(struct check *c) {
    int64_t routes = 0, layers = 0, plain = 0;
    if (!has_experts(c))
        return;
    for (int i = 0; i < BATCHES; i++)
        routes += route_differences(c, c->exec, c->other, 1 + i % 9);
    for (int t = 0; t < TYPES; t++) {
        struct experts l;
        experts_init(&l, c, weight_types[t], 27, 1 + t % 4);
        layers += layer_differences(c, &l, c->exec, c->other, c->brief ? 20 : 1 + t);
        struct outcome all = outcome_new(&l), one = outcome_new(&l);
        int64_t f = l.gate.t.ne[1], m = l.down.t.ne[1];
        run_experts(c, c->exec, &l, 0, l.n, &all);
        for (int64_t i = t % 3; i < l.n * l.used; i += c->brief ? 25 : 5) {
            run_plain(c, &l, i, one.wide, one.deep);
            plain += bit_differences(all.wide + i * f, one.wide, f);
            plain += bit_differences(all.deep + i * m, one.deep, m);
        }
        outcome_free(&all);
        outcome_free(&one);
        experts_fini(&l);
    }
    for (int t = 0; c->device && t < TYPES; t++) { // more entries than are few
        struct experts l;
        experts_init(&l, c, weight_types[t], 180, 3 + t % 2);
        layers += layer_differences(c, &l, c->exec, c->other, 70);
        experts_fini(&l);
    }
    struct experts l; // more entries than are ordered at a time
    experts_sized(&l, &c->rng, TYPE_Q8_0, (struct sizes){32, 32, 20}, 2600, 4);
    layers += layer_differences(c, &l, c->exec, c->other, 900);
    experts_fini(&l);
    report(c, routes == 0, "moe_route: rule E1", "batches", "%lld differ", (long long)routes);
    report(c, layers == 0, "moe layers: rule E1", "all types; other exec", "%lld differ",
           (long long)layers);
    report(c, plain == 0, "moe layers / linear", "all types", "%lld differ", (long long)plain);
    check_store_rule(c);
    check_host_rule(c);
    check_moe_layer_rule(c);
}

// Sums over a row's entries, and whole layers of plain numbers.
static double combined_error(const struct experts *l, const struct outcome *o) {
    int64_t m = l->down.t.ne[1];
    double worst = 0;
    for (int64_t i = 0; i < l->n * m; i++) {
        float out = (float)(i % 5) - 2;
        double want = (double)out, size = fabs(want);
        for (int j = 0; j < l->used; j++) {
            int64_t entry = i / m * l->used + j;
            double term = (double)l->weights[entry] * (double)o->deep[entry * m + i % m];
            want += term;
            size += fabs(term);
        }
        double e = fabs((double)o->out[i] - want) / (size + 1e-30);
        worst = e > worst || isnan(e) ? e : worst;
    }
    return worst;
}

void check_moe_double(struct check *c) {
    double worst = 0;
    if (!has_experts(c))
        return;
    check_route_double(c);
    check_route_nan(c);
    for (int i = 0; i < 6; i++) {
        struct experts l;
        experts_init(&l, c, TYPE_Q8_0, between(&c->rng, 1, 20), 1 + i);
        struct outcome o = outcome_new(&l);
        run_experts(c, c->exec, &l, 0, l.n, &o);
        double e = combined_error(&l, &o);
        worst = e > worst || isnan(e) ? e : worst;
        outcome_free(&o);
        experts_fini(&l);
    }
    report(c, worst < 5e-7, "moe_combine / double", "6 layers", "relative %.1e (max 5e-7)", worst);
}

struct moe_call {
    struct exec *x;
    struct gate_up w;
    struct moe_list list;
    struct act *in, *out;
};

static void moe_turn(void *arg, int turn) {
    const struct moe_call *t = arg;
    (void)turn;
    exec_ops(t->x)->moe_gate_up(t->x, &t->w, &t->list, t->in, t->out);
}

void check_moe_time(struct check *c) {
    enum { K = 1024, F = 256, EXPERTS = 32, USED = 4, MOST = 64 };
    static const int counts[] = {1, 16, MOST};
    struct moe_call t = {.x = c->exec};
    static float in[MOST * K];
    int32_t ids[MOST * USED];
    struct buffers r;
    if (!has_experts(c))
        return;
    struct matrix m = experts_matrix(&c->rng, TYPE_Q4_K, K, F, EXPERTS);
    struct weight *gate = matrix_pack(c->exec, &m), *up = matrix_pack(c->exec, &m);
    t.w = (struct gate_up){.gate = gate, .up = up};
    t.in = act_new(c->exec, MOST, K);
    t.out = act_new(c->exec, MOST * USED, F);
    fill_random(&c->rng, in, MOST * K, 1);
    for (int i = 0; i < MOST * USED; i++)
        ids[i] = i % USED * (EXPERTS / USED) + (int)rng_below(&c->rng, EXPERTS / USED);
    buffers_open(&r, c, c->exec);
    t.list = (struct moe_list){.used = USED, .ids = buffers_in(&r, ids, sizeof ids)};
    exec_ops(c->exec)->to_act(c->exec, buffers_in(&r, in, sizeof in), MOST, K, t.in);
    for (int i = 0; i < 3; i++) {
        char shape[64];
        t.list.n = counts[i];
        double us = time_call(c, moe_turn, &t);
        snprintf(shape, sizeof shape, "Q4_K %dx%d 4 of 32, n=%d", K, F, counts[i]);
        int64_t read = counts[i] * USED < EXPERTS ? counts[i] * USED : EXPERTS;
        report_time(c, "moe_gate_up", shape, us, (double)(2 * m.t.bytes / EXPERTS * read));
    }
    buffers_close(&r);
    exec_ops(c->exec)->act_destroy(c->exec, t.in);
    exec_ops(c->exec)->act_destroy(c->exec, t.out);
    exec_ops(c->exec)->weight_destroy(c->exec, gate);
    exec_ops(c->exec)->weight_destroy(c->exec, up);
    matrix_free(&m);
    check_store_time(c);
}
