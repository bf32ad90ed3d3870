// SPDX-License-Identifier: Apache-2.0
// The inside of struct mtp, for the files of this folder only.
#ifndef COPPICE_MODELS_DRAFT_MTP_IMPL_H
#define COPPICE_MODELS_DRAFT_MTP_IMPL_H

#include "models/draft/mtp/mtp.h"
#include "models/draft/path/impl.h"

struct mtp {
    struct path path; // first
    struct mtp_options options;
    int block;        // number of the block
    struct gguf *own; // the sidecar; NULL: it is in the target's file
    uint64_t content; // mtp_content, 0: not computed yet
    struct layer layer;
    bool latent;                  // latent attention
    bool experts, attention_only; // what the feed-forward part is, if there is one
    float *enorm, *hnorm, *gnorm; // [D]
    const struct weight *join;    // eh_proj, [2D -> D]
    const struct weight *embed;
    bool own_output; // output.weight is the sidecar's
    // Workspace for R rows, of which P are of a draft's pass (struct path).
    float *h, *pair;              // [R][D]; [R][2][D] embedding, hidden state
    struct act *act_pair, *act_f; // R rows of 2D; P of F
    struct attention_buffers attention;
    struct mla_buffers mla; // in its place where attention is latent
    struct moe_buffers moe;
    float *features; // the target's [rows of a pass][D]
};

// A hash of the block's tensors and of what else its keys and values depend on.
uint64_t mtp_content(struct mtp *m);
extern const struct path_block mtp_path_block; // block.c

// The file that has the block; tensors of it and of the target (load_find_fn and the like over a
// struct mtp).
const struct gguf *mtp_file(const struct mtp *m);
const struct tensor *mtp_find(const void *mtp, const char *name);
int mtp_check_file(const void *mtp, struct err *e);
void mtp_done(const void *mtp, const struct tensor *t);
const struct tensor *mtp_tensor(const struct mtp *m, const char *suffix); // of the block, or NULL
// A sidecar must be of the same architecture, width and vocabulary as its target.
int mtp_check_sidecar(const struct mtp *m, struct err *e);

#endif
