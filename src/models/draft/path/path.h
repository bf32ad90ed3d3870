// SPDX-License-Identifier: Apache-2.0
// Drafts that run on their own guesses, a pass for each depth: what MTP and EAGLE-3 have in common.
// Such a draft is one layer. It joins the embedding of a token with a hidden state of the position
// before: one of the target's where that has run the token before, else what the layer gave there.
// Its guesses depend on all tokens on the way to them.
#ifndef COPPICE_MODELS_DRAFT_PATH_PATH_H
#define COPPICE_MODELS_DRAFT_PATH_PATH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "models/draft/class.h"
#include "models/draft/head.h"
#include "models/model.h"

struct path;

// Deepest guess that can be chosen, and without a choice; rows of a sequence in one draft, and in
// one call of path_rows; nodes of a depth that trees are grown from.
enum { PATH_MAX_DEPTH = 16, PATH_DEPTH = 6, PATH_NODES = 96, PATH_WIDTH = 16, PATH_TREE_WIDTH = 4 };

int path_depth(const struct path *d); // deepest guess

// Drafting, for up to the target's max_seqs sequences together. The rows of a sequence are numbered
// from 0 in the order in which they are named. Row 0 has the newest token, which the target has not
// run, and the hidden state of the last committed one; every other row a guess and the hidden state
// that its parent gave. What a row gives is the distribution of the token after its own.

// Begins for seqs[n]: committed tokens that wait are absorbed, and there is room for the rows of a
// draft. A sequence without committed tokens, or for whose rows there is no memory, cannot draft
// this time (path_ready). ERR_STATE, ERR_MISMATCH.
int path_begin(struct path *d, struct sequence *const *seqs, int n, struct err *e);
bool path_ready(const struct path *d, int i); // whether sequence i of the last path_begin can draft

struct path_row {
    int32_t seq;    // index into the sequences of path_begin
    int32_t parent; // number of a row of an earlier call; -1: row 0
    int32_t token;
};
// Runs the next rows, those of a sequence together, at most PATH_WIDTH of each. ERR_USAGE.
int path_rows(struct path *d, const struct path_row *rows, int64_t n, struct err *e);
// Logits of rows first .. first + n - 1 of the last path_rows (n <= path_logits_rows): device
// [n][rows of the head], valid until the next call that computes.
const float *path_logits(struct path *d, int64_t first, int64_t n);
int64_t path_logits_rows(const struct path *d);
const struct draft_head *path_head(const struct path *d); // which tokens these are

#endif
