// SPDX-License-Identifier: Apache-2.0
// The dense block, then experts: router and gate of the shared expert read the same rows, so they
// are one job. Entries of all rows go through the experts together, which reads each chosen expert
// once.
#include "models/blocks/feed_forward.h"

#include "formats/quant/quant.h"

// Gate and up may differ in type, so they stay two matrices.
int mlp_load(struct mlp_block *b, int64_t dim, int64_t ffn, struct load *l, int i, struct err *e) {
    char name[LOAD_NAME];
    int rc = load_weight(l, load_name(name, i, "ffn_gate.weight"), dim, ffn, &b->gate, e);
    if (!rc)
        rc = load_weight(l, load_name(name, i, "ffn_up.weight"), dim, ffn, &b->up, e);
    if (!rc)
        rc = load_weight(l, load_name(name, i, "ffn_down.weight"), ffn, dim, &b->down, e);
    return rc;
}

static void run_mlp(struct exec *x, const struct ranks *ranks, const struct mlp_block *b,
                    const struct act *in, struct act *mid, int64_t n, struct linear_job down) {
    const struct gate_up both = {.gate = b->gate, .up = b->up, .activation = b->activation};
    exec_ops(x)->linear_gate_up(x, &both, in, n, mid);
    down.w = b->down;
    linear_reduce(ranks, x, &down, mid, n);
}

void mlp_run(struct exec *x, const struct ranks *ranks, const struct mlp_block *b,
             const struct act *in, struct act *mid, float *h, int64_t n) {
    run_mlp(x, ranks, b, in, mid, n, (struct linear_job){.out = h, .add = true});
}

void mlp_run_apart(struct exec *x, const struct ranks *ranks, const struct mlp_block *b,
                   const struct act *in, struct act *mid, float *out, int64_t n) {
    run_mlp(x, ranks, b, in, mid, n, (struct linear_job){.out = out});
}

static int load_biases(struct moe_block *b, const struct moe_shape *s, int64_t dim, struct load *l,
                       int i, struct err *e) {
    char name[LOAD_NAME];
    // The experts' are where their matrices are.
    int (*of_experts)(struct load *, const char *, int64_t, int64_t, float **, struct err *) =
        b->on_host ? load_host_rows : load_floats;
    int rc =
        load_floats(l, load_name(name, i, "ffn_gate_inp.bias"), s->experts, 1, &b->router_bias, e);
    if (!rc)
        rc = of_experts(l, load_name(name, i, "ffn_gate_exps.bias"), s->ffn, s->experts,
                        &b->gate_bias, e);
    if (!rc)
        rc = of_experts(l, load_name(name, i, "ffn_up_exps.bias"), s->ffn, s->experts, &b->up_bias,
                        e);
    return rc ? rc
              : of_experts(l, load_name(name, i, "ffn_down_exps.bias"), dim, s->experts,
                           &b->down_bias, e);
}

static int load_shared(struct moe_block *b, const struct moe_shape *s, int64_t dim, struct load *l,
                       int i, struct err *e) {
    char name[LOAD_NAME];
    struct mlp_block *m = &b->shared;
    int rc =
        load_weight(l, load_name(name, i, "ffn_gate_shexp.weight"), dim, s->shared, &m->gate, e);
    if (!rc)
        rc = load_weight(l, load_name(name, i, "ffn_up_shexp.weight"), dim, s->shared, &m->up, e);
    if (!rc)
        rc = load_weight(l, load_name(name, i, "ffn_down_shexp.weight"), s->shared, dim, &m->down,
                         e);
    if (!rc && s->shared_gate)
        rc = load_weight(l, load_name(name, i, "ffn_gate_inp_shexp.weight"), dim, 1,
                         &b->shared_gate, e);
    return rc;
}

// Gate and up of each expert, as two tensors or as one with the rows of up after those of gate.
static int load_gate_up(struct moe_block *b, const struct load_experts *s, struct load *l, int i,
                        struct err *e) {
    char name[LOAD_NAME];
    if (l->find(l->arg, load_name(name, i, "ffn_gate_up_exps.weight"))) {
        int rc = load_experts_cut(l, name, &(struct load_cut){*s, 2 * s->m, 0, false}, &b->gate, e);
        return rc ? rc
                  : load_experts_cut(l, name, &(struct load_cut){*s, 2 * s->m, s->m, false}, &b->up,
                                     e);
    }
    int rc = load_experts(l, load_name(name, i, "ffn_gate_exps.weight"), s, &b->gate, e);
    return rc ? rc : load_experts(l, load_name(name, i, "ffn_up_exps.weight"), s, &b->up, e);
}

// Shapes and types of the three matrices, for who keeps experts. What is missing or of a type that
// cannot be read is reported by those that load it.
static int begin_experts(struct load *l, const struct moe_shape *s, int64_t dim, int i,
                         struct err *e) {
    static const char *const names[2][EXPERT_PARTS] = {
        {"ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight"},
        {"ffn_gate_up_exps.weight", "ffn_gate_up_exps.weight", "ffn_down_exps.weight"}};
    char name[LOAD_NAME];
    struct tensor parts[EXPERT_PARTS];
    bool joined = l->find(l->arg, load_name(name, i, names[1][0]));
    for (int k = 0; k < EXPERT_PARTS; k++) {
        const struct tensor *t = l->find(l->arg, load_name(name, i, names[joined][k]));
        bool down = k == EXPERT_PARTS - 1;
        if (!t || !quant_format(t->type) || !quant_format(t->type)->dequantize)
            return 0;
        parts[k] = (struct tensor){.name = t->name,
                                   .type = t->type,
                                   .n_dims = 3,
                                   .ne = {down ? s->ffn : dim, down ? dim : s->ffn, s->experts, 1}};
    }
    return load_experts_begin(l, parts, s->experts, e);
}

int moe_load(struct moe_block *b, const struct moe_shape *s, int64_t dim, struct load *l, int i,
             struct err *e) {
    char name[LOAD_NAME];
    const struct load_experts into = {dim, s->ffn, s->experts}, back = {s->ffn, dim, s->experts};
    int rc =
        load_weight(l, load_name(name, i, "ffn_gate_inp.weight"), dim, s->experts, &b->router, e);
    if (!rc && s->choice_bias)
        rc = load_floats(l, load_name(name, i, "exp_probs_b.bias"), s->experts, 1, &b->choice_bias,
                         e);
    if (!rc && s->scales)
        rc = load_floats(l, load_name(name, i, "ffn_down_exps.scale"), s->experts, 1, &b->scale, e);
    if (!rc)
        rc = begin_experts(l, s, dim, i, e);
    b->on_host = l->of_host;
    if (!rc)
        rc = load_gate_up(b, &into, l, i, e);
    if (!rc)
        rc = load_experts(l, load_name(name, i, "ffn_down_exps.weight"), &back, &b->down, e);
    if (!rc && s->biases)
        rc = load_biases(b, s, dim, l, i, e);
    return rc || !s->shared ? rc : load_shared(b, s, dim, l, i, e);
}

static int load_ids(struct load *l, int64_t n, int32_t **out, struct err *e) {
    void *p = NULL;
    int rc = load_bytes(l, n * (int64_t)sizeof **out, &p, e);
    *out = p;
    return rc;
}

int moe_buffers_load(struct moe_buffers *b, const struct moe_shape *s, int64_t dim, int64_t n,
                     struct load *l, struct err *e) {
    const bool here = l->expert_layers > l->host_layers; // some are the backend's
    int64_t entries = n * s->used;
    if (here)
        exec_limits_join(&l->limits,
                         &(struct exec_limits){.entries = entries,
                                               .experts = s->experts,
                                               .expert_width = dim > s->ffn ? dim : s->ffn});
    int rc = load_buffer(l, n * s->experts, &b->logits, e);
    if (!rc)
        rc = load_buffer(l, entries, &b->weights, e);
    if (!rc)
        rc = load_ids(l, entries, &b->ids, e);
    if (!rc && here)
        rc = load_act(l, entries, s->ffn, &b->mid, e);
    if (!rc && here)
        rc = load_buffer(l, entries * dim, &b->out, e);
    if (!rc && s->shared)
        rc = load_buffer(l, n * dim, &b->shared, e);
    if (rc || !s->shared_gate)
        return rc;
    rc = load_buffer(l, n, &b->gate, e);
    if (!rc)
        rc = load_buffer(l, n, &b->gate_weight, e);
    return rc ? rc : load_ids(l, n, &b->gate_id, e);
}

// The ops of the shared expert.
static void fill_shared(const struct moe_call *c, struct moe_shared_args *shared) {
    const struct moe_buffers *b = c->buf;
    const struct mlp_block *m = &c->block->shared;
    *shared = (struct moe_shared_args){.both = {.gate = m->gate, .up = m->up}, .mid = c->mid};
    shared->down = (struct linear_job){.w = m->down, .out = c->h, .add = true};
    shared->sum.in = b->shared; // where an op may keep it until it is added
    if (!c->shape->shared_gate)
        return;
    shared->down = (struct linear_job){.w = m->down, .out = b->shared};
    shared->gate = (struct moe_route_args){.logits = b->gate,
                                           .n = c->n,
                                           .experts = 1,
                                           .used = 1,
                                           .score = ROUTE_SIGMOID,
                                           .scale = 1,
                                           .ids = b->gate_id,
                                           .weights = b->gate_weight};
    shared->sum = (struct moe_combine_args){.in = b->shared,
                                            .weights = b->gate_weight,
                                            .n = c->n,
                                            .m = c->dim,
                                            .used = 1,
                                            .out = c->h,
                                            .add = true};
}

// The ops of a layer; shared: room for those of a shared expert.
static void fill_layer(const struct moe_call *c, struct moe_layer_args *a,
                       struct moe_shared_args *shared) {
    const struct moe_shape *s = c->shape;
    const struct moe_block *w = c->block;
    const struct moe_buffers *b = c->buf;
    a->in[0] = (struct linear_job){.w = w->router, .out = b->logits, .bias = w->router_bias};
    a->in[1] = (struct linear_job){.w = w->shared_gate, .out = b->gate};
    a->n_in = s->shared_gate ? 2 : 1;
    a->router_in = c->router_in ? c->router_in : c->in;
    a->route = (struct moe_route_args){.logits = b->logits,
                                       .n = c->n,
                                       .experts = s->experts,
                                       .used = s->used,
                                       .score = s->score,
                                       .bias = w->choice_bias,
                                       .groups = s->groups,
                                       .groups_used = s->groups_used,
                                       .group_best = s->group_best,
                                       .normalise = s->normalise,
                                       .scale = s->scale,
                                       .expert_scale = w->scale,
                                       .ids = b->ids,
                                       .weights = b->weights};
    a->both = (struct gate_up){.gate = w->gate,
                               .up = w->up,
                               .gate_bias = w->gate_bias,
                               .up_bias = w->up_bias,
                               .activation = s->activation};
    a->x = c->in;
    a->mid = b->mid;
    a->down = (struct moe_linear_args){.w = w->down,
                                       .bias = w->down_bias,
                                       .list = {c->n, s->used, b->ids},
                                       .in = b->mid,
                                       .entries = true,
                                       .out = b->out};
    a->sum = (struct moe_combine_args){.in = b->out,
                                       .weights = b->weights,
                                       .n = c->n,
                                       .m = c->dim,
                                       .used = s->used,
                                       .out = c->apart ? c->apart : c->h,
                                       .add = !c->apart};
    fill_shared(c, shared);
    a->shared = s->shared ? shared : NULL;
}

static void run_shared(struct exec *x, const struct moe_call *c, const struct moe_shared_args *s) {
    const struct ops *ops = exec_ops(x);
    if (!c->shape->shared_gate) {
        mlp_run(x, c->ranks, &c->block->shared, c->in, c->mid, c->h, c->n);
        return;
    }
    ops->linear_gate_up(x, &s->both, c->in, c->n, s->mid);
    ops->linear(x, &s->down, 1, s->mid, c->n);
    ops->moe_route(x, &s->gate);
    experts_reduce(c->ranks, x, &s->sum);
}

// The experts on the host's CPU, while the device does the work for the shared one.
static void run_on_host(struct exec *x, const struct moe_call *c, const struct moe_layer_args *a) {
    const struct expert_host_call host = {.in = c->in,
                                          .n = c->n,
                                          .ids = a->route.ids,
                                          .weights = a->route.weights,
                                          .both = a->both,
                                          .down = a->down.w,
                                          .down_bias = a->down.bias,
                                          .out = a->sum.out,
                                          .apart = c->apart != NULL};
    expert_host_begin(c->host, &host);
    if (a->shared)
        run_shared(x, c, a->shared);
    expert_host_end(c->host, &host);
}

void moe_run(struct exec *x, const struct moe_call *c) {
    const struct ops *ops = exec_ops(x);
    struct moe_shared_args shared;
    struct moe_layer_args a;
    fill_layer(c, &a, &shared);
    const bool capped = c->shape->logit_cap > 0, on_host = c->block->on_host;
    const bool one = c->ranks->n == 1 && !capped && !on_host;
    if (one && ops->moe_layer && ops->moe_layer(x, &a))
        return;
    ops->linear(x, a.in, a.n_in, a.router_in, c->n);
    if (capped)
        ops->scale(x, &(struct scale_args){c->buf->logits, c->n * c->shape->experts, 1,
                                           c->shape->logit_cap});
    ops->moe_route(x, &a.route);
    if (on_host) {
        run_on_host(x, c, &a);
        return;
    }
    ops->moe_gate_up(x, &a.both, &a.down.list, a.x, a.mid);
    ops->moe_linear(x, &a.down);
    experts_reduce(c->ranks, x, &a.sum);
    if (a.shared)
        run_shared(x, c, a.shared);
}
