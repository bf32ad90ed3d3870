// SPDX-License-Identifier: Apache-2.0
// Several requests decoded side by side, each step one pass of the target over all that still run.
// All are known from the beginning and share their sampling and tree options; a queue that requests
// join and leave is not here.
#ifndef COPPICE_ENGINE_TOGETHER_H
#define COPPICE_ENGINE_TOGETHER_H

#include "engine/session.h"

// What the steps cost in which all requests still ran.
struct together_cost {
    int64_t steps, tokens, rows; // passes; tokens committed and rows verified, of all sequences
    struct step_times ms;
};

// Generates r[n], n >= 1, on a session whose target has max_seqs >= n. Sampling, tree, `how`,
// ignore_eos and logit_hash are those of r[0]; budgets are fixed and the draft does not share the
// sampling noise. Replies: tokens, accepted rows, hash and end, without times; *cost has those.
// out[n] is zeroed first; call reply_fini on each in any case.
int together_generate(struct session *s, const struct request *r, int n, struct reply *out,
                      struct together_cost *cost, struct err *e);

#endif
