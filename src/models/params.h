// SPDX-License-Identifier: Apache-2.0
// Hyper-parameters of a model, and reading them from a file's metadata: keys that architectures
// share, each under its own prefix, with the checks that the layers of this folder need. What is
// special to an architecture stays in its file.
#ifndef COPPICE_MODELS_PARAMS_H
#define COPPICE_MODELS_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "formats/gguf/gguf.h"
#include "models/rope_scaling.h"
#include "ops/ops.h"

// A mixture of experts.
struct moe_shape {
    int experts, used; // of a layer; that a row goes through. 0: the model has no experts
    int lead;          // layers before the first with experts, which are dense
    int64_t ffn;       // width of one
    int64_t shared;    // of the expert that every row goes through; 0: there is none
    bool shared_gate;  // its result is weighed by the sigmoid of a number that the row gives
    // How the router chooses (struct moe_route_args).
    enum route_score score;
    float logit_cap;  // logits are cap tanh(logit / cap), 0: as they are
    bool choice_bias; // added to the probabilities for the choice alone
    int groups, groups_used;
    bool group_best;
    bool normalise;
    float scale;
    bool scales; // of experts' weights, one each
    bool biases; // of the router's logits and of the experts' matrices
    enum activation activation;
};

// Latent attention.
struct mla_shape {
    int64_t dim; // residual width
    int n_heads;
    int q_lora;      // width of queries between their two matrices; 0: they have one
    int kv_lora;     // values of a latent
    int nope, turns; // values of a head's key that come from the latent; that are rotated
    int v;           // values of a head
    struct rope rope;
    float eps, latent_eps, scale; // of the stream's norms, of the norms of q_lora and kv_lora
};

struct model_params {
    const char *arch;        // "qwen35"
    int n_layers, n_full;    // backbone layers; of which full attention
    int64_t dim, ffn, vocab; // D, F (widest plain layer; 0: there is none), rows of the head
    int n_heads, n_kv, head_dim;
    struct rope rope;
    struct rope_options rope_options; // set before the file is read
    float eps, attn_scale;
    struct gdn_shape gdn;
    struct moe_shape moe;
    struct mla_shape mla;    // latent attention, if kv_lora is not 0: one kv head, keys of head_dim
    int64_t context;         // trained context length, tokens
    int64_t draft_mask;      // MASK of published drafts, for draft files that do not say
    bool tied;               // the head is the embedding
    bool qkv_bias, out_bias; // of attention's projections
    bool qk_norm;            // of heads, where an architecture leaves it to the file
    // Layers with a window where a model has some: heads and rotary embedding above are of the
    // others.
    struct {
        int64_t width; // tokens that a row sees, 0: there are no such layers
        int n_heads, n_kv, head_dim;
        struct rope rope;
    } window;
    int borrowing;     // the last layers, which read keys and values of earlier ones
    int64_t per_layer; // width of embeddings that each layer has of its own, 0: none
    float logit_cap;   // logits are cap tanh(logit / cap), 0: as they are
    float embed_scale; // the stream begins with embeddings times it, 0: as they are
};

enum { PARAMS_MAX_LAYERS = 1024, PARAMS_MAX_WIDTH = 1 << 20, PARAMS_KEY = 96 };

// "arch.suffix" in a caller's buffer of PARAMS_KEY bytes.
const char *params_key(char *buf, const char *arch, const char *suffix);

// Layers (without next-token-prediction blocks, which follow them: *blocks counts both), context,
// widths (of the dense feed-forward layers; 0 where a model with experts names none), epsilon;
// p->arch is set. ERR_FORMAT, ERR_UNSUPPORTED name the key.
int params_read_sizes(struct model_params *p, const struct gguf *g, const char *arch,
                      int64_t *blocks, struct err *e);

// Heads, their size, rotary dimensions and base (base: where the file has none; 0: it must have
// one), scale.
int params_read_attention(struct model_params *p, const struct gguf *g, int64_t blocks, double base,
                          struct err *e);

// Whether layer i has a window: attention.sliding_window_pattern says so for each layer, or counts
// (otherwise: `period`) to the full one, which is the first or the last of that many.
int params_is_windowed(const struct model_params *p, const struct gguf *g, int period,
                       bool full_first, int i, bool *windowed, struct err *e);

// ERR_UNSUPPORTED for a tensor that is not in the lists of words: of names, and of what follows
// "blk.N.".
int params_refuse_tensors(const struct gguf *g, const char *arch, const char *names,
                          const char *layer, struct err *e);
// Of a block that predicts further tokens (blk.N.nextn.*), or a second head of a smaller type
// (output_extra.weight): the model's own output needs neither.
bool params_is_for_drafting(const char *name);
// Whether a list of words with a space between them has this one.
bool params_lists(const char *words, const char *word);

// A mixture of experts, into p->moe, where what the architecture takes for granted stands before:
// numbers, widths, how the router chooses. Before params_read_sizes.
int params_read_experts(struct model_params *p, const struct gguf *g, const char *arch,
                        struct err *e);
// The width of its shared experts together (otherwise: where the file has none; 0: it must).
// After params_read_sizes.
int params_read_shared(struct model_params *p, const struct gguf *g, int64_t otherwise,
                       struct err *e);

// Of models whose first layers are dense and whose shared experts are one that is as wide as all of
// them (shared_too: there must be one): how many, how wide, and whether experts have a bias for the
// choice. After params_read_sizes.
int params_read_lead(struct model_params *p, const struct gguf *g, bool shared_too, struct err *e);

// How many blocks that predict further tokens a file has (blk.N.nextn.eh_proj.weight), and the
// lowest N; -1 where it has none.
int params_nextn_blocks(const struct gguf *g, int *lowest);
// Whether the file has such a block but no layers, also where the block is numbered from 0: it goes
// with another file. As an error: ERR_UNSUPPORTED.
bool params_is_sidecar(const struct gguf *g, int *block);
int params_refuse_sidecar(const struct gguf *g, struct err *e);

// Rows of the embedding, and whether it is the head.
int params_read_vocab(struct model_params *p, const struct gguf *g, struct err *e);

// What makes a file another model than its architecture says is refused by its name: keys of
// relatives that change the result (before tensors are loaded), and tensors of layers that the
// metadata does not count or that some layers have and others lack (after that, so that what is
// simply missing is reported as such). p: as the architecture has read it. ERR_UNSUPPORTED;
// ERR_MISMATCH.
int params_refuse_relatives(const struct model_params *p, const struct gguf *g, struct err *e);
int params_refuse_uneven(const struct model_params *p, const struct gguf *g, struct err *e);

// An integer in lo..hi. When the key is absent: `otherwise`, or ERR_FORMAT if that is below lo.
int meta_int(const struct gguf *g, const char *key, int64_t lo, int64_t hi, int64_t otherwise,
             int64_t *out, struct err *e);
// A positive finite number; `otherwise` 0 means that the key is required.
int meta_positive(const struct gguf *g, const char *key, double otherwise, float *out,
                  struct err *e);
// A number of heads: one integer, or an array over `blocks` layers whose non-zero entries agree.
int meta_heads(const struct gguf *g, const char *key, int64_t blocks, int *out, struct err *e);
// Element i, in 1..hi, of a key that is one number or an array over n layers.
int meta_of_layer(const struct gguf *g, const char *key, int64_t n, int64_t i, int64_t hi,
                  int64_t *out, struct err *e);

#endif
