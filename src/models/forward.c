// SPDX-License-Identifier: Apache-2.0
// The one forward function and commit. Everything that can fail (checks, pages) comes before the
// first op that changes a sequence. Prompt and verification run the same ops on the same values;
// they differ only in where K, V and the recurrent rows are put.
#include <string.h>

#include "models/model.h"
#include "models/model_impl.h"

void model_tap(struct model *m, int i, int64_t n) {
    size_t row = (size_t)m->params.dim * sizeof(float);
    for (int t = 0; t < m->n_taps; t++) {
        if (m->taps[t] == i)
            exec_ops(m->x)->copy_rows(m->x, m->ws.features + t * m->params.dim,
                                      (size_t)m->n_taps * row, m->ws.h, m->pass.identity, n, row);
    }
}

static int check_sequences(const struct model *m, struct sequence *const *seqs, int n,
                           struct err *e) {
    if (n < 1 || n > m->options.max_seqs)
        return err_set(e, ERR_USAGE, "a pass over %d sequences is not possible; the limit is %d", n,
                       m->options.max_seqs);
    int64_t width = m->n_taps * m->params.dim;
    for (int i = 0; i < n; i++) {
        const struct sequence_spec *s = &seqs[i]->spec;
        int rc = sequence_check(seqs[i], e);
        if (rc)
            return rc;
        if (s->x != m->x || s->target != m->pool || (s->feature_dim && s->feature_dim != width))
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
    int64_t limit = f->prompt ? m->options.max_rows : m->options.max_verify, want = 0;
    if (f->n > limit)
        return err_set(e, ERR_LIMIT, "a pass of %lld rows is over the limit of %lld; split it",
                       (long long)f->n, (long long)limit);
    for (int64_t i = 0; i < f->n; i++)
        want += f->want[i];
    if (want > m->options.max_verify)
        return err_set(e, ERR_LIMIT,
                       "logits of %lld rows are wanted but there is room for %d; "
                       "split the pass",
                       (long long)want, m->options.max_verify);
    return forest_check(f, m->pass.len, m->pass.n_seqs, m->params.vocab, e);
}

// Rows of one sequence in a prompt forest.
static int64_t rows_of(const struct forest *f, int seq) {
    int64_t n = 0;
    for (int64_t i = 0; i < f->n; i++)
        n += f->seq[i] == seq;
    return n;
}

static int prepare(struct model *m, const struct forest *f, struct sequence *const *seqs,
                   int n_seqs, struct err *e) {
    struct pass_record *r = &m->pass;
    int rc = check_sequences(m, seqs, n_seqs, e);
    if (rc)
        return rc;
    r->n_seqs = n_seqs;
    for (int i = 0; i < n_seqs; i++)
        r->len[i] = seqs[i]->len;
    rc = check_forest(m, f, e);
    for (int i = 0; !rc && f->prompt && i < n_seqs; i++)
        rc = sequence_reserve(seqs[i], rows_of(f, i), e);
    return rc;
}

static struct kv_slot scratch_slot(const struct model *m, int64_t row) {
    return (struct kv_slot){m->ws.scratch + row / KV_PAGE * m->kv.page_bytes,
                            (int32_t)(row % KV_PAGE)};
}

// Copies what commit needs and says where each row's K and V go.
static void record(struct model *m, const struct forest *f, struct sequence *const *seqs) {
    struct pass_record *r = &m->pass;
    r->stretch = exec_stretch(m->x);
    r->n = f->n;
    r->n_want = 0;
    for (int64_t i = 0; i < f->n; i++) {
        r->parent[i] = f->parent[i];
        r->seq[i] = f->seq[i];
        if (f->want[i])
            r->want_row[r->n_want++] = (int32_t)i;
        if (m->pool)
            r->store[i] =
                f->prompt ? kv_slot_at(&seqs[f->seq[i]]->target, f->pos[i]) : scratch_slot(m, i);
    }
    for (int i = 0; i < r->n_seqs; i++) {
        r->views[i] = kv_view_of(&seqs[i]->target);
        r->version[i] = seqs[i]->version;
    }
    r->n_runs = 0;
    for (int64_t i = 0; i < f->n; i++) {
        if (i == 0 || f->seq[i] != f->seq[i - 1])
            r->runs[r->n_runs++] = (struct gdn_run){i, 0, f->seq[i]};
        r->runs[r->n_runs - 1].count++;
    }
}

static void compute_logits(struct model *m) {
    const struct ops *ops = exec_ops(m->x);
    const struct model_params *p = &m->params;
    int64_t n = m->pass.n_want;
    if (n == 0)
        return;
    size_t row = (size_t)p->dim * sizeof(float);
    const float *wanted = m->ws.h; // all rows, or those that are wanted, side by side
    if (n < m->pass.n) {
        ops->copy_rows(m->x, m->ws.wanted, row, m->ws.h, m->pass.want_row, n, row);
        wanted = m->ws.wanted;
    }
    ops->norm_to_act(m->x, wanted, m->out_norm, p->eps, n, p->dim, m->ws.act_d);
    struct linear_job head = {m->head, m->ws.logits, false};
    ops->linear(m->x, &head, 1, m->ws.act_d, n);
}

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

// The host side of a commit: tokens, lengths, features. K, V and recurrent rows are in place.
static void append(struct model *m, struct sequence *s, const int32_t *token, const int32_t *index,
                   int64_t count) {
    for (int64_t i = 0; i < count; i++)
        s->tokens[s->len + i] = token[index[i]];
    s->version++;
    if (m->pool)
        kv_advance(&s->target, count);
    keep_features(m, s, index, count);
}

// Whether a prompt is so short that its recurrent rows can wait in the rooms of a verification
// until all layers are through: one commit instead of one a layer, as in plain decoding.
static bool commits_together(const struct model *m, const struct forest *f, int n_seqs) {
    if (!f->prompt || f->n > m->options.max_verify)
        return false;
    for (int i = 0; i < n_seqs; i++) {
        if (rows_of(f, i) > GDN_BLOCK)
            return false;
    }
    return true;
}

// Recurrent rows path[0..count) of the last pass are to become part of a sequence, the next of n.
static void add_commit(struct model *m, int *n, const struct sequence *s, const int32_t *path,
                       int64_t count) {
    m->pass.commits[(*n)++] = (struct gdn_commit_seq){s->recurrent.layers, s->len, path, count};
}

// They become part of these n sequences in all layers.
static void commit_recurrent(struct model *m, int n) {
    struct gdn_commit_args c = {.shape = m->params.gdn,
                                .n_layers = m->params.n_layers - m->params.n_full,
                                .seqs = m->pass.commits,
                                .n_seqs = n,
                                .rows = m->ws.verify};
    if (c.n_layers && n)
        exec_ops(m->x)->gdn_commit(m->x, &c);
}

int model_forward(struct model *m, const struct forest *f, struct sequence *const *seqs, int n_seqs,
                  struct err *e) {
    m->pass.open = false;
    m->pass.n_want = 0;
    int rc = prepare(m, f, seqs, n_seqs, e);
    if (rc)
        return rc;
    record(m, f, seqs);
    struct pass p = {.rows = forest_rows(f),
                     .prompt = f->prompt,
                     .layerwise = f->prompt && !commits_together(m, f, n_seqs),
                     .store = m->pass.store,
                     .views = m->pass.views,
                     .seqs = seqs,
                     .len = m->pass.len,
                     .n_seqs = n_seqs,
                     .runs = m->pass.runs,
                     .n_runs = m->pass.n_runs};
    p.rows.pass = exec_pass(m->x);
    exec_ops(m->x)->gather_rows(m->x, m->embed, f->token, f->n, m->ws.h);
    m->desc->forward(m, &p);
    compute_logits(m);
    int commits = 0;
    for (int i = 0; f->prompt && !p.layerwise && i < p.n_runs; i++)
        add_commit(m, &commits, seqs[p.runs[i].seq], m->pass.identity + p.runs[i].first,
                   p.runs[i].count);
    commit_recurrent(m, commits);
    for (int i = 0; f->prompt && i < p.n_runs; i++)
        append(m, seqs[p.runs[i].seq], f->token, m->pass.identity + p.runs[i].first,
               p.runs[i].count);
    if (!f->prompt) {
        memcpy(m->pass.token, f->token, (size_t)f->n * sizeof *f->token);
        m->pass.open = true;
    }
    return 0;
}

const float *model_logits(const struct model *m) {
    return m->ws.logits;
}

int64_t model_logits_count(const struct model *m) {
    return m->pass.n_want;
}

int64_t model_logits_index(const struct model *m, int32_t row) {
    int64_t lo = 0, hi = m->pass.n_want;
    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (m->pass.want_row[mid] < row)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < m->pass.n_want && m->pass.want_row[lo] == row ? lo : -1;
}

static int check_commit(const struct model *m, struct sequence *const *seqs, int32_t seq,
                        const int32_t *path, int64_t count, struct err *e) {
    const struct pass_record *r = &m->pass;
    if (!r->open)
        return err_set(e, ERR_STATE, "there is no verification to commit; run one first");
    if (exec_spoilt(m->x, r->stretch))
        return err_set(e, ERR_STATE,
                       "the last pass failed, so that nothing of it can be "
                       "committed; run it again");
    if (seq < 0 || seq >= r->n_seqs || seqs[seq]->version != r->version[seq])
        return err_set(e, ERR_STATE,
                       "sequence %d cannot be committed from the last pass; it took "
                       "no part in it or has changed since",
                       (int)seq);
    for (int64_t i = 0; i < count; i++) {
        int32_t row = path[i];
        if (row < 0 || row >= r->n || r->seq[row] != seq ||
            r->parent[row] != (i ? path[i - 1] : -1))
            return err_set(e, ERR_USAGE, "row %d does not continue the path to be committed",
                           (int)row);
    }
    if (count < 1)
        return err_set(e, ERR_USAGE, "an empty path cannot be committed");
    return 0;
}

int model_commit(struct model *m, struct sequence *const *seqs, int32_t seq, const int32_t *path,
                 int64_t count, struct err *e) {
    const struct ops *ops = exec_ops(m->x);
    struct pass_record *r = &m->pass;
    int rc = check_commit(m, seqs, seq, path, count, e);
    struct sequence *s = rc ? NULL : seqs[seq];
    if (!rc)
        rc = sequence_reserve(s, count, e);
    if (rc)
        return rc;
    int commits = 0;
    add_commit(m, &commits, s, path, count);
    commit_recurrent(m, commits);
    for (int64_t i = 0; m->pool && i < count; i++) {
        r->target[i] = kv_slot_at(&s->target, s->len + i);
        r->source[i] = scratch_slot(m, path[i]);
    }
    if (m->pool)
        ops->kv_copy(m->x, &m->kv, r->target, r->source, count);
    append(m, s, r->token, path, count);
    return 0;
}
