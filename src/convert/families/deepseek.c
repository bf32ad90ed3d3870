// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V2 and -V3, Kimi K2, Moonlight and GLM-4.7-Flash (deepseek2): latent attention, whose
// matrix from latents to keys and values is taken apart and, for keys, transposed, so that both can
// be applied to queries and outputs; dense layers, then experts with a shared one. Prediction
// blocks come after the last layer (nextn.c).
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convert/families/rules.h"

static const struct convert_rule every_layer[] = {
    {"input_layernorm.weight", "attn_norm.weight", .dims = {DIM_D}},
    {"self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight", .dims = {DIM_D, DIM_KV}},
    {"self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight", .dims = {DIM_L}},
    {"self_attn.o_proj.weight", "attn_output.weight", .dims = {DIM_O, DIM_D}},
    {0},
};
static const struct convert_rule low_rank[] = {
    {"self_attn.q_a_proj.weight", "attn_q_a.weight", .dims = {DIM_D, DIM_QL}},
    {"self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight", .dims = {DIM_QL}},
    {"self_attn.q_b_proj.weight", "attn_q_b.weight", .dims = {DIM_QL, DIM_Q}},
    {0},
};
static const struct convert_rule full_rank[] = {
    {"self_attn.q_proj.weight", "attn_q.weight", .dims = {DIM_D, DIM_Q}},
    {0},
};
struct sizes {
    int64_t q_lora, lora, nope, turns, v;
    int64_t used, groups, groups_used, shared, lead, context;
    double scale, eps;
    bool sigmoid, normalised;
};

static int put_latent_yarn(struct convert_job *j, const struct convert_rope *r, struct err *e) {
    static const char *const numbers[][2] = {
        {"beta_fast", "rope.scaling.yarn_beta_fast"},
        {"beta_slow", "rope.scaling.yarn_beta_slow"},
    };
    double factor = json_num(convert_rope_get(r, "factor"), 0),
           all = json_num(convert_rope_get(r, "mscale_all_dim"), 0);
    double own = json_num(convert_rope_get(r, "mscale"), all);
    int64_t trained = json_int(convert_rope_get(r, "original_max_position_embeddings"), 0);
    if (!(factor >= 1) || !isfinite(factor) || trained < 1 || trained > INT32_MAX || !(all >= 0) ||
        all > 10)
        return err_set(e, ERR_FORMAT,
                       "%s lacks factor or original_max_position_embeddings among its rope "
                       "settings, or one of them cannot be: get the file again",
                       j->config.path);
    if (own != all) // files have one number for both
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has mscale %g and mscale_all_dim %g: a checkpoint where they differ "
                       "cannot be converted",
                       j->config.path, own, all);
    convert_put_str(j, "rope.scaling.type", "yarn");
    convert_put_f32(j, "rope.scaling.factor", factor);
    convert_put_u32(j, "rope.scaling.original_context_length", trained);
    if (all > 0)
        convert_put_f32(j, "rope.scaling.yarn_log_multiplier", 0.1 * all);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (convert_rope_get(r, numbers[i][0]))
            convert_put_f32(j, numbers[i][1], json_num(convert_rope_get(r, numbers[i][0]), 0));
    return 0;
}

static int check_deepseek(const struct convert_job *j, struct err *e) {
    const struct hf_file *f = &j->config;
    if (json_bool(hf_get(f, "attention_bias"), false) ||
        !json_bool(hf_get(f, "rope_interleave"), true))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has attention_bias true or rope_interleave false: this checkpoint "
                       "cannot be converted",
                       f->path);
    const struct convert_rope r = convert_rope_of(j);
    if (!convert_rope_is(&r, "default") && !convert_rope_is(&r, "yarn"))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has a rope_type other than default and yarn: this checkpoint cannot be "
                       "converted",
                       f->path);
    return hf_check_silu(f, e);
}

static int read_latent_widths(struct convert_job *j, struct sizes *s, struct err *e) {
    const struct hf_file *f = &j->config;
    int64_t *d = j->dim;
    const struct hf_number rows[] = {
        {"q_lora_rank", 0, 1 << 20, 0, &s->q_lora, NULL},
        {"kv_lora_rank", 1, 1 << 16, -1, &s->lora, NULL},
        {"qk_nope_head_dim", 1, 1 << 16, -1, &s->nope, NULL},
        {"qk_rope_head_dim", 2, 1 << 16, -1, &s->turns, NULL},
        {"v_head_dim", 1, 1 << 16, -1, &s->v, NULL},
    };
    int rc = hf_ints(f, rows, sizeof rows / sizeof *rows, e);
    d[DIM_QL] = s->q_lora;
    d[DIM_L] = s->lora;
    d[DIM_KV] = s->lora + s->turns;
    d[DIM_Q] = j->heads * (s->nope + s->turns);
    d[DIM_O] = j->heads * s->v;
    return rc;
}

// Dense layers come first: as many as a number says, or a list of all layers (GLM-4.7-Flash).
static int read_dense_layers(const struct convert_job *j, struct sizes *s, struct err *e) {
    const struct json *types = hf_get(&j->config, "mlp_layer_types");
    int64_t otherwise = hf_string_is(&j->config, "model_type", "glm4_moe_lite") ? 1 : 0;
    if (!types)
        return hf_int(&j->config, "first_k_dense_replace", 0, j->layers - 1, otherwise, &s->lead,
                      e);
    for (int64_t i = 0; i < j->layers; i++) {
        const char *t = json_str(json_at(types, (size_t)i), NULL);
        bool dense = t && !strcmp(t, "dense");
        if (!t || (!dense && strcmp(t, "sparse") != 0) || (dense && s->lead < i))
            return err_set(e, ERR_UNSUPPORTED,
                           "mlp_layer_types in %s does not name dense layers and then sparse ones "
                           "for each of %" PRId64 " layers: this checkpoint cannot be converted",
                           j->config.path, j->layers);
        s->lead += dense;
    }
    return 0;
}

static int read_deepseek_experts(struct convert_job *j, struct sizes *s, struct err *e) {
    const struct hf_file *f = &j->config;
    int64_t *d = j->dim;
    bool v2 = hf_string_is(f, "model_type", "deepseek_v2");
    s->sigmoid = hf_get(f, "scoring_func") ? hf_string_is(f, "scoring_func", "sigmoid") : !v2;
    s->normalised = json_bool(hf_get(f, "norm_topk_prob"), !v2);
    int rc = convert_read_experts(j, "n_routed_experts", "num_experts_per_tok", &s->used, e);
    const struct hf_number rows[] = {
        {"n_shared_experts", 0, 64, 0, &s->shared, NULL},
        {"n_group", 1, d[DIM_E], 1, &s->groups, NULL},
        {"topk_group", 1, 0, 1, &s->groups_used, &s->groups},
    };
    if (!rc)
        rc = hf_ints(f, rows, sizeof rows / sizeof *rows, e);
    if (!rc)
        rc = read_dense_layers(j, s, e);
    if (!rc)
        rc = hf_float(f, "routed_scaling_factor", 1, &s->scale, e);
    if (hf_string_is(f, "topk_method", "greedy"))
        s->groups = s->groups_used = 1;
    d[DIM_FS] = s->shared * d[DIM_FE];
    return rc;
}

static int put_deepseek_keys(struct convert_job *j, const struct sizes *s, struct err *e) {
    const struct {
        const char *key;
        int64_t v;
    } keys[] = {
        {"attention.head_count", j->heads},
        {"attention.head_count_kv", 1},
        {"attention.key_length", s->lora + s->turns},
        {"attention.value_length", s->lora},
        {"attention.key_length_mla", s->nope + s->turns},
        {"attention.value_length_mla", s->v},
        {"attention.kv_lora_rank", s->lora},
        {"attention.q_lora_rank", s->q_lora}, // 0: left out
        {"rope.dimension_count", s->turns},
        {"leading_dense_block_count", s->lead},
        {"expert_count", j->dim[DIM_E]},
        {"expert_used_count", s->used},
        {"expert_shared_count", s->shared},
        {"expert_group_count", s->groups},
        {"expert_group_used_count", s->groups_used},
        {"expert_feed_forward_length", j->dim[DIM_FE]},
        {"expert_gating_func", s->sigmoid ? 2 : 1},
    };
    // The base may stand at the top level, where nothing else of the rotation is looked for.
    const struct convert_rope r = convert_rope_of(j);
    const struct json *theta = convert_rope_get(&r, "rope_theta");
    double base = json_num(theta ? theta : hf_get(&j->config, "rope_theta"), 10000);
    if (!(base > 0) || !isfinite(base))
        return err_set(e, ERR_FORMAT, "%s has a rope_theta of %g: get the file again",
                       j->config.path, base);
    convert_put_widths(j, s->context);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].v || strcmp(keys[i].key, "attention.q_lora_rank") != 0)
            convert_put_u32(j, keys[i].key, keys[i].v);
    convert_put_bool(j, "expert_weights_norm", s->normalised);
    convert_put_f32(j, "expert_weights_scale", s->scale);
    convert_put_f32(j, "attention.layer_norm_rms_epsilon", s->eps);
    convert_put_f32(j, "rope.freq_base", base);
    return convert_rope_is(&r, "yarn") ? put_latent_yarn(j, &r, e) : 0;
}

// The rows of each head are those of its key, then those of its value; a key's are transposed.
static int take_latent_heads(struct convert_job *j, int i, const struct sizes *s, struct err *e) {
    static const char hf[] = "self_attn.kv_b_proj.weight";
    const int64_t all[2] = {s->lora, j->heads * (s->nope + s->v)};
    const struct tensor *t;
    char name[64];
    int rc = convert_find(j, hf, i, &t, e);
    if (!rc && !t)
        rc = convert_missing(j, hf, i, e);
    if (!rc)
        rc = convert_check_shape(t, all, 2, e);
    if (rc)
        return rc;
    struct convert_item k = {.src = t, .name = name, .n_dims = 3}, v = k;
    k.ne[0] = s->nope;
    v.ne[1] = s->v;
    k.ne[1] = v.ne[0] = s->lora;
    k.ne[2] = v.ne[2] = j->heads;
    k.ne[3] = v.ne[3] = 1;
    k.cut = (struct convert_cut){s->nope * s->lora, (s->nope + s->v) * s->lora, 0};
    v.cut = (struct convert_cut){s->v * s->lora, k.cut.stride, k.cut.slice};
    k.remap = (struct convert_remap){.unit = 1, .keys = (int)s->nope, .copies = (int)s->lora};
    snprintf(name, sizeof name, "blk.%d.attn_k_b.weight", i);
    rc = convert_add(j, &k, e);
    snprintf(name, sizeof name, "blk.%d.attn_v_b.weight", i);
    return rc ? rc : convert_add(j, &v, e);
}

static int take_deepseek_layer(struct convert_job *j, int i, const struct sizes *s, struct err *e) {
    int rc = convert_take_all(j, every_layer, i, e);
    if (!rc)
        rc = convert_take(j, &convert_ffn_norm, i, e);
    if (!rc)
        rc = convert_take_all(j, s->q_lora ? low_rank : full_rank, i, e);
    if (!rc)
        rc = take_latent_heads(j, i, s, e);
    if (!rc && i < s->lead)
        return convert_take_all(j, convert_dense, i, e);
    if (!rc)
        rc = convert_take(j, &convert_router, i, e);
    if (!rc && s->sigmoid)
        rc = convert_take(j, &convert_choice_bias, i, e);
    if (!rc && s->shared)
        rc = convert_take_all(j, convert_shared_expert, i, e);
    return rc ? rc : convert_take_experts(j, i, e);
}

int convert_deepseek(struct convert_job *j, struct err *e) {
    const struct hf_file *f = &j->config;
    struct sizes s = {0};
    int rc = convert_read_sizes(j, true, e);
    if (!rc)
        rc = check_deepseek(j, e);
    if (!rc)
        rc = read_latent_widths(j, &s, e);
    if (!rc)
        rc = read_deepseek_experts(j, &s, e);
    if (!rc)
        rc = hf_int(f, "max_position_embeddings", 1, INT32_MAX, -1, &s.context, e);
    if (!rc)
        rc = hf_float(f, "rms_norm_eps", 1e-6, &s.eps, e);
    if (rc)
        return rc;
    j->model = convert_model_of(j, false);
    j->model.shared = false; // keys are not shared by heads, but made from one latent
    convert_put_general(j);
    rc = put_deepseek_keys(j, &s, e);
    if (!rc)
        rc = convert_take_all(j, convert_begin, -1, e);
    for (int i = convert_first_block(j); i < j->layers + j->nextn && !rc; i++) {
        rc = take_deepseek_layer(j, i, &s, e);
        if (!rc && i >= j->layers)
            rc = convert_take_nextn(j, i, e);
    }
    return rc ? rc : convert_end(j, e);
}
