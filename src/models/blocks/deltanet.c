// SPDX-License-Identifier: Apache-2.0
// A long chain runs the delta rule in slices that end at multiples of 32 positions and commits each
// one before the next, so that the op sees at most 32 uncommitted rows and the log stays bounded.
// The slices of all chains run side by side, with the trees besides the first. Whole blocks go to
// the backend at once where it has an op for that.
#include "models/blocks/deltanet.h"

#include "base/num.h"

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

// The whole blocks of one run from row `first` on, at once; returns how many rows that were.
static int64_t run_blocks(struct exec *x, const struct deltanet_call *c, const struct gdn_args *a,
                          const struct gdn_run *rest) {
    const struct ops *ops = exec_ops(x);
    int64_t *len = &c->len[rest->seq];
    struct gdn_run blocks = {rest->first, rest->count / GDN_BLOCK * GDN_BLOCK, rest->seq};
    struct gdn_args args = *a;
    args.runs = &blocks;
    args.n_runs = 1;
    if (!ops->gdn_blocks || *len % GDN_BLOCK || !blocks.count ||
        !ops->gdn_blocks(x, &args, c->states[rest->seq], *len))
        return 0;
    *len += blocks.count;
    return blocks.count;
}

// The next slice of a chain; false where nothing is left.
static bool next_slice(struct exec *x, const struct deltanet_call *c, const struct gdn_args *a,
                       const struct gdn_run *run, struct gdn_run *slice) {
    int64_t len = c->len[run->seq], done = len - c->in_rows->pos[run->first];
    struct gdn_run rest = {run->first + done, run->count - done, run->seq};
    int64_t taken = run_blocks(x, c, a, &rest);
    rest.first += taken;
    rest.count -= taken;
    len += taken;
    rest.count = min_i64(rest.count, GDN_BLOCK - len % GDN_BLOCK);
    *slice = rest;
    return rest.count > 0;
}

// Makes those of slices[0..n) that belong to chains part of their states.
static void commit_slices(struct exec *x, const struct deltanet_call *c, int n) {
    const struct deltanet_slices *s = c->slices;
    int m = 0;
    for (int i = 0; i < n; i++) {
        const struct gdn_run *run = &s->run[i];
        if (!s->chain[run->seq])
            continue;
        s->commit[m++] = (struct gdn_commit_seq){c->states[run->seq], c->len[run->seq],
                                                 s->identity + run->first, run->count};
        c->len[run->seq] += run->count;
    }
    struct gdn_commit_args commit = {
        .shape = c->shape, .n_layers = 1, .seqs = s->commit, .n_seqs = m, .rows = &c->rows};
    if (m)
        exec_ops(x)->gdn_commit(x, &commit);
}

// Keeps what a later commit of the trees needs.
static void keep_trees(struct exec *x, const struct deltanet_call *c) {
    const struct deltanet_slices *s = c->slices;
    const struct gdn_shape *h = &c->shape;
    const struct {
        float *to;
        const float *from;
        int64_t width;
    } parts[] = {{s->keep->u, c->rows.u, h->channels},
                 {s->keep->k, c->rows.k, (int64_t)h->n_k * h->dk},
                 {s->keep->g, c->rows.g, h->n_v},
                 {s->keep->d, c->rows.d, (int64_t)h->n_v * h->dv}};
    for (size_t i = 0; s->n_tree && i < sizeof parts / sizeof *parts; i++) {
        size_t bytes = (size_t)parts[i].width * sizeof(float);
        exec_ops(x)->copy_rows(x, parts[i].to, bytes, parts[i].from, s->tree, s->n_tree, bytes);
    }
}

static void run_slices(struct exec *x, const struct deltanet_call *c, struct gdn_args *a) {
    const struct deltanet_slices *s = c->slices;
    for (bool first = true;; first = false) {
        int n = 0;
        for (int i = 0; i < c->n_runs; i++) {
            const struct gdn_run *run = &c->runs[i];
            if (s->chain[run->seq])
                n += next_slice(x, c, a, run, &s->run[n]);
            else if (first)
                s->run[n++] = *run;
        }
        if (n == 0)
            break;
        a->runs = s->run;
        a->n_runs = n;
        exec_ops(x)->gdn(x, a, c->in_rows);
        commit_slices(x, c, n);
    }
    keep_trees(x, c);
}

void deltanet_run(struct exec *x, const struct deltanet_call *c) {
    const struct ops *ops = exec_ops(x);
    const struct deltanet_buffers *b = c->buf;
    const struct gdn_state *const *states = (const struct gdn_state *const *)c->states;
    int64_t n = c->in_rows->n;
    struct linear_job in[4] = {{.w = c->block->qkv, .out = c->rows.u},
                               {.w = c->block->gate, .out = b->z},
                               {.w = c->block->alpha, .out = b->a},
                               {.w = c->block->beta, .out = b->b}};
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
    if (c->slices)
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
    const struct linear_job out = {.w = c->block->out, .out = c->h, .add = true};
    linear_reduce(c->ranks, x, &out, b->out, n);
}
