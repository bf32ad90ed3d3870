// SPDX-License-Identifier: Apache-2.0
// Feed-forward blocks: the dense one, SwiGLU (arXiv 2002.05202) or another activation into the
// residual stream, and in its place a mixture of experts: a router chooses some of many such
// experts for each row, and their weighed results join the residual stream in the router's order.
// Besides them there may be a shared expert, through which every row goes, with a gate or without.
#ifndef COPPICE_MODELS_BLOCKS_FEED_FORWARD_H
#define COPPICE_MODELS_BLOCKS_FEED_FORWARD_H

#include "models/load.h"
#include "models/params.h"
#include "models/ranks.h"
#include "ops/experts/host.h"

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

struct moe_block {
    const struct weight *router; // [D -> experts]
    float *choice_bias;          // [experts]; NULL: none
    float *scale;                // [experts], of each one's weight; NULL: ones
    // NULL: none. [experts], [experts][F], [experts][F], [experts][D]
    float *router_bias, *gate_bias, *up_bias, *down_bias;
    const struct weight *gate, *up, *down; // of each expert, [D -> F], [D -> F], [F -> D]
    bool on_host;            // these and their biases are the host's CPU's (ops/experts/host.h)
    struct mlp_block shared; // if there is a shared expert
    const struct weight *shared_gate; // [D -> 1], or NULL
};

// Workspace for n rows, shared by all layers; `used` entries a row.
struct moe_buffers {
    float *logits, *weights; // [n][experts], [n][used]
    int32_t *ids;            // [n][used]
    // Where not all experts are the host's CPU's:
    struct act *mid; // [n * used][F]
    float *out;      // [n * used][D]
    // Where a shared expert has a gate: its logits, what the router of one expert makes of them,
    // and the expert's results.
    float *gate, *gate_weight; // [n]
    int32_t *gate_id;          // [n]
    float *shared;             // [n][D]
};

struct moe_call {
    const struct ranks *ranks;
    const struct moe_shape *shape;
    const struct moe_block *block;
    const struct moe_buffers *buf;
    struct expert_host *host;    // of blocks that are on the host
    const struct act *in;        // [n][D] normed
    const struct act *router_in; // [n][D] what the router reads; NULL: in
    struct act *mid;             // scratch for [n][shared]
    float *h;                    // [n][D] residual stream, added to
    float *apart;                // NULL, or [n][D]: the result goes there, and h stays
    int64_t n, dim;
};

// Tensors blk.i.ffn_gate_inp, ffn_{gate,up,down}_exps and, as the shape says, exp_probs_b,
// ffn_{gate,up,down}_shexp and ffn_gate_inp_shexp, for rows of dim values (D).
int moe_load(struct moe_block *b, const struct moe_shape *s, int64_t dim, struct load *l, int i,
             struct err *e);
int moe_buffers_load(struct moe_buffers *b, const struct moe_shape *s, int64_t dim, int64_t n,
                     struct load *l, struct err *e);
void moe_run(struct exec *x, const struct moe_call *c);

#endif
