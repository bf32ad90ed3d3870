// SPDX-License-Identifier: Apache-2.0
// The DFlash draft model as a drafter: one block pass, then the best candidates of each position
// from the target's head. The block always has its trained size; positions beyond the wanted depth
// are dropped before the head's candidates are taken. Only where deeper guesses are not worth their
// time it is shorter: what is foretold then differs a little, and costs less.
#include "spec/drafter.h"

#include <stdlib.h>

struct draft_dflash {
    struct dflash *dflash;
    struct exec *x;
    int64_t vocab;
    int depth; // block size - 1, at most TREE_MAX_DEPTH
    int32_t ids[TREE_MAX_DEPTH * TREE_MAX_K];
    float logp[TREE_MAX_DEPTH * TREE_MAX_K];
};

static int dflash_drafter_create(void **self, const struct draft_config *c, struct err *e) {
    if (!c->dflash)
        return err_set(e, ERR_USAGE,
                       "this way of guessing needs a draft model; give one or use "
                       "lookup");
    struct draft_dflash *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, ERR_MEMORY, "no memory for the dflash drafter");
    d->dflash = c->dflash;
    d->x = model_exec(c->model);
    d->vocab = model_params_of(c->model)->vocab;
    d->depth = dflash_params_of(c->dflash)->block_size - 1;
    if (d->depth > TREE_MAX_DEPTH)
        d->depth = TREE_MAX_DEPTH;
    *self = d;
    return 0;
}

static void dflash_drafter_destroy(void *self) {
    free(self);
}

static int dflash_drafter_max_depth(const void *self) {
    return ((const struct draft_dflash *)self)->depth;
}

static int dflash_drafter_propose(void *self, const struct draft_request *r, struct proposal *p,
                                  struct err *e) {
    struct draft_dflash *d = self;
    int most = r->worth > 0 && r->worth < d->depth ? r->worth : d->depth;
    int depth = r->max_depth < most ? r->max_depth : most;
    int k = r->k < TREE_MAX_K ? r->k : TREE_MAX_K;
    if (k > d->vocab)
        k = (int)d->vocab;
    if (depth < 1)
        return 0;
    int block = most < d->depth ? 1 + most : dflash_params_of(d->dflash)->block_size;
    int rc = dflash_draft_block(d->dflash, &r->seq, &r->root, 1, block, e);
    if (rc)
        return rc;
    const struct ops *ops = exec_ops(d->x);
    struct topk_args top = {.logits = dflash_logits(d->dflash, 0, depth),
                            .n = depth,
                            .vocab = d->vocab,
                            .k = k,
                            .noise = r->noise,
                            .ids = d->ids,
                            .logp = d->logp};
    ops->head_topk(d->x, &top);
    rc = exec_status(d->x, e); // ids that were never written must not become a tree
    if (rc)
        return rc;
    p->depth = depth;
    p->k = k;
    p->ids = d->ids;
    p->logp = d->logp;
    return 0;
}

const struct drafter_class drafter_dflash = {"dflash", dflash_drafter_create,
                                             dflash_drafter_destroy, dflash_drafter_max_depth,
                                             dflash_drafter_propose};
