// SPDX-License-Identifier: Apache-2.0
// Attention as three ops and two matrix products. The gate of each head lies after its query in
// the projection's output and is read there by attend, or has a projection of its own.
#include "models/blocks/attention.h"

static int64_t q_rows(const struct attention_shape *s) {
    return (int64_t)s->n_heads * s->head_dim * (s->gated ? 2 : 1);
}

static int load_qkv(struct attention_block *b, const struct attention_shape *s, struct load *l,
                    int i, struct err *e) {
    char name[LOAD_NAME];
    const int64_t in = s->in_dim ? s->in_dim : s->dim;
    int64_t q = q_rows(s), kv = (int64_t)s->n_kv * s->head_dim, all = q + 2 * kv;
    if (l->find(l->arg, load_name(name, i, "attn_qkv.weight"))) {
        const struct load_rows parts[3] = {{all, 0, q}, {all, q, kv}, {all, q + kv, kv}};
        int rc = load_weight_rows(l, name, in, &parts[0], &b->wq, e);
        if (!rc)
            rc = load_weight_rows(l, name, in, &parts[1], &b->wk, e);
        return rc ? rc : load_weight_rows(l, name, in, &parts[2], &b->wv, e);
    }
    int rc = load_weight(l, load_name(name, i, "attn_q.weight"), in, q, &b->wq, e);
    if (!rc && !s->borrows)
        rc = load_weight(l, load_name(name, i, "attn_k.weight"), in, kv, &b->wk, e);
    if (!rc && !s->borrows && !s->v_is_k)
        rc = load_weight(l, load_name(name, i, "attn_v.weight"), in, kv, &b->wv, e);
    return rc;
}

// Biases of a fused projection lie one after the other, as its rows do.
static int load_qkv_bias(struct attention_block *b, const struct attention_shape *s, struct load *l,
                         int i, struct err *e) {
    char name[LOAD_NAME];
    int64_t q = q_rows(s), kv = (int64_t)s->n_kv * s->head_dim;
    if (l->find(l->arg, load_name(name, i, "attn_qkv.bias"))) {
        int rc = load_floats(l, name, q + 2 * kv, 1, &b->q_bias, e);
        b->k_bias = b->q_bias ? b->q_bias + q : NULL;
        b->v_bias = b->q_bias ? b->k_bias + kv : NULL;
        return rc;
    }
    int rc = load_floats(l, load_name(name, i, "attn_q.bias"), q, 1, &b->q_bias, e);
    if (!rc)
        rc = load_floats(l, load_name(name, i, "attn_k.bias"), kv, 1, &b->k_bias, e);
    return rc ? rc : load_floats(l, load_name(name, i, "attn_v.bias"), kv, 1, &b->v_bias, e);
}

static int load_norms(struct attention_block *b, const struct attention_shape *s, struct load *l,
                      int i, struct err *e) {
    char name[LOAD_NAME];
    int rc =
        load_floats(l, load_name(name, i, "attn_q_norm.weight"), s->head_dim, 1, &b->q_norm, e);
    return rc || s->borrows ? rc
                            : load_floats(l, load_name(name, i, "attn_k_norm.weight"), s->head_dim,
                                          1, &b->k_norm, e);
}

int attention_load(struct attention_block *b, const struct attention_shape *s, struct load *l,
                   int i, struct err *e) {
    char name[LOAD_NAME];
    int64_t width = (int64_t)s->n_heads * s->head_dim;
    int rc = load_qkv(b, s, l, i, e);
    if (!rc && s->gate_width)
        rc = load_weight(l, load_name(name, i, "attn_gate.weight"), s->dim,
                         (int64_t)s->n_heads * s->gate_width, &b->wg, e);
    if (!rc && s->bias)
        rc = load_qkv_bias(b, s, l, i, e);
    if (!rc)
        rc = load_weight(l, load_name(name, i, "attn_output.weight"), width, s->dim, &b->wo, e);
    if (!rc && s->out_bias)
        rc = load_floats(l, load_name(name, i, "attn_output.bias"), s->dim, 1, &b->out_bias, e);
    if (!rc && s->sinks)
        rc = load_floats(l, load_name(name, i, "attn_sinks.weight"), s->n_heads, 1, &b->sinks, e);
    return rc || s->no_qk_norm ? rc : load_norms(b, s, l, i, e);
}

int attention_buffers_load(struct attention_buffers *b, const struct attention_shape *s, int64_t n,
                           struct load *l, struct err *e) {
    int64_t kv = (int64_t)s->n_kv * s->head_dim, width = (int64_t)s->n_heads * s->head_dim;
    int rc = load_buffer(l, n * q_rows(s), &b->q, e);
    if (!rc)
        rc = load_buffer(l, n * kv, &b->k, e);
    if (!rc)
        rc = load_buffer(l, n * kv, &b->v, e);
    if (!rc)
        rc = load_buffer(l, n * width, &b->q_rot, e);
    if (!rc && s->gate_width)
        rc = load_buffer(l, n * s->n_heads * s->gate_width, &b->gate, e);
    return rc ? rc : load_act(l, n, width, &b->out, e);
}

static struct qk_args qk_args_of(const struct attention_call *c) {
    const struct attention_shape *s = c->shape;
    return (struct qk_args){
        .n_heads = s->n_heads,
        .n_kv = s->n_kv,
        .dk = s->head_dim,
        .dv = s->head_dim,
        .rope = s->rope,
        .eps = s->eps,
        .q_norm = c->block->q_norm,
        .k_norm = c->block->k_norm,
        .v_norm = s->v_norm,
        .q_stride = s->gated ? 2 * s->head_dim : s->head_dim,
        .k = s->borrows ? NULL : c->buf->k,
        .v = s->v_is_k ? c->buf->k : c->buf->v,
        .layout = c->layout,
        .layer = c->layer,
        .store = c->store,
    };
}

static struct attend_args attend_args_of(const struct attention_call *c) {
    const struct attention_shape *s = c->shape;
    return (struct attend_args){
        .shape = {.n_heads = s->n_heads,
                  .n_kv = s->n_kv,
                  .dk = s->head_dim,
                  .dv = s->head_dim,
                  .scale = s->scale,
                  .sinks = c->block->sinks,
                  .mask = c->mask,
                  .window = c->window},
        .gate_stride = s->gated ? 2 * s->head_dim : s->gate_width,
        .gate_softplus = s->gate_width > 0,
        .gate_single = s->gate_width == 1,
        .layout = c->layout,
        .layer = c->layer,
        .seqs = c->views,
        .store = c->store,
        .out = c->buf->out,
        .choice = c->choice,
        .first = c->first,
    };
}

int attention_check(const struct exec *x, const struct attention_call *c, struct err *e) {
    float *some = (float *)&c->shape->eps; // there will be some
    const struct attention_buffers none = {.q = some, .k = some, .v = some};
    const struct attention_shape *s = c->shape;
    const struct attention_block block = {.q_norm = s->no_qk_norm ? NULL : some,
                                          .k_norm = s->no_qk_norm ? NULL : some,
                                          .sinks = s->sinks ? some : NULL};
    struct attention_call call = *c;
    call.buf = &none;
    call.block = &block;
    struct qk_args qk = qk_args_of(&call);
    struct attend_args at = attend_args_of(&call);
    return exec_takes(
        x, &(struct ops_needs){.bias = s->bias || s->out_bias, .qk = &qk, .attend = &at}, e);
}

void attention_run(struct exec *x, const struct attention_call *c) {
    const struct ops *ops = exec_ops(x);
    const struct attention_shape *s = c->shape;
    const struct attention_buffers *b = c->buf;
    const struct rows own = rows_from(c->rows, c->first);
    int64_t n = own.n;
    struct linear_job in[4] = {{.w = c->block->wq, .out = b->q, .bias = c->block->q_bias},
                               {.w = c->block->wk, .out = b->k, .bias = c->block->k_bias},
                               {.w = c->block->wv, .out = b->v, .bias = c->block->v_bias}};
    int jobs = s->borrows ? 1 : s->v_is_k ? 2 : 3;
    if (s->gate_width)
        in[jobs++] = (struct linear_job){.w = c->block->wg, .out = b->gate};
    ops->linear(x, in, jobs, c->in, n);
    struct qk_args qk = qk_args_of(c);
    qk.q = b->q;
    qk.q_out = b->q_rot;
    qk.store += c->first;
    ops->qk_norm_rope_store(x, &qk, &own);
    const size_t bytes = (size_t)(s->n_heads * s->head_dim) * sizeof(float);
    if (c->kept.n)
        ops->copy_rows(x, c->kept.q, bytes, b->q_rot, c->kept.rows, c->kept.n, bytes);
    struct attend_args at = attend_args_of(c);
    at.q = b->q_rot;
    at.gate = s->gated ? b->q + s->head_dim : s->gate_width ? b->gate : NULL;
    ops->attend(x, &at, c->seen ? c->seen : c->rows);
    const struct linear_job out = {.w = c->block->wo,
                                   .out = c->apart ? c->apart : c->h,
                                   .add = !c->apart,
                                   .bias = c->block->out_bias};
    linear_reduce(c->ranks, x, &out, b->out, n);
}

void attention_store_jobs(const struct attention_call *c, struct linear_job jobs[2]) {
    jobs[0] = (struct linear_job){.w = c->block->wk, .out = c->buf->k, .bias = c->block->k_bias};
    jobs[1] = (struct linear_job){.w = c->block->wv, .out = c->buf->v, .bias = c->block->v_bias};
}

void attention_store_rows(struct exec *x, const struct attention_call *c) {
    struct qk_args qk = qk_args_of(c);
    exec_ops(x)->qk_norm_rope_store(x, &qk, c->rows);
}

void attention_store(struct exec *x, const struct attention_call *c) {
    struct linear_job jobs[2];
    attention_store_jobs(c, jobs);
    exec_ops(x)->linear(x, jobs, 2, c->in, c->rows->n);
    attention_store_rows(x, c);
}
