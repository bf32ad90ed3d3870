// SPDX-License-Identifier: Apache-2.0
// The DFlash draft (arXiv 2602.06036): a small transformer that denoises a block of MASK tokens
// from features of the target. Loads three GGUF dialects and the authors' safetensors into one
// form. Its context K/V are in the sequence; the target's embedding and head are used.
#ifndef COPPICE_MODELS_DRAFT_DFLASH_DFLASH_H
#define COPPICE_MODELS_DRAFT_DFLASH_DFLASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "models/draft/class.h"
#include "models/draft/head.h"
#include "models/model.h"

struct dflash;

enum { DFLASH_MAX_TAPS = 32, DFLASH_MAX_BLOCK = 64, DFLASH_MAX_LAYERS = 128 };

// Overrides of what the file says; dflash_options_default() overrides nothing.
struct dflash_options {
    int64_t mask_id; // -1: from the file
    int block_size;  // 0: from the file
    int64_t window;  // -1: from the file; 0: no window; > 0: this window on all layers but the last
    int causal;      // -1: from the file and the layer kinds; 0: bidirectional; 1: causal
    int n_taps;      // 0: from the file
    int32_t taps[DFLASH_MAX_TAPS];     // 0-based target layers
    float rope_base;                   // 0: from the file
    enum kv_codec_id codec_k, codec_v; // how the draft's keys and values are stored
};
struct dflash_options dflash_options_default(void); // F16 KV

// Whether a GGUF file whose general.architecture is this [n] is a draft.
bool dflash_architecture(const char *name, size_t n);

// What is added to a candidate's logit for the token before it: nothing; DFlash2's selector; a
// Markov head of DSpark, whose gates are 1 or depend on the row and the token before.
enum dflash_pairs {
    DFLASH_PAIRS_NONE,
    DFLASH_PAIRS_SELECTOR,
    DFLASH_PAIRS_MARKOV,
    DFLASH_PAIRS_GATED
};

struct dflash_params {
    const char *dialect; // "lucebox", "beellama", "upstream", "safetensors"
    int n_layers, n_heads, n_kv, head_dim, block_size, n_taps;
    int64_t dim, ffn, window, mask_id;
    struct rope rope;
    // Angles are divided by them (llama3), if there are some: rope.factors then.
    float rope_divisors[OPS_HEAD_MAX / 2];
    float eps;
    // Embeddings and logits are multiplied by these; logits are cap tanh(logit / cap), 0: not so.
    float embed_scale, logit_scale, logit_cap;
    int64_t
        head_rows; // tokens that a head of its own scores (draft_vocab_size); 0: nothing is said
    // DFlash2: taps of its convolutions (0: there are none) and channels for which a row has one
    // kernel.
    int conv_taps, conv_group;
    // Rank of the selector or the Markov head (0: there is none) and candidates that it chooses
    // from: of a selector as many as it was trained with.
    enum dflash_pairs pairs;
    int selector_rank, selector_k;
    // Laguna: each layer norms the context by its own attn_norm before keys and values are made.
    bool norms_context;
    // Domino: width of its recurrent unit (0: it is another kind) and of the layer before its
    // logits; how many guesses of a block are not corrected.
    int gru_width, gru_head, gru_skip;
    // The anchor's row guesses, too: row i the token at position len + i + 1, in place of len + i.
    bool from_anchor;
    // DSpark, with or without a Markov head.
    bool dspark;
    int32_t taps[DFLASH_MAX_TAPS];
    uint8_t layer_window[DFLASH_MAX_LAYERS]; // has the sliding window
    uint8_t layer_causal[DFLASH_MAX_LAYERS];
};

// path: a draft GGUF, or model.safetensors (or its folder) with config.json next to it. Checks that
// the draft fits the target and attaches it: the target's passes then keep the tapped features and
// new sequences carry draft state. One draft per target. ERR_MISMATCH names what does not fit.
int dflash_load(struct dflash **out, struct model *target, const char *path,
                const struct dflash_options *o, struct err *e);
// The same without weights and memory: checks and counts only, for dflash_plan_of, and attaches
// nothing.
int dflash_load_dry(struct dflash **out, struct model *target, const char *path,
                    const struct dflash_options *o, struct err *e);
// Bytes that a loaded or a dry one and its state of sequences take.
void dflash_plan_of(const struct dflash *d, struct draft_plan *out);

void dflash_destroy(struct dflash *d); // after the sequences; detaches; NULL is allowed

const struct dflash_params *dflash_params_of(const struct dflash *d);

// Drafts for seqs[n] (n <= the target's max_seqs): the block [anchor, MASK, ...] at positions
// len .. len+B-1 of each, with all pending features absorbed first. Anchors are newest tokens,
// not yet run through the target. ERR_MEMORY leaves the sequences as they were.
int dflash_draft(struct dflash *d, struct sequence *const *seqs, const int32_t *anchors, int n,
                 struct err *e);
// The same with blocks of `block` tokens, of one guess up to the draft's own size: less is
// computed, and each token is predicted without those that would follow.
int dflash_draft_block(struct dflash *d, struct sequence *const *seqs, const int32_t *anchors,
                       int n, int block, struct err *e);
// The first row of a block that guesses, and how many do of a block of that size.
static inline int dflash_first(const struct dflash_params *p) {
    return p->from_anchor ? 0 : 1;
}
static inline int dflash_guesses(const struct dflash_params *p, int block) {
    return block - dflash_first(p);
}
// Logits of the last draft: its rows are [n][G], G being the guesses of its block; row i of a
// sequence is the marginal of the token at position len + i + 1. The head runs when logits are
// requested, a slice at a time; a slice stays until another is requested or the next draft. Rows of
// one sequence, G, are never more than a slice.
int64_t dflash_logits_rows(const struct dflash *d); // rows of a slice at most
// Rows first .. first + n - 1 of all (n <= dflash_logits_rows): device [n][rows of dflash_head],
// valid until the next call that computes. Computed now, unless they are all in the slice that is
// there.
const float *dflash_logits(struct dflash *d, int64_t first, int64_t n);
const struct draft_head *dflash_head(const struct dflash *d); // which tokens these are

// DFlash2's selector or DSpark's Markov head (selector_rank): candidates' log-probabilities after
// each candidate of the row before. With empty codebooks they are what they were.
struct dflash_selection {
    int64_t first;                  // row of the last draft
    int depth, k;                   // rows from there on, all of one sequence; candidates of each
    int32_t anchor;                 // the token before the first row
    const int32_t *ids;             // [depth][k], -1: none
    float *logp;                    // [depth][k]; the first row's become those after the anchor
    const struct sample_row *noise; // NULL, or [depth]: with which logp was made
};
// Requests what dflash_select needs of the device, so that it is there when the candidates are.
// Without a selector it does nothing.
void dflash_select_ahead(struct dflash *d);
int dflash_select(struct dflash *d, const struct dflash_selection *s, struct err *e);
// Then, until the next draft: out[k] of row 1 <= i < depth after candidate q of the row before.
void dflash_select_line(struct dflash *d, const struct dflash_selection *s, int i, int q,
                        float *out);

// Domino (gru_width): logits of all tokens after node `node` of the newest level of
// member `member` of draft_begin, whose guesses draft_run_level has given: host out[vocab].
int dflash_path_logits(struct dflash *d, int member, int node, float *out, struct err *e);

#endif
