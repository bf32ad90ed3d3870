// SPDX-License-Identifier: Apache-2.0
// Forest arrays: one block of memory, append only. The checks here are the only guard between a
// caller's tree and the ops, which trust their rows.
#include "state/forest.h"

#include <stdlib.h>

int forest_init(struct forest *f, int64_t cap, struct err *e) {
    *f = (struct forest){0};
    if (cap < 1 || cap > INT32_MAX)
        return err_set(e, ERR_USAGE, "a forest of %lld rows is not possible; use 1 or more",
                       (long long)cap);
    size_t n = (size_t)cap;
    f->pos = malloc(n * (sizeof *f->pos + 3 * sizeof(int32_t) + 2));
    if (!f->pos)
        return err_set(e, ERR_MEMORY, "no memory for a forest of %lld rows", (long long)cap);
    f->token = (int32_t *)(f->pos + n);
    f->parent = f->token + n;
    f->seq = f->parent + n;
    f->logits_requested = (uint8_t *)(f->seq + n);
    f->prompt = f->logits_requested + n;
    f->cap = cap;
    return 0;
}

void forest_fini(struct forest *f) {
    free(f->pos);
    *f = (struct forest){0};
}

void forest_reset(struct forest *f) {
    f->n = 0;
}

int32_t forest_root(struct forest *f, int32_t seq, int64_t pos, int32_t token, bool logits) {
    if (f->n >= f->cap)
        return -1;
    int64_t i = f->n++;
    f->seq[i] = seq;
    f->pos[i] = pos;
    f->parent[i] = -1;
    f->token[i] = token;
    f->logits_requested[i] = logits;
    f->prompt[i] = false;
    return (int32_t)i;
}

int32_t forest_add(struct forest *f, int32_t parent, int32_t token, bool logits) {
    if (parent < 0 || parent >= f->n)
        return -1;
    int32_t row = forest_root(f, f->seq[parent], f->pos[parent] + 1, token, logits);
    if (row < 0)
        return -1;
    f->parent[row] = parent;
    f->prompt[row] = f->prompt[parent];
    return row;
}

int32_t forest_chain(struct forest *f, int32_t seq, int64_t pos, const int32_t *tokens, int64_t n,
                     bool logits_of_last) {
    if (n < 1 || n > f->cap - f->n)
        return -1;
    int32_t row = forest_root(f, seq, pos, tokens[0], logits_of_last && n == 1);
    f->prompt[row] = true;
    for (int64_t i = 1; i < n; i++)
        row = forest_add(f, row, tokens[i], logits_of_last && i == n - 1);
    return row;
}

void forest_request_logits(struct forest *f, int64_t first, int64_t n) {
    for (int64_t i = first; i < first + n; i++)
        f->logits_requested[i] = true;
}

struct rows forest_rows(const struct forest *f) {
    return (struct rows){
        .n = f->n, .token = f->token, .parent = f->parent, .seq = f->seq, .pos = f->pos};
}

// A row of a chain is the child of the row before it; the only root of its sequence begins it.
static int check_chain(const struct forest *f, int64_t i, bool starts, struct err *e) {
    if (f->parent[i] != (starts ? -1 : (int32_t)(i - 1)))
        return err_set(e, ERR_USAGE,
                       "prompt row %lld does not follow the row before it; prompt rows of a "
                       "sequence must be one chain",
                       (long long)i);
    return 0;
}

// The rows of a sequence are together and of one mode.
static int check_run(const struct forest *f, int64_t i, struct err *e) {
    bool starts = i == 0 || f->seq[i - 1] != f->seq[i];
    for (int64_t j = 0; starts && j < i; j++) {
        if (f->seq[j] == f->seq[i])
            return err_set(e, ERR_USAGE,
                           "the rows of sequence %d are not together; add them in one run",
                           (int)f->seq[i]);
    }
    if (!starts && f->prompt[i] != f->prompt[i - 1])
        return err_set(e, ERR_USAGE,
                       "row %lld mixes a prompt chain and a tree of sequence %d; a pass takes one "
                       "or the other",
                       (long long)i, (int)f->seq[i]);
    return f->prompt[i] ? check_chain(f, i, starts, e) : 0;
}

static int check_row(const struct forest *f, int64_t i, const int64_t *len, int n_seqs,
                     int64_t vocab, struct err *e) {
    int32_t p = f->parent[i], s = f->seq[i];
    if (s < 0 || s >= n_seqs)
        return err_set(e, ERR_USAGE, "row %lld names sequence %d of %d", (long long)i, (int)s,
                       n_seqs);
    if (f->token[i] < 0 || f->token[i] >= vocab)
        return err_set(e, ERR_USAGE,
                       "token id %d is outside the model's vocabulary of %lld; use ids below it",
                       (int)f->token[i], (long long)vocab);
    if (p < -1 || p >= i || (p >= 0 && f->seq[p] != s))
        return err_set(e, ERR_USAGE, "row %lld cannot have row %d as its parent", (long long)i,
                       (int)p);
    int64_t pos = p < 0 ? len[s] : f->pos[p] + 1;
    if (f->pos[i] != pos)
        return err_set(e, ERR_USAGE, "row %lld is at position %lld but its parent puts it at %lld",
                       (long long)i, (long long)f->pos[i], (long long)pos);
    if (!f->prompt[i] && pos - len[s] > FOREST_MAX_DEPTH)
        return err_set(e, ERR_USAGE, "row %lld is %lld deep; a tree may be %d deep", (long long)i,
                       (long long)(pos - len[s]), FOREST_MAX_DEPTH);
    return check_run(f, i, e);
}

int forest_check(const struct forest *f, const int64_t *len, int n_seqs, int64_t vocab,
                 struct err *e) {
    if (f->n < 1)
        return err_set(e, ERR_USAGE, "the forest has no rows; add at least one");
    for (int64_t i = 0; i < f->n; i++) {
        int rc = check_row(f, i, len, n_seqs, vocab, e);
        if (rc)
            return rc;
    }
    return 0;
}
