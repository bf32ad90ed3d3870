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
#include "models/draft/path/path.h"
#include "models/model.h"

struct mtp;

struct mtp_options {
    int depth;                         // deepest guess, 1 to PATH_MAX_DEPTH; 0: PATH_DEPTH
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
void mtp_destroy(struct mtp *m);      // after the sequences; detaches; NULL is allowed
int mtp_block(const struct mtp *m);   // number of the block
struct path *mtp_path(struct mtp *m); // drafting with it

#endif
