// SPDX-License-Identifier: Apache-2.0
// The qwen35 and qwen35moe targets: HuggingFace names and configuration to GGUF names and keys. The
// tables below are the mapping; norms get +1 (they are stored zero-centred) except the Gated
// DeltaNet's own, and value heads are reordered so that head h belongs to key head h mod keys.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "convert/families/rules.h"

static const struct convert_rule every_layer[] = {
    {"input_layernorm.weight", "attn_norm.weight", {DIM_D}, OP_PLUS_ONE, 0},
    {"post_attention_layernorm.weight", "post_attention_norm.weight", {DIM_D}, OP_PLUS_ONE, 0},
    {0},
};

static const struct convert_rule moe_layer[] = {
    {"mlp.gate.weight", "ffn_gate_inp.weight", .dims = {DIM_D, DIM_E}},
    {"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", .dims = {DIM_D, DIM_ONE}},
    {"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight", .dims = {DIM_D, DIM_FS}},
    {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight", .dims = {DIM_D, DIM_FS}},
    {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight", .dims = {DIM_FS, DIM_D}},
    {0},
};

static const struct convert_rule attention_layer[] = {
    {"self_attn.q_proj.weight", "attn_q.weight", .dims = {DIM_D, DIM_QG}},
    {"self_attn.k_proj.weight", "attn_k.weight", .dims = {DIM_D, DIM_KV}},
    {"self_attn.v_proj.weight", "attn_v.weight", .dims = {DIM_D, DIM_KV}},
    {"self_attn.o_proj.weight", "attn_output.weight", .dims = {DIM_Q, DIM_D}},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", {DIM_HD}, OP_PLUS_ONE, 0},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", {DIM_HD}, OP_PLUS_ONE, 0},
    {0},
};

static const struct convert_rule delta_layer[] = {
    {"linear_attn.in_proj_qkv.weight", "attn_qkv.weight", .dims = {DIM_D, DIM_C},
     .heads = HEADS_ROWS_AFTER_KEYS},
    {"linear_attn.in_proj_z.weight", "attn_gate.weight", .dims = {DIM_D, DIM_VD},
     .heads = HEADS_ROWS},
    {"linear_attn.in_proj_a.weight", "ssm_alpha.weight", .dims = {DIM_D, DIM_NV},
     .heads = HEADS_SCALARS},
    {"linear_attn.in_proj_b.weight", "ssm_beta.weight", .dims = {DIM_D, DIM_NV},
     .heads = HEADS_SCALARS},
    {"linear_attn.A_log", "ssm_a", {DIM_NV}, OP_NEG_EXP, HEADS_SCALARS},
    {"linear_attn.dt_bias", "ssm_dt.bias", .dims = {DIM_NV}, .heads = HEADS_SCALARS},
    {"linear_attn.conv1d.weight", "ssm_conv1d.weight", .dims = {DIM_CONV, DIM_C},
     .heads = HEADS_ROWS_AFTER_KEYS},
    {"linear_attn.norm.weight", "ssm_norm.weight", .dims = {DIM_DV}},
    {"linear_attn.out_proj.weight", "ssm_out.weight", .dims = {DIM_VD, DIM_D},
     .heads = HEADS_COLUMNS},
    {0},
};

static const struct convert_rule final_norm = {
    "norm.weight", "output_norm.weight", {DIM_D}, OP_PLUS_ONE, 0};
// Configuration values that this model family may have but no reader of ours could run.
static int check_qwen35(const struct convert_job *j, struct err *e) {
    const struct hf_file *f = &j->config;
    if (json_bool(hf_get(f, "attention_bias"), false))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has attention_bias true, which qwen35 lacks: this "
                       "checkpoint cannot be converted",
                       f->path);
    if (!json_bool(hf_get(f, "attn_output_gate"), true))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has attn_output_gate false, but qwen35 gates its "
                       "attention: this checkpoint cannot be converted",
                       f->path);
    int rc = hf_check_silu(f, e);
    if (rc)
        return rc;
    const struct convert_rope r = convert_rope_of(j);
    if (!convert_rope_is(&r, "default") && !convert_rope_is(&r, "mrope") &&
        !convert_rope_is(&r, "linear") && !convert_rope_is(&r, "yarn"))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has a rope_type other than default, mrope, linear and yarn: this "
                       "checkpoint cannot be converted",
                       f->path);
    return 0;
}

static bool has_qwen35_experts(const struct convert_job *j) {
    return !strcmp(j->arch, "qwen35moe");
}

static int read_qwen35_experts(struct convert_job *j, struct err *e) {
    const struct hf_file *f = &j->config;
    int64_t used;
    int rc = convert_read_experts(j, "num_experts", "num_experts_per_tok", &used, e);
    if (!rc)
        rc = hf_int(f, "shared_expert_intermediate_size", 1, 1 << 24, -1, &j->dim[DIM_FS], e);
    if (rc)
        return rc;
    convert_put_experts(j, used);
    convert_put_u32(j, "expert_shared_feed_forward_length", j->dim[DIM_FS]);
    return 0;
}

static int read_qwen35_sizes(struct convert_job *j, struct err *e) {
    const struct hf_file *f = &j->config;
    int64_t keys, key_dim, *d = j->dim;
    int rc = check_qwen35(j, e);
    if (!rc)
        rc = convert_read_sizes(j, !has_qwen35_experts(j), e);
    const struct hf_number rows[] = {
        {"linear_num_key_heads", 1, 4096, -1, &keys, NULL},
        {"linear_num_value_heads", 1, 4096, -1, &d[DIM_NV], NULL},
        {"linear_key_head_dim", 1, 4096, -1, &key_dim, NULL},
        {"linear_value_head_dim", 1, 4096, -1, &d[DIM_DV], NULL},
        {"linear_conv_kernel_dim", 2, 64, -1, &d[DIM_CONV], NULL},
    };
    if (!rc)
        rc = hf_ints(f, rows, sizeof rows / sizeof *rows, e);
    if (rc)
        return rc;
    if (d[DIM_NV] % keys || key_dim != d[DIM_DV])
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has %" PRId64 " value heads of %" PRId64 " for %" PRId64
                       " key heads of %" PRId64
                       "; the number must be a multiple and the sizes equal: "
                       "this checkpoint cannot be converted",
                       f->path, d[DIM_NV], d[DIM_DV], keys, key_dim);
    j->keys = (int)keys;
    j->copies = (int)(d[DIM_NV] / keys);
    d[DIM_VD] = d[DIM_NV] * d[DIM_DV];
    d[DIM_C] = 2 * keys * key_dim + d[DIM_VD];
    return 0;
}

static int take_qwen35_ffn(struct convert_job *j, int i, struct err *e) {
    int rc = convert_take_all(j, has_qwen35_experts(j) ? moe_layer : convert_dense, i, e);
    return rc || !has_qwen35_experts(j) ? rc : convert_take_experts(j, i, e);
}

static int take_qwen35_layer(struct convert_job *j, int i, bool full, struct err *e) {
    int rc = convert_take_all(j, full ? attention_layer : delta_layer, i, e);
    if (!rc)
        rc = convert_take_all(j, every_layer, i, e);
    return rc ? rc : take_qwen35_ffn(j, i, e);
}

static int take_qwen35_layers(struct convert_job *j, struct err *e) {
    bool recurrent[4096 + 1], full, regular = true;
    int64_t interval;
    int rc = hf_int(&j->config, "full_attention_interval", 1, 4096, 4, &interval, e);
    for (int64_t i = 0; i < j->layers && !rc; i++) {
        full = (i + 1) % interval == 0;
        rc = convert_read_either(j, "layer_types", i, "full_attention", "linear_attention", &full,
                                 e);
        recurrent[i] = !full;
        regular &= full == ((i + 1) % interval == 0);
        if (!rc && i >= convert_first_block(j))
            rc = take_qwen35_layer(j, (int)i, full, e);
    }
    if (!rc && j->nextn) { // at most one
        recurrent[j->layers] = false;
        rc = take_qwen35_layer(j, (int)j->layers, true, e);
        if (!rc)
            rc = convert_take_nextn(j, (int)j->layers, e);
    }
    if (rc)
        return rc;
    if (regular)
        convert_put_u32(j, "full_attention_interval", interval);
    convert_put_array(j, "attention.recurrent_layers", GGUF_BOOL, recurrent,
                      (uint64_t)(j->layers + j->nextn));
    return 0;
}

// Rotary keys: the base, how many of the head's dimensions turn, and the three image sections.
static int put_qwen35_rope(struct convert_job *j, struct err *e) {
    const struct hf_file *f = &j->config;
    const struct convert_rope r = convert_rope_of(j);
    const struct json *sections = hf_get(f, "rope_parameters.mrope_section");
    double base, part;
    int rc = hf_float(f, hf_get(f, "rope_theta") ? "rope_theta" : "rope_parameters.rope_theta", 0,
                      &base, e);
    if (!rc)
        rc = hf_float(f,
                      hf_get(f, "partial_rotary_factor") ? "partial_rotary_factor"
                                                         : "rope_parameters.partial_rotary_factor",
                      0.25, &part, e);
    if (rc)
        return rc;
    int64_t turned = (int64_t)lround((double)j->dim[DIM_HD] * part);
    int32_t section[4] = {(int32_t)(turned / 2), 0, 0, 0};
    size_t n = json_len(sections);
    for (size_t i = 0; i < n && i < 4; i++)
        section[i] = (int32_t)json_int(json_at(sections, i), 0);
    int64_t sum = (int64_t)section[0] + section[1] + section[2] + section[3];
    if (turned < 2 || turned > j->dim[DIM_HD] || n > 4 || sum != turned / 2)
        return err_set(e, ERR_FORMAT,
                       "%s turns %" PRId64 " of %" PRId64 " head dimensions in "
                       "sections of %" PRId64
                       " pairs, which do not fit together: get the file again",
                       f->path, turned, j->dim[DIM_HD], sum);
    convert_put_f32(j, "rope.freq_base", base);
    convert_put_u32(j, "rope.dimension_count", turned);
    convert_put_array(j, "rope.dimension_sections", GGUF_I32, section, 4);
    return convert_put_scaling(j, &r, true, e);
}

static int put_qwen35_keys(struct convert_job *j, struct err *e) {
    const struct hf_file *f = &j->config;
    int64_t context;
    double eps;
    int rc = hf_int(f, "max_position_embeddings", 1, INT32_MAX, -1, &context, e);
    if (!rc)
        rc = hf_float(f, "rms_norm_eps", 1e-6, &eps, e);
    if (rc)
        return rc;
    const struct {
        const char *key;
        int64_t v;
    } keys[] = {
        {"block_count", j->layers + j->nextn},
        {"context_length", context},
        {"embedding_length", j->dim[DIM_D]},
        {"vocab_size", j->dim[DIM_V]},
        {"attention.head_count", j->heads},
        {"attention.head_count_kv", j->kv_heads},
        {"attention.key_length", j->dim[DIM_HD]},
        {"attention.value_length", j->dim[DIM_HD]},
        {"ssm.conv_kernel", j->dim[DIM_CONV]},
        {"ssm.state_size", j->dim[DIM_DV]},
        {"ssm.group_count", j->keys},
        {"ssm.time_step_rank", j->dim[DIM_NV]},
        {"ssm.inner_size", j->dim[DIM_VD]},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        convert_put_u32(j, keys[i].key, keys[i].v);
    convert_put_nextn(j);
    if (!has_qwen35_experts(j))
        convert_put_u32(j, "feed_forward_length", j->dim[DIM_F]);
    convert_put_f32(j, "attention.layer_norm_rms_epsilon", eps);
    return put_qwen35_rope(j, e);
}

int convert_target(struct convert_job *j, struct err *e) {
    int rc = read_qwen35_sizes(j, e);
    if (rc)
        return rc;
    convert_put_general(j);
    rc = put_qwen35_keys(j, e);
    if (!rc && has_qwen35_experts(j))
        rc = read_qwen35_experts(j, e);
    j->model = convert_model_of(j, false);
    if (!rc)
        rc = convert_take(j, &convert_begin[0], -1, e);
    if (!rc)
        rc = take_qwen35_layers(j, e);
    if (!rc)
        rc = convert_take(j, &final_norm, -1, e);
    return rc ? rc : convert_end(j, e);
}
