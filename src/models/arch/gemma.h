// SPDX-License-Identifier: Apache-2.0
// What the Gemma decoders share: scaled embeddings, a norm before and one after each block, a gated
// GELU. What a model's parameters do not name (experts, embeddings of layers, factors) it lacks.
#ifndef COPPICE_MODELS_ARCH_GEMMA_H
#define COPPICE_MODELS_ARCH_GEMMA_H

#include "models/model_impl.h"

// The functions of struct model_desc, in gemma4.c.
int gemma_load(struct model *m, const struct gguf *g, struct err *e);
int gemma_buffers(struct model *m, int64_t rows, struct err *e);
void gemma_forward(struct model *m, const struct pass *p);

// The cap of logits, 0: none. ERR_UNSUPPORTED for one that is negative or no number.
int gemma_read_cap(struct model_params *p, const struct gguf *g, struct err *e);

#endif
