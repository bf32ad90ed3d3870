// SPDX-License-Identifier: Apache-2.0
// The part of a step in which guesses are made: which members draft and with which drafts, one call
// of each draft for all who ask it, their own drafters, one tree for each member of what all of
// these offer, and how the rows of the pass are shared among the trees. Afterwards budgets, prices
// and the weights of drafts learn from what came of it.
#ifndef COPPICE_SPEC_STEP_DRAFTING_H
#define COPPICE_SPEC_STEP_DRAFTING_H

#include "spec/step/step.h"

struct drafting;

int drafting_create(struct drafting **out, const struct step_config *c, struct err *e);
void drafting_destroy(struct drafting *d); // NULL is allowed

struct drafting_rows {
    int64_t pieces, trees; // rows of prompts besides the trees; most of all trees together
};

// Calls the drafters of all members in in[n] that decode (one at least), and builds each one's
// tree, so that all fit of->trees: only the root where nothing may or can be proposed. A member
// whose own drafter fails gets its rc. What a draft fails to guess, the others do; where all that
// were called fail, it is the step's error.
int drafting_run(struct drafting *d, struct member *const *in, int n,
                 const struct drafting_rows *of, struct err *e);

// Forgets the step: nothing is learnt of one in which nobody drafted.
void drafting_reset(struct drafting *d);
// Learns from the step of the members of drafting_run, which has been walked and committed; its
// pass has taken that long.
void drafting_learn(struct drafting *d, struct member *const *in, int n, double pass_ms);

// The member's rows after which a token is known, of which log-probabilities are wanted.
static inline int64_t step_known(const struct member *m) {
    return m->phase == MEMBER_PROMPT ? m->n_known : 0;
}
// And those after which one may be chosen.
static inline int64_t step_sampled_rows(const struct member *m) {
    return m->phase == MEMBER_PROMPT ? m->choose : m->tree.n;
}

#endif
