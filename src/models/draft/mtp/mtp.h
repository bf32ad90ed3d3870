// SPDX-License-Identifier: Apache-2.0
// The block that many models were trained with to predict a token further (multi-token prediction,
// arXiv 2404.19737 and 2412.19437): one layer of the target's own kind behind a projection that
// joins the embedding of a token with the hidden state before it. It lies in the target's file or
// in one of its own (a sidecar), and it drafts by running on its own guesses, a pass for each
// depth.
#ifndef COPPICE_MODELS_DRAFT_MTP_MTP_H
#define COPPICE_MODELS_DRAFT_MTP_MTP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "models/draft/class.h"
#include "models/draft/head.h"
#include "models/model.h"

struct mtp;

// Deepest guess that can be chosen, and without a choice; rows of a sequence in one draft, and in
// one call of mtp_rows.
enum { MTP_MAX_DEPTH = 16, MTP_DEPTH = 6, MTP_NODES = 96, MTP_WIDTH = 16 };
enum { MTP_TREE_WIDTH = 4 }; // nodes of a depth that trees are grown from

struct mtp_options {
    int depth;                         // deepest guess, 1 to MTP_MAX_DEPTH; 0: MTP_DEPTH
    enum kv_codec_id codec_k, codec_v; // how its keys and values are stored
    struct draft_vocab_options vocab;  // the tokens that it can guess
};
struct mtp_options mtp_options_default(void); // F16 KV, all tokens

// Whether the file has the tensors of such a block, and the lowest number of one (block may be
// NULL).
bool mtp_in_file(const struct gguf *g, int *block);
// Whether the file has such a block but not the model: it belongs to another file.
bool mtp_sidecar(const struct gguf *g);

// path: DRAFT_OF_TARGET, or of a sidecar. Checks that it fits the target and attaches it: the
// target's passes then keep the hidden states after the output norm, and new sequences have state
// of the block. dry: only checks and counts. ERR_MISMATCH and ERR_UNSUPPORTED name tensor or key.
int mtp_load(struct mtp **out, struct model *target, const char *path, const struct mtp_options *o,
             bool dry, struct err *e);
void mtp_destroy(struct mtp *m); // after the sequences; detaches; NULL is allowed
void mtp_plan_of(const struct mtp *m, struct draft_plan *p);
int mtp_depth(const struct mtp *m); // deepest guess
int mtp_block(const struct mtp *m); // number of the block

// Drafting, for up to the target's max_seqs sequences together. The rows of a sequence are numbered
// from 0 in the order in which they are named. Row 0 has the newest token, which the target has not
// run, and the hidden state of the last committed one; every other row a guess and the hidden state
// that its parent gave. What a row gives is the distribution of the token after its own.

// Begins for seqs[n]: committed tokens that wait are absorbed, and there is room for the rows of a
// draft. A sequence without committed tokens, or for whose rows there is no memory, cannot draft
// this time (mtp_ready). ERR_STATE, ERR_MISMATCH.
int mtp_begin(struct mtp *m, struct sequence *const *seqs, int n, struct err *e);
bool mtp_ready(const struct mtp *m, int i); // whether sequence i of the last mtp_begin can draft

struct mtp_row {
    int32_t seq;    // index into the sequences of mtp_begin
    int32_t parent; // number of a row of an earlier call; -1: row 0
    int32_t token;
};
// Runs the next rows, those of a sequence together, at most MTP_WIDTH of each. ERR_USAGE.
int mtp_rows(struct mtp *m, const struct mtp_row *rows, int64_t n, struct err *e);
// Logits of rows first .. first + n - 1 of the last mtp_rows (n <= mtp_logits_rows): device
// [n][rows of the head], valid until the next call that computes.
const float *mtp_logits(struct mtp *m, int64_t first, int64_t n);
int64_t mtp_logits_rows(const struct mtp *m);
const struct draft_head *mtp_head(const struct mtp *m); // which tokens these are

#endif
