// SPDX-License-Identifier: Apache-2.0
// Plain transformers: qwen3, with norms of queries and keys, dense or with experts, qwen2, with
// biases instead, and llama,
// whose rotated halves become neighbouring pairs and whose long-context scaling becomes a tensor of
// divisors. Norms are plain.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convert/families/rules.h"
#include "formats/quant/quant.h"

static const struct convert_rule every_layer[] = {
    {"input_layernorm.weight", "attn_norm.weight", {DIM_D}, OP_NONE, 0},
    {"self_attn.v_proj.weight", "attn_v.weight", {DIM_D, DIM_KV}, OP_NONE, 0},
    {"self_attn.o_proj.weight", "attn_output.weight", {DIM_Q, DIM_D}, OP_NONE, 0},
    {0},
};
static const struct convert_rule qwen3_layer[] = {
    {"self_attn.q_proj.weight", "attn_q.weight", {DIM_D, DIM_Q}, OP_NONE, 0},
    {"self_attn.k_proj.weight", "attn_k.weight", {DIM_D, DIM_KV}, OP_NONE, 0},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", {DIM_HD}, OP_NONE, 0},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", {DIM_HD}, OP_NONE, 0},
    {0},
};
static const struct convert_rule qwen2_layer[] = {
    {"self_attn.q_proj.weight", "attn_q.weight", {DIM_D, DIM_Q}, OP_NONE, 0},
    {"self_attn.k_proj.weight", "attn_k.weight", {DIM_D, DIM_KV}, OP_NONE, 0},
    {"self_attn.q_proj.bias", "attn_q.bias", {DIM_Q}, OP_NONE, 0},
    {"self_attn.k_proj.bias", "attn_k.bias", {DIM_KV}, OP_NONE, 0},
    {"self_attn.v_proj.bias", "attn_v.bias", {DIM_KV}, OP_NONE, 0},
    {0},
};
static const struct convert_rule llama_biases[] = {
    {"self_attn.q_proj.bias", "attn_q.bias", {DIM_Q}, OP_NONE, HEADS_PAIRS},
    {"self_attn.k_proj.bias", "attn_k.bias", {DIM_KV}, OP_NONE, HEADS_PAIRS},
    {"self_attn.v_proj.bias", "attn_v.bias", {DIM_KV}, OP_NONE, 0},
    {"self_attn.o_proj.bias", "attn_output.bias", {DIM_D}, OP_NONE, 0},
    {0},
};
static const struct convert_rule llama_layer[] = {
    {"self_attn.q_proj.weight", "attn_q.weight", {DIM_D, DIM_Q}, OP_NONE, HEADS_PAIRS},
    {"self_attn.k_proj.weight", "attn_k.weight", {DIM_D, DIM_KV}, OP_NONE, HEADS_PAIRS},
    {0},
};

static bool is_llama(const struct convert_job *j) {
    return !strcmp(j->arch, "llama");
}

static bool has_biases(const struct convert_job *j) {
    return json_bool(hf_get(&j->config, "attention_bias"), false);
}

static bool has_experts(const struct convert_job *j) {
    return !strcmp(j->arch, "qwen3moe");
}

static int check_supported(const struct convert_job *j, struct err *e) {
    const struct hf_file *f = &j->config;
    static const char *const parts[] = {"mlp_bias", "use_sliding_window", "attention_bias"};
    for (size_t i = 0; i < (is_llama(j) ? 2 : 3); i++)
        if (json_bool(hf_get(f, parts[i]), false))
            return err_set(e, ERR_UNSUPPORTED,
                           "%s has %s true: this checkpoint cannot be converted", f->path,
                           parts[i]);
    if (!hf_get(f, "use_sliding_window") && // where that is absent, a number is enough
        json_int(hf_get(f, "sliding_window"), INT32_MAX) <
            json_int(hf_get(f, "max_position_embeddings"), 0))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has a sliding_window within its context: this checkpoint cannot be "
                       "converted",
                       f->path);
    const struct json *types = hf_get(f, "layer_types");
    for (size_t i = 0; i < json_len(types); i++) {
        const char *s = json_str(json_at(types, i), NULL);
        if (!s || strcmp(s, "full_attention") != 0)
            return err_set(e, ERR_UNSUPPORTED,
                           "layer_types in %s names %.40s, not full_attention: this checkpoint "
                           "cannot be converted",
                           f->path, s ? s : "another kind");
    }
    const struct convert_rope r = convert_rope_of(j);
    int rc = hf_check_silu(f, e);
    if (rc)
        return rc;
    if (!convert_rope_is(&r, "default") && !convert_rope_is(&r, "linear") &&
        !convert_rope_is(&r, "yarn") && !(is_llama(j) && convert_rope_is(&r, "llama3")))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has a rope_type other than default, linear, yarn or (llama) llama3: "
                       "this checkpoint cannot be converted",
                       f->path);
    if (j->dim[DIM_HD] % 2)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has heads of %" PRId64 " dimensions, which cannot turn in pairs: this "
                       "checkpoint cannot be converted",
                       f->path, j->dim[DIM_HD]);
    return 0;
}

// Settings of the scaling "llama3": short waves keep their frequency, long ones are slowed by
// `factor`, and those between blend.
struct bands {
    double factor, low, high, length;
};

static float divisor(const struct bands *b, float frequency) {
    float wave = 6.283185307179586f / frequency;
    if (wave < (float)(b->length / b->high))
        return 1;
    if (wave > (float)(b->length / b->low))
        return (float)b->factor;
    float smooth = ((float)b->length / wave - (float)b->low) / (float)(b->high - b->low);
    return 1 / ((1 - smooth) / (float)b->factor + smooth);
}

int convert_add_bands(struct convert_job *j, double base, struct err *e) {
    struct bands b = {0};
    int64_t half = j->dim[DIM_HD] / 2;
    float *values;
    const struct convert_rope r = convert_rope_of(j);
    int rc = convert_rope_number(j, &r, "factor", 8, &b.factor, e);
    if (!rc)
        rc = convert_rope_number(j, &r, "low_freq_factor", 1, &b.low, e);
    if (!rc)
        rc = convert_rope_number(j, &r, "high_freq_factor", 4, &b.high, e);
    if (!rc)
        rc = convert_rope_number(j, &r, "original_max_position_embeddings", 8192, &b.length, e);
    if (!rc && b.high <= b.low)
        rc = err_set(e, ERR_FORMAT,
                     "high_freq_factor in %s is not above low_freq_factor: get the file again",
                     j->config.path);
    if (!rc)
        rc = convert_add_divisors(j, half, &values, e);
    for (int64_t i = 0; !rc && i < half; i++)
        values[i] = divisor(&b, 1 / powf((float)base, (float)(2 * i) / (float)j->dim[DIM_HD]));
    return rc;
}

// Layers without experts among those that have some, and weights that do not add up to 1, have no
// keys in files of this kind.
static int read_experts(struct convert_job *j, struct err *e) {
    const struct hf_file *f = &j->config;
    int64_t *d = j->dim, used, step;
    // As later versions of transformers save it.
    const char *count = hf_get(f, "num_local_experts") ? "num_local_experts" : "num_experts";
    int rc = hf_int(f, count, 1, 1 << 16, -1, &d[DIM_E], e);
    if (!rc)
        rc = hf_int(f, "num_experts_per_tok", 1, d[DIM_E], -1, &used, e);
    if (!rc)
        rc = hf_int(f, "moe_intermediate_size", 1, 1 << 24, -1, &d[DIM_FE], e);
    if (!rc)
        rc = hf_int(f, "decoder_sparse_step", 1, 1 << 16, 1, &step, e);
    if (rc)
        return rc;
    if (step != 1 || json_len(hf_get(f, "mlp_only_layers")))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has layers without experts (decoder_sparse_step, mlp_only_layers): this "
                       "checkpoint cannot be converted",
                       f->path);
    if (!json_bool(hf_get(f, "norm_topk_prob"), false))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has norm_topk_prob false, but qwen3moe weighs experts by shares: this "
                       "checkpoint cannot be converted",
                       f->path);
    convert_put_u32(j, "expert_count", d[DIM_E]);
    convert_put_u32(j, "expert_used_count", used);
    convert_put_u32(j, "expert_feed_forward_length", d[DIM_FE]);
    j->model.experts = (int)d[DIM_E];
    return 0;
}

static const struct convert_rule *layer_rules(const struct convert_job *j) {
    return is_llama(j) ? llama_layer : !strcmp(j->arch, "qwen2") ? qwen2_layer : qwen3_layer;
}

static int take_layer(struct convert_job *j, int i, struct err *e) {
    int rc = convert_take_all(j, layer_rules(j), i, e);
    if (!rc && has_biases(j))
        rc = convert_take_all(j, llama_biases, i, e);
    if (!rc)
        rc = convert_take_all(j, every_layer, i, e);
    if (!rc)
        rc = convert_take(j, &convert_ffn_norm, i, e);
    if (rc || !has_experts(j))
        return rc ? rc : convert_take_all(j, convert_dense, i, e);
    rc = convert_take(j, &convert_router, i, e);
    return rc ? rc : convert_take_experts(j, i, e);
}

static int put_keys(struct convert_job *j, struct err *e) {
    const struct hf_file *f = &j->config;
    double base;
    bool inside = !hf_get(f, "rope_theta") && hf_get(f, "rope_parameters.rope_theta");
    int rc = convert_put_sizes(j, 1e-6, e);
    if (!rc)
        rc = hf_float(f, inside ? "rope_parameters.rope_theta" : "rope_theta", 10000, &base, e);
    if (rc)
        return rc;
    convert_put_u32(j, "attention.head_count", j->heads);
    convert_put_f32(j, "rope.freq_base", base);
    if (is_llama(j))
        convert_put_u32(j, "rope.dimension_count", j->dim[DIM_HD]);
    const struct convert_rope r = convert_rope_of(j);
    rc = convert_put_scaling(j, &r, e);
    return !rc && convert_rope_is(&r, "llama3") ? convert_add_bands(j, base, e) : rc;
}

int convert_plain(struct convert_job *j, struct err *e) {
    int rc = convert_read_sizes(j, true, e);
    if (!rc)
        rc = check_supported(j, e);
    if (rc)
        return rc;
    j->model = convert_model_of(j, false);
    j->model.large = is_llama(j) && j->layers == 80;
    convert_put_general(j);
    rc = put_keys(j, e);
    if (!rc && has_experts(j))
        rc = read_experts(j, e);
    if (!rc)
        rc = convert_take_all(j, convert_begin, -1, e);
    for (int i = 0; i < j->layers && !rc; i++)
        rc = take_layer(j, i, e);
    return rc ? rc : convert_end(j, e);
}
