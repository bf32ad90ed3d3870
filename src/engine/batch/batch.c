// SPDX-License-Identifier: Apache-2.0
// A job runs pieces of its prompt until all of it is run, then decoding steps until a limit, an end
// token or its caller ends it.
#include "engine/batch/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/num.h"
#include "spec/constraint/masks.h"

struct job {
    struct batch *b;
    struct request r;
    struct reply *out;
    struct member m;
    bool owned; // the sequence is the job's
    bool parked;
    bool unfinished;      // its mask was, in its last step
    int32_t *recomputed;  // [n_recomputed] prompt and tokens that are run again, of a job that was
                          // dropped
    int64_t n_recomputed; // 0: none
    int64_t furthest;     // tokens that have been run at most
    int64_t before;       // tokens of the sequence before the present step
    int64_t stop_next;    // the token of the reply that the walk stands at
    int64_t stop_checked; // tokens of the reply that the request's `stop` has been called for,
    bool stops;           // and its answer for the last of them
    struct drafter *drafters[STEP_MAX_DRAFTERS];
    int n_drafters;
    struct budget *budget;        // of the session, lent; NULL: a fixed one
    int64_t max_new;              // new tokens that limit and context allow
    int next_checkpoint_position; // of the request's checkpoints
    int rc;                       // of a failure
    struct err err;
    double start;
    struct job *next; // in the order of joining
};

struct batch {
    struct session *s;
    struct step *step;
    int max_members;
    struct job *jobs;
    struct job **in;           // [max_members] those of this step
    struct member **members;   // [max_members] theirs
    struct pass_slice *slices; // [max_members] those of batch_step
};

int batch_create(struct batch **out, struct session *s, int max_members, struct err *e) {
    struct batch *b = calloc(1, sizeof *b);
    if (!b)
        return err_set(e, ERR_MEMORY, "no memory for a batch of requests");
    b->s = s;
    b->max_members = max_members;
    struct step_config c = {.model = session_model(s),
                            .price = session_price(s),
                            .prompts = session_prompt_price(s),
                            .max_members = max_members};
    for (; c.n_drafts < PRICE_DRAFTS && session_drafters(s)[c.n_drafts]; c.n_drafts++)
        c.drafts[c.n_drafts] = session_drafters(s)[c.n_drafts];
    int rc = step_create(&b->step, &c, e);
    if (!rc) {
        b->in = calloc((size_t)max_members, sizeof *b->in);
        b->members = calloc((size_t)max_members, sizeof *b->members);
        b->slices = calloc((size_t)max_members, sizeof *b->slices);
        if (!b->in || !b->members || !b->slices)
            rc = err_set(e, ERR_MEMORY, "no memory for a batch of %d requests", max_members);
    }
    if (rc) {
        batch_destroy(b);
        return rc;
    }
    *out = b;
    return 0;
}

void batch_destroy(struct batch *b) {
    if (!b)
        return;
    while (b->jobs)
        batch_leave(b, b->jobs);
    step_destroy(b->step);
    free(b->in);
    free(b->members);
    free(b->slices);
    free(b);
}

// Whether a token ends the reply by itself.
static bool is_end(const struct job *j, int32_t id) {
    const struct tokenizer *t = session_tokenizer(j->b->s);
    for (int i = 0; i < j->r.n_stop_ids; i++)
        if (j->r.stop_ids[i] == id)
            return true;
    return !j->r.ignore_eos && t && tokenizer_is_eog(t, id);
}

// The request's own answer, which is requested once for each token, also where a step fails after
// its walk and the tokens are chosen again.
static bool asks_to_stop(struct job *j, int32_t id) {
    if (j->stop_next++ < j->stop_checked)
        return j->stops && j->stop_next == j->stop_checked;
    j->stop_checked = j->stop_next;
    j->stops = j->r.stop && j->r.stop(j->r.stop_arg, id);
    return j->stops;
}

static bool is_stop(void *arg, int32_t id) {
    struct job *j = arg;
    return asks_to_stop(j, id) || is_end(j, id);
}

// Has the sampler keep tokens that end the reply out of its first ones; *ids is for the caller to
// free when the sampler has been made.
static int keep_ends_out(const struct job *j, struct sample_params *p, int32_t **ids,
                         struct err *e) {
    const struct tokenizer *t = j->r.ignore_eos ? NULL : session_tokenizer(j->b->s);
    int32_t size = t ? tokenizer_size(t) : 0;
    int64_t n = j->r.n_stop_ids;
    if (j->r.min_tokens == 0)
        return 0;
    for (int32_t id = 0; id < size; id++)
        n += tokenizer_is_eog(t, id);
    int32_t *list = *ids = malloc((size_t)(n + 1) * sizeof *list);
    if (!list)
        return err_set(e, ERR_MEMORY, "no memory for the tokens that end a reply");
    for (int i = 0; i < j->r.n_stop_ids; i++)
        list[p->n_late++] = j->r.stop_ids[i];
    for (int32_t id = 0; id < size; id++)
        if (tokenizer_is_eog(t, id))
            list[p->n_late++] = id;
    p->late = list;
    p->from = min_i64(j->r.min_tokens, INT64_MAX - j->r.n_prompt) + j->r.n_prompt;
    return 0;
}

static int add_drafter(struct job *j, enum draft_kind kind, struct err *e) {
    struct draft_config c = j->r.oracle;
    c.model = session_model(j->b->s);
    c.draft = session_draft(j->b->s);
    c.max_k = j->r.constraint ? masks_wanted(j->r.tree.k) : j->r.tree.k;
    int rc = drafter_create(&j->drafters[j->n_drafters], kind, &c, e);
    if (!rc)
        j->n_drafters++;
    return rc;
}

// The session's: those that there are not are not called.
static const unsigned ALL_DRAFTS = (1u << PRICE_DRAFTS) - 1;

// The request's way of guessing, as the member takes it.
static int make_drafters(struct job *j, struct member_config *c, struct err *e) {
    int rc = 0;
    switch (j->r.how) {
    case SPECULATE_AUTO: // resolved when the job was made
    case SPECULATE_OFF:
        c->tree.budget = 0;
        break;
    case SPECULATE_CHAIN:
        c->tree.k = 1;
        c->drafts = ALL_DRAFTS;
        break;
    case SPECULATE_TREE:
        c->drafts = ALL_DRAFTS;
        if (!j->r.no_lookup)
            rc = add_drafter(j, DRAFT_LOOKUP, e);
        break;
    case SPECULATE_LOOKUP:
        rc = add_drafter(j, DRAFT_LOOKUP, e);
        break;
    case SPECULATE_ORACLE:
        c->drafts = j->r.oracle.with_draft;
        rc = add_drafter(j, DRAFT_ORACLE, e);
        break;
    }
    memcpy(c->drafters, j->drafters, sizeof c->drafters);
    c->n_drafters = j->n_drafters;
    return rc;
}

static int make_member(struct job *j, struct err *e) {
    struct member_config c = {.sample = j->r.sample,
                              .constraint = j->r.constraint,
                              .tree = j->r.tree,
                              .share_noise = !j->r.no_draft_noise,
                              .hash = j->r.logit_hash,
                              .logprobs = j->r.logprobs >= 0 || j->r.prompt_logprobs,
                              .n_best = max_i32(j->r.logprobs, 0)};
    int rc = make_drafters(j, &c, e);
    if (!rc && j->r.auto_budget && j->r.how != SPECULATE_OFF)
        rc = session_take_budget(j->b->s, &j->budget, e);
    c.budget = j->budget;
    int32_t *ends = NULL;
    if (!rc)
        rc = keep_ends_out(j, &c.sample, &ends, e);
    if (!rc)
        rc = member_init(&j->m, session_model(j->b->s), &c, e);
    j->m.c.sample.late = NULL; // the sampler has its own
    free(ends);
    return rc;
}

static int make_sequence(struct job *j, struct sequence **out, struct err *e) {
    *out = j->r.in_place;
    if (*out)
        return 0;
    j->owned = true;
    return j->r.prefix ? sequence_fork(j->r.prefix, out, e)
                       : model_sequence(session_model(j->b->s), out, e);
}

static int make_reply(struct job *j, struct err *e) {
    j->max_new = min_i64(j->r.max_tokens, model_max_ctx(session_model(j->b->s)) - j->r.n_prompt);
    j->out->ids = calloc((size_t)j->max_new + 1, sizeof *j->out->ids);
    j->out->accepted = calloc((size_t)j->max_new + 1, sizeof *j->out->accepted);
    if (!j->out->ids || !j->out->accepted)
        return err_set(e, ERR_MEMORY, "no memory for %lld new tokens", (long long)j->max_new);
    int rc = 0, best = max_i32(j->r.logprobs, 0);
    if (j->r.logprobs >= 0)
        rc = logprobs_init(&j->out->logprobs, best, j->max_new, e);
    if (!rc && j->r.prompt_logprobs)
        rc = logprobs_init(&j->out->prompt_logprobs, best, j->r.n_prompt - 1, e);
    return rc;
}

static void job_free(struct job *j) {
    member_fini(&j->m);
    if (j->owned)
        sequence_destroy(j->m.seq);
    for (int i = 0; i < j->n_drafters; i++)
        drafter_destroy(j->drafters[i]);
    session_give_budget(j->b->s, j->budget);
    free(j->recomputed);
    free(j);
}

int batch_join(struct batch *b, const struct request *r, struct reply *out, struct job **job,
               struct err *e) {
    *out = (struct reply){0};
    int rc = request_check(r, b->s, e);
    if (rc)
        return rc;
    struct job *j = calloc(1, sizeof *j);
    if (!j)
        return err_set(e, ERR_MEMORY, "no memory for a request");
    struct sequence *seq = NULL;
    j->b = b;
    j->r = *r;
    if (r->how == SPECULATE_AUTO)
        j->r.how = speculate_auto(session_draft(b->s) != NULL);
    j->out = out;
    j->start = clock_ms();
    rc = make_member(j, e);
    if (!rc)
        rc = make_sequence(j, &seq, e);
    if (!rc)
        rc = make_reply(j, e);
    if (!rc)
        rc = sequence_sparse(seq, r->sparse_end ? r->sparse_end : r->n_prompt, e);
    j->m.seq = seq;
    if (rc) {
        job_free(j);
        return rc;
    }
    j->furthest = sequence_len(seq);
    struct job **last = &b->jobs;
    while (*last)
        last = &(*last)->next;
    *last = *job = j;
    return 0;
}

void batch_leave(struct batch *b, struct job *j) {
    for (struct job **at = &b->jobs; *at; at = &(*at)->next) {
        if (*at != j)
            continue;
        *at = j->next;
        job_free(j);
        return;
    }
}

struct sequence *batch_take(struct batch *b, struct job *j) {
    struct sequence *seq = j->m.seq;
    j->owned = false;
    batch_leave(b, j);
    return seq;
}

void job_park(struct job *j, bool parked) {
    j->parked = parked;
}

void job_undraft(struct job *j) {
    j->m.c.drafts = 0;
}

int job_failed(const struct job *j, struct err *e) {
    if (j->rc && e)
        *e = j->err;
    return j->rc;
}

bool job_ended(const struct job *j) {
    return j->rc || j->out->end != END_NONE;
}

int64_t job_left(const struct job *j) {
    int64_t all = j->n_recomputed ? j->n_recomputed : j->r.n_prompt;
    return max_i64(all - sequence_len(j->m.seq), 0);
}

bool job_decodes(const struct job *j) {
    return job_left(j) == 0;
}

bool job_constrained(const struct job *j) {
    return j->m.masks != NULL;
}

int64_t job_mask_work(const struct job *j) {
    return j->m.masks ? masks_work(j->m.masks) : 0;
}

int job_prepare_masks(struct job *j, int64_t steps) {
    return j->m.masks ? masks_prepare(j->m.masks, steps) : 0;
}

void job_allow_masks(struct job *j, int64_t root, int64_t guesses) {
    if (j->m.masks)
        masks_allow(j->m.masks, root, guesses);
}

bool job_unfinished(const struct job *j) {
    return j->unfinished;
}

int64_t job_growth(const struct job *j) {
    int64_t left = j->max_new - j->out->n;
    int deepest = min_i32(j->m.c.tree.max_depth, TREE_MAX_DEPTH);
    bool guesses = j->m.c.tree.budget > 0 && (j->m.c.drafts || j->n_drafters);
    return min_i64(1 + (guesses ? deepest : 0), max_i64(left, 1));
}

const struct member *job_member(const struct job *j) {
    return &j->m;
}

// Prompt and tokens so far, as far as they have been run, are what has to have been run before the
// job goes on; the newest one comes after them.
static int set_recomputed_text(struct job *j, struct err *e) {
    int64_t prompt = j->r.n_prompt, more = j->out->n;
    int32_t *recomputed = malloc((size_t)(prompt + more) * sizeof *recomputed);
    if (!recomputed)
        return err_set(e, ERR_MEMORY, "no memory for a text that is to be run again");
    memcpy(recomputed, j->r.prompt, (size_t)prompt * sizeof *recomputed);
    if (more)
        memcpy(recomputed + prompt, j->out->ids, (size_t)more * sizeof *recomputed);
    free(j->recomputed);
    j->recomputed = recomputed;
    j->n_recomputed = prompt + max_i64(more - 1, 0);
    return 0;
}

int job_drop(struct job *j, struct err *e) {
    int rc = set_recomputed_text(j, e);
    if (!rc)
        sequence_renew(j->m.seq);
    return rc;
}

const int32_t *job_text(const struct job *j, int64_t *n) {
    *n = j->n_recomputed ? j->n_recomputed + (j->out->n > 0) : j->r.n_prompt;
    return j->n_recomputed ? j->recomputed : j->r.prompt;
}

int64_t job_sparse_end(const struct job *j) {
    return j->r.sparse_end ? j->r.sparse_end : j->r.n_prompt;
}

struct sequence *job_sequence(const struct job *j) {
    return j->m.seq;
}

void job_exchange(struct job *j, struct sequence *seq) {
    if (j->owned)
        sequence_destroy(j->m.seq);
    j->owned = true;
    j->m.seq = seq;
}

struct step_times batch_times(const struct batch *b) {
    return step_times_of(b->step);
}

// Tokens that the request and the context still allow.
static struct walk_limits limits_of(struct job *j) {
    int64_t total = j->r.n_prompt + j->out->n;
    j->stop_next = j->out->n;
    return (struct walk_limits){.tokens_left = j->r.max_tokens - j->out->n,
                                .context_left = model_max_ctx(session_model(j->b->s)) - total,
                                .stop = is_stop,
                                .stop_arg = j};
}

static void fail_job(struct job *j, int rc, const struct err *e) {
    j->rc = rc;
    j->err = *e;
}

// A step of this job has failed, or its mask was not made in it. Where its choices failed, after
// rows that have become part of the sequence, these are cut off again, so that sequence and reply
// fit each other. A invalid sequence is its caller's to drop.
static void undo_step(struct job *j) {
    int64_t kept;
    struct err e;
    j->m.hash = j->out->hash;
    if (!sequence_usable(j->m.seq) || sequence_len(j->m.seq) == j->before)
        return;
    int rc = set_recomputed_text(j, &e);
    if (!rc)
        rc = sequence_truncate(j->m.seq, j->before, &kept, &e);
    if (rc)
        fail_job(j, rc, &e);
}

// Whether the job's caller lets the next piece of its prompt be run.
static bool may_continue(struct job *j) {
    if (!j->r.progress || !j->r.progress(j->r.progress_arg, sequence_len(j->m.seq), j->r.n_prompt))
        return true;
    j->out->end = END_CALLER;
    return false;
}

static void set_root(struct job *j) {
    j->m.phase = MEMBER_DECODE;
    j->m.root = j->out->ids[j->out->n - 1];
    j->m.limits = limits_of(j);
}

// Tokens at which the next checkpoint is made; beyond all of them where none is left.
static int64_t next_checkpoint_position(const struct job *j) {
    if (j->next_checkpoint_position == j->r.n_checkpoints)
        return INT64_MAX;
    int64_t at = j->r.checkpoint_at[j->next_checkpoint_position];
    return j->m.seq->spec.n_recurrent ? at / GDN_BLOCK * GDN_BLOCK : at;
}

// Passes over those that lie within the first `done` tokens; whether there were any.
static bool pass_checkpoint_positions(struct job *j, int64_t done) {
    int before = j->next_checkpoint_position;
    while (next_checkpoint_position(j) <= done)
        j->next_checkpoint_position++;
    return j->next_checkpoint_position > before;
}

// Makes the checkpoints that the last step has made possible.
static void make_checkpoint(struct job *j) {
    bool ended = j->r.checkpoint_at_end && j->out->end != END_NONE;
    struct checkpoint *c = NULL;
    struct err e = {0};
    if (!pass_checkpoint_positions(j, sequence_len(j->m.seq)) && !ended)
        return;
    if (sequence_resume(j->m.seq) == 0)
        return;
    (void)sequence_checkpoint(j->m.seq, &c, &e);
    j->r.checkpoint(j->r.checkpoint_arg, c, &e);
}

// most: rows; *sampled: most of them besides one, where log-probabilities of the prompt are wanted;
// it becomes less.
static void set_piece(struct job *j, int64_t max, int64_t *sampled) {
    int64_t done = sequence_len(j->m.seq), left = job_left(j);
    (void)pass_checkpoint_positions(j, done);
    max = min_i64(max, next_checkpoint_position(j) - done);
    max = min_i64(max, sequence_view_end(j->m.seq) - done);
    if (j->r.prompt_logprobs)
        max = min_i64(max, 1 + *sampled);
    j->m.phase = MEMBER_PROMPT;
    j->m.piece = (j->recomputed ? j->recomputed : j->r.prompt) + done;
    j->m.n_piece = min_i64(left, max);
    j->m.choose = j->m.n_piece == left && j->max_new > 0 && j->out->n == 0;
    j->m.n_known = min_i64(j->m.n_piece, max_i64(j->r.n_prompt - 1 - done, 0));
    j->m.n_known = j->r.prompt_logprobs ? j->m.n_known : 0;
    *sampled -= j->r.prompt_logprobs ? j->m.n_piece - 1 : 0;
    j->m.limits = limits_of(j);
}

// Tokens of prompts that are still to be read.
static int64_t unread_tokens(const struct batch *b) {
    int64_t n = 0;
    for (const struct job *j = b->jobs; j; j = j->next)
        n += j->parked || job_ended(j) || job_decodes(j) ? 0 : job_left(j);
    return n;
}

int64_t batch_piece_rows(const struct batch *b, int decoding) {
    int64_t n = unread_tokens(b);
    return min_i64(session_chunk(b->s, n), session_pass_rows(b->s, n) - decoding);
}

// Rows of a pass besides one of each member that may give log-probabilities of prompts. They count
// as rows of trees do, and leave them half of what there is.
static int64_t max_sampled_rows(const struct batch *b, int decoding) {
    return (step_max_verify(b->step) - b->max_members) / (decoding ? 2 : 1);
}

// Fills b->slices: first those that decode, then pieces of prompts. Returns how many there are.
static int gather_pass_slices(struct batch *b) {
    int64_t max = session_pass_rows(b->s, unread_tokens(b)), rows = max;
    int64_t left = session_chunk(b->s, unread_tokens(b));
    int n = 0;
    for (struct job *j = b->jobs; j && n < b->max_members; j = j->next) {
        if (j->parked || job_ended(j) || !job_decodes(j))
            continue;
        rows -= 1 + j->m.c.tree.budget;
        b->slices[n++] = (struct pass_slice){.job = j};
    }
    // Trees shrink rather than prompts starve, but every decoding job keeps its row.
    left = max_i64(min_i64(left, rows), GDN_BLOCK);
    left = min_i64(left, max - n);
    int64_t sampled = max_sampled_rows(b, n);
    for (struct job *j = b->jobs; j && n < b->max_members && left > 0; j = j->next) {
        if (j->parked || job_ended(j) || job_decodes(j))
            continue;
        b->slices[n++] = (struct pass_slice){j, left};
        set_piece(j, left, &sampled);
        left -= j->m.n_piece;
    }
    return n;
}

// Adds the log-probabilities of the last piece and of what was chosen to the reply. Pieces that
// are run once more bring nothing new.
static int add_logprobs(struct job *j, struct err *e) {
    struct reply *out = j->out;
    int64_t known = j->m.phase == MEMBER_PROMPT ? j->m.n_known : 0;
    int64_t first = sequence_len(j->m.seq) - j->m.n_piece;
    int rc = 0;
    for (int64_t i = 0; !rc && i < known; i++)
        if (first + i == out->prompt_logprobs.n)
            rc = logprobs_add(&out->prompt_logprobs, &j->m.known[i], e);
    for (int i = 0; !rc && j->r.logprobs >= 0 && i < j->m.walk.count; i++)
        rc = logprobs_add(&out->logprobs, &j->m.logprobs[i], e);
    return rc;
}

// Appends newly chosen tokens to the reply and hands them to the caller.
static void append_reply(struct job *j) {
    const struct walk *w = &j->m.walk;
    struct reply *out = j->out;
    memcpy(out->ids + out->n, w->chosen, (size_t)w->count * sizeof *out->ids);
    out->n += w->count;
    out->end = w->end;
    if (j->r.tokens && j->r.tokens(j->r.tokens_arg, w->chosen, w->count) && w->end == END_NONE)
        out->end = END_CALLER;
}

// The results of the step for the job: its reply, its phase, its times.
static void record_step(struct job *j, const struct step_times *ms) {
    struct reply *out = j->out;
    if (j->m.rc == ERR_UNFINISHED) {
        j->unfinished = true;
        undo_step(j);
        return;
    }
    if (!j->m.rc)
        j->m.rc = add_logprobs(j, &j->m.err);
    if (j->m.rc) {
        fail_job(j, j->m.rc, &j->m.err);
        return;
    }
    step_times_add(&out->ms, ms);
    if (j->m.phase == MEMBER_PROMPT) {
        int64_t done = sequence_len(j->m.seq), fed = max_i64(done - j->furthest, 0);
        out->fed += fed;
        out->recomputed += j->m.n_piece - fed;
        if (!j->m.choose && job_decodes(j) && out->n == 0)
            out->end = END_LENGTH; // nothing was to be chosen
    } else {
        out->accepted[out->steps++] = j->m.walk.count;
        out->drafted += j->m.tree.n - 1;
        guess_counts_add(&out->guesses, &j->m, session_drafts(j->b->s));
    }
    if (j->m.walk.count)
        append_reply(j);
    make_checkpoint(j);
    j->furthest = max_i64(j->furthest, sequence_len(j->m.seq));
    out->hash = j->m.hash;
    out->total_ms = clock_ms() - j->start;
}

// Takes part in the pass as its slice says; whether it does at all.
static bool apply_slice(struct job *j, int64_t rows, int64_t *sampled) {
    j->before = sequence_len(j->m.seq);
    j->unfinished = false;
    if (job_decodes(j))
        set_root(j);
    else if (may_continue(j))
        set_piece(j, rows, sampled);
    else
        return false;
    return true;
}

int batch_pass(struct batch *b, const struct pass_slice *slices, int n, int *stepped,
               struct err *e) {
    int in = 0;
    int64_t sampled = max_sampled_rows(b, n && job_decodes(slices[0].job));
    for (int i = 0; i < n; i++)
        if (apply_slice(slices[i].job, slices[i].rows, &sampled))
            b->in[in++] = slices[i].job;
    *stepped = in;
    if (in == 0)
        return 0;
    for (int i = 0; i < in; i++)
        b->members[i] = &b->in[i]->m;
    int rc = step_run(b->step, b->members, in, e);
    struct step_times ms = step_times_of(b->step);
    for (int i = 0; i < in; i++)
        if (rc)
            undo_step(b->in[i]);
        else
            record_step(b->in[i], &ms);
    return rc;
}

int batch_step(struct batch *b, int *stepped, struct err *e) {
    return batch_pass(b, b->slices, gather_pass_slices(b), stepped, e);
}

// Batches for one call.

// Sums over the jobs, as they are now.
struct sums {
    int64_t tokens, drafted, jobs;
    bool decoding; // all are, and none has ended
};

static struct sums sums_of(const struct batch *b) {
    struct sums s = {.decoding = true};
    for (const struct job *j = b->jobs; j; j = j->next) {
        s.jobs++;
        s.tokens += j->out->n;
        s.drafted += j->out->drafted;
        s.decoding = s.decoding && job_decodes(j) && !job_ended(j);
    }
    return s;
}

// Steps until all jobs have ended; the first failure of a job is the error.
static int run_jobs(struct batch *b, struct generate_cost *cost, struct err *e) {
    for (int stepped = 1, rc = 0;;) {
        struct sums before = sums_of(b);
        rc = batch_step(b, &stepped, e);
        for (const struct job *j = b->jobs; !rc && j; j = j->next)
            rc = job_failed(j, e);
        if (rc || stepped == 0)
            return rc;
        if (!before.decoding || !cost)
            continue;
        struct sums after = sums_of(b);
        struct step_times ms = batch_times(b);
        cost->steps++;
        cost->tokens += after.tokens - before.tokens;
        cost->rows += after.drafted - before.drafted + after.jobs;
        step_times_add(&cost->ms, &ms);
    }
}

int session_generate_many(struct session *s, const struct request *r, int n, struct reply *out,
                          struct generate_cost *cost, struct err *e) {
    struct batch *b = NULL;
    struct job *j;
    memset(out, 0, (size_t)n * sizeof *out);
    if (cost)
        *cost = (struct generate_cost){0};
    int rc = batch_create(&b, s, n, e);
    for (int i = 0; !rc && i < n; i++)
        rc = batch_join(b, &r[i], &out[i], &j, e);
    if (!rc)
        rc = run_jobs(b, cost, e);
    batch_destroy(b);
    return rc;
}

int session_generate(struct session *s, const struct request *r, struct reply *out, struct err *e) {
    return session_generate_many(s, r, 1, out, NULL, e);
}

int session_prefill(struct session *s, const int32_t *prompt, int64_t n, struct sequence **out,
                    struct err *e) {
    struct request r;
    struct reply y;
    struct sequence *seq = *out;
    if (seq && sequence_len(seq) == n)
        return 0;
    int rc = seq ? 0 : model_sequence(session_model(s), &seq, e);
    request_init(&r);
    r.prompt = prompt;
    r.n_prompt = n;
    r.max_tokens = 0;
    r.in_place = seq;
    if (!rc) {
        rc = session_generate(s, &r, &y, e);
        reply_fini(&y);
    }
    if (rc && !*out)
        sequence_destroy(seq);
    else
        *out = seq;
    return rc;
}
