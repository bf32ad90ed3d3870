// SPDX-License-Identifier: Apache-2.0
// Workspaces for passes of different numbers of rows, where a model's experts have slots: the one
// of usual passes lies between the slots, and those of larger ones grow from there into the place
// of slots that are lent while such passes run (ops/experts/store.h). Only what has the rows of a
// pass is there several times; all of them overlap, and nothing in them outlives the next pass.
#include <stdlib.h>

#include "base/num.h"
#include "models/model_impl.h"
#include "ops/experts/pool.h"
#include "ops/parking.h"

// What has the rows of a pass in m->ws, for that many rows.
static int row_buffers(struct model *m, int64_t rows, struct err *e) {
    const struct model_params *p = &m->params;
    struct workspace *w = &m->ws;
    struct load *l = &m->load;
    void *chosen = NULL;
    int rc = load_buffer(l, rows * p->dim, &w->h, e);
    if (!rc)
        rc = load_act(l, rows, p->dim, &w->act_d, e);
    int64_t mid = p->ffn > p->moe.shared ? p->ffn : p->moe.shared;
    if (!rc && mid)
        rc = load_act(l, rows, mid, &w->act_f, e);
    if (!rc && p->moe.experts)
        rc = moe_buffers_load(&w->moe, &p->moe, p->dim, rows, l, e);
    if (!rc && w->choice.blocks)
        rc = load_bytes(l, rows * p->n_heads * w->choice.blocks / 8, &chosen, e);
    w->choice.chosen = chosen;
    return rc ? rc : m->desc->buffers(m, rows, e);
}

static int init_usual(struct model *m, bool dry, struct err *e) {
    struct expert_store *s = dry || !m->options.lending.own ? NULL : m->load.store;
    int rc = 0;
    if (s) {
        int number = expert_store_room(s, m->options.lending.own, e);
        if (number < 0)
            return number;
    }
    m->load.by_rows = true;
    rc = row_buffers(m, m->options.max_rows, e);
    m->load.by_rows = false;
    if (!s)
        return rc;
    struct err end;
    int ended = expert_store_room_end(s, NULL, rc ? &end : e);
    return rc ? rc : ended;
}

// Means of one layer's blocks; row buffers have a bit for each row, head and block.
static int choice_init(struct model *m, struct err *e) {
    const struct model_params *p = &m->params;
    struct attend_choice *c = &m->ws.choice;
    if (!m->options.sparse.on || !p->n_full)
        return 0;
    c->rule = m->options.sparse;
    c->blocks = round_up(sparse_blocks(m->options.max_ctx), 32);
    return load_buffer(&m->load, c->blocks * p->n_kv * p->head_dim, &c->means, e);
}

const struct attend_choice *model_choice(const struct model *m) {
    return m->options.sparse.on ? &m->ws.choice : NULL;
}

int model_workspace_init(struct model *m, bool dry, struct err *e) {
    const struct model_params *p = &m->params;
    struct workspace *w = &m->ws;
    struct load *l = &m->load;
    int64_t verify = m->options.max_verify, logits = m->options.max_logits;
    int n_recurrent = p->n_layers - p->n_full;
    int rc = load_buffer(l, logits * p->dim, &w->wanted, e);
    if (!rc)
        rc = load_buffer(l, logits * p->vocab, &w->logits, e);
    if (!rc)
        rc = choice_init(m, e);
    if (!rc)
        rc = model_pages_init(m, dry, e);
    if (!rc)
        rc = init_usual(m, dry, e);
    for (int i = 0; !rc && i < m->n_groups; i++) {
        void *scratch = NULL;
        int64_t pages = ceil_div(verify, KV_PAGE);
        rc = load_bytes(l, pages * m->groups[i].layout.page_bytes, &scratch, e);
        m->groups[i].scratch = scratch;
    }
    if (!rc && n_recurrent) {
        w->verify = calloc((size_t)n_recurrent, sizeof *w->verify);
        if (!w->verify)
            rc = err_set(e, ERR_MEMORY, "no memory for %d recurrent layers", n_recurrent);
    }
    for (int i = 0; !rc && i < n_recurrent; i++)
        rc = deltanet_rows_load(&w->verify[i], &p->gdn, verify, l, e);
    return rc;
}

// The same for more rows; m->ws, the counts of what was made and its limits stay as they were.
static int open_workspace(struct model *m, struct model_workspace *r, int64_t bytes,
                          struct err *e) {
    struct expert_store *s = m->load.store;
    const struct workspace own = m->ws;
    const struct exec_limits limits = m->load.limits;
    r->number = expert_store_room(s, bytes, e);
    if (r->number < 0)
        return r->number;
    int rc = row_buffers(m, r->rows, e);
    struct err end;
    m->load.limits.rows = r->rows;
    int ended = expert_store_room_end(s, &m->load.limits, rc ? &end : e);
    r->ws = m->ws;
    m->ws = own;
    m->load.limits = limits;
    return rc ? rc : ended;
}

// What a scorer may have.
static int open_scorer_room(struct model *m, struct err *e) {
    struct expert_store *s = m->load.store;
    int first = m->options.lending.own ? 0 : expert_store_room(s, 0, e);
    int rc = first < 0 ? first : m->options.lending.own ? 0 : expert_store_room_end(s, NULL, e);
    if (!rc)
        m->scorer_room = expert_store_room(s, m->options.lending.scorer + 2 * PARK_PIECE, e);
    if (!rc && m->scorer_room < 0)
        rc = m->scorer_room;
    return rc ? rc : expert_store_room_end(s, NULL, e);
}

int model_workspace_lend(struct model *m, struct err *e) {
    const struct model_lending *l = &m->options.lending;
    int rc = 0;
    if (!m->load.store)
        return 0;
    if (l->n) {
        m->workspaces[0] = (struct model_workspace){m->options.max_rows, 0, m->ws};
        m->n_workspaces = 1;
    }
    for (int i = 0; i < l->n && !rc; i++) {
        struct model_workspace *r = &m->workspaces[m->n_workspaces];
        r->rows = l->pass[i].rows;
        rc = open_workspace(m, r, l->pass[i].bytes, e);
        m->n_workspaces += !rc;
    }
    return rc || !l->scorer ? rc : open_scorer_room(m, e);
}

int model_vacate(struct model *m, struct err *e) {
    int64_t bytes = 0;
    if (!m->load.store || !m->options.lending.scorer)
        return 0;
    int rc = model_workspace_enter(m, 0, e);
    if (!rc)
        rc = expert_store_vacate(m->load.store, m->scorer_room, &bytes, e);
    return rc;
}

int model_occupy(struct model *m, struct err *e) {
    return m->load.store && m->options.lending.scorer ? expert_store_occupy(m->load.store, e) : 0;
}

// The workspace for a pass of that many rows.
static int workspace_for(const struct model *m, int64_t rows) {
    int to = m->workspace;
    if (rows <= m->workspaces[0].rows)
        return 0;
    while (m->workspaces[to].rows < rows && to < m->n_workspaces - 1)
        to++;
    return to;
}

int64_t model_rows_without_new_loan(const struct model *m, int64_t rows) {
    return m->n_workspaces ? m->workspaces[workspace_for(m, rows)].rows : m->options.max_rows;
}

int model_workspace_enter(struct model *m, int64_t rows, struct err *e) {
    int to = m->n_workspaces ? workspace_for(m, rows) : 0;
    if (to == m->workspace)
        return 0;
    int rc = expert_store_enter(m->load.store, m->workspaces[to].number, e);
    if (rc)
        return rc;
    m->workspace = to;
    m->ws = m->workspaces[to].ws;
    return 0;
}

int model_max_pass_rows(const struct model_options *o) {
    int lent = o->lending.n ? o->lending.pass[o->lending.n - 1].rows : o->lent_rows;
    return max_i32(o->max_rows, lent);
}

int model_max_rows(const struct model *m) {
    return model_max_pass_rows(&m->options);
}

int64_t model_rows_for(const struct model *m, int64_t n) {
    struct expert_passes way[MODEL_WORKSPACES];
    int n_ways = m->n_workspaces - 1;
    if (n_ways < 1)
        return m->options.max_rows;
    for (int i = 0; i < n_ways; i++)
        way[i] = (struct expert_passes){
            m->workspaces[i + 1].rows,
            expert_store_room_lends(m->load.store, m->workspaces[i + 1].number)};
    int best = expert_loan_choose(expert_store_classes(m->load.store), m->workspaces[0].rows, way,
                                  n_ways, n);
    return m->workspaces[best + 1].rows;
}
