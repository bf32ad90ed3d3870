// SPDX-License-Identifier: Apache-2.0
// The block's arithmetic over the rows of the workspace's arrays. For keys and values alone the
// projection in front and the layer's first norm are enough.
#include "models/draft/mtp/impl.h"

// The block's input: h = eh_proj [norm(embedding of token), norm(hidden)], and act_d = norm(h).
static void join(struct mtp *m, const int32_t *token, const float *hidden, int64_t n) {
    const struct ops *ops = exec_ops(m->path.x);
    const struct model_params *p = &m->path.target->params;
    const int64_t dim = p->dim;
    const size_t row = (size_t)dim * sizeof(float);
    float *halves[2] = {m->pair, m->pair + dim}; // of one row; of more they are put there
    const float *from[2] = {m->h, hidden}, *w[2] = {m->enorm, m->hnorm};
    m->path.act_of = NULL;
    for (int64_t i = 0; i < n; i++)
        m->path.index[i] = (int32_t)i;
    ops->gather_rows(m->path.x, m->embed, token, n, m->h);
    for (int i = 0; i < 2; i++) {
        float *out = n == 1 ? halves[i] : i ? m->path.u : m->h;
        const struct norm_args norm = {
            .in = from[i], .w = w[i], .eps = p->eps, .n = n, .k = dim, .out = out};
        ops->norm(m->path.x, &norm);
        if (n > 1)
            ops->copy_rows(m->path.x, halves[i], 2 * row, out, m->path.index, n, row);
    }
    ops->to_act(m->path.x, m->pair, n, 2 * dim, m->act_pair);
    struct linear_job joins = {.w = m->join, .out = m->h};
    ops->linear(m->path.x, &joins, 1, m->act_pair, n);
    ops->norm_to_act(m->path.x, m->h, m->layer.mixer_norm, p->eps, n, dim, m->path.act_d);
}

static struct attention_call attention_of(const struct mtp *m, const struct rows *rows) {
    return (struct attention_call){.ranks = &ranks_one,
                                   .shape = &m->layer.shape,
                                   .block = &m->layer.attention,
                                   .buf = &m->attention,
                                   .rows = rows,
                                   .layout = &m->path.layout,
                                   .store = m->path.store,
                                   .views = m->path.views,
                                   .mask = ATTEND_PATH,
                                   .in = m->path.act_d,
                                   .h = m->h};
}

static struct mla_call latent_of(const struct mtp *m, const struct rows *rows) {
    return (struct mla_call){.ranks = &ranks_one,
                             .shape = &m->path.target->params.mla,
                             .block = &m->layer.mla,
                             .buf = &m->mla,
                             .rows = rows,
                             .layout = &m->path.layout,
                             .store = m->path.store,
                             .views = m->path.views,
                             .in = m->path.act_d,
                             .h = m->h};
}

static void store(struct path *d, const struct rows *rows) {
    struct mtp *m = (struct mtp *)d;
    struct attention_call c = attention_of(m, rows);
    struct mla_call latent = latent_of(m, rows);
    join(m, m->path.token, m->path.u, rows->n);
    if (m->latent)
        mla_store(m->path.x, &latent);
    else
        attention_store(m->path.x, &c);
}

static void feed_forward(struct mtp *m, int64_t n) {
    const struct model_params *p = &m->path.target->params;
    const struct layer *y = &m->layer;
    if (m->attention_only)
        return;
    exec_ops(m->path.x)->norm_to_act(m->path.x, m->h, y->ffn_norm, p->eps, n, p->dim,
                                     m->path.act_d);
    if (m->experts)
        moe_run(m->path.x, &(struct moe_call){.ranks = &ranks_one,
                                              .shape = &p->moe,
                                              .block = &y->moe,
                                              .buf = &m->moe,
                                              .in = m->path.act_d,
                                              .mid = m->act_f,
                                              .h = m->h,
                                              .n = n,
                                              .dim = p->dim});
    else
        mlp_run(m->path.x, &ranks_one, &y->mlp, m->path.act_d, m->act_f, m->h, n);
}

static void run(struct path *d, const struct rows *rows, int64_t first,
                const struct path_hidden *h) {
    struct mtp *m = (struct mtp *)d;
    const struct model_params *p = &m->path.target->params;
    const int64_t n = rows->n - first;
    struct attention_call c = attention_of(m, rows);
    struct mla_call latent = latent_of(m, rows);
    c.first = latent.first = first;
    join(m, m->path.token + first, h->in, n);
    if (m->latent)
        mla_run(m->path.x, &latent);
    else
        attention_run(m->path.x, &c);
    feed_forward(m, n);
    const struct norm_args norm = {.in = m->h,
                                   .w = m->gnorm,
                                   .eps = p->eps,
                                   .n = n,
                                   .k = p->dim,
                                   .out = h->out,
                                   .act = d->act_d};
    exec_ops(d->x)->norm(d->x, &norm);
    d->act_of = n == 1 ? h->out : NULL;
}

static void hidden(struct path *d, const int32_t *index, int64_t n, float *out) {
    const struct mtp *m = (const struct mtp *)d;
    const size_t row = (size_t)d->dim * sizeof(float);
    exec_ops(d->x)->copy_rows(d->x, out, row, m->features, index, n, row);
}

static uint64_t content(struct path *d) {
    return mtp_content((struct mtp *)d);
}

const struct path_block mtp_path_block = {.kind = "mtp",
                                          .what = "prediction block",
                                          .hidden = hidden,
                                          .store = store,
                                          .run = run,
                                          .content = content};
