// SPDX-License-Identifier: Apache-2.0
// A prompt runs the delta rule in slices that end at multiples of 32 positions and commits each one
// before the next, so that the op sees at most 32 uncommitted rows and the log stays bounded. Whole
// blocks go to the backend at once where it has an op for that.
#include "models/block_deltanet.h"

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

// Row numbers of one slice.
static void fill_path(int32_t *path, int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        path[i] = (int32_t)(first + i);
}

// The whole blocks that begin at row `first`, at once; 0 rows where the backend cannot.
static int64_t run_blocks(struct exec *x, const struct deltanet_call *c, struct gdn_args *a,
                          int64_t first) {
    const struct ops *ops = exec_ops(x);
    const struct rows *r = c->in_rows;
    int32_t seq = r->seq[first];
    int64_t count = 0;
    if (!ops->gdn_blocks || c->len[seq] % GDN_BLOCK)
        return 0;
    while (first + count < r->n && r->seq[first + count] == seq)
        count++;
    a->first = first;
    a->count = count / GDN_BLOCK * GDN_BLOCK;
    if (!a->count || !ops->gdn_blocks(x, a, c->states[seq], c->len[seq]))
        return 0;
    c->len[seq] += a->count;
    return a->count;
}

static void run_slices(struct exec *x, const struct deltanet_call *c, struct gdn_args *a) {
    const struct ops *ops = exec_ops(x);
    const struct rows *r = c->in_rows;
    int32_t path[GDN_BLOCK];
    for (int64_t first = 0; first < r->n; first += a->count) {
        int32_t seq = r->seq[first];
        if (run_blocks(x, c, a, first))
            continue;
        int64_t count = GDN_BLOCK - r->pos[first] % GDN_BLOCK, i = 1;
        while (i < count && first + i < r->n && r->seq[first + i] == seq)
            i++;
        a->first = first;
        a->count = i;
        ops->gdn(x, a, r);
        fill_path(path, first, i);
        struct gdn_commit_args commit = {.shape = c->shape,
                                         .n_layers = 1,
                                         .states = c->states[seq],
                                         .rows = &c->rows,
                                         .len = c->len[seq],
                                         .path = path,
                                         .count = i};
        ops->gdn_commit(x, &commit);
        c->len[seq] += i;
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
    struct gdn_args args = {
        .shape = c->shape, .count = n, .seqs = states, .len = c->len, .rows = c->rows, .out = b->o};
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
