// SPDX-License-Identifier: Apache-2.0
// An index of a growing token list that finds where its newest tokens occurred before. Pairs of
// tokens are hashed; positions with one hash form a list from the newest back. Memory is linear in
// the list, appending is constant time, and cutting the list back undoes exactly what was appended.
#ifndef COPPICE_SPEC_DRAFT_LOOKUP_H
#define COPPICE_SPEC_DRAFT_LOOKUP_H

#include <stdint.h>

#include "base/err.h"

enum {
    LOOKUP_MIN_MATCH = 2,   // shorter repetitions say nothing
    LOOKUP_MAX_MATCH = 32,  // longer ones are all the same; the most recent counts
    LOOKUP_MAX_TRIES = 256, // positions looked at
};

struct lookup;

// Room for max_len tokens.
int lookup_create(struct lookup **out, int64_t max_len, struct err *e);
void lookup_destroy(struct lookup *l);

// Makes the list equal to tokens[0..len) and then `last` (len < max_len): keeps the common
// beginning, drops the rest, appends what is new.
void lookup_update(struct lookup *l, const int32_t *tokens, int64_t len, int32_t last);

// Finds the longest repetition of the list's end (the most recent of equal ones) and writes up to
// max tokens that followed it, running into the guesses themselves when it overlaps the end.
// Returns their count, 0 without a match; *match is the number of tokens that agreed.
int lookup_find(const struct lookup *l, int max, int32_t *out, int *match);

// Log-probability of each token that followed a repetition of `match` tokens, as stated.
float lookup_logp(int match);

#endif
