// SPDX-License-Identifier: Apache-2.0
// The decoder that nearly all architectures are: in each layer a norm, a mixer (attention, latent
// attention or Gated DeltaNet), a second norm, then SwiGLU or experts, each into the residual
// stream. What a layer is made of, model_desc.place says.
#ifndef COPPICE_MODELS_DECODER_H
#define COPPICE_MODELS_DECODER_H

#include "models/model_impl.h"

// The functions of struct model_desc.
int decoder_load(struct model *m, const struct gguf *g, struct err *e);
int decoder_buffers(struct model *m, int64_t rows, struct err *e);
void decoder_forward(struct model *m, const struct pass *p);

// What decoder_load does before the layers: places them, adds their groups of keys and values,
// checks whether the backend has what they need, and loads embeddings and head.
int decoder_begin(struct model *m, const struct gguf *g, struct err *e);
// The norms, the mixer and the feed-forward part of block i into y, whose `full` and `shape` are
// set: a layer of the model, or a block after them that predicts further tokens.
int decoder_load_block(struct load *l, const struct model *m, int i, struct layer *y,
                       struct err *e);
// Whether block i has experts in place of a dense feed-forward part.
bool decoder_has_experts(const struct model_params *p, int i);
// The tensor rope_freqs.weight, if there, into m->rope_factors: numbers above 0.
int decoder_load_factors(struct model *m, const struct gguf *g, struct err *e);
// Attention with p's heads and nothing that is optional.
struct attention_shape decoder_attention_shape(const struct model_params *p);
// What an attention layer's call says about its layer, its group and this pass.
struct attention_call decoder_attention_call(const struct model *m, const struct pass *p,
                                             const struct layer *y);

#endif
