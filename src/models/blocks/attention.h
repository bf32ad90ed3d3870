// SPDX-License-Identifier: Apache-2.0
// The attention block shared by targets and drafts: projections, per-head norms, rotary embedding,
// attention over stored keys, optional output gate, output projection into the residual stream.
// What architectures have besides or without that are fields whose zero is this form.
#ifndef COPPICE_MODELS_BLOCKS_ATTENTION_H
#define COPPICE_MODELS_BLOCKS_ATTENTION_H

#include "models/load.h"
#include "models/ranks.h"

struct attention_shape {
    int64_t dim;    // residual width
    int64_t in_dim; // of what queries, keys and values are made from; 0: dim
    int n_heads, n_kv, head_dim;
    struct rope rope;
    float eps, scale;
    bool gated;      // attn_q holds [query | gate] per head
    bool no_qk_norm; // heads of queries and keys turn as they come
    bool bias;       // of queries, keys and values
    bool out_bias;   // of the output projection
    bool sinks;      // attn_sinks: one more score of each head, without a key
    bool v_norm;     // RMSNorm of values, without weights
    bool v_is_k;     // no attn_v: values are keys before their norm and turn
    // Width of attn_gate for a head: 0, there is none; 1 or head_dim: what comes out of a head, or
    // of each of its values, is multiplied by the softplus of a number.
    int gate_width;
    bool borrows; // no keys and values of its own: it reads those that an earlier layer stored
};

// Arrays are NULL where the shape has no such part.
struct attention_block {
    const struct weight *wq, *wk, *wv, *wo, *wg;
    float *q_norm, *k_norm;                     // [head_dim]
    float *q_bias, *k_bias, *v_bias, *out_bias; // [outputs]
    float *sinks;                               // [n_heads]
};

// Workspace for n rows, shared by all layers.
struct attention_buffers {
    float *q, *k, *v; // projections: [n][n_heads][head_dim or 2 head_dim], [n][n_kv][head_dim]
    float *q_rot;     // [n][n_heads][head_dim]
    float *gate;      // [n][n_heads][gate_width]
    struct act *out;  // [n][n_heads * head_dim]
};

// Rows whose queries are kept, as attention takes them, for choosing pages; zeroed: none.
struct kept_rows {
    float *q;            // [n][n_heads][dk]
    const int32_t *rows; // host [n], of the pass
    int64_t n;
};

struct attention_call {
    const struct ranks *ranks;
    const struct attention_shape *shape;
    const struct attention_block *block;
    const struct attention_buffers *buf;
    const struct rows *rows;
    const struct rows *seen; // the same, with positions in the views; NULL: rows
    const struct kv_layout *layout;
    int layer;                          // within the KV group
    const struct kv_slot *store;        // [n] host
    int64_t first;                      // rows before it are only ancestors (struct attend_args):
                                        // buffers, in, h and apart begin with it
    const struct kv_view *views;        // [sequences] host
    const struct attend_choice *choice; // NULL: rows see everything
    struct kept_rows kept;
    int mask; // enum attend_mask
    int64_t window;
    const struct act *in; // [n][dim], normed
    float *h;             // [n][dim] residual stream, added to
    float *apart;         // NULL, or [n][dim]: what comes out goes there, and h stays
};

// The rows of a pass from `first` on, whose parents may stand before them, for ops that treat rows
// one by one.
static inline struct rows rows_from(const struct rows *r, int64_t first) {
    return (struct rows){r->n - first,   r->token + first, r->parent + first,
                         r->seq + first, r->pos + first,   first ? 0 : r->pass};
}

// Tensors blk.i.attn_*; a fused attn_qkv (rows q with gate | k | v) is taken apart.
int attention_load(struct attention_block *b, const struct attention_shape *s, struct load *l,
                   int i, struct err *e);
int attention_buffers_load(struct attention_buffers *b, const struct attention_shape *s, int64_t n,
                           struct load *l, struct err *e);
// Whether the backend takes such layers: of c only shape, layout, mask, window and
// whether there is a choice are looked at.
// ERR_UNSUPPORTED with a sentence that names what is missing.
int attention_check(const struct exec *x, const struct attention_call *c, struct err *e);
void attention_run(struct exec *x, const struct attention_call *c);
// Only K and V of the rows, computed from c->in and stored.
void attention_store(struct exec *x, const struct attention_call *c);
// The two halves of it: the projections, and what stores their outputs.
void attention_store_jobs(const struct attention_call *c, struct linear_job jobs[2]);
void attention_store_rows(struct exec *x, const struct attention_call *c);

#endif
