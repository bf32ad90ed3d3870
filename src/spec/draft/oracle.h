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

// Sets c->error_rate to the rate whose mean comes closest; returns that mean.
double oracle_calibrate(struct draft_config *c, const struct oracle_goal *goal);

#endif
