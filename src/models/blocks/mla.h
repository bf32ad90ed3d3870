// SPDX-License-Identifier: Apache-2.0
// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434 section 2.1): what is stored of a
// token is a latent of kv_lora values and a rotated key of rope values, which all heads share. Keys
// and values of a head are linear in the latent, so that its key matrix is applied to the query
// and its value matrix to the weighted latents instead ("absorbed"): attention has one kv head of
// kv_lora + rope values, of which the first kv_lora are the value. All rows go this way, prompts
// too, since bits must not depend on the number of rows.
#ifndef COPPICE_MODELS_BLOCKS_MLA_H
#define COPPICE_MODELS_BLOCKS_MLA_H

#include "models/blocks/attention.h"
#include "models/params.h"

struct mla_block {
    const struct weight *wq;            // [D -> heads (nope + rope)], without q_lora, or
    const struct weight *q_a, *q_b;     // [D -> q_lora], [q_lora -> heads (nope + rope)]
    const struct weight *latent, *rope; // [D -> kv_lora], [D -> rope]
    const struct weight *k, *v;         // of each head, [nope -> kv_lora], [kv_lora -> v]
    const struct weight *wo;            // [heads v -> D]
    float *q_norm, *latent_norm;        // [q_lora], [kv_lora]
};

// Workspace for n rows, shared by all layers.
struct mla_buffers {
    float *q_low;             // [n][q_lora]
    float *q;                 // [n][heads][nope + rope]; of outputs [n][heads][v]
    float *absorbed, *turned; // [n][heads][kv_lora + rope]
    float *c, *p;             // [n][kv_lora], [n][rope]
    struct act *low, *u, *o;  // [n][q_lora], [n][heads kv_lora], [n][heads v]
};

struct mla_call {
    const struct ranks *ranks;
    const struct mla_shape *shape;
    const struct mla_block *block;
    const struct mla_buffers *buf;
    const struct rows *rows;
    const struct rows *seen; // the same, with positions in the views; NULL: rows
    const struct kv_layout *layout;
    int layer;                          // within the KV group
    const struct kv_slot *store;        // [n] host
    int64_t first;                      // as of struct attention_call
    const struct kv_view *views;        // [sequences] host
    const struct attend_choice *choice; // NULL: rows see everything
    struct kept_rows kept;
    const struct act *in; // [n][D], normed
    float *h;             // [n][D] residual stream, added to
};

// The layout of a KV group of such layers.
struct kv_shape mla_kv(const struct mla_shape *s, int n_layers, enum kv_codec_id codec_k,
                       enum kv_codec_id codec_v);

// Tensors blk.i.attn_*. Keys and values of heads are attn_k_b and attn_v_b, or attn_kv_b as older
// files have them, which is taken apart.
int mla_load(struct mla_block *b, const struct mla_shape *s, struct load *l, int i, struct err *e);
int mla_buffers_load(struct mla_buffers *b, const struct mla_shape *s, int64_t n, struct load *l,
                     struct err *e);
// Whether the backend takes such layers: 0, or ERR_UNSUPPORTED with what is missing.
int mla_check(const struct exec *x, const struct mla_shape *s, const struct kv_layout *layout,
              const struct attend_choice *choice, struct err *e);
void mla_run(struct exec *x, const struct mla_call *c);
// Only what is stored of the rows, computed from c->in.
void mla_store(struct exec *x, const struct mla_call *c);

#endif
