// SPDX-License-Identifier: Apache-2.0
// Where guesses were accepted: the share of passes that got as far as each depth of the tree, and
// the mean accept length by how many tokens came before. A draft that is wrong at depth 1, or whose
// guesses go bad with a long context, shows here and not in one mean.
#ifndef COPPICE_CLI_BENCH_ACCEPT_H
#define COPPICE_CLI_BENCH_ACCEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json/json.h"
#include "base/str.h"
#include "spec/tree/ddtree.h"

enum { ACCEPT_SPANS = 5 }; // of context: below 1K, 4K, 16K and 64K tokens, and beyond

// Sums over passes; zeroed is empty.
struct bench_accept {
    int64_t steps;
    int64_t reached[TREE_MAX_DEPTH]; // passes whose guess at depth i + 1 was accepted
    int64_t span_steps[ACCEPT_SPANS], span_rows[ACCEPT_SPANS]; // passes, and what they committed
};

// Adds the passes of one reply: lengths[steps], each 1 (no guess was right) or more, behind a
// prompt of n_prompt tokens.
void bench_accept_add(struct bench_accept *a, int64_t n_prompt, const int32_t *lengths,
                      int64_t steps);

bool bench_accept_any(const struct bench_accept *a); // whether a guess was ever accepted

// One line: ".82 .71 .60" in order of depth, then "<1K 5.43" and so on for spans with passes.
void bench_accept_text(const struct bench_accept *a, struct str *out);

// Two members of an open object: accepted_by_depth, shares up to the deepest accepted guess; and
// accept_length_by_context, an object for each span with passes.
void bench_accept_json(const struct bench_accept *a, struct json_writer *w);

#endif
