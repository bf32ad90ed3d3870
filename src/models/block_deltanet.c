// SPDX-License-Identifier: Apache-2.0
// A prompt runs the delta rule in slices that end at multiples of 32 positions and commits each one
// before the next, so that the op sees at most 32 uncommitted rows and the log stays bounded. Whole
// blocks go to the backend at once where it has an op for that.
#include "models/block_deltanet.h"

#include <string.h>

int deltanet_load(struct deltanet_block *b, const struct gdn_shape *s, int64_t dim, struct load *l,
                  int i, struct err *e) {
    char name[LOAD_NAME];
    int64_t vd = (int64_t)s->n_v * s->dv;
    const struct {
        const char *suffix;
        int64_t k, m;
        const struct weight **w;
    } mats[] = {
        {"attn_qkv.weight", dim, s->channels, &b->qkv}, {"attn_gate.weight", dim, vd, &b->gate},
        {"ssm_alpha.weight", dim, s->n_v, &b->alpha},   {"ssm_beta.weight", dim, s->n_v, &b->beta},
        {"ssm_out.weight", vd, dim, &b->out},
    };
    const struct {
        const char *suffix;
        int64_t k, m;
        float **p;
    } arrays[] = {
        {"ssm_conv1d.weight", GDN_CONV, s->channels, &b->conv},
        {"ssm_a", s->n_v, 1, &b->a},
        {"ssm_dt.bias", s->n_v, 1, &b->dt},
        {"ssm_norm.weight", s->dv, 1, &b->norm},
    };
    int rc = 0;
    for (size_t j = 0; !rc && j < sizeof mats / sizeof *mats; j++)
        rc = load_weight(l, load_name(name, i, mats[j].suffix), mats[j].k, mats[j].m, mats[j].w, e);
    for (size_t j = 0; !rc && j < sizeof arrays / sizeof *arrays; j++)
        rc = load_floats(l, load_name(name, i, arrays[j].suffix), arrays[j].k, arrays[j].m,
                         arrays[j].p, e);
    return rc;
}

int deltanet_rows_load(struct gdn_rows *r, const struct gdn_shape *s, int64_t n, struct load *l,
                       struct err *e) {
    int rc = load_buffer(l, n * s->channels, &r->u, e);
    if (!rc)
        rc = load_buffer(l, n * s->n_k * s->dk, &r->k, e);
    if (!rc)
        rc = load_buffer(l, n * s->n_v, &r->g, e);
    return rc ? rc : load_buffer(l, n * s->n_v * s->dv, &r->d, e);
}

int deltanet_buffers_load(struct deltanet_buffers *b, const struct gdn_shape *s, int64_t n,
                          struct load *l, struct err *e) {
    int64_t vd = (int64_t)s->n_v * s->dv;
    int rc = deltanet_rows_load(&b->rows, s, n, l, e);
    if (!rc)
        rc = load_buffer(l, n * s->n_k * s->dk, &b->rows.q, e);
    if (!rc)
        rc = load_buffer(l, n * vd, &b->rows.v, e);
    if (!rc)
        rc = load_buffer(l, n * s->n_v, &b->rows.beta, e);
    if (!rc)
        rc = load_buffer(l, n * vd, &b->z, e);
    if (!rc)
        rc = load_buffer(l, n * s->n_v, &b->a, e);
    if (!rc)
        rc = load_buffer(l, n * s->n_v, &b->b, e);
    if (!rc)
        rc = load_buffer(l, n * vd, &b->o, e);
    return rc ? rc : load_act(l, n, vd, &b->out, e);
}

enum { SLICES = 64 }; // sequences that a prompt's pass advances at once

// The whole blocks that a run begins with, at once; 0 rows where the backend cannot.
static int64_t run_blocks(struct exec *x, const struct deltanet_call *c, struct gdn_args *a,
                          const struct gdn_run *left) {
    const struct ops *ops = exec_ops(x);
    struct gdn_run whole = {left->first, left->count / GDN_BLOCK * GDN_BLOCK, left->seq};
    int64_t *len = &c->len[left->seq];
    if (!ops->gdn_blocks || *len % GDN_BLOCK || !whole.count)
        return 0;
    a->runs = &whole;
    a->n_runs = 1;
    if (!ops->gdn_blocks(x, a, c->states[left->seq], *len))
        return 0;
    *len += whole.count;
    return whole.count;
}

// Takes the next slice of each run off what is left of it. Returns how many there are.
static int cut_slices(struct exec *x, const struct deltanet_call *c, struct gdn_args *a,
                      struct gdn_run *left, int n, struct gdn_run *slices) {
    int m = 0;
    for (int i = 0; i < n; i++) {
        struct gdn_run *l = &left[i];
        int64_t whole = run_blocks(x, c, a, l);
        l->first += whole;
        l->count -= whole;
        if (!l->count)
            continue;
        int64_t room = GDN_BLOCK - c->len[l->seq] % GDN_BLOCK;
        slices[m] = (struct gdn_run){l->first, l->count < room ? l->count : room, l->seq};
        l->first += slices[m].count;
        l->count -= slices[m++].count;
    }
    return m;
}

static void commit_slices(struct exec *x, const struct deltanet_call *c,
                          const struct gdn_run *slices, int n) {
    struct gdn_commit_seq seqs[SLICES];
    int32_t path[SLICES][GDN_BLOCK];
    for (int i = 0; i < n; i++) {
        const struct gdn_run *s = &slices[i];
        for (int64_t r = 0; r < s->count; r++)
            path[i][r] = (int32_t)(s->first + r);
        seqs[i] = (struct gdn_commit_seq){c->states[s->seq], c->len[s->seq], path[i], s->count};
        c->len[s->seq] += s->count;
    }
    struct gdn_commit_args commit = {
        .shape = c->shape, .n_layers = 1, .seqs = seqs, .n_seqs = n, .rows = &c->rows};
    exec_ops(x)->gdn_commit(x, &commit);
}

// Slices of all runs advance side by side until nothing is left of any.
static void run_slices(struct exec *x, const struct deltanet_call *c, struct gdn_args *a) {
    struct gdn_run left[SLICES], slices[SLICES];
    for (int from = 0, n; from < c->n_runs; from += n) {
        n = c->n_runs - from < SLICES ? c->n_runs - from : SLICES;
        memcpy(left, c->runs + from, (size_t)n * sizeof *left);
        for (int m; (m = cut_slices(x, c, a, left, n, slices)) > 0;) {
            a->runs = slices;
            a->n_runs = m;
            exec_ops(x)->gdn(x, a, c->in_rows);
            commit_slices(x, c, slices, m);
        }
    }
}

void deltanet_run(struct exec *x, const struct deltanet_call *c) {
    const struct ops *ops = exec_ops(x);
    const struct deltanet_buffers *b = c->buf;
    const struct gdn_state *const *states = (const struct gdn_state *const *)c->states;
    int64_t n = c->in_rows->n;
    struct linear_job in[4] = {{c->block->qkv, c->rows.u, false},
                               {c->block->gate, b->z, false},
                               {c->block->alpha, b->a, false},
                               {c->block->beta, b->b, false}};
    ops->linear(x, in, 4, c->in, n);
    struct gdn_conv_args conv = {.shape = c->shape,
                                 .a = b->a,
                                 .b = b->b,
                                 .conv_w = c->block->conv,
                                 .ssm_a = c->block->a,
                                 .dt_bias = c->block->dt,
                                 .seqs = states,
                                 .rows = c->rows};
    ops->gdn_gates_conv(x, &conv, c->in_rows);
    struct gdn_args args = {.shape = c->shape,
                            .runs = c->runs,
                            .n_runs = c->n_runs,
                            .seqs = states,
                            .len = c->len,
                            .rows = c->rows,
                            .out = b->o};
    if (c->commit)
        run_slices(x, c, &args);
    else
        ops->gdn(x, &args, c->in_rows);
    struct gated_norm_args norm = {.in = b->o,
                                   .z = b->z,
                                   .w = c->block->norm,
                                   .eps = c->eps,
                                   .n = n,
                                   .heads = c->shape.n_v,
                                   .dv = c->shape.dv,
                                   .out = b->out};
    ops->gated_norm_to_act(x, &norm);
    struct linear_job out = {c->block->out, c->h, true};
    ops->linear(x, &out, 1, b->out, n);
}
