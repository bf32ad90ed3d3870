// SPDX-License-Identifier: Apache-2.0
// Setting the oracle drafter's error rate so that a recorded continuation is accepted at a wanted
// mean length. The whole run is predictable, because guesses depend on seed and position only and
// the target's choices are the recording: so the rate is searched on the very steps to come.
#ifndef COPPICE_SPEC_DRAFT_ORACLE_H
#define COPPICE_SPEC_DRAFT_ORACLE_H

#include "spec/draft/drafter.h"

struct oracle_goal {
    struct tree_options tree; // max_depth: the drafter's, at most TREE_MAX_DEPTH
    int64_t vocab;
    int64_t first;        // position of the first recorded token after the prompt
    double accept_length; // wanted mean, >= 1
};

// Errors as llama.cpp's benchmarks invent them (common/speculative.cpp), whose options these are:
// --spec-synth-rates, the chance of each depth of a chain that its guess is accepted, and those
// before it; c->right of it. rates: [n], each in 0..1 and none above the one before.
void oracle_use_rates(struct draft_config *c, const double *rates, int n);
// --spec-synth-len: the mean accept length of a chain of n guesses, 1 to n + 1, all of which are
// right with one chance, whose powers 1 to n add up to the length without the target's own token.
void oracle_use_length(struct draft_config *c, double length, int n);

// Sets c->error_rate to the rate whose mean comes closest; returns that mean.
double oracle_calibrate(struct draft_config *c, const struct oracle_goal *goal);

#endif
