// SPDX-License-Identifier: Apache-2.0
// Random DFlash drafts in three dialects; see tiny_gguf.h.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf/gguf.h"
#include "support/tiny_list.h"

static void put_draft_form(struct gguf_writer *w, const char *a, const struct tiny_draft_shape *d) {
    char key[96];
    if (d->yarn) {
        snprintf(key, sizeof key, "%s.rope.scaling.type", a);
        gguf_put_str(w, key, "yarn", 4);
        put_f32(w, a, "rope.scaling.factor", 8);
        put_u32(w, a, "rope.scaling.original_context_length", 64);
    }
    if (d->laguna && d->dialect == TINY_UPSTREAM)
        gguf_put_str(w, "dflash.decoder_arch", "laguna", 6);
    else if (d->laguna) {
        snprintf(key, sizeof key, "%s.dflash.%s", a,
                 d->dialect == TINY_LUCEBOX ? "context_kv_layer_norm" : "laguna");
        gguf_put_bool(w, key, true);
    }
}

static void draft_form_tensors(struct list *l, const struct tiny_shape *t,
                               const struct tiny_draft_shape *d) {
    static const char *const tap[] = {"dflash.aux_hidden_norm.%d.weight",
                                      "dflash_aux_hidden_norm.%d.weight"};
    char b[64];
    int64_t q = (int64_t)d->heads * d->head_dim, kv = (int64_t)d->kv_heads * d->head_dim;
    if (d->laguna && d->dialect == TINY_UPSTREAM)
        vector(l, "enc.aux_norm.weight", t->dim, d->n_taps, 1, 0.2f);
    for (int i = 0; d->laguna && d->dialect != TINY_UPSTREAM && i < d->n_taps; i++) {
        snprintf(b, sizeof b, tap[d->dialect], i);
        vector(l, b, t->dim, 1, 1, 0.2f);
    }
    for (int i = 0; i < d->layers; i++) {
        if (d->laguna)
            matrix(l, blk(b, i, "attn_gate.weight"), t->dim, d->seed / 4 % 2 ? q : d->heads,
                   fan(t->dim, 1));
        if (!d->biased)
            continue;
        vector(l, blk(b, i, "attn_q.bias"), q, 1, 0, 0.5f);
        vector(l, blk(b, i, "attn_k.bias"), kv, 1, 0, 0.5f);
        vector(l, blk(b, i, "attn_v.bias"), kv, 1, 0, 0.5f);
        vector(l, blk(b, i, "attn_output.bias"), t->dim, 1, 0, 0.5f);
        vector(l, blk(b, i, "attn_sinks.weight"), d->heads, 1, 0, 1);
    }
}

enum { CONV_GROUP = 16, SELECTOR_RANK = 24, SELECTOR_K = 16 };

static void put_parts(struct gguf_writer *w, const char *a, const struct tiny_draft_shape *d) {
    put_u32(w, a, "conv_kernel_size", d->conv);
    put_u32(w, a, "conv_group_size", CONV_GROUP);
    put_u32(w, a, "selector_rank", SELECTOR_RANK);
    put_u32(w, a, "selector_top_k", SELECTOR_K);
}

// Two sides of kernels a layer, for attention and the feed-forward part.
static void part_tensors(struct list *l, const struct tiny_shape *t,
                         const struct tiny_draft_shape *d) {
    static const char *const base[] = {"attn_conv_base", "ffn_conv_base"};
    static const char *const own[] = {"attn_conv_proj.weight", "ffn_conv_proj.weight"};
    const float some = d->neutral ? 0 : 1;
    char b[64];
    for (int i = 0; i < 2 * d->layers; i++) {
        vector(l, blk(b, i / 2, base[i % 2]), t->dim, 2 * (int64_t)d->conv, d->neutral ? 1 : 0.6f,
               0.3f * some);
        l->e[l->n - 1].experts = 2;
        l->e[l->n - 1].every = d->neutral ? d->conv : 0;
        matrix(l, blk(b, i / 2, own[i % 2]), t->dim, 2 * d->conv * (t->dim / CONV_GROUP),
               fan(t->dim, 0.5f) * some);
    }
    matrix(l, "selector_hidden.weight", t->dim, SELECTOR_RANK, fan(t->dim, 1));
    matrix(l, "selector_predecessor.weight", SELECTOR_RANK, t->vocab, 0.7f);
    matrix(l, "selector_successor.weight", SELECTOR_RANK, t->vocab, 0.7f * some);
}

static void end_tensors(struct list *l, const struct tiny_shape *t) {
    matrix(l, "token_embd.weight", t->dim, t->vocab, 1);
    matrix(l, "output.weight", t->dim, t->vocab / 2, fan(t->dim, 3));
    vector(l, "d2t", t->vocab / 2, 1, 0, 0);
    l->e[l->n - 1].type = TYPE_I64;
}

enum { DOMINO_HEAD = 24 };

static void put_domino(struct gguf_writer *w, const char *a, const struct tiny_draft_shape *d) {
    const bool up = d->dialect == TINY_UPSTREAM;
    put_u32(w, a, up ? "domino.gru_hidden_dim" : "dflash.domino.gru_hidden_dim", d->gru);
    put_u32(w, a, up ? "domino.emb_dim" : "dflash.domino.emb_dim", DOMINO_HEAD);
    if (!up)
        return;
    put_u32(w, a, "domino.pure_draft_prefix_len", d->skip);
    gguf_put_bool(w, "dflash.domino.shift_label", d->shift);
}

static void domino_tensors(struct list *l, const struct tiny_shape *t,
                           const struct tiny_draft_shape *d) {
    const float some = d->neutral ? 0 : 1;
    matrix(l, "dflash.domino.gru.weight_ih", t->dim, 3 * (int64_t)d->gru, fan(t->dim, 1));
    matrix(l, "dflash.domino.gru.weight_hh", d->gru, 3 * (int64_t)d->gru, fan(d->gru, 2));
    matrix(l, "dflash.domino.head.w1", t->dim + d->gru, DOMINO_HEAD, fan(t->dim, 1));
    matrix(l, "dflash.domino.head.w2", DOMINO_HEAD, t->vocab, 2 * some);
    if (d->dialect == TINY_UPSTREAM)
        return;
    vector(l, "dflash.domino.start", d->gru, 1, 0, 0.5f);
    vector(l, "dflash.domino.gru.bias_ih", 3 * (int64_t)d->gru, 1, 0, 0.5f);
    vector(l, "dflash.domino.gru.bias_hh", 3 * (int64_t)d->gru, 1, 0, 0.5f);
    vector(l, "dflash.domino.head.b1", DOMINO_HEAD, 1, 0, 0.5f);
    vector(l, "dflash.domino.head.b2", t->vocab, 1, 0, 0.5f * some);
}

static void dspark_tensors(struct list *l, const struct tiny_shape *t,
                           const struct tiny_draft_shape *d) {
    const int64_t wide = t->dim + SELECTOR_RANK;
    matrix(l, "markov_w1.weight", SELECTOR_RANK, t->vocab, 0.7f);
    matrix(l, "markov_w2.weight", SELECTOR_RANK, d->own ? t->vocab / 2 : t->vocab,
           d->neutral ? 0 : 0.7f);
    if (d->gated) {
        matrix(l, "markov_gate.weight", wide, SELECTOR_RANK, fan(wide, 1));
        vector(l, "markov_gate.bias", SELECTOR_RANK, 1, 0, 0.5f);
    }
    matrix(l, "conf_proj.weight", wide, 1, fan(wide, 1));
    vector(l, "conf_proj.bias", 1, 1, 0, 0.5f);
    if (d->copies) {
        matrix(l, "token_embd.weight", t->dim, t->vocab, 1);
        matrix(l, "output.weight", t->dim, t->vocab, 1);
    }
}

static const char *const draft_arch[] = {"qwen35-dflash-draft", "dflash-draft", "dflash"};

static void put_draft_keys(struct gguf_writer *w, const struct tiny_shape *t,
                           const struct tiny_draft_shape *d) {
    const char *a = draft_arch[d->dialect];
    bool up = d->dialect == TINY_UPSTREAM;
    int32_t taps[8];
    char key[96];
    gguf_put_str(w, "general.architecture", a, strlen(a));
    put_u32(w, a, "block_count", d->layers);
    put_u32(w, a, "context_length", t->context);
    put_u32(w, a, "embedding_length", t->dim);
    put_u32(w, a, "feed_forward_length", d->ffn);
    put_u32(w, a, "attention.head_count", d->heads);
    put_u32(w, a, "attention.head_count_kv", d->kv_heads);
    put_u32(w, a, "attention.key_length", d->head_dim);
    put_u32(w, a, "attention.value_length", d->head_dim);
    put_f32(w, a, "attention.layer_norm_rms_epsilon", 1e-6f);
    put_f32(w, a, "rope.freq_base", 1e7f);
    for (int i = 0; i < d->n_taps; i++)
        taps[i] = d->taps[i] + up;
    snprintf(key, sizeof key, "%s.%s", a, up ? "target_layers" : "dflash.target_layer_ids");
    gguf_put_array(w, key, GGUF_I32, taps, (uint64_t)d->n_taps);
    put_u32(w, a, up ? "block_size" : "dflash.block_size", d->block);
    if (up)
        gguf_put_int(w, "tokenizer.ggml.mask_token_id", GGUF_U32, d->mask);
    else
        put_u32(w, a, "dflash.mask_token_id", d->mask);
    snprintf(key, sizeof key, "%s.attention.causal", a);
    if (d->causal >= 0 && d->dialect != TINY_LUCEBOX)
        gguf_put_bool(w, key, d->causal != 0);
    put_window(w, a, d);
    put_draft_form(w, a, d);
    if (d->conv)
        put_parts(w, a, d);
    if (d->gru)
        put_domino(w, a, d);
    if (d->anchor >= 0)
        gguf_put_bool(w, "dflash.sample_from_anchor", d->anchor != 0);
}

static void draft_tensors(struct list *l, const struct tiny_shape *t,
                          const struct tiny_draft_shape *d) {
    static const char *const fc[] = {"dflash.fc.weight", "dflash_fc.weight", "fc.weight"};
    static const char *const norm[] = {"dflash.hidden_norm.weight", "dflash_hidden_norm.weight",
                                       "enc.output_norm.weight"};
    char b[64];
    int64_t q = (int64_t)d->heads * d->head_dim, kv = (int64_t)d->kv_heads * d->head_dim;
    matrix(l, fc[d->dialect], (int64_t)d->n_taps * t->dim, t->dim, fan(d->n_taps * t->dim, 1));
    vector(l, norm[d->dialect], t->dim, 1, 1, 0.2f);
    vector(l, "output_norm.weight", t->dim, 1, 1, 0.2f);
    for (int i = 0; i < d->layers; i++) {
        vector(l, blk(b, i, "attn_norm.weight"), t->dim, 1, 1, 0.2f);
        matrix(l, blk(b, i, "attn_q.weight"), t->dim, q, fan(t->dim, 1));
        matrix(l, blk(b, i, "attn_k.weight"), t->dim, kv, fan(t->dim, 1));
        matrix(l, blk(b, i, "attn_v.weight"), t->dim, kv, fan(t->dim, 1));
        matrix(l, blk(b, i, "attn_output.weight"), q, t->dim, fan(q, 2));
        vector(l, blk(b, i, "attn_q_norm.weight"), d->head_dim, 1, 1.5f, 0.2f);
        vector(l, blk(b, i, "attn_k_norm.weight"), d->head_dim, 1, 1.5f, 0.2f);
        vector(l,
               blk(b, i,
                   d->dialect == TINY_BEELLAMA ? "post_attention_norm.weight" : "ffn_norm.weight"),
               t->dim, 1, 1, 0.2f);
        matrix(l, blk(b, i, "ffn_gate.weight"), t->dim, d->ffn, fan(t->dim, 1));
        matrix(l, blk(b, i, "ffn_up.weight"), t->dim, d->ffn, fan(t->dim, 1));
        matrix(l, blk(b, i, "ffn_down.weight"), d->ffn, t->dim, fan(d->ffn, 2));
    }
}

int tiny_draft_write(const struct tiny_shape *t, const struct tiny_draft_shape *d, const char *path,
                     struct err *e) {
    struct gguf_writer *w;
    struct list *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(e, ERR_MEMORY, "no memory for a list of tensors");
    int rc = gguf_writer_open(&w, path, e);
    if (!rc) {
        put_draft_keys(w, t, d);
        l->type = d->type;
        l->seed = d->seed;
        draft_tensors(l, t, d);
        draft_form_tensors(l, t, d);
        if (d->conv)
            part_tensors(l, t, d);
        if (d->own)
            end_tensors(l, t);
        if (d->gru)
            domino_tensors(l, t, d);
        if (d->markov)
            dspark_tensors(l, t, d);
        rc = tiny_list_write(w, l, e);
    }
    free(l);
    return rc;
}
