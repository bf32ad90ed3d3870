// SPDX-License-Identifier: Apache-2.0
// One decoding step of one sequence: drafters propose, the best tree is verified by the target in
// one pass, the target's own choices are followed, and the path is committed. Without guesses it is
// a plain decoding step. Also the prompt's passes, because the first token is chosen there.
#ifndef COPPICE_SPEC_STEP_H
#define COPPICE_SPEC_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "models/model.h"
#include "spec/budget.h"
#include "spec/drafter.h"
#include "spec/sampler.h"
#include "spec/walk.h"

enum { STEP_MAX_DRAFTERS = 4 };

// Wall-clock milliseconds by phase, added up over passes. Where choices are made together (on a
// device), one wait covers the pass and its choices, and both count as verify.
struct step_times {
    double prompt, draft, verify, sample, commit;
};

struct step_config {
    struct model *model;
    struct drafter *drafters[STEP_MAX_DRAFTERS]; // borrowed; all add to one proposal
    int n_drafters;
    struct tree_options tree; // max_depth is a further limit, usually TREE_MAX_DEPTH
    struct budget *budget;    // NULL, or chooses how much of that tree is verified; borrowed
    struct price *price;      // with a budget: what passes and drafts cost; borrowed
    bool share_noise;         // let drafters foresee the sampling noise
    struct sample_params sample;
    bool hash; // keep a hash over the deciding logit rows
};

struct step;

int step_create(struct step **out, const struct step_config *c, struct err *e);
void step_destroy(struct step *s); // NULL is allowed

// Runs n prompt tokens (1 <= n <= model_max_rows) behind the sequence and commits them. With
// `chosen`, also chooses the token that follows the last of them.
int step_feed(struct step *s, struct sequence *seq, const int32_t *tokens, int64_t n,
              int32_t *chosen, struct err *e);

// One step: root is the newest token (chosen, not yet run). What was chosen, and how many rows were
// committed, is in *out; its last chosen token is the next root. A failed step commits nothing,
// save for ERR_DEVICE, after which the sequence may only be destroyed.
int step_run(struct step *s, struct sequence *seq, int32_t root, const struct walk_limits *limits,
             struct walk *out, struct err *e);

// Of the last step_run: the tree that was verified.
const struct ddtree *step_tree(const struct step *s);

struct step_times step_times_of(const struct step *s);
// XXH64 over the f32 bytes of the deciding rows in the order of the chosen tokens, each seeded with
// the hash before; 0 before the first.
uint64_t step_hash(const struct step *s);

// Milliseconds of a monotonic clock.
double step_clock(void);

#endif
