// SPDX-License-Identifier: Apache-2.0
// Commit: rows of the last pass become part of their sequences. Everything that can fail (checks,
// pages) is done for all sequences before the first one changes.
#include "models/model.h"
#include "models/model_impl.h"

void model_commit_recurrent(struct model *m, int n) {
    struct gdn_commit_args c = {.shape = m->params.gdn,
                                .n_layers = m->params.n_layers - m->params.n_full,
                                .seqs = m->pass.commits,
                                .n_seqs = n,
                                .rows = m->ws.verify};
    if (c.n_layers && n)
        exec_ops(m->x)->gdn_commit(m->x, &c);
}

struct kv_slot model_scratch_slot(const struct model_group *g, int64_t place) {
    return (struct kv_slot){g->scratch + place / KV_PAGE * g->layout.page_bytes,
                            (int32_t)(place % KV_PAGE)};
}

static int check_path(const struct model *m, struct sequence *const *seqs,
                      const struct model_path *p, struct err *e) {
    const struct pass_record *r = &m->pass;
    if (p->seq < 0 || p->seq >= r->n_seqs || seqs[p->seq]->version != r->version[p->seq])
        return err_set(e, ERR_STATE,
                       "sequence %d cannot be committed from the last pass; it took "
                       "no part in it or has changed since",
                       (int)p->seq);
    for (int64_t i = 0; i < p->count; i++) {
        int32_t row = p->rows[i];
        if (row < 0 || row >= r->n || r->seq[row] != p->seq ||
            r->parent[row] != (i ? p->rows[i - 1] : -1))
            return err_set(e, ERR_USAGE, "row %d does not continue the path to be committed",
                           (int)row);
    }
    if (p->count < 1)
        return err_set(e, ERR_USAGE, "an empty path cannot be committed");
    return 0;
}

static int check_paths(const struct model *m, struct sequence *const *seqs,
                       const struct model_path *paths, int n, struct err *e) {
    if (!m->pass.open)
        return err_set(e, ERR_STATE, "there is no verification to commit; run one first");
    if (exec_spoilt(m->x, m->pass.stretch))
        return err_set(e, ERR_STATE,
                       "the last pass failed, so that nothing of it can be "
                       "committed; run it again");
    if (n < 1)
        return err_set(e, ERR_USAGE, "no path to commit was given");
    int rc = 0;
    for (int i = 0; !rc && i < n; i++) {
        rc = check_path(m, seqs, &paths[i], e);
        for (int j = 0; !rc && j < i; j++) {
            if (paths[j].seq == paths[i].seq)
                rc = err_set(e, ERR_USAGE, "two paths of sequence %d cannot both be committed",
                             (int)paths[i].seq);
        }
    }
    return rc;
}

// Room for all paths or none.
static int reserve(struct sequence *const *seqs, const struct model_path *paths, int n,
                   struct err *e) {
    int rc = 0, done = 0;
    for (; !rc && done < n; done++)
        rc = sequence_reserve(seqs[paths[done].seq], paths[done].count, e);
    while (rc && done-- > 0)
        sequence_unreserve(seqs[paths[done].seq]);
    return rc;
}

int model_commit(struct model *m, struct sequence *const *seqs, const struct model_path *paths,
                 int n_paths, struct err *e) {
    struct pass_record *r = &m->pass;
    int rc = check_paths(m, seqs, paths, n_paths, e);
    if (!rc)
        rc = reserve(seqs, paths, n_paths, e);
    if (rc)
        return rc;
    int64_t n = 0; // rows so far
    for (int i = 0; i < n_paths; i++) {
        const struct model_path *p = &paths[i];
        struct sequence *s = seqs[p->seq];
        r->commits[i] = (struct gdn_commit_seq){s->recurrent.layers, s->len, r->path + n, p->count};
        for (int64_t j = 0; j < p->count; j++, n++) {
            r->path[n] = r->place[p->rows[j]];
            for (int g = 0; g < m->n_groups; g++) {
                m->groups[g].target[n] = kv_slot_at(&s->kv[g], s->len + j);
                m->groups[g].source[n] = model_scratch_slot(&m->groups[g], r->path[n]);
            }
        }
    }
    model_commit_recurrent(m, n_paths);
    for (int g = 0; g < m->n_groups; g++) {
        const struct model_group *y = &m->groups[g];
        exec_ops(m->x)->kv_copy(m->x, &y->layout, y->target, y->source, n);
    }
    for (int i = 0; i < n_paths; i++)
        sequence_append(seqs[paths[i].seq], r->token, paths[i].rows, paths[i].count);
    return 0;
}
