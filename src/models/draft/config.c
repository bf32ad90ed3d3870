// SPDX-License-Identifier: Apache-2.0
// What files of drafts say, whatever their kind.
#include "models/draft/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"

enum { CONFIG_LIMIT = 1 << 20, PATH_LIMIT = 4096 };

int draft_config_open(struct json **out, const char *path, struct err *e) {
    char name[PATH_LIMIT];
    struct str text = {0};
    const char *slash = strrchr(path, '/');
    bool file = str_ends(path, ".safetensors") || str_ends(path, ".json");
    int len = file ? (slash ? (int)(slash - path) : 1) : (int)strlen(path);
    int n = snprintf(name, sizeof name, "%.*s/config.json", len, file && !slash ? "." : path);
    if (n < 0 || n >= (int)sizeof name)
        return err_set(e, ERR_USAGE, "the path of the draft is too long");
    int rc = file_read(&text, name, CONFIG_LIMIT, e);
    if (!rc) {
        rc = json_parse(out, text.data, text.len, e);
        if (rc)
            err_prefix(e, "%s", name);
    }
    str_fini(&text);
    return rc;
}

int draft_check_tokens(const struct gguf *draft, const struct gguf *target, struct err *e) {
    const struct gguf_kv *a = gguf_find(draft, "tokenizer.ggml.tokens");
    const struct gguf_kv *b = gguf_find(target, "tokenizer.ggml.tokens");
    if (!a || !b || a->kind != GGUF_ARRAY || b->kind != GGUF_ARRAY || a->elem != GGUF_STRING ||
        b->elem != GGUF_STRING)
        return 0;
    if (a->count != b->count)
        return err_set(
            e, ERR_MISMATCH,
            "tokenizer.ggml.tokens has %llu tokens in the draft and %llu in the target; use "
            "the draft of this target",
            (unsigned long long)a->count, (unsigned long long)b->count);
    const unsigned char *at_a = a->bytes, *at_b = b->bytes;
    for (uint64_t i = 0; i < a->count; i++) {
        size_t la, lb;
        const char *ta = gguf_array_str(&at_a, &la), *tb = gguf_array_str(&at_b, &lb);
        if (la != lb || memcmp(ta, tb, la) != 0)
            return err_set(
                e, ERR_MISMATCH,
                "token %llu of the draft (tokenizer.ggml.tokens) is not that of the target; use "
                "the draft of this target",
                (unsigned long long)i);
    }
    return 0;
}

int draft_config_positive(const struct json *v, const char *key, double otherwise, float *out,
                          struct err *e) {
    *out = (float)json_num(v, json_kind_of(v) == JSON_NULL ? otherwise : -1);
    if (*out > 0 && isfinite(*out))
        return 0;
    return err_set(e, ERR_FORMAT, "config.json: %s must be a positive number", key);
}

// Rotary settings: in rope_parameters, of kinds of layers apart or together, or in rope_scaling.
// Layers have one kind of rotary embedding here.
struct rotary {
    const struct json *own, *other, *top;
};

static struct rotary rotary_of(const struct json *c, bool windowed) {
    const struct json *all = json_get(c, "rope_parameters"),
                      *swa = json_get(c, "swa_rope_parameters");
    const struct json *kind = json_get(all, windowed ? "sliding_attention" : "full_attention");
    kind = kind ? kind : json_get(all, "full_attention");
    if (windowed && json_kind_of(swa) == JSON_OBJECT)
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
static int config_yarn(struct rope *r, const struct rotary *k, struct err *e) {
    const double own = 1 + 0.1 * log((double)r->factor);
    float trained = 0;
    int rc = draft_config_positive(rotary_get(k, "original_max_position_embeddings"),
                                   "original_max_position_embeddings", 0, &trained, e);
    if (!rc)
        rc = draft_config_positive(rotary_get(k, "beta_fast"), "beta_fast", 32, &r->beta_fast, e);
    if (!rc)
        rc = draft_config_positive(rotary_get(k, "beta_slow"), "beta_slow", 1, &r->beta_slow, e);
    if (!rc)
        rc = draft_config_positive(rotary_get(k, "attention_factor"), "attention_factor", own,
                                   &r->magnitude, e);
    if (!rc && (trained < 1 || trained > 2e9f))
        rc = err_set(e, ERR_FORMAT, "config.json: original_max_position_embeddings of %g cannot be",
                     (double)trained);
    r->trained = rc ? 0 : (int64_t)trained;
    r->ramp = 1;
    r->exact_ramp = !json_bool(rotary_get(k, "truncate"), true);
    return rc;
}

// Long waves are divided by the factor, short ones stay, those between blend.
static int config_bands(struct rope *r, float *divisors, const struct rotary *k, struct err *e) {
    static const double pi = 3.14159265358979323846;
    float low, high, trained, factor = r->factor;
    int rc = draft_config_positive(rotary_get(k, "low_freq_factor"), "low_freq_factor", 1, &low, e);
    if (!rc)
        rc = draft_config_positive(rotary_get(k, "high_freq_factor"), "high_freq_factor", 4, &high,
                                   e);
    if (!rc)
        rc = draft_config_positive(rotary_get(k, "original_max_position_embeddings"),
                                   "original_max_position_embeddings", 8192, &trained, e);
    if (!rc && high <= low)
        rc = err_set(e, ERR_FORMAT, "config.json: high_freq_factor is not above low_freq_factor");
    for (int i = 0; !rc && i < r->dims / 2; i++) {
        double wave = 2 * pi * pow((double)r->base, 2.0 * i / r->dims);
        double at = ((double)trained / wave - (double)low) / (double)(high - low);
        at = fmin(fmax(at, 0), 1);
        divisors[i] = (float)(1 / ((1 - at) / (double)factor + at));
    }
    r->factor = 0;
    return rc;
}

int draft_config_rope(struct rope *r, float *divisors, int head_dim, bool windowed,
                      const struct json *c, struct err *e) {
    const struct rotary k = rotary_of(c, windowed);
    const struct json *theta = rotary_get(&k, "rope_theta");
    const char *type = json_str(rotary_get(&k, "rope_type"), NULL);
    float part = 1;
    type = type ? type : json_str(json_get(k.other, "type"), NULL);
    int rc = draft_config_positive(theta, "rope_theta", (double)r->base, &r->base, e);
    if (!rc)
        rc = draft_config_positive(rotary_get(&k, "partial_rotary_factor"), "partial_rotary_factor",
                                   1, &part, e);
    r->dims = part <= 1 ? (int)((float)head_dim * part) : 0;
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
    rc = draft_config_positive(rotary_get(&k, "factor"), "factor", 0, &r->factor, e);
    if (rc)
        return rc;
    return yarn ? config_yarn(r, &k, e) : bands ? config_bands(r, divisors, &k, e) : 0;
}
