// SPDX-License-Identifier: Apache-2.0
// Scorers: something that reads tokens and says how much each matters to the last of them; tests
// bring their own. The scorer of a model is a small qwen3 whose attention says what the last tokens
// of a text look at. For each scored layer and head the softmax of the queries over all keys before
// them, both normed and before the rotary embedding (so that a score does not depend on distance,
// and texts may be longer than the model was trained for); the largest of them; the mean over the
// queries.
//
// Layers run one after the other over the whole text, in chunks of rows, so that one layer's keys
// and values are alive at a time. A layer is scored from its keys as soon as they are all there;
// the attention, values and feed-forward of the last scored layer are never computed, and neither
// are the final norm and the head. docs/pflash.md has the memory that this takes.
#ifndef COPPICE_COMPRESS_SCORE_SCORE_H
#define COPPICE_COMPRESS_SCORE_SCORE_H

#include <stdint.h>

#include "base/err.h"
#include "formats/gguf/gguf.h"
#include "models/model.h"
#include "ops/ops.h"

struct scorer;

struct score_call {
    const int32_t *ids; // [n] as the scorer's own tokenizer gives them
    int64_t n;
    int64_t query; // tokens query .. n - 1 are what the others are scored for
    float *out;    // [n] scores of at least 0
};

struct scorer_kind {
    int (*score)(struct scorer *s, const struct score_call *c, struct err *e);
    void (*destroy)(struct scorer *s);
    void (*rest)(struct scorer *s); // gives back what the last text took; NULL: nothing is kept
};

// Embedded as the first member.
struct scorer {
    const struct scorer_kind *kind;
};

struct score_options {
    int layers; // how many are run, the first ones; 0: all
    int last;   // how many of those are scored, the last ones; 0: all
    int chunk;  // rows at a time, a multiple of 128; 0: 4096
    bool dense; // attention to all keys instead of block-sparse attention
    struct sparse_options sparse;
    enum kv_codec_id codec; // of keys and values for attention
    // Bytes of host memory in which what was computed of texts stays, for texts that begin alike;
    // their scores are the same with it and without. 0: none.
    int64_t keep;
};
// All layers, chunks of 4096, block-sparse attention as its authors set it for Qwen3, f16.
struct score_options score_options_default(void);
int score_options_check(const struct score_options *o, struct err *e); // ERR_USAGE

// Most tokens that may be queries in one call; rows of a chunk by default.
enum { SCORE_QUERIES = 64, SCORE_CHUNK = 4096 };

// g must stay open and x alive as long as the scorer. ERR_UNSUPPORTED: a model that is no qwen3, or
// a backend that lacks an op; ERR_MISMATCH: tensors that are missing or of another shape;
// ERR_USAGE.
int score_open(struct scorer **out, struct exec *x, const struct gguf *g,
               const struct score_options *o, struct err *e);
// Tokens of the last text that were known from texts before, and bytes that are kept now.
int64_t score_known(const struct scorer *s);
int64_t score_held(const struct scorer *s);

// Bytes that a text of n tokens, in whole chunks, takes on the device.
struct score_plan {
    int64_t weights; // of the layers that are run
    int64_t hidden;  // residual stream
    int64_t keys;    // of one layer, for its score
    int64_t pages;   // keys and values of one layer, for its attention
    int64_t chunk;   // what a chunk of rows needs, and norms of layers
    int64_t blocks;  // means, masses and lists of block-sparse attention
    int64_t mass;    // of the queries, and as much scratch
    int64_t total;
    int64_t own; // of the backend for itself, besides the total; 0 without one
};
// What score_open and a call with n tokens take; x NULL: on a backend that stores weights as the
// file does and activations in 16 bits. Errors as score_open.
int score_plan_of(struct score_plan *p, const struct exec *x, const struct gguf *g,
                  const struct score_options *o, int64_t n, struct err *e);
// The same of a shape whose layers take `weights` bytes, without their norms.
struct score_plan score_plan_shape(const struct model_params *m, const struct exec *x,
                                   const struct score_options *o, int64_t n, int64_t weights);

#endif
