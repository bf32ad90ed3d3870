// SPDX-License-Identifier: Apache-2.0
// The DFlash draft model as a drafter: one block pass over all sequences, then the best candidates
// of each position from the target's head. The block always has its trained size; positions beyond
// the wanted depth are dropped. Only where deeper guesses are not worth their time to any of the
// sequences it is shorter: what is predicted then differs a little, and costs less. A draft with a
// selector (DFlash2) also says how likely each candidate is after each of the depth before; so that
// it has something to choose from, no fewer candidates are offered than it was trained with.
#include "spec/draft/drafter.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"

// The lines of one sequence's pairs, which are made when they are asked for: a tree asks for few.
struct lines {
    struct dflash *dflash;
    struct dflash_selection s;
    float *pair; // [depth - 1][k][k]
    bool *made;  // [depth - 1][k]
};

struct draft_dflash {
    struct dflash *dflash;
    struct exec *x;
    int rows;               // guesses of a block
    int depth;              // the same, at most TREE_MAX_DEPTH
    int max_k, max_members; // candidates per depth, sequences of a call
    int32_t *ids;           // [max_members][rows][max_k]
    float *logp;            // [max_members][rows][max_k]
    int selector_k;         // candidates that the selector was trained with; 0: there is none
    float *pair;            // [max_members][rows - 1][max_k][max_k], where there is one
    bool *made;             // [max_members][rows - 1][max_k] lines of pair
    struct lines *lines;    // [max_members]
    // Of a pass:
    int *order;               // [max_members] the requests that take part
    struct sequence **seqs;   // [max_members]
    int32_t *roots;           // [max_members]
    struct sample_row *noise; // [max_members][rows]
};

static void dflash_drafter_destroy(void *self) {
    struct draft_dflash *d = self;
    free(d->ids);
    free(d->logp);
    free(d->pair);
    free(d->made);
    free(d->lines);
    free(d->order);
    free(d->seqs);
    free(d->roots);
    free(d->noise);
    free(d);
}

static int allocate_pass(struct draft_dflash *d, struct err *e) {
    size_t n = (size_t)d->max_members, rows = n * (size_t)d->rows, cells = rows * (size_t)d->max_k;
    size_t pairs = d->selector_k ? cells * (size_t)d->max_k : 0;
    d->ids = calloc(cells, sizeof *d->ids);
    d->logp = calloc(cells, sizeof *d->logp);
    d->pair = calloc(pairs + 1, sizeof *d->pair);
    d->made = calloc(cells, sizeof *d->made);
    d->lines = calloc(n, sizeof *d->lines);
    d->order = calloc(n, sizeof *d->order);
    d->seqs = calloc(n, sizeof *d->seqs);
    d->roots = calloc(n, sizeof *d->roots);
    d->noise = calloc(rows, sizeof *d->noise);
    if (d->ids && d->logp && d->pair && d->made && d->lines && d->order && d->seqs && d->roots &&
        d->noise)
        return 0;
    return err_set(e, ERR_MEMORY, "no memory for the guesses of %d sequences", d->max_members);
}

static int dflash_drafter_create(void **self, const struct draft_config *c, struct err *e) {
    struct dflash *dflash = c->draft ? draft_dflash(c->draft) : NULL;
    if (!dflash)
        return err_set(e, ERR_USAGE,
                       "this way of guessing needs a draft model; give one or use "
                       "lookup");
    struct draft_dflash *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, ERR_MEMORY, "no memory for the dflash drafter");
    d->dflash = dflash;
    d->x = model_exec(c->model);
    const struct dflash_params *p = dflash_params_of(dflash);
    d->rows = dflash_guesses(p, p->block_size);
    d->depth = min_i32(d->rows, TREE_MAX_DEPTH);
    d->max_k = c->max_k > 0 ? min_i32(c->max_k, TREE_MAX_K) : TREE_MAX_K;
    if (p->selector_rank)
        d->selector_k = min_i32(p->selector_k, TREE_MAX_K);
    d->max_k = (int)min_i64(max_i32(d->max_k, d->selector_k), dflash_head(dflash)->rows);
    d->max_members = max_i32(c->max_members, 1);
    int rc = allocate_pass(d, e);
    if (rc) {
        dflash_drafter_destroy(d);
        return rc;
    }
    *self = d;
    return 0;
}

static int dflash_drafter_max_depth(const void *self) {
    return ((const struct draft_dflash *)self)->depth;
}

// How deep the guesses of a pass must reach to serve the request; 0: it takes no part.
static int reach_of(const struct draft_dflash *d, const struct draft_request *r) {
    if (r->max_depth < 1)
        return 0;
    return r->useful_depth > 0 ? min_i32(r->useful_depth, d->depth) : d->depth;
}

// Fills order, seqs and roots; returns how many take part.
static int gather_requests(struct draft_dflash *d, const struct draft_request *r, int n) {
    int count = 0;
    for (int i = 0; i < n; i++) {
        if (reach_of(d, &r[i]) < 1)
            continue;
        d->seqs[count] = r[i].seq;
        d->roots[count] = r[i].root;
        d->order[count++] = i;
    }
    return count;
}

static int candidates_of(const struct draft_dflash *d, const struct draft_request *r) {
    return min_i32(max_i32(r->k, d->selector_k), d->max_k);
}

static int depth_of(const struct draft_dflash *d, const struct draft_request *r, int rows) {
    return min_i32(r->max_depth, min_i32(rows, d->depth));
}

// The noise of all rows of a pass; NULL where no request has any.
static const struct sample_row *noise_of(struct draft_dflash *d, const struct draft_request *r,
                                         int count, int rows) {
    bool any = false;
    for (int m = 0; m < count; m++) {
        const struct draft_request *q = &r[d->order[m]];
        int depth = depth_of(d, q, rows);
        any |= q->noise != NULL;
        for (int i = 0; i < rows; i++) // rows deeper than wanted are dropped; temperature 0: none
            d->noise[m * rows + i] = q->noise && i < depth ? q->noise[i] : (struct sample_row){0};
    }
    return any ? d->noise : NULL;
}

// The k best candidates of all rows of a pass that are wanted or lie before such a row.
static int best_candidates(struct draft_dflash *d, const struct draft_request *r, int count,
                           int rows, int k, struct err *e) {
    const struct sample_row *noise = noise_of(d, r, count, rows);
    int64_t max = dflash_logits_rows(d->dflash);
    int64_t n = (int64_t)(count - 1) * rows + depth_of(d, &r[d->order[count - 1]], rows);
    dflash_select_ahead(d->dflash);
    for (int64_t at = 0; at < n; at += max) {
        int64_t slice = min_i64(n - at, max);
        struct topk_args top = {.logits = dflash_logits(d->dflash, at, slice),
                                .n = slice,
                                .k = k,
                                .noise = noise ? noise + at : NULL,
                                .ids = d->ids + at * k,
                                .logp = d->logp + at * k};
        draft_head_topk(dflash_head(d->dflash), d->x, &top);
    }
    return exec_status(d->x, e); // ids that were never written must not become a tree
}

static const float *make_line(void *arg, int i, int q) {
    struct lines *l = arg;
    const int at = i * l->s.k + q;
    float *out = l->pair + (int64_t)at * l->s.k;
    if (!l->made[at])
        dflash_select_line(l->dflash, &l->s, i + 1, q, out);
    l->made[at] = true;
    return out;
}

// Gives member m of the pass its guesses: the first of k candidates of the first of its rows.
static int deliver_guesses(struct draft_dflash *d, const struct draft_request *r, int m, int rows,
                           int k, struct proposal *p, struct err *e) {
    int64_t at = (int64_t)m * rows * k;
    p->depth = depth_of(d, r, rows);
    p->k = candidates_of(d, r);
    for (int i = 1; p->k < k && i < p->depth; i++) {
        int64_t to = at + (int64_t)i * p->k, from = at + (int64_t)i * k;
        memmove(d->ids + to, d->ids + from, (size_t)p->k * sizeof *d->ids);
        memmove(d->logp + to, d->logp + from, (size_t)p->k * sizeof *d->logp);
    }
    p->ids = d->ids + at;
    p->logp = d->logp + at;
    p->pair = NULL;
    p->expand = NULL;
    p->expand_many = NULL;
    if (!d->selector_k || p->depth < 1)
        return 0;
    struct lines *l = &d->lines[m];
    const int64_t cells = (int64_t)(d->rows - 1) * d->max_k;
    *l = (struct lines){.dflash = d->dflash,
                        .s = {.first = (int64_t)m * rows,
                              .depth = p->depth,
                              .k = p->k,
                              .anchor = r->root,
                              .ids = p->ids,
                              .logp = d->logp + at,
                              .noise = r->noise},
                        .pair = d->pair + m * cells * d->max_k,
                        .made = d->made + m * cells};
    memset(l->made, 0, (size_t)cells * sizeof *l->made);
    p->pair = make_line;
    p->pair_arg = l;
    return dflash_select(d->dflash, &l->s, e);
}

static int dflash_drafter_propose(void *self, const struct draft_request *r, int n,
                                  struct proposal *const *p, struct err *e) {
    struct draft_dflash *d = self;
    int max = 0, k = 1, count = gather_requests(d, r, n);
    if (count < 1)
        return 0;
    for (int m = 0; m < count; m++) {
        const struct draft_request *q = &r[d->order[m]];
        max = max_i32(max, reach_of(d, q));
        k = max_i32(k, candidates_of(d, q));
    }
    int rows = max < d->depth ? max : d->rows;
    const int block = dflash_first(dflash_params_of(d->dflash)) + rows;
    int rc = dflash_draft_block(d->dflash, d->seqs, d->roots, count, block, e);
    if (!rc)
        rc = best_candidates(d, r, count, rows, k, e);
    for (int m = 0; !rc && m < count; m++)
        rc = deliver_guesses(d, &r[d->order[m]], m, rows, k, p[d->order[m]], e);
    return rc;
}

const struct drafter_class drafter_dflash = {"dflash",
                                             dflash_drafter_create,
                                             dflash_drafter_destroy,
                                             dflash_drafter_max_depth,
                                             dflash_drafter_propose,
                                             .shared = true};
