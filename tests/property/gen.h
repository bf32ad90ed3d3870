// SPDX-License-Identifier: Apache-2.0
// Generation for the exactness test: requests decoded in given ways, one alone or up to 16 in the
// same passes, with sequences cut back, restored, forked and parked on the way when requested. Two
// ways are compared by tokens and logit hash.
#ifndef COPPICE_TESTS_PROPERTY_GEN_H
#define COPPICE_TESTS_PROPERTY_GEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"
#include "models/draft/draft.h"
#include "property/features.h"
#include "spec/step/step.h"
#include "support/automaton.h"
#include "support/tap_reader.h"

enum { GEN_MAX = 256, GEN_PROMPT_MAX = 272, GEN_MEMBERS = 16 };

// What is to be decoded: the same for all ways.
struct gen_request {
    const int32_t *prompt;
    int64_t n_prompt, max_tokens, max_ctx; // n_prompt at most GEN_PROMPT_MAX
    int32_t stop;                          // -1: none
    int32_t stop_after;                    // `stop` counts after this token only; -1: always
    struct sample_params sample;
    int n_best;           // log-probabilities of what is chosen, with that many best; -1: none
    bool prompt_logprobs; // and of the prompt
    struct automaton *automaton; // what the reply must satisfy; NULL: anything goes
};

// How it is decoded. Ways that share passes have the same model and drafts.
struct gen_way {
    const char *name;
    struct model *model;
    struct draft *const *draft; // [n_drafts] that the model has
    int n_drafts;
    unsigned drafts; // which of them guess, where DRAFT_MODEL is among `kinds`, a bit each
    const struct tap_reader *hidden; // NULL: hidden states of the model are not read
    enum draft_kind kinds[STEP_MAX_DRAFTERS];
    int n_kinds;
    struct tree_options tree;
    bool share_noise;
    int64_t chunk;
    struct draft_config oracle; // recording, error rate, seed
    bool surgery;               // cut, restore and fork between steps
    bool choose;                // budgets are chosen (budget.h)
    uint64_t seed;              // of the surgery
};

struct gen_result {
    int32_t ids[GEN_MAX];
    int64_t n;
    uint64_t hash;
    uint64_t trees;                            // hash over the trees that were verified
    uint64_t logprobs;                         // hash over those of the chosen tokens
    uint64_t prompt[GEN_PROMPT_MAX];           // and of each token of the prompt; 0: none
    uint64_t hidden[GEN_PROMPT_MAX + GEN_MAX]; // of hidden states of what was committed
    int64_t n_hidden;
    enum end_reason end;
    bool failed; // the automaton had nothing more to say
};

// One member of a group.
struct gen_member {
    const struct gen_request *r;
    const struct gen_way *w;
    int joins;  // step in which it takes part first
    int leaves; // step in which it is cancelled, -1: never; its result is then a beginning
    bool parks; // takes a rest now and then
    struct gen_result *out;
};

// Decodes all to their ends. n: 1 to GEN_MEMBERS. seed: of who rests when.
int gen_run_many(struct gen_member *members, int n, uint64_t seed, struct features *f,
                 struct err *e);

// One alone.
int gen_run(const struct gen_request *r, const struct gen_way *w, struct gen_result *out,
            struct features *f, struct err *e);

#endif
