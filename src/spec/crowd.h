// SPDX-License-Identifier: Apache-2.0
// One decoding step of several sequences: the draft runs over all of them in one pass, each gets a
// tree of its own, one pass of the target verifies the forest, and each sequence follows its own
// choices. What a sequence gets is what it would get alone (step.h), to the bit.
#ifndef COPPICE_SPEC_CROWD_H
#define COPPICE_SPEC_CROWD_H

#include "spec/step.h"

// One sequence of a step.
struct crowd_member {
    struct sequence *seq;
    struct drafter *drafter; // NULL, or its guesses take the place of the draft's; borrowed
    int32_t root;            // its newest token: chosen, not yet run
    uint64_t hash;           // goes on over its deciding rows, as step_hash
    struct walk_limits limits;
    struct walk walk; // what came of it
    int rows;         // of its tree, the root among them
};

struct crowd_config {
    struct model *model;
    struct dflash *draft;     // NULL: no draft runs
    struct tree_options tree; // of each sequence; budgets shrink so that the forest fits a pass
    struct sample_params sample;
    int max_members; // at most the model's max_seqs
    bool hash;
};

struct crowd;

int crowd_create(struct crowd **out, const struct crowd_config *c, struct err *e);
void crowd_destroy(struct crowd *c); // NULL is allowed

// Nodes beside the root that each of n sequences may verify in one pass of max_verify rows, at most
// `budget`.
int crowd_budget(int budget, int max_verify, int n);

// One step of members[n], 1 <= n <= max_members, each of another sequence. After an error some may
// have been committed: the sequences may only be destroyed.
int crowd_step(struct crowd *c, struct crowd_member *members, int n, struct err *e);

struct step_times crowd_times(const struct crowd *c); // of all steps so far

#endif
