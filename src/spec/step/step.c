// SPDX-License-Identifier: Apache-2.0
// The step. Guesses decide only which rows are computed besides the roots: the chosen
// tokens and the logits that decide them are those of plain decoding (docs/exactness.md). Row i of
// a member's tree is row first + i of the pass and row first_logits + i of the rows whose logits
// are requested; a piece of a prompt, and a root without guesses, are chains that are committed as
// they run.
#include "spec/step/step.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/memory/arena.h"
#include "base/num.h"
#include "ops/observe/timing.h"
#include "spec/constraint/masks.h"
#include "spec/step/drafting.h"

struct step {
    struct step_config c;
    struct exec *x;
    int64_t vocab;
    int64_t max_rows, max_verify; // of a pass, of trees and chosen tokens
    struct drafting *drafting;
    struct forest forest;
    struct arena arena;       // of what follows:
    struct member **in;       // [max_members] those that take part
    struct sequence **seqs;   // [max_members] theirs
    struct model_path *paths; // [max_members]
    int32_t *path_rows;       // [max_verify] rows of the paths
    struct sample_row *rows;  // [max_verify] of the wanted rows
    int32_t *choice;          // [max_verify] what was chosen after them
    float *row;               // [vocab] host copy of one logits row, for hashes
    struct step_times ms;     // of the newest step
};

static int check_budget(const struct tree_options *t, struct err *e) {
    if (t->budget < 0 || t->budget > TREE_MAX_BUDGET)
        return err_set(e, ERR_USAGE, "a budget of %d nodes is not within 0 to %d", t->budget,
                       TREE_MAX_BUDGET);
    return 0;
}

static int make_logprobs(struct member *m, const struct model *model, struct err *e) {
    size_t known = (size_t)model_max_verify(model);
    if (m->c.n_best < 0 || m->c.n_best > OPS_LOGPROBS_MAX)
        return err_set(e, ERR_USAGE, "log-probabilities of %d best tokens are not within 0 to %d",
                       m->c.n_best, OPS_LOGPROBS_MAX);
    m->logprobs = calloc(TREE_MAX_DEPTH + 1, sizeof *m->logprobs);
    m->known = calloc(known, sizeof *m->known);
    if (!m->logprobs || !m->known)
        return err_set(e, ERR_MEMORY, "no memory for log-probabilities");
    return 0;
}

int member_init(struct member *m, const struct model *model, const struct member_config *c,
                struct err *e) {
    memset(m, 0, sizeof *m);
    m->c = *c;
    int rc = check_budget(&c->tree, e);
    // A device chooses after every row in one batch, a CPU after one row after the other.
    bool batched = exec_ops(model_exec(model))->sample_batched;
    if (!rc)
        rc = sampler_create(&m->sampler, &c->sample, batched ? 1 + c->tree.budget : 1,
                            (int)model_params_of(model)->vocab, e);
    if (!rc && c->logprobs)
        rc = make_logprobs(m, model, e);
    if (!rc && c->constraint)
        rc = masks_create(&m->masks, c->constraint, model_params_of(model)->vocab, e);
    return rc;
}

void member_fini(struct member *m) {
    sampler_destroy(m->sampler);
    masks_destroy(m->masks);
    free(m->logprobs);
    free(m->known);
    m->sampler = NULL;
    m->masks = NULL;
    m->logprobs = m->known = NULL;
}

// The time of a pass with pieces of prompts.
static void learn_prompts(struct step *s, int n) {
    const struct step_times *t = &s->ms;
    bool pieces = false;
    for (int i = 0; i < n; i++)
        pieces = pieces || s->in[i]->phase == MEMBER_PROMPT;
    if (pieces && s->c.prompts)
        price_note_pass(s->c.prompts, s->forest.n, n,
                        t->prompt + t->verify + t->sample + t->commit);
}

// Log-probabilities after the rows of a pass. They are requested when the walks are done, of
// tokens that are known by then: those of prompts, and those that were chosen on the paths. So they
// come from the rows that decided, rows outside the paths cost nothing, and a row gives the same
// bits whether its token was chosen from a tree, chosen plainly, or given in a prompt.

static void ask_logprob(struct step *s, int64_t row, int32_t token, int n_best,
                        struct sample_logprobs *p) {
    p->n = n_best;
    s->rows[row] = (struct sample_row){.given = true, .token = token, .logprobs = p};
}

static void ask_member(struct step *s, struct member *m) {
    int64_t known = step_known(m);
    for (int64_t i = 0; i < known; i++)
        ask_logprob(s, m->first_logits - known + i, m->piece[i + 1], m->c.n_best, &m->known[i]);
    for (int i = 0; i < m->walk.count; i++)
        ask_logprob(s, m->first_logits + m->walk.path[i], m->walk.chosen[i], m->c.n_best,
                    &m->logprobs[i]);
}

// The wanted rows [at, at + n), which are one slice; those at its ends that no member requested are
// left out.
static void run_slice(struct step *s, int64_t at, int64_t n) {
    int64_t first = at, end = at + n;
    while (first < end && !s->rows[first].logprobs)
        first++;
    while (end > first && !s->rows[end - 1].logprobs)
        end--;
    if (first == end)
        return;
    const float *logits = model_logits(s->c.model, at, n) + (first - at) * s->vocab;
    exec_ops(s->x)->sample(s->x, logits, end - first, s->vocab, s->rows + first, s->choice + first);
}

// Log-probabilities of known tokens and of what the walks have chosen, for members that request
// them. It fails only where the device does.
static int step_logprobs(struct step *s, int n, struct err *e) {
    int64_t max = model_logits_rows(s->c.model), wanted = model_wanted(s->c.model);
    bool any = false;
    for (int i = 0; i < n; i++)
        any = any || s->in[i]->c.logprobs;
    if (!any)
        return 0;
    for (int64_t row = 0; row < wanted; row++)
        s->rows[row] = (struct sample_row){.given = true};
    for (int i = 0; i < n; i++)
        if (s->in[i]->c.logprobs)
            ask_member(s, s->in[i]);
    for (int64_t at = 0; at < wanted; at += max)
        run_slice(s, at, min_i64(wanted - at, max));
    return exec_status(s->x, e);
}

// Adds the milliseconds since *from to *phase and moves *from on.
static void step_add_time(double *phase, double *from) {
    double now = clock_ms();
    *phase += now - *from;
    *from = now;
}

void step_times_add(struct step_times *sum, const struct step_times *more) {
    sum->prompt += more->prompt;
    sum->draft += more->draft;
    sum->verify += more->verify;
    sum->sample += more->sample;
    sum->commit += more->commit;
}

static int step_init(struct step *s, struct err *e) {
    size_t n = (size_t)s->c.max_members, rows = (size_t)s->max_verify;
    const struct {
        void *at; // of a pointer
        size_t n, size;
    } arrays[] = {{&s->in, n, sizeof *s->in},
                  {&s->seqs, n, sizeof *s->seqs},
                  {&s->paths, n, sizeof *s->paths},
                  {&s->path_rows, rows, sizeof *s->path_rows},
                  {&s->rows, rows, sizeof *s->rows},
                  {&s->choice, rows, sizeof *s->choice},
                  {&s->row, (size_t)s->vocab, sizeof *s->row}};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        void *p = arena_array(&s->arena, arrays[i].n, arrays[i].size);
        if (!p)
            return err_set(e, ERR_MEMORY, "no memory for steps of %d members", s->c.max_members);
        memcpy(arrays[i].at, &p, sizeof p);
    }
    int rc = drafting_create(&s->drafting, &s->c, e);
    return rc ? rc : forest_init(&s->forest, s->max_rows, e);
}

int step_create(struct step **out, const struct step_config *c, struct err *e) {
    int max =
        min_i32(model_max_seqs(c->model), model_max_verify(c->model)); // one row each at least
    if (c->max_members < 1 || c->max_members > max)
        return err_set(e, ERR_USAGE,
                       "steps of %d members are not possible; the model was loaded "
                       "for passes of at most %d sequences",
                       c->max_members, max);
    struct step *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for a step");
    s->c = *c;
    s->x = model_exec(c->model);
    s->vocab = model_params_of(c->model)->vocab;
    s->max_rows = model_max_rows(c->model);
    s->max_verify = model_max_verify(c->model);
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
    drafting_destroy(s->drafting);
    forest_fini(&s->forest);
    arena_fini(&s->arena);
    free(s);
}

int64_t step_max_verify(const struct step *s) {
    return s->max_verify;
}

struct step_times step_times_of(const struct step *s) {
    return s->ms;
}

// A member without guesses runs its rows as a chain.
static bool is_chain(const struct member *m) {
    return m->phase == MEMBER_PROMPT || m->tree.n == 1;
}

static int64_t rows_of(const struct member *m) {
    return m->phase == MEMBER_PROMPT ? m->n_piece : m->tree.n;
}

// Most tokens that the step may make part of the member's sequence.
static int64_t grows_by(const struct member *m) {
    int deepest = 0;
    if (is_chain(m))
        return rows_of(m);
    for (int i = 1; i < m->tree.n; i++)
        deepest = max_i32(deepest, m->tree.depth[i]);
    return 1 + deepest;
}

static int check_members(const struct step *s, struct member *const *members, int n,
                         struct err *e) {
    int64_t rows = 0, choices = 0; // without guesses
    if (n < 1 || n > s->c.max_members)
        return err_set(e, ERR_USAGE, "a step of %d members is not within 1 to %d", n,
                       s->c.max_members);
    for (int i = 0; i < n; i++) {
        const struct member *m = members[i];
        int64_t known = step_known(m);
        if (m->phase == MEMBER_PROMPT && m->n_piece < 1)
            return err_set(e, ERR_USAGE, "member %d has no prompt tokens to run", i);
        if (known && (known < 0 || !m->c.logprobs || known > m->n_piece - m->choose))
            return err_set(e, ERR_USAGE,
                           "member %d cannot give %lld log-probabilities of its piece", i,
                           (long long)known);
        rows += m->phase == MEMBER_PROMPT ? m->n_piece : 1;
        choices += known + (m->phase == MEMBER_DECODE || m->choose);
    }
    if (rows > s->max_rows || choices > s->max_verify)
        return err_set(e, ERR_USAGE,
                       "a pass of %lld rows and %lld choices is not within %lld rows and %lld "
                       "choices; run it in pieces",
                       (long long)rows, (long long)choices, (long long)s->max_rows,
                       (long long)s->max_verify);
    return 0;
}

// Reserves the memory that each member needs; those that cannot have it are left out. Returns how
// many are left, packed to the front of s->in.
static int reserve_members(struct step *s, int n) {
    int kept = 0;
    for (int i = 0; i < n; i++) {
        struct member *m = s->in[i];
        if (!m->rc)
            m->rc = sequence_reserve(m->seq, grows_by(m), &m->err);
        if (!m->rc)
            s->in[kept++] = m;
    }
    return kept;
}

static void add_tree(struct step *s, struct member *m, int seq) {
    const struct ddtree *t = &m->tree;
    m->first = forest_root(&s->forest, seq, sequence_len(m->seq), t->token[0], true);
    for (int i = 1; i < t->n; i++)
        forest_add(&s->forest, m->first + t->parent[i], t->token[i], true);
}

static void build_forest(struct step *s, int n) {
    int64_t logits = 0;
    forest_reset(&s->forest);
    for (int i = 0; i < n; i++) {
        struct member *m = s->in[i];
        const bool piece = m->phase == MEMBER_PROMPT;
        s->seqs[i] = m->seq;
        m->first = (int32_t)s->forest.n;
        m->first_logits = (int32_t)(logits + step_known(m));
        logits = m->first_logits + step_sampled_rows(m);
        if (is_chain(m))
            forest_chain(&s->forest, i, sequence_len(m->seq), piece ? m->piece : m->tree.token,
                         rows_of(m), piece ? m->choose : true);
        else
            add_tree(s, m, i);
        forest_request_logits(&s->forest, m->first, step_known(m));
    }
}

// The member's rows as its sampler sees them, after the pass: a chain has been committed by then.
static struct sampler_batch member_batch(const struct member *m) {
    return (struct sampler_batch){.token = m->tree.token,
                                  .parent = m->tree.parent,
                                  .n = m->tree.n,
                                  .committed = sequence_tokens(m->seq),
                                  .len = sequence_len(m->seq) - is_chain(m)};
}

// How the choice after a row of the member is made. Its constraint may leave one token, which is
// given, or none, which is said by -1; of the first row that is the member's failure.
static struct sample_row choice_row(struct member *m, const struct sampler_batch *b, int row,
                                    int slot) {
    struct sample_row r = *sampler_row(m->sampler, b, row, slot);
    struct constraint_view v;
    if (!m->masks)
        return r;
    if (row == 0)
        m->rc = masks_look(m->masks, row, &v, &m->err);
    else
        (void)masks_look(m->masks, row, &v, NULL);
    if (v.none || v.only >= 0)
        return (struct sample_row){.given = true, .token = v.only};
    r.allow = v.allow;
    sampler_yield(m->sampler, &r);
    return r;
}

// Chooses after every wanted row, slice by slice: a row's draw and penalties depend on its own path
// only, so what is chosen on the walked path does not depend on the rest.
static void choose_all(struct step *s, int n) {
    int64_t max = model_logits_rows(s->c.model), wanted = model_wanted(s->c.model);
    for (int i = 0; i < n; i++) {
        struct member *m = s->in[i];
        struct sampler_batch b = member_batch(m);
        for (int64_t row = m->first_logits - step_known(m); row < m->first_logits; row++)
            s->rows[row] = (struct sample_row){.given = true};
        for (int row = 0; row < step_sampled_rows(m); row++)
            s->rows[m->first_logits + row] = choice_row(m, &b, row, row);
    }
    for (int64_t at = 0; at < wanted; at += max) {
        int64_t slice = min_i64(wanted - at, max);
        exec_ops(s->x)->sample(s->x, model_logits(s->c.model, at, slice), slice, s->vocab,
                               s->rows + at, s->choice + at);
    }
}

// Chooses along the path that the member's choices take; rows outside it are not sampled. Logits
// are computed when they are requested: that is part of the pass, and counts in *phase from *t on.
static void choose_path(struct step *s, struct member *m, double *phase, double *t) {
    struct sampler_batch b = member_batch(m);
    int row = 0;
    if (!step_sampled_rows(m))
        return;
    do {
        int32_t *choice = &s->choice[m->first_logits + row];
        struct sample_row r = choice_row(m, &b, row, 0);
        *choice = r.token;
        if (!r.given) {
            step_add_time(&s->ms.sample, t);
            const float *logits = model_logits_at(s->c.model, m->first_logits + row);
            step_add_time(phase, t);
            exec_ops(s->x)->sample(s->x, logits, 1, s->vocab, &r, choice);
        }
        row = ddtree_child(&m->tree, row, *choice);
    } while (row >= 0);
}

static void precompute(void *model) {
    model_precompute(model);
}

// Chooses after all rows. While the host waits for the choices, what a draft needs of each row that
// may be committed is computed of all of them.
static void choose_batch(struct step *s, int n) {
    bool drafts = false;
    for (int i = 0; i < n; i++)
        drafts = drafts || s->in[i]->asked;
    if (drafts)
        exec_overlap(s->x, (struct overlapped_work){precompute, s->c.model});
    choose_all(s, n);
    exec_overlap(s->x, (struct overlapped_work){0}); // where nothing waited
}

// The pass and the choices that are needed of it.
static int run_pass(struct step *s, int n, bool pieces_only, struct err *e) {
    double t = clock_ms(), *phase = pieces_only ? &s->ms.prompt : &s->ms.verify;
    bool batched = exec_ops(s->x)->sample_batched;
    int rc = model_forward(s->c.model, &s->forest, s->seqs, n, e);
    if (!rc && !batched)
        rc = exec_status(s->x, e);
    if (rc)
        return rc;
    if (batched)
        choose_batch(s, n);
    else
        step_add_time(phase, &t);
    for (int i = 0; !batched && i < n; i++)
        choose_path(s, s->in[i], phase, &t);
    rc = exec_status(s->x, e); // a walk may only follow choices that were made
    step_add_time(batched ? phase : &s->ms.sample, &t);
    return rc;
}

// Adds the rows that decided to the members' hashes. It fails only where the device does.
static int hash_paths(struct step *s, int n, struct err *e) {
    size_t bytes = (size_t)s->vocab * sizeof *s->row;
    bool any = false;
    for (int i = 0; i < n; i++) {
        struct member *m = s->in[i];
        for (int j = 0; m->c.hash && j < m->walk.count; j++) {
            if (m->masks && masks_forced(m->masks, m->walk.path[j]))
                continue;
            exec_ops(s->x)->download(s->x, s->row,
                                     model_logits_at(s->c.model, m->first_logits + m->walk.path[j]),
                                     bytes);
            m->hash = hash_bytes(s->row, bytes, m->hash);
            any = true;
        }
    }
    return any ? exec_status(s->x, e) : 0;
}

// Each member's walk; rows are hashed, and give log-probabilities, before trees are committed and
// outside of all phases: reading them waits for the device, and after the commit that would hide
// what a commit takes.
static int walk_all(struct step *s, int n, struct err *e) {
    double t = clock_ms();
    for (int i = 0; i < n; i++) {
        struct member *m = s->in[i];
        if (step_sampled_rows(m))
            walk_tree(&m->tree, s->choice + m->first_logits, &m->limits, &m->walk);
    }
    step_add_time(&s->ms.sample, &t);
    int rc = step_logprobs(s, n, e);
    return rc ? rc : hash_paths(s, n, e);
}

// The walked paths of all trees become part of their sequences.
static int commit_all(struct step *s, int n, struct err *e) {
    double t = clock_ms();
    int paths = 0;
    int32_t *at = s->path_rows;
    for (int i = 0; i < n; i++) {
        const struct member *m = s->in[i];
        if (is_chain(m))
            continue;
        // Where nothing could be chosen the root still becomes part of the sequence, as without
        // guesses.
        int count = max_i32(m->walk.count, 1);
        s->paths[paths++] = (struct model_path){.seq = i, .rows = at, .count = count};
        for (int j = 0; j < count; j++)
            *at++ = m->first + m->walk.path[j];
    }
    if (!paths)
        return 0;
    timing_section(s->x, "commit");
    int rc = model_commit(s->c.model, s->seqs, s->paths, paths, e);
    step_add_time(&s->ms.commit, &t);
    return rc;
}

// What is left when nothing of the step can fail any more: a step that failed can be run again.
static void finish_members(struct step *s, int n) {
    for (int i = 0; i < n; i++) {
        struct member *m = s->in[i];
        if (m->masks && m->walk.count)
            masks_advance(m->masks, &m->walk);
    }
    learn_prompts(s, n);
    drafting_learn(s->drafting, s->in, n, s->ms.verify + s->ms.sample + s->ms.commit);
}

static void begin_members(struct step *s, struct member *const *members, int n) {
    s->ms = (struct step_times){0};
    drafting_reset(s->drafting);
    for (int i = 0; i < n; i++) {
        struct member *m = members[i];
        s->in[i] = m;
        m->rc = 0;
        m->drafted = false;
        m->asked = 0;
        m->walk = (struct walk){0};
        m->tree.n = 1;
        m->tree.token[0] = m->phase == MEMBER_PROMPT ? m->piece[m->n_piece - 1] : m->root;
        m->tree.parent[0] = -1;
        m->tree.depth[0] = 0;
        m->tree.score[0] = 0;
        // What is only read needs no mask, which may take long to make.
        if (m->masks && (m->phase == MEMBER_DECODE || m->choose)) {
            m->rc = masks_begin(m->masks, &m->err);
            masks_take(m->masks, &m->tree);
        }
    }
}

int step_run(struct step *s, struct member *const *members, int n, struct err *e) {
    int64_t pieces = 0, decoding = 0;
    bool pieces_only = true, trees = false;
    int rc = check_members(s, members, n, e);
    if (rc)
        return rc;
    begin_members(s, members, n);
    for (int i = 0; i < n; i++) {
        const bool piece = members[i]->phase == MEMBER_PROMPT;
        pieces += piece ? members[i]->n_piece : 0;
        decoding += !piece;
        pieces_only = pieces_only && piece;
    }
    double t = clock_ms();
    timing_section(s->x, "draft");
    if (!pieces_only) {
        int64_t max = model_rows_without_new_loan(s->c.model, pieces + decoding);
        rc = drafting_run(s->drafting, s->in, n, &(struct drafting_rows){pieces, max - pieces}, e);
    }
    step_add_time(&s->ms.draft, &t);
    n = rc ? n : reserve_members(s, n);
    if (rc || n == 0)
        return rc;
    for (int i = 0; i < n; i++)
        trees = trees || !is_chain(s->in[i]);
    build_forest(s, n);
    timing_section(s->x, pieces_only ? "prompt" : trees ? "verify" : "plain");
    rc = run_pass(s, n, pieces_only, e);
    if (!rc)
        rc = walk_all(s, n, e);
    if (!rc)
        rc = commit_all(s, n, e);
    if (!rc)
        finish_members(s, n);
    return rc;
}
