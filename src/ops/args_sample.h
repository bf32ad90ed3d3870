// SPDX-License-Identifier: Apache-2.0
// What the ops that choose tokens take. Pointers are device memory of the backend unless a
// comment says host.
#ifndef COPPICE_OPS_ARGS_SAMPLE_H
#define COPPICE_OPS_ARGS_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

// Sampling by Gumbel-max (docs/exactness.md, E4). All arrays are host memory, read during the call.
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
};

// The k best ids of each row of logits, score descending and lower id first, with their
// log-probabilities (score - logsumexp over all). Without noise a score is the logit; with it,
// logit / temperature + the Gumbel noise of that choice, so that the order foresees the target's
// own draws.
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
