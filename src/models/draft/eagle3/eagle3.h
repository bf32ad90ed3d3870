// SPDX-License-Identifier: Apache-2.0
// EAGLE-3 drafts (arXiv 2503.01840): one layer of attention and feed-forward whose queries, keys
// and values read the embedding of a token beside a hidden state of the position before. That state
// is made of what the target computed in some of its layers, else it is what the draft gave there.
// Read from GGUF files (architecture eagle3) and from safetensors with their config.json.
#ifndef COPPICE_MODELS_DRAFT_EAGLE3_EAGLE3_H
#define COPPICE_MODELS_DRAFT_EAGLE3_EAGLE3_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json/json.h"
#include "models/draft/path/path.h"

struct eagle3;

enum { EAGLE3_MAX_TAPS = 8 };

struct eagle3_options {
    int depth;                         // deepest guess, 1 to PATH_MAX_DEPTH; 0: PATH_DEPTH
    enum kv_codec_id codec_k, codec_v; // how its keys and values are stored
    struct draft_vocab_options vocab;  // only for a draft that has no list of its own
};
struct eagle3_options eagle3_options_default(void); // F16 KV, all tokens

struct eagle3_params {
    int64_t dim, ffn;
    int64_t target_dim; // width of what it reads of the target
    int n_heads, n_kv, head_dim, n_taps;
    float eps;
    struct rope rope;
    float rope_divisors[OPS_HEAD_MAX / 2]; // as struct dflash_params has them
    int32_t taps[EAGLE3_MAX_TAPS];         // whose outputs it reads, counted from 0
    bool norm_before_residual;             // what attention is added to is normed
    bool norm_before_fc;                   // and what comes from the target, all layers as one
    bool norm_output;                      // children get what the head gets
};

// Whether a GGUF file, or a config.json, is of such a draft.
bool eagle3_in_file(const struct gguf *g);
bool eagle3_in_config(const struct json *config);

// path: a GGUF file, or a safetensors file or folder. Checks that it fits the target and attaches
// it: the target's passes then keep the outputs of the tapped layers, and new sequences have state
// of it. dry: only checks and counts. ERR_MISMATCH and ERR_UNSUPPORTED name tensor or key.
int eagle3_load(struct eagle3 **out, struct model *target, const char *path,
                const struct eagle3_options *o, bool dry, struct err *e);
void eagle3_destroy(struct eagle3 *d); // after the sequences; detaches; NULL is allowed
const struct eagle3_params *eagle3_params_of(const struct eagle3 *d);
struct path *eagle3_path(struct eagle3 *d); // drafting with it

#endif
