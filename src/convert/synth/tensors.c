// SPDX-License-Identifier: Apache-2.0
// What a file of each shape consists of. Matrices get values of size 1/sqrt(inputs), so that what
// comes out is as large as what went in and the residual stream stays within 1 to 100.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convert/quantize/types.h"
#include "convert/synth/impl.h"

static bool full_layer(const struct synth_shape *s, int i) {
    return s->draft || s->plain || i % 4 == 3;
}

static const char *arch_of(const struct synth_shape *s) {
    if (s->draft)
        return "dflash";
    if (s->experts && !s->arch)
        return s->plain ? "qwen3moe" : "qwen35moe";
    if (!s->plain)
        return "qwen35";
    return s->arch ? s->arch : "qwen3";
}

static bool is_arch(const struct synth_shape *s, const char *arch) {
    return !strcmp(arch_of(s), arch);
}

static bool is_glm(const struct synth_shape *s) {
    return is_arch(s, "glm4moe");
}

static bool is_oss(const struct synth_shape *s) {
    return is_arch(s, "gpt-oss");
}

static bool is_laguna(const struct synth_shape *s) {
    return is_arch(s, "laguna");
}

// Dense layers first, then experts beside a shared one, with a bias for the choice.
static bool has_lead(const struct synth_shape *s) {
    return is_glm(s) || is_laguna(s) || is_arch(s, "deepseek2");
}

static bool is_gemma(const struct synth_shape *s) {
    return is_arch(s, "gemma4");
}

const char *synth_pre(const struct synth_shape *s) {
    if (is_arch(s, "deepseek2"))
        return "deepseek-v3";
    if (is_oss(s))
        return "gpt-4o";
    if (is_laguna(s))
        return "laguna";
    return is_arch(s, "llama") ? "llama-bpe" : s->plain ? "qwen2" : "qwen35";
}

// Where layers with a window have another number, the first of each four is full.
static int heads_of(const struct synth_shape *s, int i) {
    return s->window_heads && i % 4 ? s->window_heads : s->heads;
}

static void attention(struct synth_builder *b, const struct synth_shape *s, int i) {
    int64_t width = (int64_t)heads_of(s, i) * s->head_dim, kv = (int64_t)s->kv * s->head_dim;
    bool gated = !s->draft && !s->plain;
    bool normed = !s->plain || (s->experts && !is_glm(s) && !is_oss(s)) || is_arch(s, "qwen3");
    if (is_laguna(s) || s->gated)
        synth_matrix(b, i, "attn_gate.weight", s->dim, s->wide ? width : heads_of(s, i), 1);
    // Scores of a size that tells tokens apart: with nothing but attention, flat ones would make
    // the next token a function of the last, and every text would soon repeat itself.
    float size = s->plain ? 2 : 1;
    synth_matrix(b, i, "attn_q.weight", s->dim, gated ? 2 * width : width, normed ? 1 : size);
    synth_matrix(b, i, "attn_k.weight", s->dim, kv, normed ? 1 : size);
    synth_matrix(b, i, "attn_v.weight", s->dim, kv, 1);
    synth_matrix(b, i, "attn_output.weight", width, s->dim, 1);
    if (is_oss(s)) {
        synth_vector(b, i, "attn_output.bias", s->dim, 0, 0.1f);
        synth_vector(b, i, "attn_sinks.weight", s->heads, 0, 1);
    }
    if (is_arch(s, "qwen2") || is_glm(s) || is_oss(s)) {
        synth_vector(b, i, "attn_q.bias", width, 0, 0.5f);
        synth_vector(b, i, "attn_k.bias", kv, 0, 0.5f);
        synth_vector(b, i, "attn_v.bias", kv, 0, 0.5f);
    }
    if (!normed)
        return;
    synth_vector(b, i, "attn_q_norm.weight", s->head_dim, size, 0.2f);
    synth_vector(b, i, "attn_k_norm.weight", s->head_dim, size, 0.2f);
}

static void latent(struct synth_builder *b, const struct synth_shape *s, int i) {
    int64_t q = (int64_t)s->heads * (s->nope + s->rope_dims);
    const int64_t k[3] = {s->nope, s->kv_lora, s->heads}, v[3] = {s->kv_lora, s->v_dim, s->heads};
    if (s->q_lora) {
        synth_matrix(b, i, "attn_q_a.weight", s->dim, s->q_lora, 1);
        synth_norm(b, i, "attn_q_a_norm.weight", s->q_lora);
        synth_matrix(b, i, "attn_q_b.weight", s->q_lora, q, 2);
    } else {
        synth_matrix(b, i, "attn_q.weight", s->dim, q, 2);
    }
    synth_matrix(b, i, "attn_kv_a_mqa.weight", s->dim, s->kv_lora + s->rope_dims, 1);
    synth_norm(b, i, "attn_kv_a_norm.weight", s->kv_lora);
    synth_experts(b, i, "attn_k_b.weight", k);
    synth_experts(b, i, "attn_v_b.weight", v);
    synth_matrix(b, i, "attn_output.weight", (int64_t)s->heads * s->v_dim, s->dim, 1);
}

// Decay of a step is exp(ssm_a * softplus(a + bias)): from nearly 1 down to about 0.1.
static void deltanet(struct synth_builder *b, const struct synth_shape *s, int i) {
    int64_t vd = (int64_t)s->gdn_v * s->gdn_dim, c = 2 * (int64_t)s->gdn_k * s->gdn_dim + vd;
    synth_matrix(b, i, "attn_qkv.weight", s->dim, c, 1);
    synth_matrix(b, i, "attn_gate.weight", s->dim, vd, 1);
    synth_matrix(b, i, "ssm_alpha.weight", s->dim, s->gdn_v, 1);
    synth_matrix(b, i, "ssm_beta.weight", s->dim, s->gdn_v, 1);
    synth_matrix(b, i, "ssm_conv1d.weight", 4, c, 1);
    synth_vector(b, i, "ssm_a", s->gdn_v, -0.5f, 0.48f);
    synth_vector(b, i, "ssm_dt.bias", s->gdn_v, -2, 2);
    synth_norm(b, i, "ssm_norm.weight", s->gdn_dim);
    synth_matrix(b, i, "ssm_out.weight", vd, s->dim, 1);
}

// Router logits of size 2 choose as unevenly as those of trained models do for a text.
static void experts(struct synth_builder *b, const struct synth_shape *s, int i) {
    const int64_t in[3] = {s->dim, s->expert_ffn, s->experts};
    const int64_t out[3] = {s->expert_ffn, s->dim, s->experts};
    synth_matrix(b, i, "ffn_gate_inp.weight", s->dim, s->experts, 2);
    synth_experts(b, i, "ffn_gate_exps.weight", in);
    synth_experts(b, i, "ffn_up_exps.weight", in);
    synth_experts(b, i, "ffn_down_exps.weight", out);
    if (is_oss(s)) {
        synth_vector(b, i, "ffn_gate_inp.bias", s->experts, 0, 0.2f);
        synth_biases(b, i, "ffn_gate_exps.bias", s->expert_ffn, s->experts);
        synth_biases(b, i, "ffn_up_exps.bias", s->expert_ffn, s->experts);
        synth_biases(b, i, "ffn_down_exps.bias", s->dim, s->experts);
    }
    if (!s->shared_ffn)
        return;
    if (has_lead(s))
        synth_vector(b, i, "exp_probs_b.bias", s->experts, 0, 0.2f);
    else
        synth_vector(b, i, "ffn_gate_inp_shexp.weight", s->dim, 0,
                     (float)sqrt(3.0 / (double)s->dim));
    synth_matrix(b, i, "ffn_gate_shexp.weight", s->dim, s->shared_ffn, 1);
    synth_matrix(b, i, "ffn_up_shexp.weight", s->dim, s->shared_ffn, 1);
    synth_matrix(b, i, "ffn_down_shexp.weight", s->shared_ffn, s->dim, 1);
}

static void mlp(struct synth_builder *b, const struct synth_shape *s, int i) {
    if (s->experts && i >= s->lead) {
        experts(b, s, i);
        return;
    }
    synth_matrix(b, i, "ffn_gate.weight", s->dim, s->ffn, 1);
    synth_matrix(b, i, "ffn_up.weight", s->dim, s->ffn, 1);
    synth_matrix(b, i, "ffn_down.weight", s->ffn, s->dim, 1);
}

void synth_tensors(struct synth_list *l, const struct synth_shape *s,
                   const struct convert_recipe *r) {
    struct synth_builder b = {
        l, {.recipe = r, .layers = s->layers, .tied = s->tied, .experts = s->experts}};
    if (s->draft) {
        synth_matrix(&b, -1, "fc.weight", s->n_taps * s->dim, s->dim, 1);
        synth_norm(&b, -1, "enc.output_norm.weight", s->dim);
        if (s->gated)
            synth_norms(&b, "enc.aux_norm.weight", s->dim, s->n_taps);
    } else {
        // A head of size 2 sets the likeliest tokens apart; an embedding that is also the head
        // must be small, or every token would predict itself.
        synth_matrix(&b, -1, "token_embd.weight", s->dim, s->vocab,
                     s->tied ? 2 : 0.5 * sqrt((double)s->dim));
    }
    synth_norm(&b, -1, "output_norm.weight", s->dim);
    if (!s->draft && !s->tied)
        synth_matrix(&b, -1, "output.weight", s->dim, s->vocab, 2);
    if (is_arch(s, "llama"))
        synth_vector(&b, -1, "rope_freqs.weight", s->head_dim / 2, 1.5f, 0.5f);
    if (is_gemma(s)) {
        synth_gemma_tensors(&b, s);
        return;
    }
    for (int i = 0; i < s->layers; i++) {
        synth_norm(&b, i, "attn_norm.weight", s->dim);
        bool plain = s->draft || (s->plain && !is_glm(s) && !is_oss(s));
        synth_norm(&b, i, plain ? "ffn_norm.weight" : "post_attention_norm.weight", s->dim);
        if (s->kv_lora)
            latent(&b, s, i);
        else if (full_layer(s, i))
            attention(&b, s, i);
        else
            deltanet(&b, s, i);
        mlp(&b, s, i);
    }
}

// Metadata.

struct full_key {
    char text[96];
};

static struct full_key key_of(const struct synth_shape *s, const char *key) {
    struct full_key k;
    snprintf(k.text, sizeof k.text, "%s.%s", arch_of(s), key);
    return k;
}

static void put(struct gguf_writer *w, const struct synth_shape *s, const char *key, int64_t v) {
    gguf_put_int(w, key_of(s, key).text, GGUF_U32, v);
}

static void qwen35_metadata(struct gguf_writer *w, const struct synth_shape *s) {
    const int32_t sections[4] = {11, 11, 10, 0};
    put(w, s, "full_attention_interval", 4);
    put(w, s, "rope.dimension_count", s->rope_dims);
    gguf_put_array(w, key_of(s, "rope.dimension_sections").text, GGUF_I32, sections, 4);
    put(w, s, "ssm.conv_kernel", 4);
    put(w, s, "ssm.state_size", s->gdn_dim);
    put(w, s, "ssm.group_count", s->gdn_k);
    put(w, s, "ssm.time_step_rank", s->gdn_v);
    put(w, s, "ssm.inner_size", (int64_t)s->gdn_v * s->gdn_dim);
}

// As published: so many times 4,096 positions.
static void put_yarn(struct gguf_writer *w, const struct synth_shape *s, float factor) {
    gguf_put_str(w, key_of(s, "rope.scaling.type").text, "yarn", 4);
    gguf_put_f32(w, key_of(s, "rope.scaling.factor").text, factor);
    put(w, s, "rope.scaling.original_context_length", 4096);
}

static void oss_metadata(struct gguf_writer *w, const struct synth_shape *s) {
    put(w, s, "attention.sliding_window", s->window);
    put_yarn(w, s, 32);
}

static void lead_metadata(struct gguf_writer *w, const struct synth_shape *s) {
    if (!is_laguna(s))
        put(w, s, "expert_shared_count", s->shared_ffn / s->expert_ffn);
    put(w, s, "leading_dense_block_count", s->lead);
    put(w, s, "expert_gating_func", 2);
    put(w, s, "rope.dimension_count", s->rope_dims);
    gguf_put_bool(w, key_of(s, "expert_weights_norm").text, true);
}

// YaRN in full layers: of half a head, 32 times, in XS.2; of all of it, 64 times, in M.1, which has
// no others.
static void laguna_metadata(struct gguf_writer *w, const struct synth_shape *s) {
    int32_t heads[128];
    for (int i = 0; i < s->layers; i++)
        heads[i] = heads_of(s, i);
    put_yarn(w, s, s->window ? 32 : 64);
    if (s->window)
        put(w, s, "attention.sliding_window", s->window);
    gguf_put_array(w, key_of(s, "attention.head_count").text, GGUF_I32, heads, (uint64_t)s->layers);
    put(w, s, "expert_shared_feed_forward_length", s->shared_ffn);
    gguf_put_f32(w, key_of(s, "rope.scaling.yarn_beta_fast").text, 64);
    gguf_put_f32(w, key_of(s, "rope.freq_base_swa").text, 1e4f);
    gguf_put_f32(w, key_of(s, "expert_weights_scale").text, s->window ? 2.5f : 1);
}

// Layers of a latent, and weights that are divided by their sum and then times 2.5.
static void latent_metadata(struct gguf_writer *w, const struct synth_shape *s) {
    put(w, s, "attention.key_length_mla", s->nope + s->rope_dims);
    put(w, s, "attention.value_length_mla", s->v_dim);
    put(w, s, "attention.kv_lora_rank", s->kv_lora);
    if (s->q_lora)
        put(w, s, "attention.q_lora_rank", s->q_lora);
    gguf_put_f32(w, key_of(s, "expert_weights_scale").text, 2.5f);
}

// The upstream dialect: taps are counted from 1.
static void draft_metadata(struct gguf_writer *w, const struct synth_shape *s) {
    int32_t taps[SYNTH_MAX_TAPS];
    uint8_t windowed[128] = {0};
    for (int i = 0; i < s->n_taps; i++)
        taps[i] = s->taps[i] + 1;
    for (int i = 0; i < s->layers - !s->gated; i++)
        windowed[i] = 1;
    gguf_put_array(w, "dflash.target_layers", GGUF_I32, taps, (uint64_t)s->n_taps);
    put(w, s, "block_size", s->block);
    put(w, s, "vocab_size", s->vocab);
    if (s->window) {
        put(w, s, "attention.sliding_window", s->window);
        gguf_put_array(w, "dflash.attention.sliding_window_pattern", GGUF_BOOL, windowed,
                       (uint64_t)s->layers);
    }
    if (s->yarn > 0)
        put_yarn(w, s, s->yarn);
    if (s->cap > 0)
        gguf_put_f32(w, "dflash.final_logit_softcapping", s->cap);
    if (s->gated)
        gguf_put_str(w, "dflash.decoder_arch", "laguna", 6);
    gguf_put_int(w, "tokenizer.ggml.mask_token_id", GGUF_U32, s->mask);
}

void synth_metadata(struct gguf_writer *w, const struct synth_shape *s,
                    const struct convert_recipe *r) {
    const char *arch = arch_of(s);
    char name[96];
    int n = snprintf(name, sizeof name, "%s, random weights", s->name);
    gguf_put_str(w, "general.architecture", arch, strlen(arch));
    gguf_put_str(w, "general.name", name, (size_t)n);
    gguf_put_int(w, "general.file_type", GGUF_U32, r->file_type);
    gguf_put_int(w, "general.quantization_version", GGUF_U32, 2);
    put(w, s, "block_count", s->layers);
    bool llama = is_arch(s, "llama");
    put(w, s, "context_length",
        llama || is_oss(s) || is_laguna(s) || is_gemma(s) ? 131072
        : s->plain                                        ? 40960
                                                          : 262144);
    put(w, s, "embedding_length", s->dim);
    if (s->ffn && !is_gemma(s))
        put(w, s, "feed_forward_length", s->ffn);
    if (s->experts) {
        put(w, s, "expert_count", s->experts);
        put(w, s, "expert_used_count", s->used);
        put(w, s, "expert_feed_forward_length", s->expert_ffn);
    }
    if (is_oss(s))
        oss_metadata(w, s);
    if (has_lead(s))
        lead_metadata(w, s);
    else if (s->shared_ffn)
        put(w, s, "expert_shared_feed_forward_length", s->shared_ffn);
    if (is_laguna(s))
        laguna_metadata(w, s);
    else
        put(w, s, "attention.head_count", s->heads);
    if (is_gemma(s)) {
        synth_gemma_metadata(w, s);
        return;
    }
    put(w, s, "attention.head_count_kv", s->kv);
    put(w, s, "attention.key_length", s->kv_lora ? s->kv_lora + s->rope_dims : s->head_dim);
    put(w, s, "attention.value_length", s->kv_lora ? s->kv_lora : s->head_dim);
    if (s->kv_lora)
        latent_metadata(w, s);
    gguf_put_f32(w, key_of(s, "attention.layer_norm_rms_epsilon").text, 1e-6f);
    gguf_put_f32(w, key_of(s, "rope.freq_base").text,
                 s->base > 0             ? s->base
                 : llama || is_laguna(s) ? 5e5f
                 : s->plain              ? 1e6f
                                         : 1e7f);
    if (s->draft)
        draft_metadata(w, s);
    else if (!s->plain)
        qwen35_metadata(w, s);
}
