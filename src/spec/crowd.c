// SPDX-License-Identifier: Apache-2.0
// The step of several sequences; see crowd.h. The forest holds the trees one behind another: row i
// of member m is row first[m] + i of the pass, and all rows are wanted, so logits have that order.
#include "spec/crowd.h"

#include <stdlib.h>

#include "base/hash.h"
#include "ops/exec.h"

struct crowd {
    struct crowd_config c;
    struct exec *x;
    const struct ops *ops;
    int64_t vocab;
    int max_rows, draft_depth;
    struct sampler *sampler;
    struct forest forest;
    struct ddtree *trees;   // [max_members]
    struct sequence **seqs; // [max_members]
    int32_t *roots, *first; // [max_members]
    int32_t *choice, *ids;  // [max_rows]; [max_members][draft_depth][k], the draft's candidates
    float *logp, *row;      // as ids; [vocab]
    struct step_times times;
};

static void lap(double *phase, double *from) {
    double now = step_clock();
    *phase += now - *from;
    *from = now;
}

static int crowd_init(struct crowd *c, struct err *e) {
    size_t n = (size_t)c->c.max_members, cells = n * (size_t)c->draft_depth * (size_t)c->c.tree.k;
    c->trees = calloc(n, sizeof *c->trees);
    c->seqs = calloc(n, sizeof *c->seqs);
    c->roots = calloc(n, sizeof *c->roots);
    c->first = calloc(n, sizeof *c->first);
    c->choice = calloc((size_t)c->max_rows, sizeof *c->choice);
    c->ids = calloc(cells + 1, sizeof *c->ids);
    c->logp = calloc(cells + 1, sizeof *c->logp);
    c->row = calloc((size_t)c->vocab, sizeof *c->row);
    if (!c->trees || !c->seqs || !c->roots || !c->first || !c->choice || !c->ids || !c->logp ||
        !c->row)
        return err_set(e, ERR_MEMORY, "no memory to step %d sequences", c->c.max_members);
    int rc = forest_init(&c->forest, c->max_rows, e);
    return rc ? rc : sampler_create(&c->sampler, &c->c.sample, c->max_rows, (int)c->vocab, e);
}

int crowd_create(struct crowd **out, const struct crowd_config *config, struct err *e) {
    int most = model_max_verify(config->model);
    if (config->max_members < 1 || config->max_members > most)
        return err_set(e, ERR_USAGE, "%d sequences are not within 1 to the %d rows of a pass",
                       config->max_members, most);
    struct crowd *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ERR_MEMORY, "no memory to step %d sequences", config->max_members);
    c->c = *config;
    c->x = model_exec(config->model);
    c->ops = exec_ops(c->x);
    c->vocab = model_params_of(config->model)->vocab;
    c->max_rows = most;
    if (c->c.tree.k > c->vocab)
        c->c.tree.k = (int)c->vocab;
    if (config->draft)
        c->draft_depth = dflash_params_of(config->draft)->block_size - 1;
    int rc = crowd_init(c, e);
    if (rc) {
        crowd_destroy(c);
        return rc;
    }
    *out = c;
    return 0;
}

void crowd_destroy(struct crowd *c) {
    if (!c)
        return;
    forest_fini(&c->forest);
    sampler_destroy(c->sampler);
    free(c->trees);
    free(c->seqs);
    free(c->roots);
    free(c->first);
    free(c->choice);
    free(c->ids);
    free(c->logp);
    free(c->row);
    free(c);
}

struct step_times crowd_times(const struct crowd *c) {
    return c->times;
}

int crowd_budget(int budget, int max_verify, int n) {
    int room = max_verify / n - 1;
    return budget < room ? budget : room;
}

// Deepest guess of a member that its limits and the tree's could still use.
static int depth_of(const struct crowd *c, const struct crowd_member *m) {
    const struct walk_limits *l = &m->limits;
    int64_t room = l->tokens_left < l->context_left ? l->tokens_left : l->context_left;
    int most = m->drafter ? drafter_max_depth(m->drafter) : c->draft_depth;
    if (c->c.draft && most > c->draft_depth)
        most = c->draft_depth;
    most = most < TREE_MAX_DEPTH ? most : TREE_MAX_DEPTH;
    most = most < c->c.tree.max_depth ? most : c->c.tree.max_depth;
    return room - 1 < most ? (int)(room - 1) : most;
}

// One pass of the draft over all members; its candidates go to the host.
static int draft_all(struct crowd *c, int n, struct err *e) {
    int rc = dflash_draft(c->c.draft, c->seqs, c->roots, n, e);
    if (rc)
        return rc;
    int64_t rows = n * c->draft_depth, most = dflash_logits_rows(c->c.draft);
    for (int64_t i = 0; i < rows; i += most) {
        int64_t now = rows - i < most ? rows - i : most;
        struct topk_args top = {.logits = dflash_logits(c->c.draft, i, now),
                                .n = now,
                                .vocab = c->vocab,
                                .k = c->c.tree.k,
                                .ids = c->ids + i * c->c.tree.k,
                                .logp = c->logp + i * c->c.tree.k};
        c->ops->head_topk(c->x, &top);
    }
    return exec_status(c->x, e); // ids that were never written must not become a tree
}

static int grow(struct crowd *c, struct crowd_member *members, int n, struct err *e) {
    int budget = crowd_budget(c->c.tree.budget, c->max_rows, n), deepest = 0;
    for (int i = 0; i < n; i++) {
        int depth = depth_of(c, &members[i]);
        deepest = depth > deepest ? depth : deepest;
    }
    bool drafted = c->c.draft && budget > 0 && deepest > 0;
    int rc = drafted ? draft_all(c, n, e) : 0;
    for (int i = 0; !rc && i < n; i++) {
        struct crowd_member *m = &members[i];
        struct tree_options o = c->c.tree;
        struct proposal p = {0}, *all = &p;
        size_t at = (size_t)i * (size_t)c->draft_depth * (size_t)o.k;
        o.budget = budget;
        o.max_depth = depth_of(c, m);
        if (m->drafter && budget > 0 && o.max_depth > 0) {
            struct draft_request r = {
                .seq = m->seq, .root = m->root, .k = o.k, .max_depth = o.max_depth};
            rc = drafter_propose(m->drafter, &r, 1, &all, e);
        } else if (drafted && !m->drafter) {
            p = (struct proposal){
                .depth = c->draft_depth, .k = o.k, .ids = c->ids + at, .logp = c->logp + at};
        }
        if (!rc)
            rc = ddtree_build(&c->trees[i], m->root, &p, &o, e);
        m->rows = c->trees[i].n;
    }
    return rc;
}

static void plant(struct crowd *c, int n) {
    forest_reset(&c->forest);
    for (int m = 0; m < n; m++) {
        const struct ddtree *t = &c->trees[m];
        int32_t first = forest_root(&c->forest, m, sequence_len(c->seqs[m]), t->token[0], true);
        c->first[m] = first;
        for (int i = 1; i < t->n; i++)
            forest_add(&c->forest, first + t->parent[i], t->token[i], true);
    }
}

static struct sampler_batch batch_of(const struct crowd *c, int m) {
    const struct ddtree *t = &c->trees[m];
    return (struct sampler_batch){.token = t->token,
                                  .parent = t->parent,
                                  .n = t->n,
                                  .committed = sequence_tokens(c->seqs[m]),
                                  .len = sequence_len(c->seqs[m])};
}

// Chooses after every row of the pass, a slice of logits in one call.
static void choose_all(struct crowd *c, int n) {
    const struct sample_row *rows = NULL;
    for (int m = n - 1; m >= 0; m--) {
        struct sampler_batch b = batch_of(c, m);
        for (int i = b.n - 1; i >= 0; i--)
            rows = sampler_row(c->sampler, &b, i, c->first[m] + i);
    }
    int64_t most = model_logits_rows(c->c.model);
    for (int64_t i = 0, k; i < c->forest.n; i += k) {
        k = c->forest.n - i < most ? c->forest.n - i : most;
        c->ops->sample(c->x, model_logits(c->c.model, i, k), k, c->vocab, rows + i, c->choice + i);
    }
}

// Chooses along the path that one member's choices take; rows beside it are not sampled.
static void choose_path(struct crowd *c, int m) {
    struct sampler_batch b = batch_of(c, m);
    int row = 0;
    do {
        int32_t at = c->first[m] + row;
        c->ops->sample(c->x, model_logits_at(c->c.model, at), 1, c->vocab,
                       sampler_row(c->sampler, &b, row, 0), &c->choice[at]);
        row = ddtree_child(&c->trees[m], row, c->choice[at]);
    } while (row >= 0);
}

static int verify(struct crowd *c, int n, struct err *e) {
    double t = step_clock();
    plant(c, n);
    int rc = model_forward(c->c.model, &c->forest, c->seqs, n, e);
    if (rc)
        return rc;
    model_logits_at(c->c.model, 0); // the head is part of the pass
    bool together = c->ops->sample_together;
    if (together)
        choose_all(c, n);
    else
        lap(&c->times.verify, &t);
    for (int m = 0; !together && m < n; m++)
        choose_path(c, m);
    rc = exec_status(c->x, e); // walks may only follow choices that were made
    lap(together ? &c->times.verify : &c->times.sample, &t);
    return rc;
}

static void hash_rows(struct crowd *c, struct crowd_member *m, int32_t first) {
    size_t bytes = (size_t)c->vocab * sizeof *c->row;
    for (int i = 0; i < m->walk.count; i++) {
        const float *logits = model_logits_at(c->c.model, first + m->walk.path[i]);
        c->ops->download(c->x, c->row, logits, bytes);
        m->hash = hash_bytes(c->row, bytes, m->hash);
    }
}

// Each member's walk; rows are hashed before anything is committed, outside of all phases.
static int walk_all(struct crowd *c, struct crowd_member *members, int n, struct err *e) {
    double t = step_clock();
    for (int m = 0; m < n; m++)
        walk_tree(&c->trees[m], c->choice + c->first[m], &members[m].limits, &members[m].walk);
    lap(&c->times.sample, &t);
    for (int m = 0; c->c.hash && m < n; m++)
        hash_rows(c, &members[m], c->first[m]);
    return exec_status(c->x, e);
}

static int commit_all(struct crowd *c, struct crowd_member *members, int n, struct err *e) {
    double t = step_clock();
    int rc = 0;
    for (int m = 0; !rc && m < n; m++) {
        struct walk *w = &members[m].walk;
        int32_t path[TREE_MAX_DEPTH + 1];
        for (int i = 0; i < w->count; i++)
            path[i] = c->first[m] + w->path[i];
        rc = model_commit(c->c.model, c->seqs, &(struct model_path){m, path, w->count}, 1, e);
    }
    lap(&c->times.commit, &t);
    return rc;
}

int crowd_step(struct crowd *c, struct crowd_member *members, int n, struct err *e) {
    if (n < 1 || n > c->c.max_members)
        return err_set(e, ERR_USAGE, "a step of %d sequences is not within 1 to %d", n,
                       c->c.max_members);
    for (int m = 0; m < n; m++) {
        c->seqs[m] = members[m].seq;
        c->roots[m] = members[m].root;
    }
    double t = step_clock();
    int rc = grow(c, members, n, e);
    lap(&c->times.draft, &t);
    if (!rc)
        rc = verify(c, n, e);
    if (!rc)
        rc = walk_all(c, members, n, e);
    return rc ? rc : commit_all(c, members, n, e);
}
