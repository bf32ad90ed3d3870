// SPDX-License-Identifier: Apache-2.0
// Log-probabilities of tokens, one after another, as a reply grows: of the token itself and of the
// best ones in its place. Memory grows with the tokens, block by block, and what has been added
// never moves: another thread may read it once it has been told that it is there.
#ifndef COPPICE_ENGINE_BATCH_LOGPROBS_H
#define COPPICE_ENGINE_BATCH_LOGPROBS_H

#include <stdint.h>

#include "base/err.h"
#include "ops/args/sample.h"

// A zeroed struct holds nothing and can hold nothing.
struct logprobs {
    int n_best;
    int64_t n; // that have been added
    int64_t most;
    void **blocks; // NULL: none were asked for
};

// Room for `most` tokens, each with n_best of the best ones, 0 to OPS_LOGPROBS_MAX. ERR_MEMORY.
int logprobs_init(struct logprobs *l, int n_best, int64_t most, struct err *e);
void logprobs_fini(struct logprobs *l); // zeroed is allowed

// Adds those of one token; p->n must be n_best. ERR_MEMORY: nothing was added.
int logprobs_add(struct logprobs *l, const struct sample_logprobs *p, struct err *e);

// Natural logarithms under the softmax of the model's logits as they are.
struct token_logprobs {
    float chosen;       // of the token itself
    int n;              // best tokens, in falling order, equal ones by id
    const int32_t *ids; // [n] -1 behind the vocabulary
    const float *logp;  // [n]
};
// Those of token i, 0 <= i < n; valid until logprobs_fini.
struct token_logprobs logprobs_at(const struct logprobs *l, int64_t i);

#endif
