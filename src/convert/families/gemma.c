// SPDX-License-Identifier: Apache-2.0
// Gemma 4: gemma4_text, or gemma4 with its language model in text_config. Layers
// are of two kinds with heads of their own sizes; norms are plain; the part of a head that does not
// turn becomes divisors of 1e30.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convert/families/rules.h"

enum { MAX_LAYERS = 1024 };

static const struct convert_rule ple_outside[] = {
    {"embed_tokens_per_layer.weight", "per_layer_token_embd.weight", .dims = {DIM_LP, DIM_V}},
    {"per_layer_model_projection.weight", "per_layer_model_proj.weight", .dims = {DIM_D, DIM_LP}},
    {"per_layer_projection_norm.weight", "per_layer_proj_norm.weight", .dims = {DIM_P}},
    {0},
};

static const struct convert_rule every_layer[] = {
    {"input_layernorm.weight", "attn_norm.weight", .dims = {DIM_D}},
    {"self_attn.q_proj.weight", "attn_q.weight", .dims = {DIM_D, DIM_Q}},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", .dims = {DIM_HD}},
    {"self_attn.o_proj.weight", "attn_output.weight", .dims = {DIM_Q, DIM_D}},
    {"post_attention_layernorm.weight", "post_attention_norm.weight", .dims = {DIM_D}},
    {"pre_feedforward_layernorm.weight", "ffn_norm.weight", .dims = {DIM_D}},
    {"post_feedforward_layernorm.weight", "post_ffw_norm.weight", .dims = {DIM_D}},
    {"layer_scalar", "layer_output_scale.weight", .dims = {DIM_ONE}},
    {0},
};
static const struct convert_rule keys[] = {
    {"self_attn.k_proj.weight", "attn_k.weight", .dims = {DIM_D, DIM_KV}},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", .dims = {DIM_HD}},
    {0},
};
static const struct convert_rule values = {"self_attn.v_proj.weight", "attn_v.weight",
                                           .dims = {DIM_D, DIM_KV}};
static const struct convert_rule ple_layer[] = {
    {"per_layer_input_gate.weight", "inp_gate.weight", .dims = {DIM_D, DIM_P}},
    {"per_layer_projection.weight", "proj.weight", .dims = {DIM_P, DIM_D}},
    {"post_per_layer_input_norm.weight", "post_norm.weight", .dims = {DIM_D}},
    {0},
};

static const struct convert_rule moe_layer[] = {
    {"router.proj.weight", "ffn_gate_inp.weight", .dims = {DIM_D, DIM_E}},
    {"router.scale", "ffn_gate_inp.scale", .dims = {DIM_D}},
    {"router.per_expert_scale", "ffn_down_exps.scale", .dims = {DIM_E}},
    {"pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight", .dims = {DIM_D}},
    {"post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight", .dims = {DIM_D}},
    {"post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight", .dims = {DIM_D}},
    {"experts.gate_up_proj", "ffn_gate_up_exps.weight", .dims = {DIM_D, DIM_FG, DIM_E}},
    {"experts.down_proj", "ffn_down_exps.weight", .dims = {DIM_FE, DIM_D, DIM_E}},
    {0},
};

struct gemma {
    int64_t head[2], kv[2];               // of windowed, of full layers
    int64_t window, borrowing, ffn, used; // used: experts of a row
    bool k_eq_v, wide; // values of full layers are keys; borrowing layers are twice as wide
    uint8_t windowed[MAX_LAYERS];
};

static int check_gemma(const struct convert_job *j, struct err *e) {
    const struct hf_file *f = &j->config;
    static const char *const parts[] = {"attention_bias"};
    int rc = convert_refuse_true(f, parts, 1, e);
    if (rc)
        return rc;
    if (!hf_string_is(f, "hidden_activation", "gelu_pytorch_tanh"))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has another hidden_activation than gelu_pytorch_tanh: this checkpoint "
                       "cannot be converted",
                       f->path);
    if (hf_get(f, "use_bidirectional_attention") &&
        hf_string_is(f, "use_bidirectional_attention", "all"))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has bidirectional attention: this checkpoint cannot be converted",
                       f->path);
    return 0;
}

static int read_gemma_layers(const struct convert_job *j, struct gemma *g, struct err *e) {
    int rc = 0;
    for (int64_t i = 0; i < j->layers && !rc; i++) {
        bool full = (i + 1) % 6 == 0;
        rc = convert_read_either(j, "layer_types", i, "full_attention", "sliding_attention", &full,
                                 e);
        g->windowed[i] = !full;
    }
    return rc;
}

static int read_gemma_sizes(struct convert_job *j, struct gemma *g, struct err *e) {
    const struct hf_file *f = &j->config;
    int64_t *d = j->dim;
    int rc = convert_read_sizes(j, true, e);
    if (!rc && j->layers > MAX_LAYERS)
        rc = err_set(e, ERR_UNSUPPORTED, "%s has %" PRId64 " layers; at most %d are supported",
                     f->path, j->layers, MAX_LAYERS);
    if (!rc)
        rc = check_gemma(j, e);
    g->ffn = d[DIM_F];
    g->head[0] = d[DIM_HD];
    g->kv[0] = j->kv_heads;
    g->k_eq_v = json_bool(hf_get(f, "attention_k_eq_v"), false);
    g->wide = json_bool(hf_get(f, "use_double_wide_mlp"), false);
    const struct hf_number rows[] = {
        {"global_head_dim", 2, 4096, 512, &g->head[1], NULL},
        {"num_global_key_value_heads", 1, j->heads, j->kv_heads, &g->kv[1], NULL},
        {"sliding_window", 1, INT32_MAX, -1, &g->window, NULL},
        {"num_kv_shared_layers", 0, j->layers - 1, 0, &g->borrowing, NULL},
        {"hidden_size_per_layer_input", 0, 1 << 20, 256, &d[DIM_P], NULL},
    };
    if (!rc)
        rc = hf_ints(f, rows, sizeof rows / sizeof *rows, e);
    if (!rc && json_bool(hf_get(f, "enable_moe_block"), false))
        rc = convert_read_experts(j, "num_experts", "top_k_experts", &g->used, e);
    d[DIM_FG] = 2 * d[DIM_FE];
    if (!g->k_eq_v)
        g->kv[1] = g->kv[0];
    d[DIM_LP] = j->layers * d[DIM_P];
    return rc ? rc : read_gemma_layers(j, g, e);
}

// The base of layers of a kind, and how much of a full one's head turns.
static int read_kind_rope(const struct convert_job *j, const char *kind, const char *type,
                          double base, double *out, double *part, struct err *e) {
    char key[96];
    snprintf(key, sizeof key, "rope_parameters.%s", kind);
    const struct json *r = hf_get(&j->config, key);
    const char *s = json_str(json_get(r, "rope_type"), NULL);
    *out = json_num(json_get(r, "rope_theta"), base);
    *part = json_num(json_get(r, "partial_rotary_factor"), 0.25);
    const bool plain = !json_get(r, "factor") || !strcmp(type, "proportional");
    if ((!s || !strcmp(s, type)) && *out > 0 && isfinite(*out) && *part > 0 && *part <= 1 && plain)
        return 0;
    return err_set(e, ERR_UNSUPPORTED,
                   "%s has rope_parameters of %s that are not of type %s: this checkpoint cannot "
                   "be converted",
                   j->config.path, kind, type);
}

// Divisors of full layers' frequencies: pairs that do not turn are slowed beyond notice.
static int add_full_divisors(struct convert_job *j, int64_t head, double part, struct err *e) {
    int64_t half = head / 2, turned = (int64_t)(part * (double)half);
    float *divisors;
    int rc = convert_add_divisors(j, half, &divisors, e);
    for (int64_t i = 0; !rc && i < half; i++)
        divisors[i] = i < turned ? 1.0f : 1e30f;
    return rc;
}

static int put_gemma_rope(struct convert_job *j, const struct gemma *g, struct err *e) {
    double base[2], part, unused;
    int rc = read_kind_rope(j, "sliding_attention", "default", 1e4, &base[0], &unused, e);
    if (!rc)
        rc = read_kind_rope(j, "full_attention", "proportional", 1e6, &base[1], &part, e);
    if (rc)
        return rc;
    convert_put_f32(j, "rope.freq_base", base[1]);
    convert_put_f32(j, "rope.freq_base_swa", base[0]);
    convert_put_u32(j, "rope.dimension_count", g->head[1]);
    convert_put_u32(j, "rope.dimension_count_swa", g->head[0]);
    const struct json *factor = hf_get(&j->config, "rope_parameters.full_attention.factor");
    if (factor && !(json_num(factor, 0) > 0))
        return err_set(e, ERR_FORMAT,
                       "%s has a factor among rope_parameters of full_attention that is no "
                       "positive number: get the file again",
                       j->config.path);
    if (factor && json_num(factor, 1) != 1) {
        convert_put_str(j, "rope.scaling.type", "linear");
        convert_put_f32(j, "rope.scaling.factor", json_num(factor, 1));
    }
    return add_full_divisors(j, g->head[1], part, e);
}

static bool borrows(const struct convert_job *j, const struct gemma *g, int64_t i) {
    return i >= j->layers - g->borrowing;
}

static int put_gemma_keys(struct convert_job *j, const struct gemma *g, struct err *e) {
    const struct hf_file *f = &j->config;
    int32_t kv[MAX_LAYERS], ffn[MAX_LAYERS];
    int64_t context;
    double eps, cap = json_num(hf_get(f, "final_logit_softcapping"), 0);
    int rc = hf_int(f, "max_position_embeddings", 1, INT32_MAX, -1, &context, e);
    if (!rc)
        rc = hf_float(f, "rms_norm_eps", 1e-6, &eps, e);
    if (rc)
        return rc;
    for (int64_t i = 0; i < j->layers; i++) {
        kv[i] = (int32_t)g->kv[!g->windowed[i]];
        ffn[i] = (int32_t)(g->ffn * (g->wide && borrows(j, g, i) ? 2 : 1));
    }
    uint64_t n = (uint64_t)j->layers;
    convert_put_u32(j, "block_count", j->layers);
    convert_put_u32(j, "context_length", context);
    convert_put_u32(j, "embedding_length", j->dim[DIM_D]);
    convert_put_array(j, "feed_forward_length", GGUF_I32, ffn, n);
    convert_put_u32(j, "vocab_size", j->dim[DIM_V]);
    convert_put_u32(j, "attention.head_count", j->heads);
    convert_put_array(j, "attention.head_count_kv", GGUF_I32, kv, n);
    convert_put_u32(j, "attention.key_length", g->head[1]);
    convert_put_u32(j, "attention.value_length", g->head[1]);
    convert_put_u32(j, "attention.key_length_swa", g->head[0]);
    convert_put_u32(j, "attention.value_length_swa", g->head[0]);
    convert_put_u32(j, "attention.sliding_window", g->window);
    convert_put_array(j, "attention.sliding_window_pattern", GGUF_BOOL, g->windowed, n);
    convert_put_u32(j, "attention.shared_kv_layers", g->borrowing);
    convert_put_f32(j, "attention.layer_norm_rms_epsilon", eps);
    convert_put_u32(j, "embedding_length_per_layer_input", j->dim[DIM_P]);
    if (g->used)
        convert_put_experts(j, g->used);
    if (cap > 0)
        convert_put_f32(j, "final_logit_softcapping", cap);
    return put_gemma_rope(j, g, e);
}

// Tensors of keys that a borrowing layer has for nothing.
static int drop_keys(struct convert_job *j, int layer, struct err *e) {
    static const char *const names[] = {"self_attn.k_proj.weight", "self_attn.v_proj.weight",
                                        "self_attn.k_norm.weight"};
    int rc = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names && !rc; i++) {
        const struct tensor *t;
        rc = convert_find(j, names[i], layer, &t, e);
        if (!rc && t)
            rc = convert_mark_used(j, t, e);
    }
    return rc;
}

static int take_gemma_layer(struct convert_job *j, const struct gemma *g, int i, struct err *e) {
    int64_t *d = j->dim, full = !g->windowed[i];
    d[DIM_HD] = g->head[full];
    d[DIM_Q] = j->heads * d[DIM_HD];
    d[DIM_KV] = g->kv[full] * d[DIM_HD];
    d[DIM_F] = g->ffn * (g->wide && borrows(j, g, i) ? 2 : 1);
    int rc = convert_take_all(j, every_layer, i, e);
    if (!rc)
        rc = convert_take_all(j, convert_dense, i, e);
    if (!rc)
        rc = borrows(j, g, i) ? drop_keys(j, i, e) : convert_take_all(j, keys, i, e);
    if (!rc && !borrows(j, g, i) && !(full && g->k_eq_v))
        rc = convert_take(j, &values, i, e);
    if (!rc && g->used)
        rc = convert_take_all(j, moe_layer, i, e);
    return rc || !d[DIM_P] ? rc : convert_take_all(j, ple_layer, i, e);
}

int convert_gemma(struct convert_job *j, struct err *e) {
    struct gemma g = {0};
    int rc = read_gemma_sizes(j, &g, e);
    if (rc)
        return rc;
    j->copies = 1;
    j->model = convert_model_of(j, true);
    convert_put_general(j);
    rc = put_gemma_keys(j, &g, e);
    if (!rc)
        rc = convert_take_all(j, convert_begin, -1, e);
    if (!rc && j->dim[DIM_P])
        rc = convert_take_all(j, ple_outside, -1, e);
    for (int i = 0; i < j->layers && !rc; i++)
        rc = take_gemma_layer(j, &g, i, e);
    return rc ? rc : convert_end(j, e);
}
