// SPDX-License-Identifier: Apache-2.0
// The inside of struct model, for files of this folder only: what an architecture file fills in and
// runs, and what the draft reads of its target.
#ifndef COPPICE_MODELS_MODEL_IMPL_H
#define COPPICE_MODELS_MODEL_IMPL_H

#include "base/arena.h"
#include "models/block_attention.h"
#include "models/block_deltanet.h"
#include "models/block_mlp.h"
#include "models/model.h"

struct layer {
    bool full;                    // attention, else Gated DeltaNet
    int index;                    // among the layers of its kind
    float *mixer_norm, *ffn_norm; // [D]
    struct attention_block attention;
    struct deltanet_block deltanet;
    struct mlp_block mlp;
};

// One forward pass as a layer recipe sees it.
struct pass {
    struct rows rows;
    const struct kv_slot *store; // [n]
    const struct kv_view *views; // [n_seqs]
    struct sequence *const *seqs;
    const int64_t *len; // [n_seqs] committed before the pass
    int n_seqs;
};

// Workspace, sized at load. R rows of a pass, V of trees, L rows of logits, S sequences.
struct workspace {
    float *h;                  // [R][D] residual stream, kept for logits until the next pass
    struct act *act_d, *act_f; // R rows of D, of F
    struct attention_buffers attention;
    struct deltanet_buffers deltanet;
    struct gdn_rows *verify; // host [recurrent layers]: u, k, g, d of V rows each
    unsigned char *scratch;  // pages for K and V of V rows
    float *wanted;           // [L][D] rows of a slice of logits
    float *logits;           // [L][vocab]
    float *features;         // [R][n_taps][D]; NULL without a draft
};

// The last forest as model_commit and model_logits need it, and room for what a pass and a commit
// tell the ops. Host arrays.
struct pass_record {
    struct arena arena;
    int32_t *token, *parent, *seq; // [R]
    int32_t *want_row;             // [R] rows whose logits are wanted
    int32_t *identity;             // [R] 0, 1, 2, ...
    // Where a row's recurrent rows wait for a commit, and K and V of a tree's: [R] index in the
    // rooms of V rows; -1 of a chain whose layers commit as they go.
    int32_t *place;
    int32_t *tree;                           // [V] rows of trees
    int32_t *path;                           // [R] places of rows to be committed
    struct kv_slot *store, *target, *source; // [R]
    struct kv_view *views;                   // [S]
    struct gdn_run *runs, *slices;           // [S] the rows of each sequence; for deltanet_run
    struct gdn_commit_seq *commits;          // [S]
    uint8_t *chain;                          // [S] the sequence has a prompt chain
    int64_t *len, *len_now;                  // [S]
    struct gdn_state **states;               // [S]
    uint64_t *version;                       // [S] of the sequences when the pass ran
    uint64_t stretch, logits_stretch;        // exec_stretch of the pass, of ws.logits
    int64_t n, n_want, n_tree;
    int n_seqs, n_runs;
    bool layerwise; // some chain is long: chains are committed layer by layer, slice by slice
    bool open;      // trees that can still be committed
    int64_t logits_first, logits_n; // wanted rows in ws.logits
};

struct model {
    const struct model_desc *desc;
    struct model_params params;
    struct model_options options; // with defaults filled in
    struct exec *x;
    struct ranks ranks; // the devices that share it, this one among them
    struct load load;
    const struct weight *embed, *head;
    float *out_norm;
    struct layer *layers; // [n_layers]
    struct kv_layout kv;
    struct kv_pool *pool;
    struct workspace ws;
    struct pass_record pass;
    // The attached draft. absorb projects the features of positions draft_len .. len-1 of a
    // sequence into the draft KV, those that are pending or, of a long prompt's pass, absorb_rows
    // (0: none) at `features`; the room was reserved before, so it cannot fail.
    void *draft;
    void (*absorb)(void *draft, struct sequence *s, const float *features);
    int64_t absorb_rows;
    int n_taps;
    int32_t taps[64];
    int n_draft;
    struct kv_pool *draft_pool[SEQ_DRAFT_GROUPS];
    int64_t draft_window[SEQ_DRAFT_GROUPS];
};

// One architecture.
struct model_desc {
    const char *arch; // general.architecture
    // Reads metadata into m->params (context, shapes; not the kinds of layers) and checks bounds.
    int (*params)(struct model *m, const struct gguf *g, struct err *e);
    // Makes m->layers, weights and the buffers that this architecture needs.
    int (*load)(struct model *m, const struct gguf *g, struct err *e);
    // Runs all layers on m->ws.h, which holds the embeddings of the rows.
    void (*forward)(struct model *m, const struct pass *p);
};
extern const struct model_desc arch_qwen35;

// The whole recipe without weights: shapes are checked and bytes counted in m->load.
int model_dry(struct model **out, const struct exec *x, const struct gguf *g,
              const struct model_options *o, struct err *e);

// Makes the recurrent rows named by m->pass.commits[0..n), places in the rooms, part of their
// sequences' states in all layers.
void model_commit_recurrent(struct model *m, int n);

// The host side of a commit: tokens, lengths, features. K, V and recurrent rows are in place, and
// room has been reserved. token: of the pass's rows; index: [count] rows.
void model_append(struct model *m, struct sequence *s, const int32_t *token, const int32_t *index,
                  int64_t count);

// Where K and V of the row in room `place` lie until they are committed.
struct kv_slot model_scratch_slot(const struct model *m, int64_t place);

// Copies the residual stream of all rows after layer i into the features if the layer is tapped.
void model_tap(struct model *m, int i, int64_t n);

// Sets the tapped layers (0-based, n <= 64) and where their outputs go: [max_rows][n][D].
void model_set_taps(struct model *m, const int32_t *ids, int n, float *features);

#endif
