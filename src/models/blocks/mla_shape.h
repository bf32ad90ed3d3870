// SPDX-License-Identifier: Apache-2.0
// What latent attention is made of: read from metadata by models/arch/deepseek2.c, run by mla.c.
#ifndef COPPICE_MODELS_BLOCKS_MLA_SHAPE_H
#define COPPICE_MODELS_BLOCKS_MLA_SHAPE_H

#include <stdint.h>

#include "ops/attention.h"

struct mla_shape {
    int64_t dim; // residual width
    int n_heads;
    int q_lora;      // width of queries between their two matrices; 0: they have one
    int kv_lora;     // values of a latent
    int nope, turns; // values of a head's key that come from the latent; that are rotated
    int v;           // values of a head
    struct rope rope;
    float eps, latent_eps, scale; // of the stream's norms, of the norms of q_lora and kv_lora
};

#endif
