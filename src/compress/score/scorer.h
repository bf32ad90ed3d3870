// SPDX-License-Identifier: Apache-2.0
// What a scorer is: something that reads tokens and says how much each matters to the last of them.
// score.h makes one of a model; tests bring their own.
#ifndef COPPICE_COMPRESS_SCORE_SCORER_H
#define COPPICE_COMPRESS_SCORE_SCORER_H

#include <stdint.h>

#include "base/err.h"

struct scorer;

struct score_call {
    const int32_t *ids; // [n] as the scorer's own tokenizer gives them
    int64_t n;
    int64_t query; // tokens query .. n - 1 are what the others are scored for
    float *out;    // [n] scores of at least 0
};

struct scorer_kind {
    int (*score)(struct scorer *s, const struct score_call *c, struct err *e);
    void (*destroy)(struct scorer *s);
    void (*rest)(struct scorer *s); // gives back what the last text took; NULL: nothing is kept
};

// Embedded as the first member.
struct scorer {
    const struct scorer_kind *kind;
};

#endif
