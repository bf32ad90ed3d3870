// SPDX-License-Identifier: Apache-2.0
// Laguna: full layers and layers with a window, which may have other numbers of heads; gates of
// attention's output; dense layers, then experts with a bias for the choice and a shared one.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "convert/families/rules.h"

enum { MAX_LAYERS = 1024, PERIOD = 4 };

static const struct convert_rule gate = {"self_attn.g_proj.weight", "attn_gate.weight",
                                         .dims = {DIM_D, DIM_G}};
// As published folders call them; transformers' own have the usual names.
static const struct convert_rule choice_bias = {"mlp.experts.e_score_correction_bias",
                                                "exp_probs_b.bias", .dims = {DIM_E}};
static const struct convert_rule shared_expert[] = {
    {"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight", .dims = {DIM_D, DIM_FS}},
    {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight", .dims = {DIM_D, DIM_FS}},
    {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight", .dims = {DIM_FS, DIM_D}},
    {0},
};

struct laguna {
    int64_t used, lead, window;
    double scale;
    uint8_t windowed[MAX_LAYERS];
    int32_t heads[MAX_LAYERS];
    bool wide[MAX_LAYERS]; // a gate for each value instead of each head
};

static int check_laguna(const struct convert_job *j, struct err *e) {
    const struct hf_file *f = &j->config;
    static const char *const parts[] = {"attention_bias", "qkv_bias", "swa_attention_sink_enabled",
                                        "moe_apply_router_weight_on_input"};
    int rc = convert_refuse_true(f, parts, sizeof parts / sizeof *parts, e);
    if (rc)
        return rc;
    if (!json_bool(hf_get(f, "norm_topk_prob"), true))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has norm_topk_prob false: this checkpoint cannot be converted", f->path);
    if (j->layers > MAX_LAYERS)
        return err_set(e, ERR_UNSUPPORTED, "%s has %" PRId64 " layers; at most %d are supported",
                       f->path, j->layers, MAX_LAYERS);
    return hf_check_silu(f, e);
}

static int read_gating(const struct convert_job *j, bool *wide, struct err *e) {
    const struct json *v = hf_get(&j->config, "gating");
    const char *s = json_str(v, NULL);
    *wide = s && !strcmp(s, "per-element");
    if (!v || (json_kind_of(v) == JSON_BOOL && json_bool(v, false)) ||
        (s && (*wide || !strcmp(s, "per-head"))))
        return 0;
    return err_set(e, ERR_UNSUPPORTED,
                   "%s has another gating than true, per-head or per-element: this checkpoint "
                   "cannot be converted",
                   j->config.path);
}

static int read_layer(const struct convert_job *j, struct laguna *l, int64_t i, struct err *e) {
    const struct hf_file *f = &j->config;
    const struct json *heads = hf_get(f, "num_attention_heads_per_layer");
    bool windowed = false, dense = i == 0;
    int rc = convert_read_either(j, "layer_types", i, "sliding_attention", "full_attention",
                                 &windowed, e);
    if (!rc)
        rc = convert_read_either(j, "mlp_layer_types", i, "dense", "sparse", &dense, e);
    if (!rc)
        rc = convert_read_either(j, "gating_types", i, "per_element", "per_head", &l->wide[i], e);
    if (rc)
        return rc;
    if (dense && l->lead < i)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has a dense layer %" PRId64
                       " after one with experts: this checkpoint cannot be converted",
                       f->path, i);
    l->lead += dense;
    l->windowed[i] = windowed;
    int64_t n = heads ? json_int(json_at(heads, (size_t)i), 0) : j->heads;
    if (n < 1 || n > 4096 || (heads && (int64_t)json_len(heads) != j->layers))
        return err_set(e, ERR_FORMAT,
                       "num_attention_heads_per_layer in %s does not have %" PRId64
                       " numbers of heads: get the file again",
                       f->path, j->layers);
    l->heads[i] = (int32_t)n;
    return 0;
}

static int read_laguna_sizes(struct convert_job *j, struct laguna *l, struct err *e) {
    const struct hf_file *f = &j->config;
    bool wide;
    int rc = convert_read_sizes(j, true, e);
    if (!rc)
        rc = check_laguna(j, e);
    if (!rc)
        rc = convert_read_experts(j, "num_experts", "num_experts_per_tok", &l->used, e);
    if (!rc)
        rc = hf_int(f, "shared_expert_intermediate_size", 1, 1 << 24, -1, &j->dim[DIM_FS], e);
    if (!rc)
        rc = hf_int(f, "sliding_window", 0, INT32_MAX, 0, &l->window, e);
    if (!rc)
        rc = hf_float(f, "moe_routed_scaling_factor", 1, &l->scale, e);
    if (!rc)
        rc = read_gating(j, &wide, e);
    for (int64_t i = 0; !rc && i < j->layers; i++) {
        l->wide[i] = wide;
        rc = read_layer(j, l, i, e);
    }
    return rc;
}

// Layers of a kind: how much of a head turns, and by which base.
static int put_turn(struct convert_job *j, const struct convert_rope *r, const char *tail,
                    struct err *e) {
    char key[64];
    double base, part;
    int rc = convert_rope_number(j, r, "rope_theta", 0, &base, e);
    if (!rc)
        rc = convert_rope_number(j, r, "partial_rotary_factor", 1, &part, e);
    if (rc)
        return rc;
    int64_t turned = (int64_t)((double)j->dim[DIM_HD] * part);
    if (turned < 2 || turned % 2 || turned > j->dim[DIM_HD])
        return err_set(e, ERR_FORMAT,
                       "%s turns %" PRId64 " of %" PRId64 " head dimensions, which cannot be: get "
                       "the file again",
                       j->config.path, turned, j->dim[DIM_HD]);
    snprintf(key, sizeof key, "rope.dimension_count%s", tail);
    convert_put_u32(j, key, turned);
    snprintf(key, sizeof key, "rope.freq_base%s", tail);
    convert_put_f32(j, key, base);
    return 0;
}

static int put_laguna_rope(struct convert_job *j, bool windows, struct err *e) {
    const struct hf_file *f = &j->config;
    const struct convert_rope full = {{hf_get(f, "rope_parameters.full_attention"), NULL}};
    const struct convert_rope windowed = {{hf_get(f, "rope_parameters.sliding_attention"), NULL}};
    if ((!convert_rope_is(&full, "default") && !convert_rope_is(&full, "linear") &&
         !convert_rope_is(&full, "yarn")) ||
        !convert_rope_is(&windowed, "default"))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has a rope_type other than default and, in full layers, linear or yarn: "
                       "this checkpoint cannot be converted",
                       f->path);
    int rc = put_turn(j, &full, "", e);
    if (!rc)
        rc = convert_put_scaling(j, &full, true, e);
    return !rc && windows ? put_turn(j, &windowed, "_swa", e) : rc;
}

// Which layers have a window goes without saying where the first of each four is full.
static void put_window(struct convert_job *j, const struct laguna *l) {
    bool usual = true;
    for (int64_t i = 0; i < j->layers; i++)
        usual = usual && l->windowed[i] == (i % PERIOD != 0);
    convert_put_u32(j, "attention.sliding_window", l->window);
    if (!usual)
        convert_put_array(j, "attention.sliding_window_pattern", GGUF_BOOL, l->windowed,
                          (uint64_t)j->layers);
}

static int put_laguna_keys(struct convert_job *j, const struct laguna *l, struct err *e) {
    double cap = json_num(hf_get(&j->config, "moe_router_logit_softcapping"), 0);
    bool windows = memchr(l->windowed, 1, (size_t)j->layers);
    int rc = convert_put_sizes(j, 1e-6, e);
    if (!rc && windows && !l->window)
        rc =
            err_set(e, ERR_FORMAT, "%s lacks 'sliding_window': get the file again", j->config.path);
    if (rc)
        return rc;
    convert_put_array(j, "attention.head_count", GGUF_I32, l->heads, (uint64_t)j->layers);
    if (windows)
        put_window(j, l);
    convert_put_u32(j, "leading_dense_block_count", l->lead);
    convert_put_experts(j, l->used);
    convert_put_u32(j, "expert_shared_feed_forward_length", j->dim[DIM_FS]);
    convert_put_u32(j, "expert_gating_func", 2); // sigmoid
    convert_put_bool(j, "expert_weights_norm", true);
    convert_put_f32(j, "expert_weights_scale", l->scale);
    if (cap > 0)
        convert_put_f32(j, "router_logit_softcapping", cap);
    return put_laguna_rope(j, windows, e);
}

static int take_laguna_experts(struct convert_job *j, int i, struct err *e) {
    const struct tensor *t;
    int rc = convert_take(j, &convert_router, i, e);
    if (!rc)
        rc = convert_find(j, choice_bias.hf, i, &t, e);
    if (!rc)
        rc = convert_take(j, t ? &choice_bias : &convert_choice_bias, i, e);
    if (!rc)
        rc = convert_find(j, shared_expert[0].hf, i, &t, e);
    if (!rc)
        rc = convert_take_all(j, t ? shared_expert : convert_shared_expert, i, e);
    return rc ? rc : convert_take_experts(j, i, e);
}

static int take_laguna_layer(struct convert_job *j, const struct laguna *l, int i, struct err *e) {
    int64_t *d = j->dim;
    d[DIM_Q] = l->heads[i] * d[DIM_HD];
    d[DIM_G] = l->wide[i] ? d[DIM_Q] : l->heads[i];
    int rc = convert_take_all(j, convert_attention, i, e);
    if (!rc)
        rc = convert_take_all(j, convert_head_norms, i, e);
    if (!rc)
        rc = convert_take(j, &gate, i, e);
    if (!rc)
        rc = convert_take(j, &convert_ffn_norm, i, e);
    if (rc)
        return rc;
    return i < l->lead ? convert_take_all(j, convert_dense, i, e) : take_laguna_experts(j, i, e);
}

int convert_laguna(struct convert_job *j, struct err *e) {
    struct laguna l = {0};
    int rc = read_laguna_sizes(j, &l, e);
    if (rc)
        return rc;
    j->model = convert_model_of(j, false);
    convert_put_general(j);
    rc = put_laguna_keys(j, &l, e);
    if (!rc)
        rc = convert_take_all(j, convert_begin, -1, e);
    for (int i = 0; i < j->layers && !rc; i++)
        rc = take_laguna_layer(j, &l, i, e);
    return rc ? rc : convert_end(j, e);
}
