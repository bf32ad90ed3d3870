// SPDX-License-Identifier: Apache-2.0
// Rules and keys that decoder architectures share: matrices under their usual names, rotary
// settings wherever a config.json has them, and what stands at both ends of a plan.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convert/families/rules.h"
#include "formats/quant/quant.h"

const struct convert_rule convert_begin[] = {
    {"embed_tokens.weight", "token_embd.weight", {DIM_D, DIM_V}, OP_NONE, 0},
    {"norm.weight", "output_norm.weight", {DIM_D}, OP_NONE, 0},
    {0},
};
static const struct convert_rule output = {
    "lm_head.weight", "output.weight", {DIM_D, DIM_V}, OP_NONE, 0};

const struct convert_rule convert_attention[] = {
    {"input_layernorm.weight", "attn_norm.weight", {DIM_D}, OP_NONE, 0},
    {"self_attn.q_proj.weight", "attn_q.weight", {DIM_D, DIM_Q}, OP_NONE, 0},
    {"self_attn.k_proj.weight", "attn_k.weight", {DIM_D, DIM_KV}, OP_NONE, 0},
    {"self_attn.v_proj.weight", "attn_v.weight", {DIM_D, DIM_KV}, OP_NONE, 0},
    {"self_attn.o_proj.weight", "attn_output.weight", {DIM_Q, DIM_D}, OP_NONE, 0},
    {0},
};
const struct convert_rule convert_qkv_biases[] = {
    {"self_attn.q_proj.bias", "attn_q.bias", {DIM_Q}, OP_NONE, 0},
    {"self_attn.k_proj.bias", "attn_k.bias", {DIM_KV}, OP_NONE, 0},
    {"self_attn.v_proj.bias", "attn_v.bias", {DIM_KV}, OP_NONE, 0},
    {0},
};
const struct convert_rule convert_head_norms[] = {
    {"self_attn.q_norm.weight", "attn_q_norm.weight", {DIM_HD}, OP_NONE, 0},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", {DIM_HD}, OP_NONE, 0},
    {0},
};
const struct convert_rule convert_ffn_norm = {
    "post_attention_layernorm.weight", "ffn_norm.weight", {DIM_D}, OP_NONE, 0};
const struct convert_rule convert_dense[] = {
    {"mlp.gate_proj.weight", "ffn_gate.weight", {DIM_D, DIM_F}, OP_NONE, 0},
    {"mlp.up_proj.weight", "ffn_up.weight", {DIM_D, DIM_F}, OP_NONE, 0},
    {"mlp.down_proj.weight", "ffn_down.weight", {DIM_F, DIM_D}, OP_NONE, 0},
    {0},
};
const struct convert_rule convert_router = {
    "mlp.gate.weight", "ffn_gate_inp.weight", {DIM_D, DIM_E}, OP_NONE, 0};
const struct convert_rule convert_choice_bias = {
    "mlp.gate.e_score_correction_bias", "exp_probs_b.bias", {DIM_E}, OP_NONE, 0};
const struct convert_rule convert_shared_expert[] = {
    {"mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight", {DIM_D, DIM_FS}, OP_NONE, 0},
    {"mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight", {DIM_D, DIM_FS}, OP_NONE, 0},
    {"mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight", {DIM_FS, DIM_D}, OP_NONE, 0},
    {0},
};

struct convert_model convert_model_of(const struct convert_job *j, bool tied) {
    return (struct convert_model){
        .recipe = j->options->recipe,
        .layers = (int)j->layers,
        .tied = json_bool(hf_get(&j->config, "tie_word_embeddings"), tied),
        .shared = j->heads >= 4 * j->kv_heads,
        .experts = (int)j->dim[DIM_E],
    };
}

int convert_end(struct convert_job *j, struct err *e) {
    int rc = j->model.tied ? 0 : convert_take(j, &output, -1, e);
    return rc ? rc : convert_vocab_hf(j->writer, j->dir, j->dim[DIM_V], e);
}

void convert_put_str(struct convert_job *j, const char *key, const char *s) {
    char full[96];
    snprintf(full, sizeof full, "%s.%s", j->arch, key);
    gguf_put_str(j->writer, full, s, strlen(s));
}

void convert_put_bool(struct convert_job *j, const char *key, bool v) {
    char full[96];
    snprintf(full, sizeof full, "%s.%s", j->arch, key);
    gguf_put_bool(j->writer, full, v);
}

int convert_put_sizes(struct convert_job *j, double eps, struct err *e) {
    int64_t context;
    int rc = hf_int(&j->config, "max_position_embeddings", 1, INT32_MAX, -1, &context, e);
    if (!rc)
        rc = hf_float(&j->config, "rms_norm_eps", eps, &eps, e);
    if (rc)
        return rc;
    convert_put_u32(j, "block_count", j->layers);
    convert_put_u32(j, "context_length", context);
    convert_put_u32(j, "embedding_length", j->dim[DIM_D]);
    convert_put_u32(j, "feed_forward_length", j->dim[DIM_F]);
    convert_put_u32(j, "vocab_size", j->dim[DIM_V]);
    convert_put_u32(j, "attention.head_count_kv", j->kv_heads);
    convert_put_u32(j, "attention.key_length", j->dim[DIM_HD]);
    convert_put_u32(j, "attention.value_length", j->dim[DIM_HD]);
    convert_put_f32(j, "attention.layer_norm_rms_epsilon", eps);
    return 0;
}

struct convert_rope convert_rope_of(const struct convert_job *j) {
    const struct hf_file *f = &j->config;
    return (struct convert_rope){{hf_get(f, "rope_parameters"), hf_get(f, "rope_scaling")}};
}

const struct json *convert_rope_get(const struct convert_rope *r, const char *key) {
    const struct json *v = NULL;
    for (size_t i = 0; i < 2 && !v; i++)
        v = json_get(r->place[i], key);
    return v;
}

bool convert_rope_is(const struct convert_rope *r, const char *type) {
    const char *s = json_str(convert_rope_get(r, "rope_type"), NULL);
    s = s ? s : json_str(convert_rope_get(r, "type"), NULL);
    return s ? !strcmp(s, type) : !strcmp("default", type);
}

int convert_rope_number(const struct convert_job *j, const struct convert_rope *r, const char *key,
                        double otherwise, double *out, struct err *e) {
    const struct json *v = convert_rope_get(r, key);
    *out = json_num(v, v ? -1 : otherwise);
    if (*out > 0 && *out <= INT32_MAX)
        return 0;
    return err_set(e, ERR_FORMAT,
                   "%s lacks '%s' among its rope settings or it is no positive number: get the "
                   "file again",
                   j->config.path, key);
}

int convert_put_scaling(struct convert_job *j, const struct convert_rope *r, struct err *e) {
    static const char *const extra[][2] = {
        {"extrapolation_factor", "rope.scaling.yarn_ext_factor"},
        {"attention_factor", "rope.scaling.yarn_attn_factor"},
        {"beta_fast", "rope.scaling.yarn_beta_fast"},
        {"beta_slow", "rope.scaling.yarn_beta_slow"},
    };
    bool yarn = convert_rope_is(r, "yarn");
    double factor, length;
    if (!yarn && !convert_rope_is(r, "linear"))
        return 0;
    int rc = convert_rope_number(j, r, "factor", 0, &factor, e);
    if (rc)
        return rc;
    convert_put_str(j, "rope.scaling.type", yarn ? "yarn" : "linear");
    convert_put_f32(j, "rope.scaling.factor", factor);
    if (!yarn)
        return 0;
    rc = convert_rope_number(j, r, "original_max_position_embeddings", 0, &length, e);
    if (rc)
        return rc;
    convert_put_u32(j, "rope.scaling.original_context_length", (int64_t)length);
    for (size_t i = 0; i < sizeof extra / sizeof *extra; i++)
        if (convert_rope_get(r, extra[i][0]))
            convert_put_f32(j, extra[i][1], json_num(convert_rope_get(r, extra[i][0]), 0));
    return 0;
}

int convert_add_divisors(struct convert_job *j, int64_t n, float **out, struct err *e) {
    struct tensor *t = arena_alloc(&j->plan.arena, sizeof *t);
    *out = arena_array(&j->plan.arena, (size_t)n, sizeof **out);
    if (!t || !*out)
        return err_set(e, ERR_MEMORY, "not enough memory for the list of tensors");
    *t = (struct tensor){.name = "rope_freqs.weight",
                         .type = TYPE_F32,
                         .n_dims = 1,
                         .ne = {n, 1, 1, 1},
                         .data = *out,
                         .bytes = n * (int64_t)sizeof **out};
    struct convert_item item = {.src = t, .name = t->name, .n_dims = 1, .ne = {n, 1, 1, 1}};
    return convert_add(j, &item, e);
}
