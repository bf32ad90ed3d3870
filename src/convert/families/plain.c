// SPDX-License-Identifier: Apache-2.0
// Plain transformers: qwen3, with norms of queries and keys, dense or with experts, qwen2, with
// biases instead, and llama,
// whose rotated halves become neighbouring pairs and whose long-context scaling becomes a tensor of
// divisors. Norms are plain.
#include <inttypes.h>
#include <string.h>

#include "convert/families/rules.h"

static const struct convert_rule every_layer[] = {
    {"input_layernorm.weight", "attn_norm.weight", .dims = {DIM_D}},
    {"self_attn.v_proj.weight", "attn_v.weight", .dims = {DIM_D, DIM_KV}},
    {"self_attn.o_proj.weight", "attn_output.weight", .dims = {DIM_Q, DIM_D}},
    {0},
};
static const struct convert_rule queries_keys[] = {
    {"self_attn.q_proj.weight", "attn_q.weight", .dims = {DIM_D, DIM_Q}},
    {"self_attn.k_proj.weight", "attn_k.weight", .dims = {DIM_D, DIM_KV}},
    {0},
};
static const struct convert_rule llama_biases[] = {
    {"self_attn.q_proj.bias", "attn_q.bias", .dims = {DIM_Q}, .heads = HEADS_PAIRS},
    {"self_attn.k_proj.bias", "attn_k.bias", .dims = {DIM_KV}, .heads = HEADS_PAIRS},
    {"self_attn.v_proj.bias", "attn_v.bias", .dims = {DIM_KV}},
    {"self_attn.o_proj.bias", "attn_output.bias", .dims = {DIM_D}},
    {0},
};
static const struct convert_rule llama_layer[] = {
    {"self_attn.q_proj.weight", "attn_q.weight", .dims = {DIM_D, DIM_Q}, .heads = HEADS_PAIRS},
    {"self_attn.k_proj.weight", "attn_k.weight", .dims = {DIM_D, DIM_KV}, .heads = HEADS_PAIRS},
    {0},
};

static bool is_llama(const struct convert_job *j) {
    return !strcmp(j->arch, "llama");
}

static bool has_biases(const struct convert_job *j) {
    return json_bool(hf_get(&j->config, "attention_bias"), false);
}

static bool has_plain_experts(const struct convert_job *j) {
    return !strcmp(j->arch, "qwen3moe");
}

static int check_plain(const struct convert_job *j, struct err *e) {
    const struct hf_file *f = &j->config;
    static const char *const parts[] = {"mlp_bias", "use_sliding_window", "attention_bias"};
    int rc = convert_refuse_true(f, parts, is_llama(j) ? 2 : 3, e);
    if (rc)
        return rc;
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
    rc = hf_check_silu(f, e);
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

// Layers without experts among those that have some, and weights that do not add up to 1, have no
// keys in files of this kind.
static int read_plain_experts(struct convert_job *j, struct err *e) {
    const struct hf_file *f = &j->config;
    int64_t used, step;
    // As later versions of transformers save it.
    const char *count = hf_get(f, "num_local_experts") ? "num_local_experts" : "num_experts";
    int rc = convert_read_experts(j, count, "num_experts_per_tok", &used, e);
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
    convert_put_experts(j, used);
    j->model.experts = (int)j->dim[DIM_E];
    return 0;
}

static int take_plain_layer(struct convert_job *j, int i, struct err *e) {
    int rc = convert_take_all(j, is_llama(j) ? llama_layer : queries_keys, i, e);
    if (!rc && !is_llama(j))
        rc = convert_take_all(
            j, !strcmp(j->arch, "qwen2") ? convert_qkv_biases : convert_head_norms, i, e);
    if (!rc && has_biases(j))
        rc = convert_take_all(j, llama_biases, i, e);
    if (!rc)
        rc = convert_take_all(j, every_layer, i, e);
    if (!rc)
        rc = convert_take(j, &convert_ffn_norm, i, e);
    if (rc || !has_plain_experts(j))
        return rc ? rc : convert_take_all(j, convert_dense, i, e);
    rc = convert_take(j, &convert_router, i, e);
    return rc ? rc : convert_take_experts(j, i, e);
}

static int put_plain_keys(struct convert_job *j, struct err *e) {
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
    rc = convert_put_scaling(j, &r, true, e);
    return !rc && convert_rope_is(&r, "llama3") ? convert_add_bands(j, base, e) : rc;
}

int convert_plain(struct convert_job *j, struct err *e) {
    int rc = convert_read_sizes(j, true, e);
    if (!rc)
        rc = check_plain(j, e);
    if (rc)
        return rc;
    j->model = convert_model_of(j, false);
    j->model.large = is_llama(j) && j->layers == 80;
    convert_put_general(j);
    rc = put_plain_keys(j, e);
    if (!rc && has_plain_experts(j))
        rc = read_plain_experts(j, e);
    if (!rc)
        rc = convert_take_all(j, convert_begin, -1, e);
    for (int i = 0; i < j->layers && !rc; i++)
        rc = take_plain_layer(j, i, e);
    return rc ? rc : convert_end(j, e);
}
