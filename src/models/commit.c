// SPDX-License-Identifier: Apache-2.0
// Commit: rows of the last pass become part of their sequences. Everything that can fail (checks,
// pages) is done for all sequences before the first one changes.
#include "models/model.h"
#include "models/model_impl.h"

// Whether the next rows are a piece that the draft takes where they are: far enough from the end
// that what is pending stays what it is without this, so that cuts find it.
static bool absorbs_directly(const struct model *m, const struct sequence *s, const int32_t *index,
                             int64_t count) {
    int64_t n = m->absorb_rows;
    if (n == 0 || s->len != s->draft_len || count < n + SEQ_PENDING)
        return false;
    for (int64_t i = 1; i < n; i++)
        if (index[i] != index[0] + i)
            return false;
    return true;
}

// Appends rows index[0..count) of the features to the pending ones, absorbing when they are full.
static void keep_features(struct model *m, struct sequence *s, const int32_t *index,
                          int64_t count) {
    int64_t dim = s->spec.feature_dim;
    size_t row = (size_t)dim * sizeof(float);
    while (dim && count > 0) {
        int64_t held = s->len - s->draft_len, room = SEQ_PENDING - held;
        if (room == 0) {
            m->absorb(m->draft, s, s->pending);
            continue;
        }
        if (absorbs_directly(m, s, index, count)) {
            s->len += m->absorb_rows;
            m->absorb(m->draft, s, m->ws.features + index[0] * dim);
            index += m->absorb_rows;
            count -= m->absorb_rows;
            continue;
        }
        int64_t n = count < room ? count : room;
        exec_ops(m->x)->copy_rows(m->x, s->pending + held * dim, row, m->ws.features, index, n,
                                  row);
        s->len += n;
        index += n;
        count -= n;
    }
    s->len += count; // without a draft
}

void model_append(struct model *m, struct sequence *s, const int32_t *token, const int32_t *index,
                  int64_t count) {
    for (int64_t i = 0; i < count; i++)
        s->tokens[s->len + i] = token[index[i]];
    s->version++;
    if (m->pool)
        kv_advance(&s->target, count);
    keep_features(m, s, index, count);
}

void model_commit_recurrent(struct model *m, int n) {
    struct gdn_commit_args c = {.shape = m->params.gdn,
                                .n_layers = m->params.n_layers - m->params.n_full,
                                .seqs = m->pass.commits,
                                .n_seqs = n,
                                .rows = m->ws.verify};
    if (c.n_layers && n)
        exec_ops(m->x)->gdn_commit(m->x, &c);
}

struct kv_slot model_scratch_slot(const struct model *m, int64_t place) {
    return (struct kv_slot){m->ws.scratch + place / KV_PAGE * m->kv.page_bytes,
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
            if (!m->pool)
                continue;
            r->target[n] = kv_slot_at(&s->target, s->len + j);
            r->source[n] = model_scratch_slot(m, r->path[n]);
        }
    }
    model_commit_recurrent(m, n_paths);
    if (m->pool)
        exec_ops(m->x)->kv_copy(m->x, &m->kv, r->target, r->source, n);
    for (int i = 0; i < n_paths; i++)
        model_append(m, seqs[paths[i].seq], r->token, paths[i].rows, paths[i].count);
    return 0;
}
