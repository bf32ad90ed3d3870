// SPDX-License-Identifier: Apache-2.0
// A list of tensors is described first and filled second, because the writer needs all descriptions
// before any data. A value depends on the seed, the tensor's name and its index only.
#include "support/tiny_gguf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/rng.h"
#include "formats/gguf/gguf.h"
#include "formats/quant/quant.h"
#include "support/tiny_list.h"
#include "support/tiny_vocab.h"

struct tiny_shape tiny_shape_default(void) {
    return (struct tiny_shape){.vocab = 300,
                               .dim = 64,
                               .ffn = 96,
                               .layers = 4,
                               .interval = 2,
                               .heads = 2,
                               .kv_heads = 1,
                               .head_dim = 64,
                               .rope_dims = 32,
                               .key_heads = 2,
                               .value_heads = 4,
                               .state = 64,
                               .context = 1024,
                               .type = TYPE_F32,
                               .seed = 1};
}

struct tiny_shape tiny_shape_plain(void) {
    struct tiny_shape t = tiny_shape_default();
    t.plain = true;
    t.interval = 1;
    t.rope_dims = t.head_dim;
    return t;
}

static bool is_glm(const struct tiny_shape *t) {
    return t->plain && t->form == TINY_FORM_GLM;
}

static bool is_gemma(const struct tiny_shape *t) {
    return t->plain && t->form == TINY_FORM_GEMMA4;
}

static bool is_gemma3(const struct tiny_shape *t) {
    return t->plain && t->form == TINY_FORM_GEMMA3;
}

static bool is_oss(const struct tiny_shape *t) {
    return t->plain && t->form == TINY_FORM_OSS;
}

static bool is_deep(const struct tiny_shape *t) {
    return t->plain && t->form == TINY_FORM_DEEPSEEK;
}

static bool is_laguna(const struct tiny_shape *t) {
    return t->plain && t->form == TINY_FORM_LAGUNA;
}

// Dense layers first, then experts with a shared one and a bias for the choice.
static bool has_lead(const struct tiny_shape *t) {
    return is_glm(t) || is_deep(t) || is_laguna(t);
}

const char *tiny_arch(const struct tiny_shape *t) {
    static const char *const plain[] = {
        [TINY_FORM_QWEN3] = "qwen3",  [TINY_FORM_QWEN2] = "qwen2",
        [TINY_FORM_LLAMA] = "llama",  [TINY_FORM_GEMMA4] = "gemma4",
        [TINY_FORM_GLM] = "glm4moe",  [TINY_FORM_DEEPSEEK] = "deepseek2",
        [TINY_FORM_OSS] = "gpt-oss",  [TINY_FORM_LAGUNA] = "laguna",
        [TINY_FORM_GEMMA3] = "gemma3"};
    if (t->experts && !has_lead(t) && !is_gemma(t) && !is_oss(t))
        return t->plain ? "qwen3moe" : "qwen35moe";
    return t->plain ? plain[t->form] : "qwen35";
}

void tiny_shape_experts(struct tiny_shape *t) {
    int width = quant_format(t->type)->block > 32 ? quant_format(t->type)->block : 32;
    t->experts = 6;
    t->used = 2;
    t->expert_ffn = width;
    t->shared_ffn = t->plain && !has_lead(t) ? 0 : 2 * width;
}

struct tiny_draft_shape tiny_draft_default(const struct tiny_shape *t) {
    return (struct tiny_draft_shape){.layers = 2,
                                     .heads = 2,
                                     .kv_heads = 1,
                                     .head_dim = 32,
                                     .ffn = 96,
                                     .block = 8,
                                     .mask = 1,
                                     .n_taps = 2,
                                     .taps = {0, t->layers > 2 ? t->layers - 2 : 1},
                                     .causal = -1,
                                     .anchor = -1,
                                     .type = TYPE_F32,
                                     .seed = 2};
}

// Values of a latent: with the rotated ones after them whole blocks of every codec.
static int tiny_latent(const struct tiny_shape *t) {
    return t->latent ? t->latent : t->head_dim * 2 - t->rope_dims;
}

static bool low_rank(const struct tiny_shape *t) {
    return t->seed / 2 % 2;
}

static void attention_tensors(struct list *l, const struct tiny_shape *t, int i) {
    char b[64];
    int q = (t->plain ? 1 : 2) * t->heads * t->head_dim, kv = t->kv_heads * t->head_dim;
    if (t->fused) {
        matrix(l, blk(b, i, "attn_qkv.weight"), t->dim, q + 2 * kv, fan(t->dim, 1));
        l->e[l->n - 1].k_at = q;
        l->e[l->n - 1].v_at = q + kv;
    } else {
        matrix(l, blk(b, i, "attn_q.weight"), t->dim, q, fan(t->dim, 1));
        matrix(l, blk(b, i, "attn_k.weight"), t->dim, kv, fan(t->dim, 1));
        matrix(l, blk(b, i, "attn_v.weight"), t->dim, kv, fan(t->dim, 1));
    }
    matrix(l, blk(b, i, "attn_output.weight"), (int64_t)t->heads * t->head_dim, t->dim,
           fan(t->heads * t->head_dim, t->plain ? 2 : 4));
    if ((t->plain && t->form == TINY_FORM_QWEN2) || is_glm(t) || is_oss(t)) {
        vector(l, blk(b, i, t->fused ? "attn_qkv.bias" : "attn_q.bias"), t->fused ? q + 2 * kv : q,
               1, 0, 0.5f);
        if (!t->fused) {
            vector(l, blk(b, i, "attn_k.bias"), kv, 1, 0, 0.5f);
            vector(l, blk(b, i, "attn_v.bias"), kv, 1, 0, 0.5f);
        }
    }
    if (t->plain && t->form != TINY_FORM_QWEN3 && !is_glm(t) && !is_laguna(t) && !is_gemma3(t))
        return;
    vector(l, blk(b, i, "attn_q_norm.weight"), t->head_dim, 1, 1.5f, 0.2f);
    vector(l, blk(b, i, "attn_k_norm.weight"), t->head_dim, 1, 1.5f, 0.2f);
}

// Unless the shape says more, the latent is as wide as a head and a half of keys; queries have a
// low rank in every second model.
static void latent_tensors(struct list *l, const struct tiny_shape *t, int i) {
    char b[64];
    int q = t->heads * (t->head_dim / 2 + t->rope_dims), lora = tiny_latent(t);
    int64_t v = t->head_dim / 2;
    if (low_rank(t)) {
        matrix(l, blk(b, i, "attn_q_a.weight"), t->dim, t->dim / 2, fan(t->dim, 1));
        vector(l, blk(b, i, "attn_q_a_norm.weight"), t->dim / 2, 1, 1, 0.2f);
        matrix(l, blk(b, i, "attn_q_b.weight"), t->dim / 2, q, fan(t->dim / 2, 2));
    } else {
        matrix(l, blk(b, i, "attn_q.weight"), t->dim, q, fan(t->dim, 2));
    }
    matrix(l, blk(b, i, "attn_kv_a_mqa.weight"), t->dim, lora + t->rope_dims, fan(t->dim, 1));
    vector(l, blk(b, i, "attn_kv_a_norm.weight"), lora, 1, 1, 0.2f);
    if (t->fused) {
        matrix(l, blk(b, i, "attn_kv_b.weight"), lora, t->heads * (t->head_dim / 2 + v),
               fan(lora, 1));
    } else {
        expert_matrix(l, blk(b, i, "attn_k_b.weight"), t->head_dim / 2, lora, t->heads,
                      fan(lora, 1));
        expert_matrix(l, blk(b, i, "attn_v_b.weight"), lora, v, t->heads, fan(lora, 1));
    }
    matrix(l, blk(b, i, "attn_output.weight"), t->heads * v, t->dim, fan(t->heads * v, 2));
}

static bool gemma_borrows(const struct tiny_shape *t, int i) {
    return t->layers >= 4 && i >= t->layers - 2;
}

static void gemma_layer(struct list *l, const struct tiny_shape *t, int i) {
    static const char *const norms[] = {"attn_norm.weight", "post_attention_norm.weight",
                                        "ffn_norm.weight", "post_ffw_norm.weight",
                                        "post_norm.weight"};
    char b[64];
    bool full = i % 2, borrows = gemma_borrows(t, i);
    int hd = t->head_dim * (full ? 2 : 1), q = t->heads * hd, kv = (full ? 1 : t->kv_heads) * hd;
    int ffn = t->ffn * (borrows ? 2 : 1);
    for (int k = 0; k < 5; k++)
        vector(l, blk(b, i, norms[k]), t->dim, 1, 1, 0.2f);
    matrix(l, blk(b, i, "attn_q.weight"), t->dim, q, fan(t->dim, 1));
    vector(l, blk(b, i, "attn_q_norm.weight"), hd, 1, 0.4f, 0.1f);
    matrix(l, blk(b, i, "attn_output.weight"), q, t->dim, fan(q, 2));
    if (!borrows) {
        matrix(l, blk(b, i, "attn_k.weight"), t->dim, kv, fan(t->dim, 1));
        vector(l, blk(b, i, "attn_k_norm.weight"), hd, 1, 1, 0.2f);
        if (!full)
            matrix(l, blk(b, i, "attn_v.weight"), t->dim, kv, fan(t->dim, 1));
    }
    matrix(l, blk(b, i, "ffn_gate.weight"), t->dim, ffn, fan(t->dim, 1));
    matrix(l, blk(b, i, "ffn_up.weight"), t->dim, ffn, fan(t->dim, 1));
    matrix(l, blk(b, i, "ffn_down.weight"), ffn, t->dim, fan(ffn, 2));
    if (t->experts)
        gemma_experts(l, t, i);
    matrix(l, blk(b, i, "inp_gate.weight"), t->dim, TINY_PER_LAYER, fan(t->dim, 1));
    matrix(l, blk(b, i, "proj.weight"), TINY_PER_LAYER, t->dim, fan(TINY_PER_LAYER, 1));
    vector(l, blk(b, i, "layer_output_scale.weight"), 1, 1, 1, 0.1f);
}

static void gemma_outside(struct list *l, const struct tiny_shape *t) {
    int all = t->layers * TINY_PER_LAYER;
    matrix(l, "per_layer_token_embd.weight", all, t->vocab, fan(TINY_PER_LAYER, 1));
    matrix(l, "per_layer_model_proj.weight", t->dim, all, fan(t->dim, 1));
    vector(l, "per_layer_proj_norm.weight", TINY_PER_LAYER, 1, 1, 0.2f);
    vector(l, "rope_freqs.weight", t->head_dim, 1, 2, 0.3f);
}

static void deltanet_tensors(struct list *l, const struct tiny_shape *t, int i) {
    char b[64];
    int vd = t->value_heads * t->state, c = 2 * t->key_heads * t->state + vd;
    matrix(l, blk(b, i, "attn_qkv.weight"), t->dim, c, fan(t->dim, 1));
    matrix(l, blk(b, i, "attn_gate.weight"), t->dim, vd, fan(t->dim, 1));
    matrix(l, blk(b, i, "ssm_alpha.weight"), t->dim, t->value_heads, fan(t->dim, 1));
    matrix(l, blk(b, i, "ssm_beta.weight"), t->dim, t->value_heads, fan(t->dim, 1));
    matrix(l, blk(b, i, "ssm_out.weight"), vd, t->dim, fan(vd, 2));
    vector(l, blk(b, i, "ssm_conv1d.weight"), 4, c, 0, 0.5f);
    vector(l, blk(b, i, "ssm_a"), t->value_heads, 1, 0, 1);
    l->e[l->n - 1].rates = true;
    vector(l, blk(b, i, "ssm_dt.bias"), t->value_heads, 1, 0, 1);
    vector(l, blk(b, i, "ssm_norm.weight"), t->state, 1, 1, 0.2f);
}

static void feed_forward_tensors(struct list *l, const struct tiny_shape *t, int i) {
    char b[64];
    int64_t d = t->dim, e = t->experts, f = t->expert_ffn, s = t->shared_ffn;
    if (!e || (has_lead(t) && i == 0)) {
        matrix(l, blk(b, i, "ffn_gate.weight"), d, t->ffn, fan(d, 1));
        matrix(l, blk(b, i, "ffn_up.weight"), d, t->ffn, fan(d, 1));
        matrix(l, blk(b, i, "ffn_down.weight"), t->ffn, d, fan(t->ffn, 2));
        return;
    }
    vector(l, blk(b, i, "ffn_gate_inp.weight"), d, e, 0, fan(d, 2));
    expert_matrix(l, blk(b, i, "ffn_gate_exps.weight"), d, f, e, fan(d, 1));
    expert_matrix(l, blk(b, i, "ffn_up_exps.weight"), d, f, e, fan(d, 1));
    expert_matrix(l, blk(b, i, "ffn_down_exps.weight"), f, d, e, fan(f, 3));
    if (!s)
        return;
    if (has_lead(t))
        vector(l, blk(b, i, "exp_probs_b.bias"), e, 1, 0, 0.3f);
    else
        vector(l, blk(b, i, "ffn_gate_inp_shexp.weight"), d, 1, 0, fan(d, 2));
    matrix(l, blk(b, i, "ffn_gate_shexp.weight"), d, s, fan(d, 1));
    matrix(l, blk(b, i, "ffn_up_shexp.weight"), d, s, fan(d, 1));
    matrix(l, blk(b, i, "ffn_down_shexp.weight"), s, d, fan(s, 2));
}

static void layer_tensors(struct list *l, const struct tiny_shape *t, int i) {
    char b[64];
    struct tiny_shape own = *t;
    if (is_gemma(t)) {
        gemma_layer(l, t, i);
        return;
    }
    if (is_laguna(t)) {
        laguna_gate(l, t, i);
        own.heads = laguna_heads(t, i);
    }
    vector(l, blk(b, i, "attn_norm.weight"), t->dim, 1, 1, 0.2f);
    if (is_oss(t))
        oss_tensors(l, t, i);
    if (is_deep(t))
        latent_tensors(l, t, i);
    else if (i >= t->layers || (i + 1) % t->interval == 0)
        attention_tensors(l, &own, i);
    else
        deltanet_tensors(l, t, i);
    vector(l,
           blk(b, i,
               t->plain && !is_glm(t) && !is_oss(t) ? "ffn_norm.weight"
                                                    : "post_attention_norm.weight"),
           t->dim, 1, 1, 0.2f);
    if (is_gemma3(t)) {
        vector(l, blk(b, i, "post_attention_norm.weight"), t->dim, 1, 1, 0.2f);
        vector(l, blk(b, i, "post_ffw_norm.weight"), t->dim, 1, 1, 0.2f);
    }
    if (i < t->layers || !t->nextn_bare)
        feed_forward_tensors(l, t, i);
}

static void nextn_tensors(struct list *l, const struct tiny_shape *t) {
    char b[64];
    for (int i = t->layers; i < t->layers + t->nextn; i++) {
        layer_tensors(l, t, i);
        matrix(l, blk(b, i, "nextn.eh_proj.weight"), 2 * (int64_t)t->dim, t->dim,
               fan(2 * (int64_t)t->dim, 1));
        vector(l, blk(b, i, "nextn.enorm.weight"), t->dim, 1, 1, 0.2f);
        vector(l, blk(b, i, "nextn.hnorm.weight"), t->dim, 1, 1, 0.2f);
        if (t->seed / 4 % 2 == 0)
            vector(l, blk(b, i, "nextn.shared_head_norm.weight"), t->dim, 1, 1, 0.2f);
        if (!t->nextn_own)
            continue;
        matrix(l, blk(b, i, "nextn.embed_tokens.weight"), t->dim, t->vocab, 1);
        matrix(l, blk(b, i, "nextn.shared_head_head.weight"), t->dim, t->vocab, fan(t->dim, 3));
    }
}

// Tensors outside of layers that all targets have.
static void outer_tensors(struct list *l, const struct tiny_shape *t) {
    // A tied head with large embeddings would only repeat the token it has just read.
    matrix(l, "token_embd.weight", t->dim, t->vocab,
           is_gemma3(t) || (is_gemma(t) && !t->tied) ? fan(t->dim, 1)
           : t->tied                                 ? 0.3f
                                                     : 1);
    vector(l, "output_norm.weight", t->dim, 1, 1, 0.2f);
    if (!t->tied)
        matrix(l, "output.weight", t->dim, t->vocab, fan(t->dim, 3));
}

static void target_tensors(struct list *l, const struct tiny_shape *t) {
    outer_tensors(l, t);
    if (is_gemma(t))
        gemma_outside(l, t);
    if (t->plain && t->form == TINY_FORM_LLAMA)
        vector(l, "rope_freqs.weight", t->rope_dims / 2, 1, 2, 0.3f);
    for (int i = 0; i < t->layers; i++)
        layer_tensors(l, t, i);
    nextn_tensors(l, t);
}

static void sidecar_tensors(struct list *l, const struct tiny_shape *t) {
    if (t->seed % 2)
        outer_tensors(l, t);
    nextn_tensors(l, t);
}

// What a tensor is called for its values: the same in all dialects of a draft.
static void canonical(const char *name, char out[64]) {
    static const char *const same[][2] = {{"hidden_norm", "enc.output_norm.weight"},
                                          {"fc.weight", "fc.weight"}};
    const char *dot = strstr(name, ".post_attention_norm");
    snprintf(out, 64, "%s", name);
    if (dot)
        snprintf(out, 64, "%.*s.ffn_norm.weight", (int)(dot - name), name);
    for (int i = 0; i < 2; i++) {
        if (strstr(name, same[i][0]))
            snprintf(out, 64, "%s", same[i][1]);
    }
}

// Where the values of a row come from: the tensor's name, or for a fused matrix that of the part.
static uint64_t row_id(const struct entry *t, int64_t row, int64_t *first) {
    char name[64];
    canonical(t->name, name);
    *first = 0;
    if (t->v_at) {
        char part = row < t->k_at ? 'q' : row < t->v_at ? 'k' : 'v';
        *first = row < t->k_at ? 0 : row < t->v_at ? t->k_at : t->v_at;
        snprintf(strstr(name, "attn_qkv"), 16, "attn_%c.weight", part);
    }
    return hash_bytes(name, strlen(name), 0);
}

static void fill_row(const struct list *l, const struct entry *t, int64_t row, float *x) {
    int64_t first;
    uint64_t id = row_id(t, row, &first);
    for (int64_t i = 0; i < t->k; i++) {
        float v = noise(l->seed, id, (uint64_t)((row - first) * t->k + i));
        float mean = t->every && row % t->every ? 0 : t->mean;
        x[i] = t->rates ? -expf(1.5f * v - 1.5f) : mean + t->std * v;
    }
}

// Every other token, counted from 1.
static int write_list(struct gguf_writer *w, int64_t n, struct err *e) {
    int rc = 0;
    for (int64_t i = 0; !rc && i < n; i++) {
        const int64_t token = 2 * i + 1;
        rc = gguf_write_data(w, &token, sizeof token, e);
    }
    return rc;
}

static int write_entry(struct gguf_writer *w, const struct list *l, int index, struct err *e) {
    const struct entry *t = &l->e[index];
    const struct quant_format *f = quant_format(t->type);
    int64_t n = t->k * t->m, bytes = n / f->block * f->bytes;
    if (t->type == TYPE_I64)
        return write_list(w, n, e);
    float *x = malloc((size_t)n * sizeof *x);
    void *out = malloc((size_t)bytes);
    int rc = x && out ? 0 : err_set(e, ERR_MEMORY, "no memory for tensor %s", t->name);
    for (int64_t r = 0; !rc && r < t->m; r++)
        fill_row(l, t, r, x + r * t->k);
    if (!rc) {
        for (int64_t r = 0; r < t->m; r++)
            f->quantize(x + r * t->k, (char *)out + r * (bytes / t->m), t->k);
        rc = gguf_write_data(w, out, (size_t)bytes, e);
    }
    free(x);
    free(out);
    return rc;
}

int tiny_list_write(struct gguf_writer *w, const struct list *l, struct err *e) {
    for (int i = 0; i < l->n; i++) {
        const struct entry *t = &l->e[i];
        int64_t ne[3] = {t->k, t->experts ? t->m / t->experts : t->m, t->experts};
        gguf_add_tensor(w, t->name, t->type, t->experts ? 3 : t->m > 1 ? 2 : 1, ne);
    }
    for (int i = 0; i < l->n; i++) {
        int rc = write_entry(w, l, i, e);
        if (rc) {
            gguf_writer_abort(w);
            return rc;
        }
    }
    return gguf_writer_close(w, e);
}

static void put_gemma_keys(struct gguf_writer *w, const struct tiny_shape *t) {
    const char *a = tiny_arch(t);
    int32_t kv[64], ffn[64];
    uint8_t windowed[64];
    for (int i = 0; i < t->layers; i++) {
        windowed[i] = i % 2 == 0;
        kv[i] = windowed[i] ? t->kv_heads : 1;
        ffn[i] = t->ffn * (gemma_borrows(t, i) ? 2 : 1);
    }
    uint64_t n = (uint64_t)t->layers;
    gguf_put_array(w, "gemma4.attention.head_count_kv", GGUF_I32, kv, n);
    gguf_put_array(w, "gemma4.feed_forward_length", GGUF_I32, ffn, n);
    gguf_put_array(w, "gemma4.attention.sliding_window_pattern", GGUF_BOOL, windowed, n);
    put_u32(w, a, "attention.sliding_window", TINY_WINDOW);
    put_u32(w, a, "attention.shared_kv_layers", t->layers >= 4 ? 2 : 0);
    put_u32(w, a, "attention.key_length", 2 * t->head_dim);
    put_u32(w, a, "attention.value_length", 2 * t->head_dim);
    put_u32(w, a, "attention.key_length_swa", t->head_dim);
    put_u32(w, a, "attention.value_length_swa", t->head_dim);
    put_u32(w, a, "embedding_length_per_layer_input", TINY_PER_LAYER);
    put_f32(w, a, "rope.freq_base_swa", 1e4f);
    put_f32(w, a, "final_logit_softcapping", 8);
}

static void put_expert_keys(struct gguf_writer *w, const char *a, const struct tiny_shape *t) {
    put_u32(w, a, "expert_count", t->experts);
    put_u32(w, a, "expert_used_count", t->used);
    put_u32(w, a, "expert_feed_forward_length", t->expert_ffn);
    if (!has_lead(t)) {
        if (t->shared_ffn)
            put_u32(w, a, "expert_shared_feed_forward_length", t->shared_ffn);
        return;
    }
    if (is_laguna(t))
        return;
    put_u32(w, a, "feed_forward_length", t->ffn);
    put_u32(w, a, "expert_shared_count", t->shared_ffn / t->expert_ffn);
    put_u32(w, a, "leading_dense_block_count", 1);
    put_u32(w, a, "expert_group_count", 3);
    put_u32(w, a, "expert_group_used_count", 2);
    put_u32(w, a, "expert_gating_func", 2);
    put_u32(w, a, "rope.dimension_count", t->rope_dims);
    put_f32(w, a, "expert_weights_scale", 1.5f);
}

static void put_latent_keys(struct gguf_writer *w, const struct tiny_shape *t) {
    const char *a = tiny_arch(t);
    int key = t->head_dim / 2 + t->rope_dims, lora = tiny_latent(t);
    put_u32(w, a, "attention.head_count_kv", t->fused ? t->heads : 1);
    put_u32(w, a, "attention.key_length", t->fused ? key : lora + t->rope_dims);
    put_u32(w, a, "attention.value_length", t->fused ? t->head_dim / 2 : lora);
    put_u32(w, a, "attention.kv_lora_rank", lora);
    if (low_rank(t))
        put_u32(w, a, "attention.q_lora_rank", t->dim / 2);
    if (!t->fused) {
        put_u32(w, a, "attention.key_length_mla", key);
        put_u32(w, a, "attention.value_length_mla", t->head_dim / 2);
    }
    gguf_put_str(w, "deepseek2.rope.scaling.type", "yarn", 4);
    put_f32(w, a, "rope.scaling.factor", 4);
    put_u32(w, a, "rope.scaling.original_context_length", 128);
    put_f32(w, a, "rope.scaling.yarn_log_multiplier", 0.1f);
}

static void put_target_keys(struct gguf_writer *w, const struct tiny_shape *t) {
    const char *a = tiny_arch(t);
    gguf_put_str(w, "general.architecture", a, strlen(a));
    gguf_put_str(w, "general.name", "tiny random target", 18);
    put_u32(w, a, "block_count", t->layers + t->nextn);
    if (t->nextn)
        put_u32(w, a, "nextn_predict_layers", t->nextn);
    put_u32(w, a, "context_length", t->context);
    put_u32(w, a, "embedding_length", t->dim);
    if (t->experts)
        put_expert_keys(w, a, t);
    if (is_laguna(t))
        put_laguna_keys(w, t);
    else
        put_u32(w, a, "attention.head_count", t->heads);
    if (is_gemma(t)) {
        put_gemma_keys(w, t);
    } else if (is_deep(t)) {
        put_latent_keys(w, t);
    } else {
        if (!t->experts)
            put_u32(w, a, "feed_forward_length", t->ffn);
        put_u32(w, a, "attention.head_count_kv", t->kv_heads);
        put_u32(w, a, "attention.key_length", t->head_dim);
        put_u32(w, a, "attention.value_length", t->head_dim);
    }
    if (is_oss(t) || is_gemma3(t))
        put_u32(w, a, "attention.sliding_window", TINY_WINDOW);
    if (is_gemma3(t)) {
        put_u32(w, a, "attention.sliding_window_pattern", 2);
        put_f32(w, a, "rope.scaling.factor", 4);
    }
    put_f32(w, a, "attention.layer_norm_rms_epsilon", 1e-6f);
    put_f32(w, a, "rope.freq_base", t->plain ? 1e6f : 1e7f);
    if (t->plain)
        return;
    put_u32(w, a, "full_attention_interval", t->interval);
    put_u32(w, a, "rope.dimension_count", t->rope_dims);
    put_u32(w, a, "ssm.conv_kernel", 4);
    put_u32(w, a, "ssm.state_size", t->state);
    put_u32(w, a, "ssm.group_count", t->key_heads);
    put_u32(w, a, "ssm.time_step_rank", t->value_heads);
    put_u32(w, a, "ssm.inner_size", (int64_t)t->value_heads * t->state);
}

static int write_file(const struct tiny_shape *shape, const char *path,
                      void (*tensors)(struct list *, const struct tiny_shape *), struct err *e) {
    struct tiny_shape own = *shape;
    const struct tiny_shape *t = &own;
    if (is_gemma(t) || is_gemma3(t) || is_laguna(t)) // which have no such blocks
        own.nextn = 0;
    struct gguf_writer *w;
    struct list *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(e, ERR_MEMORY, "no memory for a list of tensors");
    int rc = gguf_writer_open(&w, path, e);
    if (!rc) {
        put_target_keys(w, t);
        rc =
            t->vocab >= 260 ? tiny_put_tokenizer(w, t->vocab, t->plain ? "qwen2" : "qwen35", e) : 0;
        l->type = t->type;
        l->seed = t->seed;
        tensors(l, t);
        if (rc)
            gguf_writer_abort(w);
        else
            rc = tiny_list_write(w, l, e);
    }
    free(l);
    return rc;
}

int tiny_target_write(const struct tiny_shape *t, const char *path, struct err *e) {
    return write_file(t, path, target_tensors, e);
}

int tiny_sidecar_write(const struct tiny_shape *t, const char *path, struct err *e) {
    return write_file(t, path, sidecar_tensors, e);
}

struct tiny_shape tiny_shape_form(enum tiny_form form) {
    struct tiny_shape t = tiny_shape_plain();
    t.form = form;
    if (form == TINY_FORM_GLM || form == TINY_FORM_DEEPSEEK || form == TINY_FORM_OSS ||
        form == TINY_FORM_LAGUNA)
        tiny_shape_experts(&t);
    if (form == TINY_FORM_GLM || form == TINY_FORM_DEEPSEEK || form == TINY_FORM_LAGUNA)
        t.rope_dims = t.head_dim / 2;
    return t;
}

int tiny_pair_write(struct tiny_pair *p, const char *test) {
    struct tiny_shape t = tiny_shape_default();
    return tiny_pair_write_as(p, test, &t, 0);
}

int tiny_pair_write_as(struct tiny_pair *p, const char *test, const struct tiny_shape *t,
                       int draft_window) {
    struct tiny_draft_shape d = tiny_draft_default(t);
    d.window = draft_window;
    d.laguna = t->form == TINY_FORM_LAGUNA;
    snprintf(p->target, sizeof p->target, "/tmp/coppice-%s-%d-t.gguf", test, (int)getpid());
    snprintf(p->draft, sizeof p->draft, "/tmp/coppice-%s-%d-d.gguf", test, (int)getpid());
    int rc = tiny_target_write(t, p->target, NULL);
    return rc ? rc : tiny_draft_write(t, &d, p->draft, NULL);
}

void tiny_pair_remove(const struct tiny_pair *p) {
    unlink(p->target);
    unlink(p->draft);
}
