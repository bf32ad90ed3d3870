// SPDX-License-Identifier: Apache-2.0
// A draft whose guesses depend on the tokens before them, as a drafter: a pass of all sequences for
// each depth, over the nodes of that depth that their trees request (proposal.expand_many). What a
// tree does not request costs nothing: a chain has one row a pass, a smaller `useful_depth` leaves
// passes out and changes nothing of the others. A sequence for which there is no room for nodes
// gets no guesses.
#include "spec/draft/drafter.h"

#include <math.h>
#include <stdlib.h>

#include "base/num.h"

struct draft_model;

// One sequence's part.
struct growing {
    struct draft_model *of;
    struct draft_request r;
    struct draft_node *nodes; // [width] of the level
    int32_t *ids;             // [width][TREE_MAX_K] below them
    float *logp;              // the same
};

struct draft_model {
    struct draft *draft;
    int64_t vocab;
    int depth, width; // depth: at most TREE_MAX_DEPTH
    int max_k, max_members;
    struct growing *growing;     // [max_members]
    struct draft_level *levels;  // [max_members]
    struct draft_guesses *found; // [max_members]
    struct draft_node *nodes;    // [max_members][width]
    int32_t *ids;                // [max_members][width][TREE_MAX_K]
    float *logp;                 // the same
};

static void model_drafter_destroy(void *self) {
    struct draft_model *d = self;
    free(d->growing);
    free(d->levels);
    free(d->found);
    free(d->nodes);
    free(d->ids);
    free(d->logp);
    free(d);
}

static int allocate(struct draft_model *d, struct err *e) {
    const size_t n = (size_t)d->max_members, width = (size_t)d->width, cells = width * TREE_MAX_K;
    d->growing = calloc(n, sizeof *d->growing);
    d->levels = calloc(n, sizeof *d->levels);
    d->found = calloc(n, sizeof *d->found);
    d->nodes = calloc(n * width, sizeof *d->nodes);
    d->ids = calloc(n * cells, sizeof *d->ids);
    d->logp = calloc(n * cells, sizeof *d->logp);
    if (!d->growing || !d->levels || !d->found || !d->nodes || !d->ids || !d->logp)
        return err_set(e, ERR_MEMORY, "no memory for the guesses of %d sequences", d->max_members);
    for (size_t i = 0; i < n; i++)
        d->growing[i] = (struct growing){.of = d,
                                         .nodes = d->nodes + i * width,
                                         .ids = d->ids + i * cells,
                                         .logp = d->logp + i * cells};
    return 0;
}

static int model_drafter_create(void **self, const struct draft_config *c, struct err *e) {
    struct draft_model *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, ERR_MEMORY, "no memory for a drafter");
    const struct draft_traits t = draft_traits(c->draft);
    d->draft = c->draft;
    d->vocab = model_params_of(c->model)->vocab;
    d->depth = min_i32(max_i32(t.max_depth, 1), TREE_MAX_DEPTH);
    d->width = min_i32(max_i32(t.width, 1), TREE_MAX_ROWS);
    d->max_k = c->max_k > 0 ? min_i32(c->max_k, TREE_MAX_K) : TREE_MAX_K;
    d->max_k = (int)min_i64(d->max_k, d->vocab);
    d->max_members = max_i32(c->max_members, 1);
    int rc = allocate(d, e);
    if (rc) {
        model_drafter_destroy(d);
        return rc;
    }
    *self = d;
    return 0;
}

static int model_drafter_max_depth(const void *self) {
    return ((const struct draft_model *)self)->depth;
}

static bool model_drafter_by_path(const void *self) {
    (void)self;
    return true;
}

// A level without its nodes.
static struct draft_level level_of(const struct draft_model *d, const struct growing *g, int depth,
                                   int k) {
    return (struct draft_level){.seq = g->r.seq,
                                .root = g->r.root,
                                .n = 1,
                                .depth = depth,
                                .k = min_i32(k, d->max_k),
                                .noise = g->r.noise ? &g->r.noise[depth] : NULL};
}

// Nodes that the tree requests. A token that nobody has, which some other drafter guessed, must not
// end everybody's pass: the tree that has it is refused when it is complete.
static struct draft_level name_nodes(const struct draft_model *d, const struct tree_question *q) {
    struct growing *g = q->arg;
    const int depth = q->nodes[0].depth;
    struct draft_level l = level_of(d, g, depth, q->k);
    for (int i = 0; depth && i < q->n; i++) {
        const struct tree_node *node = &q->nodes[i];
        const int32_t token = node->path[depth - 1];
        g->nodes[i] = (struct draft_node){.parent = node->parent,
                                          .token = token >= 0 && token < d->vocab ? token : 0,
                                          .depth = depth};
    }
    l.nodes = depth ? g->nodes : NULL;
    l.n = q->n;
    return l;
}

// Candidates of each node, filled up to as many as were requested.
static void take_candidates(struct tree_question *q, const struct draft_guesses *found) {
    struct growing *g = q->arg;
    for (int i = 0; i < q->n; i++)
        for (int c = 0; c < q->k; c++) {
            const bool there = c < found->k;
            g->ids[i * q->k + c] = there ? found->ids[i * found->k + c] : -1;
            g->logp[i * q->k + c] = there ? found->logp[i * found->k + c] : -INFINITY;
        }
    q->answer = (struct tree_candidates){g->ids, g->logp, NULL};
}

// A tree_expand_many_fn.
static int expand_many(struct tree_question *q, int n, struct err *e) {
    struct draft_model *d = ((const struct growing *)q[0].arg)->of;
    for (int i = 0; i < n; i++)
        d->levels[i] = name_nodes(d, &q[i]);
    int rc = draft_run_level(d->draft, d->levels, n, d->found, e);
    for (int i = 0; !rc && i < n; i++)
        take_candidates(&q[i], &d->found[i]);
    return rc;
}

// A tree_expand_fn.
static int expand(void *arg, const struct tree_node *nodes, int n, int k,
                  struct tree_candidates *out, struct err *e) {
    struct tree_question q = {arg, nodes, n, k, {0}};
    int rc = expand_many(&q, 1, e);
    *out = q.answer;
    return rc;
}

// How deep guesses for the request reach; 0: it takes no part.
static int reach_of(const struct draft_model *d, const struct draft_request *r) {
    int reach = min_i32(r->max_depth, d->depth);
    return max_i32(r->useful_depth > 0 ? min_i32(reach, r->useful_depth) : reach, 0);
}

static int model_drafter_propose(void *self, const struct draft_request *r, int n,
                                 struct proposal *const *p, struct err *e) {
    struct draft_model *d = self;
    int count = 0;
    for (int i = 0; i < n; i++) {
        const int reach = reach_of(d, &r[i]);
        if (!reach)
            continue;
        struct growing *g = &d->growing[count];
        g->r = r[i];
        d->levels[count] = level_of(d, g, 0, r[i].k);
        d->levels[count++].reach = reach;
        p[i]->depth = reach;
        p[i]->expand = expand;
        p[i]->expand_many = expand_many;
        p[i]->expand_arg = g;
        p[i]->width = d->width;
    }
    return count ? draft_begin(d->draft, d->levels, count, e) : 0;
}

const struct drafter_class drafter_model = {.name = "draft model",
                                            .create = model_drafter_create,
                                            .destroy = model_drafter_destroy,
                                            .max_depth = model_drafter_max_depth,
                                            .propose = model_drafter_propose,
                                            .shared = true,
                                            .by_path = model_drafter_by_path};
