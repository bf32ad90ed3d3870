// SPDX-License-Identifier: Apache-2.0
// The inside of struct model, for files of this folder only: what an architecture file fills in and
// runs, and what the draft reads of its target.
#ifndef COPPICE_MODELS_MODEL_IMPL_H
#define COPPICE_MODELS_MODEL_IMPL_H

#include "base/memory/arena.h"
#include "models/blocks/attention.h"
#include "models/blocks/deltanet.h"
#include "models/blocks/feed_forward.h"
#include "models/blocks/mla.h"
#include "models/blocks/ple.h"
#include "models/model.h"
#include "models/pages.h"
#include "state/host/kv_host.h"

struct layer {
    // Set by model_desc.place:
    bool full, windowed; // attention, else Gated DeltaNet; sees params.window.width tokens
    int group;           // of keys and values
    int index;   // among the layers of its kind (of its group); of one that borrows K and V, that
                 // of the layer which stored them
    int chooses; // 0, or its number among layers by which pages are chosen (pages.c)
    struct attention_shape shape; // of attention that is not latent

    float *mixer_norm, *ffn_norm; // [D]
    // Norms of what blocks give, and what multiplies the stream after the layer; NULL and 0: none.
    float *mixer_out_norm, *ffn_out_norm; // [D]
    float out_scale;
    struct ple_layer ple;
    struct attention_block attention;
    struct mla_block mla; // in its place where attention is latent
    struct deltanet_block deltanet;
    struct mlp_block mlp;
    struct {
        float *in, *router, *out, *dense_out;
    } moe_norms;          // [D] where experts stand next to the dense block (Gemma 4)
    struct moe_block moe; // in its place where the layer has experts
};

// One forward pass as a layer recipe sees it.
struct pass {
    struct rows rows, seen; // seen: with positions as views count them, of groups without a window
    struct sequence *const *seqs;
    const int64_t *len; // [n_seqs] committed before the pass
    int n_seqs;
};

// Layers that store keys and values alike, and where those of the present pass lie. Host arrays.
struct model_group {
    struct kv_layout layout;
    int64_t window; // 0: full attention
    struct kv_pool *pool;
    unsigned char *scratch;                  // pages for K and V of V rows
    struct kv_slot *store, *target, *source; // [R]; the last two: of a commit
    struct kv_view *views;                   // [S]
    unsigned char **seen;     // [S][view_pages] pages of views that leave some out; NULL: none do
    struct kv_stream *stream; // NULL: pages stay on the device
};

// Workspace, sized at load. R rows of a pass, V of trees, L rows of logits, S sequences. What has R
// rows may be there several times (workspace.c); then the present one is meant.
struct workspace {
    float *h;                  // [R][D] residual stream, kept for logits until the next pass
    struct act *act_d, *act_f; // R rows of D, of F
    struct moe_buffers moe;
    struct attention_buffers attention;
    struct mla_buffers mla;
    struct deltanet_buffers deltanet;
    struct ple_buffers ple;
    float *apart;         // [R][D] output of a block that is normed before it joins the stream
    float *experts_apart; // [R][D] the same of experts besides the dense block, with
    struct act *router;   // R rows of D: what their router reads
    // Room for choices of rows, and the ends that it points to; nothing where no row chooses.
    struct attend_choice choice;
    struct gdn_rows *verify; // host [recurrent layers]: u, k, g, d of V rows each
    float *wanted;           // [L][D] rows of a slice of logits
    float *logits;           // [L][vocab]
};

// The last forest as model_commit and model_logits need it, and memory for what a pass and a commit
// tell the ops. Host arrays.
struct pass_record {
    struct arena arena;
    int32_t *token, *parent, *seq; // [R]
    int32_t *logit_row;            // [R] rows whose logits are requested
    int32_t *identity;             // [R] 0, 1, 2, ...
    // Where a row's recurrent rows wait for a commit, and K and V of a tree's: [R] index in the
    // scratch of V rows; -1 of a chain whose layers commit as they go.
    int32_t *place;
    int32_t *tree;                  // [V] rows of trees
    int32_t *path;                  // [R] places of rows to be committed
    struct gdn_run *runs, *slices;  // [S] the rows of each sequence; for deltanet_run
    struct gdn_commit_seq *commits; // [S]
    uint8_t *chain;                 // [S] the sequence has a prompt chain
    int64_t *len, *len_now;         // [S]
    int64_t *sparse_end, *seen_pos; // [S], 0 where a view leaves some out; [R] of struct pass.seen
    size_t view_pages;              // of a view that leaves some out, at most; 0: none does
    struct gdn_state **states;      // [S]
    uint64_t *version;              // [S] of the sequences when the pass ran
    uint64_t epoch, logits_epoch, number; // exec_epoch of the pass, of ws.logits; exec_pass
    int64_t n, n_logit_rows, n_tree;
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
    struct expert_host *host; // experts on the host's CPU; NULL: none
    char kind[192];           // see model_kind
    const struct weight *embed, *head;
    float *out_norm;
    struct ple_block ple;
    float *rope_factors;  // host [rope.dims / 2], or NULL
    struct layer *layers; // [n_layers]
    int n_groups;
    struct model_group groups[SEQ_GROUPS];
    struct workspace ws;
    struct model_workspace {
        int64_t rows;
        int number; // of the store
        struct workspace ws;
    } workspaces[MODEL_WORKSPACES]; // of passes of more and more rows, options.max_rows first
    int n_workspaces, workspace;    // how many, 0: there is one workspace; the one that ws is
    int scorer_room;                // of the store, where options.lending.scorer says so
    struct pass_record pass;
    struct model_pages pages;
    uint64_t content; // model_content, 0: not computed yet
    int n_readers;
    struct model_reader readers[SEQ_ATTACHED];
};

// What the plain decoders (models/arch/plain.c) have in addition.
enum plain_part { PLAIN_ABSENT, PLAIN_THERE, PLAIN_IF_THERE };
struct plain_decoder {
    enum plain_part qk_norm; // RMSNorm of each head of queries and keys
    enum plain_part bias;    // of queries, keys and values; if there, of the output too
    bool factors;            // a tensor rope_freqs may divide the rotary angles
    int pairs;               // enum rope_pairs
    double base;             // rotary base where the file has none; 0: it must have one
    // How experts are chosen, where layers have some; scale 0: they have none. Where shared is not
    // 0, there is a shared one too, as wide as expert_shared_count others, and there may be dense
    // layers before. A choice_bias is taken if there is one.
    struct moe_shape experts;
    int64_t draft_mask;
};

// One architecture.
struct model_desc {
    const char *arch; // general.architecture
    // Reads metadata into m->params (context, shapes; not the kinds of layers) and checks bounds.
    int (*params)(struct model *m, const struct gguf *g, struct err *e);
    // Says of each of m->layers, which are zeroed, what it is made of.
    int (*place)(struct model *m, const struct gguf *g, struct err *e);
    // Makes m->layers and weights.
    int (*load)(struct model *m, const struct gguf *g, struct err *e);
    // Makes the buffers in m->ws that this architecture needs besides those that all do, for passes
    // of that many rows.
    int (*buffers)(struct model *m, int64_t rows, struct err *e);
    // Runs all layers on the field h of m->ws, which holds the embeddings of the rows.
    void (*forward)(struct model *m, const struct pass *p);
    // The same of a block that predicts further tokens; NULL: none of this architecture is read.
    void (*nextn)(const struct model *m, struct layer *y);
    const char *ffn_norm;   // the norm before the feed-forward block; NULL: ffn_norm.weight
    struct ops_needs needs; // of the backend, besides what hyper-parameters and layers determine
    struct plain_decoder plain;
};
extern const struct model_desc arch_qwen35, arch_qwen35moe, arch_qwen3, arch_qwen3moe, arch_qwen2,
    arch_llama, arch_glm4moe, arch_gemma3, arch_gemma4, arch_gpt_oss, arch_deepseek2, arch_laguna;

// The whole recipe without weights: shapes are checked and bytes counted in m->load.
int model_dry(struct model **out, const struct exec *x, const struct gguf *g,
              const struct model_options *o, struct err *e);

// The workspace of usual passes (dry: only counted); later, those for which slots are lent.
int model_workspace_init(struct model *m, bool dry, struct err *e);
int model_workspace_lend(struct model *m, struct err *e);
// Makes m->ws one for a pass of that many rows: that without a loan if they fit into it, else the
// present one, else the smallest. What the last pass left there is gone if it is another.
int model_workspace_enter(struct model *m, int64_t rows, struct err *e);

// Makes the recurrent rows named by m->pass.commits[0..n), places in the scratch, part of their
// sequences' states in all layers.
void model_commit_recurrent(struct model *m, int n);

// What a model's layers without a window ask attention_check for; NULL: its rows do not choose.
const struct attend_choice *model_choice(const struct model *m);
// Where K and V of the row at scratch place `place` lie until they are committed.
struct kv_slot model_scratch_slot(const struct model_group *g, int64_t place);
// To be called after layer i: copies the residual stream of all rows to those who read it.
void model_tap(struct model *m, int i, int64_t n);

#endif
