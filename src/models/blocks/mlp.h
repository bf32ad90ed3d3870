// SPDX-License-Identifier: Apache-2.0
// The dense feed-forward block: SwiGLU (arXiv 2002.05202), or another activation, into the residual
// stream.
#ifndef COPPICE_MODELS_BLOCKS_MLP_H
#define COPPICE_MODELS_BLOCKS_MLP_H

#include "models/load.h"
#include "models/ranks.h"

struct mlp_block {
    const struct weight *gate, *up, *down; // [D -> F], [D -> F], [F -> D]
    enum activation activation;
};

// Tensors blk.i.ffn_{gate,up,down}.weight for widths dim (D) and ffn (F).
int mlp_load(struct mlp_block *b, int64_t dim, int64_t ffn, struct load *l, int i, struct err *e);
// h += down(silu(gate in) * up in). in: [n][D] normed; mid: scratch for [n][F]; h: [n][D].
void mlp_run(struct exec *x, const struct ranks *ranks, const struct mlp_block *b,
             const struct act *in, struct act *mid, float *h, int64_t n);
// The same with out = instead of h +=.
void mlp_run_apart(struct exec *x, const struct ranks *ranks, const struct mlp_block *b,
                   const struct act *in, struct act *mid, float *out, int64_t n);

#endif
