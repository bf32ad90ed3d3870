// SPDX-License-Identifier: Apache-2.0
// The authors' config.json beside model.safetensors. Values inside dflash_config win over those at
// the top; num_target_layers is the depth of the target, not the number of taps.
#include <math.h>
#include <string.h>

#include "models/draft/impl.h"

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

static bool is_laguna(const struct json *c) {
    const char *arch = json_str(json_at(json_get(c, "architectures"), 0), NULL);
    return arch && strcmp(arch, "DFlashLagunaForCausalLM") == 0;
}

static int refuse_variants(const struct json *c, struct err *e) {
    static const char *const parts[] = {"conv_kernel_size", "selector_rank", "markov_rank",
                                        "attention_value_scale", "sample_from_anchor"};
    const char *arch = json_str(json_at(json_get(c, "architectures"), 0), NULL);
    const char *act = json_str(json_get(c, "hidden_act"), NULL);
    const struct json *vocab = json_get(c, "draft_vocab_size");
    if (arch && strcmp(arch, "DFlashDraftModel") != 0 && !is_laguna(c))
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
    if (json_kind_of(vocab) != JSON_NULL &&
        json_int(vocab, -1) != json_int(json_get(c, "vocab_size"), -2))
        return err_set(e, ERR_UNSUPPORTED,
                       "config.json: a draft_vocab_size other than vocab_size is not supported; "
                       "use a draft that knows all tokens");
    if (act && strcmp(act, "silu") != 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "config.json: hidden_act %.40s is not supported; silu is", act);
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

static int positive(const struct json *v, const char *key, double otherwise, float *out,
                    struct err *e) {
    *out = (float)json_num(v, json_kind_of(v) == JSON_NULL ? otherwise : -1);
    if (*out > 0 && isfinite(*out))
        return 0;
    return err_set(e, ERR_FORMAT, "config.json: %s must be a positive number", key);
}

// Factors beside the target's own.
static int read_floats(struct dflash_params *p, const struct json *c, struct err *e) {
    const struct json *cap = find(c, "final_logit_softcapping");
    float scale = 1;
    int rc = positive(json_get(c, "rms_norm_eps"), "rms_norm_eps", 1e-6, &p->eps, e);
    if (!rc)
        rc = positive(find(c, "input_embedding_scale"), "input_embedding_scale", 1, &scale, e);
    if (!rc)
        rc = positive(find(c, "output_multiplier"), "output_multiplier", 1, &p->logit_scale, e);
    if (!rc && json_num(cap, 0) != 0)
        rc = positive(cap, "final_logit_softcapping", 1, &p->logit_cap, e);
    p->embed_scale *= scale;
    return rc;
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

// Rotary settings: in rope_parameters, of kinds of layers apart or together, or in rope_scaling.
// Layers have one kind of rotary embedding here.
struct rotary {
    const struct json *own, *other, *top;
};

static struct rotary rotary_of(const struct dflash_params *p, const struct json *c) {
    const struct json *all = json_get(c, "rope_parameters"),
                      *swa = json_get(c, "swa_rope_parameters");
    const struct json *kind =
        json_get(all, p->layer_window[0] ? "sliding_attention" : "full_attention");
    kind = kind ? kind : json_get(all, "full_attention");
    if (p->layer_window[0] && json_kind_of(swa) == JSON_OBJECT)
        kind = swa;
    return (struct rotary){kind ? kind : all, json_get(c, "rope_scaling"), c};
}

static const struct json *rotary_get(const struct rotary *r, const char *key) {
    const struct json *v = json_get(r->own, key);
    v = json_kind_of(v) != JSON_NULL ? v : json_get(r->other, key);
    return json_kind_of(v) != JSON_NULL ? v : json_get(r->top, key);
}

// The magnitude is 1 + 0.1 ln(factor) even where mscale and mscale_all_dim are equal, as with Kimi
// K2.5's draft, which guesses better so; attention_factor wins.
static int read_yarn(struct rope *r, const struct rotary *k, struct err *e) {
    const double own = 1 + 0.1 * log((double)r->factor);
    float trained = 0;
    int rc = positive(rotary_get(k, "original_max_position_embeddings"),
                      "original_max_position_embeddings", 0, &trained, e);
    if (!rc)
        rc = positive(rotary_get(k, "beta_fast"), "beta_fast", 32, &r->beta_fast, e);
    if (!rc)
        rc = positive(rotary_get(k, "beta_slow"), "beta_slow", 1, &r->beta_slow, e);
    if (!rc)
        rc = positive(rotary_get(k, "attention_factor"), "attention_factor", own, &r->magnitude, e);
    if (!rc && (trained < 1 || trained > 2e9f))
        rc = err_set(e, ERR_FORMAT, "config.json: original_max_position_embeddings of %g cannot be",
                     (double)trained);
    r->trained = rc ? 0 : (int64_t)trained;
    r->ramp = 1;
    r->exact_ramp = !json_bool(rotary_get(k, "truncate"), true);
    return rc;
}

// Long waves are divided by the factor, short ones stay, those between blend.
static int read_bands(struct dflash_params *p, const struct rotary *k, struct err *e) {
    static const double pi = 3.14159265358979323846;
    float low, high, trained, factor = p->rope.factor;
    int rc = positive(rotary_get(k, "low_freq_factor"), "low_freq_factor", 1, &low, e);
    if (!rc)
        rc = positive(rotary_get(k, "high_freq_factor"), "high_freq_factor", 4, &high, e);
    if (!rc)
        rc = positive(rotary_get(k, "original_max_position_embeddings"),
                      "original_max_position_embeddings", 8192, &trained, e);
    if (!rc && high <= low)
        rc = err_set(e, ERR_FORMAT, "config.json: high_freq_factor is not above low_freq_factor");
    for (int i = 0; !rc && i < p->rope.dims / 2; i++) {
        double wave = 2 * pi * pow((double)p->rope.base, 2.0 * i / p->rope.dims);
        double at = ((double)trained / wave - (double)low) / (double)(high - low);
        at = fmin(fmax(at, 0), 1);
        p->rope_divisors[i] = (float)(1 / ((1 - at) / (double)factor + at));
    }
    p->rope.factor = 0;
    return rc;
}

static int read_rope(struct dflash_params *p, const struct json *c, struct err *e) {
    const struct rotary k = rotary_of(p, c);
    struct rope *r = &p->rope;
    const struct json *theta = rotary_get(&k, "rope_theta");
    const char *type = json_str(rotary_get(&k, "rope_type"), NULL);
    float part = 1;
    type = type ? type : json_str(json_get(k.other, "type"), NULL);
    int rc = positive(theta, "rope_theta", (double)r->base, &r->base, e);
    if (!rc)
        rc =
            positive(rotary_get(&k, "partial_rotary_factor"), "partial_rotary_factor", 1, &part, e);
    r->dims = part <= 1 ? (int)((float)p->head_dim * part) : 0;
    if (!rc && (r->dims < 2 || r->dims % 2))
        rc = err_set(e, ERR_FORMAT, "config.json: a partial_rotary_factor of %g cannot be",
                     (double)part);
    if (rc || !type || strcmp(type, "default") == 0)
        return rc;
    bool yarn = strcmp(type, "yarn") == 0, bands = strcmp(type, "llama3") == 0;
    if (!yarn && !bands && strcmp(type, "linear") != 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "config.json: rotary scaling %.40s is not supported; yarn, linear and "
                       "llama3 are",
                       type);
    rc = positive(rotary_get(&k, "factor"), "factor", 0, &r->factor, e);
    if (rc)
        return rc;
    return yarn ? read_yarn(r, &k, e) : bands ? read_bands(p, &k, e) : 0;
}

int dflash_read_config(struct dflash_params *p, const struct dflash_file *f, int *causal,
                       struct err *e) {
    const struct json *c = f->config;
    int64_t block = 0;
    p->norms_context = is_laguna(c);
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
    if (!rc)
        rc = read_rope(p, c, e);
    p->block_size = (int)block;
    *causal = read_causal(c);
    return rc;
}
