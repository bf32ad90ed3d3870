// SPDX-License-Identifier: Apache-2.0
// The inside of the model scorer, for score*.c: weights by layer, memory of a chunk and of a text.
#ifndef COPPICE_COMPRESS_SCORE_IMPL_H
#define COPPICE_COMPRESS_SCORE_IMPL_H

#include "base/pool.h"
#include "compress/score/kept.h"
#include "compress/score/score.h"
#include "models/blocks/attention.h"
#include "models/blocks/mlp.h"
#include "ops/copier.h"

// Rows that dense attention takes at a time: keys of earlier rows are then read by the page.
enum { SCORE_DENSE_ROWS = 256 };

struct score_layer {
    float *attn_norm, *ffn_norm;
    struct attention_block attention; // of the last one only wq, wk and the norms
    struct mlp_block mlp;
};

// Of one chunk of rows.
struct score_chunk {
    float *q, *v, *q_rot; // [C][heads][d], [C][kv][d], [C][heads][d]
    float *query;         // [SCORE_QUERIES][heads][d]
    struct act *in, *attn, *mid;
};

// Of one text; grows.
struct score_text {
    int64_t cap;             // tokens
    float *h, *k;            // [cap][D], [cap][kv][d]
    float *mass, *work;      // [SCORE_QUERIES][cap]
    unsigned char *pages;    // [cap / KV_PAGE]
    float *means, *blocks;   // see struct sparse_args
    int32_t *count, *list;   // likewise
    int64_t *pos;            // host [cap]
    struct kv_slot *slots;   // host [cap]
    unsigned char **page_of; // host [cap / KV_PAGE]
};

// Embeddings on their way to the device (embed.c). Zeroed is closed.
struct score_embed {
    struct exec *x;
    const struct tensor *table;
    struct pool *pool; // NULL: the caller's thread alone
    struct copier *copier;
    float *rows[2]; // host [chunk][D], used in turn
    uint64_t ticket[2];
    int turn;
    const int32_t *ids;
};
// For up to so many rows at a time.
int score_embed_open(struct score_embed *m, struct exec *x, const struct tensor *table,
                     int64_t rows, struct err *e);
void score_embed_close(struct score_embed *m);
// Before a text's embeddings: what is queued by now may still use, or clear, where they go.
void score_embed_begin(struct score_embed *m);
// out[n][D] = embeddings, for ops that are queued from now on; nothing that was queued since
// score_embed_begin may use out.
void score_embed(struct score_embed *m, const int32_t *ids, int64_t n, float *out);

struct model_scorer {
    struct scorer base;
    struct exec *x;
    struct model_params p;
    struct score_options o;
    struct load load;
    struct kv_layout layout;
    const struct tensor *embed;
    struct score_layer *layers; // [o.layers]
    struct score_chunk c;
    struct score_text t;
    int32_t *parent, *seq; // host [chunk]: a chain of one sequence
    float *host;           // host [SCORE_QUERIES][cap]
    struct score_embed embedding;
    struct score_kept kept;
    int64_t known; // tokens of the last text that were kept
};

// Of one text: what is known of it, and what is to be kept; both in whole blocks.
struct score_reuse {
    struct score_kept_text *text; // NULL: nothing is kept
    int64_t known, blocks;
};
// Looks for what is known of a text, and makes room for what will be.
struct score_reuse score_reuse_begin(struct model_scorer *s, const struct score_call *c);
// Puts a layer's known blocks where they are read; takes those that are new.
void score_reuse_layer(struct model_scorer *s, const struct score_reuse *u, int layer);
void score_reuse_take(struct model_scorer *s, const struct score_reuse *u, int layer);

// Memory for a text of n tokens, which stays for the next ones. ERR_MEMORY, ERR_LIMIT.
int score_reserve(struct model_scorer *s, int64_t n, struct err *e);
void score_release(struct model_scorer *s);
// What a text of n tokens asks of the backend.
struct exec_limits score_limits(const struct model_scorer *s, int64_t n);

#endif
