// SPDX-License-Identifier: Apache-2.0
// The shapes of published models, and the tensors and metadata of each.
#ifndef COPPICE_CONVERT_SYNTH_TENSORS_H
#define COPPICE_CONVERT_SYNTH_TENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "convert/convert.h"
#include "formats/gguf/gguf.h"

enum { SYNTH_MAX_TAPS = 8 };

// Sizes of a target, or of a DFlash draft for one.
struct synth_shape {
    const char *name; // "qwen35-27b"
    bool draft;
    bool plain;       // all layers are full attention, all of a head turns
    const char *arch; // of a plain one: "llama", "qwen2"; NULL: qwen3
    int layers;
    int nextn; // prediction blocks after them
    int64_t dim, ffn, vocab;
    int heads, kv, head_dim;
    int window_heads; // of queries in layers with a window, 0: as in the others
    // gemma4: the last of each `period` layers is full, with heads and kv heads of its own, whose
    // values may be keys; the last `borrowing` ones read keys of others, and may be twice as wide.
    int full_head, full_kv, period, borrowing;
    // gemma3: layers as these, all with the same heads; the full ones' positions are divided by
    // `linear`, 0: they are not.
    float linear;
    bool k_eq_v, wide; // laguna: wide is a gate for each value instead of each head
    int64_t per_layer; // width of embeddings that layers have of their own
    // qwen35: every fourth layer is full attention, the others Gated DeltaNet.
    int gdn_k, gdn_v, gdn_dim; // key heads, value heads, size of a head
    int rope_dims;
    // Experts in place of the feed-forward layers: 0, or how many, used for a row, width of one, of
    // the shared one.
    int experts, used, lead; // lead: dense layers before
    int64_t expert_ffn, shared_ffn;
    int q_lora, kv_lora, nope, v_dim; // latent attention: kv_lora not 0; rope_dims turn
    bool tied;                        // the embedding is the head
    // Drafts: windowed layers but the last (window 0: none), tapped target layers (0-based), rotary
    // base (0: 1e7), factor of YaRN and cap of logits, 0: none. Gated ones are Laguna's: all layers
    // have the window and gates, taps have norms. Biased ones are of gpt-oss: biases of all four
    // projections, and a ramp of YaRN that is not rounded.
    int block, n_taps;
    int64_t window, mask;
    int32_t taps[SYNTH_MAX_TAPS];
    float base, yarn, cap;
    bool gated, biased;
    // DFlash2: taps of convolutions (0: none), channels of a group; rank and candidates of the
    // selector. A rank without convolutions is that of DSpark's Markov head.
    int conv, group, rank, candidates;
};

// The shape of that name, or NULL. synth_shape_name(0), (1), ... until NULL lists them all.
const struct synth_shape *synth_shape(const char *name);
const char *synth_shape_name(int i);

struct synth_tensor {
    char name[64];
    uint32_t type;
    int n_dims;
    int64_t ne[3];
    float mean, half; // values are spread over mean +- half; quantised types have mean 0
};

struct synth_list {
    struct synth_tensor *items;
    int n;
    int64_t cap;
    bool failed; // out of memory
};

// Appends the tensors of the shape in file order, with their types.
void synth_tensors(struct synth_list *l, const struct synth_shape *s,
                   const struct convert_recipe *r);
// Writes all metadata of the shape.
void synth_metadata(struct gguf_writer *w, const struct synth_shape *s,
                    const struct convert_recipe *r);

// How the shape's tokenizer cuts texts (tokenizer.ggml.pre).
const char *synth_pre(const struct synth_shape *s);

#endif
