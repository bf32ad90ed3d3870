// SPDX-License-Identifier: Apache-2.0
// What a caller requests and what it gets: a prompt, how its continuation is sampled and guessed,
// and the reply with its log-probabilities. It runs nothing (batch.h).
#ifndef COPPICE_ENGINE_BATCH_REQUEST_H
#define COPPICE_ENGINE_BATCH_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/batch/guesses.h"
#include "engine/session/session.h"
#include "ops/args/args.h"
#include "spec/step/step.h"

// A zeroed struct holds nothing and can hold nothing.
struct logprobs {
    int n_best;
    int64_t n; // that have been added
    int64_t max;
    void **blocks; // NULL: none were requested
};

// Room for `max` tokens, each with n_best of the best ones, 0 to OPS_LOGPROBS_MAX. ERR_MEMORY.
int logprobs_init(struct logprobs *l, int n_best, int64_t max, struct err *e);
void logprobs_fini(struct logprobs *l); // zeroed is allowed

// Adds those of one token; p->n must be n_best. ERR_MEMORY: nothing was added.
int logprobs_add(struct logprobs *l, const struct sample_logprobs *p, struct err *e);

// Natural logarithms under the softmax of the model's logits as they are.
struct token_logprobs {
    float chosen;       // of the token itself
    int n;              // best tokens, in falling order, equal ones by id
    const int32_t *ids; // [n] -1 after the vocabulary
    const float *logp;  // [n]
};
// Those of token i, 0 <= i < n; valid until logprobs_fini.
struct token_logprobs logprobs_at(const struct logprobs *l, int64_t i);

enum speculate {
    SPECULATE_AUTO,   // what speculate_auto says
    SPECULATE_TREE,   // the draft's guesses and lookup chains in one tree
    SPECULATE_CHAIN,  // the draft's best token of each position
    SPECULATE_LOOKUP, // lookup chains only
    SPECULATE_OFF,
    SPECULATE_ORACLE, // a recording with errors, as a tree; for tests
};
const char *speculate_name(enum speculate how);
// What is guessed with where nobody says otherwise: a tree with a draft, lookup without one. Both
// cost next to nothing where they do not pay, if budgets are chosen (spec/tree/budget.h).
enum speculate speculate_auto(bool has_draft);

// New tokens of one pass, as soon as they are chosen. Non-zero ends the generation.
typedef int request_tokens_fn(void *arg, const int32_t *ids, int64_t n);

// Before each pass of a prompt: how many of its `total` tokens have been run. Non-zero ends.
typedef int request_progress_fn(void *arg, int64_t done, int64_t total);

// A checkpoint that was requested, which is the callee's from now on; or NULL where it could not be
// made, and e says why: the request goes on. It must not touch the request's sequence.
typedef void request_checkpoint_fn(void *arg, struct checkpoint *c, const struct err *e);

enum {
    REQUEST_AUTO_BUDGET = 63, // most nodes besides the root where budgets are chosen
    REQUEST_MAX_STOP_IDS = 1024,
};

struct request {
    const int32_t *prompt; // [n_prompt] ids, n_prompt >= 1
    int64_t n_prompt;
    // Where the session has a rule for prompts or for replies (session_options.target.sparse,
    // .view): the tokens, first ones, that are read as a prompt. 0: all of the prompt.
    int64_t sparse_end;
    int64_t max_tokens; // new tokens at most, >= 0; 0 runs the prompt and chooses nothing
    bool ignore_eos;    // end-of-generation tokens are tokens like others
    // [n_stop_ids] tokens that end the reply, as those of the vocabulary do; the last is part of
    // it.
    const int32_t *stop_ids;
    int n_stop_ids;     // at most REQUEST_MAX_STOP_IDS
    int64_t min_tokens; // no token that ends the reply is chosen among this many of its first ones,
                        // unless the constraint allows nothing else
    struct sample_params sample;
    // NULL, or what the reply must satisfy (spec/constraint/constraint.h). It ends with ERR_STATE
    // where no token is allowed. Several requests may share one where they run in one thread.
    struct constraint *constraint;
    enum speculate how;
    struct tree_options tree; // budget, k, chain_seed, min_prob
    bool auto_budget;         // tree.budget is the most; how much of it pays is learnt
    bool no_draft_noise;
    bool no_lookup; // keep lookup chains out of the draft's tree
    bool logit_hash;
    // -1, or log-probabilities of each new token, with those of that many best ones: 0 to
    // OPS_LOGPROBS_MAX. From the very rows that decided.
    int logprobs;
    // The same of the prompt's own tokens, after the first. All of the prompt must then be run:
    // the request goes on from no tokens run before.
    bool prompt_logprobs;
    struct draft_config oracle; // recording, error rate, seed, with_draft for SPECULATE_ORACLE
    // NULL, or a sequence of session_prefill that holds the first tokens of this prompt (not all
    // of them): the request goes on from there, on a copy.
    const struct sequence *prefix;
    // NULL, or such a sequence that the request itself runs on: it then holds the prompt and the
    // new tokens but the last. Not together with `prefix`.
    struct sequence *in_place;
    request_tokens_fn *tokens; // NULL: none
    void *tokens_arg;
    // Called once for every chosen token, in their order, end tokens too; true: it is the last one
    // (END_STOP). The step's tokens become part of the reply after that, so after a step that has
    // failed there may be some that were requested only. NULL: none.
    walk_stop_fn *stop;
    void *stop_arg;
    request_progress_fn *progress; // NULL: none
    void *progress_arg;
    // Checkpoints ahead of time: when that many tokens of prompt and reply have been run,
    // ascending, and when the reply has ended. Pieces of the prompt end at these positions, so that
    // checkpoints are exactly there; with recurrent layers they are at the last multiple of 32 up
    // to there, and at 0 there is none. In the reply each is made after the step that reaches its
    // place, with what sequence_checkpoint keeps then. Places that have been run before are left
    // out.
    const int64_t *checkpoint_at; // [n_checkpoints]
    int n_checkpoints;
    bool checkpoint_at_end;
    request_checkpoint_fn *checkpoint; // NULL: none
    void *checkpoint_arg;
};
// Greedy, no guessing, chosen budgets, 8 candidates, 256 tokens, no log-probabilities.
void request_init(struct request *r);

// One sentence when the session cannot run it: ERR_USAGE, ERR_MISMATCH (a token id), ERR_LIMIT.
int request_check(const struct request *r, const struct session *s, struct err *e);

struct reply {
    int32_t *ids; // [n] new tokens
    int64_t n;
    int32_t *accepted; // [steps] committed tokens of each pass after the prompt
    int64_t steps;
    int64_t fed;                     // prompt tokens that were run; the others had been before
    int64_t recomputed;              // tokens of prompt and reply that were run again (job_drop)
    int64_t drafted;                 // guesses verified
    struct guess_counts guesses;     // whose they were
    uint64_t hash;                   // logit_hash
    struct logprobs logprobs;        // [n], where requested
    struct logprobs prompt_logprobs; // [prompt - 1]: i is of prompt token i + 1, with none chosen
    enum end_reason end;
    struct step_times ms; // of the passes that it took part in
    double total_ms;      // from joining to the last token
};
void reply_fini(struct reply *r);

#endif
