// SPDX-License-Identifier: Apache-2.0
// The one forward function, and logits of its rows. Everything that can fail (checks, pages) comes
// before the first op that changes a sequence. Chains and trees run the same ops on the same
// values, in the same calls; they differ only in where K, V and the recurrent rows are put.
#include <string.h>

#include "base/num.h"
#include "models/model.h"
#include "models/model_impl.h"

void model_tap(struct model *m, int i, int64_t n) {
    size_t row = (size_t)m->params.dim * sizeof(float);
    for (int j = 0; j < m->n_readers; j++) {
        const struct model_reader *r = &m->readers[j];
        for (int t = 0; t < r->n_layers; t++)
            if (r->layers[t] == i)
                exec_ops(m->x)->copy_rows(m->x, r->features + t * m->params.dim,
                                          (size_t)r->n_layers * row, m->ws.h, m->pass.identity, n,
                                          row);
    }
}

// After all layers, for those who read what the head does.
static void tap_normed(struct model *m, int64_t n) {
    for (int j = 0; j < m->n_readers; j++) {
        const struct model_reader *r = &m->readers[j];
        if (r->n_layers == 1 && r->layers[0] == MODEL_TAP_NORMED)
            exec_ops(m->x)->norm(m->x, &(struct norm_args){.in = m->ws.h,
                                                           .w = m->out_norm,
                                                           .eps = m->params.eps,
                                                           .n = n,
                                                           .k = m->params.dim,
                                                           .out = r->features});
    }
}

// Whether a sequence is this model's, and what is attached to it is fed by the passes.
static bool is_of_model(const struct model *m, const struct sequence_spec *s) {
    bool own = s->x == m->x && s->n_groups == m->n_groups;
    for (int i = 0; own && i < m->n_groups; i++)
        own = s->groups[i].pool == m->groups[i].pool;
    for (int i = 0; own && i < s->n_attached; i++) {
        own = false;
        for (int j = 0; j < m->n_readers; j++)
            own = own || m->readers[j].kind == s->attached[i];
    }
    return own;
}

static int check_sequences(const struct model *m, struct sequence *const *seqs, int n,
                           struct err *e) {
    if (n < 1 || n > m->options.max_seqs)
        return err_set(e, ERR_USAGE, "a pass over %d sequences is not possible; the limit is %d", n,
                       m->options.max_seqs);
    for (int i = 0; i < n; i++) {
        int rc = sequence_check(seqs[i], e);
        if (rc)
            return rc;
        if (!is_of_model(m, &seqs[i]->spec))
            return err_set(e, ERR_MISMATCH,
                           "sequence %d was made for another model or draft; "
                           "create it after loading both",
                           i);
        for (int j = 0; j < i; j++) {
            if (seqs[j] == seqs[i])
                return err_set(e, ERR_USAGE, "sequence %d is listed twice in one pass", i);
        }
    }
    return 0;
}

static int check_forest(const struct model *m, const struct forest *f, struct err *e) {
    if (f->n > model_max_rows(m))
        return err_set(e, ERR_LIMIT, "a pass of %lld rows is over the limit of %d; split it",
                       (long long)f->n, model_max_rows(m));
    int64_t tree = 0;
    for (int64_t i = 0; i < f->n; i++)
        tree += !f->prompt[i];
    if (tree > m->options.max_verify)
        return err_set(e, ERR_LIMIT,
                       "trees of %lld rows in one pass are over the limit of %d; verify fewer",
                       (long long)tree, m->options.max_verify);
    return forest_check(f, m->pass.len, m->pass.n_seqs, m->params.vocab, e);
}

// Finds the rows of each sequence and how their recurrent rows will be committed: those of short
// chains can wait in the scratch of a verification until all layers are through, which is one
// commit instead of one a layer.
static void find_runs(struct model *m, const struct forest *f) {
    struct pass_record *r = &m->pass;
    r->n_runs = 0;
    r->layerwise = f->n > m->options.max_verify;
    memset(r->chain, 0, (size_t)r->n_seqs);
    for (int64_t i = 0, n; i < f->n; i += n) {
        for (n = 1; i + n < f->n && f->seq[i + n] == f->seq[i];)
            n++;
        r->runs[r->n_runs++] = (struct gdn_run){i, n, f->seq[i]};
        r->chain[f->seq[i]] = f->prompt[i];
        r->layerwise = r->layerwise || (f->prompt[i] && n > GDN_BLOCK);
    }
}

// All rows of a sequence see the same pages.
static int check_views(const struct forest *f, struct sequence *const *seqs, struct err *e) {
    for (int64_t i = 0; i < f->n; i++)
        if (f->pos[i] >= sequence_view_end(seqs[f->seq[i]]))
            return err_set(e, ERR_USAGE,
                           "row %lld at position %lld sees other pages than those at %lld before; "
                           "run it in another pass",
                           (long long)i, (long long)f->pos[i], (long long)seqs[f->seq[i]]->len);
    return 0;
}

static int prepare_pass(struct model *m, const struct forest *f, struct sequence *const *seqs,
                        int n_seqs, struct err *e) {
    struct pass_record *r = &m->pass;
    int rc = check_sequences(m, seqs, n_seqs, e);
    if (rc)
        return rc;
    r->n_seqs = n_seqs;
    for (int i = 0; i < n_seqs; i++)
        r->len[i] = seqs[i]->len;
    rc = check_forest(m, f, e);
    if (!rc && m->options.view.window)
        rc = check_views(f, seqs, e);
    if (!rc)
        rc = model_workspace_enter(m, f->n, e);
    if (rc)
        return rc;
    find_runs(m, f);
    int n = 0;
    for (; !rc && n < r->n_runs; n++) {
        if (r->chain[r->runs[n].seq])
            rc = sequence_reserve(seqs[r->runs[n].seq], r->runs[n].count, e);
    }
    while (rc && n-- > 0)
        sequence_unreserve(seqs[r->runs[n].seq]);
    for (int i = 0; !rc && i < n_seqs; i++)
        for (int g = 0; g < m->n_groups; g++)
            kv_bring_back(&seqs[i]->kv[g]);
    return rc;
}

// The pages of each sequence, of which no other may be needed until the pass is queued.
static void record_views(struct model *m, struct sequence *const *seqs) {
    struct pass_record *r = &m->pass;
    for (int g = 0; g < m->n_groups; g++) {
        struct model_group *y = &m->groups[g];
        for (int i = 0; i < r->n_seqs; i++) {
            struct kv *k = &seqs[i]->kv[g];
            kv_place(k);
            y->views[i] = y->seen ? sequence_view(seqs[i], g, y->seen + (size_t)i * r->view_pages)
                                  : kv_view_of(k);
            if (y->stream)
                y->stream->n_pages[i] =
                    y->views[i].pages == k->pages ? k->n_pages : ceil_div(y->views[i].len, KV_PAGE);
        }
        if (y->stream)
            (void)kv_stream_begin(y->stream, y->pool, y->views, r->n_seqs);
    }
}

// Copies what commits and logits need and says where each row's K and V go.
static void record_pass(struct model *m, const struct forest *f, struct sequence *const *seqs) {
    struct pass_record *r = &m->pass;
    r->epoch = exec_epoch(m->x);
    size_t bytes = (size_t)f->n * sizeof *r->token;
    memcpy(r->token, f->token, bytes);
    memcpy(r->parent, f->parent, bytes);
    memcpy(r->seq, f->seq, bytes);
    r->n = f->n;
    r->n_logit_rows = r->n_tree = 0;
    for (int64_t i = 0; i < f->n; i++) {
        int64_t place = r->layerwise ? r->n_tree : i;
        r->place[i] = r->layerwise && f->prompt[i] ? -1 : (int32_t)place;
        if (!f->prompt[i])
            r->tree[r->n_tree++] = (int32_t)i;
        if (f->logits_requested[i])
            r->logit_row[r->n_logit_rows++] = (int32_t)i;
        for (int g = 0; g < m->n_groups; g++)
            m->groups[g].store[i] = f->prompt[i] ? kv_slot_at(&seqs[f->seq[i]]->kv[g], f->pos[i])
                                                 : model_scratch_slot(&m->groups[g], place);
    }
    for (int i = 0; i < r->n_seqs; i++) {
        r->version[i] = seqs[i]->version;
        r->sparse_end[i] = sequence_skipped(seqs[i]) ? 0 : seqs[i]->sparse_end;
    }
    record_views(m, seqs);
}

// The rows with positions as views count them.
static struct rows seen_rows(struct model *m, const struct rows *rows,
                             struct sequence *const *seqs) {
    struct rows seen = *rows;
    for (int g = 0; g < m->n_groups; g++)
        if (m->groups[g].stream && m->groups[g].stream->on)
            seen.pass = 0; // views differ from layer to layer
    if (!m->pass.seen_pos)
        return seen;
    for (int64_t i = 0; i < rows->n; i++)
        m->pass.seen_pos[i] = rows->pos[i] - sequence_skipped(seqs[rows->seq[i]]) * KV_PAGE;
    seen.pos = m->pass.seen_pos;
    return seen;
}

// Makes the rows of all chains part of their sequences.
static void commit_chains(struct model *m, struct sequence *const *seqs) {
    struct pass_record *r = &m->pass;
    int n = 0;
    for (int i = 0; !r->layerwise && i < r->n_runs; i++) {
        const struct gdn_run *run = &r->runs[i];
        struct sequence *s = seqs[run->seq];
        if (r->chain[run->seq])
            r->commits[n++] = (struct gdn_commit_seq){s->recurrent.layers, s->len,
                                                      r->identity + run->first, run->count};
    }
    model_commit_recurrent(m, n);
    for (int i = 0; i < r->n_runs; i++) {
        const struct gdn_run *run = &r->runs[i];
        if (!r->chain[run->seq])
            continue;
        sequence_append(seqs[run->seq], r->token, r->identity + run->first, run->count);
        model_pages_choose(m, seqs[run->seq], (int32_t)(run->first + run->count - 1));
    }
}

int model_forward(struct model *m, const struct forest *f, struct sequence *const *seqs, int n_seqs,
                  struct err *e) {
    struct pass_record *r = &m->pass;
    r->open = false;
    r->n_logit_rows = r->logits_n = 0;
    int rc = prepare_pass(m, f, seqs, n_seqs, e);
    if (rc)
        return rc;
    record_pass(m, f, seqs);
    model_pages_begin(m, f, seqs);
    struct pass p = {.rows = forest_rows(f), .seqs = seqs, .len = r->len, .n_seqs = n_seqs};
    p.rows.pass = r->number = exec_pass(m->x);
    p.seen = seen_rows(m, &p.rows, seqs);
    exec_ops(m->x)->gather_rows(m->x, m->embed, f->token, f->n, m->ws.h);
    m->desc->forward(m, &p);
    tap_normed(m, f->n);
    commit_chains(m, seqs);
    r->open = r->n_tree > 0;
    return 0;
}

void model_precompute(struct model *m) {
    for (int i = 0; m->pass.open && i < m->n_readers; i++) {
        const struct attachment_kind *k = m->readers[i].kind;
        if (k->precompute)
            k->precompute(k->owner, m->pass.n);
    }
}

int64_t model_wanted(const struct model *m) {
    return m->pass.n_logit_rows;
}

int64_t model_logits_rows(const struct model *m) {
    return m->options.max_logits;
}

int64_t model_logits_index(const struct model *m, int32_t row) {
    int64_t lo = 0, hi = m->pass.n_logit_rows;
    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (m->pass.logit_row[mid] < row)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < m->pass.n_logit_rows && m->pass.logit_row[lo] == row ? lo : -1;
}

static void compute_logits(struct model *m, int64_t first, int64_t n) {
    const struct ops *ops = exec_ops(m->x);
    const struct model_params *p = &m->params;
    const int32_t *row = m->pass.logit_row + first;
    size_t bytes = (size_t)p->dim * sizeof(float);
    const float *wanted = m->ws.h + row[0] * p->dim;
    if (row[n - 1] - row[0] != n - 1) { // not side by side already
        ops->copy_rows(m->x, m->ws.wanted, bytes, m->ws.h, row, n, bytes);
        wanted = m->ws.wanted;
    }
    ops->norm_to_act(m->x, wanted, m->out_norm, p->eps, n, p->dim, m->ws.act_d);
    struct linear_job head = {.w = m->head, .out = m->ws.logits};
    ops->linear(m->x, &head, 1, m->ws.act_d, n);
    ranks_gather(&m->ranks, m->x, m->ws.logits, n, p->vocab);
    if (p->logit_cap > 0)
        ops->scale(m->x, &(struct scale_args){m->ws.logits, n * p->vocab, 1, p->logit_cap});
    m->pass.logits_epoch = exec_epoch(m->x);
    m->pass.logits_first = first;
    m->pass.logits_n = n;
}

// Whether wanted rows first .. first + n - 1 are in the slice that is there.
static bool have_logits(const struct model *m, int64_t first, int64_t n) {
    const struct pass_record *r = &m->pass;
    return first >= r->logits_first && first + n <= r->logits_first + r->logits_n &&
           !exec_epoch_failed(m->x, r->logits_epoch);
}

const float *model_logits(struct model *m, int64_t first, int64_t n) {
    const struct pass_record *r = &m->pass;
    if (n < 1 || n > m->options.max_logits || first < 0 || first > r->n_logit_rows - n)
        return NULL;
    if (!have_logits(m, first, n))
        compute_logits(m, first, n);
    return m->ws.logits + (first - r->logits_first) * m->params.vocab;
}

const float *model_logits_at(struct model *m, int64_t i) {
    int64_t max = m->options.max_logits, first = i / max * max, left = m->pass.n_logit_rows - first;
    if (i >= 0 && i < m->pass.n_logit_rows && !have_logits(m, i, 1))
        compute_logits(m, first, min_i64(left, max));
    return model_logits(m, i, 1);
}

// Commit: rows of the last pass become part of their sequences. Everything that can fail (checks,
// pages) is done for all sequences before the first one changes.

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
    if (exec_epoch_failed(m->x, m->pass.epoch))
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
static int reserve_paths(struct sequence *const *seqs, const struct model_path *paths, int n,
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
        rc = reserve_paths(seqs, paths, n_paths, e);
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
    for (int i = 0; i < n_paths; i++) {
        const struct model_path *p = &paths[i];
        sequence_append(seqs[p->seq], r->token, p->rows, p->count);
        model_pages_choose(m, seqs[p->seq], p->rows[p->count - 1]);
    }
    return 0;
}
