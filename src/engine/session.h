// SPDX-License-Identifier: Apache-2.0
// A loaded model pair and one request at a time: prompt in, tokens out, with measurements. It
// chooses the device, asks the memory plan before it loads, and owns the backend, the target, the
// draft and the tokenizer; each request gets a fresh sequence. What several users at once need is
// not here.
#ifndef COPPICE_ENGINE_SESSION_H
#define COPPICE_ENGINE_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/plan.h"
#include "models/dflash.h"
#include "models/model.h"
#include "spec/sampler.h"
#include "spec/step.h"
#include "text/tokenizer.h"

struct session_options {
    const char *model;     // target GGUF
    const char *draft;     // NULL: none
    const char *device;    // "auto", "cpu", "cuda" or "cuda:N"
    const char *cpu_level; // "auto", or a name of docs/ops.md: not above it
    int threads;           // 0: all usable CPUs
    enum cuda_path cuda_path;
    bool vendor_gemm;   // prompts through the vendor's library on a GPU (cuda_options)
    int64_t vram_limit; // bytes that may be taken on a GPU; 0: all that are free
    bool make_plan;     // also where no limit is known, that is on a CPU without memory_limit
    void (*note)(void *arg, const char *sentence); // NULL, or shown what the user should know
    void *note_arg;
    // max_ctx 0: the longest context that fits; memory_limit: for the pair and one full sequence.
    struct model_options target;
    struct dflash_options dflash; // its KV types follow the target's
    int chunk;                    // most prompt tokens a pass; 0: what suits the device
    bool timing;                  // its ops can be timed (ops/observe/timing.h)
    bool importance;              // inputs of its matrices are summed (ops/observe/importance.h)
};
struct session_options session_options_default(void);

struct session;

// One sentence when a file is missing or wrong, the draft does not fit the target, the device
// cannot be used (ERR_DEVICE), or the plan does not fit its memory (ERR_MEMORY, before anything is
// loaded).
int session_open(struct session **out, const struct session_options *o, struct err *e);
void session_close(struct session *s); // NULL is allowed

// The memory plan that session_open would make, without loading. ERR_MEMORY where it does not fit;
// *out is then filled all the same. Other errors as session_open, *out zeroed.
int session_measure(const struct session_options *o, struct memory_plan *out, struct err *e);

struct model *session_model(const struct session *s);
struct dflash *session_draft(const struct session *s);              // NULL: none
const struct tokenizer *session_tokenizer(const struct session *s); // NULL: file has none
double session_load_ms(const struct session *s);
const struct memory_plan *session_plan(const struct session *s); // NULL: none was made

// The ids of a prompt text, with BOS where the file asks for it. ERR_UNSUPPORTED without tokenizer.
int session_encode(const struct session *s, const char *text, size_t n, struct token_list *out,
                   struct err *e);

enum speculate {
    SPECULATE_TREE,   // DFlash marginals and lookup chains in one tree
    SPECULATE_CHAIN,  // the DFlash block's best token of each position
    SPECULATE_LOOKUP, // lookup chains only
    SPECULATE_OFF,
    SPECULATE_ORACLE, // a recording with errors, as a tree; for tests
};
const char *speculate_name(enum speculate how);

// New tokens of one pass, as soon as they are chosen. Non-zero ends the generation.
typedef int session_tokens_fn(void *arg, const int32_t *ids, int64_t n);

// Before each pass of a prompt: how many of its `total` tokens have been run. Non-zero ends.
typedef int session_progress_fn(void *arg, int64_t done, int64_t total);

struct request {
    const int32_t *prompt; // [n_prompt] ids, n_prompt >= 1
    int64_t n_prompt;
    int64_t max_tokens; // new tokens at most, >= 0
    bool ignore_eos;    // end-of-generation tokens are tokens like others
    struct sample_params sample;
    enum speculate how;
    struct tree_options tree; // budget, k, chain_seed, min_prob
    bool auto_budget;         // tree.budget is the most; how much of it pays is learnt
    bool no_draft_noise;
    bool no_lookup; // keep lookup chains out of the DFlash tree
    bool logit_hash;
    struct draft_config oracle; // recording, error rate, seed, with_draft for SPECULATE_ORACLE
    // NULL, or a sequence of session_prefill that holds the first tokens of this prompt (not all
    // of them): the request goes on from there, on a copy.
    const struct sequence *prefix;
    // NULL, or such a sequence that the request itself runs on: it then holds the prompt and the
    // new tokens but the last. Not beside `prefix`, and of session_generate only, as `progress` is.
    struct sequence *in_place;
    session_tokens_fn *tokens; // NULL: none
    void *tokens_arg;
    session_progress_fn *progress; // NULL: none
    void *progress_arg;
};
void request_init(struct request *r); // greedy, off, budget 22, 8 candidates, 256 tokens

struct reply {
    int32_t *ids; // [n] new tokens
    int64_t n;
    int32_t *accepted; // [steps] committed tokens of each pass behind the prompt
    int64_t steps;
    int64_t fed;     // prompt tokens that were run; the others had been before
    int64_t drafted; // guesses verified
    uint64_t hash;   // logit_hash
    enum end_reason end;
    struct step_times ms;
    double total_ms; // prompt to last token
};

// Runs the first n tokens of a prompt into a sequence, which several requests may go on from. *out:
// NULL for a new one, or one that holds the first of these tokens and grows; when that fails it
// holds any number of them, or may only be destroyed (sequence_usable). The caller frees it with
// sequence_destroy before the session.
int session_prefill(struct session *s, const int32_t *prompt, int64_t n, struct sequence **out,
                    struct err *e);

// Generates. *out is zeroed first; call reply_fini in any case. After an error it holds the tokens
// that were chosen before, which the callback has seen too.
int session_generate(struct session *s, const struct request *r, struct reply *out, struct err *e);
void reply_fini(struct reply *r);

#endif
