// SPDX-License-Identifier: Apache-2.0
// The block's arithmetic over the rows of the workspace's arrays. For keys and values alone the
// projection in front and the layer's first norm are enough.
#include "models/draft/mtp/impl.h"

struct rows mtp_pass(const struct mtp *m, int64_t n) {
    return (struct rows){n, m->token, m->parent, m->seq, m->pos, exec_pass(m->x)};
}

// The block's input: h = eh_proj [norm(embedding of token), norm(hidden)], and act_d = norm(h).
static void join(struct mtp *m, const int32_t *token, const float *hidden, int64_t n) {
    const struct ops *ops = exec_ops(m->x);
    const struct model_params *p = &m->target->params;
    const int64_t dim = p->dim;
    const size_t row = (size_t)dim * sizeof(float);
    float *halves[2] = {m->pair, m->pair + dim}; // of one row; of more they are put there
    const float *from[2] = {m->h, hidden}, *w[2] = {m->enorm, m->hnorm};
    for (int64_t i = 0; i < n; i++)
        m->index[i] = (int32_t)i;
    ops->gather_rows(m->x, m->embed, token, n, m->h);
    for (int i = 0; i < 2; i++) {
        float *out = n == 1 ? halves[i] : i ? m->u : m->h;
        const struct norm_args norm = {
            .in = from[i], .w = w[i], .eps = p->eps, .n = n, .k = dim, .out = out};
        ops->norm(m->x, &norm);
        if (n > 1)
            ops->copy_rows(m->x, halves[i], 2 * row, out, m->index, n, row);
    }
    ops->to_act(m->x, m->pair, n, 2 * dim, m->act_pair);
    struct linear_job joins = {.w = m->join, .out = m->h};
    ops->linear(m->x, &joins, 1, m->act_pair, n);
    ops->norm_to_act(m->x, m->h, m->layer.mixer_norm, p->eps, n, dim, m->act_d);
}

static struct attention_call attention_of(const struct mtp *m, const struct rows *rows) {
    return (struct attention_call){.ranks = &ranks_one,
                                   .shape = &m->layer.shape,
                                   .block = &m->layer.attention,
                                   .buf = &m->attention,
                                   .rows = rows,
                                   .layout = &m->layout,
                                   .store = m->store,
                                   .views = m->views,
                                   .mask = ATTEND_PATH,
                                   .in = m->act_d,
                                   .h = m->h};
}

static struct mla_call latent_of(const struct mtp *m, const struct rows *rows) {
    return (struct mla_call){.ranks = &ranks_one,
                             .shape = &m->target->params.mla,
                             .block = &m->layer.mla,
                             .buf = &m->mla,
                             .rows = rows,
                             .layout = &m->layout,
                             .store = m->store,
                             .views = m->views,
                             .in = m->act_d,
                             .h = m->h};
}

void mtp_store(struct mtp *m, const struct rows *rows) {
    struct attention_call c = attention_of(m, rows);
    struct mla_call latent = latent_of(m, rows);
    join(m, m->token, m->u, rows->n);
    if (m->latent)
        mla_store(m->x, &latent);
    else
        attention_store(m->x, &c);
}

static void feed_forward(struct mtp *m, int64_t n) {
    const struct model_params *p = &m->target->params;
    const struct layer *y = &m->layer;
    if (m->attention_only)
        return;
    exec_ops(m->x)->norm_to_act(m->x, m->h, y->ffn_norm, p->eps, n, p->dim, m->act_d);
    if (m->experts)
        moe_run(m->x, &(struct moe_call){.ranks = &ranks_one,
                                         .shape = &p->moe,
                                         .block = &y->moe,
                                         .buf = &m->moe,
                                         .in = m->act_d,
                                         .mid = m->act_f,
                                         .h = m->h,
                                         .n = n,
                                         .dim = p->dim});
    else
        mlp_run(m->x, &ranks_one, &y->mlp, m->act_d, m->act_f, m->h, n);
}

void mtp_run(struct mtp *m, const struct rows *rows, int64_t first, const struct mtp_hidden *h) {
    const struct model_params *p = &m->target->params;
    const int64_t n = rows->n - first;
    struct attention_call c = attention_of(m, rows);
    struct mla_call latent = latent_of(m, rows);
    c.first = latent.first = first;
    join(m, m->token + first, h->in, n);
    if (m->latent)
        mla_run(m->x, &latent);
    else
        attention_run(m->x, &c);
    feed_forward(m, n);
    const struct norm_args norm = {
        .in = m->h, .w = m->gnorm, .eps = p->eps, .n = n, .k = p->dim, .out = h->out};
    exec_ops(m->x)->norm(m->x, &norm);
}
