// SPDX-License-Identifier: Apache-2.0
// The forest: the unit of work of a forward pass. Rows are tokens of one or more sequences, each
// with a parent; a prompt is a chain, a decoding step one row, a verification a tree. It owns the
// host arrays and their order rules; it knows nothing of what the tokens mean.
#ifndef COPPICE_STATE_FOREST_H
#define COPPICE_STATE_FOREST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "ops/ops.h"

// Rows deeper than this below the committed length are refused (DESIGN, recurrent log).
enum { FOREST_MAX_DEPTH = 32 };

// A zeroed forest is valid and has no room. Read the arrays freely; write through the functions.
struct forest {
    int64_t n, cap;
    int32_t *token, *parent, *seq; // [n]
    int64_t *pos;                  // [n]
    uint8_t *want;                 // [n] 1: the pass computes this row's logits
    // false, verify: trees; nothing becomes part of a sequence until model_commit.
    // true, prompt: each sequence's rows are one run and one chain, committed as they go.
    bool prompt;
};

// Room for cap rows. ERR_MEMORY.
int forest_init(struct forest *f, int64_t cap, struct err *e);
void forest_fini(struct forest *f);

// Drops all rows and sets the mode.
void forest_reset(struct forest *f, bool prompt);

// Adds a row whose parent is the last committed token of sequence `seq` (an index into the array
// given to model_forward); pos is that sequence's committed length. Returns the row, or -1 if full.
int32_t forest_root(struct forest *f, int32_t seq, int64_t pos, int32_t token, bool want);

// Adds a child of row `parent` (same sequence, next position). Returns the row, or -1 if full.
int32_t forest_add(struct forest *f, int32_t parent, int32_t token, bool want);

// Adds a root and its chain of n tokens, wanting only the last one's logits when want_last.
// Returns the last row, or -1 (nothing added) if there is no room or n < 1.
int32_t forest_chain(struct forest *f, int32_t seq, int64_t pos, const int32_t *tokens, int64_t n,
                     bool want_last);

// The same rows as the op table wants them. Valid until the forest changes.
struct rows forest_rows(const struct forest *f);

// Checks order, positions, depth, run shape in prompt mode, sequence indices (< n_seqs) and tokens
// (< vocab) against the committed lengths len[n_seqs]. ERR_USAGE with the offending row.
int forest_check(const struct forest *f, const int64_t *len, int n_seqs, int64_t vocab,
                 struct err *e);

#endif
