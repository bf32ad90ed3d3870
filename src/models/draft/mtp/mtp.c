// SPDX-License-Identifier: Apache-2.0
// Drafting with the block. A row joins the embedding of a token with the hidden state of the
// position before, after the output norm, and passes through one layer; what comes out, normed, is
// the hidden state of its children and the head's input. Rows of a draft are not kept: those of a
// chain lie in slots after the committed ones, of a tree in scratch, so a wrong guess needs no
// undoing.
#include "models/draft/mtp/mtp.h"

#include <string.h>

#include "base/num.h"
#include "models/draft/mtp/impl.h"

static size_t row_bytes(const struct mtp *m) {
    return (size_t)m->target->params.dim * sizeof(float);
}

// A sequence's part of mtp_begin: state that can be written, and room.
static int begin_member(struct mtp *m, struct sequence *s, struct mtp_member *out, struct err *e) {
    struct mtp_state *state = mtp_state_of(m, s);
    if (!state)
        return err_set(e, ERR_MISMATCH,
                       "a sequence has no state for this prediction block; create it after loading "
                       "the block");
    int rc = sequence_write(s, e);
    if (rc)
        return rc;
    // What is absorbed now, and a chain, which begins in the slot of the newest position. A
    // checkpoint or fork may have come to share that page, so this is done for every draft.
    struct err full;
    const int64_t rows = max_i64(state->base.len - 1, 0) - state->absorbed + m->options.depth;
    out->state = state;
    out->ready = state->base.len > 0 && kv_reserve(&state->kv, rows, &full) == 0;
    out->tree = false;
    out->rows = out->ran = out->in_pages = 0;
    return 0;
}

int mtp_begin(struct mtp *m, struct sequence *const *seqs, int n, struct err *e) {
    int rc = 0;
    m->n_members = 0;
    m->named = m->logits_n = 0;
    if (n < 1 || n > m->target->options.max_seqs)
        return err_set(e, ERR_USAGE, "drafting for %d sequences is not possible; the limit is %d",
                       n, m->target->options.max_seqs);
    for (int i = 0; !rc && i < n; i++)
        rc = begin_member(m, seqs[i], &m->members[i], e);
    if (rc)
        return rc;
    m->n_members = n;
    mtp_absorb(m);
    return 0;
}

bool mtp_ready(const struct mtp *m, int i) {
    return i >= 0 && i < m->n_members && m->members[i].ready;
}

static int check_row(const struct mtp *m, const struct mtp_row *r, struct err *e) {
    if (!mtp_ready(m, r->seq))
        return err_set(e, ERR_USAGE, "sequence %d cannot draft", (int)r->seq);
    if (r->token < 0 || r->token >= m->target->params.vocab)
        return err_set(e, ERR_USAGE, "token id %d is outside the vocabulary of %lld", (int)r->token,
                       (long long)m->target->params.vocab);
    const struct mtp_member *q = &m->members[r->seq];
    const bool root = q->ran == 0 && r->parent == -1;
    if (!root && (r->parent < 0 || r->parent >= q->ran))
        return err_set(e, ERR_USAGE, "row %d of sequence %d is no parent: it has not run",
                       (int)r->parent, (int)r->seq);
    if (q->rows >= MTP_NODES || q->rows - q->ran >= (root ? 1 : MTP_WIDTH) ||
        (!root && q->depth[r->parent] + 1 >= m->options.depth))
        return err_set(e, ERR_USAGE, "a draft has at most %d rows, %d in a pass, %d deep",
                       (int)MTP_NODES, (int)MTP_WIDTH, m->options.depth);
    return 0;
}

static void name_row(struct mtp *m, const struct mtp_row *r) {
    struct mtp_member *q = &m->members[r->seq];
    const int number = q->rows++;
    q->token[number] = r->token;
    q->parent[number] = r->parent;
    q->depth[number] = r->parent < 0 ? 0 : q->depth[r->parent] + 1;
    q->tree = q->tree || number != q->ran || r->parent != number - 1;
    if (!q->tree)
        q->in_pages = q->rows;
    m->wanted[m->named++] = r->seq * MTP_NODES + number;
}

static struct kv_slot slot_of(const struct mtp *m, int seq, int number) {
    const struct mtp_member *q = &m->members[seq];
    const int64_t place = (int64_t)seq * MTP_NODES + number;
    if (number < q->in_pages)
        return kv_slot_at(&q->state->kv, q->state->base.len - 1 + number);
    return (struct kv_slot){m->scratch + place / KV_PAGE * m->layout.page_bytes,
                            (int32_t)(place % KV_PAGE)};
}

// The first of a sequence's rows that takes part in its next pass. Those of a tree that have run
// are ancestors of the new ones; those of a chain count as committed, and so does row 0, the
// ancestor of all.
static int first_of(const struct mtp_member *q) {
    return q->tree ? min_i32(q->ran, 1) : q->ran;
}

// Puts a sequence's row `number` at `at` of the workspace's arrays. Its parent is a row that has
// run.
static void place_row(struct mtp *m, int seq, int number, int64_t at) {
    const struct mtp_member *q = &m->members[seq];
    const int parent = q->parent[number], first = first_of(q);
    m->token[at] = q->token[number];
    m->parent[at] = parent < first ? -1 : (int32_t)(q->before + parent - first);
    m->seq[at] = seq;
    m->pos[at] = q->state->base.len - 1 + q->depth[number];
    m->store[at] = slot_of(m, seq, number);
}

// The pass of sequences from .. to-1: rows that have run, then, from *first on, the new ones.
static struct rows place_rows(struct mtp *m, int from, int to, int64_t *first) {
    int64_t at = 0;
    for (int i = from; i < to; i++) {
        struct mtp_member *q = &m->members[i];
        q->before = at;
        m->views[i] = kv_view_of(&q->state->kv);
        m->views[i].len = q->state->base.len - 1 + first_of(q);
        for (int j = first_of(q); q->rows > q->ran && j < q->ran; j++)
            place_row(m, i, j, at++);
    }
    *first = at;
    for (int i = from; i < to; i++) {
        struct mtp_member *q = &m->members[i];
        q->at = at - *first;
        for (int j = q->ran; j < q->rows; j++)
            place_row(m, i, j, at++);
    }
    return mtp_pass(m, at);
}

// Where the hidden state is that a sequence's row begins with.
static const float *hidden_of(const struct mtp *m, int seq, int number) {
    const struct mtp_member *q = &m->members[seq];
    const struct mtp_state *s = q->state;
    const int64_t dim = m->target->params.dim;
    return number == 0 ? s->tail + mtp_tail_slot(s, s->base.len - 1) * dim
                       : m->g + ((int64_t)seq * MTP_NODES + q->parent[number]) * dim;
}

// The hidden states that the n new rows of sequences from .. to-1 begin with, side by side.
static void take_hidden(struct mtp *m, int from, int to, int64_t n) {
    const struct ops *ops = exec_ops(m->x);
    const int64_t dim = m->target->params.dim;
    bool roots = true;
    for (int i = from; i < to; i++) {
        const struct mtp_member *q = &m->members[i];
        for (int j = q->ran; j < q->rows; j++) // of the root: from the tail, below
            m->index[q->at + j - q->ran] = i * MTP_NODES + max_i32(q->parent[j], 0);
        roots = roots && (q->ran == 0 || q->rows == q->ran);
    }
    if (!roots)
        ops->copy_rows(m->x, m->u, row_bytes(m), m->g, m->index, n, row_bytes(m));
    for (int i = from; i < to; i++) {
        const struct mtp_member *q = &m->members[i];
        if (q->ran == 0 && q->rows)
            ops->copy(m->x, m->u + q->at * dim, hidden_of(m, i, 0), row_bytes(m));
    }
}

// Keeps what the rows gave.
static void give_hidden(struct mtp *m, int from, int to) {
    const int64_t dim = m->target->params.dim;
    for (int i = from; i < to; i++) {
        struct mtp_member *q = &m->members[i];
        if (q->rows > q->ran)
            exec_ops(m->x)->copy(m->x, m->g + ((int64_t)i * MTP_NODES + q->ran) * dim,
                                 m->u + q->at * dim, (size_t)(q->rows - q->ran) * row_bytes(m));
        q->ran = q->rows;
    }
}

// A pass of one new row, of sequence i, from where its hidden state is to where its own belongs.
static void run_one(struct mtp *m, int i, const struct rows *rows, int64_t first) {
    struct mtp_member *q = &m->members[i];
    float *out = m->g + ((int64_t)i * MTP_NODES + q->ran) * m->target->params.dim;
    mtp_run(m, rows, first, &(struct mtp_hidden){hidden_of(m, i, q->ran), out});
    q->ran = q->rows;
}

// One pass over the new rows of sequences from .. to-1.
static void run_pass(struct mtp *m, int from, int to) {
    int64_t first;
    const struct rows rows = place_rows(m, from, to, &first);
    if (rows.n == first + 1) {
        run_one(m, m->seq[first], &rows, first);
        return;
    }
    take_hidden(m, from, to, rows.n - first);
    mtp_run(m, &rows, first, &(struct mtp_hidden){m->u, m->u});
    give_hidden(m, from, to);
}

int mtp_rows(struct mtp *m, const struct mtp_row *rows, int64_t n, struct err *e) {
    int rc = n < 1 ? err_set(e, ERR_USAGE, "no rows to draft") : 0;
    m->named = m->logits_n = 0;
    for (int64_t i = 0; !rc && i < n; i++) {
        rc = check_row(m, &rows[i], e);
        if (!rc)
            name_row(m, &rows[i]);
    }
    if (rc) { // none of them
        for (int i = 0; i < m->n_members; i++)
            m->members[i].ready = false;
        m->named = 0;
        return rc;
    }
    int64_t placed = 0;
    int from = 0;
    for (int i = 0; i < m->n_members; i++) {
        const struct mtp_member *q = &m->members[i];
        const int64_t more = q->rows == q->ran ? 0 : q->rows - first_of(q);
        if (placed && placed + more > m->draft_rows) {
            run_pass(m, from, i);
            placed = 0;
            from = i;
        }
        placed += more;
    }
    run_pass(m, from, m->n_members);
    return 0;
}

int64_t mtp_logits_rows(const struct mtp *m) {
    return m->logits_rows;
}

const struct draft_head *mtp_head(const struct mtp *m) {
    return &m->head;
}

const float *mtp_logits(struct mtp *m, int64_t first, int64_t n) {
    const struct ops *ops = exec_ops(m->x);
    const struct model_params *p = &m->target->params;
    if (n < 1 || n > m->logits_rows || first < 0 || first > m->named - n)
        return NULL;
    if (first < m->logits_first || first + n > m->logits_first + m->logits_n ||
        exec_epoch_failed(m->x, m->logits_epoch)) {
        const int32_t *at = m->wanted + first;
        const float *g = m->g + at[0] * p->dim;
        if (at[n - 1] - at[0] != n - 1) { // not side by side already
            ops->copy_rows(m->x, m->u, row_bytes(m), m->g, at, n, row_bytes(m));
            g = m->u;
        }
        ops->to_act(m->x, g, n, p->dim, m->act_d);
        struct linear_job head = {.w = m->head.w, .out = m->logits};
        ops->linear(m->x, &head, 1, m->act_d, n);
        if (p->logit_cap > 0)
            ops->scale(m->x, &(struct scale_args){m->logits, n * m->head.rows, 1, p->logit_cap});
        m->logits_epoch = exec_epoch(m->x);
        m->logits_first = first;
        m->logits_n = n;
    }
    return m->logits + (first - m->logits_first) * m->head.rows;
}
