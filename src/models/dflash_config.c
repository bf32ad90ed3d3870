// SPDX-License-Identifier: Apache-2.0
// The authors' config.json beside model.safetensors. Values inside dflash_config win over those at
// the top; num_target_layers is the depth of the target, not the number of taps.
#include <math.h>
#include <string.h>

#include "models/dflash_impl.h"

enum { MAX_LAYERS = 128 };

static const struct json *find(const struct json *c, const char *key) {
    const struct json *v = json_get(json_get(c, "dflash_config"), key);
    return json_kind_of(v) != JSON_NULL ? v : json_get(c, key);
}

static int read_int(const struct json *c, const char *key, int64_t lo, int64_t hi,
                    int64_t otherwise, int64_t *out, struct err *e) {
    const struct json *v = find(c, key);
    *out = json_int(v, otherwise);
    if (json_kind_of(v) != JSON_NULL && json_kind_of(v) != JSON_INT)
        return err_set(e, ERR_FORMAT, "config.json: %s must be an integer", key);
    if (*out < lo || *out > hi)
        return err_set(e, ERR_FORMAT, "config.json: %s is %lld or missing; %lld to %lld is needed",
                       key, (long long)*out, (long long)lo, (long long)hi);
    return 0;
}

static int refuse_variants(const struct json *c, struct err *e) {
    static const char *const parts[] = {
        "conv_kernel_size",      "selector_rank",           "markov_rank",  "draft_vocab_size",
        "attention_value_scale", "final_logit_softcapping", "rope_scaling", "sample_from_anchor"};
    static const char *const factors[] = {"input_embedding_scale", "output_multiplier"};
    const char *arch = json_str(json_at(json_get(c, "architectures"), 0), NULL);
    if (arch && strcmp(arch, "DFlashDraftModel") != 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "config.json names a %.60s, which is not supported; use "
                       "a DFlashDraftModel",
                       arch);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const struct json *v = find(c, parts[i]);
        bool off = json_kind_of(v) == JSON_NULL ||
                   (json_kind_of(v) == JSON_BOOL && !json_bool(v, true)) ||
                   (json_kind_of(v) == JSON_INT && json_int(v, 1) == 0);
        if (!off)
            return err_set(e, ERR_UNSUPPORTED,
                           "config.json: %s is not supported; use a plain "
                           "DFlash draft",
                           parts[i]);
    }
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        if (json_num(find(c, factors[i]), 1) != 1)
            return err_set(e, ERR_UNSUPPORTED,
                           "config.json: %s must be 1; use a plain DFlash "
                           "draft",
                           factors[i]);
    }
    const struct json *type = json_get(json_get(c, "rope_parameters"), "rope_type");
    const char *name = json_str(type, NULL);
    if (name && strcmp(name, "default") != 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "config.json: rotary scaling %.40s is not supported; "
                       "use a draft without it",
                       name);
    return 0;
}

static int read_shape(struct dflash_params *p, const struct json *c, struct err *e) {
    int64_t layers = 0, heads = 0, kv = 0, hd = 0;
    int rc = read_int(c, "hidden_size", 32, 1 << 20, 0, &p->dim, e);
    if (!rc)
        rc = read_int(c, "intermediate_size", 32, 1 << 20, 0, &p->ffn, e);
    if (!rc)
        rc = read_int(c, "num_hidden_layers", 1, MAX_LAYERS, 0, &layers, e);
    if (!rc)
        rc = read_int(c, "num_attention_heads", 1, 4096, 0, &heads, e);
    if (!rc)
        rc = read_int(c, "num_key_value_heads", 1, 4096, heads, &kv, e);
    if (!rc)
        rc = read_int(c, "head_dim", 32, OPS_HEAD_MAX, heads ? p->dim / heads : 0, &hd, e);
    p->n_layers = (int)layers;
    p->n_heads = (int)heads;
    p->n_kv = (int)kv;
    p->head_dim = (int)hd;
    return rc;
}

static int read_floats(struct dflash_params *p, const struct json *c, struct err *e) {
    const struct json *theta = json_get(json_get(c, "rope_parameters"), "rope_theta");
    if (json_kind_of(theta) == JSON_NULL)
        theta = json_get(c, "rope_theta");
    p->rope_base = (float)json_num(theta, (double)p->rope_base);
    p->eps = (float)json_num(json_get(c, "rms_norm_eps"), 1e-6);
    if (!(p->rope_base > 0) || !isfinite(p->rope_base) || !(p->eps > 0) || !isfinite(p->eps))
        return err_set(e, ERR_FORMAT, "config.json: rope_theta and rms_norm_eps must be positive");
    return 0;
}

static int read_taps(struct dflash_params *p, const struct json *c, struct err *e) {
    const struct json *list = find(c, "target_layer_ids");
    size_t n = json_kind_of(list) == JSON_ARRAY ? json_len(list) : 0;
    if (n > DFLASH_MAX_TAPS)
        return err_set(e, ERR_UNSUPPORTED,
                       "config.json: target_layer_ids has %zu entries; at most "
                       "%d are possible",
                       n, DFLASH_MAX_TAPS);
    p->n_taps = (int)n;
    for (size_t i = 0; i < n; i++) {
        int64_t id = json_int(json_at(list, i), -1);
        p->taps[i] = id >= 0 && id < 4096 ? (int32_t)id : -1; // the fit check names it
    }
    return 0;
}

static int read_windows(struct dflash_params *p, const struct json *c, struct err *e) {
    const struct json *types = find(c, "layer_types");
    bool all = json_bool(find(c, "use_swa"), false);
    bool listed = json_kind_of(types) == JSON_ARRAY, any = all;
    if (listed && json_len(types) != (size_t)p->n_layers)
        return err_set(e, ERR_FORMAT, "config.json: layer_types has %zu entries for %d layers",
                       json_len(types), p->n_layers);
    for (int i = 0; i < p->n_layers; i++) {
        const char *s = listed ? json_str(json_at(types, (size_t)i), NULL) : NULL;
        p->layer_window[i] = all || (s && strcmp(s, "sliding_attention") == 0);
        any = any || p->layer_window[i];
        if (listed && (!s || (strcmp(s, "sliding_attention") && strcmp(s, "full_attention"))))
            return err_set(e, ERR_UNSUPPORTED,
                           "config.json: layer %d is of type %.40s; only "
                           "sliding_attention and full_attention are supported",
                           i, s ? s : "?");
    }
    p->window = 0;
    if (!any)
        return 0;
    const char *key = all && json_kind_of(find(c, "swa_window_size")) == JSON_INT
                          ? "swa_window_size"
                          : "sliding_window";
    return read_int(c, key, 1, (int64_t)1 << 31, 0, &p->window, e);
}

// is_causal at the top decides, then the two spellings inside.
static int read_causal(const struct json *c) {
    const struct json *in = json_get(c, "dflash_config");
    const struct json *list[] = {json_get(c, "is_causal"), json_get(in, "is_causal"),
                                 json_get(in, "causal")};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (json_kind_of(list[i]) == JSON_BOOL)
            return json_bool(list[i], false);
    }
    return -1;
}

int dflash_read_config(struct dflash_params *p, const struct dflash_file *f, int *causal,
                       struct err *e) {
    const struct json *c = f->config;
    int64_t block = 0;
    int rc = refuse_variants(c, e);
    if (!rc)
        rc = read_shape(p, c, e);
    if (!rc)
        rc = read_floats(p, c, e);
    if (!rc)
        rc = read_int(c, "block_size", 2, DFLASH_MAX_BLOCK, p->block_size, &block, e);
    if (!rc)
        rc = read_int(c, "mask_token_id", 0, 1 << 24, p->mask_id, &p->mask_id, e);
    if (!rc)
        rc = read_taps(p, c, e);
    if (!rc)
        rc = read_windows(p, c, e);
    p->block_size = (int)block;
    *causal = read_causal(c);
    return rc;
}
