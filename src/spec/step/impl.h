// SPDX-License-Identifier: Apache-2.0
// The inside of struct step, for step*.c only.
#ifndef COPPICE_SPEC_STEP_IMPL_H
#define COPPICE_SPEC_STEP_IMPL_H

#include "spec/step/step.h"

struct step {
    struct step_config c;
    struct exec *x;
    int64_t vocab;
    int64_t max_rows, max_verify; // of a pass, of trees and chosen tokens
    struct forest forest;
    struct member **in;                    // [max_members] those that take part
    struct sequence **seqs;                // [max_members] theirs
    struct model_path *paths;              // [max_members]
    int32_t *path_rows;                    // [max_verify] rows of the paths
    struct sample_row *rows;               // [max_verify] of the wanted rows
    int32_t *choice;                       // [max_verify] what was chosen behind them
    struct draft_request *request;         // [max_members]
    struct draft_request *shared_requests; // [max_members] those of the shared drafter, packed,
    struct proposal *proposals;            // [max_members]
    struct proposal **shared_proposals;    // [max_members] and where their answers go
    struct budget_step share;              // of the newest step,
    struct budget_member *budgeted;        // [max_members] its members,
    struct member **owner;                 // [max_members] and whose they are
    float *row;                            // [vocab] host copy of one logits row, for hashes
    struct step_times ms;                  // of the newest step
    int draft_failures;                    // of the shared drafter, in a row
};

// Adds the milliseconds since *from to *phase and moves *from on.
void step_add_time(double *phase, double *from);

// Asks the drafters of all members in s->in[n] that decode (one at least), and builds each one's
// tree, so that all fit of->trees: only the root where nothing may or can be proposed. A member
// whose own drafter fails gets its rc. An error of the shared drafter is the step's.
struct step_rows {
    int64_t pieces, trees; // of prompts beside them; most of all trees together
};
int step_draft(struct step *s, int n, const struct step_rows *of, struct err *e);

// The member's rows behind which a token is known, of which log-probabilities are wanted.
static inline int64_t step_known(const struct member *m) {
    return m->phase == MEMBER_PROMPT ? m->n_known : 0;
}
// And those behind which one may be chosen.
static inline int64_t step_deciding(const struct member *m) {
    return m->phase == MEMBER_PROMPT ? m->choose : m->tree.n;
}

// Log-probabilities of known tokens and of what the walks have chosen, for members that want them.
// It fails only where the device does.
int step_logprobs(struct step *s, int n, struct err *e);

// Prices and budgets learn from the step of s->in[n] that has just been walked and committed.
void step_learn(struct step *s, int n);

#endif
