// SPDX-License-Identifier: Apache-2.0
// Drafting. What a row gives is the hidden state of its children and, normed, the head's input.
// Rows of a draft but row 0 (state.c) are not kept: those of a chain lie in slots after the
// committed ones, of a tree in scratch, so a wrong guess needs no undoing.
#include "models/draft/path/path.h"

#include "base/num.h"
#include "models/draft/path/impl.h"

static size_t row_bytes(const struct path *d) {
    return (size_t)d->dim * sizeof(float);
}

// A sequence's part of path_begin: state that can be written, and room.
static int begin_member(struct path *d, struct sequence *s, struct path_member *out,
                        struct err *e) {
    struct path_state *state = path_state_of(d, s);
    if (!state)
        return err_set(e, ERR_MISMATCH,
                       "a sequence has no state for this %s; create it after loading the %s",
                       d->block->what, d->block->what);
    int rc = sequence_write(s, e);
    if (rc)
        return rc;
    // What is absorbed now, and a chain, which begins in the slot of the newest position. A
    // checkpoint or fork may have come to share that page, so this is done for every draft.
    struct err full;
    const int64_t rows = max_i64(state->base.len - 1, 0) - state->absorbed + d->depth;
    out->state = state;
    out->ready = state->base.len > 0 && kv_reserve(&state->kv, rows, &full) == 0;
    out->tree = false;
    out->rows = out->ran = out->in_pages = 0;
    return 0;
}

int path_begin(struct path *d, struct sequence *const *seqs, int n, struct err *e) {
    int rc = 0;
    d->n_members = 0;
    d->named = d->logits_n = 0;
    if (n < 1 || n > d->target->options.max_seqs)
        return err_set(e, ERR_USAGE, "drafting for %d sequences is not possible; the limit is %d",
                       n, d->target->options.max_seqs);
    for (int i = 0; !rc && i < n; i++)
        rc = begin_member(d, seqs[i], &d->members[i], e);
    if (rc)
        return rc;
    d->n_members = n;
    path_absorb(d);
    return 0;
}

bool path_ready(const struct path *d, int i) {
    return i >= 0 && i < d->n_members && d->members[i].ready;
}

static int check_row(const struct path *d, const struct path_row *r, struct err *e) {
    if (!path_ready(d, r->seq))
        return err_set(e, ERR_USAGE, "sequence %d cannot draft", (int)r->seq);
    if (r->token < 0 || r->token >= d->target->params.vocab)
        return err_set(e, ERR_USAGE, "token id %d is outside the vocabulary of %lld", (int)r->token,
                       (long long)d->target->params.vocab);
    const struct path_member *q = &d->members[r->seq];
    const bool root = q->ran == 0 && r->parent == -1;
    if (!root && (r->parent < 0 || r->parent >= q->ran))
        return err_set(e, ERR_USAGE, "row %d of sequence %d is no parent: it has not run",
                       (int)r->parent, (int)r->seq);
    if (q->rows >= PATH_NODES || q->rows - q->ran >= (root ? 1 : PATH_WIDTH) ||
        (!root && q->depth[r->parent] + 1 >= d->depth))
        return err_set(e, ERR_USAGE, "a draft has at most %d rows, %d in a pass, %d deep",
                       (int)PATH_NODES, (int)PATH_WIDTH, d->depth);
    return 0;
}

static void name_row(struct path *d, const struct path_row *r) {
    struct path_member *q = &d->members[r->seq];
    const int number = q->rows++;
    q->token[number] = r->token;
    q->parent[number] = r->parent;
    q->depth[number] = r->parent < 0 ? 0 : q->depth[r->parent] + 1;
    q->tree = q->tree || number != q->ran || r->parent != number - 1;
    if (!q->tree)
        q->in_pages = q->rows;
    d->wanted[d->named++] = r->seq * PATH_NODES + number;
}

static struct kv_slot slot_of(const struct path *d, int seq, int number) {
    const struct path_member *q = &d->members[seq];
    const int64_t place = (int64_t)seq * PATH_NODES + number;
    if (number < q->in_pages)
        return kv_slot_at(&q->state->kv, q->state->base.len - 1 + number);
    return (struct kv_slot){d->scratch + place / KV_PAGE * d->layout.page_bytes,
                            (int32_t)(place % KV_PAGE)};
}

// The first of a sequence's rows that takes part in its next pass. Those of a tree that have run
// are ancestors of the new ones; those of a chain count as committed, and so does row 0, the
// ancestor of all.
static int first_of(const struct path_member *q) {
    return q->tree ? min_i32(q->ran, 1) : q->ran;
}

// Puts a sequence's row `number` at `at` of the workspace's arrays. Its parent is a row that has
// run.
static void place_row(struct path *d, int seq, int number, int64_t at) {
    struct path_member *q = &d->members[seq];
    const int parent = q->parent[number], first = first_of(q);
    d->token[at] = q->token[number];
    d->parent[at] = parent < first ? -1 : (int32_t)(q->before + parent - first);
    d->seq[at] = seq;
    d->pos[at] = q->state->base.len - 1 + q->depth[number];
    d->store[at] = slot_of(d, seq, number);
    if (number == 0)
        q->state->root = (struct path_root){d->store[at].page, d->token[at], exec_epoch(d->x)};
}

// The pass of sequences from .. to-1: rows that have run, then, from *first on, the new ones.
static struct rows place_rows(struct path *d, int from, int to, int64_t *first) {
    int64_t at = 0;
    for (int i = from; i < to; i++) {
        struct path_member *q = &d->members[i];
        q->before = at;
        d->views[i] = kv_view_of(&q->state->kv);
        d->views[i].len = q->state->base.len - 1 + first_of(q);
        for (int j = first_of(q); q->rows > q->ran && j < q->ran; j++)
            place_row(d, i, j, at++);
    }
    *first = at;
    for (int i = from; i < to; i++) {
        struct path_member *q = &d->members[i];
        q->at = at - *first;
        for (int j = q->ran; j < q->rows; j++)
            place_row(d, i, j, at++);
    }
    return path_pass(d, at);
}

// Where the hidden state is that a sequence's row begins with.
static const float *hidden_of(const struct path *d, int seq, int number) {
    const struct path_member *q = &d->members[seq];
    const struct path_state *s = q->state;
    const int64_t dim = d->dim;
    return number == 0 ? s->tail + path_tail_slot(s, s->base.len - 1) * dim
                       : d->g + ((int64_t)seq * PATH_NODES + q->parent[number]) * dim;
}

// The hidden states that the n new rows of sequences from .. to-1 begin with, side by side.
static void take_hidden(struct path *d, int from, int to, int64_t n) {
    const struct ops *ops = exec_ops(d->x);
    const int64_t dim = d->dim;
    bool roots = true;
    for (int i = from; i < to; i++) {
        const struct path_member *q = &d->members[i];
        for (int j = q->ran; j < q->rows; j++) // of the root: from the tail, below
            d->index[q->at + j - q->ran] = i * PATH_NODES + max_i32(q->parent[j], 0);
        roots = roots && (q->ran == 0 || q->rows == q->ran);
    }
    if (!roots)
        ops->copy_rows(d->x, d->u, row_bytes(d), d->g, d->index, n, row_bytes(d));
    for (int i = from; i < to; i++) {
        const struct path_member *q = &d->members[i];
        if (q->ran == 0 && q->rows)
            ops->copy(d->x, d->u + q->at * dim, hidden_of(d, i, 0), row_bytes(d));
    }
}

// Keeps what the rows gave.
static void give_hidden(struct path *d, int from, int to) {
    const int64_t dim = d->dim;
    for (int i = from; i < to; i++) {
        struct path_member *q = &d->members[i];
        if (q->rows > q->ran)
            exec_ops(d->x)->copy(d->x, d->g + ((int64_t)i * PATH_NODES + q->ran) * dim,
                                 d->u + q->at * dim, (size_t)(q->rows - q->ran) * row_bytes(d));
        q->ran = q->rows;
    }
}

// A pass of one new row, of sequence i, from where its hidden state is to where its own belongs.
static void run_one(struct path *d, int i, const struct rows *rows, int64_t first) {
    struct path_member *q = &d->members[i];
    float *out = d->g + ((int64_t)i * PATH_NODES + q->ran) * d->dim;
    d->block->run(d, rows, first, &(struct path_hidden){hidden_of(d, i, q->ran), out});
    q->ran = q->rows;
}

// One pass over the new rows of sequences from .. to-1.
static void run_pass(struct path *d, int from, int to) {
    int64_t first;
    const struct rows rows = place_rows(d, from, to, &first);
    if (rows.n == first + 1) {
        run_one(d, d->seq[first], &rows, first);
        return;
    }
    take_hidden(d, from, to, rows.n - first);
    d->block->run(d, &rows, first, &(struct path_hidden){d->u, d->u});
    give_hidden(d, from, to);
}

int path_rows(struct path *d, const struct path_row *rows, int64_t n, struct err *e) {
    int rc = n < 1 ? err_set(e, ERR_USAGE, "no rows to draft") : 0;
    d->named = d->logits_n = 0;
    for (int64_t i = 0; !rc && i < n; i++) {
        rc = check_row(d, &rows[i], e);
        if (!rc)
            name_row(d, &rows[i]);
    }
    if (rc) { // none of them
        for (int i = 0; i < d->n_members; i++)
            d->members[i].ready = false;
        d->named = 0;
        return rc;
    }
    int64_t placed = 0;
    int from = 0;
    for (int i = 0; i < d->n_members; i++) {
        const struct path_member *q = &d->members[i];
        const int64_t more = q->rows == q->ran ? 0 : q->rows - first_of(q);
        if (placed && placed + more > d->draft_rows) {
            run_pass(d, from, i);
            placed = 0;
            from = i;
        }
        placed += more;
    }
    run_pass(d, from, d->n_members);
    return 0;
}

int64_t path_logits_rows(const struct path *d) {
    return d->logits_rows;
}

const struct draft_head *path_head(const struct path *d) {
    return &d->head;
}

const float *path_logits(struct path *d, int64_t first, int64_t n) {
    const struct ops *ops = exec_ops(d->x);
    if (n < 1 || n > d->logits_rows || first < 0 || first > d->named - n)
        return NULL;
    if (first < d->logits_first || first + n > d->logits_first + d->logits_n ||
        exec_epoch_failed(d->x, d->logits_epoch)) {
        const int32_t *at = d->wanted + first;
        const float *g = d->g + at[0] * d->dim;
        if (at[n - 1] - at[0] != n - 1) { // not side by side already
            ops->copy_rows(d->x, d->u, row_bytes(d), d->g, at, n, row_bytes(d));
            g = d->u;
        }
        if (d->head_norm)
            ops->norm_to_act(d->x, g, d->head_norm, d->eps, n, d->dim, d->act_d);
        else if (n > 1 || g != d->act_of)
            ops->to_act(d->x, g, n, d->dim, d->act_d);
        d->act_of = NULL;
        struct linear_job head = {.w = d->head.w, .out = d->logits};
        ops->linear(d->x, &head, 1, d->act_d, n);
        if (d->logit_cap > 0)
            ops->scale(d->x, &(struct scale_args){d->logits, n * d->head.rows, 1, d->logit_cap});
        d->logits_epoch = exec_epoch(d->x);
        d->logits_first = first;
        d->logits_n = n;
    }
    return d->logits + (first - d->logits_first) * d->head.rows;
}
