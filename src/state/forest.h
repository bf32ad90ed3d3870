// SPDX-License-Identifier: Apache-2.0
// The forest: the unit of work of a forward pass. Rows are tokens of one or more sequences, each
// with a parent. Of each sequence it holds one prompt chain, whose rows are committed as they go (a
// plain decoding step is a chain of one row), or trees to be verified. It owns the host arrays and
// their order rules; it does not depend on the meaning of tokens.
#ifndef COPPICE_STATE_FOREST_H
#define COPPICE_STATE_FOREST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "ops/ops.h"

// Rows of a tree deeper than this below the committed length are refused (docs/state.md).
enum { FOREST_MAX_DEPTH = 32 };

// A zeroed forest is valid and has no room. Read the arrays freely; write through the functions.
struct forest {
    int64_t n, cap;
    int32_t *token, *parent, *seq; // [n]
    int64_t *pos;                  // [n]
    uint8_t *logits_requested;     // [n] 1: this row's logits are requested
    // [n] The mode, a root's and its descendants'. 0: a tree; nothing becomes part of a sequence
    // until model_commit. 1: a chain; its rows are part of its sequence after the pass.
    uint8_t *prompt;
};

// Room for cap rows. ERR_MEMORY.
int forest_init(struct forest *f, int64_t cap, struct err *e);
void forest_fini(struct forest *f);

void forest_reset(struct forest *f); // drops all rows

// Adds the root of a tree: its parent is the last committed token of sequence `seq` (an index into
// the array given to model_forward); pos is that sequence's committed length. Returns the row, or
// -1 if full.
int32_t forest_root(struct forest *f, int32_t seq, int64_t pos, int32_t token, bool logits);

// Adds a child of row `parent` (same sequence and mode, next position). Returns the row, or -1 if
// full. To a chain only its last row may be the parent, and only while it is the last of the
// forest.
int32_t forest_add(struct forest *f, int32_t parent, int32_t token, bool logits);

// Adds a prompt chain of n tokens from position pos, the committed length of `seq`, on, wanting
// only the last one's logits when logits_of_last. Returns the last row, or -1 (nothing added) if
// there is no room or n < 1.
int32_t forest_chain(struct forest *f, int32_t seq, int64_t pos, const int32_t *tokens, int64_t n,
                     bool logits_of_last);

// The logits of rows [first, first + n) can be requested, too.
void forest_request_logits(struct forest *f, int64_t first, int64_t n);

// The same rows as the op table takes them. Valid until the forest changes.
struct rows forest_rows(const struct forest *f);

// Checks order, positions, sequence indices (< n_seqs) and tokens (< vocab) against the committed
// lengths len[n_seqs]; that the rows of a sequence are together, as one chain or as trees; the
// depth of trees. ERR_USAGE with the offending row.
int forest_check(const struct forest *f, const int64_t *len, int n_seqs, int64_t vocab,
                 struct err *e);

#endif
