// SPDX-License-Identifier: Apache-2.0
// Drafting. What each draft proposes for a member stays apart until its tree is built: of one draft
// as it is, of several mixed (spec/tree/mix.h). Trees whose candidates depend on the path grow
// together, level by level, so that each draft is called once for a level of all members. Guesses
// decide only which rows are computed besides the roots.
#include "spec/step/drafting.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/memory/arena.h"
#include "base/num.h"
#include "spec/constraint/masks.h"

// A member's guesses of a step.
struct guesses {
    struct draft_request request;
    struct proposal p[PRICE_DRAFTS]; // of each draft; what the member's own drafters add is in p[0]
    struct proposal base;            // of all together
    struct mix *mix;                 // NULL where there is one draft
};

// The tree of a member whose candidates depend on the path.
struct growth {
    struct ddtree_build *build;
    struct proposal allowed; // what its masks leave
    struct member *m;
    struct mix *mix;          // NULL: its candidates are those of one draft,
    int draft;                // this one,
    struct tree_question own; // of which that is requested
    bool requested;           // of some draft, for its next level; false: it is complete
};

struct drafting {
    struct step_config c;
    int64_t vocab, max_verify;
    struct arena arena;              // of what follows:
    struct guesses *of;              // [max_members]
    struct draft_request *requests;  // [max_members] those of one draft, packed,
    struct proposal **proposals;     // [max_members] and where their answers go
    struct growth *growing;          // [max_members], or NULL: no draft depends on the path
    struct tree_question *questions; // [max_members] what is requested of one draft,
    struct tree_question **askers;   // [max_members] and where their answers go
    struct budget_member *budgeted;  // [max_members]
    struct member **owner;           // [max_members] whose they are
    struct budget_step share;        // of the newest step,
    unsigned called, failed, grew;   // drafts that were called, failed, and made trees grow in it
    tree_expand_many_fn *expand[PRICE_DRAFTS]; // of those that depend on the path
    struct err why;                            // one has failed
    int failures[PRICE_DRAFTS];                // of each draft, in a row
};

// Trees grow together where candidates of a draft depend on the path.
static int make_growing(struct drafting *d, struct err *e) {
    size_t n = (size_t)d->c.max_members, bytes = round_up_size(ddtree_build_bytes(), 16);
    bool any = false;
    for (int i = 0; i < d->c.n_drafts; i++)
        any = any || drafter_by_path(d->c.drafts[i]);
    if (!any)
        return 0;
    d->questions = arena_array(&d->arena, n, sizeof *d->questions);
    d->askers = arena_array(&d->arena, n, sizeof(struct tree_question *));
    struct growth *growing = arena_array(&d->arena, n, sizeof *growing);
    unsigned char *builds = arena_array(&d->arena, n, bytes);
    if (!d->questions || !d->askers || !growing || !builds)
        return err_set(e, ERR_MEMORY, "no memory for the trees of %d members", d->c.max_members);
    for (size_t i = 0; i < n; i++)
        growing[i].build = (struct ddtree_build *)(void *)(builds + i * bytes);
    d->growing = growing;
    return 0;
}

static int make_mixes(struct drafting *d, struct err *e) {
    size_t n = (size_t)d->c.max_members, bytes = round_up_size(mix_bytes(), 16);
    if (d->c.n_drafts < 2)
        return 0;
    unsigned char *mixes = arena_array(&d->arena, n, bytes);
    if (!mixes)
        return err_set(e, ERR_MEMORY, "no memory for guesses of %d drafts", d->c.n_drafts);
    for (size_t i = 0; i < n; i++)
        d->of[i].mix = (struct mix *)(void *)(mixes + i * bytes);
    return 0;
}

static int make_arrays(struct drafting *d, struct err *e) {
    size_t n = (size_t)d->c.max_members;
    d->of = arena_array(&d->arena, n, sizeof *d->of);
    d->requests = arena_array(&d->arena, n, sizeof *d->requests);
    d->proposals = arena_array(&d->arena, n, sizeof(struct proposal *));
    d->budgeted = arena_array(&d->arena, n, sizeof *d->budgeted);
    d->owner = arena_array(&d->arena, n, sizeof(struct member *));
    if (!d->of || !d->requests || !d->proposals || !d->budgeted || !d->owner)
        return err_set(e, ERR_MEMORY, "no memory for guesses of %d members", d->c.max_members);
    for (size_t i = 0; i < n; i++)
        d->of[i].mix = NULL;
    int rc = make_growing(d, e);
    return rc ? rc : make_mixes(d, e);
}

int drafting_create(struct drafting **out, const struct step_config *c, struct err *e) {
    const int most = c->price ? price_drafts_of(c->price) : PRICE_DRAFTS;
    if (c->n_drafts < 0 || c->n_drafts > most)
        return err_set(e, ERR_USAGE, "a step with %d drafts is not possible; at most %d are",
                       c->n_drafts, most);
    struct drafting *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, ERR_MEMORY, "no memory for drafting");
    d->c = *c;
    d->vocab = model_params_of(c->model)->vocab;
    d->max_verify = model_max_verify(c->model);
    int rc = make_arrays(d, e);
    if (rc) {
        drafting_destroy(d);
        return rc;
    }
    *out = d;
    return 0;
}

void drafting_destroy(struct drafting *d) {
    if (!d)
        return;
    arena_fini(&d->arena);
    free(d);
}

// Deepest node that the member's limits could use, and that sees what the root does.
static int limit_of(const struct member *m) {
    const struct walk_limits *l = &m->limits;
    int64_t left = min_i64(l->tokens_left, l->context_left) - 1;
    left = min_i64(left, sequence_view_end(m->seq) - sequence_len(m->seq) - 1);
    return (int)min_i64(min_i32(m->c.tree.max_depth, TREE_MAX_DEPTH), left);
}

// The same of its drafters.
static int depth_of(const struct drafting *d, const struct member *m) {
    int max = 0;
    for (int i = 0; i < d->c.n_drafts; i++)
        if (m->c.drafts >> i & 1)
            max = max_i32(max, drafter_max_depth(d->c.drafts[i]));
    for (int i = 0; i < m->c.n_drafters; i++)
        max = max_i32(max, drafter_max_depth(m->c.drafters[i]));
    return min_i32(max, limit_of(m));
}

// How deep the first draft reaches for the member, or what stands for it. Its time is what reaching
// less deep may save.
static int reach_of(const struct drafting *d, const struct member *m) {
    int min = m->c.drafts & 1 ? drafter_max_depth(d->c.drafts[0]) : TREE_MAX_DEPTH;
    for (int i = 0; i < m->c.n_drafters; i++)
        min = min_i32(min, drafter_max_depth(m->c.drafters[i]));
    return min;
}

// Whether a drafter of the member's own takes time.
static bool own_dear(const struct member *m) {
    bool dear = false;
    for (int i = 0; i < m->c.n_drafters; i++)
        dear = dear || !drafter_free(m->c.drafters[i]);
    return dear;
}

// Whether all that guesses for the member costs nothing.
static bool guesses_free(const struct member *m) {
    return !m->c.drafts && m->c.n_drafters > 0 && !own_dear(m);
}

static bool guesses_at_all(const struct member *m) {
    return m->c.drafts || m->c.n_drafters;
}

static void budget_member(struct drafting *d, struct member *m) {
    struct budget_step *b = &d->share;
    d->budgeted[b->n] =
        (struct budget_member){.budget = m->c.budget,
                               .drafts = m->drafted,
                               .may = m->c.drafts | own_dear(m),
                               .free = guesses_free(m),
                               .tree = &m->tree,
                               .forced = m->masks ? masks_forced_nodes(m->masks) : NULL};
    d->owner[b->n++] = m;
    if (m->drafted)
        b->draft[0].max_depth = min_i32(b->draft[0].max_depth, reach_of(d, m));
}

// Who drafts: members without a budget whenever they may, the others where it pays together with
// `pieces` rows of prompts. max: nodes besides the root that a tree without a budget may have.
static void begin_budgets(struct drafting *d, struct member *const *in, int n, int64_t pieces,
                          int64_t max) {
    struct budget_step *b = &d->share;
    *b = (struct budget_step){.price = d->c.price,
                              .members = d->budgeted,
                              .other_rows = pieces,
                              .draft = {{.max_depth = TREE_MAX_DEPTH}}};
    for (int i = 1; i < d->c.n_drafts; i++)
        b->draft[i].max_depth = drafter_max_depth(d->c.drafts[i]);
    for (int i = 0; i < n; i++) {
        struct member *m = in[i];
        struct draft_request *r = &d->of[i].request;
        int nodes = (int)min_i64(m->c.tree.budget, max);
        *r = (struct draft_request){
            .seq = m->seq, .root = m->root, .k = m->c.tree.k, .max_depth = depth_of(d, m)};
        if (m->masks)
            r->k = masks_wanted(m->c.tree.k);
        m->drafted =
            m->phase == MEMBER_DECODE && nodes > 0 && r->max_depth > 0 && guesses_at_all(m);
        m->asked = m->drafted ? m->c.drafts : 0;
        if (m->phase == MEMBER_PROMPT || !m->c.budget)
            b->other_seqs++;
        else
            budget_member(d, m);
    }
    if (!b->n)
        return;
    budget_drafts(b);
    for (int i = 0; i < b->n; i++) {
        d->owner[i]->drafted = d->budgeted[i].drafts;
        d->owner[i]->asked =
            d->budgeted[i].drafts ? d->budgeted[i].asks & d->owner[i]->c.drafts : 0;
    }
}

// The request to the member's drafters, now that it is known who drafts.
static void fill_request(struct drafting *d, const struct member *m, struct guesses *g) {
    struct draft_request *r = &g->request;
    for (int i = 0; i < PRICE_DRAFTS; i++)
        g->p[i] = (struct proposal){0};
    if (m->c.budget)
        r->useful_depth = d->share.draft[0].depth;
    if (m->drafted && m->c.share_noise && !guesses_free(m))
        r->noise = sampler_noise(m->sampler, sequence_len(m->seq) + 1, r->max_depth);
}

// A draft that fails again and again is not called any more: guesses are worth no failed steps.
static void give_up_drafts(const struct drafting *d, struct member *const *in, int n) {
    for (int i = 0; i < d->c.n_drafts; i++)
        for (int m = 0; d->failures[i] >= STEP_DRAFT_FAILURES && m < n; m++)
            in[m]->c.drafts &= ~(1u << i);
}

// One call of a draft for all members that ask it.
static int call_draft(struct drafting *d, int which, struct member *const *in, int n,
                      struct err *e) {
    int count = 0;
    for (int i = 0; i < n; i++) {
        if (!(in[i]->asked >> which & 1))
            continue;
        d->requests[count] = d->of[i].request;
        if (in[i]->c.budget)
            d->requests[count].useful_depth = d->share.draft[which].depth;
        d->proposals[count++] = &d->of[i].p[which];
    }
    if (!count)
        return 0;
    d->called |= 1u << which;
    int rc = drafter_propose(d->c.drafts[which], d->requests, count, d->proposals, e);
    for (int i = 0; !rc && i < count; i++)
        if (d->proposals[i]->expand_many)
            d->expand[which] = d->proposals[i]->expand_many;
    return rc;
}

// The member's own drafters. One that fails is this member's failure.
static void call_own(struct member *m, struct guesses *g) {
    struct proposal *p = &g->p[0];
    for (int d = 0; m->drafted && !m->rc && d < m->c.n_drafters; d++)
        m->rc = drafter_propose(m->c.drafters[d], &g->request, 1, &p, &m->err);
}

static void note_failure(struct drafting *d, int which, int rc, const struct err *why) {
    d->failed |= 1u << which;
    d->why = *why;
    d->why.code = rc;
}

// What that draft guesses is missing in this step.
static void leave_out(struct drafting *d, int which, int n, int rc, const struct err *why) {
    note_failure(d, which, rc, why);
    for (int i = 0; i < n; i++)
        d->of[i].p[which] = (struct proposal){0};
}

static void call_all(struct drafting *d, struct member *const *in, int n) {
    for (int i = 0; i < n; i++)
        fill_request(d, in[i], &d->of[i]);
    for (int which = 0; which < max_i32(d->c.n_drafts, 1); which++) {
        struct err e = {0};
        double start = clock_ms();
        d->expand[which] = NULL;
        int rc = which < d->c.n_drafts ? call_draft(d, which, in, n, &e) : 0;
        if (rc)
            leave_out(d, which, n, rc, &e);
        for (int i = 0; which == 0 && i < n; i++)
            call_own(in[i], &d->of[i]);
        d->share.draft[which].ms = clock_ms() - start;
    }
}

// A drafter's mistake must not become everybody's: tokens outside the vocabulary would make the
// whole pass impossible.
static int check_tree(const struct drafting *d, struct member *m) {
    for (int i = 1; i < m->tree.n; i++)
        if (m->tree.token[i] < 0 || m->tree.token[i] >= d->vocab)
            return err_set(&m->err, ERR_USAGE,
                           "a drafter guessed token id %d, which is outside the vocabulary of %lld",
                           m->tree.token[i], (long long)d->vocab);
    return 0;
}

// Whether the member's tree may have nodes that no drafter gave: those that its constraint
// expects, where it guesses at all.
static bool expects(const struct member *m) {
    return m->masks && m->phase == MEMBER_DECODE && m->c.tree.budget > 0 && guesses_at_all(m);
}

static void take_tree(const struct drafting *d, struct member *m) {
    m->rc = m->rc ? m->rc : check_tree(d, m);
    m->tree.n = m->rc ? 1 : m->tree.n;
    if (m->masks)
        masks_take(m->masks, &m->tree);
}

// What all drafts propose for the member, in g->base: of one as it is, of several mixed. Returns
// the mix, or NULL with the draft in *one.
static struct mix *join_proposals(const struct member *m, struct guesses *g, int *one) {
    struct mix_part parts[PRICE_DRAFTS];
    int n = 0;
    *one = 0;
    for (int d = 0; d < PRICE_DRAFTS; d++)
        if (g->p[d].depth > 0)
            parts[n++] = (struct mix_part){&g->p[d], mix_weight(&m->record[d]), d};
    if (n > 1) {
        mix_offer(g->mix, parts, n, &g->base);
        return g->mix;
    }
    *one = n ? parts[0].draft : 0;
    g->base = g->p[*one];
    g->base.origin = (uint8_t)(TREE_BY_CANDIDATES << *one);
    for (int c = 0; *one && c < g->p[0].n_chains; c++) // the member's own
        g->base.chains[g->base.n_chains++] = g->p[0].chains[c];
    return NULL;
}

// Whether the tree can grow together with others: every draft that depends on the path is one that
// is called for all. *grew: these.
static bool grows(const struct drafting *d, const struct guesses *g, unsigned *grew) {
    *grew = 0;
    for (int i = 0; i < PRICE_DRAFTS; i++) {
        const struct proposal *p = &g->p[i];
        if (!p->depth || !p->expand)
            continue;
        if (!p->expand_many || p->width <= 0 || p->expand_many != d->expand[i])
            return false;
        *grew |= 1u << i;
    }
    return *grew != 0;
}

// Where the time counts that building a tree takes: that of a draft whose pairs are computed as the
// tree asks for them; NULL: nowhere.
static double *time_of_pairs(struct drafting *d, const struct guesses *g) {
    for (int i = 0; i < PRICE_DRAFTS; i++)
        if (g->p[i].depth > 0 && g->p[i].pair)
            return &d->share.draft[i].ms;
    return NULL;
}

// Builds the member's tree of at most `nodes` nodes besides the root, or begins to: *growing counts
// those that grow together.
static void build_tree(struct drafting *d, struct member *m, struct guesses *g, int64_t nodes,
                       int *growing) {
    struct tree_options o = m->c.tree;
    struct proposal allowed, *of = &g->base;
    unsigned grew;
    int one;
    o.budget = (int)min_i64(o.budget, nodes);
    o.max_depth = g->request.max_depth;
    if (m->rc || !(m->drafted || expects(m)))
        return;
    struct mix *mix = join_proposals(m, g, &one);
    struct growth *y = d->growing && grows(d, g, &grew) ? &d->growing[(*growing)++] : NULL;
    if (m->masks) {
        o.max_depth = limit_of(m);
        of = y ? &y->allowed : &allowed;
        masks_offer(m->masks, &g->base, &o, of);
    }
    if (y) {
        d->grew |= grew;
        *y = (struct growth){.build = y->build,
                             .allowed = y->allowed,
                             .m = m,
                             .mix = mix,
                             .draft = one,
                             .own = {.arg = g->base.expand_arg},
                             .requested = true};
        ddtree_start(y->build, m->root, of, &o);
        return;
    }
    double *ms = time_of_pairs(d, g);
    const double start = clock_ms();
    m->rc = ddtree_build(&m->tree, m->root, of, &o, &m->err);
    if (ms)
        *ms += clock_ms() - start;
    d->failed |= mix ? mix_failed(mix) : 0;
    take_tree(d, m);
}

// What is requested of a draft for the next level of a tree; NULL: nothing.
static struct tree_question *question_of(struct growth *y, int which) {
    if (!y->requested)
        return NULL;
    return y->mix ? mix_question(y->mix, which) : which == y->draft ? &y->own : NULL;
}

// Requests the candidates of nodes[n]; false: no draft is needed for them.
static bool request_level(struct growth *y, const struct tree_node *nodes, int n, int k) {
    bool any = false;
    if (!y->mix) {
        y->own = (struct tree_question){y->own.arg, nodes, n, k, {0}};
        return true;
    }
    mix_level(y->mix, nodes, n, k);
    for (int d = 0; d < PRICE_DRAFTS; d++)
        any = any || mix_question(y->mix, d);
    return any;
}

// Goes on with the candidates of a level, of drafts if these were called or mixed.
static void answer_level(struct growth *y, bool guessed) {
    struct tree_candidates own = {0};
    if (guessed)
        own = y->mix ? mix_answer(y->mix) : y->own.answer;
    if (y->m->masks)
        own = masks_answer(y->m->masks, guessed ? &own : NULL);
    ddtree_answer(y->build, &own);
}

static void finish_tree(const struct drafting *d, struct growth *y) {
    if (!y->m->rc)
        ddtree_finish(y->build, &y->m->tree);
    y->requested = false;
    take_tree(d, y->m);
}

// Goes on with a tree until a draft is needed or the tree is complete. Masks may need none for a
// level.
static void grow_tree(const struct drafting *d, struct growth *y) {
    struct member *m = y->m;
    const struct tree_node *nodes;
    for (int n; !m->rc && (n = ddtree_level(y->build, &nodes)) > 0;) {
        int k = ddtree_candidates(y->build);
        if (m->masks) {
            k = masks_candidates(m->masks);
            n = masks_level(m->masks, nodes, n, &nodes, &m->err);
            m->rc = min_i32(n, 0);
        }
        if (m->rc)
            break;
        if (n > 0 && request_level(y, nodes, n, k))
            return;
        answer_level(y, n > 0);
    }
    finish_tree(d, y);
}

// One call of a draft for the levels of all trees that need it.
static void call_level(struct drafting *d, int which, int growing) {
    struct err e = {0};
    int count = 0;
    for (int i = 0; i < growing; i++) {
        struct tree_question *q = question_of(&d->growing[i], which);
        if (!q)
            continue;
        d->questions[count] = *q;
        d->askers[count++] = q;
    }
    if (!count)
        return;
    double start = clock_ms();
    int rc = d->expand[which](d->questions, count, &e);
    d->share.draft[which].ms += clock_ms() - start;
    for (int i = 0; !rc && i < count; i++)
        *d->askers[i] = d->questions[i];
    if (!rc)
        return;
    note_failure(d, which, rc, &e);
    for (int i = 0; i < growing; i++) {
        struct growth *y = &d->growing[i];
        if (y->mix)
            mix_drop(y->mix, which);
        else if (question_of(y, which))
            finish_tree(d, y); // with what it has
    }
}

// Trees whose candidates depend on the path, level by level.
static void grow_trees(struct drafting *d, int growing) {
    for (bool more = growing > 0; more;) {
        more = false;
        for (int i = 0; i < growing; i++)
            if (d->growing[i].requested)
                grow_tree(d, &d->growing[i]);
        for (int which = 0; which < d->c.n_drafts; which++)
            call_level(d, which, growing);
        for (int i = 0; i < growing; i++) {
            if (d->growing[i].requested)
                answer_level(&d->growing[i], true);
            more = more || d->growing[i].requested;
        }
    }
}

// Counts failures. Where all drafts that were called have failed, that is the step's.
static int judge_drafts(struct drafting *d, struct err *e) {
    for (int i = 0; i < d->c.n_drafts; i++) {
        if (d->called >> i & 1)
            d->failures[i] = d->failed >> i & 1 ? d->failures[i] + 1 : 0;
        // Others' guesses took the place of its own, or it failed: not what its passes take.
        if (d->failed >> i & 1 || (drafter_by_path(d->c.drafts[i]) && !(d->grew >> i & 1)))
            d->share.draft[i].ms = 0;
    }
    if (!d->failed || d->failed != d->called)
        return 0;
    if (e)
        *e = d->why;
    return d->why.code;
}

// Shares the rows among the trees of members with budgets.
static void share_rows(struct drafting *d, struct member *const *in, int n, int64_t rows) {
    int64_t fixed = 0;
    for (int i = 0; i < n; i++)
        if (in[i]->phase == MEMBER_DECODE && !in[i]->c.budget)
            fixed += in[i]->tree.n;
    d->share.other_rows += fixed;
    d->share.max_rows = (int)(rows - fixed);
    budget_share(&d->share);
    for (int i = 0; i < d->share.n; i++)
        d->owner[i]->tree.n = 1 + d->budgeted[i].nodes;
}

void drafting_reset(struct drafting *d) {
    d->share = (struct budget_step){0};
    d->called = d->failed = d->grew = 0;
}

int drafting_run(struct drafting *d, struct member *const *in, int n,
                 const struct drafting_rows *of, struct err *e) {
    int64_t sampled = 0, decoding = 0;
    int growing = 0;
    for (int i = 0; i < n; i++) {
        decoding += in[i]->phase == MEMBER_DECODE;
        if (in[i]->phase == MEMBER_PROMPT)
            sampled += step_known(in[i]) + step_sampled_rows(in[i]);
    }
    give_up_drafts(d, in, n);
    int64_t rows = min_i64(of->trees, d->max_verify - sampled);
    int64_t max = rows / decoding - 1;
    begin_budgets(d, in, n, of->pieces, max);
    call_all(d, in, n);
    for (int i = 0; i < n; i++)
        build_tree(d, in[i], &d->of[i], in[i]->c.budget ? rows - decoding : max, &growing);
    grow_trees(d, growing);
    int rc = judge_drafts(d, e);
    if (!rc && d->share.n)
        share_rows(d, in, n, rows);
    return rc;
}

void drafting_learn(struct drafting *d, struct member *const *in, int n, double pass_ms) {
    struct budget_step *b = &d->share;
    int budgets = 0;
    for (int i = 0; i < n; i++)
        if (in[i]->asked)
            mix_learn(in[i]->record, &in[i]->tree, &in[i]->walk);
    for (int i = 0; i < b->n; i++) {
        const struct member *m = d->owner[i];
        if (m->rc)
            continue;
        d->budgeted[budgets] = d->budgeted[i];
        d->budgeted[budgets++].walk = &m->walk;
    }
    b->n = budgets;
    b->pass_ms = pass_ms;
    if (budgets)
        budget_note(b);
}
