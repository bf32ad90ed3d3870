// SPDX-License-Identifier: Apache-2.0
// Model files with the shapes of real models and random weights, for measuring speed and memory
// where the real weights are not at hand. Every file is valid GGUF and gives finite activations:
// matrices keep the size of what passes through them, decays lie within (0, 1). A value depends on
// the seed, its tensor and its place only, so that the same call writes the same file anywhere.
#ifndef COPPICE_CONVERT_SYNTH_SYNTH_H
#define COPPICE_CONVERT_SYNTH_SYNTH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "convert/convert.h"

enum { SYNTH_MAX_TAPS = 8 };

// Sizes of a target, or of a DFlash draft for one.
struct synth_shape {
    const char *name; // "qwen35-27b"
    bool draft;
    bool plain;       // all layers are full attention, all of a head turns
    const char *arch; // of a plain one: "llama", "qwen2"; NULL: qwen3
    int layers;
    int64_t dim, ffn, vocab;
    int heads, kv, head_dim;
    int window_heads; // of queries in layers with a window, 0: as in the others
    // gemma4: the last of each `period` layers is full, with heads and kv heads of its own, whose
    // values may be keys; the last `borrowing` ones read keys of others, and may be twice as wide.
    int full_head, full_kv, period, borrowing;
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
    // have the window and gates, taps have norms.
    int block, n_taps;
    int64_t window, mask;
    int32_t taps[SYNTH_MAX_TAPS];
    float base, yarn, cap;
    bool gated;
};

// The shape of that name, or NULL. synth_shape_at(0), (1), ... until NULL lists them all.
const struct synth_shape *synth_shape(const char *name);
const struct synth_shape *synth_shape_at(int i);

struct synth_options {
    const struct synth_shape *shape;
    const struct convert_recipe *recipe;
    uint64_t seed;
    int layers;                    // only the first so many; 0: all
    int threads;                   // 0: all CPUs
    convert_progress_fn *progress; // may be NULL; told after each tensor
    void *progress_arg;
};

// Writes the file, without a tokenizer, in bounded memory. Errors: a type that needs wider rows
// than the shape has (ERR_UNSUPPORTED), more layers than the shape has (ERR_USAGE), and those of
// the writer.
int synth_write(const char *out, const struct synth_options *o, struct err *e);

#endif
