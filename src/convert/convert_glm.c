// SPDX-License-Identifier: Apache-2.0
// GLM-4.5 to 4.7 and Air (glm4moe): dense layers, then experts with a bias for the choice and a
// shared one. The prediction layer behind the last one is left out.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convert/convert_impl.h"

static const struct convert_rule outside[] = {
    {"embed_tokens.weight", "token_embd.weight", {DIM_D, DIM_V}, OP_NONE, 0},
    {"norm.weight", "output_norm.weight", {DIM_D}, OP_NONE, 0},
    {0},
};
static const struct convert_rule output = {
    "lm_head.weight", "output.weight", {DIM_D, DIM_V}, OP_NONE, 0};

static const struct convert_rule every_layer[] = {
    {"input_layernorm.weight", "attn_norm.weight", {DIM_D}, OP_NONE, 0},
    {"self_attn.q_proj.weight", "attn_q.weight", {DIM_D, DIM_Q}, OP_NONE, 0},
    {"self_attn.k_proj.weight", "attn_k.weight", {DIM_D, DIM_KV}, OP_NONE, 0},
    {"self_attn.v_proj.weight", "attn_v.weight", {DIM_D, DIM_KV}, OP_NONE, 0},
    {"self_attn.o_proj.weight", "attn_output.weight", {DIM_Q, DIM_D}, OP_NONE, 0},
    {"post_attention_layernorm.weight", "post_attention_norm.weight", {DIM_D}, OP_NONE, 0},
    {0},
};
static const struct convert_rule biases[] = {
    {"self_attn.q_proj.bias", "attn_q.bias", {DIM_Q}, OP_NONE, 0},
    {"self_attn.k_proj.bias", "attn_k.bias", {DIM_KV}, OP_NONE, 0},
    {"self_attn.v_proj.bias", "attn_v.bias", {DIM_KV}, OP_NONE, 0},
    {0},
};
static const struct convert_rule head_norms[] = {
    {"self_attn.q_norm.weight", "attn_q_norm.weight", {DIM_HD}, OP_NONE, 0},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", {DIM_HD}, OP_NONE, 0},
    {0},
};
static const struct convert_rule dense_layer[] = {
    {"mlp.gate_proj.weight", "ffn_gate.weight", {DIM_D, DIM_F}, OP_NONE, 0},
    {"mlp.up_proj.weight", "ffn_up.weight", {DIM_D, DIM_F}, OP_NONE, 0},
    {"mlp.down_proj.weight", "ffn_down.weight", {DIM_F, DIM_D}, OP_NONE, 0},
    {0},
};
static const struct convert_rule moe_layer[] = {
    {"mlp.gate.weight", "ffn_gate_inp.weight", {DIM_D, DIM_E}, OP_NONE, 0},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias", {DIM_E}, OP_NONE, 0},
    {"mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight", {DIM_D, DIM_FS}, OP_NONE, 0},
    {"mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight", {DIM_D, DIM_FS}, OP_NONE, 0},
    {"mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight", {DIM_FS, DIM_D}, OP_NONE, 0},
    {0},
};

static const struct json *rope(const struct convert_job *j, const char *key) {
    char full[64];
    snprintf(full, sizeof full, "rope_parameters.%s", key);
    const struct json *v = hf_get(&j->config, full);
    return v ? v : hf_get(&j->config, key);
}

static int put_rope(struct convert_job *j, struct err *e) {
    double base = json_num(rope(j, "rope_theta"), 10000);
    double part = json_num(rope(j, "partial_rotary_factor"), 0.5);
    const char *type = json_str(rope(j, "rope_type"), NULL);
    int64_t turned = part > 0 && part <= 1 ? lround((double)j->dim[DIM_HD] * part) : 0;
    if (hf_get(&j->config, "rope_scaling.rope_type") || (type && strcmp(type, "default")))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has a rope_type other than default: this checkpoint cannot be converted",
                       j->config.path);
    if (!(base > 0) || !isfinite(base) || turned < 2 || turned % 2)
        return err_set(e, ERR_FORMAT,
                       "%s turns %" PRId64 " of %" PRId64
                       " head dimensions with the base %g, which "
                       "cannot be: get the file again",
                       j->config.path, turned, j->dim[DIM_HD], base);
    convert_put_u32(j, "rope.dimension_count", turned);
    convert_put_f32(j, "rope.freq_base", base);
    return 0;
}

struct sizes {
    int64_t used, groups, groups_used, shared, lead, context;
    double scale, eps;
};

static int read_sizes(struct convert_job *j, struct sizes *s, struct err *e) {
    const struct hf_file *f = &j->config;
    int64_t *d = j->dim;
    int rc = convert_read_sizes(j, true, e);
    if (!rc)
        rc = hf_check_silu(f, e);
    if (!rc)
        rc = hf_int(f, "n_routed_experts", 1, 1 << 16, -1, &d[DIM_E], e);
    if (!rc)
        rc = hf_int(f, "num_experts_per_tok", 1, d[DIM_E], -1, &s->used, e);
    if (!rc)
        rc = hf_int(f, "moe_intermediate_size", 1, 1 << 24, -1, &d[DIM_FE], e);
    if (!rc)
        rc = hf_int(f, "n_shared_experts", 1, 64, 1, &s->shared, e);
    if (!rc)
        rc = hf_int(f, "n_group", 1, d[DIM_E], 1, &s->groups, e);
    if (!rc)
        rc = hf_int(f, "topk_group", 1, s->groups, 1, &s->groups_used, e);
    if (!rc)
        rc = hf_int(f, "first_k_dense_replace", 0, j->layers - 1, 0, &s->lead, e);
    if (!rc)
        rc = hf_int(f, "max_position_embeddings", 1, INT32_MAX, -1, &s->context, e);
    if (!rc)
        rc = hf_float(f, "routed_scaling_factor", 1, &s->scale, e);
    if (!rc)
        rc = hf_float(f, "rms_norm_eps", 1e-5, &s->eps, e);
    d[DIM_FS] = s->shared * d[DIM_FE];
    return rc;
}

static int put_keys(struct convert_job *j, const struct sizes *s, struct err *e) {
    const struct {
        const char *key;
        int64_t v;
    } keys[] = {
        {"block_count", j->layers},
        {"context_length", s->context},
        {"embedding_length", j->dim[DIM_D]},
        {"feed_forward_length", j->dim[DIM_F]},
        {"vocab_size", j->dim[DIM_V]},
        {"attention.head_count", j->heads},
        {"attention.head_count_kv", j->kv_heads},
        {"attention.key_length", j->dim[DIM_HD]},
        {"attention.value_length", j->dim[DIM_HD]},
        {"expert_count", j->dim[DIM_E]},
        {"expert_used_count", s->used},
        {"expert_shared_count", s->shared},
        {"expert_group_count", s->groups},
        {"expert_group_used_count", s->groups_used},
        {"expert_feed_forward_length", j->dim[DIM_FE]},
        {"leading_dense_block_count", s->lead},
        {"expert_gating_func", 2}, // sigmoid
    };
    char key[64];
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        convert_put_u32(j, keys[i].key, keys[i].v);
    snprintf(key, sizeof key, "%s.expert_weights_norm", j->arch);
    gguf_put_bool(j->writer, key, json_bool(hf_get(&j->config, "norm_topk_prob"), true));
    convert_put_f32(j, "expert_weights_scale", s->scale);
    convert_put_f32(j, "attention.layer_norm_rms_epsilon", s->eps);
    return put_rope(j, e);
}

static int take_layer(struct convert_job *j, int i, const struct sizes *s, struct err *e) {
    int rc = convert_take_all(j, every_layer, i, e);
    if (!rc && json_bool(hf_get(&j->config, "attention_bias"), false))
        rc = convert_take_all(j, biases, i, e);
    if (!rc && json_bool(hf_get(&j->config, "use_qk_norm"), false))
        rc = convert_take_all(j, head_norms, i, e);
    if (!rc)
        rc = convert_take_all(j, i < s->lead ? dense_layer : moe_layer, i, e);
    return !rc && i >= s->lead ? convert_take_experts(j, i, e) : rc;
}

int convert_glm(struct convert_job *j, struct err *e) {
    struct sizes s = {0};
    int rc = read_sizes(j, &s, e);
    if (rc)
        return rc;
    j->model = (struct convert_model){
        .recipe = j->options->recipe,
        .layers = (int)j->layers,
        .tied = json_bool(hf_get(&j->config, "tie_word_embeddings"), false),
        .shared = j->heads >= 4 * j->kv_heads,
        .experts = (int)j->dim[DIM_E],
    };
    convert_put_general(j);
    rc = put_keys(j, &s, e);
    if (!rc)
        rc = convert_take_all(j, outside, -1, e);
    for (int i = 0; i < j->layers && !rc; i++)
        rc = take_layer(j, i, &s, e);
    if (!rc && !j->model.tied)
        rc = convert_take(j, &output, -1, e);
    return rc ? rc : convert_vocab_hf(j->writer, j->dir, j->dim[DIM_V], e);
}
