// SPDX-License-Identifier: Apache-2.0
// Running requests to their end in one call: one, several side by side, or a prompt alone.
#ifndef COPPICE_ENGINE_BATCH_GENERATE_H
#define COPPICE_ENGINE_BATCH_GENERATE_H

#include "engine/batch/request.h"

// Generates. *out is zeroed first; call reply_fini in any case. After an error it holds the tokens
// that were chosen before, which the callback has seen too.
int session_generate(struct session *s, const struct request *r, struct reply *out, struct err *e);

// What the steps cost in which all requests were decoding.
struct generate_cost {
    int64_t steps, tokens, rows; // passes; tokens committed and rows verified, of all requests
    struct step_times ms;
};

// Generates r[n], 1 <= n <= the session's max_seqs, side by side. out[n] is zeroed first; call
// reply_fini on each in any case. cost: NULL, or filled. The first error ends all.
int session_generate_many(struct session *s, const struct request *r, int n, struct reply *out,
                          struct generate_cost *cost, struct err *e);

// Runs the first n tokens of a prompt into a sequence, which several requests may go on from. *out:
// NULL for a new one, or one that holds the first of these tokens and grows; when that fails it
// holds any number of them. The caller frees it with sequence_destroy before the session.
int session_prefill(struct session *s, const int32_t *prompt, int64_t n, struct sequence **out,
                    struct err *e);

#endif
