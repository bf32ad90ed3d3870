// SPDX-License-Identifier: Apache-2.0
// Latent attention over ops that other layers use, too, but for the heads' own matrices. The norm
// of a latent leaves the rotated key after it alone, so the two are computed apart and put side by
// side where they are stored.
#include "models/blocks/mla.h"

#include <stdlib.h>
#include <string.h>

#include "models/blocks/attention.h"

static int key_width(const struct mla_shape *s) {
    return s->kv_lora + s->turns;
}

struct kv_shape mla_kv(const struct mla_shape *s, int n_layers, enum kv_codec_id codec_k,
                       enum kv_codec_id codec_v) {
    return (struct kv_shape){.n_layers = n_layers,
                             .n_heads = 1,
                             .dk = key_width(s),
                             .dv = s->kv_lora,
                             .v_in_k = true,
                             .codec_k = codec_k,
                             .codec_v = codec_v};
}

static int load_queries(struct mla_block *b, const struct mla_shape *s, struct load *l, int i,
                        struct err *e) {
    char name[LOAD_NAME];
    int64_t q = (int64_t)s->n_heads * (s->nope + s->turns);
    if (!s->q_lora)
        return load_weight(l, load_name(name, i, "attn_q.weight"), s->dim, q, &b->wq, e);
    int rc = load_weight(l, load_name(name, i, "attn_q_a.weight"), s->dim, s->q_lora, &b->q_a, e);
    if (!rc)
        rc =
            load_floats(l, load_name(name, i, "attn_q_a_norm.weight"), s->q_lora, 1, &b->q_norm, e);
    return rc ? rc
              : load_weight(l, load_name(name, i, "attn_q_b.weight"), s->q_lora, q, &b->q_b, e);
}

static int load_heads(struct mla_block *b, const struct mla_shape *s, struct load *l, int i,
                      struct err *e) {
    char name[LOAD_NAME];
    const struct load_experts k = {s->nope, s->kv_lora, s->n_heads};
    const struct load_experts v = {s->kv_lora, s->v, s->n_heads};
    if (!l->find(l->arg, load_name(name, i, "attn_k_b.weight")) &&
        l->find(l->arg, load_name(name, i, "attn_kv_b.weight"))) {
        int rc =
            load_experts_cut(l, name, &(struct load_cut){k, s->nope + s->v, 0, true}, &b->k, e);
        return rc ? rc
                  : load_experts_cut(l, name, &(struct load_cut){v, s->nope + s->v, s->nope, false},
                                     &b->v, e);
    }
    int rc = load_experts(l, load_name(name, i, "attn_k_b.weight"), &k, &b->k, e);
    return rc ? rc : load_experts(l, load_name(name, i, "attn_v_b.weight"), &v, &b->v, e);
}

int mla_load(struct mla_block *b, const struct mla_shape *s, struct load *l, int i, struct err *e) {
    char name[LOAD_NAME];
    const struct load_rows parts[2] = {{key_width(s), 0, s->kv_lora},
                                       {key_width(s), s->kv_lora, s->turns}};
    int rc = load_queries(b, s, l, i, e);
    if (!rc)
        rc = load_weight_rows(l, load_name(name, i, "attn_kv_a_mqa.weight"), s->dim, &parts[0],
                              &b->latent, e);
    if (!rc)
        rc = load_weight_rows(l, name, s->dim, &parts[1], &b->rope, e);
    if (!rc)
        rc = load_floats(l, load_name(name, i, "attn_kv_a_norm.weight"), s->kv_lora, 1,
                         &b->latent_norm, e);
    if (!rc)
        rc = load_heads(b, s, l, i, e);
    return rc ? rc
              : load_weight(l, load_name(name, i, "attn_output.weight"), (int64_t)s->n_heads * s->v,
                            s->dim, &b->wo, e);
}

int mla_buffers_load(struct mla_buffers *b, const struct mla_shape *s, int64_t n, struct load *l,
                     struct err *e) {
    int64_t heads = n * s->n_heads, wide = s->nope + s->turns > s->v ? s->nope + s->turns : s->v;
    const struct {
        int64_t n;
        float **at;
    } buffers[] = {{n * s->q_lora, &b->q_low},
                   {heads * wide, &b->q},
                   {heads * key_width(s), &b->absorbed},
                   {heads * key_width(s), &b->turned},
                   {n * s->kv_lora, &b->c},
                   {n * s->turns, &b->p}};
    int rc = 0;
    for (size_t i = s->q_lora ? 0 : 1; !rc && i < sizeof buffers / sizeof *buffers; i++)
        rc = load_buffer(l, buffers[i].n, buffers[i].at, e);
    if (!rc && s->q_lora)
        rc = load_act(l, n, s->q_lora, &b->low, e);
    if (!rc)
        rc = load_act(l, n, (int64_t)s->n_heads * s->kv_lora, &b->u, e);
    return rc ? rc : load_act(l, n, (int64_t)s->n_heads * s->v, &b->o, e);
}

static struct qk_args qk_args_of(const struct mla_shape *s, const struct kv_layout *layout) {
    return (struct qk_args){.n_heads = s->n_heads,
                            .n_kv = 1,
                            .dk = key_width(s),
                            .dv = s->kv_lora,
                            .rope = s->rope,
                            .eps = s->eps,
                            .q_stride = key_width(s),
                            .layout = layout};
}

static struct attend_args attend_args_of(const struct mla_shape *s, const struct kv_layout *layout,
                                         const struct attend_choice *choice) {
    return (struct attend_args){.shape = {.n_heads = s->n_heads,
                                          .n_kv = 1,
                                          .dk = key_width(s),
                                          .dv = s->kv_lora,
                                          .scale = s->scale,
                                          .mask = ATTEND_PATH},
                                .layout = layout,
                                .choice = choice};
}

int mla_check(const struct exec *x, const struct mla_shape *s, const struct kv_layout *layout,
              const struct attend_choice *choice, struct err *e) {
    float some = 0; // there will be some
    struct qk_args qk = qk_args_of(s, layout);
    struct attend_args at = attend_args_of(s, layout, choice);
    qk.q = qk.k = at.q = &some;
    return exec_takes(x, &(struct ops_needs){.heads = true, .qk = &qk, .attend = &at}, e);
}

// Queries, the latent and the rotated key, all but the latent's norm and the rotation.
static void project(struct exec *x, const struct mla_call *c) {
    const struct ops *ops = exec_ops(x);
    const struct mla_shape *s = c->shape;
    const struct mla_block *w = c->block;
    const struct mla_buffers *b = c->buf;
    int64_t n = c->rows->n - c->first;
    struct linear_job in[3] = {
        {.w = s->q_lora ? w->q_a : w->wq, .out = s->q_lora ? b->q_low : b->q},
        {.w = w->latent, .out = b->c},
        {.w = w->rope, .out = b->p}};
    ops->linear(x, in, 3, c->in, n);
    if (s->q_lora) {
        ops->norm_to_act(x, b->q_low, w->q_norm, s->latent_eps, n, s->q_lora, b->low);
        ops->linear(x, &(struct linear_job){.w = w->q_b, .out = b->q}, 1, b->low, n);
    }
}

// Of the latents and rotated keys that are in the buffers.
static struct qk_args stored_args(const struct mla_call *c) {
    struct qk_args qk = qk_args_of(c->shape, c->layout);
    qk.k = c->buf->c;
    qk.k_rest = c->buf->p;
    qk.value_norm = c->block->latent_norm;
    qk.value_eps = c->shape->latent_eps;
    qk.layer = c->layer;
    qk.store = c->store;
    return qk;
}

void mla_store(struct exec *x, const struct mla_call *c) {
    const struct linear_job in[2] = {{.w = c->block->latent, .out = c->buf->c},
                                     {.w = c->block->rope, .out = c->buf->p}};
    const struct qk_args qk = stored_args(c);
    exec_ops(x)->linear(x, in, 2, c->in, c->rows->n);
    exec_ops(x)->qk_norm_rope_store(x, &qk, c->rows);
}

void mla_run(struct exec *x, const struct mla_call *c) {
    const struct ops *ops = exec_ops(x);
    const struct mla_shape *s = c->shape;
    const struct mla_buffers *b = c->buf;
    const struct rows own = rows_from(c->rows, c->first);
    int64_t n = own.n, width = (int64_t)s->n_heads * s->v;
    project(x, c);
    ops->linear_heads(x, &(struct heads_args){.w = c->block->k,
                                              .heads = s->n_heads,
                                              .n = n,
                                              .in = b->q,
                                              .in_stride = s->nope + s->turns,
                                              .out = b->absorbed,
                                              .out_stride = key_width(s),
                                              .tail = s->turns});
    struct qk_args qk = stored_args(c);
    qk.q = b->absorbed;
    qk.q_out = b->turned;
    qk.store += c->first;
    ops->qk_norm_rope_store(x, &qk, &own);
    const size_t bytes = (size_t)(s->n_heads * key_width(s)) * sizeof(float);
    if (c->kept.n)
        ops->copy_rows(x, c->kept.q, bytes, b->turned, c->kept.rows, c->kept.n, bytes);
    struct attend_args at = attend_args_of(s, c->layout, c->choice);
    at.q = b->turned;
    at.layer = c->layer;
    at.seqs = c->views;
    at.store = c->store;
    at.first = c->first;
    at.out = b->u;
    ops->attend(x, &at, c->seen ? c->seen : c->rows);
    ops->linear_heads(x, &(struct heads_args){.w = c->block->v,
                                              .heads = s->n_heads,
                                              .n = n,
                                              .act = b->u,
                                              .out = b->q,
                                              .out_stride = s->v});
    ops->to_act(x, b->q, n, width, b->o);
    const struct linear_job out = {.w = c->block->wo, .out = c->h, .add = true};
    linear_reduce(c->ranks, x, &out, b->o, n);
}
