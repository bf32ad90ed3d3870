// SPDX-License-Identifier: Apache-2.0
// Embeddings that each layer has of its own (Gemma 3n and 4, E models): a row of a table for the
// token, and a projection of the first embedding; after a layer, its part is gated by the stream
// and joins it.
#ifndef COPPICE_MODELS_BLOCKS_PLE_H
#define COPPICE_MODELS_BLOCKS_PLE_H

#include "models/load.h"
#include "models/ranks.h"

struct ple_shape {
    int64_t dim, width; // D; P, of a layer's embedding
    int layers;
    float eps;
};

struct ple_block {
    const struct weight *table, *projection; // [L P] rows of the vocabulary, [D -> L P]
    float *norm;                             // [P]
};
struct ple_layer {
    const struct weight *gate, *projection; // [D -> P], [P -> D]
    float *norm;                            // [D]
};

// Workspace for n rows.
struct ple_buffers {
    float *all, *more; // [n][L][P]
    float *gate;       // [n][P]
    struct act *act;   // [n][P]
};

// Tensors per_layer_token_embd, per_layer_model_proj, per_layer_proj_norm.
int ple_load(struct ple_block *b, const struct ple_shape *s, int64_t vocab, struct load *l,
             struct err *e);
// Tensors blk.i.inp_gate, proj, post_norm.
int ple_layer_load(struct ple_layer *b, const struct ple_shape *s, struct load *l, int i,
                   struct err *e);
int ple_buffers_load(struct ple_buffers *b, const struct ple_shape *s, int64_t n, struct load *l,
                     struct err *e);

struct ple_call {
    const struct ranks *ranks;
    const struct ple_shape *shape;
    const struct ple_buffers *buf;
    float *h;        // [n][D] residual stream
    struct act *act; // scratch for [n][D]
    float *apart;    // scratch for [n][D]
    int64_t n;
};
// Fills buf->all of rows whose scaled embeddings are in h. token: host [n].
void ple_begin(struct exec *x, const struct ple_block *b, const struct ple_call *c,
               const int32_t *token);
// After layer i: h += norm(projection(gelu(gate h) * the layer's embedding)).
void ple_run(struct exec *x, const struct ple_layer *b, const struct ple_call *c, int i);

#endif
