// SPDX-License-Identifier: Apache-2.0
// The Gated DeltaNet block (arXiv 2412.06464): projections, short convolution, gated delta rule by
// the recurrent log, gated norm, output projection. Prompt rows are committed slice by slice; rows
// of a verification stay in their layer's gdn_rows until commit.
#ifndef COPPICE_MODELS_BLOCK_DELTANET_H
#define COPPICE_MODELS_BLOCK_DELTANET_H

#include "models/load.h"

struct deltanet_block {
    const struct weight *qkv, *gate, *alpha, *beta, *out;
    float *conv;   // [C][4]
    float *a, *dt; // [nV] ssm_a (already negative), ssm_dt.bias
    float *norm;   // [dv]
};

// Workspace for n rows, shared by all layers.
struct deltanet_buffers {
    struct gdn_rows rows; // all of a prompt's rows; q, v and beta of a verification
    float *z;             // [n][nV][dv]
    float *a, *b;         // [n][nV]
    float *o;             // [n][nV][dv]
    struct act *out;      // [n][nV * dv]
};

struct deltanet_call {
    struct gdn_shape shape;
    float eps;
    const struct deltanet_block *block;
    const struct deltanet_buffers *buf;
    struct gdn_rows rows; // where this layer's rows go
    const struct rows *in_rows;
    const struct gdn_run *runs; // [n_runs] all rows, by sequence
    int n_runs;
    struct gdn_state **states; // [sequences] host
    int64_t *len;              // [sequences] host; a prompt's slices advance it
    bool commit;               // prompt: rows become part of the states
    const struct act *in;      // [n][D], normed
    float *h;                  // [n][D] residual stream, added to
};

// Tensors blk.i.attn_qkv, attn_gate, ssm_*.
int deltanet_load(struct deltanet_block *b, const struct gdn_shape *s, int64_t dim, struct load *l,
                  int i, struct err *e);
int deltanet_buffers_load(struct deltanet_buffers *b, const struct gdn_shape *s, int64_t n,
                          struct load *l, struct err *e);
// What a verification of n rows keeps until commit: u, k, g, d of one layer.
int deltanet_rows_load(struct gdn_rows *r, const struct gdn_shape *s, int64_t n, struct load *l,
                       struct err *e);
void deltanet_run(struct exec *x, const struct deltanet_call *c);

#endif
