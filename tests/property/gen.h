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
#include "property/features.h"
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

enum { GEN_MAX = 256 };

struct gen_result {
    int32_t ids[GEN_MAX];
    int64_t n;
    uint64_t hash;
    uint64_t trees; // hash over the trees that were verified
    enum end_reason end;
};

// What happens is added to f.
int gen_run(const struct gen_request *r, const struct gen_way *w, struct gen_result *out,
            struct features *f, struct err *e);

#endif
