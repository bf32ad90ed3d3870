// SPDX-License-Identifier: Apache-2.0
// See config.h.
#include "models/draft/config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"

enum { CONFIG_LIMIT = 1 << 20, PATH_LIMIT = 4096 };

// The GGUF reader's word on what is neither is the better one, but for a folder.
int draft_file_open(struct draft_file *f, const char *path, struct err *e) {
    struct err first = {0};
    *f = (struct draft_file){0};
    int rc = str_ends(path, ".safetensors") || str_ends(path, ".json")
                 ? ERR_FORMAT
                 : gguf_open(&f->g, path, &first);
    if (rc) {
        f->g = NULL;
        rc = safetensors_open(&f->st, path, e);
        if (rc) {
            f->st = NULL;
            if (first.code && e && !str_ends(path, "/"))
                *e = first;
            return first.code ? first.code : rc;
        }
        rc = draft_config_open(&f->config, path, e);
    }
    f->used = rc ? NULL : calloc(draft_file_count(f) + 1, 1);
    if (!rc && !f->used)
        rc = err_set(e, ERR_MEMORY, "no memory to open the draft");
    if (rc)
        draft_file_close(f);
    return rc;
}

void draft_file_close(struct draft_file *f) {
    gguf_close(f->g);
    if (f->st)
        safetensors_close(f->st);
    json_free(f->config);
    free(f->used);
    *f = (struct draft_file){0};
}

size_t draft_file_count(const struct draft_file *f) {
    return f->g ? gguf_tensor_count(f->g) : safetensors_count(f->st);
}

const struct tensor *draft_file_at(const struct draft_file *f, size_t i) {
    return f->g ? gguf_tensor_at(f->g, i) : safetensors_at(f->st, i);
}

const struct tensor *draft_file_use(const struct draft_file *f, const struct tensor *t) {
    for (size_t i = 0; t && i < draft_file_count(f); i++)
        if (draft_file_at(f, i) == t)
            f->used[i] = 1;
    return t;
}

void draft_file_done(const void *file, const struct tensor *t) {
    const struct draft_file *f = file;
    if (f->g)
        gguf_release(f->g, t);
}

int draft_file_check(const void *file, struct err *e) {
    const struct draft_file *f = file;
    return f->g ? gguf_check(f->g, e) : 0;
}

int draft_file_all_used(const struct draft_file *f, const char *kind, const char *except,
                        struct err *e) {
    for (size_t i = 0; i < draft_file_count(f); i++) {
        const char *name = draft_file_at(f, i)->name;
        if (!f->used[i] && (!except || strcmp(name, except) != 0))
            return err_set(e, ERR_UNSUPPORTED,
                           "the draft has a tensor %.100s that %s does not know; it is another "
                           "kind of draft, use a plain %s one",
                           name, kind, kind);
    }
    return 0;
}

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

static const char tokens_key[] = "tokenizer.ggml.tokens";

static const struct gguf_kv *tokens_of(const struct gguf *g) {
    const struct gguf_kv *kv = gguf_find(g, tokens_key);
    return kv && kv->kind == GGUF_ARRAY && kv->elem == GGUF_STRING ? kv : NULL;
}

int64_t draft_token_apart(const struct gguf *draft, const struct gguf *target) {
    const struct gguf_kv *a = tokens_of(draft), *b = tokens_of(target);
    if (!a || !b || a->count != b->count)
        return -1;
    const unsigned char *at_a = a->bytes, *at_b = b->bytes;
    for (uint64_t i = 0; i < a->count; i++) {
        size_t n, k;
        const char *x = gguf_array_str(&at_a, &n), *y = gguf_array_str(&at_b, &k);
        if (n != k || memcmp(x, y, n) != 0)
            return (int64_t)i;
    }
    return -1;
}

int draft_check_tokens(const struct gguf *draft, const struct gguf *target, struct err *e) {
    const struct gguf_kv *a = tokens_of(draft), *b = tokens_of(target);
    if (a && b && a->count != b->count)
        return err_set(e, ERR_MISMATCH,
                       "%s has %llu tokens in the draft and %llu in the target; use the draft of "
                       "this target",
                       tokens_key, (unsigned long long)a->count, (unsigned long long)b->count);
    const int64_t apart = draft_token_apart(draft, target);
    if (apart < 0)
        return 0;
    return err_set(e, ERR_MISMATCH,
                   "token %lld of the draft (%s) is not that of the target; use the draft of this "
                   "target",
                   (long long)apart, tokens_key);
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
