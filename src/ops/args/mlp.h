// SPDX-License-Identifier: Apache-2.0
// What linear layers, norms and experts of the op table take. Pointers are device memory of the
// backend unless a comment says host.
#ifndef COPPICE_OPS_ARGS_MLP_H
#define COPPICE_OPS_ARGS_MLP_H

#include <stdbool.h>
#include <stdint.h>

struct weight; // a matrix in the layout the backend's kernels need
struct act;    // rows in the form that linear layers read (f32 and int8 blocks on the CPU)

// One matrix product of `linear`. All jobs of a call read the same activation.
struct linear_job {
    const struct weight *w; // [k -> m]
    float *out;             // [n][m]
    bool add;               // out += instead of out =
    const float *bias;      // [m], added to what that leaves in out; NULL: none
};

// What stands between the two matrices of a gated feed-forward layer, of their outputs g and u.
enum activation {
    ACTIVATION_SILU,          // g sigmoid(g) u (SwiGLU, arXiv 2002.05202)
    ACTIVATION_GELU_TANH,     // gelu(g) u, gelu in its tanh form (GEGLU, the same; 1606.08415)
    ACTIVATION_SWIGLU_CLAMPED // gpt-oss: g to at most 7, u to -7 .. 7, g sigmoid(1.702 g) (u + 1)
};

// The two matrices of linear_gate_up.
struct gate_up {
    const struct weight *gate, *up;   // [k -> m]
    const float *gate_bias, *up_bias; // [m], before the activation; NULL: none
    enum activation activation;
};

struct norm_args {
    const float *in; // [n][k]
    const float *w;  // [k]; NULL: ones
    float eps;
    int64_t n, k;
    float *out; // [n][k]; may be in
    bool add;   // out += instead of out = (a norm after a block, before the residual)
    // Both forms of the same rows, and what comes before them; then w is there, `add` is not set,
    // and out is neither in nor an array of conv.
    struct act *act;                    // [n][k], or NULL
    const struct block_conv_args *conv; // with act: is run first, and adds to `in`; or NULL
};

// Values times a number, then held within a cap: x = cap tanh(scale x / cap).
struct scale_args {
    float *x; // [n], in place
    int64_t n;
    float scale;
    float cap; // 0: none
};

// activation(g, u) of values that are there already, as linear_gate_up makes it of products.
struct activate_args {
    const float *gate, *up; // row i at gate + i * gate_stride, up + i * up_stride
    int64_t gate_stride, up_stride;
    int64_t n, k;
    enum activation activation;
    struct act *out; // [n][k]
};

// A convolution along the rows of blocks with kernels of a row's own (DFlash2): value c of a row is
// the sum over taps o of (base[o][c] + own[o][c / group]) times value c of the row o before it in
// its block, tap 0 first, each product and each sum rounded; before a block's first row there is
// none.
struct block_conv_args {
    const float *in;   // [n][dim]; neither out nor own
    const float *base; // [taps][dim]
    const float *own;  // [taps][dim / group] of row i at own + i * own_stride
    int64_t own_stride;
    int64_t n, dim;
    int block, taps, group; // rows of a block; dim is a multiple of group
    float *out;             // [n][dim]; NULL with act
    bool add;               // out += instead of out =
    struct act *act;        // [n][dim], in place of out, or NULL
};

// RMSNorm of each head of dv values, times silu(z).
struct gated_norm_args {
    const float *in, *z; // [n][heads][dv]
    const float *w;      // [dv]
    float eps;
    int64_t n;
    int heads, dv;
    struct act *out; // [n][heads * dv]
};

// Mixtures of experts. A router chooses `used` experts for each row. What follows works on entries:
// entry i of n * used belongs to row i / used and to expert ids[i], which is on the device. An
// expert weight is that of a tensor with dims k, m, experts; experts may have biases, [experts][m].
enum { OPS_EXPERTS_MAX = 1024, OPS_EXPERTS_USED_MAX = 32 };

struct moe_list {
    int64_t n;
    int used;           // 1 .. OPS_EXPERTS_USED_MAX
    const int32_t *ids; // [n][used]
};

// The probabilities p of a row's experts.
enum route_score {
    ROUTE_SOFTMAX,       // over all experts
    ROUTE_SIGMOID,       // of each by itself (a gated shared expert: a router of one expert)
    ROUTE_SOFTMAX_CHOSEN // the logits choose, the softmax is over the chosen ones (gpt-oss)
};

// Experts in descending order of p + bias, equal ones by id, and their weights: p, divided by their
// sum + 1e-20 if normalised, times scale, times the expert's own scale. With groups, only experts
// of the best groups are in question: groups of neighbours, each as good as its best expert or its
// two best together, equal ones by number (DeepSeek-V2 and -V3, arXiv 2412.19437 section 2.1.2).
// What is not a number comes last.
struct moe_route_args {
    const float *logits; // [n][experts]
    int64_t n;
    int experts, used; // used <= experts / groups * groups_used
    enum route_score score;
    const float *bias;       // [experts], for the choice alone; NULL: none
    int groups, groups_used; // groups divides experts; 0 or 1: no groups
    bool group_best;         // a group is as good as its best expert; otherwise as its two best
    bool normalise;
    float scale;
    const float *expert_scale; // [experts]; NULL: ones
    int32_t *ids;              // [n][used]
    float *weights;            // [n][used]
};

struct moe_linear_args {
    const struct weight *w; // [k -> m] of each expert
    const float *bias;      // [experts][m]; NULL: none
    struct moe_list list;
    const struct act *in; // rows of the list, or rows of entries if `entries`
    bool entries;
    float *out; // [n * used][m]
};

// Heads with a matrix each, as latent attention has them: out of head h = its in times matrix h.
struct heads_args {
    const struct weight *w; // [k -> m] of each head, as that of experts
    int heads;
    int64_t n;
    const float *in;       // [n][heads][in_stride], the first k are multiplied; or NULL, and
    const struct act *act; // [n][heads * k]
    int64_t in_stride, out_stride;
    float *out; // [n][heads][out_stride], the first m are the product
    int tail;   // values after the first k of in that are copied after the first m of out
};

struct moe_combine_args {
    const float *in;      // [n * used][m]
    const float *weights; // [n][used]
    int64_t n, m;
    int used;
    float *out; // [n][m]
    bool add;   // out += instead of out =
};

// A feed-forward layer of experts as the ops that it consists of, one after the other. Only the
// choices (ids and weights of route) and the sums are results, not what ops hand to each other.
struct moe_layer_args {
    struct linear_job in[2]; // the router; the gate of the shared expert
    int n_in;
    const struct act *router_in; // of both
    struct moe_route_args route; // of in[0].out
    struct gate_up both;
    const struct act *x; // of `both` and of the shared expert
    struct act *mid;
    struct moe_linear_args down; // its list: that of `both`, too
    struct moe_combine_args sum;
    const struct moe_shared_args {
        struct gate_up both;
        struct act *mid;
        struct linear_job down;
        struct moe_route_args gate; // of in[1].out; without one (n_in is 1) `down` adds to sum.out
        struct moe_combine_args sum;
    } *shared; // NULL: none
};

#endif
