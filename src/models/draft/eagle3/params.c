// SPDX-License-Identifier: Apache-2.0
// What files of EAGLE-3 drafts say. Taps are written as layers whose input is read, but a
// config.json whose list begins with 1 names those whose output is (so SGLang tells them apart,
// pull request 25454); without a list they are 2, half the layers, and three before the last.
#include <stdio.h>
#include <string.h>

#include "models/draft/config.h"
#include "models/draft/eagle3/impl.h"
#include "models/params.h"

enum { MAX_WIDTH = 1 << 20 };

// Ids as layers whose input is read.
static int take_tap(struct eagle3_params *p, int64_t id, const char *key, struct err *e) {
    if (id < 1 || id > PARAMS_MAX_LAYERS)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s reads the input of layer %lld; those of layers 1 and up can be read",
                       key, (long long)id);
    p->taps[p->n_taps++] = (int32_t)(id - 1);
    return 0;
}

static int refuse_count(const char *key, struct err *e) {
    return err_set(e, ERR_FORMAT, "%s must list 1 to %d layers of the target", key,
                   EAGLE3_MAX_TAPS);
}

static int default_taps(struct eagle3_params *p, int layers, struct err *e) {
    const int64_t ids[] = {2, layers / 2, layers - 3};
    int rc = 0;
    for (int i = 0; !rc && i < 3; i++)
        rc = take_tap(p, ids[i], "a draft without a list of layers", e);
    return rc;
}

// GGUF.

static int gguf_taps(struct eagle3_params *p, const struct gguf *g, int layers, struct err *e) {
    const char *key = "eagle3.target_layers";
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) { // as older converters name it
        key = "eagle3.extract_layers";
        kv = gguf_find(g, key);
    }
    if (!kv)
        return default_taps(p, layers, e);
    if (kv->kind != GGUF_ARRAY || kv->elem == GGUF_STRING || kv->elem == GGUF_F32 ||
        kv->elem == GGUF_F64 || kv->count < 1 || kv->count > EAGLE3_MAX_TAPS)
        return refuse_count(key, e);
    int rc = 0;
    for (uint64_t i = 0; !rc && i < kv->count; i++)
        rc = take_tap(p, gguf_array_int(kv, i), key, e);
    return rc;
}

static int gguf_rope(struct eagle3_params *p, const struct gguf *g, struct err *e) {
    struct model_params own = {.arch = "eagle3", .rope = {.pairs = ROPE_NEIGHBOURS}};
    int64_t dims;
    int rc = meta_positive(g, "eagle3.rope.freq_base", 10000, &own.rope.base, e);
    if (!rc)
        rc = meta_int(g, "eagle3.rope.dimension_count", 2, p->head_dim, p->head_dim, &dims, e);
    if (!rc)
        rc = meta_int(g, "eagle3.context_length", 1, (int64_t)1 << 31, 1, &own.context, e);
    if (!rc)
        rc = rope_scaling_read(&own, g, e);
    p->rope = own.rope;
    p->rope.dims = rc ? 0 : (int)dims;
    return rc;
}

static int gguf_flags(struct eagle3_params *p, const struct gguf *g, struct err *e) {
    int rc = gguf_get_bool(g, "eagle3.norm_before_residual", false, &p->norm_before_residual, e);
    if (!rc)
        rc = gguf_get_bool(g, "eagle3.norm_before_fc", false, &p->norm_before_fc, e);
    return rc ? rc : gguf_get_bool(g, "eagle3.norm_output", false, &p->norm_output, e);
}

static int read_gguf(struct eagle3_params *p, const struct gguf *g, const struct model_params *t,
                     struct err *e) {
    int64_t layers = 0, hd = 0;
    int rc = meta_int(g, "eagle3.block_count", 1, PARAMS_MAX_LAYERS, 0, &layers, e);
    if (!rc && layers != 1)
        rc = err_set(e, ERR_UNSUPPORTED,
                     "metadata key eagle3.block_count is %lld; drafts of one layer are supported",
                     (long long)layers);
    if (!rc)
        rc = meta_int(g, "eagle3.embedding_length", 32, MAX_WIDTH, 0, &p->dim, e);
    if (!rc)
        rc = meta_int(g, "eagle3.feed_forward_length", 32, MAX_WIDTH, 0, &p->ffn, e);
    if (!rc)
        rc = meta_heads(g, "eagle3.attention.head_count", 1, &p->n_heads, e);
    if (!rc)
        rc = meta_heads(g, "eagle3.attention.head_count_kv", 1, &p->n_kv, e);
    if (!rc)
        rc = meta_int(g, "eagle3.attention.key_length", 1, OPS_HEAD_MAX, p->dim / p->n_heads, &hd,
                      e);
    p->head_dim = (int)hd;
    if (!rc)
        rc = meta_positive(g, "eagle3.attention.layer_norm_rms_epsilon", 1e-6, &p->eps, e);
    if (!rc)
        rc = meta_int(g, "eagle3.target_hidden_size", 1, MAX_WIDTH, p->dim, &p->target_dim, e);
    if (!rc)
        rc = gguf_flags(p, g, e);
    if (!rc)
        rc = gguf_rope(p, g, e);
    return rc ? rc : gguf_taps(p, g, t->n_layers, e);
}

// config.json.

// At the top, or in the part that is about the layer or about EAGLE.
static const struct json *find(const struct json *c, const char *key) {
    const struct json *v = json_get(c, key);
    if (json_kind_of(v) == JSON_NULL)
        v = json_get(json_get(c, "transformer_layer_config"), key);
    return json_kind_of(v) == JSON_NULL ? json_get(json_get(c, "eagle_config"), key) : v;
}

static int config_int(const struct json *c, const char *key, int64_t lo, int64_t hi,
                      int64_t otherwise, int64_t *out, struct err *e) {
    const struct json *v = find(c, key);
    *out = json_kind_of(v) == JSON_INT    ? json_int(v, lo - 1)
           : json_kind_of(v) == JSON_NULL ? otherwise
                                          : lo - 1;
    if (*out >= lo && *out <= hi)
        return 0;
    return err_set(e, ERR_FORMAT, "config.json: %s must be an integer from %lld to %lld", key,
                   (long long)lo, (long long)hi);
}

static int refuse_variants(const struct json *c, struct err *e) {
    const char *act = json_str(find(c, "hidden_act"), NULL);
    const struct json *types = find(c, "layer_types");
    const char *type = json_str(json_at(types, 0), NULL);
    if (!eagle3_in_config(c))
        return err_set(e, ERR_UNSUPPORTED,
                       "config.json is of no EAGLE-3 draft (architectures); use another draft");
    if (act && strcmp(act, "silu") != 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "config.json: hidden_act %.40s is not supported; silu is", act);
    if (type && strcmp(type, "full_attention") != 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "config.json: a layer of type %.40s is not supported; full_attention is",
                       type);
    if (json_bool(find(c, "fc_norm"), false))
        return err_set(e, ERR_UNSUPPORTED,
                       "config.json: fc_norm is not supported; use a draft without it");
    if (!json_bool(find(c, "use_aux_hidden_state"), true))
        return err_set(e, ERR_UNSUPPORTED,
                       "config.json: use_aux_hidden_state false is not supported; use a draft that "
                       "reads several layers of the target");
    return 0;
}

static int config_shape(struct eagle3_params *p, const struct json *c, struct err *e) {
    int64_t layers = 0, heads = 0, kv = 0, hd = 0;
    int rc = config_int(c, "num_hidden_layers", 1, 1, 1, &layers, e);
    if (!rc)
        rc = config_int(c, "hidden_size", 32, MAX_WIDTH, 0, &p->dim, e);
    if (!rc)
        rc = config_int(c, "intermediate_size", 32, MAX_WIDTH, 0, &p->ffn, e);
    if (!rc)
        rc = config_int(c, "num_attention_heads", 1, 4096, 0, &heads, e);
    if (!rc)
        rc = config_int(c, "num_key_value_heads", 1, 4096, heads, &kv, e);
    if (!rc)
        rc = config_int(c, "head_dim", 1, OPS_HEAD_MAX, p->dim / heads, &hd, e);
    if (!rc)
        rc = config_int(c, "target_hidden_size", 1, MAX_WIDTH, p->dim, &p->target_dim, e);
    p->n_heads = (int)heads;
    p->n_kv = (int)kv;
    p->head_dim = (int)hd;
    return rc;
}

static int config_taps(struct eagle3_params *p, const struct json *c, int layers, struct err *e) {
    static const char key[] = "eagle_aux_hidden_state_layer_ids";
    const struct json *list = find(c, key);
    const size_t n = json_kind_of(list) == JSON_ARRAY ? json_len(list) : 0;
    const int more = json_int(json_at(list, 0), 0) == 1;
    int rc = 0;
    if (json_kind_of(list) == JSON_NULL)
        return default_taps(p, layers, e);
    if (n < 1 || n > EAGLE3_MAX_TAPS)
        return refuse_count(key, e);
    for (size_t i = 0; !rc && i < n; i++) {
        const int64_t id = json_int(json_at(list, i), -1);
        rc = take_tap(p, id > PARAMS_MAX_LAYERS ? id : id + more, key, e);
    }
    return rc;
}

static int read_config(struct eagle3_params *p, const struct json *c, const struct model_params *t,
                       struct err *e) {
    const struct json *layer = json_get(c, "transformer_layer_config");
    // What a layer of its own is described by has other defaults.
    const bool nested = json_kind_of(layer) == JSON_OBJECT;
    p->rope.base = 10000;
    p->rope.pairs = ROPE_HALVES;
    int rc = refuse_variants(c, e);
    if (!rc)
        rc = config_shape(p, c, e);
    if (!rc)
        rc = draft_config_positive(find(c, "rms_norm_eps"), "rms_norm_eps", 1e-6, &p->eps, e);
    if (!rc)
        rc = draft_config_rope(&p->rope, p->rope_divisors, p->head_dim, false, nested ? layer : c,
                               e);
    p->norm_before_residual = json_bool(find(c, "norm_before_residual"), nested);
    p->norm_before_fc = json_bool(find(c, "norm_before_fc"), false);
    p->norm_output = json_bool(find(c, "norm_output"), false);
    return rc ? rc : config_taps(p, c, t->n_layers, e);
}

// That it fits.

static int check_fit(const struct eagle3_params *p, const struct model_params *t, struct err *e) {
    if (p->target_dim != t->dim)
        return err_set(e, ERR_MISMATCH,
                       "the draft reads states that are %lld wide (target_hidden_size) but the "
                       "target's are %lld; use the draft of this target",
                       (long long)p->target_dim, (long long)t->dim);
    for (int i = 0; i < p->n_taps; i++)
        if (p->taps[i] >= t->n_layers)
            return err_set(e, ERR_MISMATCH,
                           "the draft reads the output of target layer %d, counted from 0, but the "
                           "target has %d; use the draft of this target",
                           (int)p->taps[i], t->n_layers);
    if (p->n_kv < 1 || p->n_heads % p->n_kv || p->n_heads / p->n_kv > OPS_GROUP_MAX ||
        p->head_dim < 32 || p->head_dim % 32 || p->dim % 32 || p->ffn % 32)
        return err_set(e, ERR_UNSUPPORTED,
                       "a draft with %d heads over %d of width %d and a feed-forward width of %lld "
                       "is not supported",
                       p->n_heads, p->n_kv, p->head_dim, (long long)p->ffn);
    return 0;
}

static int check_vocab(const struct draft_file *f, const struct model *target, struct err *e) {
    const int64_t vocab = target->params.vocab;
    int64_t own = vocab;
    int rc = f->g ? meta_int(f->g, "eagle3.vocab_size", 1, (int64_t)1 << 31, vocab, &own, e)
                  : config_int(f->config, "vocab_size", 1, (int64_t)1 << 31, vocab, &own, e);
    if (!rc && own != vocab)
        rc = err_set(e, ERR_MISMATCH,
                     "the draft is for a vocabulary of %lld tokens (vocab_size) but the target's "
                     "has %lld; use the draft of this target",
                     (long long)own, (long long)vocab);
    return rc || !f->g ? rc : draft_check_tokens(f->g, target->load.arg, e);
}

int eagle3_read_params(struct eagle3_params *p, const struct draft_file *f,
                       const struct model *target, struct err *e) {
    const struct model_params *t = &target->params;
    *p = (struct eagle3_params){0};
    int rc = f->g ? read_gguf(p, f->g, t, e) : read_config(p, f->config, t, e);
    if (!rc)
        rc = rope_scaling_follow(&p->rope, t, e);
    if (!rc)
        rc = check_fit(p, t, e);
    return rc ? rc : check_vocab(f, target, e);
}
