// SPDX-License-Identifier: Apache-2.0
// The inside of struct eagle3, for the files of this folder only.
#ifndef COPPICE_MODELS_DRAFT_EAGLE3_IMPL_H
#define COPPICE_MODELS_DRAFT_EAGLE3_IMPL_H

#include "models/draft/config.h"
#include "models/draft/eagle3/eagle3.h"
#include "models/draft/path/impl.h"

struct eagle3 {
    struct path path; // first
    struct eagle3_params params;
    struct draft_file file;
    uint64_t content; // 0: not computed yet
    struct attention_shape shape;
    struct attention_block attention;
    struct mlp_block mlp;
    float *token_norm, *hidden_norm, *ffn_norm, *out_norm; // [D]
    float *taps_norm;                                      // [taps target_dim], or NULL
    float *divisors;                                       // host [rope.dims / 2], or NULL
    const struct weight *fc, *embed;
    // Workspace for R rows, of which P are of a draft's pass (struct path).
    float *h, *pair;                         // [R][D]; [R][2][D] embedding, hidden state
    float *gathered;                         // [R][taps target_dim]
    struct act *act_taps, *act_pair, *act_f; // R rows of taps target_dim, of 2D; P of F
    struct attention_buffers attend;
    float *features; // the target's [rows of a pass][taps][target_dim]
};

extern const struct path_block eagle3_path_block; // block.c

// load_find_fn over a struct draft_file: the tensor of a GGUF name in either form, which counts as
// requested.
const struct tensor *eagle3_file_find(const void *file, const char *name);
uint64_t eagle3_content(struct path *d);

// What the file says, and that it fits the target.
int eagle3_read_params(struct eagle3_params *p, const struct draft_file *f,
                       const struct model *target, struct err *e);

#endif
