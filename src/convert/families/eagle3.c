// SPDX-License-Identifier: Apache-2.0
// EAGLE-3 drafts: a folder of the authors', SGLang's or speculators' form to the GGUF architecture
// `eagle3` as llama.cpp has it. Tapped layers are written as those whose input is read; d2t, which
// has how much each token is above its row, as tokens; halves of heads that turn become pairs.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "convert/families/rules.h"
#include "formats/quant/quant.h"

enum { MAX_TAPS = 8, DIM_ROWS = DIM_C }; // rows of the head

static const struct convert_rule eagle3_rules[] = {
    {"input_layernorm.weight", "attn_norm.weight", .dims = {DIM_D}},
    {"hidden_norm.weight", "attn_norm_2.weight", .dims = {DIM_D}},
    {"self_attn.q_proj.weight", "attn_q.weight", {DIM_2D, DIM_Q}, OP_NONE, HEADS_PAIRS},
    {"self_attn.k_proj.weight", "attn_k.weight", {DIM_2D, DIM_KV}, OP_NONE, HEADS_PAIRS},
    {"self_attn.v_proj.weight", "attn_v.weight", .dims = {DIM_2D, DIM_KV}},
    {"self_attn.o_proj.weight", "attn_output.weight", .dims = {DIM_Q, DIM_D}},
    {"post_attention_layernorm.weight", "ffn_norm.weight", .dims = {DIM_D}},
    {"mlp.gate_proj.weight", "ffn_gate.weight", .dims = {DIM_D, DIM_F}},
    {"mlp.up_proj.weight", "ffn_up.weight", .dims = {DIM_D, DIM_F}},
    {"mlp.down_proj.weight", "ffn_down.weight", .dims = {DIM_F, DIM_D}},
    {0},
};
static const struct convert_rule eagle3_biases[] = {
    {"self_attn.q_proj.bias", "attn_q.bias", .dims = {DIM_Q}, .heads = HEADS_PAIRS},
    {"self_attn.k_proj.bias", "attn_k.bias", .dims = {DIM_KV}, .heads = HEADS_PAIRS},
    {"self_attn.v_proj.bias", "attn_v.bias", .dims = {DIM_KV}},
    {"self_attn.o_proj.bias", "attn_output.bias", .dims = {DIM_D}},
    {0},
};
static const struct convert_rule eagle3_globals[] = {
    {"fc.weight", "fc.weight", .dims = {DIM_TAPS, DIM_D}},
    {"norm.weight", "output_norm.weight", .dims = {DIM_D}},
    {0},
};
static const struct convert_rule eagle3_optional[] = {
    {"input_norm.weight", "enc.output_norm.weight", .dims = {DIM_TAPS}},
    {"lm_head.weight", "output.weight", .dims = {DIM_D, DIM_ROWS}},
    {"embed_tokens.weight", "token_embd.weight", .dims = {DIM_D, DIM_V}},
    {0},
};

// At the top or in eagle_config.
static const struct json *get(const struct convert_job *j, const char *key) {
    char nested[96];
    snprintf(nested, sizeof nested, "eagle_config.%s", key);
    const struct json *v = hf_get(&j->config, key);
    return v ? v : hf_get(&j->config, nested);
}

static int check_form(const struct convert_job *j, struct err *e) {
    const struct json *types = hf_get(&j->config, "layer_types");
    const char *what = NULL;
    if (j->layers != 1)
        what = "several layers";
    else if (json_bool(get(j, "fc_norm"), false))
        what = "'fc_norm'";
    else if (types && !hf_is(json_at(types, 0), "full_attention"))
        what = "a layer other than full_attention";
    if (what)
        return err_set(e, ERR_UNSUPPORTED, "%s has %s: this draft cannot be converted",
                       j->config.path, what);
    return hf_check_silu(&j->config, e);
}

static int put_taps(struct convert_job *j, int64_t layers, struct err *e) {
    const struct json *list = get(j, "eagle_aux_hidden_state_layer_ids");
    int32_t taps[MAX_TAPS] = {2, (int32_t)(layers / 2), (int32_t)(layers - 3)};
    const size_t n = list ? json_len(list) : 3;
    const int more = json_int(json_at(list, 0), 0) == 1; // outputs of layers
    if (!list && layers < 0)
        return err_set(e, ERR_USAGE,
                       "%s does not list the layers that the draft reads: name its target with "
                       "--target-dir",
                       j->config.path);
    if (n < 1 || n > MAX_TAPS)
        return err_set(e, ERR_FORMAT,
                       "eagle_aux_hidden_state_layer_ids in %s lists %zu layers, not 1 to %d: get "
                       "the file again",
                       j->config.path, n, MAX_TAPS);
    for (size_t i = 0; i < n; i++) {
        const int64_t id = list ? json_int(json_at(list, i), -1) : taps[i];
        const int64_t input = id < 0 || id > 4096 ? 0 : id + (list ? more : 0);
        if (input < 1 || (layers >= 0 && input > layers))
            return err_set(e, ERR_MISMATCH,
                           "the draft reads the input of layer %" PRId64
                           " of a target with %" PRId64
                           " layers (%s): give a draft made for its target",
                           input, layers, j->config.path);
        taps[i] = (int32_t)input;
    }
    j->dim[DIM_TAPS] *= (int64_t)n;
    convert_put_array(j, "target_layers", GGUF_I32, taps, n);
    return 0;
}

// The layer's tensors have one of two names.
static int take_layer(struct convert_job *j, const struct convert_rule *rules, bool all,
                      struct err *e) {
    const struct tensor *t;
    int rc = convert_find(j, "midlayer.hidden_norm.weight", -1, &t, e);
    const char *place = t ? "midlayer" : "layers.0";
    for (const struct convert_rule *r = rules; !rc && r->hf; r++) {
        char hf[96], gguf[96];
        struct convert_rule named = *r;
        snprintf(hf, sizeof hf, "%s.%s", place, r->hf);
        snprintf(gguf, sizeof gguf, "blk.0.%s", r->gguf);
        named.hf = hf;
        named.gguf = gguf;
        rc = all ? convert_take(j, &named, -1, e) : convert_take_present(j, &named, e);
    }
    return rc;
}

static int take_tensors(struct convert_job *j, struct err *e) {
    int rc = convert_take_tokens(j, &j->dim[DIM_ROWS], e);
    if (!rc)
        rc = convert_take_all(j, eagle3_globals, -1, e);
    for (const struct convert_rule *r = eagle3_optional; !rc && r->hf; r++)
        rc = convert_take_present(j, r, e);
    if (!rc)
        rc = take_layer(j, eagle3_rules, true, e);
    return rc ? rc : take_layer(j, eagle3_biases, false, e);
}

static int put_keys(struct convert_job *j, bool nested, struct err *e) {
    static const char *const flags[] = {"norm_before_residual", "norm_before_fc", "norm_output"};
    int rc = convert_put_sizes(j, 1e-6, e);
    convert_put_u32(j, "attention.head_count", j->heads);
    for (int i = 0; i < 3; i++)
        if (json_bool(get(j, flags[i]), nested && i == 0))
            convert_put_bool(j, flags[i], true);
    return rc ? rc : convert_put_draft_rope(j, true, e);
}

int convert_eagle3(struct convert_job *j, struct err *e) {
    const struct json *layer = json_get(j->config.root, "transformer_layer_config");
    const bool nested = json_kind_of(layer) == JSON_OBJECT;
    struct convert_fit fit = {.layers = -1};
    if (nested)
        j->config.text = layer;
    int rc = convert_read_sizes(j, true, e);
    if (!rc)
        rc = check_form(j, e);
    if (!rc)
        rc = hf_int(&j->config, "target_hidden_size", 1, 1 << 20, j->dim[DIM_D], &fit.width, e);
    if (rc)
        return rc;
    j->dim[DIM_2D] = 2 * j->dim[DIM_D];
    j->dim[DIM_TAPS] = fit.width;
    j->dim[DIM_ROWS] = j->dim[DIM_V];
    j->model = (struct convert_model){
        .recipe = j->options->recipe, .layers = 1, .shared = j->heads >= 4 * j->kv_heads};
    convert_put_general(j);
    rc = put_keys(j, nested, e);
    convert_put_u32(j, "target_hidden_size", fit.width);
    if (!rc)
        rc = convert_fit_target(j, &fit, e);
    if (!rc)
        rc = put_taps(j, fit.layers, e);
    return rc ? rc : take_tensors(j, e);
}
