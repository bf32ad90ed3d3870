// SPDX-License-Identifier: Apache-2.0
// Simulated devices, drafts and texts, on which chosen budgets are compared with fixed ones: passes
// take what a table says, with noise that only the chooser has; guesses are right as often as a
// rate says.
#ifndef TESTS_UNIT_SIM_BUDGET_H
#define TESTS_UNIT_SIM_BUDGET_H

#include <stdio.h>

#include "spec/tree/budget.h"

enum { SIM_DEPTH = 15, SIM_K = 8, SIM_MAX = 63, SIM_UNREAD = 64 };
enum { SIM_TOKENS = 128 }; // of a reply or a recorded text at most

struct sim_device {
    const char *name;
    enum price_kind kind;
    double curve[16][2];         // rows and ms of passes of one sequence; {0} after the last
    double seq;                  // ms of each further sequence
    double draft[PRICE_REACHES]; // ms of one member's
    double member;               // part of that for each further one
    double noise;                // standard deviation of times, as a part of them
    double disturbed;            // chance that a pass takes up to three times as long
    double first;                // factor of the very first pass and draft
    double min[2]; // parts of the best fixed number of nodes that first and later replies must have
    struct price_experts experts; // none: {0}
    // Milliseconds that a draft takes besides for each token that it has not read yet, of the
    // prompt or of steps without a draft. With more than SIM_UNREAD of them a pass reads these.
    double unread;
};

extern const struct sim_device sim_devices[];
extern const int sim_n_devices;   // those on which a draft takes less than a pass of one row;
extern const int sim_all_devices; // and the others after them

// What a draft model guessed at one depth: the rank of the token that came, SIM_RANKS where it is
// none of the best, and their log-probabilities.
enum { SIM_RANKS = 3 };
struct sim_record {
    int rank;
    float logp[SIM_RANKS];
};

// A text that the target decoded plainly, with what its draft guessed at every position
// (tests/budget/record_drafts.c).
struct sim_text {
    char id[32];
    int prompt, n; // tokens of the prompt, positions
    int depth[SIM_TOKENS];
    struct sim_record at[SIM_TOKENS][SIM_DEPTH];
};

// The next text of a record: 1, 0 at its end, -1 where the file is none. Of each depth it has three
// characters from '!' on: SIM_BESTS times the rank and the root of the best guess's negated
// log-probability in steps of SIM_BEST, and those of the next two in steps of SIM_OTHER.
enum { SIM_BESTS = 22, SIM_OTHERS = 90 };
#define SIM_BEST  0.08
#define SIM_OTHER 0.15
int sim_read_text(FILE *f, struct sim_text *t);

// How good the guesses are.
struct sim_guess {
    const char *name;
    double errors;     // >= 0: by the oracle drafter's law; else:
    double right[3];   // chance that the best, second, third candidate of a depth is the truth
    double confidence; // power of the chances that the draft states: 1 is honest, 0.3 too sure
    double mood;       // by up to this much all that it states of a position is wrong, as a power
    const struct sim_text *text; // not NULL: what was recorded, instead of all that
};

struct sim_run {
    const struct sim_device *device;
    const struct sim_guess *guess;
    struct price *price; // NULL: fixed ones
    struct budget *budget;
    int nodes, reach; // fixed: -1 nodes never drafts
    int64_t from;     // position at which the text begins
    int64_t tokens;   // of the reply; 0: that many steps instead
    int steps;
    uint64_t noise; // seed
};

double sim_pass_ms(const struct sim_device *d, int64_t rows, int seqs);
// As measured: with the device's noise, from *state on; `first`: the very first pass or draft.
double sim_noisy(const struct sim_device *d, double ms, uint64_t *state, bool first);
double sim_draft_ms(const struct sim_device *d, int members, int reach);

// Milliseconds that the run takes, without noise; its tokens in *tokens (NULL is allowed).
double sim_time(struct sim_run *r, int64_t *tokens);

// Tokens per millisecond of n members side by side with budgets of r[0]'s price, replies of
// r[0].tokens tokens one after the other, begun at different times; r[i].guess is member i's. The
// run ends after that many replies.
enum { SIM_MEMBERS = 16 };
double sim_batch(struct sim_run *r, int n, int replies);

// Tokens per millisecond of all replies together that begin at r->from + i * stride.
double sim_rate(const struct sim_run *r, int replies, int64_t stride);
// Adds the milliseconds of a reply of r->tokens tokens, at most SIM_TOKENS, with each number of
// nodes from 0 on and drafts of r->reach.
void sim_fixed(const struct sim_run *r, double ms[SIM_MAX + 1]);
// Of the best fixed number of nodes, -1 (plain) to SIM_MAX, of drafts of r->reach, over the same
// replies of r->tokens tokens, at most SIM_TOKENS.
double sim_best_fixed(const struct sim_run *r, int replies, int64_t stride, int *nodes);

#endif
