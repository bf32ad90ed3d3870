// SPDX-License-Identifier: Apache-2.0
// What DFlash drafts of some targets have beside the plain form, as GGUF files have it: rotary
// scaling (Kimi K2.5, gpt-oss, Llama 3), factors of embeddings and logits (Gemma 4), biases and
// sinks, and what Laguna's have: gates, a norm for each tap, one matrix of queries, keys and
// values.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "convert/families/rules.h"

static bool is_laguna(const struct convert_job *j) {
    const struct json *list = json_get(j->config.root, "architectures");
    const char *s = json_str(json_at(list, 0), NULL);
    return s && !strcmp(s, "DFlashLagunaForCausalLM");
}

// Settings of a kind of layer where kinds have their own, else of all.
static struct convert_rope rope_of(const struct convert_job *j) {
    const struct hf_file *f = &j->config;
    const char *first = json_str(json_at(hf_get(f, "layer_types"), 0), NULL);
    bool windowed = first && !strcmp(first, "sliding_attention");
    struct convert_rope r = convert_rope_of(j);
    const struct json *kind = hf_get(f, windowed ? "rope_parameters.sliding_attention"
                                                 : "rope_parameters.full_attention");
    kind = kind ? kind : hf_get(f, "rope_parameters.full_attention");
    if (windowed && hf_get(f, "swa_rope_parameters"))
        kind = hf_get(f, "swa_rope_parameters");
    r.place[0] = kind ? kind : r.place[0];
    return r;
}

static int put_rope(struct convert_job *j, struct err *e) {
    const struct hf_file *f = &j->config;
    const struct convert_rope r = rope_of(j);
    double base = json_num(hf_get(f, "rope_theta"), 0), part;
    double whole = json_num(hf_get(f, "partial_rotary_factor"), 1);
    bool bands = convert_rope_is(&r, "llama3"), yarn = convert_rope_is(&r, "yarn");
    if (!bands && !yarn && !convert_rope_is(&r, "default") && !convert_rope_is(&r, "linear"))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has a rope_type other than default, linear, yarn or llama3: this draft "
                       "cannot be converted",
                       f->path);
    int rc = convert_rope_number(j, &r, "rope_theta", base, &base, e);
    if (!rc)
        rc = convert_rope_number(j, &r, "partial_rotary_factor", whole, &part, e);
    if (rc)
        return rc;
    int64_t turned = (int64_t)((double)j->dim[DIM_HD] * part);
    if (turned < 2 || turned % 2 || turned > j->dim[DIM_HD] || (bands && turned != j->dim[DIM_HD]))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s turns %" PRId64 " of %" PRId64 " head dimensions: this draft cannot be "
                       "converted",
                       f->path, turned, j->dim[DIM_HD]);
    convert_put_f32(j, "rope.freq_base", base);
    if (turned != j->dim[DIM_HD])
        convert_put_u32(j, "rope.dimension_count", turned);
    if (yarn && !json_bool(convert_rope_get(&r, "truncate"), true))
        convert_put_bool(j, "rope.scaling.yarn_truncate", false);
    rc = convert_put_scaling(j, &r, e);
    return !rc && bands ? convert_add_bands(j, base, e) : rc;
}

// Keys that are absent where a factor is 1, or the target's own.
static int put_factors(struct convert_job *j, struct err *e) {
    const struct hf_file *f = &j->config;
    static const struct {
        const char *hf, *key;
        double neutral;
    } list[] = {{"input_embedding_scale", NULL, 1},
                {"output_multiplier", "logit_scale", 1},
                {"final_logit_softcapping", "final_logit_softcapping", 0}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char nested[64];
        snprintf(nested, sizeof nested, "dflash_config.%s", list[i].hf);
        const struct json *v = hf_get(f, nested);
        v = v ? v : hf_get(f, list[i].hf);
        double value = json_num(v, list[i].neutral);
        if (value == list[i].neutral)
            continue;
        if (!(value > 0) || !list[i].key) // the target's factor, which a file's takes the place of
            return err_set(e, ERR_UNSUPPORTED,
                           "%s has %s %g: this draft cannot be converted, use its safetensors",
                           f->path, list[i].hf, value);
        convert_put_f32(j, list[i].key, value);
    }
    return 0;
}

int convert_draft_keys(struct convert_job *j, struct err *e) {
    if (is_laguna(j))
        convert_put_str(j, "decoder_arch", "laguna");
    int rc = hf_check_silu(&j->config, e);
    if (!rc)
        rc = put_rope(j, e);
    return rc ? rc : put_factors(j, e);
}

// One tensor of a row for each tap.
static int take_tap_norms(struct convert_job *j, int64_t taps, struct err *e) {
    struct convert_item item = {.name = "enc.aux_norm.weight",
                                .n_parts = (int)taps,
                                .n_dims = 2,
                                .ne = {j->dim[DIM_D], taps, 1, 1}};
    const struct tensor **parts = arena_array(&j->plan.arena, (size_t)taps, sizeof *parts);
    if (!parts)
        return err_set(e, ERR_MEMORY, "not enough memory for the list of tensors");
    for (int i = 0; i < taps; i++) {
        char hf[64];
        snprintf(hf, sizeof hf, "aux_hidden_norms.%d.weight", i);
        int rc = convert_find(j, hf, -1, &parts[i], e);
        if (!rc && !parts[i])
            rc = convert_missing(j, hf, -1, e);
        if (!rc)
            rc = convert_check_shape(parts[i], item.ne, 1, e);
        if (!rc && parts[i]->type != parts[0]->type)
            rc = err_set(e, ERR_UNSUPPORTED,
                         "tensor '%s' has another type than that of the first tap: use the "
                         "original checkpoint",
                         parts[i]->name);
        if (rc)
            return rc;
    }
    item.src = parts[0];
    item.parts = parts;
    return convert_add(j, &item, e);
}

// Queries, keys and values, which lie one below the other.
static int take_fused(struct convert_job *j, const struct tensor *t, int layer, struct err *e) {
    static const char *const names[] = {"attn_q", "attn_k", "attn_v"};
    const int64_t d = j->dim[DIM_D], rows[] = {j->dim[DIM_Q], j->dim[DIM_KV], j->dim[DIM_KV]};
    const int64_t all[] = {d, rows[0] + rows[1] + rows[2]};
    int64_t first = 0;
    int rc = convert_check_shape(t, all, 2, e);
    for (int i = 0; !rc && i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer, names[i]);
        struct convert_item item = {.src = t,
                                    .name = name,
                                    .n_dims = 2,
                                    .ne = {d, rows[i], 1, 1},
                                    .cut = {rows[i] * d, all[1] * d, first * d}};
        rc = convert_add(j, &item, e);
        first += rows[i];
    }
    return rc;
}

static int take_gate(struct convert_job *j, int layer, struct err *e) {
    static const struct convert_rule gate = {
        "self_attn.g_proj.weight", "attn_gate.weight", {DIM_D, DIM_G}, OP_NONE, 0};
    const struct tensor *t;
    int rc = convert_find(j, gate.hf, layer, &t, e);
    if (rc || !t)
        return rc;
    j->dim[DIM_G] = t->ne[1] == j->heads ? j->heads : j->dim[DIM_Q];
    return convert_take(j, &gate, layer, e);
}

static int take_layer(struct convert_job *j, int layer, struct err *e) {
    static const struct convert_rule whole[] = {
        {"self_attn.q_proj.weight", "attn_q.weight", {DIM_D, DIM_Q}, OP_NONE, 0},
        {"self_attn.k_proj.weight", "attn_k.weight", {DIM_D, DIM_KV}, OP_NONE, 0},
        {"self_attn.v_proj.weight", "attn_v.weight", {DIM_D, DIM_KV}, OP_NONE, 0},
        {0},
    };
    static const struct convert_rule extra[] = {
        {"self_attn.q_proj.bias", "attn_q.bias", {DIM_Q}, OP_NONE, 0},
        {"self_attn.k_proj.bias", "attn_k.bias", {DIM_KV}, OP_NONE, 0},
        {"self_attn.v_proj.bias", "attn_v.bias", {DIM_KV}, OP_NONE, 0},
        {"self_attn.o_proj.bias", "attn_output.bias", {DIM_D}, OP_NONE, 0},
        {"self_attn.attention_sink_bias", "attn_sinks.weight", {DIM_NV}, OP_NONE, 0},
        {0},
    };
    const struct tensor *t;
    const bool biased = json_bool(hf_get(&j->config, "attention_bias"), false);
    int rc = convert_find(j, "self_attn.qkv_proj.weight", layer, &t, e);
    if (!rc)
        rc = t ? take_fused(j, t, layer, e) : convert_take_all(j, whole, layer, e);
    if (!rc)
        rc = take_gate(j, layer, e);
    j->dim[DIM_NV] = j->heads;
    for (const struct convert_rule *r = extra; !rc && r->hf; r++) {
        rc = convert_find(j, r->hf, layer, &t, e);
        bool named = biased && strstr(r->hf, "_proj.bias");
        if (!rc && (t || named))
            rc = convert_take(j, r, layer, e);
    }
    return rc;
}

int convert_draft_tensors(struct convert_job *j, int layer, int64_t taps, struct err *e) {
    const struct tensor *t;
    if (layer >= 0)
        return take_layer(j, layer, e);
    int rc = convert_find(j, "aux_hidden_norms.0.weight", -1, &t, e);
    return rc || !t ? rc : take_tap_norms(j, taps, e);
}
