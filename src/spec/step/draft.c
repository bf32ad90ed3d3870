// SPDX-License-Identifier: Apache-2.0
// The drafting part of a step: which members draft, one call of the shared drafter for all of them,
// their own drafters, their trees, and how the rows of the pass are shared among the trees.
#include "base/clock.h"
#include "base/num.h"
#include "spec/constraint/masks.h"
#include "spec/step/impl.h"

// Deepest node that the member's limits could use.
static int limit_of(const struct member *m) {
    const struct walk_limits *l = &m->limits;
    int64_t left = min_i64(l->tokens_left, l->context_left) - 1;
    return (int)min_i64(min_i32(m->c.tree.max_depth, TREE_MAX_DEPTH), left);
}

// The same of its drafters.
static int depth_of(const struct step *s, const struct member *m) {
    int most = m->c.use_draft ? drafter_max_depth(s->c.draft) : 0;
    for (int i = 0; i < m->c.n_drafters; i++)
        most = max_i32(most, drafter_max_depth(m->c.drafters[i]));
    return min_i32(most, limit_of(m));
}

// Depth of that of its drafters which reaches least far: a draft model, if there is one. Its time
// is what reaching less deep may save.
static int reach_of(const struct step *s, const struct member *m) {
    int least = m->c.use_draft ? drafter_max_depth(s->c.draft) : TREE_MAX_DEPTH;
    for (int i = 0; i < m->c.n_drafters; i++)
        least = min_i32(least, drafter_max_depth(m->c.drafters[i]));
    return least;
}

// Who drafts: members without a budget whenever they may, the others where it pays beside `pieces`
// rows of prompts. most: nodes beside the root that a tree without a budget may have.
static void begin_budgets(struct step *s, int n, int64_t pieces, int64_t most) {
    struct budget_step *b = &s->share;
    *b = (struct budget_step){
        .price = s->c.price, .members = s->budgeted, .other_rows = pieces, .most = TREE_MAX_DEPTH};
    for (int i = 0; i < n; i++) {
        struct member *m = s->in[i];
        int nodes = (int)min_i64(m->c.tree.budget, most);
        s->request[i] = (struct draft_request){
            .seq = m->seq, .root = m->root, .k = m->c.tree.k, .max_depth = depth_of(s, m)};
        if (m->masks)
            s->request[i].k = masks_wanted(m->c.tree.k);
        m->drafted = m->phase == MEMBER_DECODE && nodes > 0 && s->request[i].max_depth > 0 &&
                     (m->c.use_draft || m->c.n_drafters);
        if (m->phase == MEMBER_PROMPT || !m->c.budget) {
            b->other_seqs++;
            continue;
        }
        s->budgeted[b->n] = (struct budget_member){.budget = m->c.budget,
                                                   .drafts = m->drafted,
                                                   .tree = &m->tree,
                                                   .sure = m->masks ? masks_sure(m->masks) : NULL};
        s->owner[b->n++] = m;
        if (m->drafted)
            b->most = min_i32(b->most, reach_of(s, m));
    }
    if (!b->n)
        return;
    budget_drafts(b);
    for (int i = 0; i < b->n; i++)
        s->owner[i]->drafted = s->budgeted[i].drafts;
}

// What the member's drafters are asked for, now that it is known who drafts.
static void fill_request(struct step *s, int i) {
    struct member *m = s->in[i];
    struct draft_request *r = &s->request[i];
    if (m->c.budget)
        r->worth = s->share.depth;
    if (m->drafted && m->c.share_noise)
        r->noise = sampler_noise(m->sampler, sequence_len(m->seq) + 1, r->max_depth);
}

// A shared drafter that fails again and again is not asked any more: guesses are worth no failed
// steps.
static void give_up_draft(struct step *s, int n) {
    for (int i = 0; s->draft_failures >= STEP_DRAFT_FAILURES && i < n; i++)
        s->in[i]->c.use_draft = false;
}

// One call of the shared drafter for all members that want it.
static int propose_shared(struct step *s, int n, struct err *e) {
    int count = 0;
    for (int i = 0; i < n; i++) {
        if (!s->in[i]->drafted || !s->in[i]->c.use_draft)
            continue;
        s->shared_requests[count] = s->request[i];
        s->shared_proposals[count++] = &s->proposals[i];
    }
    if (!count)
        return 0;
    int rc = drafter_propose(s->c.draft, s->shared_requests, count, s->shared_proposals, e);
    s->draft_failures = rc ? s->draft_failures + 1 : 0;
    return rc;
}

// The member's own drafters. One that fails is this member's failure.
static void propose_own(struct step *s, int i) {
    struct member *m = s->in[i];
    struct proposal *p = &s->proposals[i];
    for (int d = 0; m->drafted && !m->rc && d < m->c.n_drafters; d++)
        m->rc = drafter_propose(m->c.drafters[d], &s->request[i], 1, &p, &m->err);
}

// A drafter's mistake must not become everybody's: tokens outside the vocabulary would make the
// whole pass impossible.
static int check_tree(const struct step *s, struct member *m) {
    for (int i = 1; i < m->tree.n; i++)
        if (m->tree.token[i] < 0 || m->tree.token[i] >= s->vocab)
            return err_set(&m->err, ERR_USAGE,
                           "a drafter guessed token id %d, which is outside the vocabulary of %lld",
                           m->tree.token[i], (long long)s->vocab);
    return 0;
}

// Whether the member's tree may have nodes that no drafter was asked for: those that its constraint
// expects, where it guesses at all.
static bool expects(const struct member *m) {
    return m->masks && m->phase == MEMBER_DECODE && m->c.tree.budget > 0 &&
           (m->c.use_draft || m->c.n_drafters);
}

// Builds the member's tree of at most `nodes` nodes beside the root.
static void build_tree(struct step *s, int i, int64_t nodes) {
    struct member *m = s->in[i];
    struct tree_options o = m->c.tree;
    struct proposal allowed, *p = &s->proposals[i];
    o.budget = (int)min_i64(o.budget, nodes);
    o.max_depth = s->request[i].max_depth;
    if (m->rc || !(m->drafted || expects(m)))
        return;
    if (m->masks) {
        o.max_depth = limit_of(m);
        masks_offer(m->masks, p, &o, &allowed);
        p = &allowed;
    }
    m->rc = ddtree_build(&m->tree, m->root, p, &o, &m->err);
    m->rc = m->rc ? m->rc : check_tree(s, m);
    m->tree.n = m->rc ? 1 : m->tree.n;
    if (m->masks)
        masks_take(m->masks, &m->tree);
}

static int propose_all(struct step *s, int n, struct err *e) {
    double start = clock_ms();
    for (int i = 0; i < n; i++) {
        s->proposals[i] = (struct proposal){0};
        fill_request(s, i);
    }
    int rc = propose_shared(s, n, e);
    for (int i = 0; !rc && i < n; i++)
        propose_own(s, i);
    s->share.draft_ms = clock_ms() - start;
    return rc;
}

int step_draft(struct step *s, int n, const struct step_rows *of, struct err *e) {
    int64_t deciding = 0, decoding = 0, fixed = 0, rows = of->trees;
    for (int i = 0; i < n; i++) {
        decoding += s->in[i]->phase == MEMBER_DECODE;
        if (s->in[i]->phase == MEMBER_PROMPT)
            deciding += step_known(s->in[i]) + step_deciding(s->in[i]);
    }
    give_up_draft(s, n);
    rows = min_i64(rows, s->max_verify - deciding);
    int64_t most = rows / decoding - 1;
    begin_budgets(s, n, of->pieces, most);
    int rc = propose_all(s, n, e);
    for (int i = 0; !rc && i < n; i++) {
        struct member *m = s->in[i];
        build_tree(s, i, m->c.budget ? rows - decoding : most);
        if (m->phase == MEMBER_DECODE && !m->c.budget)
            fixed += m->tree.n;
    }
    if (rc || !s->share.n)
        return rc;
    s->share.other_rows += fixed;
    s->share.max_rows = (int)(rows - fixed);
    budget_share(&s->share);
    for (int i = 0; i < s->share.n; i++)
        s->owner[i]->tree.n = 1 + s->budgeted[i].nodes;
    return 0;
}

// What a pass with pieces of prompts took.
static void learn_prompts(struct step *s, int n) {
    const struct step_times *t = &s->ms;
    bool pieces = false;
    for (int i = 0; i < n; i++)
        pieces = pieces || s->in[i]->phase == MEMBER_PROMPT;
    if (pieces && s->c.prompts)
        price_note_pass(s->c.prompts, s->forest.n, n,
                        t->prompt + t->verify + t->sample + t->commit);
}

void step_learn(struct step *s, int members) {
    struct budget_step *b = &s->share;
    int n = 0;
    learn_prompts(s, members);
    for (int i = 0; i < b->n; i++) {
        const struct member *m = s->owner[i];
        if (m->rc)
            continue;
        s->budgeted[n] = s->budgeted[i];
        s->budgeted[n++].walk = &m->walk;
    }
    b->n = n;
    b->pass_ms = s->ms.verify + s->ms.sample + s->ms.commit;
    if (n)
        budget_note(b);
}
