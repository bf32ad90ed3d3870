// SPDX-License-Identifier: Apache-2.0
// GLM-4.5 to 4.7 and Air (glm4moe): dense layers, then experts with a bias for the choice and a
// shared one. Prediction blocks come after the last layer (nextn.c).
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "convert/families/rules.h"

static const struct convert_rule ffn_norm = {"post_attention_layernorm.weight",
                                             "post_attention_norm.weight", .dims = {DIM_D}};

// Among rope_parameters, or besides them.
static const struct json *glm_rope(const struct convert_job *j, const char *key) {
    const struct json *v = json_get(hf_get(&j->config, "rope_parameters"), key);
    return v ? v : hf_get(&j->config, key);
}

static int put_glm_rope(struct convert_job *j, struct err *e) {
    double base = json_num(glm_rope(j, "rope_theta"), 10000);
    double part = json_num(glm_rope(j, "partial_rotary_factor"), 0.5);
    const struct convert_rope r = convert_rope_of(j);
    int64_t turned = part > 0 && part <= 1 ? lround((double)j->dim[DIM_HD] * part) : 0;
    if (!convert_rope_is(&r, "default") && !convert_rope_is(&r, "linear") &&
        !convert_rope_is(&r, "yarn"))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has a rope_type other than default, linear and yarn: this checkpoint "
                       "cannot be converted",
                       j->config.path);
    if (!(base > 0) || !isfinite(base) || turned < 2 || turned % 2)
        return err_set(e, ERR_FORMAT,
                       "%s turns %" PRId64 " of %" PRId64
                       " head dimensions with the base %g, which "
                       "cannot be: get the file again",
                       j->config.path, turned, j->dim[DIM_HD], base);
    convert_put_u32(j, "rope.dimension_count", turned);
    convert_put_f32(j, "rope.freq_base", base);
    return convert_put_scaling(j, &r, true, e);
}

struct sizes {
    int64_t used, groups, groups_used, shared, lead;
    double scale;
};

static int read_glm_sizes(struct convert_job *j, struct sizes *s, struct err *e) {
    const struct hf_file *f = &j->config;
    int64_t *d = j->dim;
    int rc = convert_read_sizes(j, true, e);
    if (!rc)
        rc = hf_check_silu(f, e);
    if (!rc)
        rc = convert_read_experts(j, "n_routed_experts", "num_experts_per_tok", &s->used, e);
    const struct hf_number rows[] = {
        {"n_shared_experts", 1, 64, 1, &s->shared, NULL},
        {"n_group", 1, d[DIM_E], 1, &s->groups, NULL},
        {"topk_group", 1, 0, 1, &s->groups_used, &s->groups},
        {"first_k_dense_replace", 0, j->layers - 1, 0, &s->lead, NULL},
    };
    if (!rc)
        rc = hf_ints(f, rows, sizeof rows / sizeof *rows, e);
    if (!rc)
        rc = hf_float(f, "routed_scaling_factor", 1, &s->scale, e);
    d[DIM_FS] = s->shared * d[DIM_FE];
    return rc;
}

static int put_glm_keys(struct convert_job *j, const struct sizes *s, struct err *e) {
    const struct {
        const char *key;
        int64_t v;
    } keys[] = {
        {"attention.head_count", j->heads},
        {"expert_count", j->dim[DIM_E]},
        {"expert_used_count", s->used},
        {"expert_shared_count", s->shared},
        {"expert_group_count", s->groups},
        {"expert_group_used_count", s->groups_used},
        {"expert_feed_forward_length", j->dim[DIM_FE]},
        {"leading_dense_block_count", s->lead},
        {"expert_gating_func", 2}, // sigmoid
    };
    int rc = convert_put_sizes(j, 1e-5, e);
    if (rc)
        return rc;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        convert_put_u32(j, keys[i].key, keys[i].v);
    convert_put_bool(j, "expert_weights_norm",
                     json_bool(hf_get(&j->config, "norm_topk_prob"), true));
    convert_put_f32(j, "expert_weights_scale", s->scale);
    return put_glm_rope(j, e);
}

static int take_glm_layer(struct convert_job *j, int i, const struct sizes *s, struct err *e) {
    int rc = convert_take_all(j, convert_attention, i, e);
    if (!rc)
        rc = convert_take(j, &ffn_norm, i, e);
    if (!rc && json_bool(hf_get(&j->config, "attention_bias"), false))
        rc = convert_take_all(j, convert_qkv_biases, i, e);
    if (!rc && json_bool(hf_get(&j->config, "use_qk_norm"), false))
        rc = convert_take_all(j, convert_head_norms, i, e);
    if (rc || i < s->lead)
        return rc ? rc : convert_take_all(j, convert_dense, i, e);
    rc = convert_take(j, &convert_router, i, e);
    if (!rc)
        rc = convert_take(j, &convert_choice_bias, i, e);
    if (!rc)
        rc = convert_take_all(j, convert_shared_expert, i, e);
    return rc ? rc : convert_take_experts(j, i, e);
}

int convert_glm(struct convert_job *j, struct err *e) {
    struct sizes s = {0};
    int rc = read_glm_sizes(j, &s, e);
    if (rc)
        return rc;
    j->model = convert_model_of(j, false);
    convert_put_general(j);
    rc = put_glm_keys(j, &s, e);
    if (!rc)
        rc = convert_take_all(j, convert_begin, -1, e);
    for (int i = convert_first_block(j); i < j->layers + j->nextn && !rc; i++) {
        rc = take_glm_layer(j, i, &s, e);
        if (!rc && i >= j->layers)
            rc = convert_take_nextn(j, i, e);
    }
    return rc ? rc : convert_end(j, e);
}
