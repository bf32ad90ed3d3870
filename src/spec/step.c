// SPDX-License-Identifier: Apache-2.0
// The decoding step; see step.h. Guesses decide only which rows are computed besides the root: the
// chosen tokens and the logits that decide them are those of plain decoding (docs/exactness.md).
#include "spec/step.h"

#include <stdlib.h>
#include <time.h>

#include "base/hash.h"
#include "ops/observe/timing.h"

struct step {
    struct step_config c;
    int max_rows;    // of a verify pass
    int draft_depth; // deepest guess of any drafter
    int model_depth; // of that which reaches least far: a draft model, if there is one
    int64_t vocab;
    struct exec *x;
    const struct ops *ops;
    struct sampler *sampler;
    struct forest prompt, verify;
    struct ddtree tree;
    int32_t choice[TREE_MAX_ROWS];
    float *row; // [vocab] host copy of one logits row, for the hash
    uint64_t hash;
    struct step_times ms;
    struct budget_member member; // with a budget: of the newest step
    struct budget_step plan;
};

double step_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

// Adds the time since *from to *phase and moves *from on.
static void lap(double *phase, double *from) {
    double now = step_clock();
    *phase += now - *from;
    *from = now;
}

static int step_init(struct step *s, struct err *e) {
    int rc = forest_init(&s->prompt, model_max_rows(s->c.model), e);
    if (!rc)
        rc = forest_init(&s->verify, s->max_rows, e);
    if (!rc)
        rc = sampler_create(&s->sampler, &s->c.sample, s->ops->sample_together ? s->max_rows : 1,
                            (int)s->vocab, e);
    if (!rc && s->c.hash && !(s->row = malloc((size_t)s->vocab * sizeof *s->row)))
        rc = err_set(e, ERR_MEMORY, "no memory to hash rows of %lld logits", (long long)s->vocab);
    return rc;
}

int step_create(struct step **out, const struct step_config *c, struct err *e) {
    if (c->tree.budget < 0 || c->tree.budget > TREE_MAX_BUDGET)
        return err_set(e, ERR_USAGE, "a budget of %d nodes is not within 0 to %d", c->tree.budget,
                       TREE_MAX_BUDGET);
    struct step *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for a decoding step");
    s->c = *c;
    s->x = model_exec(c->model);
    s->ops = exec_ops(s->x);
    s->vocab = model_params_of(c->model)->vocab;
    s->max_rows = model_max_verify(c->model);
    if (s->max_rows > 1 + c->tree.budget)
        s->max_rows = 1 + c->tree.budget;
    for (int i = 0; i < c->n_drafters; i++) {
        int depth = drafter_max_depth(c->drafters[i]);
        s->draft_depth = depth > s->draft_depth ? depth : s->draft_depth;
        s->model_depth = i == 0 || depth < s->model_depth ? depth : s->model_depth;
    }
    int rc = step_init(s, e);
    if (rc) {
        step_destroy(s);
        return rc;
    }
    *out = s;
    return 0;
}

void step_destroy(struct step *s) {
    if (!s)
        return;
    forest_fini(&s->prompt);
    forest_fini(&s->verify);
    sampler_destroy(s->sampler);
    free(s->row);
    free(s);
}

const struct ddtree *step_tree(const struct step *s) {
    return &s->tree;
}

struct step_times step_times_of(const struct step *s) {
    return s->ms;
}

uint64_t step_hash(const struct step *s) {
    return s->hash;
}

// Chooses the token after one row; its logits are row `index` of the workspace.
static void choose(struct step *s, const struct sampler_batch *b, int row, int64_t index) {
    const float *logits = model_logits_at(s->c.model, index);
    s->ops->sample(s->x, logits, 1, s->vocab, sampler_row(s->sampler, b, row, 0), &s->choice[row]);
}

// Chooses along the path that the choices take through the tree; rows beside it are not sampled.
static void choose_path(struct step *s, const struct sampler_batch *b) {
    int row = 0;
    do {
        choose(s, b, row, model_logits_index(s->c.model, row));
        row = ddtree_child(&s->tree, row, s->choice[row]);
    } while (row >= 0);
}

// Chooses after every row of the tree, a slice of logits in one call: a row's draw and penalties
// depend on its own path only, so the choices on the walked path are those of choose_path. All rows
// are wanted, so row i has logits row i.
static void choose_all(struct step *s, const struct sampler_batch *b) {
    const struct sample_row *rows = NULL;
    for (int i = b->n - 1; i >= 0; i--)
        rows = sampler_row(s->sampler, b, i, i);
    int64_t most = model_logits_rows(s->c.model);
    for (int64_t i = 0, n; i < b->n; i += n) {
        n = b->n - i < most ? b->n - i : most;
        s->ops->sample(s->x, model_logits(s->c.model, i, n), n, s->vocab, rows + i, s->choice + i);
    }
}

// Adds logits row i of the last pass to the hash.
static void hash_row(struct step *s, int64_t i) {
    if (!s->c.hash)
        return;
    size_t bytes = (size_t)s->vocab * sizeof *s->row;
    s->ops->download(s->x, s->row, model_logits_at(s->c.model, i), bytes);
    s->hash = hash_bytes(s->row, bytes, s->hash);
}

// Runs a chain as it is committed and chooses after its last token when `want`.
static int feed(struct step *s, struct sequence *seq, const int32_t *tokens, int64_t n, bool want,
                double *phase, struct err *e) {
    double t = step_clock();
    timing_section(s->x, phase == &s->ms.prompt ? "prompt" : "plain");
    forest_reset(&s->prompt);
    if (forest_chain(&s->prompt, 0, sequence_len(seq), tokens, n, want) < 0)
        return err_set(e, ERR_USAGE, "a pass of %lld prompt tokens is not within 1 to %d",
                       (long long)n, model_max_rows(s->c.model));
    bool together = s->ops->sample_together && phase == &s->ms.verify;
    int rc = model_forward(s->c.model, &s->prompt, &seq, 1, e);
    if (!rc && want)
        model_logits_at(s->c.model, 0); // the head is part of the pass
    if (!rc && !together)
        rc = exec_status(s->x, e);
    if (rc)
        return rc;
    if (!together)
        lap(phase, &t);
    if (!want)
        return 0;
    static const int32_t no_parent = -1;
    struct sampler_batch b = {.token = &tokens[n - 1],
                              .parent = &no_parent,
                              .n = 1,
                              .committed = sequence_tokens(seq),
                              .len = sequence_len(seq) - 1};
    choose(s, &b, 0, 0);
    lap(together ? phase : &s->ms.sample, &t);
    hash_row(s, 0);
    return exec_status(s->x, e); // before anyone sees the choice
}

int step_feed(struct step *s, struct sequence *seq, const int32_t *tokens, int64_t n,
              int32_t *chosen, struct err *e) {
    int rc = feed(s, seq, tokens, n, chosen != NULL, &s->ms.prompt, e);
    if (!rc && chosen)
        *chosen = s->choice[0];
    return rc;
}

// Whether and how deep this step drafts, by the budget.
static bool plan(struct step *s, bool may) {
    s->member = (struct budget_member){.budget = s->c.budget, .drafts = may, .tree = &s->tree};
    s->plan = (struct budget_step){.price = s->c.price,
                                   .members = &s->member,
                                   .n = 1,
                                   .max_rows = s->max_rows,
                                   .most = s->model_depth};
    budget_drafts(&s->plan);
    return s->member.drafts;
}

// Collects guesses and builds the tree; only the root when nothing may or can be guessed.
static int grow(struct step *s, struct sequence *seq, int32_t root, const struct walk_limits *l,
                struct err *e) {
    struct tree_options o = s->c.tree;
    o.budget = o.budget < s->max_rows - 1 ? o.budget : s->max_rows - 1;
    int64_t room = l->tokens_left < l->context_left ? l->tokens_left : l->context_left;
    if (o.max_depth > room - 1)
        o.max_depth = (int)(room - 1);
    if (o.max_depth > s->draft_depth)
        o.max_depth = s->draft_depth;
    if (o.max_depth > TREE_MAX_DEPTH)
        o.max_depth = TREE_MAX_DEPTH;
    struct proposal p = {0}, *all = &p;
    bool drafts = o.budget > 0 && o.max_depth > 0;
    if (s->c.budget)
        drafts = plan(s, drafts);
    if (drafts) {
        struct draft_request r = {.seq = seq,
                                  .root = root,
                                  .k = o.k,
                                  .max_depth = o.max_depth,
                                  .worth = s->c.budget ? s->plan.depth : 0};
        if (s->c.share_noise)
            r.noise = sampler_noise(s->sampler, sequence_len(seq) + 1, o.max_depth);
        for (int i = 0; i < s->c.n_drafters; i++) {
            int rc = drafter_propose(s->c.drafters[i], &r, 1, &all, e);
            if (rc)
                return rc;
        }
    }
    return ddtree_build(&s->tree, root, &p, &o, e);
}

// Lays the tree out as a forest of one sequence: row i is node i.
static void plant(struct step *s, int64_t len) {
    const struct ddtree *t = &s->tree;
    forest_reset(&s->verify);
    forest_root(&s->verify, 0, len, t->token[0], true);
    for (int i = 1; i < t->n; i++)
        forest_add(&s->verify, t->parent[i], t->token[i], true);
}

static int step_plain(struct step *s, struct sequence *seq, const struct walk_limits *limits,
                      struct walk *out, struct err *e) {
    int rc = feed(s, seq, &s->tree.token[0], 1, true, &s->ms.verify, e);
    if (!rc)
        walk_tree(&s->tree, s->choice, limits, out);
    return rc;
}

// The pass of a verify forest and the choices that are needed of it.
static int verify(struct step *s, struct sequence *seq, struct err *e) {
    double t = step_clock();
    int rc = model_forward(s->c.model, &s->verify, &seq, 1, e);
    if (rc)
        return rc;
    model_logits_at(s->c.model, 0); // the head is part of the pass
    bool together = s->ops->sample_together;
    if (!together)
        lap(&s->ms.verify, &t);
    struct sampler_batch b = {.token = s->tree.token,
                              .parent = s->tree.parent,
                              .n = s->tree.n,
                              .committed = sequence_tokens(seq),
                              .len = sequence_len(seq)};
    if (together)
        choose_all(s, &b);
    else
        choose_path(s, &b);
    rc = exec_status(s->x, e); // a walk may only follow choices that were made
    lap(together ? &s->ms.verify : &s->ms.sample, &t);
    return rc;
}

// Walks through the verified tree and commits. Rows are hashed in between, outside of all phases:
// reading them waits for the device, and behind the commit that would hide what a commit takes.
static int run_tree(struct step *s, struct sequence *seq, const struct walk_limits *limits,
                    struct walk *out, struct err *e) {
    plant(s, sequence_len(seq));
    timing_section(s->x, "verify");
    int rc = verify(s, seq, e);
    if (rc)
        return rc;
    double t = step_clock();
    walk_tree(&s->tree, s->choice, limits, out);
    lap(&s->ms.sample, &t);
    uint64_t before = s->hash;
    for (int i = 0; i < out->count; i++)
        hash_row(s, model_logits_index(s->c.model, out->path[i]));
    rc = s->c.hash ? exec_status(s->x, e) : 0;
    t = step_clock();
    timing_section(s->x, "commit");
    if (!rc)
        rc = model_commit(s->c.model, &seq, &(struct model_path){0, out->path, out->count}, 1, e);
    lap(&s->ms.commit, &t);
    if (rc)
        s->hash = before;
    return rc;
}

// Milliseconds of all that follows a draft.
static double pass_ms(const struct step *s) {
    return s->ms.verify + s->ms.sample + s->ms.commit;
}

int step_run(struct step *s, struct sequence *seq, int32_t root, const struct walk_limits *limits,
             struct walk *out, struct err *e) {
    double t = step_clock(), draft = 0, before = pass_ms(s);
    timing_section(s->x, "draft");
    int rc = grow(s, seq, root, limits, e);
    if (rc)
        return rc;
    lap(&draft, &t);
    s->ms.draft += draft;
    if (s->c.budget) {
        budget_share(&s->plan);
        s->tree.n = 1 + s->member.nodes;
    }
    rc = s->tree.n == 1 ? step_plain(s, seq, limits, out, e) : run_tree(s, seq, limits, out, e);
    if (rc || !s->c.budget)
        return rc;
    s->member.walk = out;
    s->plan.draft_ms = draft;
    s->plan.pass_ms = pass_ms(s) - before;
    budget_note(&s->plan);
    return 0;
}
