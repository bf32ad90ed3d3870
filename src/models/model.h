// SPDX-License-Identifier: Apache-2.0
// A loaded target model: hyper-parameters, weights, one workspace, and the one forward function.
// Each architecture is a row of archs[] and a file; this header hides which one it is. Models call
// the op table and nothing else, and nothing allocates inside a pass except whole KV pages.
#ifndef COPPICE_MODELS_MODEL_H
#define COPPICE_MODELS_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "formats/gguf.h"
#include "ops/ops.h"
#include "state/forest.h"
#include "state/sequence.h"

struct model;

struct model_params {
    const char *arch;        // "qwen35"
    int n_layers, n_full;    // backbone layers; of which full attention
    int64_t dim, ffn, vocab; // D, F, rows of the head
    int n_heads, n_kv, head_dim, rope_dims;
    float rope_base, eps, attn_scale;
    struct gdn_shape gdn;
    int64_t context; // trained context length, tokens
    bool tied;       // the head is the embedding
};

struct model_options {
    enum kv_codec_id codec_k, codec_v; // how keys and values are stored
    int64_t max_ctx;                   // tokens per sequence; 0: the trained context
    int max_rows;                      // rows of a prompt pass; 0: 512
    int max_verify;                    // rows of a verify pass; 0: 128
    int max_seqs;                      // sequences in one pass; 0: 8
    int64_t memory_limit;              // bytes for weights, scratch and one full sequence; 0: none
};
// F16 KV, everything else 0 (that is: the defaults above).
struct model_options model_options_default(void);

// Bytes, without loading: what model_load and its sequences will take.
struct model_plan {
    int64_t weights;    // in the backend's layout
    int64_t scratch;    // workspace of the model
    int64_t kv_per_1k;  // target KV of 1,024 tokens
    int64_t recurrent;  // per sequence
    int64_t checkpoint; // per recurrent checkpoint
    int64_t most_act;   // values of the largest activation, for exec_own_bytes
};
// x may be NULL: weights are then counted at their size in the file.
int model_plan(struct model_plan *p, struct model_params *params, const struct exec *x,
               const struct gguf *g, const struct model_options *o, struct err *e);

// g must stay open and x alive as long as the model. Refuses unknown architectures, variants that
// are not implemented, and any tensor whose shape is not the one that the metadata implies.
int model_load(struct model **out, struct exec *x, const struct gguf *g,
               const struct model_options *o, struct err *e);
void model_destroy(struct model *m); // after its sequences and its draft; NULL is allowed

const struct model_params *model_params_of(const struct model *m);
struct exec *model_exec(const struct model *m);
int64_t model_max_ctx(const struct model *m);
int model_max_rows(const struct model *m);
int model_max_verify(const struct model *m);

// A new empty sequence; with draft state if a draft is attached (dflash_load) at this moment.
int model_sequence(const struct model *m, struct sequence **out, struct err *e);

// Runs the rows of f, whose seq fields index seqs[n_seqs] (distinct sequences).
// Verify forest: n <= max_verify, depth <= 32; touches no sequence. Follow with model_commit.
// Prompt forest: n <= max_rows; every row is committed before the call returns (a plain decoding
// step is a prompt forest of one row). The arithmetic of both is the same, to the bit.
// ERR_USAGE, ERR_LIMIT (context full), ERR_MEMORY: nothing has changed. ERR_STATE: a sequence is
// spoilt (sequence.h). Whether the device did the work is known from exec_status only; if it did
// not, the sequences of a prompt forest are spoilt, and a verify forest cannot be committed.
int model_forward(struct model *m, const struct forest *f, struct sequence *const *seqs, int n_seqs,
                  struct err *e);

// Results of the last pass, in the workspace until the next one. Logits rows are in row order.
const float *model_logits(const struct model *m); // device [model_logits_count][vocab]
int64_t model_logits_count(const struct model *m);
int64_t model_logits_index(const struct model *m, int32_t row); // of a forest row, -1 if not wanted

// After a verify pass: makes rows path[0..count) (a root and its descendants, each the child of the
// one before) of sequence index `seq` in that pass part of it. At most one commit per sequence and
// pass. seqs: the array given to model_forward. Failure leaves the sequence unchanged.
int model_commit(struct model *m, struct sequence *const *seqs, int32_t seq, const int32_t *path,
                 int64_t count, struct err *e);

#endif
