// SPDX-License-Identifier: Apache-2.0
// moe_layer, a layer of experts as one op, against the ops that it stands for, to the bit: with
// shared experts that are like the others and such that are not, before a norm and alone, rows
// together and in pieces.
#include <stdlib.h>
#include <string.h>

#include "opcheck/families.h"

enum { MOST = 23, USED_MAX = 8, SHARED_LIKE = 1, SHARED_OTHER, SHARED_PLAIN };

struct layer {
    struct matrix router, gate_in, gate, up, down, shared[3];
    int64_t k, f, m, n;
    int experts, used, kind; // kind: of the shared expert; 0: none
    float *in, *h, *norm, *bias;
};

// What a layer comes to.
struct result {
    float *h, *normed, *weights; // [n][m] twice, [n][used]
    int32_t *ids;
};

static struct result result_new(const struct layer *l) {
    return (struct result){calloc((size_t)(l->n * l->m), sizeof(float)),
                           calloc((size_t)(l->n * l->m), sizeof(float)),
                           calloc((size_t)(l->n * l->used), sizeof(float)),
                           calloc((size_t)(l->n * l->used), sizeof(int32_t))};
}

static void result_free(struct result *r) {
    free(r->h);
    free(r->normed);
    free(r->weights);
    free(r->ids);
}

static struct matrix experts_of(struct rng *r, uint32_t type, int64_t k, int64_t m, int64_t n) {
    struct matrix all = matrix_new(r, type, k, m * n);
    all.t.n_dims = 3;
    all.t.ne[1] = m;
    all.t.ne[2] = n;
    return all;
}

static void layer_init(struct layer *l, struct rng *r, uint32_t type, int turn) {
    const struct quant_format *f = quant_format(type);
    const uint32_t router = turn % 3 == 1 ? TYPE_F16 : TYPE_F32;
    *l = (struct layer){.n = turn % 4 == 0 ? 1 : between(r, 2, MOST)};
    l->k = random_k(r, f) + (turn % 2 ? 1024 : 0); // parts of k
    l->f = f->block == 1 ? between(r, 1, 6) * 32 : f->block == 256 ? 256 : between(r, 1, 8) * 64;
    l->m = between(r, 1, 40) * 4;
    l->experts = (int)between(r, USED_MAX, turn % 6 ? 16 : 150);
    l->used = (int)between(r, 1, USED_MAX);
    l->kind = turn % 4;
    if (type == TYPE_Q4_K && l->n > 1) { // more rows than a GPU's block keeps at once
        l->n = MOST;
        l->k = 8192;
        l->f = 512;
        l->experts = l->used = 4;
    }
    const int64_t width = l->f, k = l->k;
    l->router = matrix_new(r, router, k, l->experts);
    l->gate_in = matrix_new(r, router, k, 1);
    l->gate = experts_of(r, type, k, width, l->experts);
    l->up = experts_of(r, type, k, width, l->experts);
    l->down = experts_of(r, type, width, l->m, l->experts);
    const uint32_t unlike = type == TYPE_F16 ? TYPE_F32 : TYPE_F16;
    const uint32_t other = l->kind == SHARED_OTHER ? unlike : type;
    for (int i = 0; i < 3; i++)
        l->shared[i] = i < 2 ? matrix_new(r, other, k, width) : matrix_new(r, other, width, l->m);
    l->in = random_floats(r, l->n * k, 2);
    l->h = random_floats(r, l->n * l->m, 1);
    l->norm = random_floats(r, l->m, 1);
    l->bias = turn % 5 == 2 ? random_floats(r, l->experts, 1) : NULL;
}

static void layer_fini(struct layer *l) {
    struct matrix *all[] = {&l->router, &l->gate_in, &l->gate,      &l->up,
                            &l->down,   l->shared,   l->shared + 1, l->shared + 2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        matrix_free(all[i]);
    free(l->in);
    free(l->h);
    free(l->norm);
    free(l->bias);
}

// The ops one by one.
static void run_apart(struct exec *x, const struct moe_layer_args *a) {
    const struct ops *ops = exec_ops(x);
    const struct moe_shared_args *s = a->shared;
    const int64_t n = a->route.n;
    ops->linear(x, a->in, a->n_in, a->router_in, n);
    ops->moe_route(x, &a->route);
    ops->moe_gate_up(x, &a->both, &a->down.list, a->x, a->mid);
    ops->moe_linear(x, &a->down);
    ops->moe_combine(x, &a->sum);
    if (!s)
        return;
    ops->linear_gate_up(x, &s->both, a->x, n, s->mid);
    ops->linear(x, &s->down, 1, s->mid, n);
    if (a->n_in < 2)
        return;
    ops->moe_route(x, &s->gate);
    ops->moe_combine(x, &s->sum);
}

static void pack_all(struct exec *x, const struct layer *l, struct weight *weights[8]) {
    const struct matrix *all[] = {&l->router, &l->gate_in, &l->gate,      &l->up,
                                  &l->down,   l->shared,   l->shared + 1, l->shared + 2};
    for (int i = 0; i < 8; i++)
        weights[i] = matrix_pack(x, all[i]);
}

// The sum as the next matrix product reads it: normed where there is a norm.
static void read_sum(struct exec *x, float *h, const float *norm, int64_t n, int64_t m, float *to) {
    struct act *a = act_new(x, n, m);
    if (norm)
        exec_ops(x)->norm_to_act(x, h, norm, 1e-6f, n, m, a);
    else
        exec_ops(x)->to_act(x, h, n, m, a);
    read_act(x, a, n, m, to);
    exec_ops(x)->act_destroy(x, a);
}

static void destroy_all(struct exec *x, struct act *acts[3], struct weight *weights[8]) {
    for (int i = 0; i < 3; i++)
        exec_ops(x)->act_destroy(x, acts[i]);
    for (int i = 0; i < 8; i++)
        exec_ops(x)->weight_destroy(x, weights[i]);
}

// Rows first .. first + n; whole: by the op. Returns whether the op took them.
static bool run_layer(struct check *c, struct exec *x, const struct layer *l, int64_t first,
                      int64_t n, bool whole, const struct result *to) {
    const struct ops *ops = exec_ops(x);
    const int64_t entries = n * l->used, k = l->k, f = l->f, m = l->m;
    const size_t row = (size_t)m * sizeof(float);
    const bool gated = l->kind == SHARED_LIKE || l->kind == SHARED_OTHER;
    struct weight *w[8];
    struct act *in = act_new(x, n, k);
    struct act *mid = act_new(x, entries + n, f), *shared_mid = act_new(x, n, f);
    struct buffers r;
    pack_all(x, l, w);
    buffers_open(&r, c, x);
    memcpy(to->h + first * m, l->h + first * m, (size_t)n * row);
    float *h = buffers_io(&r, to->h + first * m, (size_t)n * row);
    float *weights = buffers_io(&r, to->weights + first * l->used, (size_t)entries * sizeof(float));
    int32_t *ids = buffers_io(&r, to->ids + first * l->used, (size_t)entries * sizeof(int32_t));
    float *logits = buffers_own(&r, NULL, (size_t)(n * l->experts) * sizeof(float));
    float *gate = buffers_own(&r, NULL, (size_t)n * sizeof(float));
    float *gate_weight = buffers_own(&r, NULL, (size_t)n * sizeof(float));
    int32_t *gate_id = buffers_own(&r, NULL, (size_t)n * sizeof(int32_t));
    float *out = buffers_own(&r, NULL, (size_t)entries * row);
    float *shared_out = buffers_own(&r, NULL, (size_t)n * row);
    const float *bias = l->bias ? buffers_in(&r, l->bias, (size_t)l->experts * sizeof *bias) : NULL;
    const struct moe_shared_args shared = {
        .both = {.gate = w[5], .up = w[6]},
        .mid = shared_mid,
        .down = {.w = w[7], .out = gated ? shared_out : h, .add = !gated},
        .gate = {gate, n, 1, 1, ROUTE_SIGMOID, .scale = 1, .ids = gate_id, .weights = gate_weight},
        .sum = {shared_out, gate_weight, n, m, 1, h, true}};
    const struct moe_layer_args a = {
        .in = {{.w = w[0], .out = logits, .bias = bias}, {.w = w[1], .out = gate}},
        .n_in = gated ? 2 : 1,
        .router_in = in,
        .route = {.logits = logits,
                  .n = n,
                  .experts = l->experts,
                  .used = l->used,
                  .score = (enum route_score)(l->m / 4 % 3),
                  .normalise = l->f / 32 % 2,
                  .scale = 1,
                  .ids = ids,
                  .weights = weights},
        .both = {.gate = w[2], .up = w[3]},
        .x = in,
        .mid = mid,
        .down = {.w = w[4], .list = {n, l->used, ids}, .in = mid, .entries = true, .out = out},
        .sum = {out, weights, n, m, l->used, h, true},
        .shared = l->kind ? &shared : NULL};
    ops->to_act(x, buffers_in(&r, l->in + first * k, (size_t)(n * k) * sizeof(float)), n, k, in);
    const bool taken = whole && ops->moe_layer(x, &a);
    if (!taken)
        run_apart(x, &a);
    float *norm = l->m % 8 ? buffers_in(&r, l->norm, row) : NULL;
    read_sum(x, h, norm, n, m, to->normed + first * m);
    buffers_close(&r);
    destroy_all(x, (struct act *[]){in, mid, shared_mid}, w);
    return taken;
}

static int64_t differences(const struct layer *l, const struct result *a, const struct result *b) {
    int64_t differ = bit_differences(a->h, b->h, l->n * l->m) +
                     bit_differences(a->normed, b->normed, l->n * l->m) +
                     bit_differences(a->weights, b->weights, l->n * l->used);
    for (int64_t i = 0; i < l->n * l->used; i++)
        differ += a->ids[i] != b->ids[i];
    return differ;
}

void check_moe_layer_rule(struct check *c) {
    int64_t apart = 0, pieces = 0;
    int taken = 0, cases = 0;
    if (!exec_ops(c->exec)->moe_layer)
        return;
    for (int t = 0; t < 2 * TYPES; t++, cases++) {
        struct layer l;
        layer_init(&l, &c->rng, weight_types[t / 2], t + t / 8);
        struct result whole = result_new(&l), one = result_new(&l), some = result_new(&l);
        taken += run_layer(c, c->exec, &l, 0, l.n, true, &whole);
        run_layer(c, c->exec, &l, 0, l.n, false, &one);
        for (int64_t at = 0, n; at < l.n; at += n) {
            n = between(&c->rng, 1, l.n - at);
            run_layer(c, c->other, &l, at, n, true, &some);
        }
        apart += differences(&l, &whole, &one);
        pieces += differences(&l, &whole, &some);
        result_free(&whole);
        result_free(&one);
        result_free(&some);
        layer_fini(&l);
    }
    const bool ever = taken > 0 || !strncmp(c->level, "cuda:small", 10);
    report(c, apart == 0 && ever, "moe_layer / its ops", "all types", "%lld differ, %d of %d taken",
           (long long)apart, taken, cases);
    report(c, pieces == 0, "moe_layer: rule E1", "all types; other exec", "%lld differ",
           (long long)pieces);
}
