// SPDX-License-Identifier: Apache-2.0
// A drafter with the answer: it reads a recorded continuation and makes mistakes at a seeded
// rate. With it commits of every length and at every place in a tree happen even with random
// weights, which is what tests of exactness and of cost need.
#include "spec/draft/oracle.h"

#include <math.h>
#include <stdlib.h>

#include "base/num.h"
#include "base/rng.h"

struct draft_oracle {
    struct draft_config c;
    int32_t vocab;
    int depth; // deepest guess
    int32_t ids[TREE_MAX_DEPTH * TREE_MAX_K];
    float logp[TREE_MAX_DEPTH * TREE_MAX_K];
};

static int oracle_create(void **self, const struct draft_config *c, struct err *e) {
    if (c->with_draft && !c->draft)
        return err_set(e, ERR_USAGE,
                       "the oracle drafter stands for a draft model that is not there");
    if (!c->recording || model_params_of(c->model)->vocab < 2 ||
        !(c->error_rate >= 0 && c->error_rate <= 1))
        return err_set(e, ERR_USAGE,
                       "the oracle drafter needs a recording and an error rate from 0 to 1");
    struct draft_oracle *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, ERR_MEMORY, "no memory for the oracle drafter");
    d->c = *c;
    d->vocab = (int32_t)model_params_of(c->model)->vocab;
    d->depth = TREE_MAX_DEPTH;
    if (c->with_draft)
        d->depth = min_i32(d->depth, draft_traits(c->draft).max_depth);
    *self = d;
    return 0;
}

static void oracle_destroy(void *self) {
    free(self);
}

static int oracle_max_depth(const void *self) {
    return ((const struct draft_oracle *)self)->depth;
}

// The rank of the recorded token among k candidates at a depth from 1 below the root; k: missing.
static int rank_of(const struct draft_oracle *d, int64_t root, int depth, uint64_t h, int k) {
    if (d->c.n_right > 0) {
        uint64_t u = rng_hash(d->c.seed, (uint64_t)root, (uint64_t)depth, 1);
        return depth <= d->c.n_right && (double)rng_unit(u) < d->c.right[depth - 1] ? 0 : k;
    }
    return (double)rng_unit(h) < d->c.error_rate ? 1 + (int)(rng_mix(h) % (uint64_t)k) : 0;
}

// The candidates of one position: the recorded token at its rank, other tokens around it.
static void fill_depth(const struct draft_oracle *d, int64_t root, int depth, int k, int32_t *ids,
                       float *logp) {
    int64_t pos = root + depth;
    uint64_t h = rng_hash(d->c.seed, (uint64_t)pos, 0, 0);
    int32_t truth = d->c.recording[pos];
    int rank = rank_of(d, root, depth, h, k);
    static const float best[] = {-0.5f, -0.2f, -0.05f}; // log-probability of the first candidate
    float first = best[(h >> 20) % 3];
    for (int r = 0; r < k; r++) {
        uint64_t vocab = (uint64_t)d->vocab, others = vocab > 1 ? vocab - 1 : 1;
        uint64_t away = 1 + ((h >> 40) + (uint64_t)r) % others;
        ids[r] = r == rank ? truth : (int32_t)(((uint64_t)truth + away) % vocab);
        logp[r] = first - (float)r * (1.0f - first);
    }
}

// The candidates of the positions after the root at `pos`.
static void fill_proposal(struct draft_oracle *d, int64_t pos, int max_depth, int k,
                          struct proposal *p) {
    int depth = 0;
    while (depth < max_depth && depth < TREE_MAX_DEPTH && pos + depth + 1 < d->c.n_recording) {
        fill_depth(d, pos, depth + 1, k, d->ids + depth * k, d->logp + depth * k);
        depth++;
    }
    p->depth = depth;
    p->k = k;
    p->ids = d->ids;
    p->logp = d->logp;
    p->pair = NULL;
    p->expand = NULL;
    p->expand_many = NULL;
}

static int oracle_propose(void *self, const struct draft_request *r, int n,
                          struct proposal *const *p, struct err *e) {
    (void)n, (void)e;
    struct draft_oracle *d = self;
    bool shorter = d->c.with_draft && r->useful_depth > 0 && r->useful_depth < r->max_depth;
    int depth = min_i32(shorter ? r->useful_depth : r->max_depth, d->depth);
    fill_proposal(d, sequence_len(r->seq), depth, min_i32(r->k, TREE_MAX_K), p[0]);
    return 0;
}

// Rows that one step from the root at `pos` commits.
static int predict_step(struct draft_oracle *d, const struct oracle_goal *goal, int64_t pos) {
    struct ddtree t;
    struct tree_options o = goal->tree;
    struct proposal p = {0};
    o.max_depth = (int)min_i64(o.max_depth, d->c.n_recording - pos - 2);
    if (o.budget > 0 && o.max_depth > 0)
        fill_proposal(d, pos, o.max_depth, min_i32(o.k, TREE_MAX_K), &p);
    ddtree_build(&t, d->c.recording[pos], &p, &o, NULL);
    int count = 1;
    for (int node = 0; pos + count < d->c.n_recording - 1; count++) {
        node = ddtree_child(&t, node, d->c.recording[pos + count]);
        if (node < 0)
            break;
    }
    return count;
}

static double predict_run(struct draft_oracle *d, const struct oracle_goal *goal) {
    int64_t steps = 0, pos = goal->first;
    for (; pos < d->c.n_recording - 1; steps++)
        pos += predict_step(d, goal, pos);
    return steps ? (double)(pos - goal->first) / (double)steps : 1;
}

// Mean accept length of the run over recording[first ..] that the configuration would give.
static double oracle_predict(const struct draft_config *c, const struct oracle_goal *goal) {
    struct draft_oracle d = {.c = *c, .vocab = (int32_t)goal->vocab};
    return predict_run(&d, goal);
}

void oracle_use_rates(struct draft_config *c, const double *rates, int n) {
    double before = 1;
    c->n_right = min_i32(n, TREE_MAX_DEPTH);
    for (int i = 0; i < c->n_right; i++) {
        c->right[i] = before > 0 ? rates[i] / before : 0;
        before = rates[i];
    }
}

void oracle_use_length(struct draft_config *c, double length, int n) {
    enum { HALVINGS = 52 };
    double lo = 0, hi = 1;
    c->n_right = min_i32(n, TREE_MAX_DEPTH);
    for (int i = 0; i < HALVINGS; i++) {
        double p = (lo + hi) / 2, power = 1, sum = 0;
        for (int k = 0; k < c->n_right; k++)
            sum += power *= p;
        *(sum < length - 1 ? &lo : &hi) = p;
    }
    double p = length >= c->n_right + 1 ? 1 : (lo + hi) / 2;
    for (int i = 0; i < c->n_right; i++)
        c->right[i] = p;
}

// A higher rate adds errors to those of a lower one, so the mean falls as the rate grows, but for
// the places where an error shifts later steps: hence the best of all that were tried.
double oracle_calibrate(struct draft_config *c, const struct oracle_goal *goal) {
    enum { ROUNDS = 24 };
    double lo = 0, hi = 1, best = -1, at = 0;
    for (int i = 0; i < ROUNDS; i++) {
        c->error_rate = i == 0 ? 0 : (lo + hi) / 2;
        double mean = oracle_predict(c, goal);
        if (best < 0 || fabs(mean - goal->accept_length) < fabs(best - goal->accept_length)) {
            best = mean;
            at = c->error_rate;
        }
        if (i > 0 && mean > goal->accept_length)
            lo = c->error_rate;
        else if (i > 0)
            hi = c->error_rate;
    }
    c->error_rate = at;
    return best;
}

const struct drafter_class drafter_oracle = {"oracle",         oracle_create,  oracle_destroy,
                                             oracle_max_depth, oracle_propose, .shared = false};
