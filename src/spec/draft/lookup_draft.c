// SPDX-License-Identifier: Apache-2.0
// Prompt lookup as a drafter: what followed the longest repetition of the newest tokens, as one
// chain. It needs no model and costs almost nothing; the chain's log-probability per token grows
// with the length of the repetition.
#include "spec/draft/drafter.h"

#include <math.h>
#include <stdlib.h>

#include "base/num.h"
#include "spec/draft/lookup.h"

struct draft_lookup {
    struct lookup *index;
    int32_t ids[TREE_MAX_DEPTH];
};

static void lookup_drafter_destroy(void *self) {
    struct draft_lookup *d = self;
    lookup_destroy(d->index);
    free(d);
}

static int lookup_drafter_create(void **self, const struct draft_config *c, struct err *e) {
    struct draft_lookup *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, ERR_MEMORY, "no memory for the lookup drafter");
    int rc = lookup_create(&d->index, model_max_ctx(c->model) + 1, e);
    if (rc) {
        free(d);
        return rc;
    }
    *self = d;
    return 0;
}

static int lookup_drafter_max_depth(const void *self) {
    (void)self;
    return TREE_MAX_DEPTH;
}

static int lookup_drafter_propose(void *self, const struct draft_request *r, int members,
                                  struct proposal *const *proposals, struct err *e) {
    (void)members, (void)e;
    struct draft_lookup *d = self;
    struct proposal *p = proposals[0];
    lookup_update(d->index, sequence_tokens(r->seq), sequence_len(r->seq), r->root);
    int max = min_i32(r->max_depth, TREE_MAX_DEPTH);
    int match;
    int n = lookup_find(d->index, max, d->ids, &match);
    if (n < 1 || p->n_chains >= TREE_MAX_CHAINS)
        return 0;
    float logp = logf((float)match / ((float)match + 1.5f));
    p->chains[p->n_chains++] = (struct draft_chain){d->ids, n, logp};
    return 0;
}

const struct drafter_class drafter_lookup = {"lookup",
                                             lookup_drafter_create,
                                             lookup_drafter_destroy,
                                             lookup_drafter_max_depth,
                                             lookup_drafter_propose,
                                             .shared = false};
