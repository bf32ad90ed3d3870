// SPDX-License-Identifier: Apache-2.0
// The Gated DeltaNet block (arXiv 2412.06464): projections, short convolution, gated delta rule by
// the recurrent log, gated norm, output projection. Rows of long chains are committed slice by
// slice; those of trees and short chains stay in their layer's gdn_rows until commit.
#ifndef COPPICE_MODELS_BLOCKS_DELTANET_H
#define COPPICE_MODELS_BLOCKS_DELTANET_H

#include "models/load.h"
#include "models/ranks.h"

struct deltanet_block {
    const struct weight *qkv, *gate, *alpha, *beta, *out;
    float *conv;   // [C][4]
    float *a, *dt; // [nV] ssm_a (already negative), ssm_dt.bias
    float *norm;   // [dv]
};

// Workspace for n rows, shared by all layers.
struct deltanet_buffers {
    struct gdn_rows rows; // of all rows, or only q, v and beta where the others stay
    float *z;             // [n][nV][dv]
    float *a, *b;         // [n][nV]
    float *o;             // [n][nV][dv]
    struct act *out;      // [n][nV * dv]
};

// How rows are committed within the layer, where some chain is long. Host arrays.
struct deltanet_slices {
    const uint8_t *chain;          // [sequences] 1: its run becomes part of its state
    struct gdn_run *run;           // [n_runs] scratch
    struct gdn_commit_seq *commit; // [n_runs] scratch
    const int32_t *identity;       // [rows] 0, 1, 2, ...
    // The rows of the other runs, whose u, k, g and d are kept for a later commit: row tree[i] as
    // row i of `keep`.
    const int32_t *tree;
    int64_t n_tree;
    const struct gdn_rows *keep;
};

struct deltanet_call {
    const struct ranks *ranks;
    struct gdn_shape shape;
    float eps;
    const struct deltanet_block *block;
    const struct deltanet_buffers *buf;
    struct gdn_rows rows; // where this layer's rows go
    const struct rows *in_rows;
    const struct gdn_run *runs; // [n_runs] host, the rows of each sequence
    int n_runs;
    struct gdn_state **states;            // [sequences] host
    int64_t *len;                         // [sequences] host; slices advance it
    const struct deltanet_slices *slices; // NULL: nothing is committed
    const struct act *in;                 // [n][D], normed
    float *h;                             // [n][D] residual stream, added to
};

// Tensors blk.i.attn_qkv, attn_gate, ssm_*.
int deltanet_load(struct deltanet_block *b, const struct gdn_shape *s, int64_t dim, struct load *l,
                  int i, struct err *e);
int deltanet_buffers_load(struct deltanet_buffers *b, const struct gdn_shape *s, int64_t n,
                          struct load *l, struct err *e);
// Values of n rows that are kept until commit: u, k, g, d of one layer.
int deltanet_rows_load(struct gdn_rows *r, const struct gdn_shape *s, int64_t n, struct load *l,
                       struct err *e);
void deltanet_run(struct exec *x, const struct deltanet_call *c);

#endif
