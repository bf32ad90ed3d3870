// SPDX-License-Identifier: Apache-2.0
// Defaults and checks of requests, and the memory of log-probabilities.
#include "engine/batch/request.h"

#include <stdlib.h>
#include <string.h>

const char *speculate_name(enum speculate how) {
    static const char *const names[] = {"auto", "tree", "chain", "lookup", "off", "oracle"};
    return names[how];
}

enum speculate speculate_auto(bool has_draft) {
    return has_draft ? SPECULATE_TREE : SPECULATE_LOOKUP;
}

void request_init(struct request *r) {
    *r = (struct request){
        .max_tokens = 256, .how = SPECULATE_OFF, .auto_budget = true, .logprobs = -1};
    r->tree =
        (struct tree_options){.budget = REQUEST_AUTO_BUDGET, .k = 8, .max_depth = TREE_MAX_DEPTH};
    sample_params_init(&r->sample);
}

void reply_fini(struct reply *r) {
    free(r->ids);
    free(r->accepted);
    logprobs_fini(&r->logprobs);
    logprobs_fini(&r->prompt_logprobs);
    *r = (struct reply){0};
}

// The sequence that the request goes on from must hold the beginning of its prompt.
static int check_prefix(const struct request *r, struct err *e) {
    const struct sequence *p = r->in_place ? r->in_place : r->prefix;
    if (r->in_place && r->prefix)
        return err_set(e, ERR_USAGE, "a request goes on from one sequence, not from two");
    if (p && (sequence_len(p) >= r->n_prompt ||
              (sequence_len(p) && memcmp(sequence_tokens(p), r->prompt,
                                         (size_t)sequence_len(p) * sizeof *r->prompt) != 0)))
        return err_set(e, ERR_USAGE,
                       "the %lld tokens run before are not the beginning of a prompt of %lld",
                       (long long)sequence_len(p), (long long)r->n_prompt);
    return 0;
}

static int check_logprobs(const struct request *r, struct err *e) {
    const struct sequence *p = r->in_place ? r->in_place : r->prefix;
    if (r->logprobs < -1 || r->logprobs > OPS_LOGPROBS_MAX)
        return err_set(e, ERR_USAGE,
                       "log-probabilities of %d best tokens are not within 0 to %d; -1 is none",
                       r->logprobs, OPS_LOGPROBS_MAX);
    if (r->prompt_logprobs && p && sequence_len(p))
        return err_set(e, ERR_USAGE,
                       "log-probabilities of a prompt need all of it to be run, and %lld of its "
                       "tokens have been run before",
                       (long long)sequence_len(p));
    return 0;
}

static int check_ends(const struct request *r, int64_t vocab, struct err *e) {
    if (r->n_stop_ids < 0 || r->n_stop_ids > REQUEST_MAX_STOP_IDS)
        return err_set(e, ERR_USAGE, "%d tokens end the reply; at most %d are possible",
                       r->n_stop_ids, REQUEST_MAX_STOP_IDS);
    for (int i = 0; i < r->n_stop_ids; i++)
        if (r->stop_ids[i] < 0 || r->stop_ids[i] >= vocab)
            return err_set(e, ERR_MISMATCH,
                           "token id %d, which ends the reply, is not within 0 to %lld",
                           r->stop_ids[i], (long long)vocab - 1);
    return r->min_tokens >= 0 ? 0
                              : err_set(e, ERR_USAGE, "a reply cannot have fewer than 0 tokens");
}

static int check_checkpoints(const struct request *r, struct err *e) {
    bool good = r->n_checkpoints >= 0;
    for (int i = 0; good && i < r->n_checkpoints; i++)
        good = r->checkpoint_at[i] > (i ? r->checkpoint_at[i - 1] : 0);
    if (good && ((r->n_checkpoints == 0 && !r->checkpoint_at_end) || r->checkpoint))
        return 0;
    return err_set(e, ERR_USAGE,
                   "checkpoints need ascending positions above 0 and a function that takes them");
}

int request_check(const struct request *r, const struct session *s, struct err *e) {
    const struct model *m = session_model(s);
    int64_t vocab = model_params_of(m)->vocab, ctx = model_max_ctx(m);
    if (r->n_prompt < 1)
        return err_set(e, ERR_USAGE, "the prompt is empty; give at least one token");
    for (int64_t i = 0; i < r->n_prompt; i++)
        if (r->prompt[i] < 0 || r->prompt[i] >= vocab)
            return err_set(e, ERR_MISMATCH,
                           "token id %d at place %lld of the prompt is not within 0 to %lld",
                           r->prompt[i], (long long)i, (long long)vocab - 1);
    if (r->n_prompt >= ctx)
        return err_set(e, ERR_LIMIT,
                       "the prompt of %lld tokens leaves no room in a context of %lld; shorten it "
                       "or raise --max-ctx",
                       (long long)r->n_prompt, (long long)ctx);
    bool needs_draft = r->how == SPECULATE_TREE || r->how == SPECULATE_CHAIN;
    if (needs_draft && !session_draft(s))
        return err_set(e, ERR_USAGE,
                       "--speculate %s needs a draft model; give one with -d or use lookup",
                       speculate_name(r->how));
    int rc = sample_params_check(&r->sample, vocab, e);
    if (!rc)
        rc = check_ends(r, vocab, e);
    if (!rc)
        rc = check_logprobs(r, e);
    if (!rc)
        rc = check_checkpoints(r, e);
    return rc ? rc : check_prefix(r, e);
}

// A block of log-probabilities has those of BLOCK tokens: of the tokens themselves, then the ids of
// the best ones, then theirs.

enum { BLOCK = 128 };

int logprobs_init(struct logprobs *l, int n_best, int64_t max, struct err *e) {
    *l = (struct logprobs){.n_best = n_best, .max = max};
    l->blocks = calloc((size_t)(max / BLOCK + 1), sizeof *l->blocks);
    if (!l->blocks)
        return err_set(e, ERR_MEMORY, "no memory for the log-probabilities of %lld tokens",
                       (long long)max);
    return 0;
}

void logprobs_fini(struct logprobs *l) {
    for (int64_t i = 0; i < l->n; i += BLOCK)
        free(l->blocks[i / BLOCK]);
    free(l->blocks);
    *l = (struct logprobs){0};
}

static float *chosen_of(const struct logprobs *l, int64_t i) {
    return (float *)l->blocks[i / BLOCK] + i % BLOCK;
}

static int32_t *ids_of(const struct logprobs *l, int64_t i) {
    return (int32_t *)l->blocks[i / BLOCK] + BLOCK + i % BLOCK * l->n_best;
}

static float *best_of(const struct logprobs *l, int64_t i) {
    return (float *)l->blocks[i / BLOCK] + BLOCK + (BLOCK + i % BLOCK) * l->n_best;
}

int logprobs_add(struct logprobs *l, const struct sample_logprobs *p, struct err *e) {
    size_t cells = BLOCK * (size_t)(1 + 2 * l->n_best), best = (size_t)l->n_best;
    int64_t i = l->n;
    if (i == l->max)
        return err_set(e, ERR_STATE, "log-probabilities of more than the %lld tokens announced",
                       (long long)l->max);
    if (i % BLOCK == 0)
        l->blocks[i / BLOCK] = malloc(cells * sizeof(float));
    if (!l->blocks[i / BLOCK])
        return err_set(e, ERR_MEMORY, "no memory for the log-probabilities after %lld tokens",
                       (long long)i);
    *chosen_of(l, i) = p->chosen;
    memcpy(ids_of(l, i), p->ids, best * sizeof *p->ids);
    memcpy(best_of(l, i), p->logp, best * sizeof *p->logp);
    l->n++;
    return 0;
}

struct token_logprobs logprobs_at(const struct logprobs *l, int64_t i) {
    return (struct token_logprobs){
        .chosen = *chosen_of(l, i), .n = l->n_best, .ids = ids_of(l, i), .logp = best_of(l, i)};
}
