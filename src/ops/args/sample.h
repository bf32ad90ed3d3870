// SPDX-License-Identifier: Apache-2.0
// What the ops that choose tokens take. Pointers are device memory of the backend unless a
// comment says host.
#ifndef COPPICE_OPS_ARGS_SAMPLE_H
#define COPPICE_OPS_ARGS_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

// Log-probabilities of a row: under the softmax of the logits as they are, before masks, penalties,
// temperature and filters, so that they say what the model thinks and not what was asked of it.
enum { OPS_LOGPROBS_MAX = 32 };
struct sample_logprobs {
    int n;                         // of the best tokens, 0 .. OPS_LOGPROBS_MAX; set by the caller
    float chosen;                  // of the choice; -INFINITY where there is none
    int32_t ids[OPS_LOGPROBS_MAX]; // [n] best first, equal ones by id; -1 behind the vocabulary
    float logp[OPS_LOGPROBS_MAX];  // [n], -INFINITY behind the vocabulary
};

// What is added to a token's logit. -INFINITY forbids the token: it is chosen only where all that
// the mask allows are forbidden.
struct logit_bias {
    int32_t id;
    float bias; // finite or -INFINITY
};

// Sampling by Gumbel-max (docs/exactness.md, E4). All arrays are host memory, read during the call.
// Order: mask, biases, penalties, temperature, top-k, top-p, min-p; the filters see allowed tokens
// only.
struct sample_row {
    int64_t pos;                       // position that the chosen token will take
    uint64_t seed;                     // request seed mixed with the choice index
    float temperature;                 // 0: argmax
    int32_t top_k;                     // 0: all
    float top_p, min_p;                // 1 and 0: off
    float repeat, frequency, presence; // 1, 0, 0: off
    const int32_t *seen;               // [n_seen] distinct tokens that the penalties look at
    const int32_t *seen_count;
    int32_t n_seen;
    // [(vocab + 31) / 32]: bit id % 32 of word id / 32 says that the token may be chosen. NULL: all
    // may. One that allows nothing is the caller's mistake: the choice is then -1.
    const uint32_t *allow;
    const struct logit_bias *bias; // [n_bias] distinct tokens of the vocabulary, ascending
    int32_t n_bias;
    // The token behind the row is known already: `token` is taken as the choice, and of all other
    // fields only logprobs counts.
    bool given;
    int32_t token;
    struct sample_logprobs *logprobs; // filled by sample; NULL: not wanted
};

// The k best ids of each row of logits, score descending and lower id first, with their
// log-probabilities (score - logsumexp over all). Without noise a score is the logit; with it,
// logit / temperature + the Gumbel noise of that choice, so that the order foresees the target's
// own draws. Masks, biases and penalties are not looked at.
enum { OPS_TOPK_MAX = 1024 };
struct topk_args {
    const float *logits; // [n][vocab]
    int64_t n, vocab;
    int k;                          // 1 .. OPS_TOPK_MAX
    const struct sample_row *noise; // NULL, or host [n]
    int32_t *ids;                   // host [n][k]; -1 where the vocabulary is smaller than k
    float *logp;                    // host [n][k]
};

#endif
