// SPDX-License-Identifier: Apache-2.0
// A drafter that knows the answer: it reads a recorded continuation and makes mistakes at a seeded
// rate. With it commits of every length and at every place in a tree happen even with random
// weights, which is what tests of exactness and of cost need.
#include "spec/drafter.h"

#include <stdlib.h>

#include "base/rng.h"

struct draft_oracle {
    struct draft_config c;
    int32_t vocab;
    int32_t ids[TREE_MAX_DEPTH * TREE_MAX_K];
    float logp[TREE_MAX_DEPTH * TREE_MAX_K];
};

static int oracle_create(void **self, const struct draft_config *c, struct err *e) {
    if (!c->recording || model_params_of(c->model)->vocab < 2 ||
        !(c->error_rate >= 0 && c->error_rate <= 1))
        return err_set(e, ERR_USAGE,
                       "the oracle drafter needs a recording and an error rate from 0 to 1");
    struct draft_oracle *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, ERR_MEMORY, "no memory for the oracle drafter");
    d->c = *c;
    d->vocab = (int32_t)model_params_of(c->model)->vocab;
    *self = d;
    return 0;
}

static void oracle_destroy(void *self) {
    free(self);
}

static int oracle_max_depth(const void *self) {
    (void)self;
    return TREE_MAX_DEPTH;
}

// The candidates of one position: the recorded token at `rank`, other tokens around it.
static void fill_depth(const struct draft_oracle *d, int64_t pos, int k, int32_t *ids,
                       float *logp) {
    uint64_t h = rng_hash(d->c.seed, (uint64_t)pos, 0, 0);
    int32_t truth = d->c.recording[pos];
    int rank = 0;
    if ((double)rng_unit(h) < d->c.error_rate)
        rank = 1 + (int)(rng_mix(h) % (uint64_t)k);     // k: missing
    static const float best[] = {-0.5f, -0.2f, -0.05f}; // log-probability of the first candidate
    float first = best[(h >> 20) % 3];
    for (int r = 0; r < k; r++) {
        uint64_t vocab = (uint64_t)d->vocab, others = vocab > 1 ? vocab - 1 : 1;
        uint64_t away = 1 + ((h >> 40) + (uint64_t)r) % others;
        ids[r] = r == rank ? truth : (int32_t)(((uint64_t)truth + away) % vocab);
        logp[r] = first - (float)r * (1.0f - first);
    }
}

static int oracle_propose(void *self, const struct draft_request *r, struct proposal *p,
                          struct err *e) {
    (void)e;
    struct draft_oracle *d = self;
    int64_t pos = sequence_len(r->seq);
    int k = r->k < TREE_MAX_K ? r->k : TREE_MAX_K;
    int depth = 0;
    while (depth < r->max_depth && depth < TREE_MAX_DEPTH && pos + depth + 1 < d->c.n_recording) {
        fill_depth(d, pos + depth + 1, k, d->ids + depth * k, d->logp + depth * k);
        depth++;
    }
    p->depth = depth;
    p->k = k;
    p->ids = d->ids;
    p->logp = d->logp;
    return 0;
}

const struct drafter_class drafter_oracle = {"oracle", oracle_create, oracle_destroy,
                                             oracle_max_depth, oracle_propose};
