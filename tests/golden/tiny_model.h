// SPDX-License-Identifier: Apache-2.0
// Random tiny models as HuggingFace folders, the same bits as tools/oracle/tiny_model.py makes.
// The formula of a weight is stated there; no weight is stored in the repository.
#ifndef COPPICE_TESTS_GOLDEN_TINY_MODEL_H
#define COPPICE_TESTS_GOLDEN_TINY_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "golden/tiny_store.h"

enum tiny_kind {
    TINY_QWEN3,
    TINY_QWEN2,
    TINY_LLAMA,
    TINY_GEMMA4,
    TINY_GLM,
    TINY_OSS,
    TINY_GEMMA3
}; // of plain decoders

// Hyper-parameters of a qwen35 target or a plain decoder, or of one with experts; names as in
// config.json, shortened.
struct tiny_target {
    bool plain; // plain norms, attention without a gate in every layer
    enum tiny_kind kind;
    bool bias; // of queries, keys and values; of llama also of the output
    int vocab, hidden, ffn, layers,
        interval; // layer i has full attention iff (i+1) % interval == 0
    int heads, kv_heads, head_dim;
    int key_heads, value_heads, linear_head_dim;
    bool tied;   // no lm_head
    bool full;   // as multimodal folders are: nested config, longer prefix, parts to be dropped
    int dt_mean; // mean of dt_bias; -5 gives slow decays
    int rope;    // rotary base
    int yarn, bands, linear; // factors of YaRN, llama3 and linear scaling, 0: none
    int trained;             // positions of the training
    bool slopes;             // YaRN with mscale, mscale_all_dim and truncate
    // Gemma 4: each period-th layer is full, the others have the window; the last `borrowing` ones
    // are twice as wide and have no keys; values of full layers are the keys; cap of logits.
    struct {
        int period, window, head_dim, kv_heads; // the last two of full layers
        int borrowing, per_layer, cap;
        bool k_eq_v;
    } gemma;
    int experts, used, expert_ffn, shared_ffn; // 0 experts: dense layers; shared_ffn 0: no such one
    // GLM: dense layers first, groups of experts, norms of heads, weights that add up to 1
    int lead, groups, groups_used;
    bool norms, normalised;
    uint64_t seed;
};

enum { TINY_MAX_LAYERS = 16 };
enum tiny_causal { TINY_CAUSAL_ABSENT, TINY_CAUSAL_FALSE, TINY_CAUSAL_TRUE };

// Hyper-parameters of a DFlash draft; hidden size and vocabulary are the target's.
struct tiny_draft {
    int ffn, heads, kv_heads, head_dim, layers, block, mask;
    int windows[TINY_MAX_LAYERS]; // 0: full attention
    int taps[TINY_MAX_LAYERS], n_taps;
    enum tiny_causal causal; // the key is_causal
    int rope;                // rotary base
    bool from_anchor;        // the anchor's row guesses
    uint64_t seed;
};

// What the weights of a target depend on besides their names.
struct tiny_seed tiny_seed_of(const struct tiny_target *t);

// Write config.json, model.safetensors (F32) and, for targets, a tokenizer of single bytes into
// an existing folder. ERR_IO names the file.
int tiny_write_target(const struct tiny_target *t, const char *dir, struct err *e);
// The same of a configuration and tensors that stand in a fixture.
struct str;
int tiny_write_listed(const struct tiny_target *t, const struct str *config,
                      const struct tiny_store *s, const char *dir, struct err *e);
int tiny_write_listed_draft(const struct tiny_draft *d, const struct str *config,
                            const struct tiny_store *s, const char *dir, struct err *e);
int tiny_write_draft(const struct tiny_target *t, const struct tiny_draft *d, const char *dir,
                     struct err *e);

#endif
