// SPDX-License-Identifier: Apache-2.0
// Tiny models as HuggingFace folders: which tensors there are, config.json, and a tokenizer with
// one token a byte. Follows tools/oracle/tiny_model.py; values and files are tiny_store.c's.
#include "golden/tiny_model.h"

#include <stdio.h>
#include <string.h>

#include "base/json/json.h"
#include "golden/tiny_store.h"

#define SHAPE(...)                                                                                 \
    (const int64_t[TINY_MAX_DIMS]) {                                                               \
        __VA_ARGS__                                                                                \
    }

static bool full_attention(const struct tiny_target *t, int i) {
    return t->plain || (i + 1) % t->interval == 0;
}

static void add_attention(struct tiny_store *s, const char *p, const struct tiny_target *t) {
    int64_t d = t->hidden, hd = t->head_dim, gate = t->plain ? 1 : 2;
    (void)tiny_store_add(s, p, "self_attn.q_proj.weight", SHAPE(gate * hd * t->heads, d));
    (void)tiny_store_add(s, p, "self_attn.k_proj.weight", SHAPE(hd * t->kv_heads, d));
    (void)tiny_store_add(s, p, "self_attn.v_proj.weight", SHAPE(hd * t->kv_heads, d));
    (void)tiny_store_add(s, p, "self_attn.o_proj.weight", SHAPE(d, hd * t->heads));
    if (t->bias) {
        (void)tiny_store_add(s, p, "self_attn.q_proj.bias", SHAPE(hd * t->heads));
        (void)tiny_store_add(s, p, "self_attn.k_proj.bias", SHAPE(hd * t->kv_heads));
        (void)tiny_store_add(s, p, "self_attn.v_proj.bias", SHAPE(hd * t->kv_heads));
    }
    if (t->bias && t->kind == TINY_LLAMA)
        (void)tiny_store_add(s, p, "self_attn.o_proj.bias", SHAPE(d));
    if (t->kind == TINY_QWEN3 || t->norms) {
        (void)tiny_store_add(s, p, "self_attn.q_norm.weight", SHAPE(hd));
        (void)tiny_store_add(s, p, "self_attn.k_norm.weight", SHAPE(hd));
    }
}

static void add_linear(struct tiny_store *s, const char *p, const struct tiny_target *t) {
    int64_t d = t->hidden, hd = t->linear_head_dim, nv = t->value_heads;
    int64_t channels = hd * (2 * t->key_heads + nv);
    (void)tiny_store_add(s, p, "linear_attn.in_proj_qkv.weight", SHAPE(channels, d));
    (void)tiny_store_add(s, p, "linear_attn.in_proj_z.weight", SHAPE(hd * nv, d));
    (void)tiny_store_add(s, p, "linear_attn.in_proj_b.weight", SHAPE(nv, d));
    (void)tiny_store_add(s, p, "linear_attn.in_proj_a.weight", SHAPE(nv, d));
    (void)tiny_store_add(s, p, "linear_attn.conv1d.weight", SHAPE(channels, 1, 4));
    (void)tiny_store_add(s, p, "linear_attn.dt_bias", SHAPE(nv));
    (void)tiny_store_add(s, p, "linear_attn.A_log", SHAPE(nv));
    (void)tiny_store_add(s, p, "linear_attn.norm.weight", SHAPE(hd));
    (void)tiny_store_add(s, p, "linear_attn.out_proj.weight", SHAPE(d, hd * nv));
}

static void add_norms(struct tiny_store *s, const char *p, int64_t d) {
    (void)tiny_store_add(s, p, "input_layernorm.weight", SHAPE(d));
    (void)tiny_store_add(s, p, "post_attention_layernorm.weight", SHAPE(d));
}

static void add_mlp(struct tiny_store *s, const char *p, int64_t d, int64_t f) {
    add_norms(s, p, d);
    (void)tiny_store_add(s, p, "mlp.gate_proj.weight", SHAPE(f, d));
    (void)tiny_store_add(s, p, "mlp.up_proj.weight", SHAPE(f, d));
    (void)tiny_store_add(s, p, "mlp.down_proj.weight", SHAPE(d, f));
}

static bool gemma_full(const struct tiny_target *t, int i) {
    return (i + 1) % t->gemma.period == 0;
}

static void add_gemma_layer(struct tiny_store *s, const char *p, const struct tiny_target *t,
                            int i) {
    bool full = gemma_full(t, i), borrows = i >= t->layers - t->gemma.borrowing;
    int64_t d = t->hidden, hd = full ? t->gemma.head_dim : t->head_dim;
    int64_t kv = hd * (full ? t->gemma.kv_heads : t->kv_heads);
    (void)tiny_store_add(s, p, "self_attn.q_proj.weight", SHAPE(hd * t->heads, d));
    (void)tiny_store_add(s, p, "self_attn.o_proj.weight", SHAPE(d, hd * t->heads));
    (void)tiny_store_add(s, p, "self_attn.q_norm.weight", SHAPE(hd));
    if (!borrows) {
        (void)tiny_store_add(s, p, "self_attn.k_proj.weight", SHAPE(kv, d));
        (void)tiny_store_add(s, p, "self_attn.k_norm.weight", SHAPE(hd));
    }
    if (!borrows && !(full && t->gemma.k_eq_v))
        (void)tiny_store_add(s, p, "self_attn.v_proj.weight", SHAPE(kv, d));
    add_mlp(s, p, d, borrows ? 2 * t->ffn : t->ffn);
    (void)tiny_store_add(s, p, "pre_feedforward_layernorm.weight", SHAPE(d));
    (void)tiny_store_add(s, p, "post_feedforward_layernorm.weight", SHAPE(d));
    (void)tiny_store_add(s, p, "layer_scalar", SHAPE(1));
    if (!t->gemma.per_layer)
        return;
    (void)tiny_store_add(s, p, "per_layer_input_gate.weight", SHAPE(t->gemma.per_layer, d));
    (void)tiny_store_add(s, p, "per_layer_projection.weight", SHAPE(d, t->gemma.per_layer));
    (void)tiny_store_add(s, p, "post_per_layer_input_norm.weight", SHAPE(d));
}

static void add_gemma_outside(struct tiny_store *s, const struct tiny_target *t) {
    int64_t width = (int64_t)t->layers * t->gemma.per_layer;
    if (!t->gemma.per_layer)
        return;
    (void)tiny_store_add(s, "model.", "embed_tokens_per_layer.weight", SHAPE(t->vocab, width));
    (void)tiny_store_add(s, "model.", "per_layer_model_projection.weight", SHAPE(width, t->hidden));
    (void)tiny_store_add(s, "model.", "per_layer_projection_norm.weight",
                         SHAPE(t->gemma.per_layer));
}

// One tensor an expert in plain models, all in one in others.
static void add_experts(struct tiny_store *s, const char *p, const struct tiny_target *t) {
    int64_t d = t->hidden, e = t->experts, f = t->expert_ffn, both = 2 * f;
    for (int i = 0; t->plain && i < e; i++) {
        char q[80];
        (void)snprintf(q, sizeof q, "%smlp.experts.%d.", p, i);
        (void)tiny_store_add(s, q, "gate_proj.weight", SHAPE(f, d));
        (void)tiny_store_add(s, q, "up_proj.weight", SHAPE(f, d));
        (void)tiny_store_add(s, q, "down_proj.weight", SHAPE(d, f));
    }
    if (!t->plain) {
        (void)tiny_store_add(s, p, "mlp.experts.gate_up_proj", SHAPE(e, both, d));
        (void)tiny_store_add(s, p, "mlp.experts.down_proj", SHAPE(e, d, f));
    }
}

static void add_shared(struct tiny_store *s, const char *p, const char *name,
                       const struct tiny_target *t) {
    int64_t d = t->hidden, f = t->shared_ffn;
    char q[80];
    (void)snprintf(q, sizeof q, "%smlp.%s.", p, name);
    (void)tiny_store_add(s, q, "gate_proj.weight", SHAPE(f, d));
    (void)tiny_store_add(s, q, "up_proj.weight", SHAPE(f, d));
    (void)tiny_store_add(s, q, "down_proj.weight", SHAPE(d, f));
}

static void add_feed_forward(struct tiny_store *s, const char *p, const struct tiny_target *t,
                             int i) {
    int64_t d = t->hidden;
    if (!t->experts || i < t->lead) {
        add_mlp(s, p, d, t->ffn);
        return;
    }
    add_norms(s, p, d);
    (void)tiny_store_add(s, p, "mlp.gate.weight", SHAPE(t->experts, d));
    add_experts(s, p, t);
    if (t->kind == TINY_GLM) {
        (void)tiny_store_add(s, p, "mlp.gate.e_score_correction_bias", SHAPE(t->experts));
        add_shared(s, p, "shared_experts", t);
    } else if (t->shared_ffn) {
        (void)tiny_store_add(s, p, "mlp.shared_expert_gate.weight", SHAPE(1, d));
        add_shared(s, p, "shared_expert", t);
    }
}

static void add_dropped_parts(struct tiny_store *s, const struct tiny_target *t) {
    int64_t d = t->hidden;
    (void)tiny_store_add(s, "mtp.", "fc.weight", SHAPE(d, 2 * d));
    (void)tiny_store_add(s, "mtp.", "norm.weight", SHAPE(d));
    (void)tiny_store_add(s, "mtp.", "pre_fc_norm_embedding.weight", SHAPE(d));
    (void)tiny_store_add(s, "mtp.", "pre_fc_norm_hidden.weight", SHAPE(d));
    add_attention(s, "mtp.layers.0.", t);
    add_feed_forward(s, "mtp.layers.0.", t, 0);
    (void)tiny_store_add(s, "model.visual.", "patch_embed.proj.weight", SHAPE(64, 3, 2, 4, 4));
}

// Multimodal folders store the text model one name deeper.
static void deepen_names(struct tiny_store *s) {
    for (size_t i = 0; i < s->count; i++) {
        struct tiny_tensor *t = &s->items[i];
        if (strncmp(t->name, "model.", 6) == 0 && strncmp(t->name, "model.visual.", 13) != 0)
            (void)snprintf(t->stored, sizeof t->stored, "model.language_model.%.70s", t->name + 6);
    }
}

static void target_tensors(struct tiny_store *s, const struct tiny_target *t) {
    (void)tiny_store_add(s, "model.", "embed_tokens.weight", SHAPE(t->vocab, t->hidden));
    for (int i = 0; i < t->layers; i++) {
        char p[64];
        (void)snprintf(p, sizeof p, "model.layers.%d.", i);
        if (t->kind == TINY_GEMMA4) {
            add_gemma_layer(s, p, t, i);
            continue;
        }
        if (full_attention(t, i))
            add_attention(s, p, t);
        else
            add_linear(s, p, t);
        add_feed_forward(s, p, t, i);
    }
    if (t->kind == TINY_GEMMA4)
        add_gemma_outside(s, t);
    (void)tiny_store_add(s, "model.", "norm.weight", SHAPE(t->hidden));
    if (!t->tied)
        (void)tiny_store_add(s, "", "lm_head.weight", SHAPE(t->vocab, t->hidden));
    if (t->full) {
        add_dropped_parts(s, t);
        deepen_names(s);
    }
}

static void put_architecture(struct json_writer *w, const char *name) {
    jw_key(w, "architectures");
    jw_begin(w, '[');
    jw_cstr(w, name);
    jw_end(w, ']');
}

static void put_rope(struct json_writer *w, const struct tiny_target *t) {
    jw_key(w, "rope_parameters");
    jw_begin(w, '{');
    jw_key_str(w, "rope_type", t->yarn ? "yarn" : "default");
    if (t->yarn) {
        jw_key_num(w, "factor", t->yarn);
        jw_key_int(w, "original_max_position_embeddings", t->trained);
    }
    jw_key_num(w, "rope_theta", t->rope);
    jw_key_num(w, "partial_rotary_factor", 64.0 / t->head_dim);
    jw_key(w, "mrope_section");
    jw_begin(w, '[');
    jw_int(w, 11);
    jw_int(w, 11);
    jw_int(w, 10);
    jw_end(w, ']');
    jw_key_bool(w, "mrope_interleaved", true);
    jw_end(w, '}');
}

// What the configurations of all these models name alike.
struct sizes {
    int hidden, ffn, layers, heads, kv_heads, head_dim;
};

static void put_sizes(struct json_writer *w, const struct tiny_target *t, const struct sizes *s) {
    jw_key_int(w, "vocab_size", t->vocab);
    jw_key_int(w, "hidden_size", s->hidden);
    if (s->ffn)
        jw_key_int(w, "intermediate_size", s->ffn);
    jw_key_int(w, "num_hidden_layers", s->layers);
    jw_key_int(w, "num_attention_heads", s->heads);
    jw_key_int(w, "num_key_value_heads", s->kv_heads);
    jw_key_int(w, "head_dim", s->head_dim);
    jw_key_num(w, "rms_norm_eps", 1e-6);
    jw_key_int(w, "max_position_embeddings", 4096);
    jw_key_bool(w, "attention_bias", (t->kind == TINY_LLAMA || t->kind == TINY_GLM) && t->bias);
    jw_key_str(w, "hidden_act", "silu");
}

static struct sizes target_sizes(const struct tiny_target *t) {
    int ffn = t->experts && !t->plain ? 0 : t->ffn; // Qwen3 names a size that no layer has
    return (struct sizes){t->hidden, ffn, t->layers, t->heads, t->kv_heads, t->head_dim};
}

static void put_experts(struct json_writer *w, const struct tiny_target *t) {
    jw_key_int(w, "num_experts", t->experts);
    jw_key_int(w, "num_experts_per_tok", t->used);
    jw_key_int(w, "moe_intermediate_size", t->expert_ffn);
    if (t->shared_ffn)
        jw_key_int(w, "shared_expert_intermediate_size", t->shared_ffn);
}

static void put_text_config(struct json_writer *w, const struct tiny_target *t) {
    jw_key_str(w, "model_type", t->experts ? "qwen3_5_moe_text" : "qwen3_5_text");
    if (t->experts)
        put_experts(w, t);
    const struct sizes sizes = target_sizes(t);
    put_sizes(w, t, &sizes);
    jw_key_int(w, "full_attention_interval", t->interval);
    jw_key_int(w, "linear_num_key_heads", t->key_heads);
    jw_key_int(w, "linear_num_value_heads", t->value_heads);
    jw_key_int(w, "linear_key_head_dim", t->linear_head_dim);
    jw_key_int(w, "linear_value_head_dim", t->linear_head_dim);
    jw_key_int(w, "linear_conv_kernel_dim", 4);
    jw_key_bool(w, "tie_word_embeddings", t->tied);
    jw_key(w, "layer_types");
    jw_begin(w, '[');
    for (int i = 0; i < t->layers; i++)
        jw_cstr(w, full_attention(t, i) ? "full_attention" : "linear_attention");
    jw_end(w, ']');
    put_rope(w, t);
}

// The key of the type as newer and as older folders have it.
static void put_scaling(struct json_writer *w, const struct tiny_target *t) {
    jw_key(w, "rope_scaling");
    jw_begin(w, '{');
    jw_key_str(w, t->linear ? "type" : "rope_type",
               t->linear ? "linear"
               : t->yarn ? "yarn"
                         : "llama3");
    jw_key_num(w, "factor", t->linear ? t->linear : t->yarn ? t->yarn : t->bands);
    if (!t->linear)
        jw_key_int(w, "original_max_position_embeddings", t->trained);
    if (t->slopes) {
        jw_key_num(w, "mscale", 1);
        jw_key_num(w, "mscale_all_dim", 0.5);
        jw_key_bool(w, "truncate", false);
    }
    if (t->bands) {
        jw_key_num(w, "low_freq_factor", 1);
        jw_key_num(w, "high_freq_factor", 4);
    }
    jw_end(w, '}');
}

static void put_gemma_rope(struct json_writer *w) {
    jw_key(w, "rope_parameters");
    jw_begin(w, '{');
    for (int full = 0; full < 2; full++) {
        jw_key(w, full ? "full_attention" : "sliding_attention");
        jw_begin(w, '{');
        jw_key_str(w, "rope_type", full ? "proportional" : "default");
        if (full)
            jw_key_num(w, "partial_rotary_factor", 0.25);
        jw_key_num(w, "rope_theta", full ? 1000000 : 10000);
        jw_end(w, '}');
    }
    jw_end(w, '}');
}

static void put_gemma_config(struct json_writer *w, const struct tiny_target *t) {
    put_architecture(w, "Gemma4ForCausalLM");
    jw_key_str(w, "model_type", "gemma4_text");
    jw_key_int(w, "vocab_size", t->vocab);
    jw_key_int(w, "hidden_size", t->hidden);
    jw_key_int(w, "intermediate_size", t->ffn);
    jw_key_int(w, "num_hidden_layers", t->layers);
    jw_key_int(w, "num_attention_heads", t->heads);
    jw_key_int(w, "num_key_value_heads", t->kv_heads);
    jw_key_int(w, "head_dim", t->head_dim);
    jw_key_int(w, "global_head_dim", t->gemma.head_dim);
    jw_key_int(w, "num_global_key_value_heads", t->gemma.kv_heads);
    jw_key_bool(w, "attention_k_eq_v", t->gemma.k_eq_v);
    jw_key_num(w, "rms_norm_eps", 1e-6);
    jw_key_int(w, "max_position_embeddings", 4096);
    jw_key_str(w, "hidden_activation", "gelu_pytorch_tanh");
    jw_key_int(w, "sliding_window", t->gemma.window);
    jw_key_num(w, "final_logit_softcapping", t->gemma.cap);
    jw_key_int(w, "num_kv_shared_layers", t->gemma.borrowing);
    jw_key_bool(w, "use_double_wide_mlp", true);
    jw_key_int(w, "hidden_size_per_layer_input", t->gemma.per_layer);
    jw_key_bool(w, "tie_word_embeddings", t->tied);
    jw_key(w, "layer_types");
    jw_begin(w, '[');
    for (int i = 0; i < t->layers; i++)
        jw_cstr(w, gemma_full(t, i) ? "full_attention" : "sliding_attention");
    jw_end(w, ']');
    put_gemma_rope(w);
}

static void put_glm(struct json_writer *w, const struct tiny_target *t) {
    jw_key_int(w, "n_routed_experts", t->experts);
    jw_key_int(w, "num_experts_per_tok", t->used);
    jw_key_int(w, "moe_intermediate_size", t->expert_ffn);
    jw_key_int(w, "n_shared_experts", t->shared_ffn / t->expert_ffn);
    jw_key_int(w, "first_k_dense_replace", t->lead);
    jw_key_int(w, "n_group", t->groups);
    jw_key_int(w, "topk_group", t->groups_used);
    jw_key_num(w, "routed_scaling_factor", 2.5);
    jw_key_num(w, "partial_rotary_factor", 0.5);
    jw_key_bool(w, "norm_topk_prob", t->normalised);
    jw_key_bool(w, "use_qk_norm", t->norms);
}

static void put_plain_config(struct json_writer *w, const struct tiny_target *t) {
    static const char *const names[][2] = {[TINY_QWEN3] = {"Qwen3ForCausalLM", "qwen3"},
                                           [TINY_QWEN2] = {"Qwen2ForCausalLM", "qwen2"},
                                           [TINY_LLAMA] = {"LlamaForCausalLM", "llama"},
                                           [TINY_GLM] = {"Glm4MoeForCausalLM", "glm4_moe"}};
    bool qwen_moe = t->experts && t->kind == TINY_QWEN3;
    put_architecture(w, qwen_moe ? "Qwen3MoeForCausalLM" : names[t->kind][0]);
    jw_key_str(w, "model_type", qwen_moe ? "qwen3_moe" : names[t->kind][1]);
    if (t->kind == TINY_GLM)
        put_glm(w, t);
    if (qwen_moe) {
        put_experts(w, t);
        jw_key_bool(w, "norm_topk_prob", true);
    }
    const struct sizes sizes = target_sizes(t);
    put_sizes(w, t, &sizes);
    jw_key_bool(w, "tie_word_embeddings", t->tied);
    jw_key_bool(w, "use_sliding_window", false);
    jw_key_num(w, "rope_theta", t->rope);
    if (t->yarn || t->bands || t->linear)
        put_scaling(w, t);
}

static void target_config(struct json_writer *w, const struct tiny_target *t) {
    jw_begin(w, '{');
    if (t->kind == TINY_GEMMA4) {
        put_gemma_config(w, t);
    } else if (t->plain) {
        put_plain_config(w, t);
    } else if (t->full) {
        put_architecture(w, t->experts ? "Qwen3_5MoeForConditionalGeneration"
                                       : "Qwen3_5ForConditionalGeneration");
        jw_key_str(w, "model_type", t->experts ? "qwen3_5_moe" : "qwen3_5");
        jw_key_bool(w, "tie_word_embeddings", t->tied);
        jw_key(w, "text_config");
        jw_begin(w, '{');
        put_text_config(w, t);
        jw_key_int(w, "mtp_num_hidden_layers", 1);
        jw_end(w, '}');
        jw_key(w, "vision_config");
        jw_begin(w, '{');
        jw_key_int(w, "depth", 1);
        jw_end(w, '}');
    } else {
        put_architecture(w, t->experts ? "Qwen3_5MoeForCausalLM" : "Qwen3_5ForCausalLM");
        put_text_config(w, t);
    }
    jw_end(w, '}');
}

// The character that stands for a byte in byte-level vocabularies, as UTF-8.
static size_t byte_char(int b, char out[2]) {
    bool own = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
    int before = b < 0x21 ? b : b < 0xA1 ? 33 + (b - 0x7F) : 67; // bytes below b that are not own
    int rc = own ? b : 0x100 + before;
    if (rc < 0x80) {
        out[0] = (char)rc;
        return 1;
    }
    out[0] = (char)(0xC0 | rc >> 6);
    out[1] = (char)(0x80 | (rc & 0x3F));
    return 2;
}

static void put_added(struct json_writer *w) {
    static const char *const added[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    jw_key(w, "added_tokens");
    jw_begin(w, '[');
    for (int i = 0; i < 3; i++) {
        jw_begin(w, '{');
        jw_key_int(w, "id", 256 + i);
        jw_key_str(w, "content", added[i]);
        jw_key_bool(w, "single_word", false);
        jw_key_bool(w, "lstrip", false);
        jw_key_bool(w, "rstrip", false);
        jw_key_bool(w, "normalized", false);
        jw_key_bool(w, "special", true);
        jw_end(w, '}');
    }
    jw_end(w, ']');
}

#define SPLIT(letters, marks)                                                                      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?" letters "+|\\p{N}| ?[^\\s\\p{L}" marks   \
    "\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static void put_pre_tokenizer(struct json_writer *w, bool plain) {
    jw_key(w, "pre_tokenizer");
    jw_begin(w, '{');
    jw_key_str(w, "type", "Sequence");
    jw_key(w, "pretokenizers");
    jw_begin(w, '[');
    jw_begin(w, '{');
    jw_key_str(w, "type", "Split");
    jw_key(w, "pattern");
    jw_begin(w, '{');
    jw_key_str(w, "Regex", plain ? SPLIT("\\p{L}", "") : SPLIT("[\\p{L}\\p{M}]", "\\p{M}"));
    jw_end(w, '}');
    jw_key_str(w, "behavior", "Isolated");
    jw_key_bool(w, "invert", false);
    jw_end(w, '}');
    jw_begin(w, '{');
    jw_key_str(w, "type", "ByteLevel");
    jw_key_bool(w, "add_prefix_space", false);
    jw_key_bool(w, "trim_offsets", false);
    jw_key_bool(w, "use_regex", false);
    jw_end(w, '}');
    jw_end(w, ']');
    jw_end(w, '}');
}

static void tokenizer_json(struct json_writer *w, bool plain) {
    jw_begin(w, '{');
    jw_key_str(w, "version", "1.0");
    put_added(w);
    put_pre_tokenizer(w, plain);
    jw_key(w, "model");
    jw_begin(w, '{');
    jw_key_str(w, "type", "BPE");
    jw_key(w, "vocab");
    jw_begin(w, '{');
    for (int b = 0; b < 256; b++) {
        char text[3] = {0};
        (void)byte_char(b, text);
        jw_key_int(w, text, b);
    }
    jw_end(w, '}');
    jw_key(w, "merges");
    jw_begin(w, '[');
    jw_end(w, ']');
    jw_end(w, '}');
    jw_end(w, '}');
}

static int write_tokenizer(const char *dir, bool plain, struct err *e) {
    struct json_writer w = {0};
    tokenizer_json(&w, plain);
    int rc = tiny_write_text(dir, "tokenizer.json", &w.out, e);
    str_clear(&w.out);
    w.comma = false;
    jw_begin(&w, '{');
    jw_key_str(&w, "eos_token", "<|im_end|>");
    jw_key_str(&w, "pad_token", "<|endoftext|>");
    jw_key_bool(&w, "add_bos_token", false);
    jw_end(&w, '}');
    if (rc == 0)
        rc = tiny_write_text(dir, "tokenizer_config.json", &w.out, e);
    str_fini(&w.out);
    return rc;
}

static int write_model(const char *dir, const struct str *config, const struct tiny_store *s,
                       const struct tiny_seed *from, struct err *e) {
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/model.safetensors", dir);
    int rc = tiny_write_text(dir, "config.json", config, e);
    return rc == 0 ? tiny_store_write(s, path, from, e) : rc;
}

struct tiny_seed tiny_seed_of(const struct tiny_target *t) {
    bool from_one = t->kind == TINY_GEMMA3; // norms are counted from 1
    return (struct tiny_seed){t->seed, t->plain && !from_one, t->dt_mean,
                              t->kind == TINY_GEMMA3 || t->kind == TINY_GEMMA4};
}

int tiny_write_listed(const struct tiny_target *t, const struct str *config,
                      const struct tiny_store *s, const char *dir, struct err *e) {
    struct tiny_seed from = tiny_seed_of(t);
    int rc = write_model(dir, config, s, &from, e);
    return rc ? rc : write_tokenizer(dir, t->plain, e);
}

int tiny_write_target(const struct tiny_target *t, const char *dir, struct err *e) {
    struct tiny_store s = {0};
    struct json_writer w = {0};
    target_tensors(&s, t);
    target_config(&w, t);
    int rc = tiny_write_listed(t, &w.out, &s, dir, e);
    str_fini(&w.out);
    tiny_store_fini(&s);
    return rc;
}

static void draft_tensors(struct tiny_store *s, const struct tiny_target *t,
                          const struct tiny_draft *d) {
    int64_t h = t->hidden, hd = d->head_dim;
    (void)tiny_store_add(s, "", "fc.weight", SHAPE(h, d->n_taps * h));
    (void)tiny_store_add(s, "", "hidden_norm.weight", SHAPE(h));
    (void)tiny_store_add(s, "", "norm.weight", SHAPE(h));
    for (int i = 0; i < d->layers; i++) {
        char p[64];
        (void)snprintf(p, sizeof p, "layers.%d.", i);
        (void)tiny_store_add(s, p, "self_attn.q_proj.weight", SHAPE(hd * d->heads, h));
        (void)tiny_store_add(s, p, "self_attn.k_proj.weight", SHAPE(hd * d->kv_heads, h));
        (void)tiny_store_add(s, p, "self_attn.v_proj.weight", SHAPE(hd * d->kv_heads, h));
        (void)tiny_store_add(s, p, "self_attn.o_proj.weight", SHAPE(h, hd * d->heads));
        (void)tiny_store_add(s, p, "self_attn.q_norm.weight", SHAPE(hd));
        (void)tiny_store_add(s, p, "self_attn.k_norm.weight", SHAPE(hd));
        add_mlp(s, p, h, d->ffn);
    }
}

static void put_dflash(struct json_writer *w, const struct tiny_draft *d) {
    jw_key(w, "dflash_config");
    jw_begin(w, '{');
    jw_key_int(w, "mask_token_id", d->mask);
    jw_key(w, "target_layer_ids");
    jw_begin(w, '[');
    for (int i = 0; i < d->n_taps; i++)
        jw_int(w, d->taps[i]);
    jw_end(w, ']');
    jw_end(w, '}');
    int window = 0;
    jw_key(w, "layer_types");
    jw_begin(w, '[');
    for (int i = 0; i < d->layers; i++) {
        jw_cstr(w, d->windows[i] ? "sliding_attention" : "full_attention");
        window = d->windows[i] > window ? d->windows[i] : window;
    }
    jw_end(w, ']');
    if (window) {
        jw_key_int(w, "sliding_window", window);
        jw_key_bool(w, "use_sliding_window", true);
    }
    if (d->causal != TINY_CAUSAL_ABSENT)
        jw_key_bool(w, "is_causal", d->causal == TINY_CAUSAL_TRUE);
}

static void draft_config(struct json_writer *w, const struct tiny_target *t,
                         const struct tiny_draft *d) {
    jw_begin(w, '{');
    put_architecture(w, "DFlashDraftModel");
    jw_key_str(w, "model_type", "qwen3");
    const struct sizes sizes = {t->hidden, d->ffn, d->layers, d->heads, d->kv_heads, d->head_dim};
    put_sizes(w, t, &sizes);
    jw_key_num(w, "rope_theta", d->rope);
    jw_key_int(w, "num_target_layers", t->layers);
    jw_key_int(w, "block_size", d->block);
    put_dflash(w, d);
    jw_end(w, '}');
}

int tiny_write_listed_draft(const struct tiny_draft *d, const struct str *config,
                            const struct tiny_store *s, const char *dir, struct err *e) {
    struct tiny_seed from = {d->seed, true, 0, false};
    return write_model(dir, config, s, &from, e);
}

int tiny_write_draft(const struct tiny_target *t, const struct tiny_draft *d, const char *dir,
                     struct err *e) {
    struct tiny_store s = {0};
    struct json_writer w = {0};
    draft_tensors(&s, t, d);
    draft_config(&w, t, d);
    int rc = tiny_write_listed_draft(d, &w.out, &s, dir, e);
    str_fini(&w.out);
    tiny_store_fini(&s);
    return rc;
}
