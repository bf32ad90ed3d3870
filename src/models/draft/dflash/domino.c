// SPDX-License-Identifier: Apache-2.0
// Domino (arXiv 2605.29707): a DFlash block whose logits are corrected for the tokens on the way to
// a guess. A gated recurrent unit reads the embeddings of the anchor and of the path's tokens; what
// it holds at a node and the block row of the node's children together give a correction of their
// logits, down to a few values and up to the vocabulary. The block runs once for a draft, and a
// level costs a step of the unit for its nodes. Of the correction the best candidates of the block
// alone are read: their rows of the last matrix stay in the file, and the host multiplies.
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "models/draft/dflash/domino.h"
#include "ops/rowmath.h"

// The block's own candidates of all rows, best first.
static int find_candidates(struct dflash *d, const struct draft_level *l, int n, struct err *e) {
    struct domino *m = d->domino;
    const int64_t rows = (int64_t)n * m->guesses, max = dflash_logits_rows(d);
    bool noisy = false;
    for (int i = 0; i < n; i++) {
        const int reach = l[i].reach ? min_i32(l[i].reach, m->guesses) : m->guesses;
        noisy = noisy || l[i].noise;
        for (int j = 0; j < m->guesses; j++)
            m->noise[i * m->guesses + j] =
                l[i].noise && j < reach ? l[i].noise[j] : (struct sample_row){0};
    }
    for (int64_t at = 0; at < rows; at += max) {
        const int64_t slice = min_i64(rows - at, max);
        struct topk_args top = {.logits = dflash_logits(d, at, slice),
                                .n = slice,
                                .k = m->k,
                                .noise = noisy ? m->noise + at : NULL,
                                .ids = m->ids + at * m->k,
                                .logp = m->logp + at * m->k};
        draft_head_topk(&d->head, d->x, &top);
    }
    return exec_status(d->x, e); // ids that were never written must not become guesses
}

int dflash_domino_begin(void *self, const struct draft_level *l, int n, struct err *e) {
    struct dflash *d = self;
    struct domino *m = d->domino;
    const struct dflash_params *p = &d->params;
    const int all = dflash_guesses(p, p->block_size);
    int reach = 1;
    m->n_members = 0;
    for (int i = 0; i < n && i < d->target->options.max_seqs; i++) {
        m->seqs[i] = l[i].seq;
        m->roots[i] = l[i].root;
        m->members[i] = (struct domino_member){.seq = l[i].seq, .depth = -1};
        reach = max_i32(reach, l[i].reach ? min_i32(l[i].reach, all) : all);
    }
    m->guesses = reach;
    int rc = dflash_draft_block(d, m->seqs, m->roots, n, dflash_first(p) + reach, e);
    if (rc)
        return rc;
    exec_ops(d->x)->norm(d->x, &(struct norm_args){.in = d->wanted,
                                                   .w = d->out_norm,
                                                   .eps = p->eps,
                                                   .n = d->drafted,
                                                   .k = p->dim,
                                                   .out = m->rows});
    rc = find_candidates(d, l, n, e);
    m->n_members = rc ? 0 : n;
    return rc;
}

// Its number among the members of begin; -1: it is none.
static int member_of(const struct domino *m, const struct sequence *s) {
    for (int i = 0; i < m->n_members; i++)
        if (m->members[i].seq == s)
            return i;
    return -1;
}

// Row of `states` with the state of a member's node of an even or odd depth.
static int64_t state_row(int member, int depth, int node) {
    return ((int64_t)member * 2 + depth % 2) * DFLASH_WIDTH + node;
}

// Enters a member's nodes, from row `at` of the level on.
static int place_nodes(struct dflash *d, const struct draft_level *l, int i, int at,
                       struct err *e) {
    struct domino *m = d->domino;
    struct domino_member *q = &m->members[i];
    const int64_t vocab = d->target->params.vocab;
    if (l->depth != q->depth + 1 || l->depth >= m->guesses || l->n < 1 ||
        l->n > (l->depth ? DFLASH_WIDTH : 1))
        return err_set(e, ERR_USAGE,
                       "a level of %d nodes of depth %d cannot follow one of depth "
                       "%d; a draft has %d of at most %d nodes",
                       l->n, l->depth, q->depth, m->guesses, DFLASH_WIDTH);
    for (int j = 0; j < l->n; j++) {
        const int32_t token = l->depth ? l->nodes[j].token : l->root;
        const int place = l->depth ? l->nodes[j].parent - q->first : 0;
        if (token < 0 || token >= vocab || (l->depth && (place < 0 || place >= q->n)))
            return err_set(e, ERR_USAGE, "a node with token %d below node %d is not possible",
                           (int)token, l->depth ? (int)l->nodes[j].parent : -1);
        m->token[at + j] = token;
        m->parent[at + j] = l->depth ? (int32_t)state_row(i, l->depth - 1, place) : -1;
        m->row[at + j] = i * m->guesses + l->depth;
    }
    *q = (struct domino_member){.seq = q->seq,
                                .named = q->named + l->n,
                                .first = q->named,
                                .at = at,
                                .n = l->n,
                                .depth = l->depth};
    return 0;
}

// A step of the unit (arXiv 1406.1078, the reset gate behind the matrix as in torch.nn.GRU) from
// what its matrices make of input and state: r = sigmoid(in[0] + rec[0]), z = sigmoid(in[1] +
// rec[1]), c = tanh(in[2] + r rec[2]), out = (1 - z) c + z state; each of h values.
static void step_unit(const float *in, const float *rec, const float *state, int64_t h,
                      float *out) {
    for (int64_t i = 0; i < h; i++) {
        const float r = row_sigmoid(in[i] + rec[i]);
        const float z = row_sigmoid(in[h + i] + rec[h + i]);
        const float c = row_tanh(in[2 * h + i] + r * rec[2 * h + i]);
        out[i] = (1 - z) * c + z * state[i];
    }
}

// States of the nodes' parents; of roots what the unit begins with.
static void take_states(struct dflash *d, int64_t n) {
    struct domino *m = d->domino;
    const int64_t h = d->params.gru_width;
    const size_t bytes = (size_t)h * sizeof(float);
    for (int64_t i = 0; i < n; i++) {
        const float *from = m->parent[i] >= 0 ? m->states + m->parent[i] * h : m->start;
        if (from)
            memcpy(m->before + i * h, from, bytes);
        else
            memset(m->before + i * h, 0, bytes);
    }
    exec_ops(d->x)->upload(d->x, m->old, m->before, (size_t)n * bytes);
}

// The unit's step for the level's nodes, from their parents' states to m->after and `fresh`. It is
// a few thousand values: the host does what the matrices leave.
static int run_unit(struct dflash *d, int64_t n, struct err *e) {
    const struct ops *ops = exec_ops(d->x);
    const struct dflash_params *p = &d->params;
    struct domino *m = d->domino;
    const int64_t h = p->gru_width;
    const size_t bytes = (size_t)(n * 3 * h) * sizeof(float);
    const struct linear_job in = {.w = m->in, .out = m->of_input, .bias = m->in_bias};
    const struct linear_job rec = {.w = m->rec, .out = m->of_state, .bias = m->rec_bias};
    float *gates = m->gates + n * 3 * h;
    ops->gather_rows(d->x, d->embed, m->token, n, m->embedded);
    if (p->embed_scale != 1)
        ops->scale(d->x, &(struct scale_args){m->embedded, n * p->dim, p->embed_scale, 0});
    ops->to_act(d->x, m->embedded, n, p->dim, m->act_in);
    ops->linear(d->x, &in, 1, m->act_in, n);
    take_states(d, n);
    ops->to_act(d->x, m->old, n, h, m->act_rec);
    ops->linear(d->x, &rec, 1, m->act_rec, n);
    ops->download(d->x, m->gates, m->of_input, bytes);
    ops->download(d->x, gates, m->of_state, bytes);
    int rc = exec_status(d->x, e);
    for (int64_t i = 0; !rc && i < n; i++)
        step_unit(m->gates + i * 3 * h, gates + i * 3 * h, m->before + i * h, h, m->after + i * h);
    if (!rc)
        ops->upload(d->x, m->fresh, m->after, (size_t)(n * h) * sizeof(float));
    return rc;
}

// Keeps the states of the nodes of l[n]'s members for the levels below.
static void keep_states(struct dflash *d, const struct draft_level *l, int n) {
    const struct domino *m = d->domino;
    const int64_t h = d->params.gru_width;
    for (int i = 0; i < n; i++) {
        const int at = member_of(m, l[i].seq);
        const struct domino_member *q = &m->members[at];
        memcpy(m->states + state_row(at, q->depth, 0) * h, m->after + q->at * h,
               (size_t)(q->n * h) * sizeof(float));
    }
}

// What the head's first layer makes of the nodes' block rows and states, on the host.
static int run_head(struct dflash *d, int64_t n, struct err *e) {
    const struct ops *ops = exec_ops(d->x);
    const struct dflash_params *p = &d->params;
    struct domino *m = d->domino;
    const int64_t h = p->gru_width, wide = p->dim + h;
    const size_t dim_bytes = (size_t)p->dim * sizeof(float), h_bytes = (size_t)h * sizeof(float);
    const struct linear_job down = {.w = m->down, .out = m->corrected, .bias = m->down_bias};
    ops->copy_rows(d->x, m->joined, dim_bytes + h_bytes, m->rows, m->row, n, dim_bytes);
    ops->copy_rows(d->x, m->joined + p->dim, dim_bytes + h_bytes, m->fresh, m->self, n, h_bytes);
    ops->to_act(d->x, m->joined, n, wide, m->act_down);
    ops->linear(d->x, &down, 1, m->act_down, n);
    ops->download(d->x, m->hidden, m->corrected, (size_t)(n * p->gru_head) * sizeof(float));
    int rc = exec_status(d->x, e);
    for (int64_t i = 0; !rc && i < n * p->gru_head; i++)
        m->hidden[i] /= 1 + expf(-m->hidden[i]);
    return rc;
}

// What is added to a token's logit at a node, whose row of the last matrix is `up`.
static float correction(const struct dflash *d, const float *hidden, const float *up, int32_t id) {
    const struct domino *m = d->domino;
    return dflash_dot(hidden, up, d->params.gru_head) + (m->up_bias ? m->up_bias[id] : 0);
}

// The first k candidates by score, and of equal ones in the order that they had.
static void choose_best(const struct domino *m, const int32_t *ids, int k, int32_t *out_ids,
                        float *out_logp) {
    int n = 0;
    for (int c = 0; c < m->k; c++) {
        int at = n < k ? n++ : k;
        while (at > 0 && m->score[c] > out_logp[at - 1]) {
            if (at < k) {
                out_ids[at] = out_ids[at - 1];
                out_logp[at] = out_logp[at - 1];
            }
            at--;
        }
        if (at < k) {
            out_ids[at] = ids[c];
            out_logp[at] = m->score[c];
        }
    }
}

// Candidates of a member's nodes. All that are scored together stay as likely as they were.
static void score_member(struct dflash *d, const struct domino_member *q, int row, int k) {
    struct domino *m = d->domino;
    const int64_t head = d->params.gru_head;
    const int32_t *ids = m->ids + (int64_t)row * m->k;
    const float *logp = m->logp + (int64_t)row * m->k;
    const bool corrects = q->depth >= d->params.gru_skip;
    const float temperature = m->noise[row].temperature > 0 ? m->noise[row].temperature : 1;
    const double were = dflash_log_sum(logp, m->k);
    for (int c = 0; corrects && c < m->k; c++)
        if (ids[c] >= 0)
            dflash_codebook_row(m->up, ids[c], m->up_rows + c * head);
    for (int j = 0; j < q->n; j++) {
        const float *hidden = m->hidden + (q->at + j) * head;
        for (int c = 0; c < m->k; c++) {
            const bool there = ids[c] >= 0 && isfinite(logp[c]);
            const float more =
                there && corrects ? correction(d, hidden, m->up_rows + c * head, ids[c]) : 0;
            const float score = there ? logp[c] + more / temperature : -INFINITY;
            m->score[c] = isfinite(score) ? score : -INFINITY;
        }
        const double shift = dflash_log_sum(m->score, m->k) - were;
        for (int c = 0; c < m->k && isfinite(shift); c++)
            m->score[c] = (float)((double)m->score[c] - shift);
        const int64_t at = (int64_t)q->at * DOMINO_MAX_K + (int64_t)j * k;
        choose_best(m, ids, k, m->out_ids + at, m->out_logp + at);
    }
}

int dflash_domino_level(void *self, const struct draft_level *l, int n, struct draft_guesses *out,
                        struct err *e) {
    struct dflash *d = self;
    struct domino *m = d->domino;
    int rc = 0, rows = 0;
    for (int i = 0; !rc && i < n; i++) {
        const int at = member_of(m, l[i].seq);
        if (at < 0)
            return err_set(e, ERR_USAGE, "a sequence without a draft has no levels");
        rc = place_nodes(d, &l[i], at, rows, e);
        rows += l[i].n;
    }
    if (rc)
        return rc;
    rc = run_unit(d, rows, e);
    if (!rc)
        keep_states(d, l, n);
    if (!rc)
        rc = run_head(d, rows, e);
    for (int i = 0; !rc && i < n; i++) {
        const struct domino_member *q = &m->members[member_of(m, l[i].seq)];
        const int k = min_i32(min_i32(l[i].k, DOMINO_MAX_K), m->k);
        score_member(d, q, m->row[q->at], k);
        out[i] = (struct draft_guesses){.ids = m->out_ids + (int64_t)q->at * DOMINO_MAX_K,
                                        .logp = m->out_logp + (int64_t)q->at * DOMINO_MAX_K,
                                        .depth = 1,
                                        .k = k};
    }
    return rc;
}

int dflash_path_logits(struct dflash *d, int member, int node, float *out, struct err *e) {
    struct domino *m = d->domino;
    const int64_t head = d->params.gru_head, vocab = d->target->params.vocab;
    const struct domino_member *q = m && member < m->n_members ? &m->members[member] : NULL;
    if (!q || q->depth < 0 || node < 0 || node >= q->n)
        return err_set(e, ERR_USAGE, "node %d of sequence %d was not drafted", node, member);
    exec_ops(d->x)->download(d->x, out, dflash_logits(d, m->row[q->at], 1),
                             (size_t)d->head.rows * sizeof *out);
    int rc = exec_status(d->x, e);
    // From the head's rows, which are of ascending tokens, to those of all.
    for (int64_t at = vocab, i = d->head.rows; !rc && d->head.ids && at-- > 0;)
        out[at] = i > 0 && d->head.ids[i - 1] == at ? out[--i] : -INFINITY;
    for (int32_t id = 0; !rc && q->depth >= d->params.gru_skip && id < vocab; id++) {
        dflash_codebook_row(m->up, id, m->up_rows);
        out[id] += correction(d, m->hidden + (q->at + node) * head, m->up_rows, id);
    }
    return rc;
}
