// SPDX-License-Identifier: Apache-2.0
// A scorer for tests that takes words literally: a token that is among the question's, and rare
// before it, gets 1, every other next to nothing. It needs no model.
#ifndef COPPICE_TESTS_WORDS_SCORER_H
#define COPPICE_TESTS_WORDS_SCORER_H

#include <stdbool.h>

#include "compress/score/score.h"
#include "text/tokenizer/tokenizer.h"

struct words_scorer {
    struct scorer base;
    int calls;
    bool fails; // with ERR_DEVICE
};

// Not owned by a compressor: closing one leaves it as it is.
struct words_scorer words_scorer(void);
// The tokenizer of a model's file; it is asserted that there is one.
struct tokenizer *words_tokenizer(const char *path);

#endif
