// SPDX-License-Identifier: Apache-2.0
// Settings of a DFlash draft in the authors' config.json next to model.safetensors. Values inside
// dflash_config win over those at the top; num_target_layers is the depth of the target, not the
// number of taps. In folders of speculators what describes a layer stands apart.
#include <string.h>

#include "models/draft/config.h"
#include "models/draft/dflash/impl.h"

static const struct json *config_layer(const struct json *c) {
    const struct json *v = json_get(c, "transformer_layer_config");
    return json_kind_of(v) == JSON_OBJECT ? v : NULL;
}

static bool is_laguna(const struct json *c) {
    const char *arch = json_str(json_at(json_get(c, "architectures"), 0), NULL);
    return arch && strcmp(arch, "DFlashLagunaForCausalLM") == 0;
}

static int refuse_variants(const struct json *c, struct err *e) {
    static const char *const known[] = {
        "DFlashSpeculator", "DFlashDraftModel", "DFlash2DraftModel",     "Qwen3DSparkModel",
        "DSparkSpeculator", "DSparkDraftModel", "Qwen3DSparkForCausalLM"};
    const struct json *value = dflash_config_find(c, "attention_value_scale");
    const char *arch = json_str(json_at(json_get(c, "architectures"), 0), NULL);
    const char *kind = json_str(json_get(c, "speculators_model_type"), NULL);
    const char *act = json_str(dflash_config_find(c, "hidden_act"), NULL);
    if (kind && strcmp(kind, "dflash") != 0 && strcmp(kind, "dspark") != 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "config.json: speculators_model_type %.60s is not supported; dflash and "
                       "dspark are",
                       kind);
    bool named = !arch || is_laguna(c);
    for (size_t i = 0; arch && i < sizeof known / sizeof *known; i++)
        named |= strcmp(arch, known[i]) == 0;
    if (!named)
        return err_set(e, ERR_UNSUPPORTED,
                       "config.json names a %.60s, which is not supported; use a DFlashDraftModel, "
                       "a DFlash2DraftModel or a Qwen3DSparkModel",
                       arch);
    if (!json_bool(dflash_config_find(c, "is_neox_style"), true))
        return err_set(e, ERR_UNSUPPORTED,
                       "config.json: is_neox_style false is not supported; use a draft whose heads "
                       "turn by halves");
    if (json_kind_of(value) != JSON_NULL && json_num(value, -1) != 0 && json_bool(value, true))
        return err_set(e, ERR_UNSUPPORTED,
                       "config.json: attention_value_scale is not supported; use a plain DFlash "
                       "draft");
    if (act && strcmp(act, "silu") != 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "config.json: hidden_act %.40s is not supported; silu is", act);
    return 0;
}

static int config_shape(struct dflash_params *p, const struct json *c, struct err *e) {
    int64_t layers = 0, heads = 0, kv = 0, hd = 0;
    int rc = dflash_config_int(c, "hidden_size", 32, 1 << 20, 0, &p->dim, e);
    if (!rc)
        rc = dflash_config_int(c, "intermediate_size", 32, 1 << 20, 0, &p->ffn, e);
    if (!rc)
        rc = dflash_config_int(c, "num_hidden_layers", 1, DFLASH_MAX_LAYERS, 0, &layers, e);
    if (!rc)
        rc = dflash_config_int(c, "num_attention_heads", 1, 4096, 0, &heads, e);
    if (!rc)
        rc = dflash_config_int(c, "num_key_value_heads", 1, 4096, heads, &kv, e);
    if (!rc)
        rc = dflash_config_int(c, "head_dim", 32, OPS_HEAD_MAX, heads ? p->dim / heads : 0, &hd, e);
    p->n_layers = (int)layers;
    p->n_heads = (int)heads;
    p->n_kv = (int)kv;
    p->head_dim = (int)hd;
    return rc;
}

// Factors besides the target's own.
static int config_floats(struct dflash_params *p, const struct json *c, struct err *e) {
    const struct json *cap = dflash_config_find(c, "final_logit_softcapping");
    float scale = 1;
    int rc = draft_config_positive(dflash_config_find(c, "rms_norm_eps"), "rms_norm_eps", 1e-6,
                                   &p->eps, e);
    if (!rc)
        rc = draft_config_positive(dflash_config_find(c, "input_embedding_scale"),
                                   "input_embedding_scale", 1, &scale, e);
    if (!rc)
        rc = draft_config_positive(dflash_config_find(c, "output_multiplier"), "output_multiplier",
                                   1, &p->logit_scale, e);
    if (!rc && json_num(cap, 0) != 0)
        rc = draft_config_positive(cap, "final_logit_softcapping", 1, &p->logit_cap, e);
    p->embed_scale *= scale;
    return rc;
}

static int config_parts(struct dflash_params *p, const struct json *c, struct err *e) {
    int64_t part[4];
    int rc = 0;
    for (int i = 0; !rc && i < 4; i++)
        rc = dflash_config_int(c, dflash_parts[i].key, 0, dflash_parts[i].max, 0, &part[i], e);
    return rc ? rc : dflash_take_parts(p, part, e);
}

// target_layer_ids are numbers of outputs; what speculators list are layers whose input is read.
static int config_taps(struct dflash_params *p, const struct json *c, struct err *e) {
    const struct json *list = dflash_config_find(c, "target_layer_ids");
    const bool inputs = json_kind_of(list) == JSON_NULL;
    list = inputs ? json_get(c, "aux_hidden_state_layer_ids") : list;
    size_t n = json_kind_of(list) == JSON_ARRAY ? json_len(list) : 0;
    if (n > DFLASH_MAX_TAPS)
        return err_set(
            e, ERR_UNSUPPORTED, "config.json: %s has %zu entries; at most %d are possible",
            inputs ? "aux_hidden_state_layer_ids" : "target_layer_ids", n, DFLASH_MAX_TAPS);
    p->n_taps = (int)n;
    for (size_t i = 0; i < n; i++) {
        int64_t id = json_int(json_at(list, i), -1) - inputs;
        p->taps[i] = id >= 0 && id < 4096 ? (int32_t)id : -1; // the fit check names it
    }
    return 0;
}

// Where all layers have a window without being listed so, they see the whole block all the same: it
// is the list that makes layers causal. *causal as of config_causal.
static int config_windows(struct dflash_params *p, const struct json *c, int *causal,
                          struct err *e) {
    const struct json *types = dflash_config_find(c, "layer_types");
    bool listed = json_kind_of(types) == JSON_ARRAY, any = false;
    const bool wanted = json_bool(dflash_config_find(c, "use_sliding_window"), true);
    if (listed && json_len(types) != (size_t)p->n_layers)
        return err_set(e, ERR_FORMAT, "config.json: layer_types has %zu entries for %d layers",
                       json_len(types), p->n_layers);
    for (int i = 0; i < p->n_layers; i++) {
        const char *s = listed ? json_str(json_at(types, (size_t)i), NULL) : NULL;
        p->layer_window[i] = wanted && s && strcmp(s, "sliding_attention") == 0;
        any = any || p->layer_window[i];
        if (listed && (!s || (strcmp(s, "sliding_attention") && strcmp(s, "full_attention"))))
            return err_set(e, ERR_UNSUPPORTED,
                           "config.json: layer %d is of type %.40s; only "
                           "sliding_attention and full_attention are supported",
                           i, s ? s : "?");
    }
    const bool all = !any && json_bool(dflash_config_find(c, "use_swa"), false);
    for (int i = 0; all && i < p->n_layers; i++)
        p->layer_window[i] = 1;
    if (all && *causal < 0)
        *causal = 0;
    p->window = 0;
    if (!any && !all)
        return 0;
    const char *own = "swa_window_size";
    return dflash_config_int(
        c, json_kind_of(dflash_config_find(c, own)) == JSON_INT ? own : "sliding_window", 1,
        (int64_t)1 << 31, 0, &p->window, e);
}

// is_causal at the top decides, then the three spellings inside (JetSpec's is the last).
static int config_causal(const struct json *c) {
    const struct json *in = json_get(c, "dflash_config");
    const struct json *list[] = {json_get(c, "is_causal"), json_get(in, "is_causal"),
                                 json_get(in, "causal"), json_get(in, "causal_head")};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (json_kind_of(list[i]) == JSON_BOOL)
            return json_bool(list[i], false);
    }
    return json_bool(json_get(c, "sliding_window_non_causal"), false) ? 0 : -1;
}

// Drafts that speculators trained read embeddings as they lie in the file and cap no logits,
// whatever the target does.
static void config_speculators(struct dflash_params *p, const struct json *c) {
    if (!config_layer(c))
        return;
    p->rope.base = 10000;
    p->embed_scale = 1;
    p->logit_cap = 0;
}

int dflash_read_config(struct dflash_params *p, const struct draft_file *f, int *causal,
                       struct err *e) {
    const struct json *c = f->config;
    int64_t block = 0;
    p->norms_context = is_laguna(c);
    config_speculators(p, c);
    int rc = refuse_variants(c, e);
    if (!rc)
        rc = config_shape(p, c, e);
    if (!rc)
        rc = config_floats(p, c, e);
    if (!rc)
        rc = config_parts(p, c, e);
    if (!rc)
        rc = dflash_dspark_config(p, c, e);
    if (!rc)
        rc = dflash_domino_config(p, c, e);
    if (!rc)
        rc = dflash_config_int(c, "block_size", 2, DFLASH_MAX_BLOCK, p->block_size, &block, e);
    if (!rc)
        rc = dflash_config_int(c, "mask_token_id", 0, 1 << 24, p->mask_id, &p->mask_id, e);
    if (!rc)
        rc = config_taps(p, c, e);
    *causal = config_causal(c);
    if (!rc)
        rc = config_windows(p, c, causal, e);
    if (!rc)
        rc = draft_config_rope(&p->rope, p->rope_divisors, p->head_dim, p->layer_window[0],
                               config_layer(c) ? config_layer(c) : c, e);
    if (!rc)
        rc = dflash_config_int(c, "draft_vocab_size", 0, 1 << 24, 0, &p->head_rows, e);
    if (p->head_rows == json_int(dflash_config_find(c, "vocab_size"), 0))
        p->head_rows = 0;
    p->block_size = (int)block;
    return rc;
}
