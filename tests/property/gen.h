// SPDX-License-Identifier: Apache-2.0
// Generation for the exactness test: one request decoded in a given way, with the sequence cut
// back, restored or forked on the way when asked to. Two ways are compared by tokens and logit
// hash.
#ifndef COPPICE_TESTS_PROPERTY_GEN_H
#define COPPICE_TESTS_PROPERTY_GEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"
#include "models/dflash.h"
#include "spec/step.h"

// What is to be decoded: the same for all ways.
struct gen_request {
    const int32_t *prompt;
    int64_t n_prompt, max_tokens, max_ctx;
    int32_t stop; // -1: none
    struct sample_params sample;
};

// How it is decoded.
struct gen_way {
    const char *name;
    struct model *model;
    struct dflash *dflash; // NULL: the model has no draft attached
    enum draft_kind kinds[STEP_MAX_DRAFTERS];
    int n_kinds;
    struct tree_options tree;
    bool share_noise;
    int64_t chunk;
    struct draft_config oracle; // recording, error rate, seed
    bool surgery;               // cut, restore and fork between steps
    bool choose;                // budgets are chosen (budget.h) from measured passes
    uint64_t seed;              // of the surgery
};

enum { GEN_MAX = 256, GEN_DEPTHS = TREE_MAX_DEPTH + 2 };

// What happened, added up over runs.
struct gen_stats {
    int64_t accept[GEN_DEPTHS];   // by rows committed in one pass
    int64_t base_crossings;       // passes that committed across a multiple of 32
    int64_t page_crossings;       // and of 64
    int64_t split_trees;          // trees whose rows have different bases
    int64_t stops_inside;         // stop tokens where the tree went on
    int64_t ends[END_CALLER + 1]; // by end reason: ends of a path of guesses
    int64_t branched;             // paths that left the first-born line
    int64_t truncated, restored, forked;
    int64_t chosen; // runs whose budgets were chosen
};

struct gen_result {
    int32_t ids[GEN_MAX];
    int64_t n;
    uint64_t hash;
    uint64_t trees; // hash over the trees that were verified
    enum end_reason end;
};

int gen_run(const struct gen_request *r, const struct gen_way *w, struct gen_result *out,
            struct gen_stats *stats, struct err *e);

#endif
