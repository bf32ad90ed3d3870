// SPDX-License-Identifier: Apache-2.0
// Hyper-parameters that decoder architectures describe by the same keys, each under its own prefix,
// with the checks that the layers of this folder need. What is special to an architecture stays in
// its file.
#ifndef COPPICE_MODELS_PARAMS_H
#define COPPICE_MODELS_PARAMS_H

#include <stdint.h>

#include "base/err.h"
#include "formats/gguf/gguf.h"
#include "models/model.h"

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

// Slower positions for contexts longer than the trained one, into p->rope (set before): linear, or
// YaRN (arXiv 2309.00071), with which p->context grows to what the factor is for. ERR_UNSUPPORTED
// for other kinds; params_refuse_scaling for any.
int params_read_scaling(struct model_params *p, const struct gguf *g, struct err *e);
int params_refuse_scaling(const struct gguf *g, const char *arch, struct err *e);

// Whether layer i has a window: attention.sliding_window_pattern says so for each layer, or counts
// (otherwise: `period`) to the full one, which is the first or the last of so many.
int params_is_windowed(const struct model_params *p, const struct gguf *g, int period,
                       bool full_first, int i, bool *windowed, struct err *e);

// ERR_UNSUPPORTED for a tensor that is not in the lists (each ends with NULL): of names, and of
// what follows "blk.N.".
int params_refuse_tensors(const struct gguf *g, const char *arch, const char *const *names,
                          const char *const *layer, struct err *e);

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

// Rows of the embedding, and whether it is the head.
int params_read_vocab(struct model_params *p, const struct gguf *g, struct err *e);

#endif
