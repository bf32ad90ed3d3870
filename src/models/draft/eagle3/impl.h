// SPDX-License-Identifier: Apache-2.0
// The inside of struct eagle3, for the files of this folder only.
#ifndef COPPICE_MODELS_DRAFT_EAGLE3_IMPL_H
#define COPPICE_MODELS_DRAFT_EAGLE3_IMPL_H

#include "formats/safetensors.h"
#include "models/draft/eagle3/eagle3.h"
#include "models/draft/path/impl.h"

// An open file. Tensors are requested by their GGUF names in either form.
struct eagle3_file {
    struct gguf *g;         // else
    struct safetensors *st; // with its config.json
    struct json *config;
    uint8_t *used; // [tensors of the file] requested
};

struct eagle3 {
    struct path path; // first
    struct eagle3_params params;
    struct eagle3_file file;
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

int eagle3_file_open(struct eagle3_file *f, const char *path, struct err *e);
void eagle3_file_close(struct eagle3_file *f);
// load_find_fn and load_done_fn over a struct eagle3_file; what is found counts as used.
const struct tensor *eagle3_file_find(const void *file, const char *name);
void eagle3_file_done(const void *file, const struct tensor *t);
int eagle3_file_check(const void *file, struct err *e); // load_check_fn
// ERR_UNSUPPORTED where the file has a tensor that no rule requested: another kind of draft.
int eagle3_file_all_used(const struct eagle3_file *f, struct err *e);
uint64_t eagle3_content(struct path *d);

// What the file says, and that it fits the target.
int eagle3_read_params(struct eagle3_params *p, const struct eagle3_file *f,
                       const struct model *target, struct err *e);

#endif
