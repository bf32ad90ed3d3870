// SPDX-License-Identifier: Apache-2.0
// Random tiny models as GGUF files, for tests: a qwen35 target or a plain one of any shape and
// weight type, and a DFlash draft that fits it, in any of the three dialects. The same shape and
// seed give the same file. The logits are spread out, so that greedy decoding visits many tokens.
#ifndef COPPICE_TESTS_SUPPORT_TINY_GGUF_H
#define COPPICE_TESTS_SUPPORT_TINY_GGUF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { TINY_VOCAB = 300 }; // of the default shape

enum tiny_form {
    TINY_FORM_QWEN3,
    TINY_FORM_QWEN2,
    TINY_FORM_LLAMA,
    TINY_FORM_GEMMA4,
    TINY_FORM_GLM,
    TINY_FORM_DEEPSEEK,
    TINY_FORM_OSS,
    TINY_FORM_LAGUNA,
    TINY_FORM_GEMMA3
};
enum { TINY_WINDOW = 48, TINY_PER_LAYER = 32 }; // of all that have some; of gemma4

struct tiny_shape {
    bool plain; // every layer is full attention, without a gate
    // Of a plain one. llama has rope_freqs and no biases. gemma4: every second layer is full, with
    // heads of twice the size whose values are keys; the last two borrow keys and are twice as
    // wide; layers have embeddings of their own. GLM has experts after one dense layer, and so has
    // deepseek, whose attention is latent, with queries of low rank for half of the seeds; fused:
    // keys and values of heads are one matrix. laguna: as GLM, but every second layer has a window
    // and more heads of queries; attention is gated, by values instead of heads for half of the
    // seeds. gemma3: every second layer is full and turns slower.
    enum tiny_form form;
    int vocab, dim, ffn, layers;
    int interval; // layer i is full attention iff (i + 1) % interval == 0
    int heads, kv_heads, head_dim, rope_dims;
    int latent; // values of deepseek's latents; 0: two heads less the rotated values
    int key_heads, value_heads, state; // Gated DeltaNet; state = dk = dv
    int context;
    // Experts in place of the feed-forward layers; 0: none. The widths are multiples of 32; qwen35
    // and GLM models have a shared one.
    int experts, used, expert_ffn, shared_ffn;
    // Next-token-prediction blocks after the backbone: its kind of attention (full) and
    // feed-forward part, eh_proj, enorm, hnorm and, but for the seeds 4 to 7 of each 8,
    // shared_head_norm. own: with an embedding and a head that are no others'; bare: without the
    // feed-forward part.
    int nextn;
    bool nextn_own, nextn_bare;
    bool tied;     // no output.weight
    bool fused;    // attention layers hold attn_qkv instead of three matrices
    uint32_t type; // of the matrices; those whose rows are no multiple of its block become F32
    uint64_t seed;
};

// 4 layers (interval 2), D 64, F 96, 2/1 heads of 64, 2/4 recurrent heads of 64, vocabulary 300,
// context 1024, untied, F32, seed 1.
struct tiny_shape tiny_shape_default(void);
// Gives a shape, all of which but its experts stands, experts: 6, of which 2 are used, of width 32
// (or one block of the type).
void tiny_shape_experts(struct tiny_shape *t);
// The same as a qwen3 model: all layers attention, all 64 dimensions of a head turn.
struct tiny_shape tiny_shape_plain(void);
const char *tiny_arch(const struct tiny_shape *t); // general.architecture

enum tiny_dialect { TINY_LUCEBOX, TINY_BEELLAMA, TINY_UPSTREAM };

struct tiny_draft_shape {
    int layers, heads, kv_heads, head_dim, ffn;
    int block, mask;
    int n_taps, taps[8]; // 0-based target layers
    int window;          // sliding window of all layers but the last; 0: none
    int causal;          // -1: no key; 0, 1: the key (beellama and upstream)
    int dialect;         // enum tiny_dialect
    // Laguna's kind: gates of heads (of values for half of the seeds), a norm for each tap,
    // contexts normed by layers, causal; all layers have the window. YaRN; biases and sinks.
    bool laguna, yarn, biased;
    // DFlash2 (upstream): taps of convolutions, 0: none, with a kernel for 16 channels and a
    // selector of rank 24 over 16 candidates. neutral: kernels keep the row, codebooks are empty.
    int conv;
    bool neutral;
    bool own; // upstream: an embedding, and a head for half of the tokens
    // Domino: width of its recurrent unit, 0: none; guesses that are not corrected, and whether the
    // anchor's row guesses (upstream; the others correct all, and have biases and a first state).
    // neutral: corrections are empty.
    int gru, skip;
    bool shift;
    // DSpark (upstream): a Markov head of rank 24 and a confidence head; gated: its gates are no
    // ones; copies: tensors as of the target's embedding and head, with other values.
    bool markov, gated, copies;
    int anchor; // -1: no key; 0, 1: the key sample_from_anchor (upstream)
    uint32_t type;
    uint64_t seed;
};

// 2 layers, 2/1 heads of 32, F 96, B 8, mask 1, taps {0, layers - 2}, no window, no causal key,
// lucebox, F32, seed 2.
struct tiny_draft_shape tiny_draft_default(const struct tiny_shape *t);

// Files with 260 or more tokens get a tokenizer (256 bytes, <|endoftext|> 256, <|im_start|> 257,
// <|im_end|> 258, "th" 259 with its merge, the rest padding); smaller ones have ids only.
int tiny_target_write(const struct tiny_shape *t, const char *path, struct err *e);
int tiny_draft_write(const struct tiny_shape *t, const struct tiny_draft_shape *d, const char *path,
                     struct err *e);

// An EAGLE-3 draft with the widths, taps, type and seed of d.
int tiny_eagle3_write(const struct tiny_shape *t, const struct tiny_draft_shape *d,
                      const char *path, struct err *e);

// The blocks of a target with nextn as a file of their own: the target's keys and the blocks'
// tensors, for odd seeds besides its embedding, norm and head; every tensor as in the target.
int tiny_sidecar_write(const struct tiny_shape *t, const char *path, struct err *e);

// The default target and draft, in files named after the test and the process.
struct tiny_pair {
    char target[64], draft[64];
};
int tiny_pair_write(struct tiny_pair *p, const char *test);
// Any target of that shape and its default draft, but with this window (0: none).
int tiny_pair_write_as(struct tiny_pair *p, const char *test, const struct tiny_shape *t,
                       int draft_window);
// A shape of that form with the parts that its architecture cannot be without.
struct tiny_shape tiny_shape_form(enum tiny_form form);
void tiny_pair_remove(const struct tiny_pair *p);

#endif
