// SPDX-License-Identifier: Apache-2.0
// See ple.h; the formulas are those of transformers' Gemma 4.
#include "models/blocks/ple.h"

#include <math.h>

int ple_load(struct ple_block *b, const struct ple_shape *s, int64_t vocab, struct load *l,
             struct err *e) {
    int64_t all = s->layers * s->width;
    int rc = load_weight(l, "per_layer_token_embd.weight", all, vocab, &b->table, e);
    if (!rc)
        rc = load_weight(l, "per_layer_model_proj.weight", s->dim, all, &b->projection, e);
    return rc ? rc : load_floats(l, "per_layer_proj_norm.weight", s->width, 1, &b->norm, e);
}

int ple_layer_load(struct ple_layer *b, const struct ple_shape *s, struct load *l, int i,
                   struct err *e) {
    char name[LOAD_NAME];
    int rc = load_weight(l, load_name(name, i, "inp_gate.weight"), s->dim, s->width, &b->gate, e);
    if (!rc)
        rc = load_weight(l, load_name(name, i, "proj.weight"), s->width, s->dim, &b->projection, e);
    return rc ? rc : load_floats(l, load_name(name, i, "post_norm.weight"), s->dim, 1, &b->norm, e);
}

int ple_buffers_load(struct ple_buffers *b, const struct ple_shape *s, int64_t n, struct load *l,
                     struct err *e) {
    int64_t all = n * s->layers * s->width;
    int rc = load_buffer(l, all, &b->all, e);
    if (!rc)
        rc = load_buffer(l, all, &b->more, e);
    if (!rc)
        rc = load_buffer(l, n * s->width, &b->gate, e);
    return rc ? rc : load_act(l, n, s->width, &b->act, e);
}

void ple_begin(struct exec *x, const struct ple_block *b, const struct ple_call *c,
               const int32_t *token) {
    const struct ops *ops = exec_ops(x);
    const struct ple_shape *s = c->shape;
    int64_t all = c->n * s->layers * s->width;
    ops->gather_rows(x, b->table, token, c->n, c->buf->all);
    ops->scale(x, &(struct scale_args){c->buf->all, all, sqrtf((float)s->width), 0});
    ops->to_act(x, c->h, c->n, s->dim, c->act);
    struct linear_job job = {.w = b->projection, .out = c->buf->more};
    ops->linear(x, &job, 1, c->act, c->n);
    ops->scale(x, &(struct scale_args){c->buf->more, all, 1 / sqrtf((float)s->dim), 0});
    ops->norm(x, &(struct norm_args){.in = c->buf->more,
                                     .w = b->norm,
                                     .eps = s->eps,
                                     .n = c->n * s->layers,
                                     .k = s->width,
                                     .out = c->buf->all,
                                     .add = true});
    ops->scale(x, &(struct scale_args){c->buf->all, all, sqrtf(0.5f), 0});
}

void ple_run(struct exec *x, const struct ple_layer *b, const struct ple_call *c, int i) {
    const struct ops *ops = exec_ops(x);
    const struct ple_shape *s = c->shape;
    ops->to_act(x, c->h, c->n, s->dim, c->act);
    struct linear_job job = {.w = b->gate, .out = c->buf->gate};
    ops->linear(x, &job, 1, c->act, c->n);
    ops->activate(x, &(struct activate_args){.gate = c->buf->gate,
                                             .up = c->buf->all + i * s->width,
                                             .gate_stride = s->width,
                                             .up_stride = s->layers * s->width,
                                             .n = c->n,
                                             .k = s->width,
                                             .activation = ACTIVATION_GELU_TANH,
                                             .out = c->buf->act});
    const struct linear_job out = {.w = b->projection, .out = c->apart};
    linear_reduce(c->ranks, x, &out, c->buf->act, c->n);
    ops->norm(x, &(struct norm_args){.in = c->apart,
                                     .w = b->norm,
                                     .eps = s->eps,
                                     .n = c->n,
                                     .k = s->dim,
                                     .out = c->h,
                                     .add = true});
}
