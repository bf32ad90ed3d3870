// SPDX-License-Identifier: Apache-2.0
// The draft's arithmetic over the rows of the workspace's arrays: u = fc [states of the target's
// layers]; a = u + attention [norm(embedding), norm(u)]; what a row gives is a + mlp(norm(a)).
// Keys and values alone need no more than the pair.
#include "models/draft/eagle3/impl.h"

// act_pair = [norm(embedding of token), norm(u)], of n rows; h is what attention is added to.
static void join(struct eagle3 *m, const int32_t *token, const float *u, int64_t n) {
    struct path *d = &m->path;
    const struct ops *ops = exec_ops(d->x);
    const int64_t dim = d->dim;
    const size_t row = (size_t)dim * sizeof(float);
    struct norm_args norm = {
        .in = m->h, .w = m->token_norm, .eps = d->eps, .n = n, .k = dim, .out = m->h};
    for (int64_t i = 0; i < n; i++)
        d->index[i] = (int32_t)i;
    ops->gather_rows(d->x, m->embed, token, n, m->h);
    ops->norm(d->x, &norm);
    ops->copy_rows(d->x, m->pair, 2 * row, m->h, d->index, n, row);
    norm.in = u;
    norm.w = m->hidden_norm;
    ops->norm(d->x, &norm);
    ops->copy_rows(d->x, m->pair + dim, 2 * row, m->h, d->index, n, row);
    if (!m->params.norm_before_residual)
        ops->copy(d->x, m->h, u, (size_t)n * row);
    ops->to_act(d->x, m->pair, n, 2 * dim, m->act_pair);
}

static struct attention_call attention_of(const struct eagle3 *m, const struct rows *rows) {
    return (struct attention_call){.ranks = &ranks_one,
                                   .shape = &m->shape,
                                   .block = &m->attention,
                                   .buf = &m->attend,
                                   .rows = rows,
                                   .layout = &m->path.layout,
                                   .store = m->path.store,
                                   .views = m->path.views,
                                   .mask = ATTEND_PATH,
                                   .in = m->act_pair,
                                   .h = m->h};
}

static void store(struct path *d, const struct rows *rows) {
    struct eagle3 *m = (struct eagle3 *)d;
    const struct attention_call c = attention_of(m, rows);
    join(m, d->token, d->u, rows->n);
    attention_store(d->x, &c);
}

static void run(struct path *d, const struct rows *rows, int64_t first,
                const struct path_hidden *h) {
    struct eagle3 *m = (struct eagle3 *)d;
    const struct ops *ops = exec_ops(d->x);
    const int64_t n = rows->n - first;
    struct attention_call c = attention_of(m, rows);
    c.first = first;
    join(m, d->token + first, h->in, n);
    attention_run(d->x, &c);
    ops->norm_to_act(d->x, m->h, m->ffn_norm, d->eps, n, d->dim, d->act_d);
    mlp_run(d->x, &ranks_one, &m->mlp, d->act_d, m->act_f, m->h, n);
    if (m->params.norm_output)
        ops->norm(
            d->x,
            &(struct norm_args){
                .in = m->h, .w = m->out_norm, .eps = d->eps, .n = n, .k = d->dim, .out = h->out});
    else
        ops->copy(d->x, h->out, m->h, (size_t)n * (size_t)d->dim * sizeof(float));
}

static void hidden(struct path *d, const int32_t *index, int64_t n, float *out) {
    struct eagle3 *m = (struct eagle3 *)d;
    const struct ops *ops = exec_ops(d->x);
    const int64_t wide = m->params.n_taps * m->params.target_dim;
    const size_t row = (size_t)wide * sizeof(float);
    const struct linear_job fc = {.w = m->fc, .out = out};
    ops->copy_rows(d->x, m->gathered, row, m->features, index, n, row);
    if (m->taps_norm)
        ops->norm(d->x, &(struct norm_args){.in = m->gathered,
                                            .w = m->taps_norm,
                                            .eps = d->eps,
                                            .n = n,
                                            .k = wide,
                                            .out = m->gathered});
    ops->to_act(d->x, m->gathered, n, wide, m->act_taps);
    ops->linear(d->x, &fc, 1, m->act_taps, n);
}

const struct path_block eagle3_path_block = {.kind = "eagle3",
                                             .what = "EAGLE-3 draft",
                                             .hidden = hidden,
                                             .store = store,
                                             .run = run,
                                             .content = eagle3_content};
